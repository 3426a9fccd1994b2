"""All that a ledger holds of memories, page by page: what an export writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, and_, func, or_, select

from graphmem.model import Entity, Event, Link, MemoryRecord, MentionKind, Origin, Scope, Statement
from graphmem.stores.ledger import events, graph_reads, tombstones, visibility
from graphmem.stores.ledger import memories as rows
from graphmem.stores.ledger.array_parameters import in_array
from graphmem.stores.ledger.decoding import moment
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

# A page has so many memories, and so many characters in them, at most (or one memory).
PAGE, PAGE_CHARS = 100, 500_000


class LinkRow(NamedTuple):
    """A link from this memory to another, or (`is_incoming`) from that one to this."""

    kind: str
    uid: str
    is_incoming: bool


@dataclass(slots=True)
class ExportedMemory:
    """A memory with everything that is kept of it.

    `message_key` are the key of its message and the hash of the words; `links` are with memories of earlier rows.
    `windows` has the embedding model's vectors and tokens by form, empty while they are owed.
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


class ExportedTombstone(NamedTuple):
    """An erased memory: what is left of its history, and what recognises its messages."""

    tombstone: tombstones.Tombstone
    events: list[Event]
    keys: list[str]


class ExportedName(NamedTuple):
    """A link between two keys, or a name (`link` None) of one."""

    partition: str
    at: int
    link: Link | None = None
    negated: bool = False
    key: str = ""
    name: str = ""


def count(connection: Connection, scope: Scope | None) -> int:
    """How many memories a scope has; None: all there are."""
    return connection.scalar(select(func.count()).select_from(memories).where(*_of(scope))) or 0


def memory_pages(connection: Connection, scope: Scope | None, model: str | None) -> Iterator[list[ExportedMemory]]:
    """A scope's memories in the order they came."""
    found = _next(connection, scope, 0)
    while found:
        yield _page(connection, scope, found, model)
        found = _next(connection, scope, found[-1])


def _of(scope: Scope | None, table: Any = memories) -> list[ColumnElement[bool]]:
    return [] if scope is None else visibility.in_scope(scope, table)


def _next(connection: Connection, scope: Scope | None, after: int) -> list[int]:
    length = func.length(memories.c.text)
    statement = select(memories.c.id, length).where(memories.c.id > after, *_of(scope)).order_by(memories.c.id)
    taken: list[int] = []
    room = PAGE_CHARS
    for row, chars in connection.execute(statement.limit(PAGE)):
        room -= chars
        if taken and room < 0:
            break
        taken.append(row)
    return taken


def _page(
    connection: Connection, scope: Scope | None, wanted: Sequence[int], model: str | None
) -> list[ExportedMemory]:
    told = select(memories.c.id, memories.c.answer_types, memories.c.embedding).where(in_array(memories.c.id, "wanted"))
    tells = {row: (tells, made) for row, tells, made in connection.execute(told, {"wanted": list(wanted)})}
    records = rows.records_by_row(connection, wanted)
    page = {row: ExportedMemory(records[row], tells[row][0], tells[row][1] is not None) for row in wanted}
    by_id = {whole.record.id: whole for whole in page.values()}
    ids = list(by_id)
    for event in events.history_of_all(connection, ids):
        by_id[event.memory_id].events.append(event)
    for uid, entity, kind in graph_reads.mentions_of(connection, ids):
        by_id[uid].mentions.append((entity, kind))
    for uid, key, words in _messages(connection, ids):
        by_id[uid].message_key = (key, words)
    for row, tie in _ties(connection, scope, wanted):
        page[row].links.append(tie)
    for row, statement in _statements(connection, wanted):
        page[row].statements.append(statement)
    for row, form, data in _windows(connection, wanted, model):
        page[row].windows.setdefault(form, []).append(data)
    return list(page.values())


def _messages(connection: Connection, ids: Sequence[str]) -> Iterator[tuple[str, str, str | None]]:
    statement = select(messages.c.memory, messages.c.key, messages.c.content_digest).where(
        in_array(messages.c.memory, "wanted")
    )
    yield from connection.execute(statement.order_by(messages.c.key.desc()), {"wanted": list(ids)})


def _ties(connection: Connection, scope: Scope | None, wanted: Sequence[int]) -> Iterator[tuple[int, LinkRow]]:
    """The links of these memories with earlier ones, as long as both ends are in the scope."""
    start, end = memories.alias("start"), memories.alias("end")
    later = or_(
        and_(in_array(links.c.memory, "wanted"), links.c.memory > links.c.other),
        and_(in_array(links.c.other, "wanted"), links.c.other > links.c.memory),
    )
    statement = (
        select(start.c.id, start.c.uid, links.c.kind, end.c.id, end.c.uid)
        .join_from(links, start, start.c.id == links.c.memory)
        .join(end, end.c.id == links.c.other)
        .where(later, *_of(scope, start), *_of(scope, end))
        .order_by(start.c.id, links.c.kind, end.c.id)
    )
    for one, one_id, kind, other, other_id in connection.execute(statement, {"wanted": list(wanted)}):
        yield (
            (one, LinkRow(kind, other_id, is_incoming=False))
            if one > other
            else (other, LinkRow(kind, one_id, is_incoming=True))
        )


def _statements(connection: Connection, wanted: Sequence[int]) -> Iterator[tuple[int, Statement]]:
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
        .where(in_array(supports.c.memory, "wanted"))
        .order_by(supports.c.memory, supports.c.relation)
    )
    for row, subject_key, predicate, key, fact, confidence, since, until in connection.execute(
        statement, {"wanted": list(wanted)}
    ):
        ended = None if until is None else moment(until)
        yield row, Statement(subject_key, predicate, key, fact, confidence, moment(since), ended)


def _windows(connection: Connection, wanted: Sequence[int], model: str | None) -> Iterator[tuple[int, str, bytes]]:
    statement = (
        select(memories.c.id, embeddings.c.form, embeddings.c.data)
        .join(embeddings, embeddings.c.hash == memories.c.embedding)
        .where(in_array(memories.c.id, "wanted"), embeddings.c.model == model)
        .order_by(memories.c.id, embeddings.c.form, embeddings.c.window)
    )
    yield from connection.execute(statement, {"wanted": list(wanted)})


def tombstone_pages(connection: Connection, scope: Scope | None) -> Iterator[list[ExportedTombstone]]:
    """A scope's erased memories, in pages, those erased first first."""
    after = -1
    parts = {} if scope is None else scope.parts
    mine = [tombstones_table.c.kind == "memory", *(tombstones_table.c[name] == value for name, value in parts.items())]
    while True:
        statement = (
            select(tombstones_table).where(tombstones_table.c.seq > after, *mine).order_by(tombstones_table.c.seq)
        )
        stones = tombstones.tombstones_of(connection, statement.limit(PAGE))
        if not stones:
            return
        yield _gone(connection, stones)
        after = stones[-1].seq


def _gone(connection: Connection, stones: Sequence[tombstones.Tombstone]) -> list[ExportedTombstone]:
    page = {stone.uid: ExportedTombstone(stone, [], []) for stone in stones}
    for event in events.history_of_all(connection, list(page)):
        page[event.memory_id].events.append(event)
    for uid, key, _ in _messages(connection, list(page)):
        page[uid].keys.append(key)
    return list(page.values())


def entity_names(connection: Connection, scope: Scope | None) -> Iterator[ExportedName]:
    """What is said of names, partition by partition: of a scope that is a whole partition, else only of all there is.

    A part of a partition has no names of its own: they would tell of what the rest of it mentions.
    """
    for partition in rows.all_partitions(connection) if scope is None else [scope.partition] * (len(scope.parts) == 1):
        row = rows.partition_row(connection, partition)
        a, n = aliases.c, names.c
        said = select(a.at, a.key, a.other, a.origin, a.negated).where(a.partition == row, a.key < a.other)
        for at, key, other, origin, negated in connection.execute(said.order_by(a.at, a.key, a.other)):
            yield ExportedName(partition, at, Link(key, other, Origin(origin)), negated)
        chosen = select(n.at, n.key, n.name).where(n.partition == row).order_by(n.at, n.key)
        for at, key, name in connection.execute(chosen):
            yield ExportedName(partition, at, key=key, name=name)
