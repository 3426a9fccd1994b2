"""The proxy by the official client on a real server: streams, what passes unchanged, hang-ups, and the three steps."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx  # noqa: F401  (openai looks it up, also while a thread of the extractor imports it)
import httpx2
import openai
import pytest
from support.chat_cases import CASES
from support.databases import SQLITE_ONLY
from support.service import headers, served
from support.waiting import TIMEOUT, wait_until

from graphmem import Memory
from graphmem.retrieval import fallback
from graphmem.service import limits
from graphmem.testing import ModelEndpoint, behaviours
from graphmem.testing.behaviours import Behaviour

Make = Callable[..., Memory]
FACT, QUESTION = "I am allergic to seafood.", "Am I allergic to seafood?"
ANSWER = "Yes, you are: 你对海鲜过敏, as you said."
CHAT = {"model": "m", "messages": [{"role": "user", "content": QUESTION}]}
CLIENTS = 32


@pytest.fixture
def upstream() -> Iterator[ModelEndpoint]:
    with ModelEndpoint(default=ANSWER) as endpoint:
        yield endpoint


@pytest.fixture
def key(memory: Memory) -> str:
    memory.add(FACT, user_id="ana")
    return headers(memory, "user", user_id="ana")["X-API-Key"]


@pytest.fixture
def proxy(memory: Memory, upstream: ModelEndpoint, key: str) -> Iterator[str]:
    """The base URL of a proxy in front of the endpoint."""
    with served(memory, proxy={"upstream_url": upstream.url, "time_limit": TIMEOUT}) as url:
        yield f"{url}/v1"


@pytest.fixture
def client(proxy: str, key: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=proxy, api_key=key, max_retries=0) as client:
        yield client


@pytest.fixture
def raw(key: str) -> Iterator[httpx2.Client]:
    with httpx2.Client(headers={"X-API-Key": key}, timeout=TIMEOUT) as client:
        yield client


def stored(memory: Memory) -> list[str]:
    return sorted(one["memory"] for one in memory.get_all(user_id="ana")["results"])


def streamed_text(client: openai.OpenAI, messages: list[Any]) -> str:
    with client.chat.completions.create(model="m", messages=messages, stream=True) as stream:
        return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)


# --- what passes unchanged --------------------------------------------------------------------------------------------

CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Porto"}'}}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 100_000}}
REQUESTS: dict[str, tuple[Behaviour, dict[str, Any]]] = {
    "plain": (behaviours.well(), {}),
    "many small chunks": (behaviours.streamed(chunks=100), {"stream_options": {"include_usage": True}}),
    "tools": (behaviours.tool_calls(CALL), {"tools": [{"type": "function", "function": {"name": "weather"}}]}),
    "two answers": (behaviours.choices("One.", "Two."), {"n": 2}),
    "images": (behaviours.well(), {"messages": [{"role": "user", "content": [IMAGE]}]}),
    "unknown fields": (behaviours.well(), {"top_k": 7, "nested": {"a": [1.0, None]}}),
    "reasoning": (behaviours.reasoned("Hm."), {}),
    "odd lines": (behaviours.noisy(), {}),
    "no end": (behaviours.unfinished(), {}),
    "401": (behaviours.failed(401), {}),
    "429": (behaviours.rate_limited(7), {}),
    "500": (behaviours.failed(500), {}),
    "empty": (behaviours.empty_body(), {}),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", REQUESTS)
def test_request_and_answer_pass_byte_for_byte(
    memory: Memory, upstream: ModelEndpoint, proxy: str, raw: httpx2.Client, name: str, stream: bool
) -> None:
    behaviour, more = REQUESTS[name]
    raw.headers.update(headers(memory, "user", user_id="bob"))  # without memories
    body = {**CHAT, **more, "stream": stream}
    upstream.then(behaviour, behaviour)
    direct, proxied = (raw.post(f"{url}/chat/completions", json=body) for url in (upstream.url, proxy))
    assert proxied.status_code == direct.status_code
    created = re.compile(rb'"created": ?\d+')
    assert created.sub(b"", proxied.content) == created.sub(b"", direct.content)
    for header in ("content-type", "content-length", "retry-after"):
        assert proxied.headers.get(header) == direct.headers.get(header)
    sent_directly, forwarded = (request.raw for request in upstream.requests)
    assert forwarded == sent_directly


def test_of_a_request_only_the_messages_change(upstream: ModelEndpoint, proxy: str, raw: httpx2.Client) -> None:
    messages = b'[{"content":"Am I allergic to sea\\u0066ood?","role":"user"}]'
    body = b' {"messages":%s,  "model":"m", "temperature":1.0}\n'
    raw.post(f"{proxy}/chat/completions", content=body % messages, headers={"X-Graphmem": "off"})
    assert upstream.requests[-1].raw == body % messages
    raw.post(f"{proxy}/chat/completions", content=body % messages)
    start, end = body.split(b"%s")
    forwarded = upstream.requests[-1].raw
    assert forwarded.startswith(start) and forwarded.endswith(end)
    assert FACT.encode() in forwarded


# --- streams ----------------------------------------------------------------------------------------------------------


def test_a_stream_has_memories_and_is_remembered_when_the_client_keeps_it(
    client: openai.OpenAI, memory: Memory, upstream: ModelEndpoint
) -> None:
    assert streamed_text(client, CHAT["messages"]) == ANSWER
    assert FACT in upstream.requests[-1].body["messages"][0]["content"]
    kept = {"role": "assistant", "content": ANSWER}
    streamed_text(client, [*CHAT["messages"], kept, {"role": "user", "content": "Thanks."}])
    wait_until(lambda: stored(memory) == sorted([FACT, QUESTION, ANSWER, "Thanks."]))


def test_the_last_answer_of_a_stream_is_remembered_without_another_request(
    memory: Memory, upstream: ModelEndpoint, key: str
) -> None:
    settings = {"upstream_url": upstream.url, "settle_seconds": 0.01}
    upstream.then(behaviours.noisy("It is noisy.", [": ping"]), behaviours.reasoned("Hm.", "After reasoning."))
    with served(memory, proxy=settings) as url, openai.OpenAI(base_url=f"{url}/v1", api_key=key) as client:
        streamed_text(client, [{"role": "user", "content": "One?"}])
        streamed_text(client, [{"role": "user", "content": "Two?"}])
        expected = sorted([FACT, "One?", "It is noisy.", "Two?", "After reasoning."])
        wait_until(lambda: stored(memory) == expected)


def test_chunks_come_while_the_endpoint_goes_on(client: openai.OpenAI, upstream: ModelEndpoint) -> None:
    upstream.then(behaviours.stalled())
    with client.chat.completions.create(**CHAT, stream=True) as stream:
        begin = "".join(next(stream).choices[0].delta.content or "" for _ in range(3))
        assert begin and ANSWER.startswith(begin)
    request = upstream.requests[-1]
    assert request.abandoned.wait(TIMEOUT)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_before_the_answer_ends_the_request(
    upstream: ModelEndpoint, proxy: str, raw: httpx2.Client, memory: Memory, stream: bool
) -> None:
    upstream.then(behaviours.silent())
    request = raw.build_request("POST", f"{proxy}/chat/completions", json={**CHAT, "stream": stream})
    with socket.create_connection((request.url.host, request.url.port)) as connection:
        lines = [f"POST {request.url.path} HTTP/1.1", *(f"{name}: {value}" for name, value in request.headers.items())]
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + request.content)
        wait_until(lambda: bool(upstream.requests))
    assert upstream.requests[-1].abandoned.wait(TIMEOUT)
    wait_until(lambda: stored(memory) == sorted([FACT, QUESTION]))


def test_a_request_that_the_end_of_the_service_cuts_off_is_told_so(
    memory: Memory, upstream: ModelEndpoint, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "GRACE_SECONDS", 0.1)
    upstream.then(behaviours.silent())
    with ThreadPoolExecutor(1) as pool, httpx2.Client(headers={"X-API-Key": key}, timeout=TIMEOUT) as raw:
        with served(memory, proxy={"upstream_url": upstream.url}) as url:
            waiting = pool.submit(raw.post, f"{url}/v1/chat/completions", json=CHAT)
            wait_until(lambda: bool(upstream.requests))
        answer = waiting.result()
    assert (answer.status_code, "error" in answer.json()) == (503, True)


@pytest.mark.parametrize("behaviour", [behaviours.dropped(), behaviours.unfinished(), behaviours.filtered()])
def test_an_answer_that_breaks_off_is_never_stored(
    memory: Memory, upstream: ModelEndpoint, key: str, behaviour: Behaviour
) -> None:
    upstream.then(behaviour)
    with served(memory, proxy={"upstream_url": upstream.url}) as url:
        with httpx2.Client(headers={"X-API-Key": key}, timeout=TIMEOUT) as raw:
            try:
                raw.post(f"{url}/v1/chat/completions", json={**CHAT, "stream": True})
            except httpx2.RemoteProtocolError:
                assert behaviour.end == "dropped"
            else:
                assert behaviour.end != "dropped"
    # The service has ended, which stores the answers that wait.
    wait_until(lambda: stored(memory) == sorted([FACT, QUESTION]))


def test_no_stream_waits_for_another_one(client: openai.OpenAI, upstream: ModelEndpoint) -> None:
    upstream.then(*[behaviours.stalled()] * (CLIENTS - 1))

    def first_chunks() -> Any:
        stream = client.chat.completions.create(**CHAT, stream=True)
        next(stream)
        return stream

    with ThreadPoolExecutor(CLIENTS) as pool:
        open_streams = list(pool.map(lambda _: first_chunks(), range(CLIENTS - 1)))
        assert streamed_text(client, CHAT["messages"]) == ANSWER
        for stream in open_streams:
            stream.close()
    assert all(request.abandoned.wait(TIMEOUT) for request in upstream.requests[:-1])


# --- the three steps: seed 001's cases A, B and C ---------------------------------------------------------------------


@SQLITE_ONLY
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_question_gets_its_memories_in_one_two_or_three_steps(
    make_memory: Make, upstream: ModelEndpoint, case: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fallback, "REWRITE_SECONDS", TIMEOUT)
    with ModelEndpoint(default=case["rewritten"]) as llm:
        config = {"openai_base_url": llm.url, "api_key": "any", "model": "m"}
        memory = make_memory(
            embedder={"provider": "minilm"},
            extractor={"provider": "spacy"},
            llm={"provider": "openai", "config": config},
        )
        roles = ("user", "assistant")
        told = [{"role": roles[n % 2], "content": text} for n, text in enumerate(case["memories"])]
        memory.add(told, user_id="ana", infer=False)
        key = headers(memory, "user", user_id="ana")["X-API-Key"]
        settings = {"upstream_url": upstream.url, "time_limit": 60, "save": False}
        with served(memory, proxy=settings) as url, openai.OpenAI(base_url=f"{url}/v1", api_key=key) as client:
            for stream in (False, True):
                for turns, question, found, rewrites in (
                    ([], *case["clear"], 0),
                    (case["turns"], case["vague"], case["found"], 0),
                    (case["indirect"], case["vague"], case["found"], 1),
                ):
                    before = len(llm.requests)
                    messages: list[Any] = [
                        {"role": roles[n % 2], "content": text} for n, text in enumerate([*turns, question])
                    ]
                    if stream:
                        assert streamed_text(client, messages) == ANSWER
                    else:
                        answer = client.chat.completions.create(model="m", messages=messages)
                        assert answer.choices[0].message.content == ANSWER
                    assert found in upstream.requests[-1].body["messages"][0]["content"]
                    assert len(llm.requests) - before == rewrites
