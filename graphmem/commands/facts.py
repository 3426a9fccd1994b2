"""The handlers of commands about jobs and facts, for `graphmem.commands.dispatch`, and a fact's sources and scope.

A language model takes seconds to answer. If its messages were erased meanwhile, the outcome of a command is NONE with
the reason `ERASED`; if another call has stored similar facts, DecisionConflict is raised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any
from uuid import uuid4

from graphmem.commands import lifecycle
from graphmem.commands.types import (
    AddFact,
    CompleteJob,
    EndSession,
    EnqueueExtraction,
    Outcome,
    OutcomeType,
    ReaffirmFact,
)
from graphmem.commands.unit_of_work import UnitOfWork
from graphmem.model import NEUTRAL_IMPORTANCE, EventType, Kind, MemoryEvent, MemoryRecord, Scope
from graphmem.stores.ledger import embeddings, event_log, jobs, memories, sessions, vitals
from graphmem.stores.ledger.jobs import DeferredFacts, Job, JobKind

# Of so many messages facts are drawn before the session ends.
MOST_DEFERRED = 200
ERASED = "its messages were erased meanwhile"
SAID_AGAIN, RUN_DELETED = "said again in another scope", "a run that it was said in was deleted"


class DecisionConflict(Exception):
    """Raised when facts near to the new ones were stored after the decision: it has to be made again."""


class JobAlreadyDone(Exception):
    """Raised when another worker has completed the job already."""


def enqueue_extraction(command: EnqueueExtraction, uow: UnitOfWork) -> Outcome:
    """Records a job for the source messages that this change set stored as new. The outcome's id is the job's row."""
    messages = uow.new_source_messages
    if not messages:
        return Outcome(OutcomeType.NONE, "", reason="nothing new")
    if command.at_session_end:
        uow.deferred_facts.setdefault(command.scope, []).extend(
            DeferredFacts(
                session, tuple(one.id for one in said), command.prompt, command.importance, summarise=command.summarise
            )
            for session, said in groupby(messages, lambda message: message.session)
        )
        return Outcome(OutcomeType.NONE, "", reason="the session goes on")
    job = _extraction_job(command, messages, uow)
    return Outcome(OutcomeType.ENQUEUE_JOB, str(jobs.enqueue(uow.connection, job).row), kind=Kind.FACT)


def _extraction_job(command: EnqueueExtraction, messages: Sequence[MemoryRecord], uow: UnitOfWork) -> Job:
    """Returns the job for messages; records one for the summary that is to be done before."""
    given = {jobs.INSTRUCTIONS: command.prompt, jobs.IMPORTANCE: command.importance}
    request: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    if command.summarise and (summary_job := _enqueue_summary_before(messages[0], uow)) is not None:
        request[jobs.SUMMARY_JOB] = summary_job.row
    kind = JobKind.PROCEDURE if command.procedure else JobKind.FACTS
    return Job(kind, command.scope, messages[-1].session, tuple(message.id for message in messages), request)


def put_off_session_ends(uow: UnitOfWork) -> None:
    """Lets the sessions of this change set's messages end after a silence of `session_gap` from now.

    Facts of a session that has very many messages are not put off any longer.
    """
    for scope, number in uow.new_messages.items():
        session = jobs.open_session(uow.connection, scope)
        deferred = [*(() if session is None else session.deferred), *uow.deferred_facts.get(scope, ())]
        deferred = _joined(deferred)
        if sum(len(one.memories) for one in deferred) >= MOST_DEFERRED:
            _enqueue_deferred(scope, deferred, uow)
            deferred = []
        messages = number + (0 if session is None else session.messages)
        jobs.put_off_session_end(uow.connection, scope, messages, deferred, uow.session_gap)


def _joined(deferred: Sequence[DeferredFacts]) -> list[DeferredFacts]:
    """Returns facts to be drawn with those in one that are of one session and were wanted alike."""
    joined: dict[DeferredFacts, list[str]] = {}
    for one in deferred:
        joined.setdefault(one._replace(memories=()), []).extend(one.memories)
    return [wanted._replace(memories=tuple(ids)) for wanted, ids in joined.items()]


def _enqueue_deferred(scope: Scope, deferred: Sequence[DeferredFacts], uow: UnitOfWork) -> None:
    """Records the jobs for facts that waited for the end of a session; messages that were erased are left out."""
    for one in deferred:
        found = memories.records(uow.connection, one.memories)
        if messages := [found[uid] for uid in one.memories if uid in found]:
            command = EnqueueExtraction(scope, one.prompt, summarise=one.summarise, importance=one.importance)
            jobs.enqueue(uow.connection, _extraction_job(command, messages, uow), awaited=False)


def end_session(command: EndSession, uow: UnitOfWork) -> Outcome:
    """Ends a session, unless that is done already or a message has put it off."""
    session = jobs.take_session(uow.connection, command.job, only_if_due=command.only_if_due)
    if session is None:
        return Outcome(OutcomeType.NONE, str(command.job), reason="it goes on, or has ended")
    _enqueue_deferred(session.scope, session.deferred, uow)
    event = MemoryEvent.of(EventType.SESSION_END, session.scope, str(uuid4()), uow.now, messages=session.messages)
    event_log.append(uow.connection, event)
    uow.events.append(event)
    return Outcome(OutcomeType.END_SESSION, str(command.job))


def _enqueue_summary_before(first: MemoryRecord, uow: UnitOfWork) -> Job | None:
    """Records a job for the summary of the sitting before a message, and returns it.

    Returns None if the message does not begin a new sitting, and if all messages before it are summarised.
    """
    # That a sitting is over shows when the next one begins. Nothing needs its summary before, so that none is made of
    # the last sitting.
    for last in sessions.messages_before(uow.connection, first, 1):
        job = Job(JobKind.SUMMARY, last.scope, last.session, request={jobs.BEFORE: first.row})
        if sessions.begins_sitting(first, last, uow.session_gap) and _are_unsummarised(1, job, uow):
            return jobs.enqueue(uow.connection, job)
    return None


def complete_job(command: CompleteJob, uow: UnitOfWork) -> Outcome:
    """Completes a job and, if a summary of its session is due, records a job for it.

    Raises JobAlreadyDone, and DecisionConflict if facts near to the new ones were stored after the decision.
    """
    connection = uow.connection
    if not jobs.complete(connection, command.job.row):
        raise JobAlreadyDone
    if command.vectors is not None and _has_new_neighbours(command, uow):
        raise DecisionConflict
    summary_job = Job(JobKind.SUMMARY, command.job.scope, command.job.session)
    if command.summarise_every and _are_unsummarised(command.summarise_every, summary_job, uow):
        jobs.enqueue(connection, summary_job)
    return Outcome(OutcomeType.COMPLETE_JOB, str(command.job.row), kind=Kind.FACT)


def _has_new_neighbours(command: CompleteJob, uow: UnitOfWork) -> bool:
    if command.seen is None:
        return False
    rows = sessions.facts_since(uow.connection, command.job.partition, command.seen)
    if not rows:
        return False
    vectors_by_row = embeddings.vectors_by_row(uow.connection, command.spec, rows)
    # A fact that is not embedded yet counts as near.
    return len(vectors_by_row) < len(rows) or any(
        vector.cosine(stored) >= command.min_similarity
        for vector in command.vectors or ()
        for stored_vectors in vectors_by_row.values()
        for stored in stored_vectors
    )


def _are_unsummarised(number: int, job: Job, uow: UnitOfWork) -> bool:
    """Returns whether `number` messages or more that a summary job is about are in no summary."""
    last_row = sessions.last_summarised_row(uow.connection, sessions.summary_of(uow.connection, job.scope, job.session))
    return sessions.has_episodes(uow.connection, job.scope, job.session, number, last_row, job.request.get(jobs.BEFORE))


def enqueue_summaries(summaries: Sequence[MemoryRecord], uow: UnitOfWork) -> None:
    """Records a job for a new summary of each session whose summary was erased, if the session has episodes left."""
    for summary in summaries:
        scope, session = summary.scope, summary.session
        if summary.memory_type != sessions.PROCEDURAL and sessions.has_episodes(uow.connection, scope, session, 1):
            jobs.enqueue(uow.connection, Job(JobKind.SUMMARY, scope, session))


def add_fact(command: AddFact, uow: UnitOfWork) -> Outcome:
    """Stores a fact or a summary with its sources, unless one of these was erased."""
    sources = sources_of(command.sources, uow)
    if sources is None:
        return Outcome(OutcomeType.NONE, command.record.id, kind=command.record.kind, reason=ERASED)
    given = command.importance
    record = replace(command.record, seq=uow.next_seq(), importance=NEUTRAL_IMPORTANCE if given is None else given)
    record = replace(record, row=memories.insert(uow.connection, record, uow.partition_row(record)))
    if given is not None:
        vitals.give_importance(uow.connection, [record.row])
    add_source_links(record, sources, uow)
    uow.add_event("ADD", record, new=record.text)
    uow.enqueue_enrichments([record])
    return Outcome(OutcomeType.ADD, record.id, kind=record.kind, record=record)


def sources_of(ids: tuple[str, ...], uow: UnitOfWork) -> list[MemoryRecord] | None:
    """Returns the memories of these ids, in order; None if one of them was erased."""
    records = memories.records(uow.connection, ids)
    return [records[uid] for uid in ids] if len(records) == len(set(ids)) else None


def add_source_links(record: MemoryRecord, sources: list[MemoryRecord], uow: UnitOfWork) -> None:
    """Adds the links from a memory to the memories that it is drawn from."""
    for source in sources:
        memories.add_link(uow.connection, record.row, "drawn_from", source.row)


def reaffirm_fact(command: ReaffirmFact, uow: UnitOfWork) -> Outcome:
    """Adds sources and scope to a memory whose words were said again, unless it or a source was erased.

    To the lifecycle that is an access, as if the memory had been found.
    """
    record = memories.find(uow.connection, command.id)
    sources = sources_of(command.sources, uow)
    if record is None or sources is None:
        return Outcome(OutcomeType.NONE, command.id, kind=Kind.FACT, reason=ERASED)
    record = lifecycle.remembered(record, lifecycle.SAID_AGAIN, uow)
    add_source_links(record, sources, uow)
    record = add_scope(command.scope, record, uow)
    record = replace(record, seq=uow.next_seq())
    memories.set_seq(uow.connection, record.row, record.seq)
    vitals.record_accesses(uow.connection, {record.row: vitals.Access(1, uow.now)})
    return Outcome(OutcomeType.NONE, record.id, kind=record.kind, record=record, reason="known")


def add_scope(scope: Scope, record: MemoryRecord, uow: UnitOfWork) -> MemoryRecord:
    """Adds the scope in which a memory was said again: the agent, if the memory has none, and the run as a further one.

    If the memory was said again outside of runs, its own run becomes a further one, so that the memory outlives the
    deletion of all its runs. A scope of another partition changes nothing. Returns the memory after the change.
    """
    if record.partition != scope.partition:  # a memory never changes its partition
        return record
    own = replace(record.scope, agent_id=record.scope.agent_id or scope.agent_id)
    if scope.run_id is None:
        moved = replace(record, scope=replace(own, run_id=None), further_runs=record.runs)
    else:
        new = () if scope.run_id in record.runs else (scope.run_id,)
        moved = replace(record, scope=own, further_runs=(*record.further_runs, *new))
    return _save_scope(moved, record, SAID_AGAIN, uow)


def remove_from_run(run: str, record: MemoryRecord, uow: UnitOfWork) -> MemoryRecord | None:
    """Removes a memory from a deleted run and returns it as changed.

    Returns None, and changes nothing, if the memory was said in no other run: the caller then erases it. If the deleted
    run was the memory's own, its first further run becomes its own. The memory's session becomes that of a source
    message which was said in its own run (outside of runs, if it has none); without such a source message, the session
    that a new message of that run and time would belong to.
    """
    own_run, other_runs = record.scope.run_id, [other for other in record.further_runs if other != run]
    if own_run == run:
        if not other_runs:
            return None
        own_run = other_runs.pop(0)
    scope = replace(record.scope, run_id=own_run)
    sources = memories.records_linked_from(uow.connection, record.row, "drawn_from")
    sessions = [source.session for source in sources if source.scope.run_id == own_run]
    if not sessions:
        sessions = [uow.session_for(scope, record.at, record.actor_id, record.text)]
    session = record.session if record.session in sessions else sessions[0]
    moved = replace(record, scope=scope, session=session, further_runs=tuple(other_runs))
    return _save_scope(moved, record, RUN_DELETED, uow)


def _save_scope(moved: MemoryRecord, record: MemoryRecord, reason: str, uow: UnitOfWork) -> MemoryRecord:
    """Saves `moved`, which is `record` with another scope, session or list of runs, and adds a SCOPE event.

    Returns the memory as saved; if both are equal, saves nothing and returns `record`.
    """
    if moved == record:
        return record
    moved = replace(moved, seq=uow.next_seq())
    memories.update(uow.connection, moved)
    memories.set_further_runs(uow.connection, moved.row, moved.further_runs)
    uow.add_event("SCOPE", moved, old=record.text, new=record.text, reason=reason)
    return moved
