"""Mere sources that no fact stands for any more: out of default search, and back again. A part of `commit`.

The words of a message say what the facts drawn from it say. Once each of these is retired, or corrected by the user, a
search that still gave the words would give back what is not so. They are no memory of their own, so they have no event:
`valid_to` is set, which every store knows, and a search `as_of` an earlier time finds them.

A correction marks the links to the sources a fact had then ("corrects" beside "drawn_from"): what is drawn from later
words is not touched by it. The marks before each change of a fact's text stand in its event, for going back to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from graphmem.model import Kind, MemoryRecord
from graphmem.stores.ledger import events, graph_writes, memories

if TYPE_CHECKING:
    from graphmem.commands.unit_of_work import UnitOfWork

CORRECTS = "corrects"


def correction_details(uow: UnitOfWork, fact: MemoryRecord) -> dict[str, list[str]]:
    """What a fact's event has to keep beside its columns: `{"corrects": ids of sources}`, {} for most."""
    corrected = memories.link_targets(uow.connection, fact.row, CORRECTS) if fact.kind is Kind.FACT else []
    return {CORRECTS: [source.id for source in corrected]} if corrected else {}


def update_corrected_sources(uow: UnitOfWork, old: MemoryRecord, new: MemoryRecord, *, corrects: bool) -> None:
    """After a change of a memory's text, and before its event is written.

    A fact that goes back to words it had stands for the sources it stood for then, whoever takes it back.
    """
    if new.kind is not Kind.FACT or new.text == old.text:
        return
    sources = _sources(uow, new)
    before = _marks_when_it_said(uow, new)
    if before is None and not corrects:
        return
    marked = {source.id for source in sources} if before is None else before
    memories.remove_links(uow.connection, new.row, CORRECTS)
    for source in sources:
        if source.id in marked:
            memories.add_link(uow.connection, new.row, CORRECTS, source.row)
    update_source_visibility(uow, new, uow.now)


def _marks_when_it_said(uow: UnitOfWork, fact: MemoryRecord) -> set[str] | None:
    """The sources that were marked when a fact last had the words it has now; None if it never had them."""
    history = events.history(uow.connection, fact.id)
    was: Iterable[Mapping[str, Any]] = (
        event.previous_state for event in reversed(history) if event.previous_state is not None
    )
    return next((set(before.get(CORRECTS, ())) for before in was if before.get("text") == fact.text), None)


def update_source_visibility(uow: UnitOfWork, fact: MemoryRecord, at: datetime) -> None:
    """After a fact was retired, restored or corrected: its mere sources go (since `at`) or come back."""
    for source in _sources(uow, fact) if fact.kind is Kind.FACT else []:
        until = _until(uow, source, at)
        if (until is None) != (source.valid_to is None):
            _date(uow, source, until)


def _sources(uow: UnitOfWork, fact: MemoryRecord) -> list[MemoryRecord]:
    return [one for one in memories.link_targets(uow.connection, fact.row, "drawn_from") if one.source_only]


def _until(uow: UnitOfWork, source: MemoryRecord, at: datetime) -> datetime | None:
    """When the last of a source's facts ceased to stand for it; None while one does."""
    connection = uow.connection
    corrected = {fact.id for fact in memories.link_sources(connection, source.row, CORRECTS)}
    drawn = memories.link_sources(connection, source.row, "drawn_from")
    facts = [one for one in drawn if one.kind is Kind.FACT and one.id not in corrected]
    if any(fact.valid_to is None for fact in facts):
        return None
    return max([at, *(fact.valid_to for fact in facts if fact.valid_to is not None)])


def _date(uow: UnitOfWork, source: MemoryRecord, until: datetime | None) -> None:
    dated = replace(source, valid_to=until, seq=uow.next_seq())
    memories.update(uow.connection, dated)
    if until is not None:
        graph_writes.end_supports(uow.connection, dated, until)
    elif source.valid_to is not None:
        graph_writes.reopen_supports(uow.connection, dated, source.valid_to)
