"""The queue of jobs: the work that a stored change leaves to models, and everything that is done later.

A job is stored in the transaction of the change that it is about and deleted in that of its result.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import blake2b
from json import dumps
from typing import Any, NamedTuple

from sqlalchemy import JSON, ColumnElement, Connection, Row, Select, and_, case, func, literal, or_, select

from graphmem.lifecycle.decay import Operation
from graphmem.model import EMPTY_MAPPING, SCOPE_NAMES, Layer, MemoryRecord, Scope, micros
from graphmem.stores.ledger.memories import RECORD, decode_record, ensure_partition, forgotten_by
from graphmem.stores.ledger.schema import jobs, memories, mentions, partitions
from graphmem.stores.ledger.sql import decoding, in_array, now_micros, upsert

MICROS_PER_SECOND = 1_000_000
# Seconds in which only the call that enqueued a job may claim it: a worker that looks for claimable jobs would take it
# from a call that waits for its result.
FIRST_CLAIM_SECONDS = 10
# Seconds for which a job, or a batch of texts, is claimed; whoever still works on it renews that.
CLAIM_SECONDS = 60.0
# Seconds until a failed job is tried again: doubled with each attempt, up to an hour.
RETRY_BASE, RETRY_MAX = 30.0, 3600.0
# After so many doublings the pause is an hour.
MAX_DOUBLINGS = 7
# Keys in the request of a job: of facts, the row of the summary job to be done before; of a summary, the row before
# which its messages were stored; of facts and procedures, the caller's instructions, and the importance that he gives.
SUMMARY_JOB, BEFORE, INSTRUCTIONS, IMPORTANCE = "summary_job", "before", "prompt", "importance"
# Of a description: what the model gets, by position; how facts are to be drawn afterwards; the message that is no
# memory yet.
SOURCES, EXTRACTION, MESSAGE = "sources", "extraction", "message"
# Of a composition: the fields of `graphmem.lifecycle.decay.Composition`, the versions of its sources, the id of the
# cycle (None: of none), and the time that the caller gave this cycle, in microseconds (None: none).
OPERATION, LEVEL, HIDES, VERSIONS, BATCH, AT = "operation", "level", "hides", "versions", "batch", "at"
# Of a session's end: how many messages were added since the last one, and what facts are to be drawn then
# (`DeferredFacts`).
MESSAGES, DEFERRED = "messages", "deferred"


class JobKind(StrEnum):
    """What a job is to do.

    Enrichment of a memory; for a language model: facts from messages, a summary of the procedure in them, a session's
    running summary, one memory made of others; a cycle of the lifecycle over a partition; the end of a session, which
    each message puts off; for a model of images or speech: descriptions of a message's attachments.
    """

    ENRICHMENT = "enrichment"
    FACTS = "facts"
    PROCEDURE = "procedure"
    SUMMARY = "summary"
    COMPOSITION = "composition"
    CYCLE = "cycle"
    DESCRIPTION = "description"
    SESSION = "session"


MODEL_KINDS = frozenset({JobKind.FACTS, JobKind.PROCEDURE, JobKind.SUMMARY, JobKind.COMPOSITION})
_IS_ENRICHMENT = jobs.c.kind == JobKind.ENRICHMENT.value


@dataclass(frozen=True, slots=True)
class Job:
    """A job that is no enrichment. `memories` are the ids of its episodes, in order; `request` holds the rest.

    Of a description the one memory with the attachments, or none: then `request` holds a message that has no words.

    A composition has the ids of its sources instead.

    A cycle has nothing of these, and `whole_partition`, the key of its partition. `row` is 0 until the job is enqueued.
    """

    kind: JobKind
    scope: Scope
    session: str
    memories: tuple[str, ...] = ()
    request: Mapping[str, Any] = field(default_factory=lambda: EMPTY_MAPPING)
    attempts: int = 0
    row: int = 0
    whole_partition: str | None = None

    @property
    def partition(self) -> str:
        """The key of the partition that the job belongs to."""
        return self.scope.partition if self.whole_partition is None else self.whole_partition

    @property
    def subject(self) -> str | None:
        """What there is at most one job of this kind about: a session in a scope, for a summary; a scope, for the end
        of a session; the sources of a composition; the key of a message that a description holds; else None.
        """
        if self.kind is JobKind.DESCRIPTION:
            held: Mapping[str, Any] = self.request.get(MESSAGE, EMPTY_MAPPING)
            return held.get("key")
        if self.kind is JobKind.COMPOSITION:
            of_sources = dumps([self.request[OPERATION], self.request[LEVEL], *sorted(self.memories)]).encode()
            return blake2b(of_sources, digest_size=16).hexdigest()
        if self.kind not in {JobKind.SUMMARY, JobKind.SESSION}:
            return None
        return dumps([*(getattr(self.scope, name) for name in SCOPE_NAMES), self.session])


def composition_job(
    operation: Operation, scope: Scope, sources: Mapping[str, int], level: int, batch: str | None, *, hides: bool
) -> Job:
    """Returns the job to make one memory of others ({id: version}); see `graphmem.lifecycle.decay.Composition`."""
    request = {
        OPERATION: operation.value, LEVEL: level, HIDES: hides, VERSIONS: list(sources.values()), BATCH: batch
    }  # fmt: skip
    return Job(JobKind.COMPOSITION, scope, "", tuple(sources), request)


def enqueue(connection: Connection, job: Job, memory: int | None = None, *, awaited: bool = True) -> Job:
    """Stores a job and returns it with its row. A job with the same subject is replaced by it, but for its attempts.

    `memory` is the row of the memory with which it is deleted. `awaited`: the call that stores it may run it first.
    """
    request = {"memories": list(job.memories), **job.request}
    # A summary that a request for facts shows belongs to the call that waits for these facts, a composition to the
    # cycle; one that is made again belongs to nobody, like a description.
    is_awaited = BEFORE in job.request or job.request.get(BATCH) is not None
    is_awaited = awaited and (is_awaited or job.kind not in {JobKind.SUMMARY, JobKind.COMPOSITION, JobKind.DESCRIPTION})
    values = {
        "kind": job.kind.value,
        "partition": ensure_partition(connection, job.partition).row,
        **{name: getattr(job.scope, name) for name in SCOPE_NAMES},
        "session": job.session,
        "memory": memory,
        "subject": job.subject,
        "request": request,
        "attempts": 0,
        "created_at": now_micros(),
        "claimable_at": now_micros() + FIRST_CLAIM_SECONDS * MICROS_PER_SECOND if is_awaited else 0,
    }
    statement = upsert(connection, jobs).values(values)
    statement = statement.on_conflict_do_update(
        index_elements=[jobs.c.kind, jobs.c.partition, jobs.c.subject], set_={"request": request}
    )
    row, attempts = connection.execute(statement.returning(jobs.c.id, jobs.c.attempts)).one()
    return Job(job.kind, job.scope, job.session, job.memories, job.request, attempts, row)


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
        row.partition_key if row.kind == JobKind.CYCLE.value else None,
    )


def get(connection: Connection, row: int) -> Job | None:
    """Returns the job with this row, or None once it is completed."""
    record = connection.execute(_JOBS.where(jobs.c.id == row)).first()
    return None if record is None else _decode_job(record)


def partition_keys(connection: Connection, rows: Iterable[int]) -> dict[int, str]:
    """Returns the keys of the partitions of jobs, by their rows; completed jobs are left out."""
    statement = select(jobs.c.id, partitions.c.key).join(partitions).where(in_array(jobs.c.id, "rows"))
    return dict(connection.execute(statement, {"rows": list(rows)}).all())


def claimable(connection: Connection, kinds: Collection[JobKind], *, also_waiting: bool = False) -> dict[int, JobKind]:
    """Returns the claimable jobs of some kinds, by row, oldest first.

    Failed jobs that wait for their next attempt are among them only with `also_waiting`.
    """
    is_free: ColumnElement[bool] = jobs.c.claimable_at <= now_micros()
    if also_waiting:
        is_free = or_(jobs.c.holder.is_(None), is_free)
    return _jobs_of_kinds(connection, kinds, is_free)


def all_jobs(connection: Connection, kinds: Collection[JobKind]) -> dict[int, JobKind]:
    """Returns all jobs of some kinds, claimed ones too, by row, oldest first."""
    return _jobs_of_kinds(connection, kinds)


def _jobs_of_kinds(
    connection: Connection, kinds: Collection[JobKind], *conditions: ColumnElement[bool]
) -> dict[int, JobKind]:
    statement = select(jobs.c.id, jobs.c.kind).where(jobs.c.kind.in_(sorted(kinds)), *conditions).order_by(jobs.c.id)
    return {row: JobKind(kind) for row, kind in connection.execute(statement)}


def pending_kinds(connection: Connection, kinds: Collection[JobKind]) -> list[str]:
    """Returns those of some kinds of which there are jobs, sorted."""
    return sorted(connection.scalars(select(jobs.c.kind).where(jobs.c.kind.in_(sorted(kinds))).distinct()))


def has_failed_session(connection: Connection) -> bool:
    """Returns whether the end of a session failed, and waits for another attempt."""
    failed = select(jobs.c.id).where(jobs.c.kind == JobKind.SESSION.value, jobs.c.attempts > 0)
    return connection.scalar(failed.limit(1)) is not None


class JobCount(NamedTuple):
    """The number of jobs of one kind and state, and the seconds since the oldest of them was recorded.

    `state` is "running" (claimed), "failed" (waiting for another attempt) or "waiting".
    """

    kind: str
    state: str
    number: int
    oldest_seconds: float


def count_jobs(connection: Connection) -> list[JobCount]:
    """Counts the jobs by kind and state, without the ends of sessions that go on."""
    is_running = and_(jobs.c.holder.is_not(None), jobs.c.claimable_at > now_micros())
    state = case((is_running, "running"), (jobs.c.attempts > 0, "failed"), else_="waiting").label("state")
    is_work = or_(jobs.c.kind != JobKind.SESSION.value, jobs.c.claimable_at <= now_micros())
    one = select(jobs.c.kind, state, jobs.c.created_at).where(is_work).subquery()
    age = now_micros() - func.min(one.c.created_at)
    rows = connection.execute(select(one.c.kind, one.c.state, func.count(), age).group_by(one.c.kind, one.c.state))
    return [JobCount(kind, state, number, max(0.0, age / MICROS_PER_SECOND)) for kind, state, number, age in rows]


def next_due(connection: Connection) -> float | None:
    """Returns the seconds until a job becomes claimable that is not yet; None if there is none."""
    soonest = connection.scalar(
        select(func.min(jobs.c.claimable_at) - now_micros()).where(jobs.c.claimable_at > now_micros())
    )
    return None if soonest is None else max(0.0, soonest / MICROS_PER_SECOND)


def claim(
    connection: Connection,
    row: int,
    holder: str,
    seconds: float,
    *,
    also_waiting: bool = False,
    by_force: bool = False,
) -> bool:
    """Claims a job for `holder` for some seconds. Returns False if it is completed, claimed already, or waits for its
    next attempt after a failure.

    A job that is new, or handed over, is free for whoever knows its row: those have no error. `also_waiting` takes jobs
    that wait after a failure, `by_force` also those that somebody has claimed, such as a process that died.
    """
    is_unclaimed = jobs.c.holder.is_(None)
    is_known_by_row = is_unclaimed if also_waiting else and_(is_unclaimed, jobs.c.error.is_(None))
    is_free = or_(jobs.c.claimable_at <= now_micros(), is_known_by_row)
    statement = jobs.update().where(jobs.c.id == row).values(holder=holder, claimable_at=_in(seconds))
    return bool(connection.execute(statement if by_force else statement.where(is_free)).rowcount)


def renew(connection: Connection, rows: Sequence[int], holder: str, seconds: float) -> None:
    """Lets `holder` keep jobs for some seconds from now; not those that somebody else has claimed meanwhile."""
    own = _unlocked(in_array(jobs.c.id, "rows"), jobs.c.holder == holder)
    statement = jobs.update().where(jobs.c.id.in_(own)).values(claimable_at=_in(seconds))
    connection.execute(statement, {"rows": list(rows)})


def _unlocked(*conditions: ColumnElement[bool]) -> Select[tuple[int]]:
    """Selects the rows of jobs that no open transaction is about to change: nobody waits for one to end."""
    return select(jobs.c.id).where(*conditions).with_for_update(skip_locked=True)


def record_failure(connection: Connection, row: int, error: str) -> None:
    """Counts a failed attempt, keeps the error's name, and releases the job to be tried again after a pause."""
    connection.execute(jobs.update().where(jobs.c.id == row).values(_failed(error)))


def complete(connection: Connection, row: int) -> bool:
    """Deletes a completed job. Returns False if it is gone already."""
    return bool(connection.execute(jobs.delete().where(jobs.c.id == row)).rowcount)


def delete_held(connection: Connection, scope: Scope) -> int:
    """Deletes the descriptions of a scope that hold a message; returns their number."""
    conditions = [jobs.c[name] == value for name, value in scope.parts.items()]
    is_held = jobs.c.kind == JobKind.DESCRIPTION.value, jobs.c.memory.is_(None)
    return connection.execute(jobs.delete().where(*is_held, *conditions)).rowcount


def _in(seconds: float) -> ColumnElement[int]:
    return now_micros() + int(seconds * MICROS_PER_SECOND)


def _failed(error: str) -> dict[str, Any]:
    pauses = [
        (jobs.c.attempts == n, int(min(RETRY_MAX, RETRY_BASE * 2**n) * MICROS_PER_SECOND)) for n in range(MAX_DOUBLINGS)
    ]
    pause = case(*pauses, else_=int(RETRY_MAX * MICROS_PER_SECOND))
    return {"attempts": jobs.c.attempts + 1, "error": error, "holder": None, "claimable_at": now_micros() + pause}


# --- ends of sessions -----------------------------------------------------------------------------------------------


class DeferredFacts(NamedTuple):
    """Messages of one session from which facts are drawn once it has ended.

    `memories` are their ids; the rest is how the calls that added them wanted it, as in
    `graphmem.commands.types.EnqueueExtraction`.
    """

    session: str
    memories: tuple[str, ...]
    prompt: str | None
    importance: float | None
    summarise: bool


class OpenSession(NamedTuple):
    """A session that has not ended: its job's row, its scope, the number of messages, and the facts to be drawn."""

    row: int
    scope: Scope
    messages: int
    deferred: tuple[DeferredFacts, ...]


@decoding
def _decode_session(job: Job) -> OpenSession:
    deferred = (DeferredFacts(*one) for one in job.request[DEFERRED])
    return OpenSession(
        job.row, job.scope, job.request[MESSAGES], tuple(one._replace(memories=tuple(one.memories)) for one in deferred)
    )


def open_session(connection: Connection, scope: Scope) -> OpenSession | None:
    """Returns the session of exactly this scope that has not ended; None if there is none."""
    of_scope = jobs.c.subject == Job(JobKind.SESSION, scope, "").subject, partitions.c.key == scope.partition
    row = connection.execute(_JOBS.where(jobs.c.kind == JobKind.SESSION.value, *of_scope)).first()
    return None if row is None else _decode_session(_decode_job(row))


def put_off_session_end(
    connection: Connection, scope: Scope, messages: int, deferred: Sequence[DeferredFacts], gap: timedelta
) -> None:
    """Lets the session of a scope, which has `messages` and `deferred` by now, end after a silence of `gap`."""
    job = Job(JobKind.SESSION, scope, "")
    new: dict[str, Any] = {
        "request": {MESSAGES: messages, DEFERRED: [list(one) for one in deferred]},
        "attempts": 0,
        "error": None,
        "created_at": now_micros(),
        "claimable_at": _in(gap.total_seconds()),
    }
    values = {
        "kind": job.kind.value,
        "partition": ensure_partition(connection, job.partition).row,
        **{name: getattr(scope, name) for name in SCOPE_NAMES},
        "session": job.session,
        "subject": job.subject,
        **new,
    }
    statement = upsert(connection, jobs).values(values)
    connection.execute(
        statement.on_conflict_do_update(index_elements=[jobs.c.kind, jobs.c.partition, jobs.c.subject], set_=new)
    )


def take_session(connection: Connection, row: int, *, only_if_due: bool) -> OpenSession | None:
    """Deletes the job of a session's end and returns the session.

    Returns None if another process was faster or, with `only_if_due`, if a message has put the end off.
    """
    job = get(connection, row)
    statement = jobs.delete().where(jobs.c.id == row, jobs.c.kind == JobKind.SESSION.value)
    if only_if_due:
        statement = statement.where(jobs.c.claimable_at <= now_micros())
    is_taken = job is not None and connection.execute(statement).rowcount
    return _decode_session(job) if job is not None and is_taken else None


# --- jobs that other processes do -----------------------------------------------------------------------------------


def hand_over(connection: Connection, rows: Sequence[int], seconds: float) -> None:
    """Lets other processes claim new jobs: whoever knows its row at once, whoever looks for claimable ones after some
    seconds.
    """
    statement = jobs.update().where(in_array(jobs.c.id, "rows")).values(holder=None, claimable_at=_in(seconds))
    connection.execute(statement, {"rows": list(rows)})


def hand_over_enrichments(connection: Connection, memory_rows: Sequence[int], seconds: float) -> list[int]:
    """Lets other processes claim the enrichment of new memories, as `hand_over` does; returns the rows of the jobs."""
    statement = jobs.update().where(*_OF_ROWS).values(holder=None, claimable_at=_in(seconds)).returning(jobs.c.id)
    return sorted(connection.scalars(statement, {"rows": list(memory_rows)}))


def hand_over_claimable(connection: Connection, kinds: Collection[JobKind], seconds: float, most: int) -> list[int]:
    """Hands over the oldest claimable jobs of some kinds, at most `most`, and returns their rows.

    They are claimable again after some seconds, or once they are twice as old, at most an hour: so the rows of a list
    that nobody works off are returned ever more rarely.
    """
    is_claimable = and_(jobs.c.kind.in_(sorted(kinds)), jobs.c.claimable_at <= now_micros())
    rows = list(connection.scalars(select(jobs.c.id).where(is_claimable).order_by(jobs.c.id).limit(most)))
    if rows:
        age, shortest, longest = (
            now_micros() - jobs.c.created_at,
            int(seconds * MICROS_PER_SECOND),
            int(RETRY_MAX * MICROS_PER_SECOND),
        )
        pause = case((age < shortest, shortest), (age > longest, longest), else_=age)
        statement = jobs.update().where(in_array(jobs.c.id, "rows"))
        handed_over = {"holder": None, "error": None, "claimable_at": now_micros() + pause}
        connection.execute(statement.values(handed_over), {"rows": rows})
    return rows


def release(connection: Connection, holder: str) -> None:
    """Releases all jobs that `holder` has claimed: others can claim them at once."""
    connection.execute(jobs.update().where(jobs.c.holder == holder).values(holder=None, claimable_at=0))


class UnfinishedCount(NamedTuple):
    """The number of jobs that do not wait after a failure, and whether somebody has claimed one of them."""

    number: int
    is_claimed: bool


def count_unfinished(connection: Connection, kinds: Collection[JobKind]) -> UnfinishedCount:
    """Counts the jobs of some kinds that do not wait after a failure."""
    is_waiting_again = and_(jobs.c.attempts > 0, jobs.c.holder.is_(None))
    is_claimed = and_(jobs.c.holder.is_not(None), jobs.c.claimable_at > now_micros())
    statement = select(func.count(), func.count(case((is_claimed, 1)))).where(
        jobs.c.kind.in_(sorted(kinds)), ~is_waiting_again
    )
    number, claimed = connection.execute(statement).one()
    return UnfinishedCount(number, claimed > 0)


# --- cycles ---------------------------------------------------------------------------------------------------------

# What tells the cycle of a partition from its other jobs.
_CYCLE_SUBJECT = "all"


def enqueue_cycles(connection: Connection, night: datetime, purge_after: timedelta | None) -> None:
    """Stores a job for a cycle over each partition that is due: see `is_cycle_due`. Jobs that are stored stay."""
    due = select(
        literal(JobKind.CYCLE.value),
        partitions.c.id,
        literal(_CYCLE_SUBJECT),
        literal({}, JSON),
        literal(0),
        literal(0),
        now_micros(),
    ).where(_is_cycle_due(night, purge_after))
    columns = ["kind", "partition", "subject", "request", "attempts", "claimable_at", "created_at"]
    statement = upsert(connection, jobs).from_select(columns, due)
    connection.execute(statement.on_conflict_do_nothing(index_elements=[jobs.c.kind, jobs.c.partition, jobs.c.subject]))


def is_cycle_due(connection: Connection, partition: str, night: datetime, purge_after: timedelta | None) -> bool:
    """Returns whether a partition, by its key, had no cycle since `night` and has memories of before that may fade, or
    some that were forgotten `purge_after` before it (None: none are erased).
    """
    statement = select(partitions.c.id).where(partitions.c.key == partition, _is_cycle_due(night, purge_after))
    return connection.scalar(statement) is not None


def _is_cycle_due(night: datetime, purge_after: timedelta | None) -> ColumnElement[bool]:
    has_work: ColumnElement[bool] = (
        select(memories.c.id)
        .where(
            memories.c.partition == partitions.c.id,
            memories.c.layer == Layer.SHORT_TERM.value,
            memories.c.forgotten_at.is_(None),
            memories.c.created_at < micros(night),
        )
        .exists()
    )
    if purge_after is not None:
        is_to_be_purged = and_(memories.c.partition == partitions.c.id, *forgotten_by(night - purge_after))
        has_work = or_(has_work, select(memories.c.id).where(is_to_be_purged).exists())
    return and_(func.coalesce(partitions.c.cycled_at, 0) < micros(night), has_work)


def cancel_compositions(connection: Connection, cycle: str, scope: Scope | None) -> int:
    """Deletes the compositions of a cycle that are still to be done, of memories of a scope (None: of all).

    Returns their number. One that is running stores nothing any more.
    """
    found = connection.execute(_JOBS.where(jobs.c.kind == JobKind.COMPOSITION.value)).all()
    rows = [
        job.row
        for job in map(_decode_job, found)
        if job.request.get(BATCH) == cycle and (scope is None or scope.sees(job.scope))
    ]
    if rows:
        connection.execute(jobs.delete().where(in_array(jobs.c.id, "rows")), {"rows": rows})
    return len(rows)


# --- enrichment -----------------------------------------------------------------------------------------------------


class UnenrichedText(NamedTuple):
    """A stored text that waits for enrichment: its memory's row, its characters, its partition, its failed attempts."""

    row: int
    chars: int
    partition: str
    attempts: int = 0


_OF_ROWS = (_IS_ENRICHMENT, in_array(jobs.c.memory, "rows"))
_UNENRICHED = (
    select(jobs.c.memory, func.length(memories.c.text), partitions.c.key, jobs.c.attempts)
    .join_from(jobs, memories, jobs.c.memory == memories.c.id)
    .join(partitions, partitions.c.id == jobs.c.partition)
    .where(_IS_ENRICHMENT)
    .order_by(jobs.c.attempts, jobs.c.memory)
)
_COMPLETE_ENRICHMENTS = jobs.delete().where(*_OF_ROWS)
_IS_WAITING = select(jobs.c.memory).where(_IS_ENRICHMENT, jobs.c.memory == memories.c.id).exists()
_HAS_MENTIONS = select(mentions.c.memory).where(mentions.c.memory == memories.c.id).exists()
_ENRICHMENT_STATES = RECORD.add_columns(_IS_WAITING.label("is_waiting"), _HAS_MENTIONS.label("has_mentions")).where(
    in_array(memories.c.uid, "ids")
)
_UNENRICHED_RECORDS = RECORD.where(in_array(memories.c.id, "rows"), _IS_WAITING)


class EnrichmentState(NamedTuple):
    """A memory, its partition (a row id), whether it waits for enrichment, and whether it has mentions already.

    An imported memory may have brought its own.
    """

    record: MemoryRecord
    partition: int
    is_waiting: bool
    has_mentions: bool


def enrichment_states(connection: Connection, ids: Sequence[str]) -> dict[str, EnrichmentState]:
    """Returns the states of the memories with these ids, by id; unknown ids are left out."""
    rows = connection.execute(_ENRICHMENT_STATES, {"ids": list(ids)}).mappings().all()
    return {
        row["uid"]: EnrichmentState(decode_record(row), row["partition"], row["is_waiting"], row["has_mentions"])
        for row in rows
    }


def enqueue_enrichments(connection: Connection, rows: Sequence[tuple[int, int]], holder: str) -> None:
    """Stores the jobs to enrich the texts of memories, as pairs of the memory's row and the partition's.

    Replaces earlier ones. For some seconds they are `holder`'s alone.
    """
    fresh: dict[str, Any] = {
        "attempts": 0,
        "error": None,
        "holder": holder,
        "claimable_at": _in(FIRST_CLAIM_SECONDS),
        "created_at": now_micros(),
    }
    values = {"kind": JobKind.ENRICHMENT.value, "request": {}, **fresh}
    statement = upsert(connection, jobs).values(values)
    connection.execute(
        statement.on_conflict_do_update(index_elements=[jobs.c.kind, jobs.c.memory], set_=fresh),
        [{"memory": row, "partition": partition} for row, partition in rows],
    )


def claimable_enrichments(connection: Connection, holder: str, *, by_force: bool = False) -> list[UnenrichedText]:
    """Returns the texts whose enrichment `holder` may claim, fewest attempts first; `by_force`: all."""
    is_free = or_(jobs.c.claimable_at <= now_micros(), jobs.c.holder == holder)
    statement = _UNENRICHED if by_force else _UNENRICHED.where(is_free)
    return [UnenrichedText(*row) for row in connection.execute(statement)]


def unenriched_text(connection: Connection, row: int) -> UnenrichedText | None:
    """Returns the text whose enrichment the job with this row is; None if it is of another kind, or completed."""
    found = connection.execute(_UNENRICHED.where(jobs.c.id == row)).first()
    return None if found is None else UnenrichedText(*found)


def unenriched(connection: Connection, rows: Sequence[int]) -> set[int]:
    """Returns those of some memories' rows that wait for enrichment."""
    return set(connection.scalars(select(jobs.c.memory).where(*_OF_ROWS), {"rows": list(rows)}))


def unenriched_records(connection: Connection, rows: Sequence[int]) -> dict[int, MemoryRecord]:
    """Returns those of some memories that wait for enrichment, by row."""
    found = connection.execute(_UNENRICHED_RECORDS, {"rows": list(rows)}).mappings().all()
    return {record.row: record for record in map(decode_record, found)}


def claim_enrichments(
    connection: Connection, rows: Sequence[int], holder: str, seconds: float, *, by_force: bool = False
) -> set[int]:
    """Claims the enrichment of some memories for some seconds; returns the rows of those that were free or own.

    `by_force` takes those of others too, such as a process that died.
    """
    is_free = or_(jobs.c.claimable_at <= now_micros(), jobs.c.holder.is_(None), jobs.c.holder == holder)
    claimed = _unlocked(*_OF_ROWS) if by_force else _unlocked(*_OF_ROWS, is_free)
    statement = jobs.update().where(jobs.c.id.in_(claimed)).values(holder=holder, claimable_at=_in(seconds))
    return set(connection.scalars(statement.returning(jobs.c.memory), {"rows": list(rows)}))


def complete_enrichments(connection: Connection, rows: Sequence[int]) -> None:
    """Deletes the jobs to enrich some memories."""
    connection.execute(_COMPLETE_ENRICHMENTS, {"rows": list(rows)})


def record_enrichment_failures(connection: Connection, rows: Sequence[int], error: str) -> None:
    """Counts a failed attempt at enriching each of some memories, as `record_failure` does."""
    connection.execute(jobs.update().where(*_OF_ROWS).values(_failed(error)), {"rows": list(rows)})


def count_enrichments(connection: Connection, *, failed: bool = False) -> int:
    """Returns the number of memories that wait for enrichment; `failed`: of those whose last attempt failed."""
    statement = select(func.count()).select_from(jobs).where(_IS_ENRICHMENT)
    return connection.scalar(statement.where(jobs.c.attempts > 0) if failed else statement) or 0
