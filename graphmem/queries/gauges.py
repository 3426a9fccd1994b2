"""Reads the numbers that tell how a memory is: its size, and the work that is pending."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from graphmem.stores.ledger import Ledger, integrity, jobs, memories
from graphmem.stores.ledger.jobs import JobCount
from graphmem.stores.projection import Projection


@dataclass(frozen=True, slots=True)
class Gauges:
    """The state of a memory at one moment.

    `memories` is the number of stored memories by kind, `ledger_bytes` the size of the ledger and `embedding_bytes`
    that of the embeddings in it. `pending_changes` and `dead_letters` are by projection: the sequence numbers above
    its cursor, and the rows that its store refuses.
    """

    memories: Mapping[str, int]
    ledger_bytes: int
    embedding_bytes: int
    pending_changes: Mapping[str, int]
    dead_letters: Mapping[str, int]
    jobs: Sequence[JobCount]


def read_gauges(ledger: Ledger, projections: Sequence[Projection]) -> Gauges:
    """Returns the state of a memory. Reads whole tables: not for each request. Raises StoreError."""
    ledger_bytes = ledger.size()
    with ledger.read() as connection:
        return Gauges(
            memories=memories.count_by_kind(connection),
            ledger_bytes=ledger_bytes,
            embedding_bytes=sum(integrity.embedding_bytes(connection).values()),
            pending_changes={one.name: one.count_pending(connection) for one in projections},
            dead_letters={one.name: one.count_dead_letters(connection) for one in projections},
            jobs=jobs.count_jobs(connection),
        )
