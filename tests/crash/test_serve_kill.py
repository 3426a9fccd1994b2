"""`graphmem serve` killed while several clients add memories, and started again.

An answer with status 200 or 202 of `POST /memories` says that the words are durable, and the repetition of a request
with its Idempotency-Key stores nothing twice, whether the first was answered or not. A saved chat is accepted, not
durable: after a kill a chat may be missing, and is stored once if it is saved again. FAULTS_SEED chooses other kills.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from string import ascii_lowercase
from threading import Lock, Thread
from typing import Any

import httpx2
import pytest
from support.serve_process import ServeProcess, serve_process

from graphmem import Memory, Settings

SEED = os.environ.get("FAULTS_SEED", "6")
CLIENTS, KILLS = 4, 4
MOST_ANSWERS = 60
USER = "ana"
UNLIMITED = {"GRAPHMEM_SERVE__RATE": "1000000/minute", "GRAPHMEM_SERVE__ADD_RATE": "1000000/minute"}


@dataclass
class Sent:
    """A request that adds messages: `ids` of the memories that an answer has named, none without an answer."""

    key: str
    texts: list[str]
    waits: bool
    ids: list[str] = field(default_factory=list)

    def send(self, client: httpx2.Client) -> list[dict[str, Any]]:
        """Sends it and returns the results."""
        body = {"user_id": USER, "messages": [{"role": "user", "content": text} for text in self.texts]}
        answer = client.post(
            "/memories",
            params={"wait": "true" if self.waits else "false"},
            json=body,
            headers={"Idempotency-Key": self.key},
        )
        assert answer.status_code == (200 if self.waits else 202), answer.text
        results: list[dict[str, Any]] = answer.json()["results"]
        return results


@dataclass
class Journal:
    """What the clients have sent in all rounds; `chats` are the texts of saved chats."""

    requests: list[Sent] = field(default_factory=list)
    chats: list[list[str]] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)


def save(client: httpx2.Client, texts: list[str]) -> None:
    """Saves a chat of these messages."""
    messages = [{"role": role, "content": text} for role, text in zip(("user", "assistant"), texts, strict=True)]
    answer = client.post("/chats/saved", json={"user_id": USER, "run_id": texts[0], "messages": messages})
    assert (answer.status_code, answer.json()) == (202, {"accepted": True})


def work(service: ServeProcess, journal: Journal, name: str, dice: Random, answered: Callable[[], None]) -> None:
    """Sends requests one after another until the service no longer answers."""
    with service.client() as client:
        for number in range(10_000):
            word = "".join(dice.choices(ascii_lowercase, k=10))
            try:
                if dice.random() < 0.2:  # noqa: PLR2004
                    texts = [f"Clara asks for the parcel {word}.", f"The parcel {word} is in Lisbon."]
                    with journal.lock:
                        journal.chats.append(texts)
                    save(client, texts)
                else:
                    texts = [f"Part {part} of {word} is in Bergen." for part in range(dice.randint(1, 3))]
                    sent = Sent(f"key-{name}-{number}", texts, dice.random() < 0.5)  # noqa: PLR2004
                    with journal.lock:
                        journal.requests.append(sent)
                    sent.ids = [one["id"] for one in sent.send(client)]
            except httpx2.TransportError:
                return
            answered()


def killed_round(home: Path, journal: Journal, name: str) -> None:
    """Starts the service after the kill before, and lets clients add until it is killed again at a random moment."""
    dice = Random(name)  # noqa: S311
    with serve_process(home, "--no-auth", **UNLIMITED) as service:
        with service.client() as client:
            check_stored(client, journal)
        left, lock = dice.randint(1, MOST_ANSWERS), Lock()

        def answered() -> None:
            nonlocal left
            with lock:
                left -= 1
                if left == 0:
                    service.process.kill()

        clients = [
            Thread(target=work, args=(service, journal, f"{name}-{number}", Random(f"{name}-{number}"), answered))  # noqa: S311
            for number in range(CLIENTS)
        ]
        for thread in clients:
            thread.start()
        for thread in clients:
            thread.join()
        assert service.process.wait() == -signal.SIGKILL
        assert "Traceback" not in service.log


def test_what_was_acknowledged_is_there_once(tmp_path: Path) -> None:
    journal, home = Journal(), tmp_path / "home"
    for number in range(KILLS):
        killed_round(home, journal, f"{SEED}-{number}")
    with serve_process(home, "--no-auth", **UNLIMITED) as service:
        with service.client() as client:
            check_stored(client, journal)
            for sent in journal.requests:
                results = sent.send(client)
                assert len(results) == len(sent.texts)
                if sent.ids:
                    assert [(one["event"], one["id"]) for one in results] == [("NONE", id_) for id_ in sent.ids]
                sent.ids = [one["id"] for one in results]
            for texts in journal.chats:
                save(client, texts)
        service.end()
    with serve_process(home, "--no-auth", **UNLIMITED) as service, service.client() as client:
        stored = check_stored(client, journal)
        assert {text for texts in journal.chats for text in texts} <= stored
        for sent in journal.requests[:: len(journal.requests) // 10 or 1]:
            found = client.post("/search", json={"query": sent.texts[0], "user_id": USER, "top_k": 20}).json()[
                "results"
            ]
            assert sent.ids[0] in [hit["id"] for hit in found]
        service.end()
    with Memory(settings=Settings.from_dict({"home": str(home), "extractor": {"provider": "none"}})) as memory:
        assert memory.flush() == {"pending": []}
        assert memory.verify()["ok"]


def check_stored(client: httpx2.Client, journal: Journal) -> set[str]:
    """Checks that acknowledged memories are there, no request is stored in part, and no text twice; returns the texts.

    What was answered is found by its id. A request without an answer is stored as a whole or not at all.
    """
    by_id: dict[str, str] = {}
    page: dict[str, Any] = {"next_cursor": ""}
    while page["next_cursor"] is not None:
        query = {"user_id": USER, "limit": 1000, "cursor": page["next_cursor"]}
        page = client.get("/memories", params=query).json()
        by_id |= {one["id"]: one["memory"] for one in page["results"]}
    texts = set(by_id.values())
    assert len(texts) == len(by_id), "a text is stored twice"
    for sent in journal.requests:
        assert [by_id.get(id_) for id_ in sent.ids] == (sent.texts if sent.ids else [])
        assert sum(text in texts for text in sent.texts) in {0, len(sent.texts)}
    return texts


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="root's rights cannot be taken from a process here")
def test_an_end_in_a_folder_without_write_permission_loses_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    prefix = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--"] if os.geteuid() == 0 else []
    with serve_process(home, prefix=prefix) as service:
        with service.client(service.key) as client:
            added = client.post("/memories", json={"user_id": "ana", "messages": "I like tea", "infer": False})
            assert added.status_code == 200
        subprocess.run(["chmod", "-R", "a-w", str(home)], check=True)
        service.end()
        assert "Traceback" not in service.log
        assert "shutdown failed" not in service.log
    subprocess.run(["chmod", "-R", "u+w", str(home)], check=True)
    with Memory(Settings(home=home, extractor={"provider": "none"})) as memory:
        assert [one["memory"] for one in memory.get_all(user_id="ana")["results"]] == ["I like tea"]
