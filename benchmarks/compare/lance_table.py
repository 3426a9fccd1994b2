"""LanceDB with its hybrid search. A partition is a value of a column that searches filter by before they compare."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import lancedb
from lancedb.embeddings import TextEmbeddingFunction, get_registry
from lancedb.index import FTS
from lancedb.pydantic import LanceModel, Vector
from lancedb.rerankers import RRFReranker
from systems import Encoder, Place, spoken

from graphmem.evaluation.datasets import BenchmarkQuestion, Message


@get_registry().register("graphmem-minilm")
class _Embedding(TextEmbeddingFunction):
    """The encoder in LanceDB's form. LanceDB makes such objects itself, so that the encoder has to be the class's."""

    encoder: ClassVar[Encoder]

    def ndims(self) -> int:
        return self.encoder.dims

    def generate_embeddings(self, texts: Sequence[str]) -> list[Any]:
        return list(self.encoder.texts(texts))

    def compute_query_embeddings(self, query: str, *_: Any, **__: Any) -> list[Any]:
        return [self.encoder.question(query)]


class LanceTable:
    """One table, with an index of its words. Rows added after the last `optimize` are searched without the index."""

    def __init__(self, place: Place) -> None:
        _Embedding.encoder = place.encoder
        embedding = get_registry().get("graphmem-minilm").create()

        class Row(LanceModel):
            id: str
            user: str
            text: str = embedding.SourceField()
            vector: Vector(embedding.ndims()) = embedding.VectorField()  # type: ignore[valid-type]

        self._table = lancedb.connect(place.folder).create_table("messages", schema=Row)
        self._reranker = RRFReranker()
        self._is_indexed = False

    def add(self, partition: str, messages: Sequence[Message]) -> None:
        self._table.add([{"id": message["id"], "user": partition, "text": spoken(message)} for message in messages])

    def settle(self) -> None:
        if not self._is_indexed:
            self._table.create_index("text", config=FTS(base_tokenizer="icu"))
            self._is_indexed = True
        self._table.optimize()

    def search(self, case: BenchmarkQuestion, k: int) -> list[str]:
        user = case.partition.replace("'", "''")
        found = self._table.search(case.question, query_type="hybrid").where(f"user = '{user}'", prefilter=True)
        return [row["id"] for row in found.rerank(self._reranker).limit(k).to_list()]

    def close(self) -> None:
        """Nothing is held."""
