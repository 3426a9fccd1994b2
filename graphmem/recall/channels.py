"""The arms: what each finds on its own, confirmed by the ledger. An arm that fails is left out and named."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import TypeVar

from graphmem.errors import ModelError, StoreError
from graphmem.filters import Filter, fields_of
from graphmem.model import Entity, MemoryRecord, Mention, View
from graphmem.providers.base import Embedder, Extractor, Matrix
from graphmem.stores.base import Graph, VectorIndex
from graphmem.stores.deliver import Projection
from graphmem.stores.ledger import Ledger, memories, reading, statistics
from graphmem.text import idf, key_candidates, term_counts

T = TypeVar("T")

# How many memories the arms find (README, "Why it is built so").
DENSE, KEYWORD = 100, 200
# A search by agent or run alone walks in the spaces of its best hits, each for itself.
SPACES = 5
# Spaces that such a search looks into at all, those written last first.
SPACES_ASKED = 1000


@dataclass(frozen=True, slots=True)
class Stores:
    """What a search reads."""

    ledger: Ledger
    index: VectorIndex
    vectors: Projection
    graph: Graph
    graph_copy: Projection | None
    embedder: Embedder
    extractor: Extractor | None
    pool: Executor


@dataclass(frozen=True, slots=True)
class Question:
    """A search as asked: `only` is the metadata filter, `threshold` a least cosine."""

    text: str
    view: View
    limit: int
    only: Filter | None = None
    threshold: float | None = None


@dataclass(frozen=True, slots=True)
class Space:
    """A space that is searched: n, and which of its entities the question names."""

    key: str
    size: int
    named: Mapping[str, Entity]


@dataclass(frozen=True, slots=True)
class Found:
    """What the arms found: {memory id: score}, best first, and the spaces to walk in."""

    vector: Matrix | None
    dense: Mapping[str, float]
    keyword: Mapping[str, float]
    spaces: tuple[Space, ...]


class Channels:
    """One question's arms. `records` are the memories seen so far, `degraded` the arms that failed."""

    def __init__(self, question: Question, stores: Stores) -> None:
        self._question = question
        self._stores = stores
        self.records: dict[str, MemoryRecord] = {}
        self.degraded: set[str] = set()

    def ask(self) -> Found:
        """Encodes and parses the question at the same time, then asks the arms side by side."""
        pool, view = self._stores.pool, self._question.view
        encoding, parsing = pool.submit(self._encoded), pool.submit(self._parsed)
        spaces = self._ready()
        vector, keys = encoding.result(), parsing.result()
        asking = pool.submit(self.guarded, "vectors", lambda: self._dense(vector), {})
        if view.space is None:
            spaces = self._nearest(asking.result(), spaces)
        words = pool.submit(self.guarded, "vectors", lambda: self._keyword(spaces), {})
        return Found(vector, *self._linked(spaces, keys, asking.result, words.result))

    def _linked(
        self,
        spaces: list[str],
        keys: list[str],
        dense: Callable[[], Mapping[str, float]],
        keyword: Callable[[], Mapping[str, float]],
    ) -> tuple[Mapping[str, float], Mapping[str, float], tuple[Space, ...]]:
        with self._stores.ledger.read() as connection:
            linked = tuple(
                Space(key, memories.space_size(connection, key), reading.known_keys(connection, key, keys))
                for key in spaces
            )
        return dense(), keyword(), linked

    def guarded(self, arm: str, act: Callable[[], T], otherwise: T) -> T:
        """The one place where a search goes on without something."""
        try:
            return act()
        except (StoreError, ModelError):
            self.degraded.add(arm)
            return otherwise

    def _ready(self) -> list[str]:
        """The spaces to look into, their projections up to date with what any process has committed."""
        stores = self._stores
        with stores.ledger.read() as connection:
            spaces = memories.spaces_of(connection, self._question.view, SPACES_ASKED)
        self.guarded("vectors", lambda: stores.vectors.catch_up(spaces), None)
        if (copy := stores.graph_copy) is not None:
            self.guarded("graph", lambda: copy.catch_up(spaces), None)
        return spaces

    def _encoded(self) -> Matrix | None:
        return self.guarded("vectors", lambda: self._stores.embedder.embed_query(self._question.text), None)

    def _parsed(self) -> list[str]:
        """Keys as the extractor sees them, and the question's own word runs: people ask in lower case."""
        text, extractor = self._question.text, self._stores.extractor
        seen: list[Mention] = []
        if extractor is not None:
            seen = self.guarded("extractor", lambda: extractor.keys(text), seen)
        return list(dict.fromkeys([*(mention.key for mention in seen), *key_candidates(text)]))

    def _dense(self, vector: Matrix | None) -> dict[str, float]:
        if vector is None:
            return {}
        index, view = self._stores.index, self._question.view
        return self._accepted(lambda limit: index.dense(view, vector, limit), DENSE)

    def _keyword(self, spaces: Iterable[str]) -> dict[str, float]:
        """Each space with its own idf: no tenant's words weigh on another's."""
        found: dict[str, float] = {}
        for space in spaces:
            found |= self._keyword_in(space)
        return dict(sorted(found.items(), key=lambda pair: (-pair[1], pair[0])))

    def _keyword_in(self, space: str) -> dict[str, float]:
        counts = term_counts(self._question.text)
        with self._stores.ledger.read() as connection:
            size, frequencies = statistics.document_frequencies(connection, space, counts)
        weights = {term: idf(size, frequencies[term]) for term in counts if term in frequencies}
        index, view = self._stores.index, replace(self._question.view, space=space)
        return self._accepted(lambda limit: index.sparse(view, weights, limit), KEYWORD) if weights else {}

    def _accepted(self, ask: Callable[[int], list[tuple[str, float]]], limit: int) -> dict[str, float]:
        """An arm's finds as far as the ledger confirms them; asks for more while a filter refuses too many."""
        asked = limit
        while True:
            found = ask(asked)
            kept = self.confirmed(uid for uid, _ in found)
            if len(kept) >= limit or len(found) < asked:
                return dict([(uid, score) for uid, score in found if uid in kept][:limit])
            asked *= 4

    def confirmed(self, ids: Iterable[str]) -> set[str]:
        """Which of these the view holds and the filter accepts: the ledger has the last word, not an index."""
        wanted = set(ids)
        with self._stores.ledger.read() as connection:
            self.records.update(memories.seen(connection, self._question.view, wanted - self.records.keys()))
        only = self._question.only
        known = {uid: self.records[uid] for uid in wanted if uid in self.records}
        return {uid for uid, record in known.items() if only is None or only.matches(fields_of(record))}

    def _nearest(self, dense: Mapping[str, float], spaces: list[str]) -> list[str]:
        """The spaces of the nearest memories; then, or without vectors, those written last."""
        return list(dict.fromkeys([*(self.records[uid].space for uid in dense), *spaces]))[:SPACES]
