"""Reads what is told of the lifecycle: its state in a scope, what is forgotten, and the words of planned changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime

from graphmem.answer_size import count_texts, counted
from graphmem.model import MemoryRecord, Scope
from graphmem.stores.ledger import Ledger, events, memories, vitals
from graphmem.stores.ledger.vitals import LastCycle, LayerCount, PastCycle


@dataclass(frozen=True, slots=True)
class LifecycleState:
    """The lifecycle of a scope at one moment.

    `layers` counts what a list shows, `forgotten` what it does not. `last_cycle` is that of the partition, `since`
    the time at which the lifecycle of the ledger was first enabled.
    """

    layers: Sequence[LayerCount]
    forgotten: int
    last_cycle: LastCycle | None
    since: datetime | None
    cycles: Sequence[PastCycle]


@dataclass(frozen=True, slots=True)
class ForgottenPage:
    """Forgotten memories, the event that hid each, as (id, reason) by the memory's id, and the number of all."""

    records: Sequence[MemoryRecord]
    forgettings: Mapping[str, tuple[str, str]]
    total: int


def read_lifecycle(ledger: Ledger, scope: Scope, now: datetime, *, documents: bool, limit: int) -> LifecycleState:
    """Returns the state of the lifecycle in a scope, with the last `limit` cycles; `documents`: those take part too."""
    with ledger.read() as connection:
        last = vitals.last_cycle(connection, scope.partition)
        if last is not None and len(scope.parts) > 1:  # its numbers are of memories outside the scope, too
            last = last._replace(held=None)
        return LifecycleState(
            layers=vitals.count_layers(connection, scope, now, documents=documents),
            forgotten=memories.count_forgotten(connection, scope, now),
            last_cycle=last,
            since=vitals.lifecycle_since(connection),
            cycles=vitals.past_cycles(connection, scope, limit),
        )


def words_of(ledger: Ledger, rows: Iterable[int]) -> dict[str, str]:
    """Returns the texts of the memories that a cycle would change (`rows`), by id. Raises AnswerTooLarge."""
    rows, words = list(dict.fromkeys(rows)), {}
    with ledger.read() as connection, closing(memories.each_text(connection, rows)) as found:
        for uid, text in found:
            count_texts(text)
            words[uid] = text
    return words


def list_forgotten(ledger: Ledger, scope: Scope, now: datetime, limit: int) -> ForgottenPage:
    """Returns the `limit` memories of a scope that were forgotten last. Raises AnswerTooLarge."""
    with ledger.read() as connection:
        with closing(memories.each_forgotten(connection, scope, now, limit)) as found:
            records = list(counted(found))
        forgettings = events.last_of_type(connection, [record.id for record in records], "FORGET")
        return ForgottenPage(records, forgettings, memories.count_forgotten(connection, scope, now))
