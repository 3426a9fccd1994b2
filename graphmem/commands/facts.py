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

from graphmem.commands.types import AddFact, CompleteJob, EnqueueExtraction, FactCommand, Outcome, ReaffirmFact
from graphmem.model import Kind, MemoryRecord, Scope
from graphmem.stores.ledger import event_log, jobs, memories, text_statistics
from graphmem.stores.ledger.jobs import Job, JobKind

if TYPE_CHECKING:
    from graphmem.commands.unit_of_work import UnitOfWork

ERASED = "its messages were erased meanwhile"
SAID_AGAIN, RUN_DELETED = "said again in another scope", "a run that it was said in was deleted"


class DecisionConflict(Exception):
    """What was decided rests on facts that have changed since."""


class JobAlreadyDone(Exception):
    """Somebody else has done this work."""


@singledispatch
def execute_fact_command(step: FactCommand, transaction: UnitOfWork) -> Outcome:
    """Carries out one of these steps."""
    raise NotImplementedError(type(step).__name__)


@execute_fact_command.register(EnqueueExtraction)
def _(step: EnqueueExtraction, transaction: UnitOfWork) -> Outcome:
    fresh = transaction.said
    if not fresh:
        return Outcome("NONE", "", reason="nothing new")
    request = {} if step.prompt is None else {"prompt": step.prompt}
    kind = JobKind.PROCEDURE if step.procedure else JobKind.FACTS
    asked = Job(kind, step.scope, fresh[-1].session, tuple(record.id for record in fresh), request)
    return Outcome("ASSIGN", str(jobs.enqueue(transaction.connection, asked).row), kind=Kind.FACT)


@execute_fact_command.register(CompleteJob)
def _(step: CompleteJob, transaction: UnitOfWork) -> Outcome:
    connection = transaction.connection
    if not jobs.complete(connection, step.job.row):
        raise JobAlreadyDone
    if step.vectors is not None and _has_new_neighbours(step, transaction):
        raise DecisionConflict
    if step.summarise_every and _is_long(step, transaction):
        jobs.enqueue(connection, Job(JobKind.SUMMARY, step.job.scope, step.job.session))
    return Outcome("SETTLE", str(step.job.row), kind=Kind.FACT)


def _has_new_neighbours(step: CompleteJob, transaction: UnitOfWork) -> bool:
    rows = jobs.facts_since(transaction.connection, step.job.partition, step.last_seq_seen)
    if not rows:
        return False
    found = text_statistics.vectors_of(transaction.connection, step.spec.model, rows)
    # One that has no vectors yet might be near.
    return len(found) < len(rows) or any(
        float(np.max(step.vectors @ vector)) >= step.min_similarity for vectors in found.values() for vector in vectors
    )


def _is_long(step: CompleteJob, transaction: UnitOfWork) -> bool:
    scope, session = step.job.scope, step.job.session
    covered = jobs.last_summarised_row(transaction.connection, jobs.summary_of(transaction.connection, scope, session))
    return jobs.has_episodes(transaction.connection, scope, session, step.summarise_every, covered)


def enqueue_summaries(summaries: Sequence[MemoryRecord], transaction: UnitOfWork) -> None:
    """Records that running summaries which held erased words are to be made of what is left, if anything is."""
    for one in summaries:
        if one.memory_type != jobs.PROCEDURAL and jobs.has_episodes(transaction.connection, one.scope, one.session, 1):
            jobs.enqueue(transaction.connection, Job(JobKind.SUMMARY, one.scope, one.session))


@execute_fact_command.register(AddFact)
def _(step: AddFact, transaction: UnitOfWork) -> Outcome:
    sources = sources_of(step.sources, transaction)
    if sources is None:
        return Outcome("NONE", step.record.id, kind=step.record.kind, reason=ERASED)
    record = replace(step.record, seq=transaction.next_seq())
    record = replace(record, row=memories.insert(transaction.connection, record, transaction.partition(record)))
    link_sources(record, sources, transaction)
    transaction.add_event("ADD", record, new=record.text)
    event_log.enqueue(transaction.connection, record.row, record.version)
    return Outcome("ADD", record.id, kind=record.kind, record=record)


def sources_of(ids: tuple[str, ...], transaction: UnitOfWork) -> list[MemoryRecord] | None:
    """The messages that something is drawn from; None if one of them is not there any more."""
    found = memories.records(transaction.connection, ids)
    return [found[uid] for uid in ids] if len(found) == len(set(ids)) else None


def link_sources(record: MemoryRecord, sources: list[MemoryRecord], transaction: UnitOfWork) -> None:
    """Notes what a memory is drawn from."""
    for source in sources:
        memories.add_link(transaction.connection, record.row, "drawn_from", source.row)


@execute_fact_command.register(ReaffirmFact)
def _(step: ReaffirmFact, transaction: UnitOfWork) -> Outcome:
    record = memories.find(transaction.connection, step.id)
    sources = sources_of(step.sources, transaction)
    if record is None or sources is None:
        return Outcome("NONE", step.id, kind=Kind.FACT, reason=ERASED)
    link_sources(record, sources, transaction)
    record = add_scope(step.scope, record, transaction)
    record = replace(record, seq=transaction.next_seq())
    memories.touch(transaction.connection, record.row, record.seq)
    return Outcome("NONE", record.id, kind=record.kind, record=record, reason="known")


def add_scope(scope: Scope, record: MemoryRecord, transaction: UnitOfWork) -> MemoryRecord:
    """Notes that a memory was said again under a scope: it takes the agent that it lacks, the run as a further one.

    Said again in no run it has none of its own any more, so that it outlives all of its runs.
    """
    if record.partition != scope.partition:  # whose graph it lives in never changes
        return record
    own = replace(record.scope, agent_id=record.scope.agent_id or scope.agent_id)
    if scope.run_id is None:
        moved = replace(record, scope=replace(own, run_id=None), further_runs=record.runs)
    else:
        new = () if scope.run_id in record.runs else (scope.run_id,)
        moved = replace(record, scope=own, further_runs=(*record.further_runs, *new))
    return _moved(moved, record, SAID_AGAIN, transaction)


def remove_from_run(run: str, record: MemoryRecord, transaction: UnitOfWork) -> MemoryRecord | None:
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


def _moved(moved: MemoryRecord, record: MemoryRecord, reason: str, transaction: UnitOfWork) -> MemoryRecord:
    """Writes down where a memory was said by now, with its line of history, if that has changed."""
    if moved == record:
        return record
    moved = replace(moved, seq=transaction.next_seq())
    memories.update(transaction.connection, moved)
    memories.set_further_runs(transaction.connection, moved.row, moved.further_runs)
    transaction.add_event("SCOPE", moved, old=record.text, new=record.text, reason=reason)
    return moved
