"""Embeddings by the real SDK over real HTTP."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from support.exception_text import full_error_text
from support.waiting import TIMEOUT, wait_until

from graphmem import Memory, Settings
from graphmem.errors import ConfigError, EmbeddingError
from graphmem.models.openai_embeddings import OpenaiEmbedder
from graphmem.plugins import Embedder
from graphmem.testing import Behaviour, HashEmbedder, ModelEndpoint, Request, behaviours

SECRET = "hunter2-Zq7"
TEXT = "I drink matcha"
names = (f"embedding-{number}" for number in itertools.count())


@pytest.fixture(autouse=True)
def _short_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    import openai._base_client

    monkeypatch.setattr(openai._base_client, "INITIAL_RETRY_DELAY", 0.01)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_BASE"):
        monkeypatch.delenv(name, raising=False)


class OddEndpoint(ModelEndpoint):
    """Answers with the vectors reversed and scaled; or with `answer`, if it is set."""

    answer: Callable[[Request], tuple[Behaviour, bytes]] | None = None

    def respond(self, request: Request) -> tuple[Behaviour, bytes]:
        behaviour, body = super().respond(request)
        if self.answer is not None:
            return self.answer(request)
        if behaviour.status == 200:
            response = json.loads(body)
            response["data"] = [
                {**one, "embedding": [3 * number for number in one["embedding"]]} for one in reversed(response["data"])
            ]
            body = json.dumps(response).encode()
        return behaviour, body


@pytest.fixture
def serve() -> Iterator[Callable[..., tuple[OddEndpoint, OpenaiEmbedder]]]:
    """`serve(dims=64, **endpoint)`: an endpoint and an embedder of a new name there."""
    resources: list[Any] = []

    def start(config: dict[str, Any] | None = None, **more: Any) -> Any:
        endpoint = OddEndpoint(**more).__enter__()
        resources.append(endpoint)
        embedder = OpenaiEmbedder(next(names), base_url=endpoint.url, api_key=SECRET, **{"dims": 64, **(config or {})})
        resources.append(embedder)
        return endpoint, embedder

    yield start
    for one in reversed(resources):
        one.close()


def check_failure(embedder: Embedder, *phrases: str) -> None:
    with pytest.raises(EmbeddingError) as caught:
        embedder.embed([TEXT, "b"])
    for phrase in phrases:
        assert phrase in str(caught.value)
    error_text = full_error_text(caught.value) + full_error_text(caught.value.__context__)
    assert not [private for private in (SECRET, TEXT, "127.0.0.1") if private in error_text], error_text


def test_rows_are_unit_vectors_in_the_order_of_the_texts(serve: Any) -> None:
    endpoint, embedder = serve()
    texts = ["matcha tea", "oat milk", "a bicycle\ud800"]
    for rows, text in zip(embedder.embed(texts), texts, strict=True):
        assert (rows.shape, rows.dtype) == ((1, 64), np.float32)
        assert np.allclose(rows[0], HashEmbedder(64).embed_query(text), atol=1e-6)
    assert np.allclose(embedder.embed_query("matcha"), HashEmbedder(64).embed_query("matcha"), atol=1e-6)
    first = endpoint.requests[0]
    assert (first.body["encoding_format"], first.body["dimensions"], len(first.body["input"])) == ("float", 64, 3)
    assert first.headers["authorization"] == f"Bearer {SECRET}"
    assert embedder.model.endswith("/64")


def test_texts_without_words_are_not_sent(serve: Any) -> None:
    endpoint, embedder = serve()
    assert embedder.embed([]) == []
    rows = embedder.embed(["", "  \n", "\u3000"])
    assert all(np.array_equal(row, rows[0]) and np.linalg.norm(row) == 1 for row in rows)
    assert endpoint.requests == []
    assert len(embedder.embed(["", "tea", " "])) == 3
    assert endpoint.requests[0].body["input"] == ["tea"]


def test_texts_are_sent_in_batches(serve: Any) -> None:
    endpoint, embedder = serve()
    assert len(embedder.embed(["tea"] * 65)) == 65
    assert [len(request.body["input"]) for request in endpoint.requests] == [32, 32, 1]
    _, small = serve({"batch_size": 2}, most_inputs=2)
    assert len(small.embed(["tea"] * 5)) == 5


@pytest.mark.thorough
def test_no_request_has_more_tokens_than_openai_takes(serve: Any) -> None:
    endpoint, embedder = serve({"batch_size": 2048})
    embedder.embed(["word " * 280] * 1000)
    sizes = [sum(len(text) for text in request.body["input"]) for request in endpoint.requests]
    assert len(sizes) == 3
    assert max(sizes) <= 600_000


@pytest.mark.parametrize(
    "text",
    [
        " ".join(f"wört{number}" for number in range(600)),
        "".join(map(chr, range(0x4E00, 0x4E00 + 2400))),
        "".join(map(chr, range(0x20000, 0x20000 + 900))),
        " ".join(map(str, range(600))) + " " * 4000 + "the end",
    ],
)
def test_long_texts_have_a_row_for_each_window(serve: Any, text: str) -> None:
    endpoint, embedder = serve()
    (rows,) = embedder.embed([text])
    windows = [window for request in endpoint.requests for window in request.body["input"]]
    assert len(rows) == len(windows) > 1
    assert max(len(window.encode()) for window in windows) <= 1500
    assert all(window.strip() for window in windows)
    assert all(window in text for window in windows)
    end = 0  # only white space lies between two windows
    for window in windows:
        start = text.index(window)
        assert not text[end:start].strip()
        end = max(end, start + len(window))
    assert not text[end:].strip()
    assert np.linalg.norm(embedder.embed_query(text)) == pytest.approx(1)


# --- length of the vectors -------------------------------------------------------------------------------------------


def test_the_vector_length_is_known_configured_or_measured(serve: Any) -> None:
    assert OpenaiEmbedder("text-embedding-3-large", api_key="k").dims == 3072
    endpoint, embedder = serve({"dims": None}, dims=48)
    assert (embedder.dims, len(endpoint.requests)) == (48, 1)
    assert embedder.embed(["tea"])[0].shape == (1, 48)
    assert not any("dimensions" in request.body for request in endpoint.requests)


def test_an_endpoint_that_cannot_shorten_vectors(serve: Any) -> None:
    endpoint, embedder = serve({"dims": 64}, dims=64, refuses=("dimensions",))
    for _ in range(2):
        assert embedder.embed(["tea"])[0].shape == (1, 64)
    assert ["dimensions" in request.body for request in endpoint.requests] == [True, False, False]
    _, other = serve({"dims": 32}, dims=64, refuses=("dimensions",))
    check_failure(other, "64", "32", "embedding_dims: set it to 64, or leave it out")


def test_a_known_model_name_with_another_length() -> None:
    with ModelEndpoint(dims=8) as endpoint:
        embedder = OpenaiEmbedder("text-embedding-3-small", base_url=endpoint.url)
        check_failure(embedder, "embedding_dims: set it to 8")
        embedder.close()


def test_a_memory_opens_with_it(tmp_path: Any) -> None:
    with ModelEndpoint(dims=32) as endpoint:
        config = {"openai_base_url": endpoint.url, "model": next(names), "timeout": TIMEOUT, "batch_size": 7}
        chosen = {"embedder": {"provider": "openai", "config": config}, "extractor": {"provider": "none"}}
        with Memory(tmp_path / "m", settings=Settings.from_dict(chosen)) as memory:
            memory.add("I drink matcha tea", user_id="u")
            memory.add("My bicycle is red", user_id="u")
            assert memory.search("matcha", user_id="u", top_k=1)["results"][0]["memory"] == "I drink matcha tea"
        endpoint.close()
        with pytest.raises(EmbeddingError, match=r"cannot be reached.*embedding_dims"):
            Memory(tmp_path / "m", settings=Settings.from_dict(chosen))


# --- failures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("behaviour", "requests", "phrase"),
    [
        (behaviours.failed(401, f"wrong key {SECRET}"), 1, "embedder.config.api_key"),
        (behaviours.failed(404, TEXT), 1, "embedder.config.model"),
        (behaviours.failed(400, TEXT), 1, "HTTP 400"),
        (behaviours.failed(413, TEXT), 1, "batch_size"),
        (behaviours.failed(422, "batch size 2 > maximum allowed batch size 1"), 1, "batch_size"),
        (behaviours.rate_limited(0.01), 3, "429"),
        (behaviours.failed(500, TEXT), 3, "500"),
        (Behaviour(end="dropped"), 3, "reached"),
        (Behaviour(end="silent"), 3, "embedder.config.timeout"),
        (Behaviour(end="empty"), 1, "openai_base_url"),
    ],
)
def test_failures_name_the_remedy(serve: Any, behaviour: Behaviour, requests: int, phrase: str) -> None:
    endpoint, embedder = serve({"timeout": 0.1 if behaviour.end == "silent" else TIMEOUT})
    body = json.dumps({"error": dict(behaviour.error or {})}).encode()
    endpoint.answer = lambda _: (behaviour, body)
    check_failure(embedder, phrase)
    wait_until(lambda: len(endpoint.requests) >= requests)  # a request that timed out may arrive late
    assert len(endpoint.requests) == requests


@pytest.mark.parametrize("status", [302, 307, 308])
def test_no_redirect_is_followed(serve: Any, status: int) -> None:
    """A redirect would send the texts to a host that is not configured."""
    endpoint, embedder = serve()
    with ModelEndpoint() as elsewhere:
        there = Behaviour(status=status, headers={"Location": f"{elsewhere.url}/embeddings?key={SECRET}"})
        endpoint.answer = lambda _: (there, b"")
        check_failure(embedder, "embedder.config.openai_base_url", str(status))
        assert (len(endpoint.requests), elsewhere.requests) == (1, [])


def test_the_key_of_the_environment_is_not_sent_to_a_configured_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    with ModelEndpoint(dims=8) as endpoint:
        for variable, key in ((None, "none"), ("GRAPHMEM_EMBEDDER__CONFIG__OPENAI_BASE_URL", SECRET)):
            if variable is not None:
                monkeypatch.setenv(variable, endpoint.url)
            embedder = OpenaiEmbedder(next(names), base_url=endpoint.url, dims=8)
            embedder.embed([TEXT])
            embedder.close()
            assert endpoint.requests[-1].headers["authorization"] == f"Bearer {key}"


@pytest.mark.parametrize(
    "data",
    [None, 5, [], [1], [{"index": 0, "embedding": [1.0]}], [{"index": 0}, {"index": 0}], [{"index": 0}, {"index": 2}],
     [{"index": "x"}, {"index": 1}], [{"embedding": [1.0] * 64}, {"embedding": [1.0] * 63}],
     [{"embedding": [0.0] * 64}] * 2, [{"embedding": [float("nan")] * 64}] * 2, [{"embedding": "base64"}] * 2,
     [{"embedding": [None] * 64}] * 2, [{"embedding": 1.0}] * 2, [{"index": [], "embedding": []}] * 2],
)  # fmt: skip
def test_answers_that_are_no_vectors(serve: Any, data: Any) -> None:
    endpoint, embedder = serve()
    endpoint.answer = lambda _: (Behaviour(), json.dumps({"data": data}).encode())
    check_failure(embedder, "vector")


def test_an_answer_with_too_few_vectors_is_counted(serve: Any) -> None:
    endpoint, embedder = serve()
    endpoint.answer = lambda _: (Behaviour(), json.dumps({"data": [{"index": 0, "embedding": [1.0] * 64}]}).encode())
    check_failure(embedder, "gave 1 for 2 texts")


@pytest.mark.parametrize("vector", [None, "base64", []])
def test_a_measured_length_needs_a_vector(serve: Any, vector: Any) -> None:
    with OddEndpoint() as endpoint:
        endpoint.answer = lambda _: (Behaviour(), json.dumps({"data": [{"index": 0, "embedding": vector}]}).encode())
        with pytest.raises(EmbeddingError, match="vector of numbers"):
            OpenaiEmbedder(next(names), base_url=endpoint.url, api_key=SECRET)


def test_a_closed_embedder_raises(serve: Any) -> None:
    _, embedder = serve()
    embedder.embed(["tea"])
    for _ in range(2):
        embedder.close()
    check_failure(embedder, "closed")


def test_openai_needs_a_key() -> None:
    with pytest.raises(ConfigError, match=r"embedder\.config\.api_key"):
        OpenaiEmbedder("text-embedding-3-small")
