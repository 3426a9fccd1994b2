"""Messages and summaries of a session, and facts of a partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Select, bindparam, func, select

from graphmem.model import Kind, MemoryRecord, Scope, micros
from graphmem.stores.ledger.memories import RECORD, decode_record, exact_scope
from graphmem.stores.ledger.schema import links, memories, partitions

# The memory type of a summary that tells a procedure, and is no session's running summary.
PROCEDURAL = "procedural"
_RUNNING = memories.c.memory_type.is_distinct_from(PROCEDURAL)


def _of_session(kind: Kind, scope: Scope, session: str) -> Select[Any]:
    """The memories of a kind in a session, in exactly this scope."""
    m = memories.c
    return RECORD.where(
        partitions.c.key == scope.partition, m.session == session, m.kind == kind.value, *exact_scope(memories, scope)
    )


def preceding_messages(connection: Connection, record: MemoryRecord, limit: int) -> list[MemoryRecord]:
    """The last messages of a memory's session, in its scope, before it, oldest first."""
    m = memories.c
    earlier = _of_session(Kind.EPISODE, record.scope, record.session).where(
        m.at <= micros(record.at), m.id < record.row
    )
    found = connection.execute(earlier.order_by(m.at.desc(), m.id.desc()).limit(limit)).mappings()
    return [decode_record(row) for row in found][::-1]


def session_episodes(connection: Connection, scope: Scope, session: str, after: int, limit: int) -> list[MemoryRecord]:
    """The first messages of a session in exactly this scope stored after a row, in the order of their telling."""
    m = memories.c
    # The first by row: what is left has higher ones, whenever it was told.
    statement = _of_session(Kind.EPISODE, scope, session).where(m.id > after).order_by(m.id).limit(limit)
    found = [decode_record(row) for row in connection.execute(statement).mappings()]
    return sorted(found, key=lambda record: (record.at, record.row))


def has_episodes(connection: Connection, scope: Scope, session: str, number: int, after: int = 0) -> bool:
    """Whether so many of a session's messages in exactly this scope were stored after a row."""
    some = _of_session(Kind.EPISODE, scope, session).where(memories.c.id > after).offset(number - 1).limit(1)
    return connection.scalar(some.with_only_columns(memories.c.id)) is not None


def summary_of(connection: Connection, scope: Scope, session: str) -> MemoryRecord | None:
    """The running summary of a session in exactly this scope."""
    newest = _of_session(Kind.SUMMARY, scope, session).where(_RUNNING).order_by(memories.c.id.desc()).limit(1)
    row = connection.execute(newest).mappings().first()
    return None if row is None else decode_record(row)


def latest_summary(connection: Connection, scope: Scope) -> MemoryRecord | None:
    """The running summary that was made or renewed last of any session of the same user and agent, whatever the run.

    Of a scope by run alone only one of that run.
    """
    m = memories.c
    mine = [m[name].is_not_distinct_from(getattr(scope, name)) for name in ("user_id", "agent_id")]
    statement = RECORD.where(
        partitions.c.key == scope.partition, m.kind == Kind.SUMMARY.value, m.valid_to.is_(None), _RUNNING, *mine
    )
    row = connection.execute(statement.order_by(m.updated_at.desc(), m.id.desc()).limit(1)).mappings().first()
    return None if row is None else decode_record(row)


def last_summarised_row(connection: Connection, summary: MemoryRecord | None) -> int:
    """The row of the last message that a summary covers; 0: none."""
    if summary is None:
        return 0
    covered = select(func.max(links.c.other)).where(links.c.memory == summary.row, links.c.kind == "drawn_from")
    return connection.scalar(covered) or 0


def facts_since(connection: Connection, partition: str, seq: int) -> list[int]:
    """Rows of the facts of a partition that were stored or changed after a sequence number."""
    m = memories.c
    statement = (
        select(m.id)
        .join(partitions)
        .where(m.seq > bindparam("seen"), partitions.c.key == bindparam("partition"), m.kind == Kind.FACT.value)
    )
    return list(connection.scalars(statement, {"seen": seq, "partition": partition}))


def facts_with_text(connection: Connection, partition: str, texts: Sequence[str]) -> list[MemoryRecord]:
    """The facts of a partition that are worded exactly so."""
    m = memories.c
    statement = RECORD.where(
        partitions.c.key == partition, m.kind == Kind.FACT.value, m.valid_to.is_(None), m.text.in_(list(texts))
    ).order_by(m.id)
    return [decode_record(row) for row in connection.execute(statement).mappings()]
