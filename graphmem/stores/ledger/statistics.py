"""What is derived from a memory's text: its vectors, the terms of its space, and the counts over both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, func, or_, select
from sqlalchemy.dialects.sqlite import insert as upsert

from graphmem.model import VECTOR, Forms, MemoryRecord, Tells
from graphmem.stores.ledger.schema import embeddings, memories, spaces, terms
from graphmem.text import asking, ends_asking, is_passage, term_counts

if TYPE_CHECKING:
    from graphmem.providers.base import Embedded


def known(connection: Connection, forms: Forms, hashes: Sequence[str]) -> set[str]:
    """Of which texts all the forms are there already."""
    statement = (
        select(embeddings.c.hash)
        .where(
            embeddings.c.model == forms.model,
            embeddings.c.window == 0,
            embeddings.c.form.in_(forms.names),
            embeddings.c.hash.in_(hashes),
        )
        .group_by(embeddings.c.hash)
        .having(func.count() == len(forms.names))
    )
    return set(connection.scalars(statement))


def keep(connection: Connection, forms: Forms, text_hash: str, made: Embedded | None) -> int:
    """Counts one more use of a text's embeddings, storing those that are new. Returns the number of windows.

    `made` None: they were known when the work began. Returns 0 if they have been erased since.
    """
    mine = (embeddings.c.hash == text_hash, embeddings.c.model == forms.model, embeddings.c.form.in_(forms.names))
    counted = select(embeddings.c.form, func.count()).where(*mine).group_by(embeddings.c.form)
    there: dict[str, int] = dict(connection.execute(counted).all())
    if there:
        connection.execute(embeddings.update().where(*mine).values(uses=embeddings.c.uses + 1))
    if len(there) < len(forms.names):
        if made is None:
            return 0
        users = connection.scalar(select(func.max(embeddings.c.uses)).where(*mine)) or 1
        rows = [row for row in _rows(forms, text_hash, made, users) if row["form"] not in there]
        connection.execute(embeddings.insert(), rows)
    return there.get(VECTOR) or (0 if made is None else len(made.vectors))


def _rows(forms: Forms, text_hash: str, made: Embedded, users: int) -> Iterator[dict[str, Any]]:
    data = {VECTOR: [row.astype("<f4").tobytes() for row in made.vectors]}
    if forms.tokens is not None:
        data[forms.tokens] = [tokens.tobytes() for tokens in made.tokens]
    for form, windows in data.items():
        for window, content in enumerate(windows):
            yield {
                "hash": text_hash, "model": forms.model, "form": form, "window": window, "data": content, "uses": users
            }  # fmt: skip


def drop_vectors(connection: Connection, text_hash: str) -> int:
    """Counts one use less; the last one erases. Returns the number of vectors erased."""
    mine = embeddings.c.hash == text_hash
    connection.execute(embeddings.update().where(mine).values(uses=embeddings.c.uses - 1))
    return connection.execute(embeddings.delete().where(mine, embeddings.c.uses <= 0)).rowcount


def drop_other_forms(connection: Connection, forms: Forms) -> int:
    """Erases what other models, or other settings, have left; returns how many rows that were."""
    mine = (embeddings.c.model == forms.model) & embeddings.c.form.in_(forms.names)
    return connection.execute(embeddings.delete().where(~mine)).rowcount


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


def mark_enriched(connection: Connection, record: MemoryRecord, text_hash: str, windows: int, tells: Tells) -> None:
    """Notes which vectors a memory uses, and what its text tells and asks."""
    if ends_asking(record.text):
        tells |= Tells.ASKS
    if is_passage(record.text):
        tells |= Tells.TITLED
    noted = {"embedding": text_hash, "windows": windows, "tells": int(tells), "asks": asking(record.text)}
    connection.execute(memories.update().where(memories.c.id == record.row).values(noted))


def unmark(connection: Connection, row: int) -> None:
    """Takes a memory's vectors away from it until it is enriched again."""
    nothing = {"embedding": None, "windows": 0, "tells": 0, "asks": 0.0}
    connection.execute(memories.update().where(memories.c.id == row).values(nothing))


def enrichment(connection: Connection, row: int) -> tuple[str | None, int]:
    """The hash of the text that a memory was enriched from (None: not yet) and its number of windows."""
    found = connection.execute(select(memories.c.embedding, memories.c.windows).where(memories.c.id == row)).one()
    return found[0], found[1]


def unembedded(connection: Connection, forms: Forms) -> list[int]:
    """Rows of enriched memories that lack one of the forms: what a change of model leaves to do."""
    lacks = [
        ~select(embeddings.c.hash)
        .where(embeddings.c.hash == memories.c.embedding, embeddings.c.model == forms.model, embeddings.c.form == form)
        .exists()
        for form in forms.names
    ]
    return list(connection.scalars(select(memories.c.id).where(memories.c.embedding.is_not(None), or_(*lacks))))


def total_windows(connection: Connection) -> int:
    """How many points a vector index should hold."""
    return connection.scalar(select(func.sum(memories.c.windows))) or 0
