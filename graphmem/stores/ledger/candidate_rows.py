"""What a search reads of its candidates: a glimpse of each, who is beside whom, and their embeddings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlalchemy import Connection, Select, bindparam, select

from graphmem.model import VECTOR, CandidateRow, EmbeddingSpec, View
from graphmem.stores.ledger import visibility
from graphmem.stores.ledger.array_parameters import in_array
from graphmem.stores.ledger.decoding import decoding, moment
from graphmem.stores.ledger.schema import embeddings, memories, partitions

if TYPE_CHECKING:
    from graphmem.models.protocols import Matrix


def candidates_by_id(
    connection: Connection, view: View, partition: int | None, uids: Iterable[str]
) -> list[CandidateRow]:
    """Glimpses of those of the memories that the view holds; `partition` is the row of `view.partition`."""
    return _read(
        connection, _by_id(visibility.shape(view)), {**visibility.values(view, partition), "wanted": list(uids)}
    )


def candidates_by_row(
    connection: Connection, view: View, partition: int | None, wanted: Iterable[int]
) -> list[CandidateRow]:
    """The same, by row."""
    return _read(
        connection, _by_row(visibility.shape(view)), {**visibility.values(view, partition), "wanted": list(wanted)}
    )


def _read(connection: Connection, statement: Select[Any], values: dict[str, Any]) -> list[CandidateRow]:
    return [_glimpse_of(found) for found in connection.execute(statement, values).all()] if values["wanted"] else []


def _glimpse_of(found: Iterable[Any]) -> CandidateRow:
    candidate_row = CandidateRow(*found)
    moment(candidate_row.at)  # it stays a number, which whoever asks about times reads
    return candidate_row


@lru_cache(maxsize=128)
def _by_id(shape: visibility.ViewShape) -> Select[Any]:
    return _candidate_row(shape).where(in_array(memories.c.uid, "wanted"))


@lru_cache(maxsize=128)
def _by_row(shape: visibility.ViewShape) -> Select[Any]:
    return _candidate_row(shape).where(in_array(memories.c.id, "wanted"))


def _candidate_row(shape: visibility.ViewShape) -> Select[Any]:
    m, after = memories.c, memories.alias("after")
    return (
        select(m.id, m.uid, partitions.c.key, m.speaker, m.at, m.answer_types, m.question_share, m.previous, after.c.id)
        .add_columns(m.source_only, m.role)
        .join(partitions, partitions.c.id == m.partition)
        .outerjoin(after, after.c.previous == m.id)
        .where(*visibility.conditions(shape, of_ids=True))
    )


def vectors_of(connection: Connection, model: str, wanted: Sequence[int]) -> tuple[list[int], Matrix]:
    """The vectors of memories, one for each window, with the row of the memory that each is of; together by memory."""
    held, data = _embeddings_of(connection, model, VECTOR, wanted)
    return held, _matrix(data)


@decoding
def _matrix(data: list[bytes]) -> Matrix:
    return np.frombuffer(b"".join(data), "<f4").reshape(len(data), -1 if data else 0).astype(np.float32, copy=False)


def tokens_of(connection: Connection, spec: EmbeddingSpec, wanted: Sequence[int]) -> tuple[list[int], list[bytes]]:
    """The token matrices of memories, as bytes, one for each window, with the row of the memory that each is of."""
    return _embeddings_of(connection, spec.model, spec.tokens or "", wanted)


def _embeddings_of(
    connection: Connection, model: str, form: str, wanted: Sequence[int]
) -> tuple[list[int], list[bytes]]:
    if not wanted:
        return [], []
    found = connection.execute(_embeddings(), {"model": model, "form": form, "wanted": list(wanted)}).all()
    return [row for row, _ in found], [data for _, data in found]


@lru_cache(maxsize=1)
def _embeddings() -> Select[Any]:
    return (
        select(memories.c.id, embeddings.c.data)
        .join(embeddings, embeddings.c.hash == memories.c.embedding)
        .where(
            in_array(memories.c.id, "wanted"),
            embeddings.c.model == bindparam("model"),
            embeddings.c.form == bindparam("form"),
        )
        .order_by(memories.c.id, embeddings.c.window)
    )


def texts_of(connection: Connection, wanted: Sequence[int]) -> dict[int, str]:
    """The texts of memories, by row."""
    return dict(connection.execute(_texts(), {"wanted": list(wanted)}).all())


@lru_cache(maxsize=1)
def _texts() -> Select[Any]:
    return select(memories.c.id, memories.c.text).where(in_array(memories.c.id, "wanted"))
