"""The cache of embeddings, by hash of the embedded text, and which memory uses which of them.

Texts that several memories share are embedded once. `uses` counts the references; the last one that goes erases the
embedding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlalchemy import Connection, bindparam, func, or_, select, true

from graphmem.model import VECTOR, VECTOR_BYTES, AnswerType, EmbeddingSpec, MemoryRecord
from graphmem.stores.ledger.array_parameters import in_array
from graphmem.stores.ledger.decoding import decoding
from graphmem.stores.ledger.schema import embeddings as embeddings_table
from graphmem.stores.ledger.schema import memories
from graphmem.stores.ledger.term_stats import update_term_counts
from graphmem.text import is_passage, is_question, question_share

if TYPE_CHECKING:
    from graphmem.models.protocols import Embedded, Matrix

# Built once: every write runs these.
_OF_TEXT = (
    embeddings_table.c.hash == bindparam("text_hash"),
    embeddings_table.c.model == bindparam("model"),
    in_array(embeddings_table.c.form, "forms"),
)
_WINDOW_COUNTS = select(embeddings_table.c.form, func.count()).where(*_OF_TEXT).group_by(embeddings_table.c.form)
_MAX_USES = select(func.max(embeddings_table.c.uses)).where(*_OF_TEXT)
_MARK_ENRICHED = (
    memories.update()
    .where(memories.c.id == bindparam("row"))
    .values(
        embedding=bindparam("text_hash"),
        windows=bindparam("window_count"),
        answer_types=bindparam("new_answer_types"),
        question_share=bindparam("new_question_share"),
    )
)


def cached_hashes(connection: Connection, spec: EmbeddingSpec, hashes: Sequence[str]) -> set[str]:
    """Returns the content hashes among `hashes` whose embeddings are all cached."""
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


def add_reference(connection: Connection, spec: EmbeddingSpec, text_hash: str, embedded: Embedded | None) -> int:
    """Counts one more use of a text's embeddings and stores those that are new. Returns its number of windows.

    With `embedded` None the embeddings were cached when enrichment began; returns 0 if they were erased since.
    """
    values = {"text_hash": text_hash, "model": spec.model, "forms": spec.names}
    cached: dict[str, int] = dict(connection.execute(_WINDOW_COUNTS, values).all())
    if cached:
        of_text = (
            embeddings_table.c.hash == text_hash,
            embeddings_table.c.model == spec.model,
            embeddings_table.c.form.in_(spec.names),
        )
        connection.execute(embeddings_table.update().where(*of_text).values(uses=embeddings_table.c.uses + 1))
    if len(cached) < len(spec.names):
        if embedded is None:
            return 0
        uses = connection.scalar(_MAX_USES, values) or 1
        rows = [row for row in _rows(spec, text_hash, embedded, uses) if row["form"] not in cached]
        connection.execute(embeddings_table.insert(), rows)
    return cached.get(VECTOR) or (0 if embedded is None else len(embedded.vectors))


def store_embeddings_and_terms(
    connection: Connection,
    record: MemoryRecord,
    partition: int,
    spec: EmbeddingSpec,
    text_hash: str,
    embedded: Embedded | None,
    answer_types: AnswerType,
) -> bool:
    """Links a memory to the embeddings of its text and counts its terms in its partition (a row id).

    Returns False, and changes nothing, if `embedded` is None and the cached embeddings were erased since.
    """
    windows = add_reference(connection, spec, text_hash, embedded)
    if windows:
        mark_enriched(connection, record, text_hash, windows, answer_types)
        update_term_counts(connection, record, partition, 1)
    return bool(windows)


def _rows(spec: EmbeddingSpec, text_hash: str, embedded: Embedded, uses: int) -> Iterator[dict[str, Any]]:
    data = {VECTOR: [row.astype("<f4").tobytes() for row in embedded.vectors]}
    if spec.tokens is not None:
        data[spec.tokens] = [tokens.tobytes() for tokens in embedded.tokens]
    for form, windows in data.items():
        for window, content in enumerate(windows):
            yield {
                "hash": text_hash, "model": spec.model, "form": form, "window": window, "data": content, "uses": uses
            }  # fmt: skip


def release_reference(connection: Connection, text_hash: str) -> int:
    """Counts one use of a text's embeddings less; the last one erases them. Returns the number of rows erased."""
    of_text = embeddings_table.c.hash == text_hash
    connection.execute(embeddings_table.update().where(of_text).values(uses=embeddings_table.c.uses - 1))
    return connection.execute(embeddings_table.delete().where(of_text, embeddings_table.c.uses <= 0)).rowcount


def delete_other_embeddings(connection: Connection, spec: EmbeddingSpec) -> int:
    """Erases embeddings of other models and embedding forms than those of `spec`. Returns the number of rows erased."""
    is_current = (embeddings_table.c.model == spec.model) & embeddings_table.c.form.in_(spec.names)
    return connection.execute(embeddings_table.delete().where(~is_current)).rowcount


def mark_enriched(
    connection: Connection, record: MemoryRecord, text_hash: str, windows: int, answer_types: AnswerType
) -> None:
    """Stores a memory's text hash, number of windows, answer types and question share."""
    if is_question(record.text):
        answer_types |= AnswerType.ASKS
    if is_passage(record.text):
        answer_types |= AnswerType.TITLED
    values = {
        "text_hash": text_hash,
        "window_count": windows,
        "new_answer_types": int(answer_types),
        "new_question_share": question_share(record.text),
    }
    connection.execute(_MARK_ENRICHED, {"row": record.row, **values})


def vectors_by_row(connection: Connection, model: str, rows: Sequence[int]) -> dict[int, Matrix]:
    """Returns {row: vectors} of memories, (windows, dims) in float32; memories without vectors are left out."""
    statement = (
        select(memories.c.id, embeddings_table.c.data)
        .join(embeddings_table, embeddings_table.c.hash == memories.c.embedding)
        .where(in_array(memories.c.id, "rows"), embeddings_table.c.model == model, embeddings_table.c.form == VECTOR)
        .order_by(memories.c.id, embeddings_table.c.window)
    )
    vectors: dict[int, list[Matrix]] = {}
    for row, data in connection.execute(statement, {"rows": list(rows)}):
        vectors.setdefault(row, []).append(_decode_vector(data))
    return {row: _stack(windows) for row, windows in vectors.items()}


def first_vectors(connection: Connection, model: str, hashes: Sequence[str]) -> dict[str, Matrix]:
    """Returns {text hash: vector of the text's first window}, (dims,) in float32; texts without one are left out."""
    statement = select(embeddings_table.c.hash, embeddings_table.c.data).where(
        in_array(embeddings_table.c.hash, "hashes"),
        embeddings_table.c.model == model,
        embeddings_table.c.form == VECTOR,
        embeddings_table.c.window == 0,
    )
    result = connection.execute(statement, {"hashes": list(hashes)})
    return {text_hash: _decode_vector(data) for text_hash, data in result}


@decoding
def _decode_vector(data: bytes) -> Matrix:
    return np.frombuffer(data, "<f4")


_stack = decoding(np.stack)


def clear_enrichment(connection: Connection, row: int) -> None:
    """Clears a memory's text hash, windows, answer types and question share, until it is enriched again."""
    cleared = {"embedding": None, "windows": 0, "answer_types": 0, "question_share": 0.0}
    connection.execute(memories.update().where(memories.c.id == row).values(cleared))


def enrichment_state(connection: Connection, row: int) -> tuple[str | None, int]:
    """Returns a memory's text hash (None until it is enriched) and its number of windows."""
    state = connection.execute(select(memories.c.embedding, memories.c.windows).where(memories.c.id == row)).one()
    return state[0], state[1]


def rows_without_embeddings(connection: Connection, spec: EmbeddingSpec) -> list[int]:
    """Returns the rows of enriched memories that lack an embedding form of `spec`, as after a change of the embedder.

    Vectors of another length than `spec.dims` count as lacking.
    """
    length = func.length(embeddings_table.c.data)
    lacks_form = [
        ~select(embeddings_table.c.hash)
        .where(
            embeddings_table.c.hash == memories.c.embedding,
            embeddings_table.c.model == spec.model,
            embeddings_table.c.form == form,
            (length == VECTOR_BYTES * spec.dims) if form == VECTOR else true(),
        )
        .exists()
        for form in spec.names
    ]
    return list(connection.scalars(select(memories.c.id).where(memories.c.embedding.is_not(None), or_(*lacks_form))))


def total_windows(connection: Connection) -> int:
    """Returns the number of windows of all memories: the points that a vector index should hold."""
    return connection.scalar(select(func.sum(memories.c.windows))) or 0
