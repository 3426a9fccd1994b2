"""The arms: what each finds on its own, confirmed by the ledger. An arm that fails is left out and named."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeVar

from sqlalchemy import Connection

from graphmem.boundary.filters import Filter
from graphmem.errors import ModelError, StoreError
from graphmem.extraction.protocols import Extractor
from graphmem.model import Entity, GraphBounds, Mention, MentionKind, Seeds, Subgraph, View
from graphmem.models.protocols import EmbeddedQuestion, Embedder, Matrix, TokenEmbedder
from graphmem.models.script_support import ScriptSupport
from graphmem.stores.ledger import Ledger, entity_names, memories, term_stats
from graphmem.stores.projection_worker import ProjectionWorker
from graphmem.stores.protocols import Graph, VectorIndex
from graphmem.text import idf, key_candidates, query_term_counts

T = TypeVar("T")
ScoredIds = list[tuple[str, float]]

# Characters of a question that are read: what comes after would only make everything match a little.
READ_LIMIT = 2_000
# How many memories the arms find (README, "Why it is built so").
DENSE_LIMIT, KEYWORD_LIMIT = 100, 200
# A search by agent or run alone walks in the partitions of its best hits, each for itself.
MAX_PARTITIONS = 5
# Partitions that such a search looks into at all, those written last first.
MAX_PARTITIONS_LISTED = 1000
# Seconds that a search waits for a server's projection to take what was committed before it asks what there is.
CATCH_UP_SECONDS = 0.3


@dataclass(frozen=True, slots=True)
class SearchDeps:
    """What a search reads."""

    ledger: Ledger
    index: VectorIndex
    vectors: ProjectionWorker
    graph: Graph
    graph_copy: ProjectionWorker | None
    embedder: Embedder
    scripts: ScriptSupport
    extractor: Extractor | None
    pool: Executor


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A search as asked: `filter` is the metadata filter, `threshold` a least cosine; `explain` asks for reasons.

    `limit` None: as many as are not far behind the best. `now` is the moment it is asked from (None: the view's), for
    "last week" and the like. `with_relations` asks of each hit whether it has anything to do with the question; `parts`
    for the part that matches of those with more characters than that (None: of none).
    """

    text: str
    view: View
    limit: int | None
    filter: Filter | None = None
    threshold: float | None = None
    explain: bool = False
    now: datetime | None = None
    with_relations: bool = False
    parts: int | None = None


@dataclass(frozen=True, slots=True)
class SearchPartition:
    """A partition that is searched: n, and which of its entities the question names, with how much they are worth."""

    key: str
    size: int
    named_entities: Mapping[str, Entity]
    kinds: Mapping[str, MentionKind]


@dataclass(frozen=True, slots=True)
class EncodedQuery:
    """The question as the models see it: its vector and tokens, and the keys it names (in how telling a way).

    `is_supported_script`: whether the embedder reads the question's script; its tokens are left out if not.
    """

    vector: Matrix | None = None
    tokens: EmbeddedQuestion | None = None
    entity_keys: Mapping[str, MentionKind] = field(default_factory=dict)
    is_supported_script: bool = True


@dataclass(frozen=True, slots=True)
class RetrievedSet:
    """The question as read, the partitions to look into, and what the arms found there, unconfirmed."""

    encoded: EncodedQuery
    partitions: Sequence[str]
    dense: ScoredIds
    keyword: ScoredIds


class Retrievers:
    """One question's arms. `degraded` are those that failed."""

    def __init__(self, question: SearchQuery, stores: SearchDeps) -> None:
        self._query = question
        self._deps = stores
        self.degraded: set[str] = set()

    def retrieve(self) -> RetrievedSet:
        """Encodes and parses the question and asks the arms, each as soon as there is what it needs."""
        pool = self._deps.pool
        encoding, parsing = pool.submit(self._encoded), pool.submit(self._parsed)
        partitions = self._ready()
        keyword = pool.submit(self.keyword, partitions, KEYWORD_LIMIT)
        read = encoding.result()
        dense = self.dense(read.vector, DENSE_LIMIT)
        return RetrievedSet(replace(read, entity_keys=parsing.result()), partitions, dense, keyword.result())

    def degrade_on_error(self, arm: str, act: Callable[[], T], otherwise: T) -> T:
        """The one place where a search goes on without something."""
        try:
            return act()
        except (StoreError, ModelError):
            self.degraded.add(arm)
            return otherwise

    def _ready(self) -> list[str]:
        """The partitions to look into, their projections up to date with what any process has committed."""
        stores, own = self._deps, self._query.view.partition
        partitions = self._spanned() if own is None else [own]
        for worker in filter(None, (stores.vectors, stores.graph_copy)):
            self._catch_up(worker, partitions)
        return partitions

    def _spanned(self) -> list[str]:
        with self._deps.ledger.read() as connection:
            return memories.partitions_of(connection, self._query.view, MAX_PARTITIONS_LISTED)

    def _catch_up(self, worker: ProjectionWorker, partitions: Sequence[str]) -> None:
        """What is not there yet cannot be found: a projection that is behind counts as one that is left out."""
        if not self.degrade_on_error(
            worker.name, lambda: worker.catch_up(partitions, CATCH_UP_SECONDS), otherwise=False
        ):
            self.degraded.add(worker.name)

    def _encoded(self) -> EncodedQuery:
        """The question as the embedder sees it."""
        embedder, text = self._deps.embedder, self._query.text

        def encoded() -> EncodedQuery:
            understood = self._deps.scripts.supports(text)
            if understood and isinstance(embedder, TokenEmbedder):
                tokens = embedder.embed_question(text)
                return EncodedQuery(tokens.vector, tokens)
            return EncodedQuery(embedder.embed_query(text), is_supported_script=understood)

        return self.degrade_on_error("vectors", encoded, EncodedQuery())

    def _parsed(self) -> dict[str, MentionKind]:
        """Keys as the extractor sees them; of a question all in lower case, which it cannot read, any run of words."""
        text, extractor = self._query.text, self._deps.extractor
        seen: list[Mention] = []
        if extractor is not None:
            seen = self.degrade_on_error("extractor", lambda: extractor.keys(text), seen)
        found = {mention.key: mention.kind for mention in seen}
        if found and not text[1:].islower():
            return found
        return {**dict.fromkeys(key_candidates(text), MentionKind.NAME), **found}

    def dense(self, vector: Matrix | None, limit: int) -> ScoredIds:
        """The nearest memories, unconfirmed."""
        stores, view = self._deps, self._query.view
        if vector is None:
            return []
        return self.degrade_on_error(
            "vectors", lambda: stores.vectors.read(lambda: stores.index.dense(view, vector, limit)), []
        )

    def keyword(self, partitions: Sequence[str], limit: int) -> ScoredIds:
        """The memories that share words, unconfirmed. Each partition has its own idf: no tenant weighs on another's."""

        def asked() -> ScoredIds:
            found = [pair for partition in partitions for pair in self._words(partition, limit)]
            return sorted(found, key=lambda pair: -pair[1])

        nothing: ScoredIds = []
        return self.degrade_on_error("vectors", lambda: self._deps.vectors.read(asked), nothing)

    def neighbourhood(self, view: View, seeds: Seeds) -> Subgraph:
        """The graph around some seeds; nothing if it is out of reach."""
        graph, copy = self._deps.graph, self._deps.graph_copy
        ask: Callable[[], Subgraph] = lambda: graph.neighbourhood(view, seeds, GraphBounds())  # noqa: E731
        return self.degrade_on_error("graph", ask if copy is None else lambda: copy.read(ask), Subgraph())

    def _words(self, partition: str, limit: int) -> ScoredIds:
        counts = query_term_counts(self._query.text)
        with self._deps.ledger.read() as connection:
            size, frequencies = term_stats.document_frequencies(connection, partition, counts)
        weights = {term: idf(size, frequencies[term]) for term in counts if term in frequencies}
        view = replace(self._query.view, partition=partition)
        return self._deps.index.sparse(view, weights, limit) if weights else []

    def partitions(self, keys: Sequence[str], read: EncodedQuery) -> tuple[SearchPartition, ...]:
        """The partitions to walk in, with what the question names there."""
        with self._deps.ledger.read() as connection:
            own = self._query.view.scope.partition
            return tuple(_partition(connection, key, read.entity_keys, own) for key in keys[:MAX_PARTITIONS])


def _partition(connection: Connection, key: str, asked: Mapping[str, MentionKind], own: str) -> SearchPartition:
    """A partition with what the question names there; what has several names is named by each of them.

    Only in the scope's own partition: what a user says of names is nothing for a view by agent or run.
    """
    row, size = memories.sized_partition(connection, key)
    named = entity_names.existing_entities(connection, row, asked)
    meant = entity_names.linked_keys(connection, row, named) if key == own else {}
    if meant:
        named |= entity_names.existing_entities(connection, row, meant)
    kinds = {other: asked[of] for other, of in meant.items()}
    return SearchPartition(key, size, named, {**kinds, **asked})
