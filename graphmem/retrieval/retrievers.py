"""The arms of a search: each returns scored ids from its index. One that fails is left out and named in `degraded`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from graphmem.concurrency import WorkStopped
from graphmem.errors import ModelError, StoreError
from graphmem.model import GraphBounds, Seeds, Subgraph, View
from graphmem.plugins import MultilingualEmbedder, TokenEmbedder
from graphmem.retrieval.named_entities import named_in
from graphmem.retrieval.types import EncodedQuery, RetrievedSet, ScoredIds, SearchDeps, SearchPartition, SearchQuery
from graphmem.stores.ledger import memories
from graphmem.stores.ledger.term_stats import TermStatistics
from graphmem.stores.projection_worker import ProjectionWorker
from graphmem.text import idf, key_candidates, query_term_counts

T = TypeVar("T")

# Characters of a query that are read: more words would only make everything match a little.
MAX_READ_CHARS = 2_000
# Memories that each arm returns. All memories as candidates would gain half a point of R@10 (benchmarks/ABLATIONS.md,
# "Left out").
DENSE_LIMIT, KEYWORD_LIMIT = 100, 200
# A search by agent or run alone runs PageRank in the partitions of its best hits, separately in each.
MAX_PARTITIONS = 5
# Partitions that such a search reads at all, the last written first.
MAX_PARTITIONS_LISTED = 1000
# Seconds that a search waits for a projection to catch up with the ledger.
CATCH_UP_SECONDS = 0.3


class Retrievers:
    """Runs the arms of one query. `degraded` has the names of the arms, stores and models that failed."""

    def __init__(self, query: SearchQuery, deps: SearchDeps) -> None:
        self._query = query
        self._deps = deps
        self.degraded: set[str] = set()
        self._statistics: dict[str, TermStatistics] = {}

    def retrieve(self) -> RetrievedSet:
        """Encodes the query and runs the arms side by side, each as soon as its input is ready.

        Raises StoreError from the ledger alone; everything else that fails is added to `degraded`.
        """
        pool = self._deps.pool
        encoding = pool.submit(self._encode)
        partitions = self._up_to_date_partitions()
        keyword = pool.submit(self.keyword, partitions, KEYWORD_LIMIT)
        encoded = encoding.result()
        unread = pool.submit(self.unread, encoded, DENSE_LIMIT)
        dense = self.dense(encoded, DENSE_LIMIT)
        return RetrievedSet(encoded, partitions, dense, unread.result(), keyword.result())

    def degrade_on_error(self, name: str, call: Callable[[], T], otherwise: T) -> T:
        """Returns the call's result; if a store or model fails, adds `name` to `degraded` and returns `otherwise`."""
        try:
            return call()
        except WorkStopped:  # nobody waits for the result
            raise
        except (StoreError, ModelError):
            self.degraded.add(name)
            return otherwise

    def _up_to_date_partitions(self) -> list[str]:
        """Returns the keys of the partitions to search, after the projections have caught up with the ledger."""
        deps, own = self._deps, self._query.view.partition
        partitions = self._partitions_in_view() if own is None else [own]
        for worker in filter(None, (deps.vector_worker, deps.graph_worker)):
            self._catch_up(worker, partitions)
        return partitions

    def _partitions_in_view(self) -> list[str]:
        with self._deps.ledger.read() as connection:
            return memories.partitions_of(connection, self._query.view, MAX_PARTITIONS_LISTED)

    def _catch_up(self, worker: ProjectionWorker, partitions: Sequence[str]) -> None:
        """Waits up to `CATCH_UP_SECONDS` for a projection; reports it as degraded if it is still behind or fails."""
        if not self.degrade_on_error(
            worker.name, lambda: worker.catch_up(partitions, CATCH_UP_SECONDS), otherwise=False
        ):
            self.degraded.add(worker.name)

    def _encode(self) -> EncodedQuery:
        embedder, text = self._deps.embedder, self._query.text

        def encode() -> EncodedQuery:
            with self._deps.observers.model_call("embed"):
                if isinstance(embedder, MultilingualEmbedder):
                    question = embedder.embed_question(text)
                    is_read = question.vector is not None
                    return EncodedQuery(
                        question.vector,
                        question if is_read else None,
                        is_supported_script=is_read,
                        multilingual=question.multilingual,
                        ranking=question.multilingual
                        if question.multilingual_ranking is None
                        else question.multilingual_ranking,
                    )
                is_supported = self._deps.scripts.supports(text)
                if is_supported and isinstance(embedder, TokenEmbedder):
                    tokens = embedder.embed_question(text)
                    return EncodedQuery(tokens.vector, tokens)
                return EncodedQuery(embedder.embed_query(text), is_supported_script=is_supported)

        return self.degrade_on_error("vectors", encode, EncodedQuery())

    def dense(self, encoded: EncodedQuery, limit: int) -> ScoredIds:
        """Returns the memories nearest to the query's vector with their cosines, unchecked; none without a vector.

        The vector is the multilingual one if the query has no other.
        """
        index, view = self._deps.vector_index, self._query.view
        if (vector := encoded.vector) is not None:
            return self._nearest(lambda: index.dense(view, vector, limit))
        if (ranking := encoded.ranking) is not None:
            return self._nearest(lambda: index.multilingual(view, ranking, limit))
        return []

    def unread(self, encoded: EncodedQuery, limit: int) -> ScoredIds:
        """Returns the nearest of the memories that have a vector in the multilingual space alone, unchecked.

        None for a query without a vector in either space.
        """
        index, view, ranking = self._deps.vector_index, self._query.view, encoded.ranking
        if encoded.vector is None or ranking is None:
            return []
        return self._nearest(lambda: index.multilingual(view, ranking, limit, without_dense=True))

    def _nearest(self, search: Callable[[], ScoredIds]) -> ScoredIds:
        return self.degrade_on_error("vectors", lambda: self._deps.vector_worker.read(search), [])

    def keyword(self, partitions: Sequence[str], limit: int) -> ScoredIds:
        """Returns the memories that share words with the query, with their BM25 scores, unchecked; best first.

        At most `limit` from each partition. Each partition has its own idf, so no tenant's words weigh on another's.
        """

        def search_partitions() -> ScoredIds:
            pairs = [pair for partition in partitions for pair in self._keyword_in(partition, limit)]
            return sorted(pairs, key=lambda pair: -pair[1])

        nothing: ScoredIds = []
        return self.degrade_on_error("vectors", lambda: self._deps.vector_worker.read(search_partitions), nothing)

    def _keyword_in(self, partition: str, limit: int) -> ScoredIds:
        counts = query_term_counts(self._query.text)
        size, frequencies = self.frequencies(partition, counts)
        # A word said twice counts once, a spelling without marks in part.
        weights = {
            term: min(count, 1) * idf(size, frequencies[term]) for term, count in counts.items() if term in frequencies
        }
        view = replace(self._query.view, partition=partition)
        return self._deps.vector_index.sparse(view, weights, limit) if weights else []

    def frequencies(self, partition: str, terms: Iterable[int]) -> tuple[int, dict[int, int]]:
        """Returns a partition's number of memories, and how many of them have each term, if any has."""
        statistics = self._statistics.setdefault(partition, TermStatistics(partition))
        with self._deps.ledger.read() as connection:
            return statistics.frequencies(connection, terms)

    def neighbourhood(self, view: View, seeds: Seeds) -> Subgraph:
        """Returns the graph around the seeds; an empty one if the graph store fails."""
        graph, worker = self._deps.graph, self._deps.graph_worker
        read: Callable[[], Subgraph] = lambda: graph.neighbourhood(view, seeds, GraphBounds())  # noqa: E731
        return self.degrade_on_error("graph", read if worker is None else lambda: worker.read(read), Subgraph())

    def partitions(self, keys: Sequence[str]) -> tuple[SearchPartition, ...]:
        """Returns the first `MAX_PARTITIONS` of the partitions with the entities that the query names in each."""
        candidates, own = key_candidates(self._query.text), self._query.view.scope.partition
        with self._deps.ledger.read() as connection:
            return tuple(named_in(connection, key, candidates, own) for key in keys[:MAX_PARTITIONS])
