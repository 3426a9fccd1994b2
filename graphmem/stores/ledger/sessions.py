"""Reads a session's messages and running summary, and a partition's facts, for the jobs about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Select, bindparam, func, select

from graphmem.model import Kind, MemoryRecord, Scope, micros
from graphmem.stores.ledger.memories import RECORD, decode_record, exact_scope
from graphmem.stores.ledger.schema import links, memories, partitions

# The memory type of a summary that describes a procedure, unlike the running summary of a session.
PROCEDURAL = "procedural"
_IS_RUNNING = memories.c.memory_type.is_distinct_from(PROCEDURAL)


def _of_session(kind: Kind, scope: Scope, session: str) -> Select[Any]:
    m = memories.c
    return RECORD.where(
        partitions.c.key == scope.partition, m.session == session, m.kind == kind.value, *exact_scope(memories, scope)
    )


def preceding_messages(connection: Connection, record: MemoryRecord, limit: int) -> list[MemoryRecord]:
    """Returns the last `limit` episodes before a memory, of its session and exactly its scope, oldest first."""
    m = memories.c
    earlier = _of_session(Kind.EPISODE, record.scope, record.session).where(
        m.at <= micros(record.at), m.id < record.row
    )
    newest_first = connection.execute(earlier.order_by(m.at.desc(), m.id.desc()).limit(limit)).mappings()
    return [decode_record(row) for row in newest_first][::-1]


def last_episodes(connection: Connection, scope: Scope, limit: int) -> list[MemoryRecord]:
    """Returns the last `limit` episodes that were written under exactly this scope, in order of time."""
    m = memories.c
    of_scope = RECORD.where(
        partitions.c.key == scope.partition, m.kind == Kind.EPISODE.value, *exact_scope(memories, scope)
    )
    newest_first = connection.execute(of_scope.order_by(m.at.desc(), m.id.desc()).limit(limit)).mappings()
    return [decode_record(row) for row in newest_first][::-1]


def session_episodes(connection: Connection, scope: Scope, session: str, after: int, limit: int) -> list[MemoryRecord]:
    """Returns the first `limit` episodes stored after a row, of a session in exactly this scope, in order of time."""
    m = memories.c
    # The first by row: the rest has higher rows, whatever its time.
    statement = _of_session(Kind.EPISODE, scope, session).where(m.id > after).order_by(m.id).limit(limit)
    records = [decode_record(row) for row in connection.execute(statement).mappings()]
    return sorted(records, key=lambda record: (record.at, record.row))


def has_episodes(connection: Connection, scope: Scope, session: str, number: int, after: int = 0) -> bool:
    """Returns whether `number` episodes or more of a session in exactly this scope were stored after a row."""
    statement = _of_session(Kind.EPISODE, scope, session).where(memories.c.id > after).offset(number - 1).limit(1)
    return connection.scalar(statement.with_only_columns(memories.c.id)) is not None


def summary_of(connection: Connection, scope: Scope, session: str) -> MemoryRecord | None:
    """Returns the running summary of a session in exactly this scope, or None."""
    newest = _of_session(Kind.SUMMARY, scope, session).where(_IS_RUNNING).order_by(memories.c.id.desc()).limit(1)
    row = connection.execute(newest).mappings().first()
    return None if row is None else decode_record(row)


def latest_summary(connection: Connection, scope: Scope) -> MemoryRecord | None:
    """Returns the most recently updated running summary of any session of the same user and agent, in any run, or None.

    If the scope names a run only, the sessions are those of that run.
    """
    m = memories.c
    same_owner = [m[name].is_not_distinct_from(getattr(scope, name)) for name in ("user_id", "agent_id")]
    statement = RECORD.where(
        partitions.c.key == scope.partition,
        m.kind == Kind.SUMMARY.value,
        m.valid_to.is_(None),
        _IS_RUNNING,
        *same_owner,
    )
    row = connection.execute(statement.order_by(m.updated_at.desc(), m.id.desc()).limit(1)).mappings().first()
    return None if row is None else decode_record(row)


def last_summarised_row(connection: Connection, summary: MemoryRecord | None) -> int:
    """Returns the row of the last message that a summary covers; 0 without a summary."""
    if summary is None:
        return 0
    last_row = select(func.max(links.c.other)).where(links.c.memory == summary.row, links.c.kind == "drawn_from")
    return connection.scalar(last_row) or 0


def facts_since(connection: Connection, partition: str, seq: int) -> list[int]:
    """Returns the rows of a partition's facts that were stored or changed after a sequence number."""
    m = memories.c
    statement = (
        select(m.id)
        .join(partitions)
        .where(m.seq > bindparam("after"), partitions.c.key == bindparam("partition"), m.kind == Kind.FACT.value)
    )
    return list(connection.scalars(statement, {"after": seq, "partition": partition}))


def facts_with_text(connection: Connection, partition: str, texts: Sequence[str]) -> list[MemoryRecord]:
    """Returns a partition's valid facts with exactly one of these texts."""
    m = memories.c
    statement = RECORD.where(
        partitions.c.key == partition, m.kind == Kind.FACT.value, m.valid_to.is_(None), m.text.in_(list(texts))
    ).order_by(m.id)
    return [decode_record(row) for row in connection.execute(statement).mappings()]
