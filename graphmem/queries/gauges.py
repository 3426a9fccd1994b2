"""Reads the numbers that tell how a memory is: its size, the state of its stores, and the work that is pending."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from graphmem.stores.ledger import Ledger, event_log, events, integrity, jobs, memories, outbox, vitals
from graphmem.stores.ledger.jobs import JobCount
from graphmem.stores.projection import Projection
from graphmem.stores.projection_worker import ProjectionWorker


@dataclass(frozen=True, slots=True)
class Gauges:
    """The state of a memory at one moment.

    `memories` is the number of stored memories by kind and layer, `retention` the mean retention of the short-term
    ones and `compression` the mean number of memories that one made of several stands for (None without the lifecycle
    and where there is none), `ledger_bytes` the size of the ledger and `embedding_bytes` that of the
    embeddings in it. `pending_changes` and `dead_letters` are by projection: the sequence numbers above its cursor,
    and the rows that its store refuses. `delays` and `dead_events` are by the name of a subscriber, such as
    "webhook:orders": seconds since the oldest event that it was not told, and events that it did not take.
    """

    memories: Mapping[tuple[str, str], int]
    retention: float | None
    compression: float | None
    ledger_bytes: int
    embedding_bytes: int
    pending_changes: Mapping[str, int]
    dead_letters: Mapping[str, int]
    jobs: Sequence[JobCount]
    delays: Mapping[str, float]
    dead_events: Mapping[str, int]


def read_gauges(ledger: Ledger, projections: Sequence[Projection], *, lifecycle: bool) -> Gauges:
    """Returns the state of a memory; `lifecycle`: whether its lifecycle is on.

    Reads whole tables: not for each request. Raises StoreError.
    """
    ledger_bytes = ledger.size()
    with ledger.read() as connection:
        return Gauges(
            memories=memories.count_by_kind_and_layer(connection),
            retention=vitals.mean_retention(connection) if lifecycle else None,
            compression=vitals.compression_ratio(connection) if lifecycle else None,
            ledger_bytes=ledger_bytes,
            embedding_bytes=sum(integrity.embedding_bytes(connection).values()),
            pending_changes={one.name: one.count_pending(connection) for one in projections},
            dead_letters={one.name: one.count_dead_letters(connection) for one in projections},
            jobs=jobs.count_jobs(connection),
            delays=event_log.delays(connection),
            dead_events=event_log.count_dead(connection),
        )


def store_states(connection: Connection, ledger: Ledger, workers: Sequence[ProjectionWorker]) -> list[dict[str, Any]]:
    """Returns the state of the ledger and of each projection, as `Memory.stats` documents."""
    last = outbox.extent(connection).newest
    provider = "postgresql" if ledger.on_server else "sqlite"
    first = {
        "name": "ledger", "provider": provider, "available": True, "seq": last, "pending": 0,
        "oldest_pending_at": None, "dead_letters": 0,
    }  # fmt: skip
    states: list[dict[str, Any]] = [first]
    for worker in workers:
        projection = worker.projection
        pending, upto = projection.count_pending(connection), projection.delivered_upto(connection)
        oldest = events.first_after(connection, upto or 0) if pending else None
        state = {
            "name": projection.name, "provider": projection.provider, "available": not worker.is_unavailable,
            "seq": upto, "pending": pending, "oldest_pending_at": None if oldest is None else oldest.isoformat(),
            "dead_letters": projection.count_dead_letters(connection),
        }  # fmt: skip
        states.append(state)
    return states
