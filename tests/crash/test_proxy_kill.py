"""`graphmem serve` killed while many clients chat through its proxy: each question and answer is there afterwards.

A client has an answer once it has its last byte. The words of the chat are durable before.
"""

from __future__ import annotations

import json
import signal
from itertools import count
from pathlib import Path
from threading import Lock, Thread
from typing import Any

import httpx2
from support.serve_process import ServeProcess, serve_process
from support.waiting import wait_until

from graphmem.testing import ModelEndpoint, behaviours

CLIENTS, KILLS = 32, 3
# Answers of a round before the kill.
ANSWERS = 60
USER = "ana"


class Chats:
    """Chats of all rounds: the texts of those that were answered to the last byte."""

    def __init__(self) -> None:
        self.answered: list[str] = []
        self._numbers = count()
        self._lock = Lock()

    def go_on(self, service: ServeProcess, client: httpx2.Client, last: int) -> None:
        """Asks questions, every other one for a stream, until the service does not answer.

        Kills it with the last byte of the answer with the number `last`.
        """
        for number in self._numbers:
            question = f"What about parcel {number}?"
            body: dict[str, Any] = {
                "model": "m", "user": USER, "stream": number % 2 == 0,
                "messages": [{"role": "user", "content": question}],
            }  # fmt: skip
            try:
                answer = client.post("/v1/chat/completions", json=body)
            except httpx2.TransportError:
                return
            assert answer.status_code == 200, answer.text
            with self._lock:
                self.answered += [question, _text(answer)]
                if len(self.answered) == 2 * last:
                    service.process.kill()


def _text(answer: httpx2.Response) -> str:
    """The text of an answer, whole or streamed."""
    if answer.headers["content-type"].startswith("application/json"):
        text: str = answer.json()["choices"][0]["message"]["content"]
        return text
    events = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: {")]
    choices = [choice for event in events for choice in json.loads(event)["choices"]]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


def test_no_word_of_an_answered_chat_is_lost(tmp_path: Path) -> None:
    chats, home = Chats(), tmp_path / "home"
    with ModelEndpoint() as upstream:
        upstream.then(*[behaviours.streamed(f"Parcel {n} is in Bergen.", chunks=3) for n in range(5000)])
        environment = {
            "GRAPHMEM_SERVE__PROXY__UPSTREAM_URL": upstream.url,
            "GRAPHMEM_SERVE__RATE": "1000000/minute",
        }
        for number in range(1, KILLS + 1):
            with serve_process(home, "--no-auth", **environment) as service, service.client() as client:
                threads = [Thread(target=chats.go_on, args=(service, client, number * ANSWERS)) for _ in range(CLIENTS)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                assert service.process.wait() == -signal.SIGKILL
                assert "Traceback" not in service.log
                assert "before the words of its chat are stored" not in service.log
        with serve_process(home, "--no-auth", **environment) as service, service.client() as client:
            wait_until(lambda: set(chats.answered) <= set(_texts(client)))  # it stores the answers that have waited
            stored = _texts(client)
    assert len(chats.answered) >= 2 * KILLS * ANSWERS
    assert len(stored) == len(set(stored)), "a text is stored twice"


def _texts(client: httpx2.Client) -> list[str]:
    """The texts of all memories."""
    found: list[str] = []
    page: dict[str, Any] = {"next_cursor": ""}
    while page["next_cursor"] is not None:
        query = {"user_id": USER, "limit": 1000, "cursor": page["next_cursor"]}
        page = client.get("/memories", params=query).json()
        found += [one["memory"] for one in page["results"]]
    return found
