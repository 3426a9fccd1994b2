"""Taking down what a language model made of messages: carried out by `commit`, as every step.

A model thinks for seconds. What it was asked about may be gone when it answers, or somebody else may have stored what
it did not know of: neither goes unnoticed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import singledispatch
from typing import TYPE_CHECKING

import numpy as np

from graphmem.model import Kind, MemoryRecord, Scope
from graphmem.remember.plan import Assign, Carry, Learn, Outcome, Settle, Settling
from graphmem.stores.ledger import jobs, log, memories, statistics
from graphmem.stores.ledger.jobs import Job, JobKind

if TYPE_CHECKING:
    from graphmem.remember.commit import Transaction

ERASED = "its messages were erased meanwhile"
SAID_AGAIN, RUN_DELETED = "said again in another scope", "a run that it was said in was deleted"


class DecidedAnew(Exception):
    """What was decided rests on facts that have changed since."""


class DoneAlready(Exception):
    """Somebody else has done this work."""


@singledispatch
def settle(step: Settling, transaction: Transaction) -> Outcome:
    """Carries out one of these steps."""
    raise NotImplementedError(type(step).__name__)


@settle.register(Assign)
def _(step: Assign, transaction: Transaction) -> Outcome:
    fresh = transaction.said
    if not fresh:
        return Outcome("NONE", "", reason="nothing new")
    request = {} if step.prompt is None else {"prompt": step.prompt}
    kind = JobKind.PROCEDURE if step.procedure else JobKind.FACTS
    asked = Job(kind, step.scope, fresh[-1].session, tuple(record.id for record in fresh), request)
    return Outcome("ASSIGN", str(jobs.record(transaction.connection, asked).row), kind=Kind.FACT)


@settle.register(Settle)
def _(step: Settle, transaction: Transaction) -> Outcome:
    connection = transaction.connection
    if not jobs.done(connection, step.job.row):
        raise DoneAlready
    if step.vectors is not None and _has_new_neighbours(step, transaction):
        raise DecidedAnew
    if step.summarise_every and _is_long(step, transaction):
        jobs.record(connection, Job(JobKind.SUMMARY, step.job.scope, step.job.session))
    return Outcome("SETTLE", str(step.job.row), kind=Kind.FACT)


def _has_new_neighbours(step: Settle, transaction: Transaction) -> bool:
    rows = jobs.facts_since(transaction.connection, step.job.space, step.seen)
    if not rows:
        return False
    found = statistics.vectors_of(transaction.connection, step.forms.model, rows)
    # One that has no vectors yet might be near.
    return len(found) < len(rows) or any(
        float(np.max(step.vectors @ vector)) >= step.near for vectors in found.values() for vector in vectors
    )


def _is_long(step: Settle, transaction: Transaction) -> bool:
    scope, session = step.job.scope, step.job.session
    covered = jobs.last_summarised(transaction.connection, jobs.summary_of(transaction.connection, scope, session))
    return jobs.holds_episodes(transaction.connection, scope, session, step.summarise_every, covered)


def summarise_anew(summaries: Sequence[MemoryRecord], transaction: Transaction) -> None:
    """Records that running summaries which held erased words are to be made of what is left, if anything is."""
    for one in summaries:
        if one.memory_type != jobs.PROCEDURAL and jobs.holds_episodes(
            transaction.connection, one.scope, one.session, 1
        ):
            jobs.record(transaction.connection, Job(JobKind.SUMMARY, one.scope, one.session))


@settle.register(Learn)
def _(step: Learn, transaction: Transaction) -> Outcome:
    sources = sources_of(step.sources, transaction)
    if sources is None:
        return Outcome("NONE", step.record.id, kind=step.record.kind, reason=ERASED)
    record = replace(step.record, change=transaction.next_change())
    record = replace(record, row=memories.insert(transaction.connection, record, transaction.space(record)))
    draw(record, sources, transaction)
    transaction.record_event("ADD", record, new=record.text)
    log.owe(transaction.connection, record.row, record.version)
    return Outcome("ADD", record.id, kind=record.kind, record=record)


def sources_of(ids: tuple[str, ...], transaction: Transaction) -> list[MemoryRecord] | None:
    """The messages that something is drawn from; None if one of them is not there any more."""
    found = memories.records(transaction.connection, ids)
    return [found[uid] for uid in ids] if len(found) == len(set(ids)) else None


def draw(record: MemoryRecord, sources: list[MemoryRecord], transaction: Transaction) -> None:
    """Notes what a memory is drawn from."""
    for source in sources:
        memories.link(transaction.connection, record.row, "drawn_from", source.row)


@settle.register(Carry)
def _(step: Carry, transaction: Transaction) -> Outcome:
    record = memories.find(transaction.connection, step.id)
    sources = sources_of(step.sources, transaction)
    if record is None or sources is None:
        return Outcome("NONE", step.id, kind=Kind.FACT, reason=ERASED)
    draw(record, sources, transaction)
    record = said_in(step.scope, record, transaction)
    record = replace(record, change=transaction.next_change())
    memories.touch(transaction.connection, record.row, record.change)
    return Outcome("NONE", record.id, kind=record.kind, record=record, reason="known")


def said_in(scope: Scope, record: MemoryRecord, transaction: Transaction) -> MemoryRecord:
    """Notes that a memory was said again under a scope: it takes the agent that it lacks, the run as a further one.

    Said again in no run it has none of its own any more, so that it outlives all of its runs.
    """
    if record.space != scope.space:  # whose graph it lives in never changes
        return record
    own = replace(record.scope, agent_id=record.scope.agent_id or scope.agent_id)
    if scope.run_id is None:
        moved = replace(record, scope=replace(own, run_id=None), further_runs=record.runs)
    else:
        new = () if scope.run_id in record.runs else (scope.run_id,)
        moved = replace(record, scope=own, further_runs=(*record.further_runs, *new))
    return _moved(moved, record, SAID_AGAIN, transaction)


def leave(run: str, record: MemoryRecord, transaction: Transaction) -> MemoryRecord | None:
    """Takes a memory out of a run that is deleted; None if it was said nowhere else, and goes with it.

    The next run takes the place of its own. What was first said in no run stays without one of its own.
    """
    own = record.scope.run_id
    left = tuple(one for one in record.further_runs if one != run)
    if own != run:
        return _moved(replace(record, further_runs=left), record, RUN_DELETED, transaction)
    if not left:
        return None
    session = left[0] if record.session == own else record.session
    moved = replace(record, scope=replace(record.scope, run_id=left[0]), session=session, further_runs=left[1:])
    return _moved(moved, record, RUN_DELETED, transaction)


def _moved(moved: MemoryRecord, record: MemoryRecord, reason: str, transaction: Transaction) -> MemoryRecord:
    """Writes down where a memory was said by now, with its line of history, if that has changed."""
    if moved == record:
        return record
    moved = replace(moved, change=transaction.next_change())
    memories.update(transaction.connection, moved)
    memories.set_further_runs(transaction.connection, moved.row, moved.further_runs)
    transaction.record_event("SCOPE", moved, old=record.text, new=record.text, reason=reason)
    return moved
