from __future__ import annotations

import http.client
import json
import threading
import time
from typing import Any

import numpy as np
import pytest
from support.waiting import TIMEOUT, wait_until

from graphmem.testing import Behaviour, HashEmbedder, ModelEndpoint, behaviours

REQUEST_BODY = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
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
