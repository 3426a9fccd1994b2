"""Reads what happened to memories: where one comes from (its events, its source messages, what it replaced), and what
the lifecycle did in a scope.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from graphmem.answer_size import count_texts, counted
from graphmem.model import UNDO_REASON, Entity, Event, Kind, MemoryRecord, Relation, Scope, View
from graphmem.stores.ledger import Ledger, events, graph_reads, memories, tombstones, vitals
from graphmem.stores.ledger.vitals import LastCycle, LayerCount, PastCycle


@dataclass(frozen=True, slots=True)
class MemoryOrigin:
    """Where a memory comes from. `sources` are the source messages of a fact or summary; an episode is its own.

    `lost_sources`: the ledger holds no source message of this fact or summary, in any scope. `replaced` are the
    memories that it retired, `successors` those that retired it, `merged` those that were forgotten for it,
    `merged_into` those for which it was forgotten, as far as the scope sees them.
    """

    sources: list[MemoryRecord]
    lost_sources: bool
    entities: list[Entity]
    relations: list[Relation]
    replaced: list[MemoryRecord]
    successors: list[MemoryRecord]
    merged: list[MemoryRecord]
    merged_into: list[MemoryRecord]
    abstracted: list[MemoryRecord]
    abstractions: list[MemoryRecord]
    events: Sequence[Event]

    @property
    def retirement(self) -> str | None:
        """The id of the last event that retired the memory and was not undone; None if there is none."""
        retirements: list[str] = []
        for event in self.events:
            if event.event == "RETIRE":
                retirements.append(event.id)
            elif event.event == "RESTORE" and (event.reason or "").startswith(UNDO_REASON):
                del retirements[-1:]
        return retirements[-1] if retirements else None

    def source_text(self, source: MemoryRecord) -> str:
        """Returns the text of a source; if the memory is its own source, the text before its first update."""
        first = self.events[0] if self.events and self.events[0].memory_id == source.id else None
        return source.text if first is None or first.new_text is None else first.new_text


def events_of_memory(ledger: Ledger, memory_id: str, scope: Scope | None) -> Sequence[Event]:
    """Returns a memory's events, oldest first, also those of an erased memory; none if the scope has no such memory.

    Of one that was erased to make room the tombstone alone is left: its erasure, under the id of the memory.
    """
    with ledger.read() as connection:
        record = memories.find(connection, memory_id)
        tombstone = None if record is not None else tombstones.find_tombstone(connection, memory_id)
        if record is None:
            is_visible = tombstone is not None and (scope is None or scope.sees(tombstone.scope))
        else:
            is_visible = scope is None or record.is_in(scope)
        if not is_visible:
            return []
        found = _history(connection, memory_id)
        if found or tombstone is None:
            return found
        erasure = Event(
            id=tombstone.uid, memory_id=tombstone.uid, event=events.ERASED, old_text=None, new_text=None,
            created_at=tombstone.at, updated_at=tombstone.at, is_deleted=True, actor_id=None, role=None, reason=None,
        )  # fmt: skip
        return [erasure]


def trace_origin(ledger: Ledger, record: MemoryRecord, scope: Scope | None, now: datetime) -> MemoryOrigin:
    """Returns a memory's sources, mentions, relations, events, and the memories that it replaced or was replaced by.

    With a scope, memories outside it are left out.
    """
    view = View(scope or record.scope, now, show_expired=True, as_of=record.valid_from)

    def visible(records: Sequence[MemoryRecord]) -> list[MemoryRecord]:
        return [record for record in records if scope is None or record.is_in(scope)]

    with ledger.read() as connection:
        drawn_from = memories.records_linked_from(connection, record.row, "drawn_from")
        sources = [record] if record.kind is Kind.EPISODE and not drawn_from else drawn_from
        return MemoryOrigin(
            sources=list(counted(visible(sources))),
            lost_sources=not sources and not events.was_composed(connection, record.id),
            entities=[entity for _, entity, _ in graph_reads.mentions_in(connection, view, [record.id])],
            relations=graph_reads.relations_stated_by(connection, view, [record.id]),
            replaced=visible(memories.records_linked_from(connection, record.row, "replaces")),
            successors=visible(memories.records_linking_to(connection, record.row, "replaces")),
            merged=visible(memories.records_linked_from(connection, record.row, "compresses")),
            merged_into=visible(memories.records_linking_to(connection, record.row, "compresses")),
            abstracted=visible(memories.records_linked_from(connection, record.row, "abstracts")),
            abstractions=visible(memories.records_linking_to(connection, record.row, "abstracts")),
            events=_history(connection, record.id),
        )


def _history(connection: Connection, memory_id: str) -> list[Event]:
    """Returns a memory's events, oldest first, without the states before them. Raises AnswerTooLarge."""
    history = []
    with closing(events.each_event(connection, memory_id)) as found:
        for event in found:
            count_texts(event.old_text, event.new_text, event.reason)
            history.append(event)
    return history


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
            last = last._replace(held=None, changed=None)
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
