"""The arms of a search: each returns scored ids from its index. One that fails is left out and named in `degraded`.

All arms are in `ARMS`, from which candidates, further hits and `why_not` take them. The scores of a new one are a
feature once `features.Evidence._arm_columns` makes a column of them, with a weight in `weights` and with its words in
`explanation.REASONS`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from math import isfinite
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from graphmem.concurrency import WorkStopped
from graphmem.errors import ModelError, StoreError
from graphmem.logs import log_text
from graphmem.plugins import MultilingualEmbedder, TokenEmbedder
from graphmem.retrieval.query_analysis import AnalyzedQuery
from graphmem.retrieval.types import EncodedQuery, ScoredIds, SearchDeps, SearchQuery
from graphmem.stores.ledger import memories, term_stats
from graphmem.stores.ledger.ledger_state import are_of, recorded_spaces
from graphmem.stores.ledger.term_stats import PartitionStatistics
from graphmem.text import idf, query_term_counts

logger = logging.getLogger("graphmem")
T = TypeVar("T")

# Partitions that a search by agent or run alone reads at all, the last written first.
MAX_PARTITIONS_LISTED = 1000
# Seconds that a search waits for a projection to catch up with the ledger.
CATCH_UP_SECONDS = 0.3


class Attempt(NamedTuple, Generic[T]):
    """A result, and the names of the arms, stores and models that failed and are left out of it."""

    value: T
    degraded: frozenset[str] = frozenset()


class Asked(NamedTuple):
    """What an arm is asked: a query, as the models read it, in partitions, whose statistics are given by their keys."""

    query: SearchQuery
    encoded: EncodedQuery
    statistics: Mapping[str, PartitionStatistics]


@dataclass(frozen=True, slots=True)
class Arm:
    """An arm: `search` returns up to `limit` memories, of which the best `candidates` become candidates of a search.

    `name` is that of its scores, which several arms may share. `reads_encoding`: it waits for the models.
    """

    name: str
    search: Callable[[Asked, SearchDeps, int], Attempt[ScoredIds]]
    limit: int
    candidates: int
    reads_encoding: bool = True


@dataclass(frozen=True, slots=True)
class Retrieved:
    """What was asked, and what each of `ARMS` found up to its limit, in their order.

    The ids come from the projections and are not yet checked against the ledger, the view and the filter.
    """

    asked: Asked
    analysis: AnalyzedQuery
    found: Sequence[ScoredIds]
    degraded: frozenset[str] = frozenset()

    def of(self, name: str) -> ScoredIds:
        """Returns what the arms of this name found, best first."""
        found = chain.from_iterable(ids for arm, ids in zip(ARMS, self.found, strict=True) if arm.name == name)
        return sorted(found, key=lambda pair: -pair[1])

    @property
    def query(self) -> SearchQuery:
        """The query."""
        return self.asked.query

    @property
    def encoded(self) -> EncodedQuery:
        """The query as the models read it."""
        return self.asked.encoded

    @property
    def statistics(self) -> Mapping[str, PartitionStatistics]:
        """The statistics of the partitions to search, by key."""
        return self.asked.statistics


def attempt(name: str, call: Callable[[], T], otherwise: T) -> Attempt[T]:
    """Returns the call's result; if a store or model fails, `otherwise`, degraded by `name`."""
    try:
        return Attempt(call())
    except WorkStopped:  # nobody waits for the result
        raise
    except (StoreError, ModelError):
        return Attempt(otherwise, frozenset({name}))


def retrieve(
    query: SearchQuery, analysis: AnalyzedQuery, encoding: Future[Attempt[EncodedQuery]], deps: SearchDeps
) -> Retrieved:
    """Asks the arms: one after the other in the ledger, those of a projection side by side, as soon as possible.

    Raises StoreError from the ledger alone; everything else that fails is left out and named in `degraded`. Raises
    EmbedderChanged if the ledger's vectors are of another embedder.
    """
    terms, workers = query_term_counts(query.text), [deps.vector_worker, deps.graph_worker]
    with deps.ledger.read() as connection:
        partitions = [query.view.partition] if query.view.partition is not None else []
        partitions = partitions or memories.partitions_of(connection, query.view, MAX_PARTITIONS_LISTED)
        visible = deps.ledger.columns.visible(connection, query.view)
        spaces = recorded_spaces(connection) if visible is None else visible.columns.state.spaces
        are_of(spaces, deps.spec, deps.ledger.uuid)  # raises EmbedderChanged
        # The columns have the terms as well where the ledger is the index.
        columns = None if visible is None or deps.vector_worker is not None else visible.columns
        statistics = term_stats.statistics_of(connection, partitions, terms, columns)
        behind = [one for one in workers if one is not None and not one.is_up_to_date(partitions)]
    degraded = frozenset[str]()
    for worker in behind:
        caught_up = attempt(worker.name, partial(worker.catch_up, partitions, CATCH_UP_SECONDS), otherwise=False)
        degraded |= caught_up.degraded if caught_up.value else {worker.name}

    def begin(arm: Arm, asked: Asked) -> Callable[[], Attempt[ScoredIds]]:
        call = partial(arm.search, asked, deps, arm.limit)
        return call if deps.vector_worker is None else deps.pool.submit(call).result

    asked = Asked(query, EncodedQuery(), statistics)
    answers = {arm: begin(arm, asked) for arm in ARMS if not arm.reads_encoding}
    encoded = encoding.result()
    asked = asked._replace(encoded=encoded.value)
    answers |= {arm: begin(arm, asked) for arm in ARMS if arm.reads_encoding}
    found = [answers[arm]() for arm in ARMS]
    degraded = degraded.union(encoded.degraded, *(one.degraded for one in found))
    return Retrieved(asked, analysis, [one.value for one in found], degraded)


def encode(text: str, deps: SearchDeps) -> Attempt[EncodedQuery]:
    """Returns the query as the models read it; nothing, degraded by "vectors", if they fail."""
    embedder = deps.embedder

    def call() -> EncodedQuery:
        with deps.observers.model_call("embed"):
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
            is_supported = deps.scripts.supports(text)
            if is_supported and isinstance(embedder, TokenEmbedder):
                tokens = embedder.embed_question(text)
                return EncodedQuery(tokens.vector, tokens)
            return EncodedQuery(embedder.embed_query(text), is_supported_script=is_supported)

    def call_or_tell() -> EncodedQuery:
        try:
            return call()
        except ModelError as error:
            logger.warning("a search goes on without its meaning, for the embedder failed (%s)", log_text(error))
            raise

    return attempt("vectors", call_or_tell, EncodedQuery())


def _dense(asked: Asked, deps: SearchDeps, limit: int) -> Attempt[ScoredIds]:
    """Returns the memories nearest to the query's vector with their cosines, unchecked; none without a vector.

    The vector is the multilingual one if the query has no other.
    """
    index, view = deps.vector_index, asked.query.view
    vector, ranking = asked.encoded.vector, asked.encoded.ranking
    if vector is not None:
        return _read(deps, lambda: index.dense(view, vector, limit))
    if ranking is not None:
        return _read(deps, lambda: index.multilingual(view, ranking, limit))
    return Attempt([])


def _unread(asked: Asked, deps: SearchDeps, limit: int) -> Attempt[ScoredIds]:
    """Returns the nearest of the memories that have a vector in the multilingual space alone, unchecked.

    None for a query without a vector in either space.
    """
    index, view, ranking = deps.vector_index, asked.query.view, asked.encoded.ranking
    if asked.encoded.vector is None or ranking is None:
        return Attempt([])
    return _read(deps, lambda: index.multilingual(view, ranking, limit, without_dense=True))


def _keyword(asked: Asked, deps: SearchDeps, limit: int) -> Attempt[ScoredIds]:
    """Returns the memories that share words with the query, with their BM25 scores, unchecked; best first.

    At most `limit` from each partition. Each partition has its own idf, so no tenant's words weigh on another's.
    """
    counts = query_term_counts(asked.query.text)

    def search_partitions() -> ScoredIds:
        pairs: ScoredIds = []
        for key, own in asked.statistics.items():
            # A word said twice counts once, a spelling without marks in part.
            weights = {
                term: min(count, 1) * idf(own.size, own.frequencies[term])
                for term, count in counts.items()
                if own.frequencies[term]
            }
            if weights:
                found = deps.vector_index.sparse(replace(asked.query.view, partition=key), weights, limit)
                pairs.extend(found if deps.vector_worker is None else _checked(found))
        return sorted(pairs, key=lambda pair: -pair[1])

    return _read(deps, search_partitions)


# More candidates (250 to 400 in all) cost time and gain nothing; all memories as candidates would gain half a point of
# R@10 (benchmarks/ABLATIONS.md, "Left out"). Where two arms share a name, the later one's score of a memory counts.
ARMS = (
    Arm("dense", _unread, limit=100, candidates=100),
    Arm("dense", _dense, limit=100, candidates=100),
    Arm("keyword", _keyword, limit=200, candidates=100, reads_encoding=False),
)


def _read(deps: SearchDeps, search: Callable[[], ScoredIds]) -> Attempt[ScoredIds]:
    worker, nothing = deps.vector_worker, list[tuple[str, float]]()
    return attempt("vectors", lambda: search() if worker is None else worker.read(lambda: _checked(search())), nothing)


def _checked(found: ScoredIds) -> ScoredIds:
    """Returns what a vector index found. Raises StoreError unless it is a list of ids with numbers.

    The index may be a given one.
    """
    if isinstance(found, list) and all(map(_is_scored_id, found)):
        return found
    logger.warning("a search goes on without the vector index, which returned something else than ids with numbers")
    raise StoreError("the vector index returned something else than ids with numbers")


def _is_scored_id(pair: object) -> bool:
    return (
        isinstance(pair, tuple)
        and len(pair) == 2  # noqa: PLR2004  (id, score)
        and isinstance(pair[0], str)
        and isinstance(pair[1], int | float | np.floating)
        and isfinite(pair[1])
    )
