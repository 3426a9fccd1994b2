"""What a language model has still to do: written with the words it is about, taken off with what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, func, or_, select

from graphmem.model import EMPTY_MAPPING, SCOPE_NAMES, Scope
from graphmem.stores.ledger.decoding import decoding
from graphmem.stores.ledger.dialects import now_micros
from graphmem.stores.ledger.memories import ensure_partition, exact_scope, inserted_row
from graphmem.stores.ledger.schema import jobs, partitions

MICROS_PER_SECOND = 1_000_000
# Seconds that are left to whoever recorded a piece of work to begin it: others, who look for what nobody is at, would
# take it from the call that waits for what comes of it.
FIRST_CLAIM_SECONDS = 10


class JobKind(StrEnum):
    """What is to be made: facts of some messages, the procedure they went through, or a summary of a session."""

    FACTS = "facts"
    PROCEDURE = "procedure"
    SUMMARY = "summary"


@dataclass(frozen=True, slots=True)
class Job:
    """One piece of work. `memories` are the ids of the episodes it is about, in order; `request` is the rest of it."""

    kind: JobKind
    scope: Scope
    session: str
    memories: tuple[str, ...] = ()
    request: Mapping[str, Any] = field(default_factory=lambda: EMPTY_MAPPING)
    attempts: int = 0
    row: int = 0

    @property
    def partition(self) -> str:
        """The partition it belongs to."""
        return self.scope.partition


def enqueue(connection: Connection, job: Job) -> Job:
    """Notes a piece of work; of summaries of one session and scope there is at most one."""
    partition = ensure_partition(connection, job.partition)
    if job.kind is JobKind.SUMMARY:
        same = (jobs.c.kind == job.kind.value, jobs.c.partition == partition, jobs.c.session == job.session)
        known = connection.execute(_ALL.where(*same, *exact_scope(jobs, job.scope))).first()
        if known is not None:
            return _job(known)
    line = {
        "kind": job.kind.value,
        "partition": partition,
        **{name: getattr(job.scope, name) for name in SCOPE_NAMES},
        "session": job.session,
        "request": {"memories": list(job.memories), **job.request},
        "attempts": 0,
        "until": now_micros() + FIRST_CLAIM_SECONDS * MICROS_PER_SECOND if job.kind is not JobKind.SUMMARY else 0,
    }
    row = inserted_row(connection.execute(jobs.insert().values(line)))
    return Job(job.kind, job.scope, job.session, job.memories, job.request, 0, row)


_ALL = select(jobs, partitions.c.key.label("partition_key")).join(partitions)


@decoding
def _job(row: Row[Any]) -> Job:
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
    """A piece of work that is still to be done."""
    found = connection.execute(_ALL.where(jobs.c.id == row)).first()
    return None if found is None else _job(found)


def claimable(connection: Connection, *, also_waiting: bool = False) -> list[int]:
    """What nobody is at, oldest first; without what has failed and is to wait a while, unless `also_waiting`."""
    free: ColumnElement[bool] = jobs.c.until <= now_micros()
    if also_waiting:
        free = or_(jobs.c.holder.is_(None), free)
    return list(connection.scalars(select(jobs.c.id).where(free).order_by(jobs.c.id)))


def all_jobs(connection: Connection) -> list[int]:
    """Everything there is, whoever is at it, oldest first."""
    return list(connection.scalars(select(jobs.c.id).order_by(jobs.c.id)))


def pending_kinds(connection: Connection) -> list[str]:
    """Of which kinds there is something to do."""
    return sorted(connection.scalars(select(jobs.c.kind).distinct()))


def next_due(connection: Connection) -> float | None:
    """In how many seconds something that waits, or that somebody held, may be tried; None: there is nothing."""
    soonest = connection.scalar(select(func.min(jobs.c.until) - now_micros()))
    return None if soonest is None else max(0.0, soonest / MICROS_PER_SECOND)


def claim(connection: Connection, row: int, holder: str, seconds: float, *, by_force: bool = False) -> bool:
    """Makes `holder` the one who is at it, for so long. False: somebody else is, or it is done.

    `by_force`: what a process that died was at, or what waits after a failure, is taken all the same.
    """
    free = or_(jobs.c.until <= now_micros(), jobs.c.holder.is_(None), jobs.c.holder == holder)
    until = now_micros() + int(seconds * MICROS_PER_SECOND)
    statement = jobs.update().where(jobs.c.id == row).values(holder=holder, until=until)
    return bool(connection.execute(statement if by_force else statement.where(free)).rowcount)


def record_failure(connection: Connection, row: int, error: str, seconds: float) -> None:
    """Notes a failed attempt by the error's name; it is not tried again for so long."""
    until = now_micros() + int(seconds * MICROS_PER_SECOND)
    said = {"attempts": jobs.c.attempts + 1, "error": error, "holder": None, "until": until}
    connection.execute(jobs.update().where(jobs.c.id == row).values(said))


def complete(connection: Connection, row: int) -> bool:
    """Takes it off the list; False if it is not there any more."""
    return bool(connection.execute(jobs.delete().where(jobs.c.id == row)).rowcount)
