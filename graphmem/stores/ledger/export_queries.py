"""Reads memories with all their data, tombstones, aliases and chosen names page by page, for an export."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, and_, func, or_, select

from graphmem.model import Entity, Event, Link, MemoryRecord, MentionKind, Origin, Scope, Statement
from graphmem.stores.ledger import events, graph_reads, tombstones, visibility
from graphmem.stores.ledger import memories as memory_rows
from graphmem.stores.ledger import vitals as vital_rows
from graphmem.stores.ledger.schema import (
    aliases,
    embeddings,
    entities,
    links,
    memories,
    messages,
    names,
    relations,
    supports,
)
from graphmem.stores.ledger.schema import tombstones as tombstones_table
from graphmem.stores.ledger.sql import in_array, moment

# The most memories of a page, and the most characters of their texts together; a page has at least one memory.
PAGE, PAGE_CHARS = 100, 500_000


class LinkRow(NamedTuple):
    """A link from a memory to the memory `uid`, or (`is_incoming`) from that one to it."""

    kind: str
    uid: str
    is_incoming: bool


@dataclass(slots=True)
class ExportedMemory:
    """A memory with its history, what the lifecycle knows of it, and all data that is derived from it.

    `message_key` is (message key, digest of the message's text). `links` are those with memories stored before it.
    `windows` holds the embeddings of its windows by embedding form ("vector", "tokens-128"); it is empty while the
    memory's enrichment is pending (`embedded` is False then).
    """

    record: MemoryRecord
    answer_types: int
    embedded: bool
    message_key: tuple[str, str | None] | None = None
    events: list[Event] = field(default_factory=list)
    links: list[LinkRow] = field(default_factory=list)
    mentions: list[tuple[Entity, MentionKind]] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)
    windows: dict[str, list[bytes]] = field(default_factory=dict)
    vitals: vital_rows.StoredVitals | None = None


class ExportedTombstone(NamedTuple):
    """The tombstone of an erased memory, the events of its history and its message keys (`keys`)."""

    tombstone: tombstones.Tombstone
    events: list[Event]
    keys: list[str]


class ExportedName(NamedTuple):
    """A link between two keys (`negated`: a denied one) or, if `link` is None, the chosen `name` of `key`."""

    partition: str
    at: int
    link: Link | None = None
    negated: bool = False
    key: str = ""
    name: str = ""


def count(connection: Connection, scope: Scope | None) -> int:
    """Returns the number of memories in a scope (None: in the ledger)."""
    return connection.scalar(select(func.count()).select_from(memories).where(*_scope_conditions(scope))) or 0


def memory_pages(connection: Connection, scope: Scope | None, model: str | None) -> Iterator[list[ExportedMemory]]:
    """Yields the memories of a scope (None: all) in pages, in the order they were stored.

    `model` is the embedding model whose embeddings are read.
    """
    page_rows = _next_page_rows(connection, scope, 0)
    while page_rows:
        yield _memory_page(connection, scope, page_rows, model)
        page_rows = _next_page_rows(connection, scope, page_rows[-1])


def _scope_conditions(scope: Scope | None, table: Any = memories) -> list[ColumnElement[bool]]:
    return [] if scope is None else visibility.scope_conditions(scope, table)


def _next_page_rows(connection: Connection, scope: Scope | None, after: int) -> list[int]:
    length = func.length(memories.c.text)
    statement = (
        select(memories.c.id, length).where(memories.c.id > after, *_scope_conditions(scope)).order_by(memories.c.id)
    )
    row_ids: list[int] = []
    room = PAGE_CHARS
    for row_id, chars in connection.execute(statement.limit(PAGE)):
        room -= chars
        if row_ids and room < 0:
            break
        row_ids.append(row_id)
    return row_ids


def _memory_page(
    connection: Connection, scope: Scope | None, row_ids: Sequence[int], model: str | None
) -> list[ExportedMemory]:
    columns = select(memories.c.id, memories.c.answer_types, memories.c.embedding)
    derived = connection.execute(columns.where(in_array(memories.c.id, "row_ids")), {"row_ids": list(row_ids)})
    derived_by_row = {row_id: (answer_types, text_hash) for row_id, answer_types, text_hash in derived}
    records = memory_rows.records_by_row(connection, row_ids)
    page: dict[int, ExportedMemory] = {}
    for row_id in row_ids:
        answer_types, text_hash = derived_by_row[row_id]
        page[row_id] = ExportedMemory(records[row_id], answer_types, text_hash is not None)
    by_id = {exported.record.id: exported for exported in page.values()}
    uids = list(by_id)
    for event in events.history_of_all(connection, uids):
        by_id[event.memory_id].events.append(event)
    for uid, entity, kind in graph_reads.mentions_of(connection, uids):
        by_id[uid].mentions.append((entity, kind))
    for uid, key, content_digest in _messages(connection, uids):
        by_id[uid].message_key = (key, content_digest)
    for row_id, link in _links(connection, scope, row_ids):
        page[row_id].links.append(link)
    for row_id, found in vital_rows.stored(connection, row_ids).items():
        page[row_id].vitals = found
    for row_id, statement in _statements(connection, row_ids):
        page[row_id].statements.append(statement)
    for row_id, form, data in _windows(connection, row_ids, model):
        page[row_id].windows.setdefault(form, []).append(data)
    return list(page.values())


def _messages(connection: Connection, uids: Sequence[str]) -> Iterator[tuple[str, str, str | None]]:
    """Yields (memory id, message key, content digest)."""
    statement = select(messages.c.memory, messages.c.key, messages.c.content_digest).where(
        in_array(messages.c.memory, "uids")
    )
    yield from connection.execute(statement.order_by(messages.c.key.desc()), {"uids": list(uids)})


def _links(connection: Connection, scope: Scope | None, row_ids: Sequence[int]) -> Iterator[tuple[int, LinkRow]]:
    """Yields (row id of a memory, its link with a memory of a lower row id) for links between memories of a scope."""
    start, end = memories.alias("start"), memories.alias("end")
    is_later_end = or_(
        and_(in_array(links.c.memory, "row_ids"), links.c.memory > links.c.other),
        and_(in_array(links.c.other, "row_ids"), links.c.other > links.c.memory),
    )
    statement = (
        select(start.c.id, start.c.uid, links.c.kind, end.c.id, end.c.uid)
        .join_from(links, start, start.c.id == links.c.memory)
        .join(end, end.c.id == links.c.other)
        .where(is_later_end, *_scope_conditions(scope, start), *_scope_conditions(scope, end))
        .order_by(start.c.id, links.c.kind, end.c.id)
    )
    for start_row, start_uid, kind, end_row, end_uid in connection.execute(statement, {"row_ids": list(row_ids)}):
        yield (
            (start_row, LinkRow(kind, end_uid, is_incoming=False))
            if start_row > end_row
            else (end_row, LinkRow(kind, start_uid, is_incoming=True))
        )


def _statements(connection: Connection, row_ids: Sequence[int]) -> Iterator[tuple[int, Statement]]:
    """Yields (row id of the memory, statement)."""
    subject, target = entities.alias("subject"), entities.alias("object")
    statement = (
        select(
            supports.c.memory,
            subject.c.key,
            relations.c.predicate,
            target.c.key,
            supports.c.fact,
            supports.c.confidence,
            supports.c.valid_at,
            supports.c.invalid_at,
        )
        .join_from(supports, relations, relations.c.id == supports.c.relation)
        .join(subject, subject.c.id == relations.c.subject)
        .join(target, target.c.id == relations.c.object)
        .where(in_array(supports.c.memory, "row_ids"))
        .order_by(supports.c.memory, supports.c.relation)
    )
    for row_id, subject_key, predicate, object_key, fact, confidence, valid_at, invalid_at in connection.execute(
        statement, {"row_ids": list(row_ids)}
    ):
        begin, end = (None if at is None else moment(at) for at in (valid_at, invalid_at))
        is_past = valid_at is None
        yield row_id, Statement(subject_key, predicate, object_key, fact, confidence, begin, end, is_past)


def _windows(connection: Connection, row_ids: Sequence[int], model: str | None) -> Iterator[tuple[int, str, bytes]]:
    """Yields (row id of the memory, embedding form, encoded embedding) for each window of the memories, in order."""
    statement = (
        select(memories.c.id, embeddings.c.form, embeddings.c.data)
        .join(embeddings, embeddings.c.hash == memories.c.embedding)
        .where(in_array(memories.c.id, "row_ids"), embeddings.c.model == model)
        .order_by(memories.c.id, embeddings.c.form, embeddings.c.window)
    )
    yield from connection.execute(statement, {"row_ids": list(row_ids)})


def tombstone_pages(connection: Connection, scope: Scope | None) -> Iterator[list[ExportedTombstone]]:
    """Yields the erased memories of a scope (None: all) in pages, in the order they were erased."""
    after = -1
    scope_ids = {} if scope is None else scope.parts
    t = tombstones_table.c
    conditions = [t.kind == "memory", *(t[name] == value for name, value in scope_ids.items())]
    while True:
        statement = select(tombstones_table).where(t.seq > after, *conditions).order_by(t.seq)
        page = tombstones.tombstones_of(connection, statement.limit(PAGE))
        if not page:
            return
        by_id = {tombstone.uid: ExportedTombstone(tombstone, [], []) for tombstone in page}
        for event in events.history_of_all(connection, list(by_id)):
            by_id[event.memory_id].events.append(event)
        for uid, key, _ in _messages(connection, list(by_id)):
            by_id[uid].keys.append(key)
        yield list(by_id.values())
        after = page[-1].seq


def _whole_partitions(connection: Connection, scope: Scope | None) -> list[str]:
    """Returns the keys of the partitions of which a scope has all memories; of a scope of several ids none."""
    if scope is None:
        return memory_rows.all_partitions(connection)
    return [scope.partition] if len(scope.parts) == 1 else []


def last_cycles(connection: Connection, scope: Scope | None) -> list[tuple[str, vital_rows.LastCycle]]:
    """Returns the partitions of a scope that had a cycle of the lifecycle, each with the last one."""
    return vital_rows.last_cycles(connection, _whole_partitions(connection, scope))


def list_entity_names(connection: Connection, scope: Scope | None) -> Iterator[ExportedName]:
    """Yields the links and chosen names of a scope's partition (None: of all partitions), each partition oldest first.

    Yields none for a scope of several ids, which is only a part of its partition: the names would disclose what the
    rest of the partition mentions.
    """
    for partition_key in _whole_partitions(connection, scope):
        row_id = memory_rows.partition_row(connection, partition_key)
        a, n = aliases.c, names.c
        linked = select(a.at, a.key, a.other, a.origin, a.negated).where(a.partition == row_id, a.key < a.other)
        for at, key, other, origin, negated in connection.execute(linked.order_by(a.at, a.key, a.other)):
            yield ExportedName(partition_key, at, Link(key, other, Origin(origin)), negated)
        chosen = select(n.at, n.key, n.name).where(n.partition == row_id).order_by(n.at, n.key)
        for at, key, name in connection.execute(chosen):
            yield ExportedName(partition_key, at, key=key, name=name)
