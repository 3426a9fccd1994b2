"""Reads and writes the table `memories` as `MemoryRecord`s, with partitions, sessions and links between memories.

A memory has two ids: its *id* (column `uid`), the UUID that callers see, and its *row id* (column `id`), the integer
key by which the tables refer to each other. A `partition` argument is a row id of `partitions`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    CursorResult,
    Insert,
    RowMapping,
    Select,
    Table,
    and_,
    bindparam,
    case,
    func,
    or_,
    select,
)
from sqlalchemy.exc import OperationalError

from graphmem.concurrency import raise_if_stopped
from graphmem.errors import StoreError
from graphmem.model import (
    EPOCH,
    SCOPE_NAMES,
    Event,
    Kind,
    Layer,
    ListFilter,
    MemoryRecord,
    Scope,
    View,
    from_micros,
    micros,
    optional_from_micros,
    optional_micros,
)
from graphmem.stores.ledger import attachments, events, schema, visibility
from graphmem.stores.ledger.schema import (
    OPTIONAL_TIME_COLUMNS,
    TIME_COLUMNS,
    entities,
    further_runs,
    links,
    memories,
    mentions,
    partitions,
)
from graphmem.stores.ledger.sql import (
    DECODING_ERRORS,
    FEW,
    CorruptValue,
    contains_word,
    decoding,
    in_array,
    is_of_a_value,
    json_object_agg,
    upsert,
)
from graphmem.stores.ledger.term_stats import FORGOTTEN_IN_PARTITION

# SQLite takes at most 32,766 parameters in one statement; longer lists of ids go in batches.
BATCH = 10_000
# Prefix of the session ids of texts that belong to no sitting: passages of a document, each its own session.
SINGLE_SESSION = "alone:"
# In microseconds: a day, and the time from the first day of the calendar to 1970.
_DAY = 86_400_000_000
_MICROS_TO_1970 = (EPOCH - datetime.min.replace(tzinfo=UTC)) // timedelta(microseconds=1)
# Above every row id.
_LAST_ROW = 2**63 - 1

_FURTHER_RUNS = (
    select(json_object_agg(further_runs.c.run_id, further_runs.c.place))
    .where(further_runs.c.memory == memories.c.id)
    .group_by(further_runs.c.memory)
    .correlate(memories)
    .scalar_subquery()
)
_ATTACHMENTS = (
    select(attachments.AS_JSON)
    .where(schema.attachments.c.memory == memories.c.id)
    .group_by(schema.attachments.c.memory)
    .correlate(memories)
    .scalar_subquery()
)
# Every column of `memories` is in one of these, in TIME_COLUMNS, OPTIONAL_TIME_COLUMNS or SCOPE_NAMES, or is `kind`,
# `layer` or `seq`. Plain values and times are fields of a record and of an export. A new one is in a migration,
# `schema`, `model.MemoryRecord` and `transfer.records`; what callers give comes by `commands.types.AddMessage`, what
# they get goes out by `types.py` and `responses`, what they filter by is in `boundary.filters`.
PLAIN_COLUMNS = (
    "text", "memory_type", "metadata", "speaker", "actor_id", "role", "message_id", "session", "source_only",
    "confidence", "version", "utc_offset", "importance", "level", "pinned",
)  # fmt: skip
# Keys, and columns that are derived; `encode_record` leaves them out.
LEDGER_COLUMNS = (
    "id",
    "uid",
    "partition",
    "previous",
    "embedding",
    "windows",
    "answer_types",
    "question_share",
    "terms",
)

# What a filter for words looks through: as in the lists of people, the user has the name of the scope.
_TEXT_AND_SPEAKER = memories.c.text.concat(" ").concat(
    func.coalesce(memories.c.actor_id, case((memories.c.role == "user", memories.c.user_id)), "")
)
# The columns that `decode_record` reads.
RECORD = select(
    *(column for column in memories.c if column is not memories.c.terms),
    partitions.c.key.label("partition_key"),
    _FURTHER_RUNS.label("further_runs"),
    _ATTACHMENTS.label("attachments"),
).join(partitions, isouter=True)  # each memory has one, unless its row is damaged
_RECORD_BY_ID = RECORD.where(memories.c.uid == bindparam("uid"))
_RECORDS_BY_ID = RECORD.where(in_array(memories.c.uid, "uids"))
_RECORDS_BY_ROW = RECORD.where(in_array(memories.c.id, "row_ids"))
_TEXTS_BY_ROW = select(memories.c.uid, memories.c.text).where(in_array(memories.c.id, "row_ids"))
_IDS_BY_ROW = select(memories.c.id, memories.c.uid).where(in_array(memories.c.id, "row_ids"))
_FORGOTTEN = RECORD.where(
    memories.c.partition == bindparam("in_partition"),
    in_array(memories.c.embedding, "hashes"),
    memories.c.forgotten_at.is_not(None),
    memories.c.kind == Kind.EPISODE.value,
).order_by(memories.c.at.desc(), memories.c.id.desc())
_ROWS_BY_ID = select(memories.c.uid, memories.c.id).where(in_array(memories.c.uid, "uids"))
_PARTITION = select(partitions.c.id, partitions.c.size).where(partitions.c.key == bindparam("key"))
_COUNTED_PARTITION = _PARTITION.add_columns(FORGOTTEN_IN_PARTITION)
_UPDATE = memories.update().where(memories.c.id == bindparam("row_id"))  # sets the columns that its parameters name
_SET_SEQ = memories.update().where(memories.c.id == bindparam("row_id")).values(seq=bindparam("new_seq"))
_LINK_TARGETS = (
    select(links.c.memory, links.c.kind, memories.c.uid)
    .join(memories, memories.c.id == links.c.other)
    .where(in_array(links.c.memory, "row_ids"))
    .order_by(memories.c.id)
)


def inserted_row(result: CursorResult[Any]) -> int:
    """Returns the id of the row that an INSERT wrote. Raises StoreError if the database did not return it."""
    key = result.inserted_primary_key
    if key is None:
        raise StoreError("the database did not return the id of an inserted row; nothing of this call was stored")
    return int(key[0])


# --- partitions -----------------------------------------------------------------------------------------------------


def partition_keys(connection: Connection, ids: Iterable[str]) -> dict[str, str]:
    """Returns the keys of the partitions of memories, by their ids; unknown ids are left out."""
    statement = select(memories.c.uid, partitions.c.key).join(partitions).where(in_array(memories.c.uid, "uids"))
    return dict(connection.execute(statement, {"uids": list(ids)}).all())


def partition_row(connection: Connection, key: str) -> int | None:
    """Returns the row id of the partition with this key, or None if nothing was ever written to it."""
    return sized_partition(connection, key)[0]


def sized_partition(connection: Connection, key: str) -> tuple[int | None, int]:
    """Returns a partition's row id and n, the number of memories that its term statistics count.

    (None, 0) if nothing was ever written to the partition.
    """
    row = connection.execute(_PARTITION, {"key": key}).first()
    return (None, 0) if row is None else (row[0], row[1])


def view_values(connection: Connection, view: View) -> dict[str, Any]:
    """Returns the parameter values of a view's conditions (`visibility.conditions`)."""
    return visibility.values(view, None if view.partition is None else partition_row(connection, view.partition))


class EnsuredPartition(NamedTuple):
    """The row id of a partition, and how many of its memories with vectors are forgotten."""

    row: int
    forgotten: int


def ensure_partition(connection: Connection, key: str) -> EnsuredPartition:
    """Returns the partition with this key; inserts it if it is new."""
    row = connection.execute(_COUNTED_PARTITION, {"key": key}).first()
    return insert_partition(connection, key) if row is None else EnsuredPartition(row[0], row[2])


def insert_partition(connection: Connection, key: str) -> EnsuredPartition:
    """Inserts a partition that is new."""
    return EnsuredPartition(inserted_row(connection.execute(partitions.insert().values(key=key, size=0))), 0)


def partitions_of(connection: Connection, view: View, limit: int) -> list[str]:
    """Returns the keys of the partitions with memories inside a view without a partition, last written first."""
    statement = (
        select(partitions.c.key)
        .select_from(memories.join(partitions))
        .where(*visibility.conditions(visibility.shape(view)))
        .group_by(partitions.c.key)
        .order_by(func.max(memories.c.id).desc())
        .limit(limit)
    )
    return list(connection.scalars(statement, visibility.values(view, None)))


def count_by_kind_and_layer(connection: Connection) -> dict[tuple[str, str], int]:
    """Returns the number of stored memories of each kind and layer, also retired, expired and forgotten ones."""
    columns = memories.c.kind, memories.c.layer
    rows = connection.execute(select(*columns, func.count()).group_by(*columns))
    return {(kind, layer): number for kind, layer, number in rows}


def count_hidden(connection: Connection, now: datetime) -> dict[str, int]:
    """Returns the numbers of stored memories that no list shows by itself: those that are no longer true (`retired`),
    the source messages of facts that still are (`source_messages`), and what is `forgotten`.
    """
    past = memories.c.valid_to <= micros(now)
    counts = select(
        func.count(case((past, 1))).label("retired"),
        func.count(case((and_(memories.c.source_only, past.is_not(True)), 1))).label("source_messages"),
        func.count(memories.c.forgotten_at).label("forgotten"),
    )
    return dict(connection.execute(counts.select_from(memories)).mappings().one())


def all_partitions(connection: Connection) -> list[str]:
    """Returns the keys of all partitions, oldest first."""
    return list(connection.scalars(select(partitions.c.key).order_by(partitions.c.id)))


# --- reading records ------------------------------------------------------------------------------------------------


def total(connection: Connection) -> int:
    """Returns the number of memories in the ledger."""
    return connection.scalar(select(func.count()).select_from(memories)) or 0


def find(connection: Connection, uid: str) -> MemoryRecord | None:
    """Returns the memory with this id, or None."""
    row = connection.execute(_RECORD_BY_ID, {"uid": uid}).mappings().first()
    return None if row is None else decode_record(row)


def records(connection: Connection, uids: Iterable[str]) -> dict[str, MemoryRecord]:
    """Returns the memories with these ids, by id; unknown ids are left out."""
    rows = connection.execute(_RECORDS_BY_ID, {"uids": list(uids)}).mappings().all()
    return {record.id: record for record in map(decode_record, rows)}


def each_record(
    connection: Connection, values: Mapping[str, Any], statement: Select[Any] = _RECORDS_BY_ID
) -> Generator[MemoryRecord]:
    """Yields the records of a statement while its rows are fetched, so that few are in memory at a time.

    By default those of the memories whose ids are the value `uids`, in no order; unknown ids are left out.

    Close it within the transaction: on PostgreSQL the server has a cursor for it. Raises WorkStopped
    (`concurrency.stoppable`).
    """
    with connection.execute(statement, values, execution_options=FEW) as rows:
        for row in rows.mappings():
            raise_if_stopped()
            yield decode_record(row)


def records_by_row(connection: Connection, row_ids: Iterable[int]) -> dict[int, MemoryRecord]:
    """Returns the memories with these row ids, by row id; unknown row ids are left out."""
    rows = connection.execute(_RECORDS_BY_ROW, {"row_ids": list(row_ids)}).mappings().all()
    return {record.row: record for record in map(decode_record, rows)}


def visible_records(connection: Connection, view: View, uids: Iterable[str]) -> dict[str, MemoryRecord]:
    """Returns the memories with these ids that are inside the view, by id."""
    return {uid: record for uid, record in records(connection, uids).items() if view.holds(record)}


def as_they_were(connection: Connection, view: View, found: Iterable[MemoryRecord]) -> list[MemoryRecord]:
    """Returns memories with the texts and observation times that they had at the view's `as_of`.

    A message said since then may have updated a fact. Reads the history only of memories that were said later than
    `as_of`, and nothing without one.
    """
    at, listed = view.as_of, list(found)
    later = [] if at is None else [record.id for record in listed if record.at > at]
    if at is None or not later:
        return listed
    history: dict[str, list[Event]] = {}
    for event in events.history_of_all(connection, later):
        history.setdefault(event.memory_id, []).append(event)
    return [_as_it_was(record, history.get(record.id, ()), at) for record in listed]


@decoding
def _as_it_was(record: MemoryRecord, history: Sequence[Event], at: datetime) -> MemoryRecord:
    for event in reversed(history):
        state = event.previous_state
        if record.at > at and event.event == "UPDATE" and state is not None:
            said_at, offset = from_micros(state["at"]), state.get("utc_offset")
            record = replace(record, text=state["text"], at=said_at, utc_offset=offset)
    return record


def list_records(connection: Connection, view: View, *, with_sources: bool) -> Generator[MemoryRecord]:
    """Yields the memories inside a view, newest observation (`at`) first.

    Source messages are left out unless `with_sources`, or if a view shows them as memories that are no longer true.
    """
    partition = None if view.partition is None else partition_row(connection, view.partition)
    if view.partition is not None and partition is None:
        return
    statement = _listing(visibility.shape(view), with_sources=with_sources)
    for record in each_record(connection, visibility.values(view, partition), statement):
        yield from as_they_were(connection, view, [record])


@lru_cache(maxsize=128)
def _listing(shape: visibility.ViewShape, *, with_sources: bool) -> Select[Any]:
    listed = (*visibility.conditions(shape), *source_conditions(shape, with_sources=with_sources))
    return RECORD.where(*listed).order_by(memories.c.at.desc(), memories.c.id.desc())


def source_conditions(shape: visibility.ViewShape, *, with_sources: bool) -> list[ColumnElement[bool]]:
    """Returns the condition that a memory is no source message whose facts stand for it in a list.

    A source message that is hidden with its facts is listed beside these by a view that shows them.
    """
    if with_sources:
        return []
    is_own = memories.c.source_only.is_(False)
    return [is_own if shape.hide_retired else or_(is_own, visibility.is_past())]


def list_page(
    connection: Connection,
    view: View,
    list_filter: ListFilter,
    *,
    after: tuple[datetime, str] | None,
    limit: int,
    with_sources: bool,
    offset: int = 0,
) -> Generator[MemoryRecord]:
    """Yields up to `limit` memories inside the view that match the filter, in the order of `list_records`.

    They are as they are now (`as_they_were`). `after` is the time and the id of the last memory before the page. If
    that memory was deleted, the page begins with the first memory of that moment. `offset` skips so many.
    """
    values = view_values(connection, view)
    if after is not None:
        moment, uid = micros(after[0]), after[1]
        of_memory = select(memories.c.at, memories.c.id).where(memories.c.uid == uid)
        place = connection.execute(of_memory.where(*visibility.scope_conditions(view.scope))).first()
        # The order is that of the present times; a view of a former moment shows those of then.
        if place is None or (place.at != moment and view.as_of is None):
            values |= {"after_at": moment, "after_row": _LAST_ROW}
        else:
            values |= {"after_at": place.at, "after_row": place.id}
    statement = _page(visibility.shape(view), is_first=after is None, with_sources=with_sources)
    statement = statement.where(*_filter_conditions(list_filter, has_former_words=view.show_retired))
    yield from each_record(connection, {**values, "limit": limit, "offset": offset}, statement)


@lru_cache(maxsize=128)
def _page(shape: visibility.ViewShape, *, is_first: bool, with_sources: bool) -> Select[Any]:
    statement = _listing(shape, with_sources=with_sources).limit(bindparam("limit")).offset(bindparam("offset"))
    if is_first:
        return statement
    at: ColumnElement[int] = memories.c.at
    moment: ColumnElement[int] = bindparam("after_at")
    same_moment = and_(at == moment, memories.c.id < bindparam("after_row"))
    return statement.where(at <= moment, or_(at < moment, same_moment))


def count_by_day(connection: Connection, view: View, utc_offset: timedelta) -> list[tuple[date, int]]:
    """Returns the numbers of memories inside the view by the day of their `valid_from`, the earliest day first.

    Days begin `utc_offset` before they begin in UTC.
    """
    values = {
        **view_values(connection, view),
        "to_first_day": _MICROS_TO_1970 + utc_offset // timedelta(microseconds=1),
    }
    rows = connection.execute(_by_day(visibility.shape(view)), values).all()
    last = date.max.toordinal() - 1
    return sorted((date.fromordinal(1 + min(max(number, 0), last)), count) for number, count in rows)


@lru_cache(maxsize=128)
def _by_day(shape: visibility.ViewShape) -> Select[Any]:
    # Counted from the first day of the calendar: the quotient of a negative number would be rounded up.
    day = ((memories.c.valid_from + bindparam("to_first_day")) // _DAY).label("day")
    return select(day, func.count()).where(*visibility.conditions(shape)).group_by(day)


def count_records(
    connection: Connection, view: View, list_filter: ListFilter, *, with_sources: bool
) -> tuple[int, int]:
    """Returns two numbers of memories that match the filter: those inside the view, and those that are no longer true.

    The second counts also what the view hides as retired. Source messages count as in `list_records`.
    """
    shown = replace(view, show_retired=True)
    statement = _count(visibility.shape(shown), with_sources=with_sources)
    statement = statement.where(*_filter_conditions(list_filter, has_former_words=view.show_retired))
    past, every = connection.execute(statement, view_values(connection, shown)).one()
    return every if view.show_retired else every - past, past


@lru_cache(maxsize=128)
def _count(shape: visibility.ViewShape, *, with_sources: bool) -> Select[Any]:
    conditions = (*visibility.conditions(shape), *source_conditions(shape, with_sources=with_sources))
    counts: Select[Any] = select(func.count(case((visibility.is_past(), 1)))).select_from(memories).where(*conditions)
    return counts.add_columns(func.count())


def _filter_conditions(list_filter: ListFilter, *, has_former_words: bool) -> list[ColumnElement[bool]]:
    """Returns the conditions of a filter; with `has_former_words`, all of its words may also stand in a former text."""
    at: ColumnElement[int] = memories.c.at
    clauses: list[ColumnElement[bool]] = []
    if list_filter.since is not None:
        clauses.append(at >= micros(list_filter.since))
    if list_filter.until is not None:
        clauses.append(at < micros(list_filter.until))
    if list_filter.words:
        present = and_(*(contains_word.of(_TEXT_AND_SPEAKER, word) for word in list_filter.words))
        change = schema.events.c
        in_former = (contains_word.of(change.old_text, word) for word in list_filter.words)
        former = select(change.id).where(change.memory == memories.c.uid, change.old_text.is_not(None), *in_former)
        clauses.append(or_(present, former.correlate(memories).exists()) if has_former_words else present)
    if list_filter.retired_only:
        clauses.append(visibility.is_past())
    if list_filter.mentions_type is not None:
        of_type = (
            select(mentions.c.memory)
            .join(entities, entities.c.id == mentions.c.entity)
            .where(mentions.c.memory == memories.c.id, entities.c.type == list_filter.mentions_type.value)
        )
        clauses.append(of_type.correlate(memories).exists())
    return clauses


def ids_between(connection: Connection, view: View, start: int, end: int, limit: int) -> list[str]:
    """Returns the ids of the newest memories inside a view with start <= at < end (microseconds), newest first."""
    partition = None if view.partition is None else partition_row(connection, view.partition)
    if view.partition is not None and partition is None:
        return []
    values = {**visibility.values(view, partition), "start": start, "end": end, "limit": limit}
    return list(connection.scalars(_ids_between(visibility.shape(view)), values))


@lru_cache(maxsize=128)
def _ids_between(shape: visibility.ViewShape) -> Select[Any]:
    at = memories.c.at
    within = (at >= bindparam("start"), at < bindparam("end"), *visibility.conditions(shape))
    return select(memories.c.uid).where(*within).order_by(at.desc(), memories.c.id.desc()).limit(bindparam("limit"))


def changed_after(connection: Connection, after: int, limit: int, partition: int | None = None) -> list[MemoryRecord]:
    """Returns the memories of a partition (None: of all) with a sequence number above `after`, in that order."""
    statement = RECORD.where(memories.c.seq > after).order_by(memories.c.seq).limit(limit)
    if partition is not None:
        statement = statement.where(memories.c.partition == partition)
    return [decode_record(row) for row in connection.execute(statement).mappings().all()]


def records_in_scope(connection: Connection, scope: Scope, limit: int) -> list[MemoryRecord]:
    """Returns memories of a scope, oldest row first, whatever their kind, retired and expired ones included.

    These are the memories that deleting the scope erases, damaged ones too (`records_to_erase`).
    """
    statement = select(memories.c.uid).where(*visibility.scope_conditions(scope)).order_by(memories.c.id).limit(limit)
    return records_to_erase(connection, list(connection.scalars(statement)))


def each_text(connection: Connection, row_ids: Iterable[int]) -> Generator[tuple[str, str]]:
    """Yields the ids and the texts of the memories with these row ids, in no order, while their rows are fetched."""
    with connection.execute(_TEXTS_BY_ROW, {"row_ids": list(row_ids)}, execution_options=FEW) as rows:
        for row in rows.mappings():
            raise_if_stopped()
            yield row["uid"], text_of(row)


def ids_of(connection: Connection, row_ids: Iterable[int]) -> dict[int, str]:
    """Returns the ids of the memories with these row ids, by row id."""
    return dict(connection.execute(_IDS_BY_ROW, {"row_ids": list(row_ids)}).all())


# --- writing records ------------------------------------------------------------------------------------------------


def insert(connection: Connection, record: MemoryRecord, partition: int) -> int:
    """Stores a new memory and returns its row id; see `insert_all`."""
    return insert_all(connection, [(record, partition)])[0]


def insert_all(connection: Connection, new: Sequence[tuple[MemoryRecord, int]]) -> list[int]:
    """Stores new memories, as pairs of the memory and its partition, one after the other; returns their row ids.

    An episode's `previous` is the last episode of its session that is not later. The episode after it keeps its own
    `previous`: the caller changes that (`first_episode_after`, `set_previous`).
    """
    values = [
        {
            **encode_record(record),
            "uid": record.id,
            "partition": partition,
            "windows": 0,
            **_session_position(record, partition),
            "in_session": record.session if record.kind is Kind.EPISODE else None,
        }
        for record, partition in new
    ]
    result = connection.execute(_insert(), values)
    if len(new) == 1:
        rows = [inserted_row(result)]
    else:  # one INSERT for all, which could return the ids, would not find the preceding episodes among its own rows
        ids = [record.id for record, _ in new]
        by_id: dict[str, int] = dict(connection.execute(_ROWS_BY_ID, {"uids": ids}).all())
        rows = [by_id[uid] for uid in ids]
    for row_id, (record, _) in zip(rows, new, strict=True):
        if record.further_runs:
            set_further_runs(connection, row_id, record.further_runs)
        if record.attachments:
            attachments.put(connection, row_id, record.attachments)
    return rows


@lru_cache(maxsize=1)
def _insert() -> Insert:
    episode = memories.alias("episode").c  # within an INSERT into `memories`, too, it has a FROM of its own
    last_episode_until = (
        select(episode.id)
        .where(
            episode.partition == bindparam("in_partition"),
            episode.session == bindparam("in_session"),
            episode.kind == Kind.EPISODE.value,
            episode.at <= bindparam("moment"),
        )
        .order_by(episode.at.desc(), episode.id.desc())
        .limit(1)
    )
    return memories.insert().values(previous=last_episode_until.scalar_subquery())


def set_further_runs(connection: Connection, row_id: int, runs: Iterable[str]) -> None:
    """Replaces the list of runs, beside its own, in which a memory was said again."""
    connection.execute(further_runs.delete().where(further_runs.c.memory == row_id))
    rows = [{"memory": row_id, "run_id": run, "place": place} for place, run in enumerate(runs)]
    if rows:
        connection.execute(further_runs.insert(), rows)


def update(connection: Connection, record: MemoryRecord) -> None:
    """Overwrites the row of a memory; its further runs stay (`set_further_runs`), and its attachments."""
    connection.execute(_UPDATE, {"row_id": record.row, **encode_record(record)})


def set_seq(connection: Connection, row_id: int, seq: int) -> None:
    """Sets the sequence number of a memory, so that it is delivered to the projections again."""
    connection.execute(_SET_SEQ, {"row_id": row_id, "new_seq": seq})


# --- sessions -------------------------------------------------------------------------------------------------------


def exact_scope(table: Table, scope: Scope) -> list[ColumnElement[bool]]:
    """Returns the conditions that a row was written under exactly this scope: ids that `scope` omits are NULL."""
    return [table.c[name] == getattr(scope, name) for name in SCOPE_NAMES]


# The condition that a further message may go on with the session of an episode.
_IS_IN_SESSION_OF_SEVERAL = (memories.c.kind == Kind.EPISODE.value, memories.c.session.not_like(f"{SINGLE_SESSION}%"))


def nearest_session(connection: Connection, partition: int, scope: Scope, at: datetime, gap: timedelta) -> str | None:
    """Returns the session of the episode that is nearest before `at`, else nearest after it, or None.

    Candidates are episodes written under exactly this scope, at most `gap` away; `SINGLE_SESSION` ones are none.
    """
    candidates = [memories.c.partition == partition, *_IS_IN_SESSION_OF_SEVERAL, *exact_scope(memories, scope)]
    moment, reach = micros(at), gap // timedelta(microseconds=1)
    earlier = (
        select(memories.c.session)
        .where(*candidates, memories.c.at.between(moment - reach, moment))
        .order_by(memories.c.at.desc(), memories.c.id.desc())
    )
    later = (
        select(memories.c.session)
        .where(*candidates, memories.c.at.between(moment, moment + reach))
        .order_by(memories.c.at, memories.c.id)
    )
    return connection.scalar(earlier.limit(1)) or connection.scalar(later.limit(1))


class LatestSession(NamedTuple):
    """The time (microseconds) and session of an episode, and whether the session has a later one, of any scope."""

    at: int
    session: str
    goes_on: bool


def latest_session(
    connection: Connection, scope: Scope, start: int, end: int
) -> tuple[EnsuredPartition | None, LatestSession | None]:
    """Returns a scope's partition, and the last of the candidates of `nearest_session` from `start` to `end` (in
    microseconds), each None if there is none.

    One statement: every write runs it.
    """
    values = {"key": scope.partition, "start": start, "end": end, **scope.parts}
    row = connection.execute(_latest_session(tuple(scope.parts)), values).first()
    if row is None:
        return None, None
    partition, _, forgotten, at, session, goes_on = row
    return EnsuredPartition(partition, forgotten), None if at is None else LatestSession(at, session, goes_on)


@lru_cache(maxsize=8)
def _latest_session(ids: tuple[str, ...]) -> Select[Any]:
    m, last, later = memories.c, memories.alias("last").c, memories.alias("later").c
    in_scope = [m[name] == bindparam(name) if name in ids else m[name].is_(None) for name in SCOPE_NAMES]
    in_session = later.partition == last.partition, later.session == last.session, later.kind == Kind.EPISODE.value
    goes_on = select(later.id).where(*in_session, later.at > last.at).exists()
    last_row = (
        select(m.id)
        .where(
            m.partition == partitions.c.id,
            *_IS_IN_SESSION_OF_SEVERAL,
            *in_scope,
            m.at.between(bindparam("start"), bindparam("end")),
        )
        .order_by(m.at.desc(), m.id.desc())
        .limit(1)
        .correlate(partitions)
    )
    joined = partitions.outerjoin(last.id.table, last.id == last_row.scalar_subquery())
    return _COUNTED_PARTITION.add_columns(last.at, last.session, goes_on).select_from(joined)


def episodes_saying(
    connection: Connection, partition: int, scope: Scope, texts: Collection[str], at: datetime, window: timedelta
) -> list[MemoryRecord]:
    """Returns the episodes with these texts that were said at `at` or at most `window` before, the newest first.

    Only those written under exactly this scope. Of those with attachments all, whose text a description may have
    changed since.
    """
    moment = micros(at)
    with_attachments = schema.attachments.c
    is_of_memory = with_attachments.memory == memories.c.id
    statement = RECORD.where(
        memories.c.partition == partition,
        memories.c.kind == Kind.EPISODE,
        memories.c.at.between(moment - window // timedelta(microseconds=1), moment),
        or_(in_array(memories.c.text, "texts"), select(with_attachments.id).where(is_of_memory).exists()),
        *exact_scope(memories, scope),
    )
    statement = statement.order_by(memories.c.at.desc(), memories.c.id.desc())
    rows = connection.execute(statement, {"texts": list(texts)}).mappings().all()
    return [decode_record(row) for row in rows]


def forgotten_episodes(
    connection: Connection, partition: int, text_hashes: Iterable[str]
) -> dict[str, list[MemoryRecord]]:
    """Returns the forgotten episodes of a partition with these hashes of their embedded text, by hash, newest first."""
    rows = connection.execute(_FORGOTTEN, {"in_partition": partition, "hashes": list(text_hashes)}).mappings().all()
    found: dict[str, list[MemoryRecord]] = {}
    for row in rows:
        found.setdefault(row["embedding"], []).append(decode_record(row))
    return found


def each_forgotten(connection: Connection, scope: Scope, before: datetime, limit: int) -> Generator[MemoryRecord]:
    """Yields up to `limit` memories of a scope that were forgotten before a time, the last forgotten first, while their
    rows are fetched. Source messages are left out: they follow their facts.
    """
    rows = RECORD.where(*_are_forgotten(scope, before))
    latest_first = rows.order_by(memories.c.forgotten_at.desc(), memories.c.id.desc()).limit(limit)
    yield from each_record(connection, {}, latest_first)


def count_forgotten(connection: Connection, scope: Scope, before: datetime) -> int:
    """Returns the number of memories of a scope that were forgotten before a time, without source messages."""
    counted = select(func.count()).select_from(memories).join(partitions).where(*_are_forgotten(scope, before))
    return connection.scalar(counted) or 0


def forgotten_ids(connection: Connection, partition: str, before: datetime) -> dict[int, str]:
    """Returns the ids of the memories of a partition that were forgotten before a time, by row, without source
    messages.
    """
    ids = select(memories.c.id, memories.c.uid).join(partitions).where(partitions.c.key == partition)
    return dict(connection.execute(ids.where(*forgotten_by(before)).order_by(memories.c.id)).all())


def forgotten_by(before: datetime) -> list[ColumnElement[bool]]:
    """Returns the conditions that a memory was forgotten before a time and is no source message."""
    return [memories.c.forgotten_at <= micros(before), ~memories.c.source_only]


def _are_forgotten(scope: Scope, before: datetime) -> list[ColumnElement[bool]]:
    return [*visibility.partition_conditions(scope), *visibility.scope_conditions(scope), *forgotten_by(before)]


def _session_position(record: MemoryRecord, partition: int) -> dict[str, Any]:
    return {"in_partition": partition, "in_session": record.session, "moment": micros(record.at)}


@lru_cache(maxsize=1)
def _first_episode_after() -> Select[Any]:
    m = memories.c
    return (
        select(m.id)
        .where(
            m.partition == bindparam("in_partition"),
            m.session == bindparam("in_session"),
            m.kind == Kind.EPISODE.value,
            m.at > bindparam("moment"),
        )
        .order_by(m.at, m.id)
        .limit(1)
    )


def first_episode_after(connection: Connection, record: MemoryRecord, partition: int) -> int | None:
    """Returns the row id of the first episode of the record's session that is later than the record, or None."""
    row_id: int | None = connection.scalar(_first_episode_after(), _session_position(record, partition))
    return row_id


def next_row(connection: Connection, row_id: int) -> int | None:
    """Returns the row id of the episode that follows this one in its session, or None."""
    return connection.scalar(select(memories.c.id).where(memories.c.previous == row_id))


def previous_row(connection: Connection, row_id: int) -> int | None:
    """Returns the row id of the episode that precedes this one in its session, or None."""
    return connection.scalar(select(memories.c.previous).where(memories.c.id == row_id))


def set_previous(connection: Connection, row_id: int, previous: int | None, seq: int) -> None:
    """Sets the predecessor of an episode (None: it is the first) and its sequence number, so that it is delivered."""
    connection.execute(memories.update().where(memories.c.id == row_id).values(previous=previous, seq=seq))


# --- links between memories -----------------------------------------------------------------------------------------


def linked_ids(connection: Connection, row_ids: Iterable[int]) -> dict[tuple[int, str], list[str]]:
    """Returns the ids of the memories that these link to, by (row id, kind of link)."""
    targets: dict[tuple[int, str], list[str]] = {}
    for row_id, kind, uid in connection.execute(_LINK_TARGETS, {"row_ids": list(row_ids)}):
        targets.setdefault((row_id, kind), []).append(uid)
    return targets


def add_link(connection: Connection, row_id: int, kind: str, other: int) -> None:
    """Links one memory to another (row ids), unless they are linked already.

    `kind` is "drawn_from", "corrects", "replaces", "compresses", "abstracts" or "made_of".
    """
    statement = upsert(connection, links).values(memory=row_id, kind=kind, other=other)
    connection.execute(statement.on_conflict_do_nothing())


def remove_links_to(connection: Connection, row_id: int, kind: str) -> None:
    """Deletes the links of a kind from others to a memory."""
    connection.execute(links.delete().where(links.c.other == row_id, links.c.kind == kind))


def remove_links(connection: Connection, row_id: int, kind: str) -> None:
    """Deletes the links of a kind from a memory to others."""
    connection.execute(links.delete().where(links.c.memory == row_id, links.c.kind == kind))


def records_linked_from(connection: Connection, row_id: int, kind: str) -> list[MemoryRecord]:
    """Returns the memories that a memory links to, oldest row first: sources ("drawn_from"), or those that it replaces
    compresses or abstracts.
    """
    statement = RECORD.join(links, links.c.other == memories.c.id).where(links.c.memory == row_id, links.c.kind == kind)
    return [decode_record(row) for row in connection.execute(statement.order_by(memories.c.id)).mappings().all()]


def records_linking_to(connection: Connection, row_id: int, kind: str) -> list[MemoryRecord]:
    """Returns the memories that link to a memory: those drawn from it, or those that replace it."""
    statement = RECORD.join(links, links.c.memory == memories.c.id).where(links.c.other == row_id, links.c.kind == kind)
    return [decode_record(row) for row in connection.execute(statement).mappings().all()]


def facts_of(connection: Connection, row_ids: Iterable[int]) -> dict[str, list[str]]:
    """Returns the ids of the facts drawn from these memories, by the id of the source."""
    facts: dict[str, list[str]] = {}
    for source, fact in connection.execute(_facts(), {"row_ids": list(row_ids)}):
        facts.setdefault(source, []).append(fact)
    return facts


@lru_cache(maxsize=1)
def _facts() -> Select[Any]:
    fact = memories.alias("fact")
    return (
        select(memories.c.uid, fact.c.uid)
        .select_from(links)
        .join(memories, memories.c.id == links.c.other)
        .join(fact, fact.c.id == links.c.memory)
        .where(in_array(links.c.other, "row_ids"), links.c.kind == "drawn_from", fact.c.kind == Kind.FACT.value)
        .order_by(fact.c.id)
    )


# --- rows as records ------------------------------------------------------------------------------------------------


def encode_record(record: MemoryRecord) -> dict[str, Any]:
    """Returns a record as column values, without `LEDGER_COLUMNS`."""
    return {
        **{name: getattr(record.scope, name) for name in SCOPE_NAMES},
        **{name: getattr(record, name) for name in PLAIN_COLUMNS},
        **{name: micros(getattr(record, name)) for name in TIME_COLUMNS},
        **{name: optional_micros(getattr(record, name)) for name in OPTIONAL_TIME_COLUMNS},
        "kind": record.kind.value,
        "layer": record.layer.value,
        "metadata": dict(record.metadata),
        "seq": record.seq,
    }


def decode_record(row: RowMapping) -> MemoryRecord:
    """Returns a row with the columns of `RECORD` as a record. Raises CorruptValue, which names the memory."""
    try:
        values = {name: read(row[name]) for name, read in _READERS.items()}
    except DECODING_ERRORS:
        values = {name: _read(row, name) for name in _READERS}  # raises for the column that is wrong
    return _record(row, values)


def _record(row: RowMapping | Mapping[str, Any], values: dict[str, Any]) -> MemoryRecord:
    scope = Scope(*(values.pop(name) for name in SCOPE_NAMES))
    partition = values.pop("partition_key")
    return MemoryRecord(id=row["uid"], row=row["id"], partition=partition or scope.partition, scope=scope, **values)


def _read(row: RowMapping | Mapping[str, Any], name: str) -> Any:
    try:
        return _READERS[name](row[name])
    except DECODING_ERRORS as error:
        raise CorruptValue(f"{name!r} of memory {row['uid']!r:.80}, which can be deleted") from error


def text_of(row: RowMapping) -> str:
    """Returns the text of a row with `uid` and `text`. Raises CorruptValue, which names the memory."""
    return str(_read(row, "text"))


def _checked(column: Column[Any]) -> Callable[[Any], Any]:
    kind = _NUMBERS if column.type.python_type is float else column.type.python_type
    return _optional(kind) if column.nullable else _required(kind)


def _required(kind: type | tuple[type, ...]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if not isinstance(value, kind):
            raise TypeError
        return value

    return read


def _optional(kind: type | tuple[type, ...]) -> Callable[[Any], Any]:
    return _required((*(kind if isinstance(kind, tuple) else (kind,)), type(None)))


def _ordered_runs(places: Mapping[str, int] | None) -> tuple[str, ...]:
    return () if places is None else tuple(sorted(places, key=places.__getitem__))


_NUMBERS = (float, int)
# The fields of a record, by the column that each is read from, with the function that reads it.
_READERS: dict[str, Callable[[Any], Any]] = {
    **{name: _checked(memories.c[name]) for name in (*SCOPE_NAMES, *PLAIN_COLUMNS, "seq")},
    **dict.fromkeys(TIME_COLUMNS, from_micros),
    **dict.fromkeys(OPTIONAL_TIME_COLUMNS, optional_from_micros),
    "partition_key": _required(str),
    "kind": Kind,
    "layer": Layer,
    "further_runs": _ordered_runs,
    "attachments": lambda rows: () if rows is None else attachments.decode_all(rows),
}
# What stands for a value that cannot be read in a memory that is erased; None for all others.
_UNREAD: dict[str, Any] = {
    **{name: memories.c[name].type.python_type() for name in (*PLAIN_COLUMNS, "seq") if not memories.c[name].nullable},
    **dict.fromkeys(TIME_COLUMNS, EPOCH),
    "kind": Kind.EPISODE,
    "layer": Layer.SHORT_TERM,
    "further_runs": (),
    "attachments": (),
}


def records_to_erase(connection: Connection, uids: Sequence[str]) -> list[MemoryRecord]:
    """Returns the memories with these ids, in their order, to be erased; unknown ids are left out.

    A damaged one has what can be read of it, and else neutral values.
    """
    try:
        found = records(connection, uids)
    except (CorruptValue, OperationalError) as error:
        if not is_of_a_value(error):
            raise
        ids = _ROWS_BY_ID, {"uids": list(uids)}
        found = {uid: _record_in_parts(connection, uid, row) for uid, row in connection.execute(*ids).all()}
    return [found[uid] for uid in uids if uid in found]


def _record_in_parts(connection: Connection, uid: str, row_id: int) -> MemoryRecord:
    """Reads each column of a memory by itself: the driver gives no row of which it cannot decode a text."""
    identity, values = {"uid": uid, "id": row_id}, dict[str, Any]()
    for name in _READERS:
        try:
            column = _RECORD_BY_ID.with_only_columns(RECORD.selected_columns[name], maintain_column_froms=True)
            value = connection.scalar(column, {"uid": uid})
            values[name] = _read({**identity, name: value}, name)
        except (CorruptValue, OperationalError) as error:
            if not is_of_a_value(error):
                raise
            values[name] = _UNREAD.get(name)
    return _record(identity, values)
