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

from graphmem.model import Kind, MemoryRecord
from graphmem.remember.plan import Assign, Carry, Learn, Outcome, Settle, Settling
from graphmem.stores.ledger import jobs, log, memories, statistics
from graphmem.stores.ledger.jobs import Job, JobKind

if TYPE_CHECKING:
    from graphmem.remember.commit import Transaction

ERASED = "its messages were erased meanwhile"


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
    lacking = {
        name: value for name, value in step.scope.parts.items() if name != "user_id" and not getattr(record.scope, name)
    }
    # Whose graph it lives in never changes.
    scope = replace(record.scope, **lacking) if record.space == step.scope.space else record.scope
    record = replace(record, scope=scope, change=transaction.next_change())
    memories.update(transaction.connection, record)
    return Outcome("NONE", record.id, kind=record.kind, record=record, reason="known")
