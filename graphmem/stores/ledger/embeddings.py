"""Embeddings of texts, cached by content hash, and the memories that use them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlalchemy import Connection, bindparam, func, or_, select

from graphmem.model import VECTOR, AnswerType, EmbeddingSpec, MemoryRecord
from graphmem.stores.ledger.array_parameters import in_array
from graphmem.stores.ledger.decoding import decoding
from graphmem.stores.ledger.schema import embeddings as embeddings_table
from graphmem.stores.ledger.schema import memories
from graphmem.stores.ledger.term_stats import update_term_counts
from graphmem.text import is_passage, is_question, question_share

if TYPE_CHECKING:
    from graphmem.models.protocols import Embedded, Matrix

_MINE = (
    embeddings_table.c.hash == bindparam("text"),
    embeddings_table.c.model == bindparam("of"),
    in_array(embeddings_table.c.form, "forms"),
)
_WINDOWS = select(embeddings_table.c.form, func.count()).where(*_MINE).group_by(embeddings_table.c.form)
_USERS = select(func.max(embeddings_table.c.uses)).where(*_MINE)
_MARK = (
    memories.update()
    .where(memories.c.id == bindparam("row"))
    .values(
        embedding=bindparam("made_of"),
        windows=bindparam("points"),
        answer_types=bindparam("new_answer_types"),
        question_share=bindparam("new_question_share"),
    )
)


def cached_hashes(connection: Connection, spec: EmbeddingSpec, hashes: Sequence[str]) -> set[str]:
    """Of which texts all the forms are there already."""
    statement = (
        select(embeddings_table.c.hash)
        .where(
            embeddings_table.c.model == spec.model,
            embeddings_table.c.window == 0,
            embeddings_table.c.form.in_(spec.names),
            embeddings_table.c.hash.in_(hashes),
        )
        .group_by(embeddings_table.c.hash)
        .having(func.count() == len(spec.names))
    )
    return set(connection.scalars(statement))


def add_reference(connection: Connection, spec: EmbeddingSpec, text_hash: str, made: Embedded | None) -> int:
    """Counts one more use of a text's embeddings, storing those that are new. Returns the number of windows.

    `made` None: they were known when the work began. Returns 0 if they have been erased since.
    """
    wanted = {"text": text_hash, "of": spec.model, "forms": spec.names}
    there: dict[str, int] = dict(connection.execute(_WINDOWS, wanted).all())
    if there:
        mine = (
            embeddings_table.c.hash == text_hash,
            embeddings_table.c.model == spec.model,
            embeddings_table.c.form.in_(spec.names),
        )
        connection.execute(embeddings_table.update().where(*mine).values(uses=embeddings_table.c.uses + 1))
    if len(there) < len(spec.names):
        if made is None:
            return 0
        users = connection.scalar(_USERS, wanted) or 1
        rows = [row for row in _rows(spec, text_hash, made, users) if row["form"] not in there]
        connection.execute(embeddings_table.insert(), rows)
    return there.get(VECTOR) or (0 if made is None else len(made.vectors))


def store_enrichment(
    connection: Connection,
    record: MemoryRecord,
    partition: int,
    spec: EmbeddingSpec,
    text_hash: str,
    made: Embedded | None,
    answer_types: AnswerType,
) -> bool:
    """Gives a memory its vectors and counts its words. False where `add_reference` finds no vectors: nothing is done
    then.
    """
    windows = add_reference(connection, spec, text_hash, made)
    if windows:
        mark_enriched(connection, record, text_hash, windows, answer_types)
        update_term_counts(connection, record, partition, 1)
    return bool(windows)


def _rows(spec: EmbeddingSpec, text_hash: str, made: Embedded, users: int) -> Iterator[dict[str, Any]]:
    data = {VECTOR: [row.astype("<f4").tobytes() for row in made.vectors]}
    if spec.tokens is not None:
        data[spec.tokens] = [tokens.tobytes() for tokens in made.tokens]
    for form, windows in data.items():
        for window, content in enumerate(windows):
            yield {
                "hash": text_hash, "model": spec.model, "form": form, "window": window, "data": content, "uses": users
            }  # fmt: skip


def release_reference(connection: Connection, text_hash: str) -> int:
    """Counts one use less; the last one erases. Returns the number of vectors erased."""
    mine = embeddings_table.c.hash == text_hash
    connection.execute(embeddings_table.update().where(mine).values(uses=embeddings_table.c.uses - 1))
    return connection.execute(embeddings_table.delete().where(mine, embeddings_table.c.uses <= 0)).rowcount


def delete_other_embeddings(connection: Connection, spec: EmbeddingSpec) -> int:
    """Erases what other models, or other settings, have left; returns how many rows that were."""
    mine = (embeddings_table.c.model == spec.model) & embeddings_table.c.form.in_(spec.names)
    return connection.execute(embeddings_table.delete().where(~mine)).rowcount


def mark_enriched(
    connection: Connection, record: MemoryRecord, text_hash: str, windows: int, answer_types: AnswerType
) -> None:
    """Stores which vectors a memory uses, which questions its text may answer, and how much of it is questions."""
    if is_question(record.text):
        answer_types |= AnswerType.ASKS
    if is_passage(record.text):
        answer_types |= AnswerType.TITLED
    values = {
        "made_of": text_hash,
        "points": windows,
        "new_answer_types": int(answer_types),
        "new_question_share": question_share(record.text),
    }
    connection.execute(_MARK, {"row": record.row, **values})


def vectors_of(connection: Connection, model: str, wanted: Sequence[int]) -> dict[int, Matrix]:
    """The vectors of memories by row, (windows, dims); those that have none are left out."""
    statement = (
        select(memories.c.id, embeddings_table.c.data)
        .join(embeddings_table, embeddings_table.c.hash == memories.c.embedding)
        .where(in_array(memories.c.id, "wanted"), embeddings_table.c.model == model, embeddings_table.c.form == VECTOR)
        .order_by(memories.c.id, embeddings_table.c.window)
    )
    found: dict[int, list[Matrix]] = {}
    for row, data in connection.execute(statement, {"wanted": list(wanted)}):
        found.setdefault(row, []).append(_vector(data))
    return {row: _stack(windows) for row, windows in found.items()}


def first_vectors(connection: Connection, model: str, hashes: Sequence[str]) -> dict[str, Matrix]:
    """The vector of the first window of texts, by hash."""
    statement = select(embeddings_table.c.hash, embeddings_table.c.data).where(
        in_array(embeddings_table.c.hash, "wanted"),
        embeddings_table.c.model == model,
        embeddings_table.c.form == VECTOR,
        embeddings_table.c.window == 0,
    )
    found = connection.execute(statement, {"wanted": list(hashes)})
    return {text_hash: _vector(data) for text_hash, data in found}


@decoding
def _vector(data: bytes) -> Matrix:
    return np.frombuffer(data, "<f4")


_stack = decoding(np.stack)


def clear_enrichment(connection: Connection, row: int) -> None:
    """Takes a memory's vectors away from it until it is enriched again."""
    nothing = {"embedding": None, "windows": 0, "answer_types": 0, "question_share": 0.0}
    connection.execute(memories.update().where(memories.c.id == row).values(nothing))


def enrichment_state(connection: Connection, row: int) -> tuple[str | None, int]:
    """The hash of the text that a memory was enriched from (None: not yet) and its number of windows."""
    found = connection.execute(select(memories.c.embedding, memories.c.windows).where(memories.c.id == row)).one()
    return found[0], found[1]


def rows_without_embeddings(connection: Connection, spec: EmbeddingSpec) -> list[int]:
    """Rows of enriched memories that lack one of the forms: what a change of model leaves to do."""
    lacks = [
        ~select(embeddings_table.c.hash)
        .where(
            embeddings_table.c.hash == memories.c.embedding,
            embeddings_table.c.model == spec.model,
            embeddings_table.c.form == form,
        )
        .exists()
        for form in spec.names
    ]
    return list(connection.scalars(select(memories.c.id).where(memories.c.embedding.is_not(None), or_(*lacks))))


def total_windows(connection: Connection) -> int:
    """How many points a vector index should hold."""
    return connection.scalar(select(func.sum(memories.c.windows))) or 0
