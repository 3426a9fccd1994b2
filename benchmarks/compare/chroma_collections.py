"""Chroma, persistent. A partition is a collection, as its documentation recommends for users with data of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import chromadb
from chromadb.api.types import Documents, EmbeddingFunction, Embeddings
from systems import Encoder, Place, spoken

from graphmem.evaluation.datasets import BenchmarkQuestion, Message


class _Embedding(EmbeddingFunction[Documents]):
    """The encoder in the form that Chroma expects."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder

    def __call__(self, input: Documents) -> Embeddings:  # noqa: A002  (Chroma's name)
        return list(self._encoder.texts(input))

    def embed_query(self, input: Documents) -> Embeddings:  # noqa: A002
        return [self._encoder.question(text) for text in input]

    @staticmethod
    def name() -> str:
        return "graphmem-minilm"

    def get_config(self) -> dict[str, Any]:
        return {}

    @staticmethod
    def build_from_config(config: dict[str, Any]) -> _Embedding:  # noqa: ARG004
        return _Embedding(Encoder())


class ChromaCollections:
    """A client in a folder; of a collection's settings only the distance is not its default."""

    def __init__(self, place: Place) -> None:
        settings = chromadb.Settings(anonymized_telemetry=False)
        self._client = chromadb.PersistentClient(str(place.folder), settings=settings)
        self._embedding = _Embedding(place.encoder)
        self._collections: dict[str, chromadb.Collection] = {}

    def add(self, partition: str, messages: Sequence[Message]) -> None:
        if partition not in self._collections:
            self._collections[partition] = self._client.create_collection(
                f"user-{len(self._collections)}",
                embedding_function=self._embedding,
                configuration={"hnsw": {"space": "cosine"}},
            )
        self._collections[partition].add(
            ids=[message["id"] for message in messages], documents=[spoken(message) for message in messages]
        )

    def settle(self) -> None:
        """Nothing is recommended."""

    def search(self, case: BenchmarkQuestion, k: int) -> list[str]:
        collection = self._collections[case.partition]
        return list(collection.query(query_texts=[case.question], n_results=k)["ids"][0])

    def close(self) -> None:
        self._client.close()
