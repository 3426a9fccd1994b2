"""The rows of `memories`, as records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    CursorResult,
    RowMapping,
    Select,
    Table,
    bindparam,
    func,
    select,
)

from graphmem.errors import StoreError
from graphmem.model import SCOPE_NAMES, Kind, MemoryRecord, Scope, View, from_micros, micros
from graphmem.stores.ledger import visibility
from graphmem.stores.ledger.array_parameters import in_array, json_object_agg
from graphmem.stores.ledger.decoding import decoding
from graphmem.stores.ledger.dialects import upsert
from graphmem.stores.ledger.schema import further_runs, links, memories, partitions

# SQLite takes at most 32,766 parameters in a statement; lists of ids go in pieces.
BATCH = 10_000
# Begins the sessions of texts that nothing else joins.
SINGLE_SESSION = "alone:"

_RUNS = (
    select(json_object_agg(further_runs.c.run_id, further_runs.c.place))
    .where(further_runs.c.memory == memories.c.id)
    .group_by(further_runs.c.memory)
    .correlate(memories)
    .scalar_subquery()
)
RECORD = select(memories, partitions.c.key.label("partition_key"), _RUNS.label("further_runs")).join(partitions)
_BY_ID = RECORD.where(in_array(memories.c.uid, "wanted"))
_BY_ONE_ID = RECORD.where(memories.c.uid == bindparam("one"))
_BY_ROW = RECORD.where(in_array(memories.c.id, "wanted"))
_TOUCH = memories.update().where(memories.c.id == bindparam("row")).values(seq=bindparam("now"))
_SPACE = select(partitions.c.id, partitions.c.size).where(partitions.c.key == bindparam("key"))
_IDS = select(memories.c.id, memories.c.uid).where(in_array(memories.c.id, "wanted"))
_BASES = (
    select(links.c.memory, links.c.kind, memories.c.uid)
    .join(memories, memories.c.id == links.c.other)
    .where(in_array(links.c.memory, "wanted"))
    .order_by(memories.c.id)
)


def inserted_row(made: CursorResult[Any]) -> int:
    """The row that an INSERT made."""
    key = made.inserted_primary_key
    if key is None:
        raise StoreError("the ledger did not say which row it made; nothing of this call was stored")
    return int(key[0])


def partition_row(connection: Connection, key: str) -> int | None:
    """The row of a partition, or None if nothing was ever written there."""
    return sized_partition(connection, key)[0]


def sized_partition(connection: Connection, key: str) -> tuple[int | None, int]:
    """The row of a partition (None: nothing was ever written there), and n: the memories that its statistics count."""
    found = connection.execute(_SPACE, {"key": key}).first()
    return (None, 0) if found is None else (found[0], found[1])


def view_values(connection: Connection, view: View) -> dict[str, Any]:
    """The parameters of a view's conditions (`visibility.conditions`)."""
    return visibility.values(view, None if view.partition is None else partition_row(connection, view.partition))


def ensure_partition(connection: Connection, key: str) -> int:
    """The row of a partition, made if need be."""
    known = partition_row(connection, key)
    if known is not None:
        return known
    made = connection.execute(partitions.insert().values(key=key, size=0))
    return inserted_row(made)


def partitions_of(connection: Connection, view: View, limit: int) -> list[str]:
    """The partitions with something in a view that spans them, those written last first."""
    statement = (
        select(partitions.c.key)
        .select_from(memories.join(partitions))
        .where(*visibility.conditions(visibility.shape(view)))
        .group_by(partitions.c.key)
        .order_by(func.max(memories.c.id).desc())
        .limit(limit)
    )
    return list(connection.scalars(statement, visibility.values(view, None)))


def all_partitions(connection: Connection) -> list[str]:
    """Every partition there is."""
    return list(connection.scalars(select(partitions.c.key).order_by(partitions.c.id)))


def total(connection: Connection) -> int:
    """How many memories there are."""
    return connection.scalar(select(func.count()).select_from(memories)) or 0


def find(connection: Connection, uid: str) -> MemoryRecord | None:
    """One record by its id."""
    row = connection.execute(_BY_ONE_ID, {"one": uid}).mappings().first()
    return None if row is None else decode_record(row)


def records(connection: Connection, uids: Iterable[str]) -> dict[str, MemoryRecord]:
    """Records by id; unknown ids are left out."""
    return {found.id: found for found in _wanted(connection, _BY_ID, uids)}


def records_by_row(connection: Connection, rows: Iterable[int]) -> dict[int, MemoryRecord]:
    """Records by row."""
    return {found.row: found for found in _wanted(connection, _BY_ROW, rows)}


def _wanted(connection: Connection, statement: Select[Any], wanted: Iterable[Any]) -> Iterator[MemoryRecord]:
    return (decode_record(row) for row in connection.execute(statement, {"wanted": list(wanted)}).mappings())


def visible_records(connection: Connection, view: View, uids: Iterable[str]) -> dict[str, MemoryRecord]:
    """The records among these ids that the view holds."""
    return {uid: found for uid, found in records(connection, uids).items() if view.holds(found)}


def list_records(connection: Connection, view: View, *, with_sources: bool) -> Iterator[MemoryRecord]:
    """What the view holds, newest observation first; `with_sources` includes mere sources of facts."""
    partition = None if view.partition is None else partition_row(connection, view.partition)
    if view.partition is not None and partition is None:
        return
    statement = _listing(visibility.shape(view), with_sources=with_sources)
    for row in connection.execute(statement, visibility.values(view, partition)).mappings():
        yield decode_record(row)


@lru_cache(maxsize=128)
def _listing(shape: visibility.ViewShape, *, with_sources: bool) -> Select[Any]:
    statement = RECORD.where(*visibility.conditions(shape)).order_by(memories.c.at.desc(), memories.c.id.desc())
    return statement if with_sources else statement.where(memories.c.source_only.is_(False))


def ids_between(connection: Connection, view: View, start: int, end: int, limit: int) -> list[str]:
    """The ids of the newest memories that a view holds of a stretch of time, in microseconds, `end` not included."""
    partition = None if view.partition is None else partition_row(connection, view.partition)
    if view.partition is not None and partition is None:
        return []
    values = {**visibility.values(view, partition), "start": start, "end": end, "limit": limit}
    return list(connection.scalars(_said_between(visibility.shape(view)), values))


@lru_cache(maxsize=128)
def _said_between(shape: visibility.ViewShape) -> Select[Any]:
    at = memories.c.at
    within = (at >= bindparam("start"), at < bindparam("end"), *visibility.conditions(shape))
    return select(memories.c.uid).where(*within).order_by(at.desc(), memories.c.id.desc()).limit(bindparam("limit"))


def changed_after(connection: Connection, after: int, limit: int, partition: int | None = None) -> list[MemoryRecord]:
    """Records whose sequence number is past `after`, in its order."""
    statement = RECORD.where(memories.c.seq > after).order_by(memories.c.seq).limit(limit)
    if partition is not None:
        statement = statement.where(memories.c.partition == partition)
    return [decode_record(row) for row in connection.execute(statement).mappings()]


def in_scope(connection: Connection, scope: Scope, limit: int) -> list[MemoryRecord]:
    """Records of every kind and state that a scope's deletion takes."""
    statement = RECORD.where(*visibility.in_scope(scope)).order_by(memories.c.id).limit(limit)
    return [decode_record(row) for row in connection.execute(statement).mappings()]


def insert(connection: Connection, record: MemoryRecord, partition: int) -> int:
    """Stores a record, an episode behind those of its session that are not later; returns its row."""
    before = connection.scalar(_last_until(), _place(record, partition)) if record.kind is Kind.EPISODE else None
    placed = {"uid": record.id, "partition": partition, "previous": before, "windows": 0}
    row = inserted_row(connection.execute(memories.insert(), {**placed, **encode_record(record)}))
    if record.further_runs:
        set_further_runs(connection, row, record.further_runs)
    return row


def set_further_runs(connection: Connection, row: int, runs: Iterable[str]) -> None:
    """Writes which runs beside its own a memory was said in, over those that are noted."""
    connection.execute(further_runs.delete().where(further_runs.c.memory == row))
    noted = [{"memory": row, "run_id": run, "place": place} for place, run in enumerate(runs)]
    if noted:
        connection.execute(further_runs.insert(), noted)


def _place(record: MemoryRecord, partition: int) -> dict[str, Any]:
    return {"in_partition": partition, "in_session": record.session, "moment": micros(record.at)}


@lru_cache(maxsize=1)
def _last_until() -> Select[Any]:
    m = memories.c
    return _in_session().where(m.at <= bindparam("moment")).order_by(m.at.desc(), m.id.desc()).limit(1)


@lru_cache(maxsize=1)
def _first_after() -> Select[Any]:
    m = memories.c
    return _in_session().where(m.at > bindparam("moment")).order_by(m.at, m.id).limit(1)


def _in_session() -> Select[Any]:
    m = memories.c
    return select(m.id).where(
        m.partition == bindparam("in_partition"), m.session == bindparam("in_session"), m.kind == Kind.EPISODE.value
    )


def update(connection: Connection, record: MemoryRecord) -> None:
    """Writes a record back over its row, but for its further runs."""
    connection.execute(memories.update().where(memories.c.id == record.row).values(encode_record(record)))


def touch(connection: Connection, row: int, seq: int) -> None:
    """Gives a row the next sequence number, so that the projections take it anew."""
    connection.execute(_TOUCH, {"row": row, "now": seq})


def exact_scope(table: Table, scope: Scope) -> list[ColumnElement[bool]]:
    """That a row was written under this very scope: what it does not name is named by none."""
    return [table.c[name].is_not_distinct_from(getattr(scope, name)) for name in SCOPE_NAMES]


def nearest_session(connection: Connection, partition: int, scope: Scope, at: datetime, gap: timedelta) -> str | None:
    """The session of the earlier, then later neighbour of exactly this scope within the gap."""
    same = [
        memories.c.partition == partition,
        memories.c.kind == Kind.EPISODE,
        memories.c.session.not_like(f"{SINGLE_SESSION}%"),
        *exact_scope(memories, scope),
    ]
    moment, reach = micros(at), gap // timedelta(microseconds=1)
    earlier = (
        select(memories.c.session)
        .where(*same, memories.c.at.between(moment - reach, moment))
        .order_by(memories.c.at.desc(), memories.c.id.desc())
    )
    later = (
        select(memories.c.session)
        .where(*same, memories.c.at.between(moment, moment + reach))
        .order_by(memories.c.at, memories.c.id)
    )
    return connection.scalar(earlier.limit(1)) or connection.scalar(later.limit(1))


def first_episode_after(connection: Connection, record: MemoryRecord, partition: int) -> int | None:
    """The row of the first episode of a session that is later than this record."""
    row: int | None = connection.scalar(_first_after(), _place(record, partition))
    return row


def next_row(connection: Connection, row: int) -> int | None:
    """The row of the episode that has this one before it."""
    return connection.scalar(select(memories.c.id).where(memories.c.previous == row))


def previous_row(connection: Connection, row: int) -> int | None:
    """The row of the episode before this one in its session."""
    return connection.scalar(select(memories.c.previous).where(memories.c.id == row))


def set_previous(connection: Connection, row: int, previous: int | None, seq: int) -> None:
    """Puts a row behind another one, or first; the projections take it anew."""
    connection.execute(memories.update().where(memories.c.id == row).values(previous=previous, seq=seq))


def ids_of(connection: Connection, rows: Iterable[int]) -> dict[int, str]:
    """Ids by row."""
    return dict(connection.execute(_IDS, {"wanted": list(rows)}).all())


def link_targets_of(connection: Connection, rows: Iterable[int]) -> dict[tuple[int, str], list[str]]:
    """What memories are drawn from or replace: ids by row and kind of link."""
    found: dict[tuple[int, str], list[str]] = {}
    for row, kind, uid in connection.execute(_BASES, {"wanted": list(rows)}):
        found.setdefault((row, kind), []).append(uid)
    return found


def add_link(connection: Connection, row: int, kind: str, other: int) -> None:
    """Notes that a memory is drawn from another one, corrects or replaces it; once."""
    statement = upsert(connection, links).values(memory=row, kind=kind, other=other)
    connection.execute(statement.on_conflict_do_nothing())


def remove_links(connection: Connection, row: int, kind: str) -> None:
    """Takes the links of a kind back that lead from a memory."""
    connection.execute(links.delete().where(links.c.memory == row, links.c.kind == kind))


def link_targets(connection: Connection, row: int, kind: str) -> list[MemoryRecord]:
    """What this memory is drawn from, or what it replaces."""
    statement = RECORD.join(links, links.c.other == memories.c.id).where(links.c.memory == row, links.c.kind == kind)
    return [decode_record(found) for found in connection.execute(statement).mappings()]


def link_sources(connection: Connection, row: int, kind: str) -> list[MemoryRecord]:
    """What is drawn from this memory, or what replaced it."""
    statement = RECORD.join(links, links.c.memory == memories.c.id).where(links.c.other == row, links.c.kind == kind)
    return [decode_record(found) for found in connection.execute(statement).mappings()]


def facts_of(connection: Connection, rows: Iterable[int]) -> dict[str, list[str]]:
    """The facts drawn from memories: ids by the id of the source."""
    found: dict[str, list[str]] = {}
    for source, fact in connection.execute(_facts(), {"wanted": list(rows)}):
        found.setdefault(source, []).append(fact)
    return found


@lru_cache(maxsize=1)
def _facts() -> Select[Any]:
    fact = memories.alias("fact")
    return (
        select(memories.c.uid, fact.c.uid)
        .select_from(links)
        .join(memories, memories.c.id == links.c.other)
        .join(fact, fact.c.id == links.c.memory)
        .where(in_array(links.c.other, "wanted"), links.c.kind == "drawn_from", fact.c.kind == Kind.FACT.value)
        .order_by(fact.c.id)
    )


def encode_record(record: MemoryRecord) -> dict[str, Any]:
    """A record as values of its row's columns, but for what only the ledger decides (row, uid,
    partition, embedding).
    """
    return {
        **{name: getattr(record.scope, name) for name in SCOPE_NAMES},
        **{name: getattr(record, name) for name in _PLAIN},
        **{name: micros(getattr(record, name)) for name in _TIMES},
        **{name: _maybe_micros(getattr(record, name)) for name in _OPEN_TIMES},
        "kind": record.kind.value,
        "metadata": dict(record.metadata),
    }


_PLAIN = (
    "text",
    "memory_type",
    "speaker",
    "actor_id",
    "role",
    "message_id",
    "session",
    "source_only",
    "confidence",
    "version",
    "seq",
)
_TIMES = ("at", "valid_from", "created_at", "updated_at")
_OPEN_TIMES = ("valid_to", "expires_at")


@decoding
def decode_record(row: RowMapping) -> MemoryRecord:
    """A row as a record."""
    plain: dict[str, Any] = {
        **{name: row[name] for name in _PLAIN},
        **{name: from_micros(row[name]) for name in _TIMES},
        **{name: _maybe_moment(row[name]) for name in _OPEN_TIMES},
    }
    places: dict[str, int] | None = row["further_runs"]
    return MemoryRecord(
        id=row["uid"],
        row=row["id"],
        partition=row["partition_key"],
        scope=Scope(row["user_id"], row["agent_id"], row["run_id"]),
        kind=Kind(row["kind"]),
        metadata=row["metadata"],
        further_runs=() if places is None else tuple(sorted(places, key=places.__getitem__)),
        **plain,
    )


def _maybe_micros(moment: datetime | None) -> int | None:
    return None if moment is None else micros(moment)


def _maybe_moment(value: int | None) -> datetime | None:
    return None if value is None else from_micros(value)
