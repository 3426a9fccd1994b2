"""Reads the search candidates: their rows (`CandidateRow`), vectors, tokens and texts.

`CandidateReader` reads rows and embeddings from columns in memory if the partition has them, else from the tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Select, bindparam, func, select

from graphmem.model import VECTOR, CandidateRow, EmbeddingSpec, Kind, View
from graphmem.stores.ledger import visibility
from graphmem.stores.ledger.columns import PartitionColumns, VisibleColumns
from graphmem.stores.ledger.embeddings import OF_MEMORIES, decode_usable
from graphmem.stores.ledger.index_blocks import compare
from graphmem.stores.ledger.memories import text_of
from graphmem.stores.ledger.schema import entities, memories, mentions, partitions
from graphmem.stores.ledger.sql import in_array, moment
from graphmem.text import READ_CHARS

if TYPE_CHECKING:
    from graphmem.plugins import Matrix

_OF_ROWS = OF_MEMORIES.where(in_array(memories.c.id, "row_ids"))


class CandidateReader:
    """Reads the candidates of one search: inside its view, from the columns of its partition (as the view shows
    them), else by its row id.
    """

    def __init__(
        self, view: View, partition: int | None, spec: EmbeddingSpec, columns: VisibleColumns | None = None
    ) -> None:
        self._spec = spec
        self._visible = columns
        self._shape = visibility.shape(view)
        self._values = visibility.values(view, partition)

    def by_id(self, connection: Connection, uids: Iterable[str]) -> list[CandidateRow]:
        """Returns the candidate rows of those of these memories that are inside the view, in no particular order."""
        if self._visible is not None:
            return self._visible.by_id(uids)
        return _candidate_rows(connection, _by_id(self._shape), self._values, list(uids))

    def by_row(self, connection: Connection, row_ids: Iterable[int]) -> list[CandidateRow]:
        """Returns the candidate rows of those of these memories (row ids) that are inside the view, in no particular
        order.
        """
        if self._visible is not None:
            return self._visible.by_row(row_ids)
        return _candidate_rows(connection, _by_row(self._shape), self._values, list(row_ids))

    def cosines(self, connection: Connection, row_ids: Sequence[int], vector: Matrix) -> dict[int, float]:
        """Returns the cosines of memories' best windows with a unit vector of the embedder's space, by row id.

        Memories without vectors of this model are left out.
        """
        return self._cosines(connection, VECTOR, row_ids, vector)

    def multilingual_cosines(self, connection: Connection, row_ids: Sequence[int], vector: Matrix) -> dict[int, float]:
        """Returns the cosines of memories with a unit vector of the multilingual space, by row id.

        Memories without a vector there are left out.
        """
        form = self._spec.multilingual
        return {} if form is None else self._cosines(connection, form, row_ids, vector)

    def _cosines(self, connection: Connection, form: str, row_ids: Sequence[int], vector: Matrix) -> dict[int, float]:
        if not row_ids:
            return {}
        if self._visible is not None:
            return self._visible.cosines_of(connection, (self._spec.model, form), vector, row_ids)
        best: dict[int, float] = {}
        rows, vectors = self._vectors(connection, form, len(vector), row_ids)
        for row, cosine in zip(rows, compare(vectors, vector).tolist(), strict=True):
            best[row] = max(cosine, best.get(row, cosine))
        return best

    def multilingual(self, connection: Connection, row_ids: Sequence[int]) -> tuple[list[int], Matrix]:
        """Returns the vectors of memories in the multilingual space as (row ids, matrix): one row for each memory.

        Memories without one are left out.
        """
        form = self._spec.multilingual
        return self._vectors(connection, form or "", self._spec.multilingual_dims, [] if form is None else row_ids)

    def _vectors(
        self, connection: Connection, form: str, dims: int, row_ids: Sequence[int]
    ) -> tuple[list[int], Matrix]:
        if self._visible is not None:
            return self._visible.columns.vectors(connection, (self._spec.model, form), dims, row_ids)
        read = _read_embeddings(connection, self._spec.model, form, row_ids) if row_ids else []
        places, vectors = decode_usable([(place, data) for place, (_, data) in enumerate(read)], form, dims)
        return [read[place][0] for place in places.tolist()], vectors

    def tokens(self, connection: Connection, row_ids: Sequence[int]) -> tuple[list[int], list[bytes]]:
        """Returns the token matrices of memories as (row ids, encoded matrices): one of each for every window.

        Windows of one memory are adjacent and in order; memories without tokens of this model are left out. Reads those
        that the columns do not keep, which then keep them.
        """
        if not row_ids:
            return [], []
        model, form = self._spec.model, self._spec.tokens or ""
        if self._visible is None:
            rows = _read_embeddings(connection, model, form, row_ids)
            return [row for row, _ in rows], [data for _, data in rows]
        columns = self._visible.columns
        kept = columns.tokens.of(model, form)
        lacking = columns.lacking.setdefault((model, form), set())
        unread = [row for row in row_ids if row not in kept and row not in lacking]
        if unread:
            read: dict[int, list[bytes]] = {}
            for row, data in _read_embeddings(connection, model, form, unread):
                read.setdefault(row, []).append(data)
            lacking.update(row for row in unread if row not in read)
            columns.tokens.add(model, form, read)
        ordered = sorted(row_ids)
        windows = [kept.get(row, ()) for row in ordered]
        return [row for row, own in zip(ordered, windows, strict=True) for _ in own], list(chain.from_iterable(windows))

    @property
    def columns(self) -> PartitionColumns | None:
        """The columns of the view's partition; None if there are none."""
        return None if self._visible is None else self._visible.columns

    def mentions(self, connection: Connection, row_ids: Sequence[int]) -> list[tuple[int, int, str, str, str, int]]:
        """Returns the mentions of memories as (row id, kind, and the entity's key, name, type, document frequency).

        By row id, kind and key.
        """
        if (columns := self.columns) is None:
            return [tuple(row) for row in connection.execute(_mentions(), {"row_ids": list(row_ids)})]
        return sorted(
            (row, kind, columns.entities[entity][0], *columns.names[entity], columns.entities[entity][1])
            for row in row_ids
            for entity, kind in columns.mentioned.get(row, ())
        )


def _read_embeddings(connection: Connection, model: str, form: str, row_ids: Sequence[int]) -> list[tuple[int, bytes]]:
    """Returns the embedding of each window of memories, by row and window."""
    values = {"model": model, "form": form, "row_ids": list(row_ids)}
    return [tuple(row) for row in connection.execute(_OF_ROWS, values).all()]


def _candidate_rows(
    connection: Connection, statement: Select[Any], values: dict[str, Any], ids: list[Any]
) -> list[CandidateRow]:
    if not ids:
        return []
    rows = [CandidateRow(*columns) for columns in connection.execute(statement, {**values, "ids": ids}).all()]
    for row in rows:
        moment(row.at)  # raises for a corrupt date; the row keeps the microseconds
    return rows


@lru_cache(maxsize=128)
def _by_id(shape: visibility.ViewShape) -> Select[Any]:
    return _select_candidates(shape).where(in_array(memories.c.uid, "ids"))


@lru_cache(maxsize=128)
def _by_row(shape: visibility.ViewShape) -> Select[Any]:
    return _select_candidates(shape).where(in_array(memories.c.id, "ids"))


def _select_candidates(shape: visibility.ViewShape) -> Select[Any]:
    m, after = memories.c, memories.alias("after")
    return (
        select(m.id, m.uid, partitions.c.key, m.speaker, m.at, m.answer_types, m.question_share, m.previous, after.c.id)
        .add_columns(m.source_only, m.role)
        .join(partitions, partitions.c.id == m.partition)
        .outerjoin(after, after.c.previous == m.id)
        .where(*visibility.conditions(shape, by_id=True))
    )


def read_texts(connection: Connection, row_ids: Sequence[int]) -> dict[int, str]:
    """Returns the texts of memories, by row id; of one of more than `READ_CHARS` characters the beginning."""
    rows = connection.execute(_texts(), {"row_ids": list(row_ids)}).mappings().all()
    return {row["id"]: text_of(row) for row in rows}


@lru_cache(maxsize=1)
def _mentions() -> Select[Any]:
    return (
        select(
            mentions.c.memory, mentions.c.kind, entities.c.key, entities.c.name, entities.c.type, entities.c.mentions
        )
        .join(entities, entities.c.id == mentions.c.entity)
        .where(in_array(mentions.c.memory, "row_ids"))
        .order_by(mentions.c.memory, mentions.c.kind, entities.c.key)
    )


def read_short_user_texts(connection: Connection, row_ids: Sequence[int], max_chars: int) -> dict[int, str]:
    """Returns the texts of the user's messages among memories, by row id, without those over `max_chars` characters."""
    values = {"row_ids": list(row_ids), "max_chars": max_chars}
    return {row["id"]: text_of(row) for row in connection.execute(_short_user_texts(), values).mappings().all()}


@lru_cache(maxsize=1)
def _short_user_texts() -> Select[Any]:
    is_short = func.length(memories.c.text) <= bindparam("max_chars")
    return _texts().where(memories.c.kind == Kind.EPISODE.value, memories.c.role == "user", is_short)


@lru_cache(maxsize=1)
def _texts() -> Select[Any]:
    text = func.substr(memories.c.text, 1, READ_CHARS).label("text")
    return select(memories.c.id, memories.c.uid, text).where(in_array(memories.c.id, "row_ids"))
