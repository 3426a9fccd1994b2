"""The queue of jobs for a language model.

A job is stored in the transaction of its messages and deleted in that of its result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Row, and_, case, func, or_, select

from graphmem.model import EMPTY_MAPPING, SCOPE_NAMES, Scope
from graphmem.stores.ledger.decoding import decoding
from graphmem.stores.ledger.dialects import now_micros
from graphmem.stores.ledger.memories import ensure_partition, exact_scope, inserted_row
from graphmem.stores.ledger.schema import jobs, partitions

MICROS_PER_SECOND = 1_000_000
# Seconds in which only the call that enqueued a job may claim it: a worker that looks for claimable jobs would take it
# from a call that waits for its result.
FIRST_CLAIM_SECONDS = 10
# Keys in the request of a job: of facts, the row of the summary job to be done before; of a summary, the row before
# which its messages were stored; of facts and procedures, the caller's instructions.
SUMMARY_JOB, BEFORE, INSTRUCTIONS = "summary_job", "before", "prompt"


class JobKind(StrEnum):
    """The result of a job: facts from messages, a summary of the procedure in them, or a session's running summary."""

    FACTS = "facts"
    PROCEDURE = "procedure"
    SUMMARY = "summary"


@dataclass(frozen=True, slots=True)
class Job:
    """A job. `memories` are the ids of its episodes, in order; `request` holds the rest of the request.

    `row` is 0 until the job is enqueued.
    """

    kind: JobKind
    scope: Scope
    session: str
    memories: tuple[str, ...] = ()
    request: Mapping[str, Any] = field(default_factory=lambda: EMPTY_MAPPING)
    attempts: int = 0
    row: int = 0

    @property
    def partition(self) -> str:
        """The key of the partition that the job belongs to."""
        return self.scope.partition


def enqueue(connection: Connection, job: Job) -> Job:
    """Stores a job and returns it with its row.

    There is at most one summary job per session and scope: a further one replaces the request of the first.
    """
    partition = ensure_partition(connection, job.partition)
    request = {"memories": list(job.memories), **job.request}
    if job.kind is JobKind.SUMMARY:
        same_session = (jobs.c.kind == job.kind.value, jobs.c.partition == partition, jobs.c.session == job.session)
        existing = connection.execute(_JOBS.where(*same_session, *exact_scope(jobs, job.scope))).first()
        if existing is not None:
            connection.execute(jobs.update().where(jobs.c.id == existing.id).values(request=request))
            return replace(_decode_job(existing), request=job.request)
    # A summary that a request for facts shows belongs to the call that waits for these facts.
    is_awaited = job.kind is not JobKind.SUMMARY or BEFORE in job.request
    values = {
        "kind": job.kind.value,
        "partition": partition,
        **{name: getattr(job.scope, name) for name in SCOPE_NAMES},
        "session": job.session,
        "request": request,
        "attempts": 0,
        "created_at": now_micros(),
        "claimable_at": now_micros() + FIRST_CLAIM_SECONDS * MICROS_PER_SECOND if is_awaited else 0,
    }
    row = inserted_row(connection.execute(jobs.insert().values(values)))
    return Job(job.kind, job.scope, job.session, job.memories, job.request, 0, row)


_JOBS = select(jobs, partitions.c.key.label("partition_key")).join(partitions)


@decoding
def _decode_job(row: Row[Any]) -> Job:
    request = dict(row.request)
    return Job(
        JobKind(row.kind),
        Scope(row.user_id, row.agent_id, row.run_id),
        row.session,
        tuple(request.pop("memories", ())),
        request,
        row.attempts,
        row.id,
    )


def get(connection: Connection, row: int) -> Job | None:
    """Returns the job with this row, or None once it is completed."""
    record = connection.execute(_JOBS.where(jobs.c.id == row)).first()
    return None if record is None else _decode_job(record)


def claimable(connection: Connection, *, also_waiting: bool = False) -> list[int]:
    """Returns the rows of claimable jobs, oldest first.

    Failed jobs that wait for their next attempt are among them only with `also_waiting`.
    """
    is_free: ColumnElement[bool] = jobs.c.claimable_at <= now_micros()
    if also_waiting:
        is_free = or_(jobs.c.holder.is_(None), is_free)
    return list(connection.scalars(select(jobs.c.id).where(is_free).order_by(jobs.c.id)))


def all_jobs(connection: Connection) -> list[int]:
    """Returns the rows of all jobs, claimed ones too, oldest first."""
    return list(connection.scalars(select(jobs.c.id).order_by(jobs.c.id)))


def pending_kinds(connection: Connection) -> list[str]:
    """Returns the kinds of the stored jobs, sorted."""
    return sorted(connection.scalars(select(jobs.c.kind).distinct()))


class JobCount(NamedTuple):
    """The number of jobs of one kind and state, and the seconds since the oldest of them was recorded.

    `state` is "running" (claimed), "failed" (waiting for another attempt) or "waiting".
    """

    kind: str
    state: str
    number: int
    oldest_seconds: float


def count_jobs(connection: Connection) -> list[JobCount]:
    """Counts the jobs by kind and state."""
    is_running = and_(jobs.c.holder.is_not(None), jobs.c.claimable_at > now_micros())
    state = case((is_running, "running"), (jobs.c.attempts > 0, "failed"), else_="waiting").label("state")
    one = select(jobs.c.kind, state, jobs.c.created_at).subquery()
    age = now_micros() - func.min(one.c.created_at)
    rows = connection.execute(select(one.c.kind, one.c.state, func.count(), age).group_by(one.c.kind, one.c.state))
    return [JobCount(kind, state, number, max(0.0, age / MICROS_PER_SECOND)) for kind, state, number, age in rows]


def next_due(connection: Connection) -> float | None:
    """Returns the seconds until the next job becomes claimable (0: now); None without jobs."""
    soonest = connection.scalar(select(func.min(jobs.c.claimable_at) - now_micros()))
    return None if soonest is None else max(0.0, soonest / MICROS_PER_SECOND)


def claim(connection: Connection, row: int, holder: str, seconds: float, *, by_force: bool = False) -> bool:
    """Claims a job for `holder` for some seconds. Returns False if it is claimed already or completed.

    `by_force` also takes jobs that somebody has claimed, such as a process that died, and jobs that wait after a
    failure.
    """
    is_free = or_(jobs.c.claimable_at <= now_micros(), jobs.c.holder.is_(None))
    claimable_at = now_micros() + int(seconds * MICROS_PER_SECOND)
    statement = jobs.update().where(jobs.c.id == row).values(holder=holder, claimable_at=claimable_at)
    return bool(connection.execute(statement if by_force else statement.where(is_free)).rowcount)


def record_failure(connection: Connection, row: int, error: str, seconds: float) -> None:
    """Counts a failed attempt, keeps the error's name, and releases the job to be tried again after some seconds."""
    claimable_at = now_micros() + int(seconds * MICROS_PER_SECOND)
    values = {"attempts": jobs.c.attempts + 1, "error": error, "holder": None, "claimable_at": claimable_at}
    connection.execute(jobs.update().where(jobs.c.id == row).values(values))


def complete(connection: Connection, row: int) -> bool:
    """Deletes a completed job. Returns False if it is gone already."""
    return bool(connection.execute(jobs.delete().where(jobs.c.id == row)).rowcount)
