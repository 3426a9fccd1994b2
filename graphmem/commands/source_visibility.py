"""Hides source messages once all facts drawn from them are retired or corrected, and shows them again after an undo.

A source message says the same as its facts. Once all of these are retired, or corrected by the user, a search that
returned the message would return an outdated statement. Hiding sets `valid_to`, which every store filters by; a search
`as_of` an earlier time still finds the message. There is no event, because a source message is no memory of its own.

A correction adds a "corrects" link beside "drawn_from" to each source that the fact has at that time: facts drawn from
later messages are not affected. Each UPDATE event of a fact keeps the corrected sources before it, so that an undo can
restore them. Called within the transaction of `graphmem.commands.dispatch`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from graphmem.commands.unit_of_work import UnitOfWork
from graphmem.model import Kind, MemoryRecord
from graphmem.stores.ledger import events, graph_writes, memories

CORRECTS = "corrects"


def correction_details(uow: UnitOfWork, fact: MemoryRecord) -> dict[str, list[str]]:
    """Returns `{"corrects": ids of corrected sources}` for a fact's event, {} if there are none."""
    corrected = memories.records_linked_from(uow.connection, fact.row, CORRECTS) if fact.kind is Kind.FACT else []
    return {CORRECTS: [source.id for source in corrected]} if corrected else {}


def update_corrected_sources(uow: UnitOfWork, old: MemoryRecord, new: MemoryRecord, *, corrects: bool) -> None:
    """Updates a fact's "corrects" links after a change of its text, and the visibility of its sources.

    To be called before the UPDATE event is written. `corrects`: the new text contradicts the sources, so all of them
    are corrected. A text that the fact had before gets back the links it had then, also when `corrects` is False.
    """
    if new.kind is not Kind.FACT or new.text == old.text:
        return
    sources = _source_messages(uow, new)
    earlier_ids = _corrected_ids_of_earlier_text(uow, new)
    if earlier_ids is None and not corrects:
        return
    corrected_ids = {source.id for source in sources} if earlier_ids is None else earlier_ids
    memories.remove_links(uow.connection, new.row, CORRECTS)
    for source in sources:
        if source.id in corrected_ids:
            memories.add_link(uow.connection, new.row, CORRECTS, source.row)
    update_source_visibility(uow, new, uow.now)


def _corrected_ids_of_earlier_text(uow: UnitOfWork, fact: MemoryRecord) -> set[str] | None:
    """Returns the ids of the sources corrected when a fact last had its current text; None if it never had it."""
    history = events.history(uow.connection, fact.id)
    states: Iterable[Mapping[str, Any]] = (
        event.previous_state for event in reversed(history) if event.previous_state is not None
    )
    return next((set(state.get(CORRECTS, ())) for state in states if state.get("text") == fact.text), None)


def update_source_visibility(
    uow: UnitOfWork, fact: MemoryRecord, at: datetime, former_end: datetime | None = None
) -> None:
    """Hides a fact's source messages from `at` on, or shows them again: after the fact is retired, restored, corrected.

    A source stays visible while one of its facts is valid and does not correct it. One that is hidden stays so from the
    same time on, unless that was the end of the fact (`former_end`). Memories of other kinds: no effect.
    """
    for source in _source_messages(uow, fact) if fact.kind is Kind.FACT else []:
        valid_to = _valid_to(uow, source, at)
        is_hidden_with_fact = former_end is not None and source.valid_to == former_end
        if (valid_to is None) != (source.valid_to is None) or is_hidden_with_fact:
            changed = replace(source, valid_to=valid_to, seq=uow.next_seq())
            memories.update(uow.connection, changed)
            if source.valid_to is not None:
                graph_writes.reopen_supports(uow.connection, changed, source.valid_to)
            if valid_to is not None:
                graph_writes.end_supports(uow.connection, changed, valid_to)


def update_forgotten_sources(uow: UnitOfWork, fact: MemoryRecord) -> None:
    """Hides a fact's source messages while no fact that they were drawn into is remembered and valid.

    Sources that are hidden because their facts are retired are left as they are. Other kinds than facts: no effect.
    """
    for source in _source_messages(uow, fact) if fact.kind is Kind.FACT else []:
        drawn = memories.records_linking_to(uow.connection, source.row, "drawn_from")
        facts = [memory for memory in drawn if memory.kind is Kind.FACT]
        is_shown = any(memory.forgotten_at is None and memory.valid_to is None for memory in facts)
        forgotten_at = None if is_shown or fact.forgotten_at is None else fact.forgotten_at
        if (forgotten_at is None) != (source.forgotten_at is None):
            memories.update(uow.connection, replace(source, forgotten_at=forgotten_at, seq=uow.next_seq()))


def _source_messages(uow: UnitOfWork, fact: MemoryRecord) -> list[MemoryRecord]:
    sources = memories.records_linked_from(uow.connection, fact.row, "drawn_from")
    return [source for source in sources if source.source_only]


def _valid_to(uow: UnitOfWork, source: MemoryRecord, at: datetime) -> datetime | None:
    """Returns None while a fact of the source is valid and not correcting it, else the latest of `at` and its ends."""
    connection = uow.connection
    correcting = {fact.id for fact in memories.records_linking_to(connection, source.row, CORRECTS)}
    drawn = memories.records_linking_to(connection, source.row, "drawn_from")
    facts = [memory for memory in drawn if memory.kind is Kind.FACT and memory.id not in correcting]
    if any(fact.valid_to is None for fact in facts):
        return None
    return max([at, *(fact.valid_to for fact in facts if fact.valid_to is not None)])
