"""The one writer: carries out a plan in one transaction: rows, events, change numbers, tasks."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from functools import singledispatch
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, or_

from graphmem.digests import Digests
from graphmem.errors import NotFoundError, ValidationError
from graphmem.model import Kind, MemoryRecord, Scope
from graphmem.remember import dim, naming, receive, settle, undo
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
    Settling,
    Step,
    Taking,
    Undo,
    Unset,
)
from graphmem.stores.ledger import Ledger, aliases, graph, log, memories, statistics
from graphmem.stores.ledger.schema import links, set_aside, tasks
from graphmem.stores.ledger.schema import memories as memories_table
from graphmem.text import is_passage

NOT_FOUND = "no memory {id!r:.80} in this scope; `search` and `get_all` give the ids that exist"


def commit(ledger: Ledger, plan: Plan, session_gap: timedelta) -> list[Outcome]:
    """Carries out every step, or none.

    Returns one outcome for each step, in order. Raises NotFoundError for an id that is not there (or outside
    `plan.within`), ValidationError for a message id that comes with other words, StoreUnavailable.
    """
    with ledger.write() as connection:
        transaction = Transaction(connection, ledger.digests, plan, session_gap)
        outcomes = [carry_out(step, transaction) for step in plan.steps]
        for space in transaction.unsure_in:
            naming.forget(connection, space)
        return outcomes


class Transaction:
    """One plan being carried out on one connection."""

    def __init__(self, connection: Connection, digests: Digests, plan: Plan, session_gap: timedelta) -> None:
        self.connection = connection
        self.digests = digests
        self.now = plan.now
        self.within = plan.within
        self.session_gap = session_gap
        # Spaces where something may be said of names that no memory mentions (any more).
        self.unsure_in: set[int] = set()
        # Messages stored by this plan that facts will be drawn from.
        self.said: list[MemoryRecord] = []
        self._spaces: dict[str, int] = {}

    def find(self, uid: str) -> MemoryRecord:
        record = memories.find(self.connection, uid)
        if record is None or (self.within is not None and not record.is_in(self.within)):
            raise NotFoundError(NOT_FOUND.format(id=uid))
        return record

    def next_change(self) -> int:
        return log.next_change(self.connection)

    def space(self, of: MemoryRecord | Scope) -> int:
        """The row of a space, made if need be; asked for once, for on a server each question is a round trip."""
        if of.space not in self._spaces:
            self._spaces[of.space] = memories.ensure_space(self.connection, of.space)
        return self._spaces[of.space]

    def session(self, scope: Scope, at: datetime, name: str | None, content: str, document: str | None = None) -> str:
        """The session of what was said then, by whoever that is, or of a part of a document."""
        if name is None and is_passage(content):
            # A document among other documents: what was imported before it is not what was said before it.
            return f"{memories.ALONE}{uuid4()}"
        if document is not None:
            return f"{memories.ALONE}{document}"
        if scope.run_id is not None:
            return scope.run_id
        near = memories.session_near(self.connection, self.space(scope), scope, at, self.session_gap)
        return near or str(uuid4())

    def join(self, record: MemoryRecord) -> None:
        """A new episode steps before the one that was said after it, if any."""
        after = memories.first_after(self.connection, record, self.space(record))
        if after is not None:
            memories.follow(self.connection, after, record.row, self.next_change())

    def leave(self, record: MemoryRecord) -> None:
        """The episode after one that goes has the one before that before it now."""
        after = memories.follower(self.connection, record.row)
        if after is not None:
            before = memories.previous(self.connection, record.row)
            memories.follow(self.connection, after, before, self.next_change())

    def record_event(self, event: str, record: MemoryRecord, **named: Any) -> None:
        log.add_event(self.connection, event, record, now=self.now, **named)


@singledispatch
def carry_out(step: Step, transaction: Transaction) -> Outcome:
    """Carries out one step."""
    raise NotImplementedError(type(step).__name__)


@carry_out.register
def _(step: Say, transaction: Transaction) -> Outcome:
    connection = transaction.connection
    known = None if step.key is None else log.said_before(connection, step.key)
    if known is not None:
        return _said_again(step, transaction, *known)
    record = _episode(step, transaction)
    record = replace(record, row=memories.insert(connection, record, transaction.space(record)))
    transaction.join(record)
    transaction.record_event("ADD", record, new=record.text)
    if step.key is not None:
        log.note_message(connection, step.key, record.id, step.words)
    log.owe(connection, record.row, record.version)
    if record.source_only:
        transaction.said.append(record)
    return Outcome("ADD", record.id, record=record)


def _said_again(step: Say, transaction: Transaction, memory: str, words: str | None) -> Outcome:
    if words is None:
        return Outcome("NONE", memory, reason="erased")
    if words != step.words:
        raise ValidationError(
            f"messages: id {step.message.id!r} was stored in this scope with other words; "
            "give the new message an id of its own, or correct the memory with update()"
        )
    return Outcome("NONE", memory, record=memories.find(transaction.connection, memory), reason="known")


def _episode(step: Say, transaction: Transaction) -> MemoryRecord:
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
        session=transaction.session(scope, message.at, message.name, message.content, message.document),
        expires_at=step.expires_at,
        memory_type=step.memory_type,
        metadata=step.metadata,
        speaker=step.speaker,
        actor_id=message.name,
        role=message.role,
        message_id=message.id,
        source_only=step.source_only,
        change=transaction.next_change(),
    )


@carry_out.register
def _(step: Enrich, transaction: Transaction) -> Outcome:
    connection = transaction.connection
    record = memories.find(connection, step.id)
    if record is None or record.version != step.version:
        return Outcome("NONE", step.id, reason="changed since")
    if not log.paid(connection, record.row, step.version):
        return Outcome("NONE", step.id, record=record, reason="done already")
    space, tells = transaction.space(record), step.found.tells
    if not statistics.enrich(connection, record, space, step.forms, step.text_hash, step.embedded, tells):
        # The last other user of these vectors was erased while this was computed: they must be computed anew.
        log.owe(connection, record.row, record.version)
        return Outcome("NONE", step.id, record=record, reason="vectors erased since")
    record = replace(record, change=transaction.next_change())
    memories.touch(connection, record.row, record.change)
    if not graph.holds(connection, record.row):
        graph.add(connection, record, space, step.found)
        naming.find(connection, space, step.found, transaction.now, is_passage=is_passage(record.text))
    return Outcome("ENRICH", record.id, kind=record.kind, record=record)


def _strip(record: MemoryRecord, transaction: Transaction, *, graph_too: bool = True) -> Erased:
    """Takes out what was derived from a memory's words: vectors and counts, and what they mention and state."""
    connection = transaction.connection
    text_hash, windows = statistics.enrichment(connection, record.row)
    space = transaction.space(record)
    parts = _withdraw(record, space, transaction) if graph_too else 0
    if text_hash is None:
        return Erased(graph=parts)
    statistics.count_text(connection, record, space, -1)
    vectors = statistics.drop_vectors(connection, text_hash)
    statistics.unmark(connection, record.row)
    return Erased(points=windows, graph=parts, derived=vectors)


def _withdraw(record: MemoryRecord, space: int, transaction: Transaction) -> int:
    """Takes a memory out of the graph; returns how many parts that were."""
    keys = aliases.mentioned_by(transaction.connection, record.row)
    withdrawn = graph.withdraw(transaction.connection, record, transaction.now, transaction.digests)
    naming.review(transaction.connection, space, keys)
    return withdrawn.mentions + withdrawn.entities + withdrawn.relations


@carry_out.register
def _(step: Renew, transaction: Transaction) -> Outcome:
    record = transaction.find(step.id)
    # What a language model found is kept: no extractor would find it again.
    _strip(record, transaction, graph_too=record.kind is not Kind.FACT)
    memories.touch(transaction.connection, record.row, transaction.next_change())
    log.owe(transaction.connection, record.row, record.version)
    return Outcome("NONE", record.id, kind=record.kind, record=record, reason="to be derived anew")


@carry_out.register
def _(step: Revise, transaction: Transaction) -> Outcome:
    record = transaction.find(step.id)
    if _revised(record, step) == record:
        return Outcome("NONE", record.id, kind=record.kind, record=record, reason="nothing to change")
    sources = settle.sources_of(step.sources, transaction)
    if sources is None:
        return Outcome("NONE", record.id, kind=record.kind, record=record, reason=settle.ERASED)
    if step.scope is not None:
        record = settle.said_in(step.scope, record, transaction)
    revised = _revised(record, step)
    before = {**memories.columns_of(record), **dim.marks(transaction, record)}
    if revised.text != record.text:
        before |= undo.derived_from(record, transaction)
        _strip(record, transaction)
        revised = replace(revised, version=record.version + 1)
        log.owe(transaction.connection, record.row, revised.version)
        if step.found is not None:
            graph.add(transaction.connection, revised, transaction.space(revised), step.found)
    revised = _store(revised, transaction)
    dim.reword(transaction, record, revised, corrects=step.corrects)
    settle.draw(revised, sources, transaction)
    transaction.record_event("UPDATE", revised, old=record.text, new=revised.text, before=before, reason=step.reason)
    return Outcome("UPDATE", record.id, kind=record.kind, record=revised, previous=record.text)


def _revised(record: MemoryRecord, step: Revise) -> MemoryRecord:
    return replace(
        record,
        text=record.text if step.text is None else step.text,
        metadata=record.metadata if step.metadata is None else dict(step.metadata),
        expires_at=record.expires_at if isinstance(step.expires_at, Unset) else step.expires_at,
    )


def _store(record: MemoryRecord, transaction: Transaction) -> MemoryRecord:
    record = replace(record, updated_at=transaction.now, change=transaction.next_change())
    memories.update(transaction.connection, record)
    return record


@carry_out.register
def _(step: Retire, transaction: Transaction) -> Outcome:
    record = transaction.find(step.id)
    if record.valid_to is not None:
        return Outcome("NONE", record.id, kind=record.kind, record=record, reason="retired already")
    if settle.sources_of(step.sources, transaction) is None:
        return Outcome("NONE", record.id, kind=record.kind, record=record, reason=settle.ERASED)
    if step.at < max(record.at, record.valid_from):  # an import may bring one that holds only from later on
        return Outcome("NONE", record.id, kind=record.kind, record=record, reason="older than what it would retire")
    before = memories.columns_of(record)
    retired = _store(replace(record, valid_to=step.at), transaction)
    graph.end_supports(transaction.connection, retired, step.at)
    dim.settle(transaction, retired, step.at)
    if step.successor is not None:
        successor = transaction.find(step.successor)
        memories.link(transaction.connection, successor.row, "replaces", record.row)
        memories.touch(transaction.connection, successor.row, transaction.next_change())
    transaction.record_event("RETIRE", retired, old=record.text, new=record.text, before=before, reason=step.reason)
    return Outcome("RETIRE", record.id, kind=record.kind, record=retired, reason=step.reason, successor=step.successor)


@carry_out.register
def _(step: Restore, transaction: Transaction) -> Outcome:
    record = transaction.find(step.id)
    if record.valid_to is None:
        return Outcome("NONE", record.id, kind=record.kind, record=record, reason="not retired")
    before = memories.columns_of(record)
    restored = _store(replace(record, valid_to=None), transaction)
    graph.reopen_supports(transaction.connection, restored, record.valid_to)
    dim.settle(transaction, restored, transaction.now)
    for successor in memories.linking(transaction.connection, record.row, "replaces"):
        memories.touch(transaction.connection, successor.row, transaction.next_change())
    transaction.connection.execute(links.delete().where(links.c.other == record.row, links.c.kind == "replaces"))
    transaction.record_event("RESTORE", restored, old=record.text, new=record.text, before=before, reason=step.reason)
    return Outcome("RESTORE", record.id, kind=record.kind, record=restored, reason=step.reason)


@carry_out.register
def _(step: Undo, transaction: Transaction) -> Outcome:
    outcome = carry_out(undo.reverse_of(step, transaction), transaction)
    if outcome.event == "NONE":
        raise ValidationError("event_id: it has been taken back already; history() shows by which event")
    return outcome


@carry_out.register
def _(step: Erase, transaction: Transaction) -> Outcome:
    if step.if_there and memories.find(transaction.connection, step.id) is None:
        return Outcome("NONE", step.id, reason="not there")
    record = transaction.find(step.id)
    kept = None if step.run_id is None else settle.leave(step.run_id, record, transaction)
    if kept is not None:
        return Outcome("NONE", record.id, kind=record.kind, record=kept, reason="said elsewhere, too")
    gone = _with_its_words(record, transaction)
    erased = sum((_erase(other, transaction) for other in gone), Erased())
    settle.summarise_anew([one for one in gone if one.kind is Kind.SUMMARY and one.id != record.id], transaction)
    return Outcome("DELETE", record.id, kind=record.kind, record=record, previous=record.text, erased=erased)


def _with_its_words(record: MemoryRecord, transaction: Transaction) -> list[MemoryRecord]:
    """A memory that is to be erased, and all that has its words: its mere sources, and summaries of any of these."""
    connection = transaction.connection
    drawn_from = memories.linked(connection, record.row, "drawn_from") if record.kind is Kind.FACT else []
    sources = [source for source in drawn_from if source.source_only]
    found = {one.id: one for one in (record, *sources)}
    waiting = list(found.values())
    while waiting:
        drawn = memories.linking(connection, waiting.pop().row, "drawn_from")
        summaries = {one.id: one for one in drawn if one.kind is Kind.SUMMARY and one.id not in found}
        found |= summaries
        waiting += summaries.values()
    return list(found.values())


@carry_out.register
def _(step: Settling, transaction: Transaction) -> Outcome:
    return settle.settle(step, transaction)


@carry_out.register
def _(step: Taking, transaction: Transaction) -> Outcome:
    return receive.receive(step, transaction)


@carry_out.register
def _(step: Naming, transaction: Transaction) -> Outcome:
    return Outcome("NAME", naming.settle(transaction.connection, step, transaction.now))


def _erase(record: MemoryRecord, transaction: Transaction) -> Erased:
    """Takes one memory out; its history keeps that it was, without the words."""
    connection, row = transaction.connection, record.row
    stripped = _strip(record, transaction)
    transaction.unsure_in.add(transaction.space(record))
    connection.execute(links.delete().where(or_(links.c.memory == row, links.c.other == row)))
    connection.execute(tasks.delete().where(tasks.c.memory == row))
    connection.execute(set_aside.delete().where(set_aside.c.memory == record.id))
    memories.set_further_runs(connection, row, ())
    transaction.leave(record)
    change = transaction.next_change()
    transaction.record_event("DELETE", replace(record, change=change))
    log.forget_content(connection, record.id)
    log.bury(connection, "memory", record.id, record.space, record.scope, transaction.now, change)
    connection.execute(memories_table.delete().where(memories_table.c.id == row))
    return stripped + Erased(ids=(record.id,), rows=1, graph=1)
