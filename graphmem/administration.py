"""Looks after an engine as a whole: counts, checks, repairs, rebuilds and empties it, and finishes its pending work."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from graphmem.background import delete_expired_items, ready_cycle
from graphmem.commands.types import ReindexMemory
from graphmem.engine import PROJECTION_NAMES, Engine
from graphmem.errors import ConfigError, StoreError
from graphmem.jobs.worker import NO_MODEL, JobFailure
from graphmem.logs import log_and_leave_pending
from graphmem.model import LISTED_KINDS, ListFilter, Scope, View, optional_iso
from graphmem.queries import gauges
from graphmem.stores.blobs import erase_unused, missing_and_unused
from graphmem.stores.ledger import (
    attachments,
    embeddings,
    event_log,
    integrity,
    jobs,
    ledger_state,
    memories,
    outbox,
    vitals,
)
from graphmem.stores.ledger.jobs import MODEL_KINDS, JobKind
from graphmem.stores.ledger.ledger_state import record_embedder, recorded_embedder, recorded_spaces
from graphmem.stores.projection import CLEAN_REPORT, Progress
from graphmem.webhooks import PREFIX

if TYPE_CHECKING:
    from graphmem.jobs.cycle import CycleResult

# Seconds that `flush` waits for a store to take one batch: a server that has just started is slow to plan its first
# statements. As long it waits for another process that begins with a job.
FLUSH_TIMEOUT = 30.0


def needs_rebuild(engine: Engine) -> bool:
    """Returns whether the ledger's vectors are of another embedder, so that `Engine.check_embedder` raises."""
    with engine.ledger.read() as connection:
        return recorded_embedder(connection) not in {None, engine.embedding_spec.embedder}


def prepare_searches(engine: Engine) -> None:
    """Does now what the first search would wait for: loads models and checks the contents of a given vector index.

    Never raises: a broken model or store raises when a search needs it.
    """
    engine.backends.load_models()
    with suppress(StoreError):
        if not needs_rebuild(engine) and engine.backends.vector_worker is not None:
            engine.backends.vector_worker.check_contents()


def flush(engine: Engine) -> list[str]:
    """Finishes background work and jobs, waits for both, and makes durable what was delivered.

    Where other processes do jobs, it waits for them.

    Returns the kinds of jobs and the projections that are still pending.
    """
    if engine.job_worker.hands_over:
        engine.job_worker.wait_for_others(FLUSH_TIMEOUT)
    else:
        engine.job_worker.drain()
    engine.accesses.write()
    pending = _finish_enrichment_and_deliveries(engine)
    engine.events.drain()
    return pending


def retry_failed(engine: Engine) -> dict[str, Any]:
    """Runs all recorded jobs of the language model now, and waits for them; see `Memory.retry_failed`."""
    if not engine.job_worker.kinds - {JobKind.CYCLE}:
        raise ConfigError(NO_MODEL)
    results = engine.job_worker.drain(by_force=True)
    failures = [result for result in results if isinstance(result, JobFailure)]
    answer: dict[str, Any] = {
        "done": len(results) - len(failures),
        "failed": dict(Counter(failure.error for failure in failures)),
        "pending": _finish_enrichment_and_deliveries(engine),
    }
    if causes := {failure.error: failure.cause for failure in failures if failure.cause is not None}:
        answer["causes"] = causes
    return answer


def _finish_enrichment_and_deliveries(engine: Engine) -> list[str]:
    with log_and_leave_pending():
        delete_expired_items(engine)
    if not engine.job_worker.hands_over:
        with log_and_leave_pending():
            engine.job_worker.enrich_all()
    with engine.ledger.read() as connection:
        pending_jobs = jobs.pending_kinds(connection, engine.job_worker.kinds)
        if jobs.has_failed_session(connection):  # one that goes on is no work that waits
            pending_jobs = sorted([*pending_jobs, JobKind.SESSION.value])
        is_unenriched = jobs.count_enrichments(connection) > 0
    lagging = [worker for worker in engine.projection_workers if worker.projection.has_pending()]
    for draining in [engine.pool.submit(worker.drain, FLUSH_TIMEOUT) for worker in lagging if not is_unenriched]:
        draining.result()
    if is_unenriched:
        return [*pending_jobs, *PROJECTION_NAMES]
    return pending_jobs + [projection.name for projection in engine.projections if projection.has_pending()]


def run_cycle(engine: Engine, partition: str, now: datetime | None, *, dry_run: bool, force: bool) -> CycleResult:
    """Runs a cycle of the lifecycle over a partition; see `Memory.tend`. Finishes its enrichment first.

    With a `now` of the past all that it does happens at that time, else each commit has its own: what it decides
    for a time to come happens now.
    """
    present = datetime.now(UTC)
    cycle = ready_cycle(engine, now if now is not None and now < present else None)
    return cycle.run(partition, now or present, dry_run=dry_run, force=force)


def rebuild(engine: Engine, projection: str | None, progress: Progress | None) -> None:
    """Drops projections (`projection`, or None for all) and fills them again.

    Embeds texts that have no vectors of the configured embedder, unless only the graph is rebuilt.
    `progress(name, done, total)` is called after each batch.
    """
    if projection != "graph":
        spec = engine.embedding_spec
        if outdated := _without_embeddings(engine):
            engine.commit([ReindexMemory(uid) for uid in outdated])
        record_embedder(engine.ledger, spec)
        engine.job_worker.enrich_all()
        with engine.ledger.write() as connection:
            deleted = embeddings.delete_other_embeddings(connection, spec)
        if deleted:
            engine.ledger.compact()
    with engine.ledger.write() as connection:
        integrity.recompute_derived(connection)
    for target in engine.projections:
        if projection in {None, target.name}:
            with engine.ledger.read() as connection:
                partitions = memories.all_partitions(connection)
            target.rebuild(partitions, progress)
    if engine.backends.vector_worker is None and projection != "graph" and progress is not None:
        with engine.ledger.read() as connection:
            last = outbox.extent(connection).newest
        progress("vectors", last, last)  # it is the ledger


def verify(engine: Engine) -> dict[str, Any]:
    """Checks the ledger's file, its derived columns and its texts, and compares each projection with the ledger.

    A derived column is wrong if it differs from the value computed from the rows it is derived from, such as
    `entities.mentions` from the number of mentions. Returns the report that `Memory.verify` documents.
    """
    damaged = engine.ledger.check()
    with engine.ledger.read() as connection:
        counts, inconsistent, failed = (
            integrity.counts(connection),
            integrity.inconsistent_columns(connection),
            jobs.count_enrichments(connection, failed=True),
        )
        damaged += integrity.damaged_memories(connection)
    missing, unused = missing_and_unused(engine.ledger)
    blobs = {"missing": sorted(missing), "unused": sorted(unused)} if missing or unused else {}
    projections = {worker.name: worker.verify() for worker in engine.projection_workers}
    if engine.backends.vector_worker is None:
        # Before a rebuild for another embedder all are.
        lost = [] if needs_rebuild(engine) else _without_embeddings(engine)
        projections["vectors"] = {**CLEAN_REPORT, "missing": lost}
    is_ok = (
        not damaged
        and not inconsistent
        and not failed
        and not blobs
        and not any(any(report.values()) for report in projections.values())
    )
    return {
        "ok": is_ok, "ledger": counts, "damaged": damaged, "derived": inconsistent, "failed": failed,
        "projections": projections,
        **({"blobs": blobs} if blobs else {}),
    }  # fmt: skip


def _without_embeddings(engine: Engine) -> list[str]:
    """Returns the ids of enriched memories that lack an embedding of the configured embedder."""
    with engine.ledger.read() as connection:
        rows = embeddings.rows_without_embeddings(connection, engine.embedding_spec)
        return sorted(memories.ids_of(connection, rows).values())


def stats(engine: Engine, scope: Scope | None) -> dict[str, Any]:
    """Returns counts, sizes in bytes, pending work and the models' usage, as `Memory.stats` documents.

    `scope` restricts the usage only.
    """
    with engine.ledger.read() as connection:
        counts, embedding_bytes = integrity.counts(connection), integrity.embedding_bytes(connection)
        everybodys = View(Scope(), datetime.now(UTC), kinds=LISTED_KINDS)
        listed, _ = memories.count_records(connection, everybodys, ListFilter(), with_sources=False)
        usage = ledger_state.usage_totals(connection, scope)
        pending_jobs = jobs.pending_kinds(connection, MODEL_KINDS | {JobKind.CYCLE, JobKind.DESCRIPTION})
        hidden = memories.count_hidden(connection, everybodys.now)
        unguarded = integrity.count_unprotected_tombstones(connection)
        stores = gauges.store_states(connection, engine.ledger, engine.projection_workers)
        job_counts = [count._asdict() for count in jobs.count_jobs(connection)]
        cycles = vitals.all_last_cycles(connection)
        dead_letters = {name.removeprefix(PREFIX): number for name, number in event_log.count_dead(connection).items()}
        configured = engine.embedding_spec.embedder
        recorded, multilingual = recorded_spaces(connection)
        recorded = recorded or configured
    working = {}
    if engine.working is not None and engine.settings.working is not None:
        is_available = not engine.working.store.is_away
        working = {"working_provider": engine.settings.working.provider, "working_available": is_available}
    other = {"configured_embedder": configured.model, "configured_embedder_dims": configured.dims}
    return {
        "memories": counts.pop("memories"),
        "listed": listed,
        **hidden,
        **counts,
        "embedder": recorded.model,
        "embedder_dims": recorded.dims,
        "multilingual_embedder": multilingual,
        **(other if recorded != configured else {}),
        "embedding_bytes": embedding_bytes,
        "bytes": engine.ledger.size(),
        "unguarded": unguarded,
        **working,
        "pending": pending_jobs + [projection.name for projection in engine.projections if projection.has_pending()],
        "stores": stores,
        "job_counts": job_counts,
        "last_cycles": {**cycles._asdict(), "ended_at": optional_iso(cycles.ended_at)},
        "dead_letters": dead_letters,
        "usage": usage,
    }


def repair(engine: Engine) -> None:
    """Finishes pending work, corrects the differences that `verify` reports and compacts after erasures."""
    flush(engine)
    with engine.ledger.write() as connection:
        integrity.recompute_derived(connection)
    for projection in engine.projections:
        projection.repair(projection.verify())
    if not needs_rebuild(engine) and (lost := _without_embeddings(engine)):
        engine.commit([ReindexMemory(uid) for uid in lost])
        engine.job_worker.enrich_all()
    missing, _ = missing_and_unused(engine.ledger)
    if missing:
        with engine.ledger.write() as connection:
            attachments.forget_blobs(connection, missing)
    erase_unused(engine.ledger)
    engine.ledger.compact_after_erasures()


def reset(engine: Engine) -> list[str]:
    """Empties the ledger and the projections; returns the projections that are emptied later."""
    with engine.ledger.write() as connection:
        integrity.wipe(connection)
    engine.ledger.columns.clear()
    if engine.working is not None:
        engine.working.store.drop_all()
    erase_unused(engine.ledger)
    pending = engine.deliver([])
    engine.ledger.compact()
    return pending
