"""Words of chats are durable when their answer ends: whatever ends the process then, none is lost, none is doubled."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from starlette.testclient import TestClient
from support.service import client_of, headers, settings_of
from support.waiting import TIMEOUT, wait_until

from graphmem import Memory
from graphmem.service import limits
from graphmem.service.app import service_app
from graphmem.service.proxy.proxy import ChatProxy
from graphmem.stores.ledger import items, ledger_state
from graphmem.testing import ModelEndpoint, behaviours

CHAT = "/v1/chat/completions"
QUESTION, ANSWER = "Am I allergic to seafood?", "Yes, you are."
Make = Callable[..., Memory]


@pytest.fixture
def upstream() -> Iterator[ModelEndpoint]:
    with ModelEndpoint(default=ANSWER) as endpoint:
        yield endpoint


@contextmanager
def proxied(memory: Memory, upstream: ModelEndpoint, workers: int = 1, **proxy: Any) -> Iterator[TestClient]:
    with client_of(memory, None, proxy={"upstream_url": upstream.url, **proxy}, workers=workers) as client:
        client.headers.update(headers(memory, "user", user_id="ana"))
        yield client


def ask(client: TestClient, *texts: str, **more: Any) -> Any:
    """Sends a chat of these texts of the user and the assistant, in turn."""
    messages = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts or (QUESTION,))]
    answer = client.post(CHAT, json={"model": "m", "messages": messages, **more})
    assert answer.status_code == 200, answer.text
    return answer


def stored(memory: Memory) -> list[str]:
    return sorted(one["memory"] for one in memory.get_all(user_id="ana")["results"])


def waiting(memory: Memory) -> list[str]:
    """The texts of the answers that wait in the ledger."""
    with memory.engine.ledger.read() as connection:
        found = items.changed_before(connection, (items.PROXY_ANSWERS,), datetime.now(UTC))
    return [message["content"] for item in found for message in json.loads(item.value)]


@pytest.fixture
def _no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a service stores nothing, as if its process were killed."""
    monkeypatch.setattr(ChatProxy, "close", lambda _: None)


# --- before the last byte ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False])
def test_question_and_answer_are_durable_before_the_answer_ends(
    memory: Memory, upstream: ModelEndpoint, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    app = service_app(memory, settings_of(proxy={"upstream_url": upstream.url}))
    durable: list[list[str]] = []

    async def watched(scope: Any, receive: Any, send: Any) -> None:
        async def send_and_look(message: Mapping[str, Any]) -> None:
            body = message.get("body", b"")
            if b'"finish_reason": "stop"' in body or b"[DONE]" in body or not message.get("more_body", True):
                durable.append([*stored(memory), *waiting(memory)])
            await send(message)

        await app(scope, receive, send_and_look)

    add = Memory.add
    monkeypatch.setattr(Memory, "add", lambda *given, **more: time.sleep(0.1) or add(*given, **more))
    with TestClient(watched, headers=headers(memory, "user", user_id="ana")) as client:
        durable.clear()  # what the beginning of the service has sent
        assert ask(client, stream=stream).headers["x-graphmem"] == "on; memories=0"
    assert durable
    assert all(texts == [QUESTION, ANSWER] for texts in durable)


@pytest.mark.parametrize("stream", [True, False])
def test_the_beginning_of_an_answer_does_not_wait_for_the_ledger(
    memory: Memory, upstream: ModelEndpoint, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    released = threading.Event()
    app = service_app(memory, settings_of(proxy={"upstream_url": upstream.url}))

    async def watched(scope: Any, receive: Any, send: Any) -> None:
        async def send_and_release(message: Mapping[str, Any]) -> None:
            if message["type"] == "http.response.start" and scope["path"] == CHAT:
                released.set()
            await send(message)

        await app(scope, receive, send_and_release)

    add = Memory.add
    monkeypatch.setattr(limits, "STALLED_SECONDS", 2 * TIMEOUT)
    monkeypatch.setattr(limits, "STORED_SECONDS", 2 * TIMEOUT)
    monkeypatch.setattr(Memory, "add", lambda *given, **more: released.wait(TIMEOUT) and add(*given, **more))
    with TestClient(watched, headers=headers(memory, "user", user_id="ana")) as client:
        ask(client, stream=stream)
        assert stored(memory) == [QUESTION]


def test_an_answer_goes_on_while_the_ledger_takes_nothing(
    memory: Memory, upstream: ModelEndpoint, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    released, add = threading.Event(), Memory.add
    monkeypatch.setattr(limits, "STALLED_SECONDS", 0.1)
    monkeypatch.setattr(Memory, "add", lambda *given, **more: released.wait(TIMEOUT) and add(*given, **more))
    with proxied(memory, upstream) as client:
        ask(client, stream=True)
        assert stored(memory) == []
        assert caplog.text.count("an answer goes on before the words of its chat are stored") == 1
        released.set()
        wait_until(lambda: (stored(memory), waiting(memory)) == ([QUESTION], [ANSWER]))


def test_words_that_cannot_be_stored_are_told_in_the_log(
    memory: Memory, upstream: ModelEndpoint, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("a private text")

    monkeypatch.setattr(Memory, "add", fail)
    with proxied(memory, upstream) as client:
        ask(client)
    assert "a saved chat was not stored (RuntimeError)" in caplog.text


# --- answers that wait ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_no_end")
def test_an_answer_that_waits_survives_the_process(memory: Memory, upstream: ModelEndpoint) -> None:
    upstream.then("First.", "Second.")
    with proxied(memory, upstream) as client:
        ask(client)
        ask(client)
        ask(client, QUESTION, "Second.", "Thanks.")
    assert (stored(memory), waiting(memory)) == (sorted([QUESTION, "Second.", "Thanks."]), [ANSWER])
    with proxied(memory, upstream) as client:
        wait_until(lambda: stored(memory) == sorted([QUESTION, "Second.", "Thanks.", ANSWER]))
        wait_until(lambda: not waiting(memory))
        # It is recognised when the client sends it back.
        ask(client, QUESTION, "Second.", "Thanks.", ANSWER, "Bye.")
        wait_until(lambda: stored(memory) == sorted([QUESTION, "Second.", "Thanks.", ANSWER, "Bye."]))


@pytest.mark.usefixtures("_no_end")
def test_more_answers_than_a_batch_are_stored_at_the_next_start(
    memory: Memory, upstream: ModelEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphmem.service.proxy.answers.BATCH", 2)
    answers = [f"Answer {n}." for n in range(5)]
    upstream.then(*answers)
    with proxied(memory, upstream) as client:
        for n in range(5):
            ask(client, f"Question {n}?")
    with proxied(memory, upstream):
        wait_until(lambda: {*answers} <= {*stored(memory)})


def test_of_several_processes_each_sees_the_answers_of_the_others(memory: Memory, upstream: ModelEndpoint) -> None:
    upstream.then("First.", "Second.")
    with proxied(memory, upstream, workers=2) as one, proxied(memory, upstream, workers=2) as other:
        ask(one)
        ask(other)
        assert waiting(memory) == ["Second."]
        ask(one, QUESTION, "Second.", "Thanks.")
    # Their end says nothing about the chat, and neither does the beginning of another one.
    with proxied(memory, upstream, workers=2):
        assert (stored(memory), waiting(memory)) == (sorted([QUESTION, "Second.", "Thanks."]), [ANSWER])
    with proxied(memory, upstream, workers=2, settle_seconds=0.01):
        wait_until(lambda: stored(memory) == sorted([QUESTION, "Second.", "Thanks.", ANSWER]))


def test_what_a_model_says_between_its_tools_waits_with_the_answer(memory: Memory, upstream: ModelEndpoint) -> None:
    called = {"role": "assistant", "content": "Let me look.", "tool_calls": [{"id": "1", "type": "function"}]}
    messages = [{"role": "user", "content": QUESTION}, called, {"role": "tool", "tool_call_id": "1", "content": "42"}]
    with proxied(memory, upstream) as client:
        client.post(CHAT, json={"model": "m", "messages": messages})
        assert (stored(memory), waiting(memory)) == ([QUESTION], ["Let me look.", ANSWER])
    assert stored(memory) == sorted([QUESTION, "Let me look.", ANSWER])


def test_an_answer_that_waits_is_erased_with_its_user(memory: Memory, upstream: ModelEndpoint) -> None:
    with proxied(memory, upstream) as client:
        ask(client)
        memory.delete_all(user_id="ana")
        assert waiting(memory) == []
    assert stored(memory) == []


def test_an_answer_that_is_stored_is_not_erased_where_it_waited(memory: Memory, upstream: ModelEndpoint) -> None:
    """Erasures have the ledger compacted at the end."""

    def erasures() -> int:
        with memory.engine.ledger.read() as connection:
            return ledger_state.erasures(connection)

    upstream.then("First.", "Second.")
    with proxied(memory, upstream) as client:
        ask(client)
        ask(client, QUESTION, "First.", "Thanks.")
        wait_until(lambda: waiting(memory) == ["Second."])
        assert erasures() == 0
        ask(client, QUESTION, "First.", "Thanks.")
        wait_until(lambda: waiting(memory) == [ANSWER])
        assert erasures() == 1
    assert (stored(memory), waiting(memory)) == (sorted([QUESTION, "First.", "Thanks.", ANSWER]), [])
    assert erasures() == 1


def test_an_answer_is_not_stored_once_chats_no_longer_are(memory: Memory, upstream: ModelEndpoint) -> None:
    with proxied(memory, upstream) as client:
        ask(client)
        assert client.put("/settings", json={"save": False}).status_code == 200
    assert (stored(memory), waiting(memory)) == ([QUESTION], [])


def test_the_hook_sees_an_answer_before_it_waits(make_memory: Make, upstream: ModelEndpoint) -> None:
    def before_store(message: dict[str, Any]) -> dict[str, Any] | None:
        if "secret" in message["content"]:
            return None
        return {**message, "content": message["content"].replace("seafood", "***")}

    memory = make_memory(before_store=before_store)
    upstream.then("You dislike seafood.", "A secret.")
    with proxied(memory, upstream) as client:
        ask(client)
        ask(client, "And now?")
        assert waiting(memory) == ["You dislike ***."]
    assert stored(memory) == sorted(["Am I allergic to ***?", "And now?", "You dislike ***."])


def test_an_answer_with_several_ends_is_kept_as_a_whole(memory: Memory, upstream: ModelEndpoint) -> None:
    """Some endpoints give a reason for the end with each part."""
    end = {"choices": [{"index": 0, "delta": {"content": " One"}, "finish_reason": "stop"}]}
    upstream.then(behaviours.noisy("Two.", [f"data: {json.dumps(end)}"]))
    with proxied(memory, upstream) as client:
        text = ask(client, stream=True).text
        assert text.count(" One") > 1
    assert waiting(memory) == []
    [kept] = [text for text in stored(memory) if text != QUESTION]
    assert kept.count("One") == text.count(" One")
