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
from graphmem.stores.ledger import embeddings, jobs, memories, outbox, sessions
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
def execute_fact_command(command: FactCommand, uow: UnitOfWork) -> Outcome:
    """Carries out one of these steps."""
    raise NotImplementedError(type(command).__name__)


@execute_fact_command.register(EnqueueExtraction)
def _(command: EnqueueExtraction, uow: UnitOfWork) -> Outcome:
    fresh = uow.said
    if not fresh:
        return Outcome("NONE", "", reason="nothing new")
    request = {} if command.prompt is None else {"prompt": command.prompt}
    kind = JobKind.PROCEDURE if command.procedure else JobKind.FACTS
    asked = Job(kind, command.scope, fresh[-1].session, tuple(record.id for record in fresh), request)
    return Outcome("ASSIGN", str(jobs.enqueue(uow.connection, asked).row), kind=Kind.FACT)


@execute_fact_command.register(CompleteJob)
def _(command: CompleteJob, uow: UnitOfWork) -> Outcome:
    connection = uow.connection
    if not jobs.complete(connection, command.job.row):
        raise JobAlreadyDone
    if command.vectors is not None and _has_new_neighbours(command, uow):
        raise DecisionConflict
    if command.summarise_every and _is_long(command, uow):
        jobs.enqueue(connection, Job(JobKind.SUMMARY, command.job.scope, command.job.session))
    return Outcome("SETTLE", str(command.job.row), kind=Kind.FACT)


def _has_new_neighbours(command: CompleteJob, uow: UnitOfWork) -> bool:
    rows = sessions.facts_since(uow.connection, command.job.partition, command.last_seq_seen)
    if not rows:
        return False
    found = embeddings.vectors_of(uow.connection, command.spec.model, rows)
    # One that has no vectors yet might be near.
    return len(found) < len(rows) or any(
        float(np.max(command.vectors @ vector)) >= command.min_similarity
        for vectors in found.values()
        for vector in vectors
    )


def _is_long(command: CompleteJob, uow: UnitOfWork) -> bool:
    scope, session = command.job.scope, command.job.session
    covered = sessions.last_summarised_row(uow.connection, sessions.summary_of(uow.connection, scope, session))
    return sessions.has_episodes(uow.connection, scope, session, command.summarise_every, covered)


def enqueue_summaries(summaries: Sequence[MemoryRecord], uow: UnitOfWork) -> None:
    """Records that running summaries which held erased words are to be made of what is left, if anything is."""
    for one in summaries:
        if one.memory_type != sessions.PROCEDURAL and sessions.has_episodes(uow.connection, one.scope, one.session, 1):
            jobs.enqueue(uow.connection, Job(JobKind.SUMMARY, one.scope, one.session))


@execute_fact_command.register(AddFact)
def _(command: AddFact, uow: UnitOfWork) -> Outcome:
    sources = sources_of(command.sources, uow)
    if sources is None:
        return Outcome("NONE", command.record.id, kind=command.record.kind, reason=ERASED)
    record = replace(command.record, seq=uow.next_seq())
    record = replace(record, row=memories.insert(uow.connection, record, uow.partition(record)))
    link_sources(record, sources, uow)
    uow.add_event("ADD", record, new=record.text)
    outbox.enqueue(uow.connection, record.row, record.version)
    return Outcome("ADD", record.id, kind=record.kind, record=record)


def sources_of(ids: tuple[str, ...], uow: UnitOfWork) -> list[MemoryRecord] | None:
    """The messages that something is drawn from; None if one of them is not there any more."""
    found = memories.records(uow.connection, ids)
    return [found[uid] for uid in ids] if len(found) == len(set(ids)) else None


def link_sources(record: MemoryRecord, sources: list[MemoryRecord], uow: UnitOfWork) -> None:
    """Notes what a memory is drawn from."""
    for source in sources:
        memories.add_link(uow.connection, record.row, "drawn_from", source.row)


@execute_fact_command.register(ReaffirmFact)
def _(command: ReaffirmFact, uow: UnitOfWork) -> Outcome:
    record = memories.find(uow.connection, command.id)
    sources = sources_of(command.sources, uow)
    if record is None or sources is None:
        return Outcome("NONE", command.id, kind=Kind.FACT, reason=ERASED)
    link_sources(record, sources, uow)
    record = add_scope(command.scope, record, uow)
    record = replace(record, seq=uow.next_seq())
    memories.touch(uow.connection, record.row, record.seq)
    return Outcome("NONE", record.id, kind=record.kind, record=record, reason="known")


def add_scope(scope: Scope, record: MemoryRecord, uow: UnitOfWork) -> MemoryRecord:
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
    return _moved(moved, record, SAID_AGAIN, uow)


def remove_from_run(run: str, record: MemoryRecord, uow: UnitOfWork) -> MemoryRecord | None:
    """Takes a memory out of a run that is deleted; None if it was said nowhere else, and goes with it.

    The next run takes the place of its own. What was first said in no run stays without one of its own.
    """
    own = record.scope.run_id
    left = tuple(one for one in record.further_runs if one != run)
    if own != run:
        return _moved(replace(record, further_runs=left), record, RUN_DELETED, uow)
    if not left:
        return None
    session = left[0] if record.session == own else record.session
    moved = replace(record, scope=replace(record.scope, run_id=left[0]), session=session, further_runs=left[1:])
    return _moved(moved, record, RUN_DELETED, uow)


def _moved(moved: MemoryRecord, record: MemoryRecord, reason: str, uow: UnitOfWork) -> MemoryRecord:
    """Writes down where a memory was said by now, with its line of history, if that has changed."""
    if moved == record:
        return record
    moved = replace(moved, seq=uow.next_seq())
    memories.update(uow.connection, moved)
    memories.set_further_runs(uow.connection, moved.row, moved.further_runs)
    uow.add_event("SCOPE", moved, old=record.text, new=record.text, reason=reason)
    return moved
