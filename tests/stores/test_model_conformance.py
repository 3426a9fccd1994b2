"""Embedders, rerankers and language models pass the conformance tests of `graphmem.testing.conformance`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from threading import Event, Thread
from typing import Any

import pytest

from graphmem.models.callable import CallableEmbedder
from graphmem.models.minilm import MiniLM, TokenMiniLM
from graphmem.models.openai_chat import OpenaiChatModel
from graphmem.models.openai_embeddings import OpenaiEmbedder
from graphmem.models.rerank_endpoint import EndpointReranker
from graphmem.plugins import Embedder, LanguageModel, Reranker
from graphmem.testing import HashEmbedder, ModelEndpoint, Request, behaviours
from graphmem.testing.conformance import EmbedderContract, LanguageModelContract, RerankerContract
from graphmem.testing.server import EndpointServer
from graphmem.text import tokens


class TestHashEmbedder(EmbedderContract):
    @pytest.fixture
    def embedder(self) -> Embedder:
        return HashEmbedder()


class TestCallableEmbedder(EmbedderContract):
    @pytest.fixture
    def embedder(self) -> Embedder:
        return CallableEmbedder(lambda texts: [HashEmbedder().embed_query(text) for text in texts], 64, "mine")


@pytest.mark.thorough  # its SDK takes a second to import
class TestOpenaiEmbedder(EmbedderContract):
    @pytest.fixture
    def embedder(self) -> Iterator[Embedder]:
        with ModelEndpoint() as endpoint:
            embedder = OpenaiEmbedder("mine", api_key="k", base_url=endpoint.url, dims=64)
            yield embedder
            embedder.close()


@pytest.mark.thorough
class TestMiniLM(EmbedderContract):
    @pytest.fixture
    def embedder(self) -> Embedder:
        return MiniLM()


@pytest.mark.thorough
class TestTokenMiniLM(EmbedderContract):
    @pytest.fixture
    def embedder(self) -> Embedder:
        return TokenMiniLM()


def common_words(query: str, texts: list[str]) -> list[float]:
    return [float(len({*tokens(query)} & {*tokens(text)})) for text in texts]


class TestFunctionAsReranker(RerankerContract):
    @pytest.fixture
    def reranker(self) -> Reranker:
        return common_words


class TestEndpointReranker(RerankerContract):
    @pytest.fixture
    def reranker(self) -> Iterator[Reranker]:
        def respond(request: Request) -> Any:
            scores = common_words(request.body["query"], request.body["documents"])
            results = [{"index": place, "relevance_score": score} for place, score in enumerate(scores)]
            results.sort(key=lambda result: -result["relevance_score"])
            return behaviours.Behaviour(), json.dumps({"results": results}).encode()

        closing = Event()
        with EndpointServer(respond, closing) as server:
            Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
            reranker = EndpointReranker(f"http://127.0.0.1:{server.server_address[1]}/v1/rerank", model="mine")
            yield reranker
            reranker.close()
            closing.set()
            server.shutdown()
            server.end_connections()


class TestOpenaiChatModel(LanguageModelContract):
    @pytest.fixture
    def model(self) -> Iterator[LanguageModel]:
        def answer(body: Any) -> str:
            return '{"colour": "blue"}' if "response_format" in body else "blue"

        with ModelEndpoint(default=answer) as endpoint:
            model = OpenaiChatModel("mine", api_key="k", base_url=endpoint.url)
            yield model
            model.close()
