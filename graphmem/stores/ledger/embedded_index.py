"""The embedded vector index: the `VectorSearch` protocol over the ledger's own vectors and terms.

It is no copy, so it is always up to date and needs no cursor and no delivery. Every comparison is exact. Partitions
whose columns are in memory are compared there, as arrays; all else is read from the tables at each search.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlalchemy import Connection, Select, bindparam, select

from graphmem.model import VECTOR, EmbeddingSpec, View
from graphmem.stores.ledger import visibility
from graphmem.stores.ledger.columns import VisibleColumns
from graphmem.stores.ledger.embeddings import OF_MEMORIES, decode_usable
from graphmem.stores.ledger.index_blocks import Scores, are_in, best, compare, decode_terms, term_scores
from graphmem.stores.ledger.memories import view_values
from graphmem.stores.ledger.schema import embeddings, memories

if TYPE_CHECKING:
    from graphmem.plugins import Matrix
    from graphmem.stores.ledger import Ledger

ScoredIds = list[tuple[str, float]]
# Rows that are read from the tables at a time.
CHUNK = 2_000


class EmbeddedIndex:
    """The vector index of a ledger without an index on a server, for embeddings of `spec`."""

    def __init__(self, ledger: Ledger, spec: EmbeddingSpec) -> None:
        self._ledger = ledger
        self._spec = spec

    def dense(self, view: View, vector: Matrix, limit: int) -> ScoredIds:
        return self._nearest(view, VECTOR, vector, limit, without_dense=False)

    def multilingual(self, view: View, vector: Matrix, limit: int, *, without_dense: bool = False) -> ScoredIds:
        if self._spec.multilingual is None:
            return []
        return self._nearest(view, self._spec.multilingual, vector, limit, without_dense=without_dense)

    def sparse(self, view: View, weights: Mapping[int, float], limit: int) -> ScoredIds:
        with self._ledger.read() as connection:
            visible = self._ledger.columns.visible(connection, view)
            if visible is None:
                return _sparse_by_tables(connection, view, weights, limit)
            blocks = visible.columns.term_blocks(connection)
            scores = term_scores(blocks, weights, len(visible.flags))
            return _best_visible(visible, scores, 0.0, limit)

    def _nearest(self, view: View, form: str, vector: Matrix, limit: int, *, without_dense: bool) -> ScoredIds:
        model = self._spec.model
        with self._ledger.read() as connection:
            visible = self._ledger.columns.visible(connection, view)
            if visible is None:
                return _nearest_by_tables(connection, view, (model, form), vector, limit, without_dense=without_dense)
            wanted = visible.columns.is_enriched
            if without_dense:
                dense = visible.columns.vector_blocks(connection, (model, VECTOR), self._spec.dims, wanted)
                wanted = wanted & ~are_in(dense, len(wanted))
            scores = np.where(wanted, visible.cosines(connection, (model, form), vector, wanted), -np.inf)
            return _best_visible(visible, scores, -np.inf, limit)


def _best_visible(visible: VisibleColumns, scores: Scores, least: float, limit: int) -> ScoredIds:
    """Returns the best of the memories that the view shows, those with equal scores by row."""
    places = best(np.where(visible.flags, scores, -np.inf), least, limit)
    candidates = (visible.columns.candidates[place] for place in places.tolist())
    found = [
        (-score, candidate.row, candidate.id)
        for candidate, score in zip(candidates, scores[places].tolist(), strict=True)
        if candidate is not None
    ]
    return _in_order(found, limit)


def _in_order(found: Iterable[tuple[float, int, str]], limit: int) -> ScoredIds:
    """Returns the first (id, score) of (negative score, row, id), best first."""
    return [(uid, -negative) for negative, _, uid in sorted(found)[:limit]]


# --- tables -----------------------------------------------------------------------------------------------------------


def _nearest_by_tables(
    connection: Connection, view: View, kind: tuple[str, str], vector: Matrix, limit: int, *, without_dense: bool
) -> ScoredIds:
    model, form = kind
    statement = _visible_vectors(visibility.shape(view), without_dense=without_dense)
    values = {**view_values(connection, view), "model": model, "form": form, "dense_form": VECTOR}
    found: dict[int, tuple[float, int, str]] = {}
    for chunk in _chunks(connection, statement, values):
        places, vectors = decode_usable([(place, data) for place, (_, data, _) in enumerate(chunk)], form, len(vector))
        for place, cosine in zip(places.tolist(), compare(vectors, vector).tolist(), strict=True):
            row, _, uid = chunk[place]
            if row not in found or -cosine < found[row][0]:
                found[row] = -cosine, row, uid
    return _in_order(found.values(), limit)


def _sparse_by_tables(connection: Connection, view: View, weights: Mapping[int, float], limit: int) -> ScoredIds:
    if not weights:
        return []
    terms = np.array(sorted(weights), np.int32)
    own = np.array([weights[term] for term in terms.tolist()])
    found: list[tuple[float, int, str]] = []
    statement = _visible_terms(visibility.shape(view))
    for chunk in _chunks(connection, statement, view_values(connection, view)):
        owners, entries = decode_terms([data for *_, data in chunk])
        places = np.minimum(np.searchsorted(terms, entries["term"]), len(terms) - 1)
        is_asked = terms[places] == entries["term"]
        products = own[places[is_asked]] * entries["weight"][is_asked]
        scores = np.bincount(owners[is_asked], products, minlength=len(chunk))
        found += [(-score, row, uid) for (row, uid, _), score in zip(chunk, scores.tolist(), strict=True) if score > 0]
    return _in_order(found, limit)


def _chunks(connection: Connection, statement: Select[Any], values: dict[str, Any]) -> Iterable[Sequence[Any]]:
    """Yields the rows of a statement, some at a time: all at once may not fit into memory."""
    return connection.execute(statement, values, execution_options={"yield_per": CHUNK}).partitions()


@lru_cache(maxsize=128)
def _visible_vectors(shape: visibility.ViewShape, *, without_dense: bool) -> Select[Any]:
    statement = OF_MEMORIES.add_columns(memories.c.uid).where(*visibility.conditions(shape))
    if not without_dense:
        return statement
    dense = embeddings.alias("dense").c
    has_dense = select(dense.hash).where(
        dense.hash == memories.c.embedding, dense.model == bindparam("model"), dense.form == bindparam("dense_form")
    )
    return statement.where(~has_dense.exists())


@lru_cache(maxsize=128)
def _visible_terms(shape: visibility.ViewShape) -> Select[Any]:
    m = memories.c
    return select(m.id, m.uid, m.terms).where(m.terms.is_not(None), *visibility.conditions(shape)).order_by(m.id)
