"""Derived columns: counts that follow from other rows. Checked by `verify`, recomputed by `repair` and `rebuild`."""

from __future__ import annotations

from collections import Counter

from sqlalchemy import Connection, func, select

from graphmem.stores.ledger import memories as rows
from graphmem.stores.ledger.schema import (
    aliases,
    cursors,
    embeddings,
    entities,
    events,
    ledger,
    links,
    memories,
    mentions,
    messages,
    names,
    relations,
    set_aside,
    spaces,
    supports,
    tasks,
    terms,
    tombstones,
)
from graphmem.text import term_counts


def counts(connection: Connection) -> dict[str, int]:
    """How many rows there are of what a person would count."""
    tables = (memories, events, entities, mentions, relations, supports, embeddings, spaces, tasks)
    return {table.name: connection.scalar(select(func.count()).select_from(table)) or 0 for table in tables}


def embedding_bytes(connection: Connection) -> dict[str, int]:
    """How many bytes the embeddings take, by form."""
    total = func.sum(func.length(embeddings.c.data))
    return dict(connection.execute(select(embeddings.c.form, total).group_by(embeddings.c.form)).all())


def failed(connection: Connection) -> int:
    """How many memories could not be enriched when it was last tried."""
    return connection.scalar(select(func.count()).select_from(tasks).where(tasks.c.attempts > 0)) or 0


def wrong(connection: Connection) -> list[str]:
    """The derived columns that disagree with the rows they are derived from, by name."""
    checks = {
        "entities.mentions": _wrong_entities(connection),
        "embeddings.uses": _wrong_uses(connection),
        "spaces.size": _sizes(connection)[0] != _sizes(connection)[1],
        "terms.df": _terms(connection) != _counted_terms(connection),
    }
    return [name for name, is_wrong in checks.items() if is_wrong]


def recompute(connection: Connection) -> None:
    """Sets every derived column anew."""
    held = select(func.count()).select_from(mentions).where(mentions.c.entity == entities.c.id).scalar_subquery()
    connection.execute(entities.update().values(mentions=held))
    connection.execute(entities.delete().where(entities.c.mentions == 0))
    connection.execute(embeddings.update().values(uses=_users()))
    connection.execute(embeddings.delete().where(embeddings.c.uses == 0))
    size = (
        select(func.count())
        .select_from(memories)
        .where(memories.c.space == spaces.c.id, memories.c.embedding.is_not(None))
        .scalar_subquery()
    )
    connection.execute(spaces.update().values(size=size))
    connection.execute(terms.delete())
    counted = _counted_terms(connection)
    found = [{"space": space, "term": term, "df": df} for (space, term), df in counted.items()]
    if found:
        connection.execute(terms.insert(), found)


def wipe(connection: Connection) -> None:
    """Empties the ledger. Its UUID stays, and so do the change numbers: they never go back."""
    for table in (
        tasks, set_aside, cursors, links, aliases, names, supports, relations, mentions, entities, terms, embeddings,
        messages, events, tombstones, memories, spaces,
    ):  # fmt: skip
        connection.execute(table.delete())
    connection.execute(ledger.update().values(embedder=None, epoch=ledger.c.epoch + 1))


def _users() -> object:
    return select(func.count()).select_from(memories).where(memories.c.embedding == embeddings.c.hash).scalar_subquery()


def _wrong_entities(connection: Connection) -> bool:
    held = select(func.count()).select_from(mentions).where(mentions.c.entity == entities.c.id).scalar_subquery()
    return connection.scalar(select(entities.c.id).where(entities.c.mentions != held).limit(1)) is not None


def _wrong_uses(connection: Connection) -> bool:
    statement = select(embeddings.c.hash).where(embeddings.c.uses != _users()).limit(1)
    return connection.scalar(statement) is not None


def _sizes(connection: Connection) -> tuple[dict[int, int], dict[int, int]]:
    said = {row: size for row, size in connection.execute(select(spaces.c.id, spaces.c.size)) if size}
    statement = (
        select(memories.c.space, func.count()).where(memories.c.embedding.is_not(None)).group_by(memories.c.space)
    )
    return said, dict(connection.execute(statement).all())


def _terms(connection: Connection) -> dict[tuple[int, int], int]:
    return {
        (space, term): df for space, term, df in connection.execute(select(terms.c.space, terms.c.term, terms.c.df))
    }


def _counted_terms(connection: Connection) -> Counter[tuple[int, int]]:
    counted: Counter[tuple[int, int]] = Counter()
    enriched = select(memories.c.id, memories.c.space).where(memories.c.embedding.is_not(None))
    owners = dict(connection.execute(enriched).all())
    chunk = rows.CHUNK
    ids = list(owners)
    for start in range(0, len(ids), chunk):
        for record in rows.records_by_row(connection, ids[start : start + chunk]).values():
            counted.update((owners[record.row], term) for term in term_counts(record.embedded_text))
    return counted
