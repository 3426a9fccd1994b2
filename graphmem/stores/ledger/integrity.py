"""Counts the ledger's rows and owners of memories, checks and recomputes its derived columns, and empties it.

A derived column follows from other rows (`memories.previous`, counts). `verify` checks them; `repair` and `rebuild`
recompute them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    FromClause,
    RowMapping,
    ScalarSelect,
    Subquery,
    and_,
    bindparam,
    case,
    func,
    literal,
    select,
    union_all,
)

from graphmem.model import SCOPE_NAMES, Kind, View, embedded_text, from_micros
from graphmem.stores.ledger import events as history
from graphmem.stores.ledger import ledger_state, visibility
from graphmem.stores.ledger import memories as memory_rows
from graphmem.stores.ledger.index_blocks import encode_terms
from graphmem.stores.ledger.memories import source_conditions, view_values
from graphmem.stores.ledger.outbox import IS_OF_PROJECTION
from graphmem.stores.ledger.schema import (
    aliases,
    attachments,
    cursors,
    dead_letters,
    embeddings,
    entities,
    events,
    further_runs,
    items,
    jobs,
    ledger,
    links,
    memories,
    mentions,
    messages,
    names,
    occurrences,
    partitions,
    relations,
    settings,
    supports,
    terms,
    tombstones,
    usage,
    vitals,
)
from graphmem.stores.ledger.sql import CorruptValue, in_array, readable_rows
from graphmem.text import bm25_weights, content_hash, term_counts

# Rows that are checked at a time.
_PAGE = 1000
_RECORDS = memory_rows.RECORD.where(in_array(memories.c.id, "rows"))
_WORDS = (
    select(memories.c.id, memories.c.partition, memories.c.speaker, memories.c.text, memories.c.terms)
    .join(partitions)
    .where(in_array(memories.c.id, "rows"), memories.c.embedding.is_not(None))
)
_SET_TERMS = memories.update().where(memories.c.id == bindparam("row")).values(terms=bindparam("own_terms"))


def counts(connection: Connection) -> dict[str, int]:
    """Returns the number of rows by table, for the tables that `stats` and `verify` show."""
    tables = (memories, events, entities, mentions, relations, supports, embeddings, partitions, items, jobs)
    return {table.name: connection.scalar(select(func.count()).select_from(table)) or 0 for table in tables}


def embedding_bytes(connection: Connection) -> dict[str, int]:
    """Returns the bytes of all embeddings, by embedding form ("vector", "tokens-128")."""
    # Grouping the table itself would sort all of its rows with their data, in memory.
    sizes = select(embeddings.c.form, func.length(embeddings.c.data).label("size")).cte("sizes")
    sizes = sizes.prefix_with("MATERIALIZED")
    return dict(connection.execute(select(sizes.c.form, func.sum(sizes.c.size)).group_by(sizes.c.form)).all())


def damaged_memories(connection: Connection) -> list[str]:
    """Returns the ids of memories that cannot be read, or whose text is not the embedded one, and of those without a
    history, or with an event that cannot be read or does not say what was written. Only damage causes that.

    Reads every memory and every event, a few at a time. The events of erased memories are among them.
    """
    damaged: set[str] = set()
    for page in _pages(connection, memories.c.uid):
        intact = {row["uid"] for row in readable_rows(connection, _RECORDS, page) if _is_intact(row)}
        damaged |= set(page.values()) - intact
    for page in _pages(connection, events.c.memory):
        intact_events = {row["id"] for row in readable_rows(connection, history.BY_ROW, page) if history.is_intact(row)}
        damaged |= {memory for row_id, memory in page.items() if row_id not in intact_events}
    has_events = select(events.c.id).where(events.c.memory == memories.c.uid).exists()
    return sorted(damaged.union(connection.scalars(select(memories.c.uid).where(~memories.c.source_only, ~has_events))))


def _is_intact(row: RowMapping) -> bool:
    try:
        record = memory_rows.decode_record(row)
    except CorruptValue:
        return False
    return row["embedding"] in {None, content_hash(record.partition, record.embedded_text)}


def _pages(connection: Connection, name: Column[str]) -> Iterator[dict[int, str]]:
    """Yields the row ids of a table, each with the value of a column, in pages."""
    after, rows = -1, name.table.c.id
    page = select(rows, name).order_by(rows).limit(_PAGE)
    found: dict[int, str]
    while found := dict(connection.execute(page.where(rows > after)).all()):
        yield found
        after = max(found)


def count_unprotected_tombstones(connection: Connection) -> int:
    """Returns the number of erased messages that can be added again, because the key of their digests was lost."""
    return connection.scalar(select(ledger.c.unguarded)) or 0


def inconsistent_columns(connection: Connection) -> list[str]:
    """Returns the names of the derived columns that disagree with the rows they are derived from."""
    order = _episode_order()
    wrong_order = (
        select(memories.c.id)
        .join(order, order.c.id == memories.c.id)
        .where(memories.c.previous.is_distinct_from(order.c.before))
    )
    wrong_mentions = select(entities.c.id).where(entities.c.mentions != _mention_count())
    sizes = {row_id: size for row_id, size in connection.execute(select(partitions.c.id, partitions.c.size)) if size}
    counted_sizes = (
        select(partitions.c.id, func.count())
        .join_from(memories, partitions)
        .where(memories.c.embedding.is_not(None))
        .group_by(partitions.c.id)
    )
    stored_terms = connection.execute(select(terms.c.partition, terms.c.term, terms.c.df)).all()
    frequencies, altered = _count_terms(connection)
    checks = {
        "memories.previous": connection.scalar(wrong_order.limit(1)) is not None,
        "entities.mentions": connection.scalar(wrong_mentions.limit(1)) is not None,
        "embeddings.uses": bool(_corrected_uses(connection)),
        "partitions.size": sizes != dict(connection.execute(counted_sizes).all()),
        "memories.terms": bool(altered),
        "terms.df": {(partition, term): df for partition, term, df in stored_terms} != frequencies,
    }
    return [name for name, is_wrong in checks.items() if is_wrong]


def recompute_derived(connection: Connection) -> None:
    """Sets every derived column from the rows it is derived from, and deletes entities and embeddings without users."""
    connection.execute(ledger.update().values(repairs=ledger.c.repairs + 1))  # columns in memory are read again
    order = _episode_order()
    connection.execute(memories.update().where(order.c.id == memories.c.id).values(previous=order.c.before))
    connection.execute(entities.update().values(mentions=_mention_count()))
    connection.execute(entities.delete().where(entities.c.mentions == 0))
    for text_hash, uses in _corrected_uses(connection).items():
        statement = embeddings.update().values(uses=uses) if uses else embeddings.delete()
        connection.execute(statement.where(embeddings.c.hash == text_hash))
    size = (
        select(func.count())
        .select_from(memories)
        .where(memories.c.partition == partitions.c.id, memories.c.embedding.is_not(None))
        .scalar_subquery()
    )
    connection.execute(partitions.update().values(size=size))
    connection.execute(terms.delete())
    frequencies, altered = _count_terms(connection)
    if altered:
        connection.execute(_SET_TERMS, [{"row": row, "own_terms": own} for row, own in altered.items()])
    term_rows = [{"partition": partition, "term": term, "df": df} for (partition, term), df in frequencies.items()]
    if term_rows:
        connection.execute(terms.insert(), term_rows)


def wipe(connection: Connection) -> None:
    """Empties every table but `api_keys`, `leases` and `ledger`, and keeps the cursors of followers.

    The ledger's UUID stays, and its sequence numbers and the rows of events go on, never back. The leases stay because
    the batches that are being delivered under them hold erased rows: a projection is emptied after its batch has been
    written.
    """
    for table in (
        jobs, attachments, vitals, usage, dead_letters, occurrences, links, further_runs, items, aliases, names,
        supports, relations, mentions, entities, terms, embeddings, messages, events, tombstones, memories, partitions,
        settings,
    ):  # fmt: skip
        connection.execute(table.delete())
    connection.execute(cursors.delete().where(IS_OF_PROJECTION))
    connection.execute(
        ledger.update().values(
            embedder=None, embedder_dims=None, multilingual=None, unguarded=0, epoch=ledger.c.epoch + 1
        )
    )
    ledger_state.count_erasure(connection)


def _episode_order() -> Subquery:
    """Selects each episode's row id with that of the episode before it in its session (`before`)."""
    m = memories.c
    before = func.lag(m.id).over(partition_by=[m.partition, m.session], order_by=[m.at, m.id])
    return select(m.id, before.label("before")).where(m.kind == Kind.EPISODE).subquery()


def _mention_count() -> ScalarSelect[int]:
    return select(func.count()).select_from(mentions).where(mentions.c.entity == entities.c.id).scalar_subquery()


def _corrected_uses(connection: Connection) -> dict[str, int]:
    """Returns the right number of users of each embedded text whose stored number is wrong, by the text's hash.

    Counts them here rather than in SQL, where no index serves it.
    """
    users: dict[str, int] = dict(
        connection.execute(
            select(memories.c.embedding, func.count())
            .where(memories.c.embedding.is_not(None))
            .group_by(memories.c.embedding)
        ).all()
    )
    stored = connection.execute(select(embeddings.c.hash, embeddings.c.uses).distinct())
    return {text_hash: users.get(text_hash, 0) for text_hash, uses in stored if users.get(text_hash, 0) != uses}


def _count_terms(connection: Connection) -> tuple[Counter[tuple[int, int]], dict[int, bytes]]:
    """Returns the right document frequencies, and the right terms of the memories whose stored ones are others.

    Memories whose words cannot be read count as if they had none.
    """
    frequencies: Counter[tuple[int, int]] = Counter()
    altered: dict[int, bytes] = {}
    for page in _pages(connection, memories.c.uid):
        for row in readable_rows(connection, _WORDS, page):
            counts = term_counts(embedded_text(row["speaker"], row["text"])) if isinstance(row["text"], str) else {}
            frequencies.update((row["partition"], term) for term in counts)
            if (encoded := encode_terms(bm25_weights(counts))) != row["terms"]:
                altered[row["id"]] = encoded
    return frequencies, altered


class ScopeCount(NamedTuple):
    """One user, agent or run (`name`: "user_id", "agent_id" or "run_id"), and how many of its memories are listed.

    An owner of only such memories that are in no list, such as source messages, has 0. `created_at` and `updated_at`
    are the first creation and the last change of any of its memories.
    """

    name: str
    id: str
    memories: int
    created_at: datetime
    updated_at: datetime


def scope_counts(connection: Connection, view: View, limit: int) -> list[ScopeCount]:
    """Returns the first `limit` users, agents and runs of which there are memories, users first, each by id.

    Their memories are counted as `memories.count_records` counts those of the view, without source messages.
    """
    m, shape = memories.c, visibility.shape(view)
    is_listed = and_(*visibility.conditions(shape), *source_conditions(shape, with_sources=False))

    def counted(place: int, of: ColumnElement[Any], source: FromClause) -> Any:
        return (
            select(
                literal(place).label("place"),
                of.label("id"),
                func.count(case((is_listed, 1))).label("listed"),
                func.min(m.created_at).label("created_at"),
                func.max(m.updated_at).label("updated_at"),
            )
            .select_from(source)
            .where(of.is_not(None))
            .group_by(of)
        )

    said_in = union_all(
        select(m.id.label("memory"), m.run_id.label("run_id")),
        select(further_runs.c.memory, further_runs.c.run_id),
    ).subquery()
    found = union_all(
        counted(0, m.user_id, memories),
        counted(1, m.agent_id, memories),
        counted(2, said_in.c.run_id, memories.join(said_in, said_in.c.memory == m.id)),
    ).subquery()
    statement = select(found).order_by(found.c.place, found.c.id).limit(limit)
    rows = connection.execute(statement, view_values(connection, view))
    return [
        ScopeCount(SCOPE_NAMES[row.place], row.id, row.listed, from_micros(row.created_at), from_micros(row.updated_at))
        for row in rows
    ]
