"""The reranker at an endpoint: both shapes of requests, and what it says of unusable answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from threading import Event, Thread
from typing import Any

import pytest
from support.exception_text import full_error_text

from graphmem.errors import ConfigError, ModelError
from graphmem.models.rerank_endpoint import MAX_CHARS, EndpointReranker
from graphmem.testing import Behaviour, Request
from graphmem.testing.server import EndpointServer

QUERY, TEXTS = "who drinks matcha?", ["Ana drinks matcha", "Ben rides a bicycle", "It rains"]
SECRET = "sk-not-for-logs"


@pytest.fixture
def serve() -> Iterator[Callable[..., tuple[list[Request], EndpointReranker]]]:
    """`serve(answer, behaviour, **config)`: the requests of an endpoint with this answer, and a reranker there."""
    with ExitStack() as stack:

        def start(answer: Any, behaviour: Behaviour = Behaviour(), **config: Any) -> Any:
            requests: list[Request] = []

            def respond(request: Request) -> Any:
                requests.append(request)
                return behaviour, answer if isinstance(answer, bytes) else json.dumps(answer).encode()

            closing = Event()
            server = stack.enter_context(EndpointServer(respond, closing))
            Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
            stack.callback(server.end_connections)
            stack.callback(server.shutdown)
            stack.callback(closing.set)
            url = f"http://127.0.0.1:{server.server_address[1]}/v1/rerank"
            reranker = EndpointReranker(url, **{"api_key": SECRET, **config})
            stack.callback(reranker.close)
            return requests, reranker

        yield start


def test_requests_without_a_model_have_the_shape_of_tei(serve: Any) -> None:
    requests, reranker = serve([{"index": 2, "score": -3.5}, {"index": 0, "score": 4}, {"index": 1, "score": 0.5}])
    assert reranker(QUERY, TEXTS) == [4, 0.5, -3.5]
    assert requests[0].body == {"query": QUERY, "texts": TEXTS, "truncate": True}
    assert requests[0].headers["authorization"] == f"Bearer {SECRET}"


def test_requests_with_a_model_have_the_shape_of_jina_and_cohere(serve: Any) -> None:
    results = [{"index": 1, "relevance_score": 0.9}, {"index": 0, "relevance_score": 0.2, "document": {"text": "x"}}]
    requests, reranker = serve({"results": results, "id": "1", "meta": {}}, model="rerank-v3.5")
    assert reranker(QUERY, TEXTS[:2]) == [0.2, 0.9]
    assert requests[0].path == "/v1/rerank"
    assert requests[0].body == {"model": "rerank-v3.5", "query": QUERY, "documents": TEXTS[:2], "top_n": 2}


def test_long_texts_are_cut_and_lone_surrogates_replaced(serve: Any) -> None:
    requests, reranker = serve([{"index": 0, "score": 1}])
    assert reranker("\ud800", ["a" * 20_000]) == [1]
    assert (requests[0].body["query"], requests[0].body["texts"]) == ("?", ["a" * MAX_CHARS])


def test_a_password_in_the_url_is_a_header_and_no_key_is_sent(serve: Any) -> None:
    requests, reranker = serve([{"index": 0, "score": 1}])
    address = reranker._endpoint.url.replace("http://", "http://ana:pass%20word@")
    own = EndpointReranker(address, api_key=SECRET)
    own(QUERY, TEXTS[:1])
    own.close()
    assert requests[0].headers["authorization"] == "Basic YW5hOnBhc3Mgd29yZA=="
    assert "authorization" not in without_key(serve).headers


def without_key(serve: Any) -> Request:
    requests, reranker = serve([{"index": 0, "score": 1}], api_key=None)
    reranker(QUERY, TEXTS[:1])
    request: Request = requests[0]
    return request


@pytest.mark.parametrize(
    ("answer", "phrase"),
    [
        (b"<html>", "something else than JSON"),
        ([], "one score for each of 3 texts"),
        ([{"index": place, "score": 1} for place in range(2)], "one score for each of 3 texts"),
        ([{"index": place, "score": 1} for place in range(4)], "one score for each of 3 texts"),
        ([{"index": place, "score": "1"} for place in range(3)], "one score for each of 3 texts"),
        ({"results": [{"index": [], "score": 1}, None, 3]}, "one score for each of 3 texts"),
        ({"error": TEXTS[0]}, "one score for each of 3 texts"),
        (b"3", "one score for each of 3 texts"),
    ],
)
def test_an_unusable_answer_is_an_error_without_words(serve: Any, answer: Any, phrase: str) -> None:
    _, reranker = serve(answer)
    check_failure(reranker, phrase)


def check_failure(reranker: EndpointReranker, phrase: str) -> None:
    with pytest.raises(ModelError, match=phrase) as caught:
        reranker(QUERY, TEXTS)
    error_text = full_error_text(caught.value) + full_error_text(caught.value.__context__)
    assert not [private for private in (SECRET, QUERY, *TEXTS, "127.0.0.1") if private in error_text]


@pytest.mark.parametrize(
    ("behaviour", "phrase"),
    [
        (Behaviour(status=503), r"HTTP 503"),
        (Behaviour(status=307, headers={"Location": "http://127.0.0.1:9/"}), r"HTTP 307"),
        (Behaviour(end="dropped"), "gave no answer"),
        (Behaviour(end="silent"), "gave no answer"),
    ],
)
def test_an_endpoint_that_fails_is_asked_once(serve: Any, behaviour: Behaviour, phrase: str) -> None:
    requests, reranker = serve([{"index": place, "score": 1} for place in range(3)], behaviour, timeout=0.2)
    check_failure(reranker, phrase)
    assert len(requests) == 1


def test_a_closed_reranker_and_one_without_an_endpoint_fail(serve: Any) -> None:
    _, reranker = serve([])
    for _ in range(2):
        reranker.close()
    check_failure(reranker, "closed")
    check_failure(EndpointReranker("http://127.0.0.1:9/rerank"), "gave no answer")


@pytest.mark.parametrize(
    "url", ["", "localhost:80/rerank", "ftp://host/rerank", "http://host/rerank?key=1", "http://["]
)
def test_an_unusable_url_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(ConfigError, match=r"reranker\.config\.url: must be like https://host/v1/rerank") as caught:
        EndpointReranker(url)
    assert not url or url not in str(caught.value)


def test_an_unusable_key_is_refused_without_being_shown() -> None:
    with pytest.raises(ConfigError, match=r"reranker\.config\.api_key") as caught:
        EndpointReranker("http://host/rerank", api_key="schlüssel")
    assert "schl" not in str(caught.value)
