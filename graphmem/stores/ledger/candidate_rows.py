"""Reads the search candidates: their rows (`CandidateRow`), vectors, tokens and texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Select, bindparam, func, select

from graphmem.model import VECTOR, CandidateRow, EmbeddingSpec, Kind, View
from graphmem.stores.ledger import visibility
from graphmem.stores.ledger.embeddings import decode_multilingual, decode_vectors
from graphmem.stores.ledger.schema import embeddings, entities, memories, mentions, partitions
from graphmem.stores.ledger.sql import in_array, moment

if TYPE_CHECKING:
    from graphmem.plugins import Matrix


def candidates_by_id(
    connection: Connection, view: View, partition: int | None, uids: Iterable[str]
) -> list[CandidateRow]:
    """Returns the candidate rows of those of these memories that are inside the view, in no particular order.

    `partition` is the row id of `view.partition`.
    """
    statement, values = _by_id(visibility.shape(view)), visibility.values(view, partition)
    return _candidate_rows(connection, statement, values, list(uids))


def candidates_by_row(
    connection: Connection, view: View, partition: int | None, row_ids: Iterable[int]
) -> list[CandidateRow]:
    """Returns the candidate rows of those of these memories (row ids) that are inside the view, in no particular order.

    `partition` is the row id of `view.partition`.
    """
    statement, values = _by_row(visibility.shape(view)), visibility.values(view, partition)
    return _candidate_rows(connection, statement, values, list(row_ids))


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


def read_vectors(connection: Connection, model: str, row_ids: Sequence[int]) -> tuple[list[int], Matrix]:
    """Returns the vectors of memories as (row ids, matrix of float32): one row id and one matrix row for each window.

    Windows of one memory are adjacent and in order; memories without vectors of this model are left out.
    """
    window_rows, data = _embeddings_of(connection, model, VECTOR, row_ids)
    return window_rows, decode_vectors(data)


def read_multilingual(connection: Connection, spec: EmbeddingSpec, row_ids: Sequence[int]) -> tuple[list[int], Matrix]:
    """Returns the vectors of memories in the multilingual space as (row ids, matrix): one row for each memory.

    Memories without one are left out.
    """
    if spec.multilingual is None:
        return [], decode_multilingual([])
    rows, data = _embeddings_of(connection, spec.model, spec.multilingual, row_ids)
    return rows, decode_multilingual(data)


def read_tokens(connection: Connection, spec: EmbeddingSpec, row_ids: Sequence[int]) -> tuple[list[int], list[bytes]]:
    """Returns the token matrices of memories as (row ids, encoded matrices): one of each for every window.

    Windows of one memory are adjacent and in order; memories without tokens of this model are left out.
    """
    return _embeddings_of(connection, spec.model, spec.tokens or "", row_ids)


def _embeddings_of(
    connection: Connection, model: str, form: str, row_ids: Sequence[int]
) -> tuple[list[int], list[bytes]]:
    if not row_ids:
        return [], []
    rows = connection.execute(_embeddings(), {"model": model, "form": form, "row_ids": list(row_ids)}).all()
    return [row_id for row_id, _ in rows], [data for _, data in rows]


@lru_cache(maxsize=1)
def _embeddings() -> Select[Any]:
    return (
        select(memories.c.id, embeddings.c.data)
        .join(embeddings, embeddings.c.hash == memories.c.embedding)
        .where(
            in_array(memories.c.id, "row_ids"),
            embeddings.c.model == bindparam("model"),
            embeddings.c.form == bindparam("form"),
        )
        .order_by(memories.c.id, embeddings.c.window)
    )


def read_texts(connection: Connection, row_ids: Sequence[int]) -> dict[int, str]:
    """Returns the texts of memories, by row id."""
    return dict(connection.execute(_texts(), {"row_ids": list(row_ids)}).all())


def read_mentions(connection: Connection, row_ids: Sequence[int]) -> list[tuple[int, int, str, str, str, int]]:
    """Returns the mentions of memories as (row id, kind, and the entity's key, name, type, document frequency)."""
    return [tuple(row) for row in connection.execute(_mentions(), {"row_ids": list(row_ids)})]


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
    return dict(connection.execute(_short_user_texts(), {"row_ids": list(row_ids), "max_chars": max_chars}).all())


@lru_cache(maxsize=1)
def _short_user_texts() -> Select[Any]:
    is_short = func.length(memories.c.text) <= bindparam("max_chars")
    return _texts().where(memories.c.kind == Kind.EPISODE.value, memories.c.role == "user", is_short)


@lru_cache(maxsize=1)
def _texts() -> Select[Any]:
    return select(memories.c.id, memories.c.text).where(in_array(memories.c.id, "row_ids"))
