"""What is derived from a memory's text: its vectors, the terms of its space, and the counts over both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from sqlalchemy import Connection, bindparam, func, select
from sqlalchemy.dialects.sqlite import insert as upsert

from graphmem.model import MemoryRecord
from graphmem.stores.ledger.memories import CHUNK
from graphmem.stores.ledger.schema import embeddings, memories, spaces, terms
from graphmem.text import term_counts

if TYPE_CHECKING:
    from graphmem.providers.base import Matrix

FORM = "vector"


def known_vectors(connection: Connection, model: str, hashes: Sequence[str]) -> set[str]:
    """Which texts are embedded by this model already."""
    statement = select(embeddings.c.hash).where(
        embeddings.c.model == model, embeddings.c.form == FORM, embeddings.c.hash.in_(hashes)
    )
    return set(connection.scalars(statement))


def keep_vectors(connection: Connection, model: str, text_hash: str, vectors: Matrix | None) -> int:
    """Counts one more use of a text's vectors, storing them if they are new. Returns the number of windows.

    `vectors` None: they were known when the work began. Returns 0 if they have been erased since.
    """
    mine = (embeddings.c.hash == text_hash, embeddings.c.model == model, embeddings.c.form == FORM)
    used = connection.execute(embeddings.update().where(*mine).values(uses=embeddings.c.uses + 1)).rowcount
    if used or vectors is None:
        return used
    rows = [
        {"hash": text_hash, "model": model, "form": FORM, "window": w, "data": row.astype("<f4").tobytes(), "uses": 1}
        for w, row in enumerate(vectors)
    ]
    connection.execute(embeddings.insert(), rows)
    return len(rows)


def drop_vectors(connection: Connection, text_hash: str) -> int:
    """Counts one use less; the last one erases. Returns the number of vectors erased."""
    mine = embeddings.c.hash == text_hash
    connection.execute(embeddings.update().where(mine).values(uses=embeddings.c.uses - 1))
    return connection.execute(embeddings.delete().where(mine, embeddings.c.uses <= 0)).rowcount


def vectors_of(connection: Connection, model: str, uids: Iterable[str]) -> dict[str, Matrix]:
    """The vectors of memories: {id: windows x dims}; a memory without any is left out."""
    wanted = list(uids)
    statement = (
        select(memories.c.uid, embeddings.c.data)
        .join(embeddings, embeddings.c.hash == memories.c.embedding)
        .where(
            embeddings.c.model == model,
            embeddings.c.form == FORM,
            memories.c.uid.in_(bindparam("wanted", expanding=True)),
        )
        .order_by(embeddings.c.window)
    )
    found: dict[str, list[bytes]] = {}
    for start in range(0, len(wanted), CHUNK):
        for uid, data in connection.execute(statement, {"wanted": wanted[start : start + CHUNK]}):
            found.setdefault(uid, []).append(data)
    return {
        uid: np.frombuffer(b"".join(rows), dtype="<f4").reshape(len(rows), -1).astype(np.float32, copy=False)
        for uid, rows in found.items()
    }


def count_text(connection: Connection, record: MemoryRecord, space: int, by: int) -> None:
    """Adds a memory to its space's statistics (`by` 1), or takes it out again (`by` -1)."""
    connection.execute(spaces.update().where(spaces.c.id == space).values(size=spaces.c.size + by))
    found = list(term_counts(record.embedded_text))
    if not found:
        return
    if by > 0:
        statement = upsert(terms).on_conflict_do_update(
            index_elements=[terms.c.space, terms.c.term], set_={"df": terms.c.df + 1}
        )
        connection.execute(statement, [{"space": space, "term": term, "df": 1} for term in found])
        return
    mine = (terms.c.space == space, terms.c.term.in_(found))
    connection.execute(terms.update().where(*mine).values(df=terms.c.df - 1))
    connection.execute(terms.delete().where(*mine, terms.c.df <= 0))


def document_frequencies(connection: Connection, space: str, wanted: Iterable[int]) -> tuple[int, dict[int, int]]:
    """N of a space, and how many of its memories hold each of these terms (absent: none)."""
    row = connection.execute(select(spaces.c.id, spaces.c.size).where(spaces.c.key == space)).first()
    if row is None:
        return 0, {}
    statement = select(terms.c.term, terms.c.df).where(terms.c.space == row[0], terms.c.term.in_(list(wanted)))
    return row[1], dict(connection.execute(statement).all())


def mark_enriched(connection: Connection, row: int, text_hash: str | None, windows: int) -> None:
    """Notes which vectors a memory uses; None takes them away until it is enriched again."""
    connection.execute(memories.update().where(memories.c.id == row).values(embedding=text_hash, windows=windows))


def enrichment(connection: Connection, row: int) -> tuple[str | None, int]:
    """The hash of the text that a memory was enriched from (None: not yet) and its number of windows."""
    found = connection.execute(select(memories.c.embedding, memories.c.windows).where(memories.c.id == row)).one()
    return found[0], found[1]


def unembedded(connection: Connection, model: str) -> list[int]:
    """Rows of enriched memories without vectors of this model: what a change of model leaves to do."""
    there = (
        select(embeddings.c.hash)
        .where(embeddings.c.hash == memories.c.embedding, embeddings.c.model == model, embeddings.c.form == FORM)
        .exists()
    )
    return list(connection.scalars(select(memories.c.id).where(memories.c.embedding.is_not(None), ~there)))


def total_windows(connection: Connection) -> int:
    """How many points a vector index should hold."""
    return connection.scalar(select(func.sum(memories.c.windows))) or 0
