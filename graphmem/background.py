"""Work of an engine that no caller waits for: recorded jobs, lagging deliveries, expired items, ended sessions, cycles.

What fails here is logged and stays recorded; the next call, the next start or another process takes it up again.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from graphmem.commands.types import DeleteExpiredItems, EndSession, OutcomeType
from graphmem.concurrency import GivingWay
from graphmem.events_bus import Handler, Subscription
from graphmem.logs import log_and_leave_pending
from graphmem.model import EventType, Scope
from graphmem.observers import ObservedModel
from graphmem.stores.ledger import items, jobs, vitals

if TYPE_CHECKING:
    from graphmem.engine import Engine
    from graphmem.jobs.cycle import Cycle
    from graphmem.jobs.describing import DescriptionJobs

# The most expired items that one transaction deletes.
EXPIRED_BATCH = 200


def description_jobs(engine: Engine) -> DescriptionJobs | None:
    """Returns what has attachments described by the configured models; None without any."""
    vision, speech = engine.backends.vision, engine.backends.speech
    if vision is None and speech is None:
        return None
    from graphmem.jobs.describing import DescriptionJobs  # noqa: PLC0415  (only these models need it)

    return DescriptionJobs(
        engine.ledger,
        None if vision is None else ObservedModel(vision, engine.observers),
        speech,
        engine.settings.before_store,
        engine.embedding_spec,
        engine.commit,
        engine.observers,
    )


def begin_lifecycle(engine: Engine) -> None:
    """Records since when the lifecycle is enabled, if it is; raises ConfigError for a file of rules it cannot use."""
    lifecycle = engine.settings.lifecycle
    if lifecycle.rules is not None:
        lifecycle.read_rules()  # a file that is not usable is told now, not in the night
    if lifecycle.enabled:
        with engine.ledger.read() as connection:
            has_begun = vitals.lifecycle_since(connection) is not None
        if not has_begun:
            with engine.ledger.write() as connection:
                vitals.begin_lifecycle(connection, datetime.now(UTC))


def schedule_jobs(engine: Engine) -> None:
    """Starts the recorded jobs that are due, in the background."""

    def schedule() -> None:
        with log_and_leave_pending():
            engine.job_worker.schedule()

    with log_and_leave_pending():
        engine.pool.submit(schedule)


def schedule_background_work(engine: Engine) -> None:
    """Delivers pending changes and deletes expired items, in the background."""
    with log_and_leave_pending():
        engine.pool.submit(finish_background_work, engine)


def finish_background_work(engine: Engine) -> None:
    """Delivers what a background job has changed, without waiting, and deletes expired items. Logs errors."""
    with log_and_leave_pending():
        for worker in engine.projection_workers:
            worker.schedule([])
        delete_expired_items(engine)


def take_up_work(engine: Engine) -> None:
    """Starts what other processes have left behind: claimable jobs, deliveries that lag, expired items."""
    engine.job_worker.schedule()
    for worker in engine.projection_workers:
        if worker.projection.has_pending():
            worker.schedule([])
    delete_expired_items(engine)


def delete_expired_items(engine: Engine) -> None:
    """Deletes the items whose time is over, batch by batch."""
    while True:
        with engine.ledger.read() as connection:
            if not items.expired(connection, datetime.now(UTC), 1):
                return
        engine.commit([DeleteExpiredItems(EXPIRED_BATCH)])


def end_session(engine: Engine, scope: Scope) -> bool:
    """Ends the session of exactly this scope, and clears its working memory; returns False if none goes on."""
    if engine.working is not None:
        engine.working.end_sitting(scope)
    with engine.ledger.read() as connection:
        session = jobs.open_session(connection, scope)
    if session is None:
        return False
    (outcome,) = engine.commit([EndSession(session.row, only_if_due=False)])
    with log_and_leave_pending():
        engine.job_worker.schedule()
    return outcome.event is OutcomeType.END_SESSION


def subscribe(engine: Engine, event_type: EventType, handler: Handler, name: str | None) -> Subscription:
    """Calls a handler for the events of a type; see `EventBus.subscribe` and, with a name, `EventBus.follow`."""
    events = engine.events
    subscription = events.subscribe(event_type, handler) if name is None else events.follow(event_type, handler, name)
    if event_type is EventType.SESSION_END:  # sessions are recorded from now on
        with log_and_leave_pending():
            engine.job_worker.schedule()
    return subscription


def run_nightly_cycle(engine: Engine, partition: str) -> None:
    """Runs a cycle of the lifecycle over a partition, as a job; see `Cycle.run_nightly`."""
    engine.check_embedder()
    event = ready_cycle(engine, None).run_nightly(partition)
    if event is not None:
        engine.events.tell([event])


def ready_cycle(engine: Engine, now: datetime | None) -> Cycle:
    """Returns what runs cycles of the lifecycle, once the memories stored so far are enriched.

    Their changes happen at `now`, or (None) each at the time of its commit.
    """
    from graphmem.jobs.cycle import Cycle  # noqa: PLC0415  (only the lifecycle needs it)

    engine.accesses.write()
    with log_and_leave_pending():
        engine.job_worker.enrich_all()
    return Cycle(
        engine.ledger,
        engine.embedding_spec,
        partial(engine.commit, now=now),
        None if engine.llm is None else partial(engine.job_worker.compose, now=now),
        engine.settings.lifecycle,
        GivingWay(engine.search_load),
    )
