"""Reads a session's messages and running summary, and a partition's facts, for the jobs about them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Select, bindparam, func, or_, select

from graphmem.model import SCOPE_NAMES, Kind, MemoryRecord, SaidMessage, Scope, micros
from graphmem.stores.ledger.memories import RECORD, SINGLE_SESSION, decode_record, exact_scope
from graphmem.stores.ledger.schema import links, memories, partitions
from graphmem.stores.ledger.sequence import Extent

# The memory types of summaries that are no running summary of a session: the record of a procedure, and what the
# lifecycle makes of many events.
PROCEDURAL, OF_EVENTS = "procedural", "semantic"
_IS_RUNNING = func.coalesce(memories.c.memory_type, "").not_in([PROCEDURAL, OF_EVENTS])
_VERSIONS = select(memories.c.id, memories.c.version).join(partitions)


def _current(kind: Kind, scope: Scope) -> Select[Any]:
    """Selects the memories of a kind in a scope's partition that have neither expired nor been forgotten."""
    m, now = memories.c, micros(datetime.now(UTC))
    is_current = (or_(end.is_(None), end > now) for end in (m.expires_at, m.forgotten_at))
    return RECORD.where(partitions.c.key == scope.partition, m.kind == kind.value, *is_current)


def _of_session(kind: Kind, scope: Scope, session: str) -> Select[Any]:
    return _current(kind, scope).where(memories.c.session == session, *exact_scope(memories, scope))


def _of_owner(kind: Kind, scope: Scope) -> Select[Any]:
    """Selects the memories of the same user and agent, in any run; of the same run, if the scope names neither."""
    same_owner = [memories.c[name].is_not_distinct_from(getattr(scope, name)) for name in ("user_id", "agent_id")]
    return _current(kind, scope).where(*same_owner)


def _last(connection: Connection, statement: Select[Any], limit: int) -> list[MemoryRecord]:
    newest_first = statement.order_by(memories.c.at.desc(), memories.c.id.desc()).limit(limit)
    return [decode_record(row) for row in connection.execute(newest_first).mappings().all()][::-1]


def messages_before(connection: Connection, record: MemoryRecord, limit: int) -> list[MemoryRecord]:
    """Returns the last `limit` episodes before a memory, all of one session and scope, oldest first.

    They are of the memory's own session or, if it is the first there, of the session that the same user and agent had
    last, in any run (of a scope that names a run only, in this run). A passage of a document has none but those of its
    document, and is never before a message.
    """
    before = (memories.c.at <= micros(record.at), memories.c.id < record.row)
    own = _last(connection, _of_session(Kind.EPISODE, record.scope, record.session).where(*before), limit)
    if own or record.session.startswith(SINGLE_SESSION):
        return own
    of_talks = _of_owner(Kind.EPISODE, record.scope).where(*before, memories.c.session.not_like(f"{SINGLE_SESSION}%"))
    for last in _last(connection, of_talks, 1):
        return _last(connection, _of_session(Kind.EPISODE, last.scope, last.session).where(*before), limit)
    return []


def begins_sitting(record: MemoryRecord | SaidMessage, last: MemoryRecord | SaidMessage, gap: timedelta) -> bool:
    """Returns whether a message begins a new sitting, if `last` is the message before it.

    It does in another session and, in a run, which may have many sittings, after a pause longer than `gap`.
    """
    return record.session != last.session or record.at - last.at > gap


def last_episodes(connection: Connection, scope: Scope, limit: int) -> list[MemoryRecord]:
    """Returns the last `limit` episodes that were written under exactly this scope, in order of time."""
    of_scope = RECORD.where(
        partitions.c.key == scope.partition, memories.c.kind == Kind.EPISODE.value, *exact_scope(memories, scope)
    )
    return _last(connection, of_scope, limit)


def last_said(connection: Connection, scope: Scope, now: datetime, limit: int) -> list[MemoryRecord]:
    """Returns the last `limit` messages that were said under exactly this scope and are visible, in order of time.

    Passages of documents are none.
    """
    statement = _last_said(tuple(scope.parts), RECORD)
    rows = connection.execute(statement, _said_values(scope, now, limit)).mappings().all()
    return [decode_record(row) for row in rows][::-1]


def versions_last_said(connection: Connection, scope: Scope, now: datetime, limit: int) -> list[tuple[int, int]]:
    """Returns row and version of each message that `last_said` returns, in its order: a fraction of its cost."""
    rows = connection.execute(_last_said(tuple(scope.parts), _VERSIONS), _said_values(scope, now, limit))
    return [(row.id, row.version) for row in rows][::-1]


@lru_cache(maxsize=16)
def _last_said(ids: tuple[str, ...], columns: Select[Any]) -> Select[Any]:
    m = memories.c
    # The index to be read is that of the partition: an agent's or a run's has messages of other users as well.
    in_scope = (m[name].concat("") == bindparam(name) if name in ids else m[name].is_(None) for name in SCOPE_NAMES)
    ends = (m.valid_to, m.expires_at, m.forgotten_at)
    return (
        columns.where(
            partitions.c.key == bindparam("in_partition"),
            m.kind == Kind.EPISODE.value,
            m.session.not_like(f"{SINGLE_SESSION}%"),
            *in_scope,
            *(or_(end.is_(None), end > bindparam("moment")) for end in ends),
        )
        .order_by(m.at.desc(), m.id.desc())
        .limit(bindparam("most"))
    )


def _said_values(scope: Scope, now: datetime, limit: int) -> dict[str, Any]:
    return {"in_partition": scope.partition, "moment": micros(now), "most": limit, **scope.parts}


def session_episodes(
    connection: Connection, scope: Scope, session: str, after: int, limit: int, before: int | None = None
) -> list[MemoryRecord]:
    """Returns the first `limit` episodes stored between two rows, of a session in exactly this scope, in order of time.

    `before` None: there is no later bound.
    """
    # The first by row: the rest has higher rows, whatever its time.
    statement = _between(scope, session, after, before).order_by(memories.c.id).limit(limit)
    records = [decode_record(row) for row in connection.execute(statement).mappings().all()]
    return sorted(records, key=lambda record: (record.at, record.row))


def has_episodes(
    connection: Connection, scope: Scope, session: str, number: int, after: int = 0, before: int | None = None
) -> bool:
    """Returns whether `number` episodes or more of a session in exactly this scope were stored between two rows."""
    statement = _between(scope, session, after, before).offset(number - 1).limit(1)
    return connection.scalar(statement.with_only_columns(memories.c.id)) is not None


def _between(scope: Scope, session: str, after: int, before: int | None) -> Select[Any]:
    later = _of_session(Kind.EPISODE, scope, session).where(memories.c.id > after)
    return later if before is None else later.where(memories.c.id < before)


def summary_of(connection: Connection, scope: Scope, session: str) -> MemoryRecord | None:
    """Returns the running summary of a session in exactly this scope, or None."""
    newest = _of_session(Kind.SUMMARY, scope, session).where(_IS_RUNNING).order_by(memories.c.id.desc()).limit(1)
    row = connection.execute(newest).mappings().first()
    return None if row is None else decode_record(row)


def latest_summary(connection: Connection, scope: Scope, until: datetime) -> MemoryRecord | None:
    """Returns the latest running summary up to a time, of any session of the same user and agent, in any run, or None.

    If the scope names a run only, the sessions are those of that run. The time of a summary is that of its last source
    message: one of an older session that was made anew is not the latest.
    """
    m = memories.c
    statement = _of_owner(Kind.SUMMARY, scope).where(m.valid_to.is_(None), m.at <= micros(until), _IS_RUNNING)
    return next(iter(_last(connection, statement, 1)), None)


def last_summarised_row(connection: Connection, summary: MemoryRecord | None) -> int:
    """Returns the row of the last message that a summary covers; 0 without a summary."""
    if summary is None:
        return 0
    last_row = select(func.max(links.c.other)).where(links.c.memory == summary.row, links.c.kind == "drawn_from")
    return connection.scalar(last_row) or 0


def facts_since(connection: Connection, partition: str, seen: Extent) -> list[int]:
    """Returns the rows of a partition's facts that were stored or changed since a snapshot of this extent."""
    m = memories.c
    statement = (
        select(m.id, m.seq)
        .join(partitions)
        .where(m.seq > bindparam("after"), partitions.c.key == bindparam("partition"), m.kind == Kind.FACT.value)
    )
    changed = connection.execute(statement, {"after": seen.last, "partition": partition})
    return [row for row, seq in changed if seq not in seen.ahead]


def facts_with_text(connection: Connection, partition: str, texts: Sequence[str]) -> list[MemoryRecord]:
    """Returns a partition's valid facts with exactly one of these texts."""
    m = memories.c
    statement = RECORD.where(
        partitions.c.key == partition, m.kind == Kind.FACT.value, m.valid_to.is_(None), m.text.in_(list(texts))
    ).order_by(m.id)
    return [decode_record(row) for row in connection.execute(statement).mappings().all()]
