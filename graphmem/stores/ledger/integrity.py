"""Derived columns: counts that follow from other rows. Checked by `verify`, recomputed by `repair` and `rebuild`."""

from __future__ import annotations

from collections import Counter

from sqlalchemy import Connection, Subquery, func, select

from graphmem.model import Kind, embedded_text
from graphmem.stores.ledger import memories as rows
from graphmem.stores.ledger.schema import (
    aliases,
    cursors,
    dead_letters,
    embeddings,
    entities,
    events,
    further_runs,
    jobs,
    leases,
    ledger,
    links,
    memories,
    mentions,
    messages,
    names,
    partitions,
    relations,
    supports,
    tasks,
    terms,
    tombstones,
    usage,
)
from graphmem.text import content_hash, term_counts


def counts(connection: Connection) -> dict[str, int]:
    """How many rows there are of what a person would count."""
    tables = (memories, events, entities, mentions, relations, supports, embeddings, partitions, tasks, jobs)
    return {table.name: connection.scalar(select(func.count()).select_from(table)) or 0 for table in tables}


def embedding_bytes(connection: Connection) -> dict[str, int]:
    """How many bytes the embeddings take, by form."""
    total = func.sum(func.length(embeddings.c.data))
    return dict(connection.execute(select(embeddings.c.form, total).group_by(embeddings.c.form)).all())


def count_failed(connection: Connection) -> int:
    """How many memories could not be enriched when it was last tried."""
    return connection.scalar(select(func.count()).select_from(tasks).where(tasks.c.attempts > 0)) or 0


def altered_memories(connection: Connection) -> list[str]:
    """The memories whose words are not those that their vectors were made of: nobody but damage does that."""
    m = memories.c
    kept = select(m.uid, m.speaker, m.text, m.embedding).where(m.embedding.is_not(None))
    return [
        uid
        for uid, speaker, text, embedding in connection.execute(kept)
        if content_hash(embedded_text(speaker, text)) != embedding
    ]


def count_unprotected_tombstones(connection: Connection) -> int:
    """How many erased messages are not recognised when they come again, because the secret was lost."""
    return connection.scalar(select(ledger.c.unguarded)) or 0


def inconsistent_columns(connection: Connection) -> list[str]:
    """The derived columns that disagree with the rows they are derived from, by name."""
    checks = {
        "memories.previous": _wrong_order(connection),
        "entities.mentions": _wrong_entities(connection),
        "embeddings.uses": bool(_wrong_uses(connection)),
        "partitions.size": _sizes(connection)[0] != _sizes(connection)[1],
        "terms.df": _terms(connection) != _counted_terms(connection),
    }
    return [name for name, is_wrong in checks.items() if is_wrong]


def recompute_derived(connection: Connection) -> None:
    """Sets every derived column anew."""
    order = _order()
    connection.execute(memories.update().where(order.c.id == memories.c.id).values(previous=order.c.before))
    held = select(func.count()).select_from(mentions).where(mentions.c.entity == entities.c.id).scalar_subquery()
    connection.execute(entities.update().values(mentions=held))
    connection.execute(entities.delete().where(entities.c.mentions == 0))
    for text_hash, uses in _wrong_uses(connection).items():
        mine = embeddings.c.hash == text_hash
        statement = embeddings.update().values(uses=uses) if uses else embeddings.delete()
        connection.execute(statement.where(mine))
    size = (
        select(func.count())
        .select_from(memories)
        .where(memories.c.partition == partitions.c.id, memories.c.embedding.is_not(None))
        .scalar_subquery()
    )
    connection.execute(partitions.update().values(size=size))
    connection.execute(terms.delete())
    counted = _counted_terms(connection)
    found = [{"partition": partition, "term": term, "df": df} for (partition, term), df in counted.items()]
    if found:
        connection.execute(terms.insert(), found)


def wipe(connection: Connection) -> None:
    """Empties the ledger. Its UUID stays, and so do the sequence numbers: they never go back."""
    for table in (
        tasks, jobs, usage, dead_letters, cursors, leases, links, further_runs, aliases, names, supports, relations,
        mentions, entities, terms, embeddings, messages, events, tombstones, memories, partitions,
    ):  # fmt: skip
        connection.execute(table.delete())
    connection.execute(ledger.update().values(embedder=None, unguarded=0, epoch=ledger.c.epoch + 1))


def _order() -> Subquery:
    """Each episode's row with that of the one before it in its session."""
    m = memories.c
    before = func.lag(m.id).over(partition_by=[m.partition, m.session], order_by=[m.at, m.id])
    return select(m.id, before.label("before")).where(m.kind == Kind.EPISODE).subquery()


def _wrong_order(connection: Connection) -> bool:
    order = _order()
    statement = (
        select(memories.c.id)
        .join(order, order.c.id == memories.c.id)
        .where(memories.c.previous.is_distinct_from(order.c.before))
    )
    return connection.scalar(statement.limit(1)) is not None


def _wrong_entities(connection: Connection) -> bool:
    held = select(func.count()).select_from(mentions).where(mentions.c.entity == entities.c.id).scalar_subquery()
    return connection.scalar(select(entities.c.id).where(entities.c.mentions != held).limit(1)) is not None


def _wrong_uses(connection: Connection) -> dict[str, int]:
    """The right number of users by hash, where another one is written. Counted here: there is no index for it."""
    users: dict[str, int] = dict(
        connection.execute(
            select(memories.c.embedding, func.count())
            .where(memories.c.embedding.is_not(None))
            .group_by(memories.c.embedding)
        ).all()
    )
    said = connection.execute(select(embeddings.c.hash, embeddings.c.uses).distinct())
    return {text_hash: users.get(text_hash, 0) for text_hash, uses in said if users.get(text_hash, 0) != uses}


def _sizes(connection: Connection) -> tuple[dict[int, int], dict[int, int]]:
    said = {row: size for row, size in connection.execute(select(partitions.c.id, partitions.c.size)) if size}
    statement = (
        select(memories.c.partition, func.count())
        .where(memories.c.embedding.is_not(None))
        .group_by(memories.c.partition)
    )
    return said, dict(connection.execute(statement).all())


def _terms(connection: Connection) -> dict[tuple[int, int], int]:
    return {
        (partition, term): df
        for partition, term, df in connection.execute(select(terms.c.partition, terms.c.term, terms.c.df))
    }


def _counted_terms(connection: Connection) -> Counter[tuple[int, int]]:
    counted: Counter[tuple[int, int]] = Counter()
    enriched = select(memories.c.id, memories.c.partition).where(memories.c.embedding.is_not(None))
    owners = dict(connection.execute(enriched).all())
    chunk = rows.BATCH
    ids = list(owners)
    for start in range(0, len(ids), chunk):
        for record in rows.records_by_row(connection, ids[start : start + chunk]).values():
            counted.update((owners[record.row], term) for term in term_counts(record.embedded_text))
    return counted
