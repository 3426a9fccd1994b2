from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterable
from typing import Any

import httpx
import numpy as np
import openai
import pytest
from support.waiting import TIMEOUT, wait_until

from graphmem.testing import Behaviour, HashEmbedder, ModelEndpoint, behaviours

MESSAGES: list[Any] = [{"role": "user", "content": "hello"}]
REQUEST_BODY = {"model": "m", "messages": MESSAGES}
# A broken stream, to clients of version 3 and 2.
BROKEN = (openai.APIConnectionError, httpx.RemoteProtocolError)
FACTS = json.dumps({"facts": ["tea"]})


def send_request(
    endpoint: ModelEndpoint, path: str = "/chat/completions", body: Any = REQUEST_BODY
) -> tuple[int, Any, Any]:
    host = endpoint.url.removeprefix("http://").removesuffix("/v1")
    connection = http.client.HTTPConnection(host, timeout=TIMEOUT)
    try:
        connection.request("GET" if body is None else "POST", f"/v1{path}", json.dumps(body), {"X-Who": "me"})
        response = connection.getresponse()
        words = response.read()
        return response.status, json.loads(words) if words else None, response.headers
    finally:
        connection.close()


def test_answers_follow_the_script_and_then_the_default() -> None:
    with ModelEndpoint(
        ["one", behaviours.failed(503)], default=lambda body: body["messages"][0]["content"]
    ) as endpoint:
        endpoint.then(behaviours.fenced("two"))
        answers = [send_request(endpoint) for _ in range(4)]
        assert [status for status, *_ in answers] == [200, 503, 200, 200]
        contents = [body["choices"][0]["message"]["content"] for status, body, _ in answers if status == 200]
        assert contents == ["one", "```json\ntwo\n```", "hello"]
        assert [request.body for request in endpoint.requests] == [REQUEST_BODY] * 4
        assert endpoint.requests[0].headers["x-who"] == "me"


@pytest.mark.parametrize(
    ("behaviour", "content"),
    [
        (behaviours.trailing_commas(), '{\n "facts": [\n  "tea",\n ],\n}'),
        (behaviours.single_quotes(), "{'facts': ['tea']}"),
        (behaviours.truncated(), '{"facts": ["'),
        (behaviours.wrong_types(), '{"facts": "several"}'),
        (behaviours.empty_content(), None),
    ],
)
def test_behaviours_put_their_fault_into_the_content(behaviour: Behaviour, content: str | None) -> None:
    with ModelEndpoint([behaviour], default=FACTS, cached_tokens=3) as endpoint:
        _, body, _ = send_request(endpoint)
        assert body["choices"][0]["message"]["content"] == content
        assert body["choices"][0]["finish_reason"] == "stop"
        assert body["usage"]["completion_tokens"] == -(-len(content or "") // 4)
        assert body["usage"]["prompt_tokens_details"] == {"cached_tokens": 3}


def test_faults_outside_the_content() -> None:
    script = [behaviours.rate_limited(0.5), behaviours.empty_body(), behaviours.dropped(), behaviours.length(),
              behaviours.refused(), behaviours.filtered(), behaviours.slow(0.1)]  # fmt: skip
    with ModelEndpoint(script, default=FACTS) as endpoint:
        status, _, headers = send_request(endpoint)
        assert (status, headers["Retry-After"]) == (429, "0.5")
        assert send_request(endpoint)[:2] == (200, None)
        with pytest.raises(http.client.IncompleteRead):
            send_request(endpoint)
        assert send_request(endpoint)[1]["choices"][0]["finish_reason"] == "length"
        assert send_request(endpoint)[1]["choices"][0]["message"]["refusal"]
        assert send_request(endpoint)[1]["choices"][0]["finish_reason"] == "content_filter"
        begun = time.monotonic()
        send_request(endpoint)
        assert time.monotonic() - begun >= 0.1


def test_refused_requests_leave_the_script_as_it_is() -> None:
    with ModelEndpoint(["one"], refuses=("json_object", "temperature")) as endpoint:
        assert send_request(endpoint, body={**REQUEST_BODY, "response_format": {"type": "json_object"}})[0] == 400
        assert send_request(endpoint, body={**REQUEST_BODY, "temperature": 0})[1]["error"]["param"] == "temperature"
        assert send_request(endpoint)[1]["choices"][0]["message"]["content"] == "one"


def test_embeddings_and_models() -> None:
    with ModelEndpoint(dims=8, most_inputs=2, models=["a"]) as endpoint:
        _, body, _ = send_request(endpoint, "/embeddings", {"input": ["tea", "coffee"], "model": "a"})
        rows = [one["embedding"] for one in body["data"]]
        assert np.array_equal(rows, [HashEmbedder(8).embed_query(text) for text in ("tea", "coffee")])
        _, body, _ = send_request(
            endpoint, "/embeddings", {"input": "tea", "dimensions": 4, "encoding_format": "base64"}
        )
        assert len(body["data"][0]["embedding"]) == 24
        for bad in ("", [""], 5, ["a", "b", "c"]):
            assert send_request(endpoint, "/embeddings", {"input": bad})[0] in {400, 422}
        assert [one["id"] for one in send_request(endpoint, "/models", None)[1]["data"]] == ["a"]
        assert send_request(endpoint, "/nothing")[0] == 404


def test_closing_releases_waiting_clients() -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        with ModelEndpoint([behaviours.silent()]) as endpoint:
            waiting = pool.submit(send_request, endpoint)
            wait_until(lambda: endpoint.requests)
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            waiting.result(TIMEOUT)
        endpoint.close()


def test_closing_ends_keep_alive_connections() -> None:
    def alive() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name.startswith("model-endpoint")]

    before = alive()
    with ModelEndpoint(default="hi") as endpoint:
        host = endpoint.url.removeprefix("http://").removesuffix("/v1")
        connections = [http.client.HTTPConnection(host, timeout=TIMEOUT) for _ in range(3)]
        for connection in connections:
            connection.request("POST", "/v1/chat/completions", json.dumps(REQUEST_BODY))
            connection.getresponse().read()
        assert len(endpoint.requests) == 3
    wait_until(lambda: set(alive()) <= set(before))
    for connection in connections:
        assert connection.sock.recv(1) == b""
        connection.close()


def client_of(endpoint: ModelEndpoint) -> openai.OpenAI:
    return openai.OpenAI(base_url=endpoint.url, api_key="any", max_retries=0, timeout=TIMEOUT)


def complete(endpoint: ModelEndpoint, **more: Any) -> Any:
    with client_of(endpoint) as client:
        return client.chat.completions.create(model="m", messages=MESSAGES, **more)


def stream(endpoint: ModelEndpoint, **more: Any) -> list[Any]:
    with client_of(endpoint) as client:
        return list(client.chat.completions.create(model="m", messages=MESSAGES, stream=True, **more))


def contents_of(chunks: Iterable[Any], index: int = 0) -> list[str]:
    choices = [choice for chunk in chunks for choice in chunk.choices if choice.index == index]
    return [choice.delta.content for choice in choices if choice.delta.content]


def test_a_stream_has_the_content_in_chunks_and_the_usage_if_asked_for() -> None:
    with ModelEndpoint([behaviours.streamed("茶 or coffee?", chunks=3)], default="and more") as endpoint:
        chunks = stream(endpoint, stream_options={"include_usage": True})
        assert contents_of(chunks) == ["茶 or", " cof", "fee?"]
        assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]] == [None] * 4 + ["stop"]
        assert chunks[0].choices[0].delta.role == "assistant"
        assert (chunks[-1].choices, chunks[-1].usage.completion_tokens) == ([], 3)
        assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
        plain = stream(endpoint)
        assert "".join(contents_of(plain)) == "and more"
        assert plain[-1].choices[0].finish_reason == "stop"
        assert not any(request.abandoned.is_set() for request in endpoint.requests)


async def test_the_asynchronous_client_reads_a_stream_and_hangs_up() -> None:
    with ModelEndpoint([behaviours.streamed("well"), behaviours.stalled("four")]) as endpoint:
        async with openai.AsyncOpenAI(base_url=endpoint.url, api_key="any", max_retries=0) as client:
            chunks = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
            assert "".join(contents_of([chunk async for chunk in chunks])) == "well"
            halted = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
            async for chunk in halted:
                if contents_of([chunk]) == ["o"]:
                    break
            await halted.close()
            first, second = endpoint.requests
            assert await asyncio.to_thread(second.abandoned.wait, TIMEOUT)
            assert not first.abandoned.is_set()


def test_tool_calls_and_reasoning_come_whole_and_as_deltas() -> None:
    call: dict[str, Any] = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "find", "arguments": '{"text": "茶"}'},
    }
    other: dict[str, Any] = {"id": "call_2", "type": "function", "function": {"name": "now", "arguments": "{}"}}
    script = [behaviours.tool_calls(call, other), behaviours.reasoned("Hm. Tea.", "Tea!")] * 2
    with ModelEndpoint(script) as endpoint:
        choice = complete(endpoint).choices[0]
        assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
        assert [one.to_dict() for one in choice.message.tool_calls or []] == [call, other]
        message = complete(endpoint).choices[0].message
        assert (message.to_dict()["reasoning_content"], message.content) == ("Hm. Tea.", "Tea!")

        with client_of(endpoint) as client, client.chat.completions.stream(model="m", messages=MESSAGES) as events:
            choice = events.get_final_completion().choices[0]
        assert choice.finish_reason == "tool_calls"
        received = [(one.id, one.function.name, one.function.arguments) for one in choice.message.tool_calls or []]
        assert received == [(one["id"], *one["function"].values()) for one in (call, other)]
        deltas = [chunk.choices[0].delta.to_dict() for chunk in stream(endpoint)]
        assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "Hm. Tea."
        assert [name for delta in deltas for name in delta][-8:] == ["reasoning_content"] * 4 + ["content"] * 4


def test_each_of_several_choices_has_its_content() -> None:
    script: list[Any] = [behaviours.choices("tea", "coffee"), behaviours.choices("tea", "coffee"), "tea"]
    with ModelEndpoint(script) as endpoint:
        answer = complete(endpoint, n=3)
        assert [(one.index, one.message.content) for one in answer.choices] == [(0, "tea"), (1, "coffee"), (2, "tea")]
        chunks = stream(endpoint, n=2)
        assert ["".join(contents_of(chunks, index)) for index in (0, 1)] == ["tea", "coffee"]
        assert [chunk.choices[0].index for chunk in chunks[:4]] == [0, 1, 0, 1]
        assert len(complete(endpoint).choices) == 1
        assert send_request(endpoint, body={**REQUEST_BODY, "n": "two"})[0] == 400


def test_streams_break_off_and_end_early_and_have_broken_lines() -> None:
    script = [behaviours.dropped("four"), behaviours.unfinished("four"), behaviours.noisy("four", [": ping"]),
              behaviours.noisy("four")]  # fmt: skip
    with ModelEndpoint(script) as endpoint:
        with pytest.raises(BROKEN):
            stream(endpoint)
        chunks = stream(endpoint)
        assert contents_of(chunks) == ["f", "o"]
        assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * 3
        assert "".join(contents_of(stream(endpoint))) == "four"
        with pytest.raises(json.JSONDecodeError):
            stream(endpoint)


def test_faults_without_a_stream_are_the_same_for_a_request_of_one() -> None:
    script = [behaviours.failed(503), behaviours.rate_limited(0.5), behaviours.empty_body(), behaviours.fenced("tea"),
              behaviours.refused("No."), behaviours.length("coffee")]  # fmt: skip
    with ModelEndpoint(script) as endpoint:
        status, error, headers = send_request(endpoint, body={**REQUEST_BODY, "stream": True})
        assert (status, error["error"]["type"], headers["Content-Type"]) == (503, "server_error", "application/json")
        with pytest.raises(openai.RateLimitError) as limited:
            stream(endpoint)
        assert limited.value.response.headers["retry-after"] == "0.5"
        assert stream(endpoint) == []
        assert "".join(contents_of(stream(endpoint))) == "```json\ntea\n```"
        assert [chunk.choices[0].delta.refusal for chunk in stream(endpoint)] == [None, "No.", None]
        cut_off = stream(endpoint)
        assert ("".join(contents_of(cut_off)), cut_off[-1].choices[0].finish_reason) == ("coff", "length")


def test_text_completions_follow_the_script_as_well() -> None:
    with ModelEndpoint(["tea", "tea"]) as endpoint, client_of(endpoint) as client:
        answer = client.completions.create(model="m", prompt="Drink")
        assert (answer.object, answer.choices[0].text, answer.choices[0].finish_reason) == (
            "text_completion", "tea", "stop",
        )  # fmt: skip
        chunks = list(client.completions.create(model="m", prompt="Drink", stream=True))
        assert [chunk.choices[0].text for chunk in chunks] == ["t", "e", "a", ""]


@pytest.mark.parametrize(
    "behaviour",
    [
        behaviours.silent(),
        behaviours.stalled(),
        behaviours.slow(2 * TIMEOUT),
        behaviours.streamed("tea", pause=2 * TIMEOUT),
    ],
    ids=["silent", "stalled", "slow", "pause"],
)
@pytest.mark.parametrize("who", ["client", "endpoint"])
def test_a_client_that_hangs_up_is_noticed_during_silence(behaviour: Behaviour, who: str) -> None:
    with ModelEndpoint([behaviour]) as endpoint:
        body = json.dumps({**REQUEST_BODY, "stream": True}).encode()
        with connect(endpoint) as connection:
            send_raw(connection, body)
            wait_until(lambda: endpoint.requests)
            (request,) = endpoint.requests
            if who == "endpoint":
                endpoint.close()
                while connection.recv(65536):
                    pass
        if who == "client":
            assert request.abandoned.wait(TIMEOUT)
    assert request.abandoned.is_set() == (who == "client")


def test_half_of_a_stalled_stream_arrives_before_the_silence() -> None:
    with ModelEndpoint([behaviours.stalled("four")]) as endpoint, client_of(endpoint) as client:
        chunks = iter(client.chat.completions.create(model="m", messages=MESSAGES, stream=True))
        assert contents_of(next(chunks) for _ in range(3)) == ["f", "o"]
        endpoint.close()
        with pytest.raises(BROKEN):
            next(chunks)
        assert not endpoint.requests[0].abandoned.is_set()


def test_each_event_is_a_chunk_of_its_own() -> None:
    with ModelEndpoint([behaviours.noisy("tea", [": ping"])]) as endpoint, connect(endpoint) as connection:
        send_raw(connection, json.dumps({**REQUEST_BODY, "stream": True}).encode(), "Connection: close")
        head, _, rest = b"".join(iter(lambda: connection.recv(65536), b"")).partition(b"\r\n\r\n")
    assert b"Content-Type: text/event-stream" in head
    assert b"Transfer-Encoding: chunked" in head
    events = []
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        events.append(rest[: int(size, 16)])
        assert rest[int(size, 16) :].startswith(b"\r\n")
        rest = rest[int(size, 16) + 2 :]
    assert events.pop() == b""
    assert events.pop() == b"data: [DONE]\n\n"
    assert events[1::2] == [b": ping\n\n"] * 5
    deltas = [json.loads(event.removeprefix(b"data: "))["choices"][0]["delta"] for event in events[::2]]
    assert deltas == [{"role": "assistant", "content": ""}, {"content": "t"}, {"content": "e"}, {"content": "a"}, {}]
    assert all(event.endswith(b"\n\n") for event in events)


def test_a_request_has_the_bytes_that_were_sent() -> None:
    body = '{"model":"m",  "messages": [{"role": "user", "content": "茶"}]}\n'.encode()
    with ModelEndpoint(default="tea") as endpoint:
        with connect(endpoint) as connection:
            send_raw(connection, body)
            wait_until(lambda: endpoint.requests)
        # A body that is produced piece by piece is sent in chunks.
        httpx.post(f"{endpoint.url}/chat/completions", content=iter([body[:50], body[50:]]), timeout=TIMEOUT)
        httpx.get(f"{endpoint.url}/models", timeout=TIMEOUT)
        posted = [(request.method, request.path, request.raw) for request in endpoint.requests]
        path = "/v1/chat/completions"
        assert posted == [("POST", path, body), ("POST", path, body), ("GET", "/v1/models", b"")]
        assert endpoint.requests[0].body == endpoint.requests[1].body == json.loads(body)


def connect(endpoint: ModelEndpoint) -> socket.socket:
    host, port = endpoint.url.removeprefix("http://").removesuffix("/v1").split(":")
    return socket.create_connection((host, int(port)), timeout=TIMEOUT)


def send_raw(connection: socket.socket, body: bytes, *headers: str) -> None:
    lines = ["POST /v1/chat/completions HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers, "", ""]
    connection.sendall("\r\n".join(lines).encode() + body)
