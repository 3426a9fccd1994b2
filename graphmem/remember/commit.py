"""The one writer: carries out a plan in one transaction: rows, events, change numbers, tasks."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import singledispatch
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, or_

from graphmem.errors import NotFoundError, ValidationError
from graphmem.model import Kind, MemoryRecord
from graphmem.remember import naming
from graphmem.remember.plan import (
    Enrich,
    Erase,
    Erased,
    Naming,
    Outcome,
    Plan,
    Renew,
    Restore,
    Retire,
    Revise,
    Say,
    Step,
    Unset,
)
from graphmem.stores.ledger import Ledger, aliases, graph, log, memories, statistics
from graphmem.stores.ledger.schema import links, set_aside, tasks
from graphmem.stores.ledger.schema import memories as memories_table
from graphmem.text import is_passage

NOT_FOUND = "no memory {id!r} in this scope; `search` and `get_all` give the ids that exist"


def commit(ledger: Ledger, plan: Plan, session_gap: timedelta) -> list[Outcome]:
    """Carries out every step, or none.

    Returns one outcome for each step, in order. Raises NotFoundError for an id that is not there (or outside
    `plan.within`), ValidationError for a message id that comes with other words, StoreUnavailable.
    """
    with ledger.write() as connection:
        transaction = _Transaction(connection, plan, session_gap)
        outcomes = [carry_out(step, transaction) for step in plan.steps]
        for space in transaction.erased_in:
            naming.forget(connection, space)
        return outcomes


class _Transaction:
    """One plan being carried out on one connection."""

    def __init__(self, connection: Connection, plan: Plan, session_gap: timedelta) -> None:
        self.connection = connection
        self.now = plan.now
        self.within = plan.within
        self.session_gap = session_gap
        self.erased_in: set[int] = set()

    def find(self, uid: str) -> MemoryRecord:
        record = memories.find(self.connection, uid)
        if record is None or (self.within is not None and not self.within.sees(record.scope)):
            raise NotFoundError(NOT_FOUND.format(id=uid))
        return record

    def next_change(self) -> int:
        return log.next_change(self.connection)

    def space(self, record: MemoryRecord) -> int:
        return memories.ensure_space(self.connection, record.space)

    def touch_successor(self, record: MemoryRecord) -> None:
        """The episode after this one has another predecessor now: the projections must hear of it."""
        after = memories.neighbour(self.connection, record, self.space(record), later=True)
        if after is not None:
            memories.touch(self.connection, after.row, self.next_change())

    def record_event(self, event: str, record: MemoryRecord, **named: Any) -> None:
        log.add_event(self.connection, event, record, now=self.now, **named)


@singledispatch
def carry_out(step: Step, transaction: _Transaction) -> Outcome:
    """Carries out one step."""
    raise NotImplementedError(type(step).__name__)


@carry_out.register
def _(step: Say, transaction: _Transaction) -> Outcome:
    connection = transaction.connection
    known = None if step.key is None else log.said_before(connection, step.key)
    if known is not None:
        return _said_again(step, transaction, *known)
    record = _episode(step, transaction)
    record = replace(record, row=memories.insert(connection, record, transaction.space(record)))
    transaction.touch_successor(record)
    transaction.record_event("ADD", record, new=record.text)
    if step.key is not None:
        log.note_message(connection, step.key, record.id, step.words)
    log.owe(connection, record.row, record.version)
    return Outcome("ADD", record.id, record=record)


def _said_again(step: Say, transaction: _Transaction, memory: str, words: str | None) -> Outcome:
    if words is None:
        return Outcome("NONE", memory, reason="erased")
    if words != step.words:
        raise ValidationError(
            f"messages: id {step.message.id!r} was stored in this scope with other words; "
            "give the new message an id of its own, or correct the memory with update()"
        )
    return Outcome("NONE", memory, record=memories.find(transaction.connection, memory), reason="known")


def _episode(step: Say, transaction: _Transaction) -> MemoryRecord:
    message, scope, now = step.message, step.scope, transaction.now
    return MemoryRecord(
        id=str(uuid4()),
        space=scope.space,
        scope=scope,
        kind=Kind.EPISODE,
        text=message.content,
        at=message.at,
        valid_from=message.at,
        created_at=now,
        updated_at=now,
        session=_session(step, transaction),
        expires_at=step.expires_at,
        memory_type=step.memory_type,
        metadata=step.metadata,
        speaker=step.speaker,
        actor_id=message.name,
        role=message.role,
        message_id=message.id,
        change=transaction.next_change(),
    )


def _session(step: Say, transaction: _Transaction) -> str:
    if step.scope.run_id is not None:
        return step.scope.run_id
    if step.message.name is None and is_passage(step.message.content):
        # A document among other documents: what was imported before it is not what was said before it.
        return f"{memories.ALONE}{uuid4()}"
    connection = transaction.connection
    space = memories.ensure_space(connection, step.scope.space)
    near = memories.session_near(connection, space, step.scope, step.message.at, transaction.session_gap)
    return near or str(uuid4())


@carry_out.register
def _(step: Enrich, transaction: _Transaction) -> Outcome:
    connection = transaction.connection
    record = memories.find(connection, step.id)
    if record is None or record.version != step.version:
        return Outcome("NONE", step.id, reason="changed since")
    if not log.paid(connection, record.row, step.version):
        return Outcome("NONE", step.id, record=record, reason="done already")
    windows = statistics.keep(connection, step.forms, step.text_hash, step.embedded)
    if not windows:
        # The last other user of these vectors was erased while this was computed: they must be computed anew.
        log.owe(connection, record.row, record.version)
        return Outcome("NONE", step.id, record=record, reason="vectors erased since")
    record = replace(record, change=transaction.next_change())
    space = transaction.space(record)
    memories.touch(connection, record.row, record.change)
    statistics.mark_enriched(connection, record, step.text_hash, windows, step.found.tells)
    statistics.count_text(connection, record, space, 1)
    graph.add(connection, record, space, step.found)
    naming.find(connection, space, step.found, transaction.now, is_passage=is_passage(record.text))
    return Outcome("ENRICH", record.id, kind=record.kind, record=record)


def _strip(record: MemoryRecord, transaction: _Transaction) -> Erased:
    """Takes out everything that was derived from a memory's words."""
    connection = transaction.connection
    text_hash, windows = statistics.enrichment(connection, record.row)
    if text_hash is None:
        return Erased()
    space, keys = transaction.space(record), aliases.mentioned_by(connection, record.row)
    withdrawn = graph.withdraw(connection, record, transaction.now)
    naming.review(connection, space, keys)
    statistics.count_text(connection, record, space, -1)
    vectors = statistics.drop_vectors(connection, text_hash)
    statistics.unmark(connection, record.row)
    parts = withdrawn.mentions + withdrawn.entities + withdrawn.relations
    return Erased(points=windows, graph=parts, derived=vectors)


@carry_out.register
def _(step: Renew, transaction: _Transaction) -> Outcome:
    record = transaction.find(step.id)
    _strip(record, transaction)
    memories.touch(transaction.connection, record.row, transaction.next_change())
    log.owe(transaction.connection, record.row, record.version)
    return Outcome("NONE", record.id, kind=record.kind, record=record, reason="to be derived anew")


@carry_out.register
def _(step: Revise, transaction: _Transaction) -> Outcome:
    record = transaction.find(step.id)
    revised = _revised(record, step)
    if revised == record:
        return Outcome("NONE", record.id, kind=record.kind, record=record, reason="nothing to change")
    if revised.text != record.text:
        _strip(record, transaction)
        revised = replace(revised, version=record.version + 1)
        log.owe(transaction.connection, record.row, revised.version)
    revised = _store(revised, transaction)
    before = memories.columns_of(record)
    transaction.record_event("UPDATE", revised, old=record.text, new=revised.text, before=before, reason=step.reason)
    return Outcome("UPDATE", record.id, kind=record.kind, record=revised, previous=record.text)


def _revised(record: MemoryRecord, step: Revise) -> MemoryRecord:
    return replace(
        record,
        text=record.text if step.text is None else step.text,
        metadata=record.metadata if step.metadata is None else dict(step.metadata),
        expires_at=record.expires_at if isinstance(step.expires_at, Unset) else step.expires_at,
    )


def _store(record: MemoryRecord, transaction: _Transaction) -> MemoryRecord:
    record = replace(record, updated_at=transaction.now, change=transaction.next_change())
    memories.update(transaction.connection, record)
    return record


@carry_out.register
def _(step: Retire, transaction: _Transaction) -> Outcome:
    record = transaction.find(step.id)
    if record.valid_to is not None:
        return Outcome("NONE", record.id, kind=record.kind, record=record, reason="retired already")
    if step.at < record.at:
        return Outcome("NONE", record.id, kind=record.kind, record=record, reason="older than what it would retire")
    before = memories.columns_of(record)
    retired = _store(replace(record, valid_to=step.at), transaction)
    graph.date_supports(transaction.connection, retired)
    if step.successor is not None:
        successor = transaction.find(step.successor)
        values = {"memory": successor.row, "kind": "replaces", "other": record.row}
        transaction.connection.execute(links.insert().values(values))
    transaction.record_event("RETIRE", retired, old=record.text, new=record.text, before=before, reason=step.reason)
    return Outcome("RETIRE", record.id, kind=record.kind, record=retired, reason=step.reason)


@carry_out.register
def _(step: Restore, transaction: _Transaction) -> Outcome:
    record = transaction.find(step.id)
    if record.valid_to is None:
        return Outcome("NONE", record.id, kind=record.kind, record=record, reason="not retired")
    before = memories.columns_of(record)
    restored = _store(replace(record, valid_to=None), transaction)
    graph.date_supports(transaction.connection, restored)
    transaction.connection.execute(links.delete().where(links.c.other == record.row, links.c.kind == "replaces"))
    transaction.record_event("RESTORE", restored, old=record.text, new=record.text, before=before, reason=step.reason)
    return Outcome("RESTORE", record.id, kind=record.kind, record=restored, reason=step.reason)


@carry_out.register
def _(step: Erase, transaction: _Transaction) -> Outcome:
    if step.if_there and memories.find(transaction.connection, step.id) is None:
        return Outcome("NONE", step.id, reason="not there")
    record = transaction.find(step.id)
    connection = transaction.connection
    sources = [found for found in memories.linked(connection, record.row, "drawn_from") if found.source_only]
    drawn = memories.linking(connection, record.row, "drawn_from")
    summaries = [found for found in drawn if found.kind is Kind.SUMMARY]
    erased = _erase(record, transaction)
    for other in (*sources, *summaries):
        erased += _erase(other, transaction)
    return Outcome("DELETE", record.id, kind=record.kind, record=record, previous=record.text, erased=erased)


@carry_out.register
def _(step: Naming, transaction: _Transaction) -> Outcome:
    return Outcome("NAME", naming.settle(transaction.connection, step, transaction.now))


def _erase(record: MemoryRecord, transaction: _Transaction) -> Erased:
    """Takes one memory out; its history keeps that it was, without the words."""
    connection, row = transaction.connection, record.row
    stripped = _strip(record, transaction)
    transaction.erased_in.add(transaction.space(record))
    connection.execute(links.delete().where(or_(links.c.memory == row, links.c.other == row)))
    connection.execute(tasks.delete().where(tasks.c.memory == row))
    connection.execute(set_aside.delete().where(set_aside.c.memory == record.id))
    transaction.touch_successor(record)
    change = transaction.next_change()
    transaction.record_event("DELETE", replace(record, change=change))
    log.forget_content(connection, record.id)
    log.bury(connection, "memory", record.id, record.space, record.scope, transaction.now, change)
    connection.execute(memories_table.delete().where(memories_table.c.id == row))
    return stripped + Erased(ids=(record.id,), rows=1, graph=1)
