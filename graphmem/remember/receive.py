"""Taking in what another ledger, or another program, has written: carried out by `commit`, as every step.

What is here stays as it is, so that an import that was broken off is simply repeated.
"""

from __future__ import annotations

from dataclasses import replace
from functools import singledispatch
from typing import TYPE_CHECKING

from graphmem.alike import Chosen
from graphmem.model import Kind, MemoryRecord, micros
from graphmem.remember.plan import Bury, Outcome, Take, TakeLink, TakeName, Taking, Tie
from graphmem.stores.ledger import aliases, graph, log, memories, statistics

if TYPE_CHECKING:
    from graphmem.remember.commit import Transaction

BROUGHT_BACK = "imported with restore=True"


@singledispatch
def receive(step: Taking, transaction: Transaction) -> Outcome:
    """Carries out one of these steps."""
    raise NotImplementedError(type(step).__name__)


@receive.register(Take)
def _(step: Take, transaction: Transaction) -> Outcome:
    kept_out = _kept_out(step, transaction)
    if kept_out is not None:
        return Outcome("NONE", step.record.id, kind=step.record.kind, reason=kept_out)
    record = _stored(step.record, transaction)
    _write_history(step, record, transaction)
    if step.key is not None:
        log.recognise(transaction.connection, step.key, record.id, step.words)
    untied = sum(not _tied(tie, record, transaction) for tie in step.ties)
    _derive(step, record, transaction)
    return Outcome("ADD", record.id, kind=record.kind, record=record, untied=untied)


def _kept_out(step: Take, transaction: Transaction) -> str | None:
    """Why a memory is not taken: its id or its message is known, or one of them was erased; None: it is taken."""
    connection, uid = transaction.connection, step.record.id
    if memories.find(connection, uid) is not None:
        return "known"
    said = None if step.key is None else log.said_before(connection, step.key)
    if said is not None and said[1] is not None:
        return "known"
    gone = said is not None or log.tombstone(connection, uid) is not None
    return "erased" if gone and not step.restore else None


def _stored(record: MemoryRecord, transaction: Transaction) -> MemoryRecord:
    session = record.session or transaction.session(record.scope, record.at, record.actor_id, record.text)
    record = replace(record, session=session, change=transaction.next_change())
    record = replace(record, row=memories.insert(transaction.connection, record, transaction.space(record)))
    if record.kind is Kind.EPISODE:
        transaction.join(record)
    return record


def _write_history(step: Take, record: MemoryRecord, transaction: Transaction) -> None:
    """The events it comes with. Of one that was erased here, what happened here follows them, without the words."""
    connection = transaction.connection
    erased = log.tombstone(connection, record.id) is not None
    here = log.history(connection, record.id) if erased else []
    if erased:
        log.drop_history(connection, record.id)
        log.unearth(connection, record.id)
    if not step.events:
        log.add_event(connection, "ADD", record, now=record.created_at, new=record.text)
    told = {event.id for event in step.events}
    log.write_history(connection, [*step.events, *(one for one in here if one.id not in told)], record.change)
    if erased:
        transaction.record_event("RESTORE", record, new=record.text, reason=BROUGHT_BACK)


def _tied(tie: Tie, record: MemoryRecord, transaction: Transaction) -> bool:
    """Links a memory with one that is there. Only inside a space: `explain` shows what a memory was drawn from."""
    other = memories.find(transaction.connection, tie.other)
    if other is None or other.space != record.space or other.id == record.id:
        return False
    start, end = (other, record) if tie.back else (record, other)
    memories.link(transaction.connection, start.row, tie.kind, end.row)
    if tie.back:
        memories.touch(transaction.connection, other.row, transaction.next_change())
    return True


def _derive(step: Take, record: MemoryRecord, transaction: Transaction) -> None:
    """Puts down what was found in the words and their vectors; what is lacking is owed.

    No rule looks for names that mean one: what the other ledger knew of them comes with it.
    """
    connection, space, found = transaction.connection, transaction.space(record), step.found
    if found is not None:
        graph.add(connection, record, space, found)
        if step.embedded is not None:
            statistics.enrich(connection, record, space, step.forms, step.text_hash, step.embedded, found.tells)
            return
    log.owe(connection, record.row, record.version)


@receive.register(Bury)
def _(step: Bury, transaction: Transaction) -> Outcome:
    connection = transaction.connection
    if memories.find(connection, step.id) is not None or log.tombstone(connection, step.id) is not None:
        return Outcome("NONE", step.id, reason="known")
    change = transaction.next_change()
    log.bury(connection, "memory", step.id, step.scope.space, step.scope, step.at, change)
    log.write_history(connection, step.events, change)
    for key in step.keys:
        log.recognise(connection, key, step.id, None)
    return Outcome("BURY", step.id)


@receive.register(TakeLink)
def _(step: TakeLink, transaction: Transaction) -> Outcome:
    space = memories.space_row(transaction.connection, step.scope.space)
    if space is None or not aliases.take(transaction.connection, space, step.link, micros(step.at), apart=step.apart):
        return Outcome("NONE", step.link.key, reason="said already")
    transaction.unsure_in.add(space)
    return Outcome("NAME", step.link.key)


@receive.register(TakeName)
def _(step: TakeName, transaction: Transaction) -> Outcome:
    space = memories.space_row(transaction.connection, step.scope.space)
    chosen = Chosen(micros(step.at), step.name)
    if space is None or not aliases.take_name(transaction.connection, space, step.key, chosen):
        return Outcome("NONE", step.key, reason="said already")
    transaction.unsure_in.add(space)
    return Outcome("NAME", step.key)
