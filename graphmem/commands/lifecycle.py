"""The handlers of commands that hide a memory, show it again, move it between layers, pin it, and make one of others.

`graphmem.commands.dispatch` calls them, each with its command and the transaction. A forgotten memory is hidden by
every store from `forgotten_at` on; nothing of it is erased.

Source messages are hidden once all facts drawn from them are retired or corrected, and shown again after an undo.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime

from graphmem.commands.types import (
    ComposeMemory,
    DecomposeMemory,
    ForgetMemory,
    MergeMemory,
    MoveMemory,
    Outcome,
    OutcomeType,
    PinMemory,
    RememberMemory,
)
from graphmem.commands.unit_of_work import UnitOfWork
from graphmem.lifecycle.decay import MADE_OF_OTHERS, MERGED_INTO, Operation
from graphmem.model import Kind, Layer, MemoryRecord
from graphmem.stores.ledger import events, graph_writes, jobs, memories, vitals

# The kinds of links from a memory to those that it stands for, that it is an abstraction of, and (of a summary of many
# events) that it was drawn from; and to all that it was made of, which has their words also when they are back.
COMPRESSES, ABSTRACTS, DRAWN_FROM, MADE_OF = "compresses", "abstracts", "drawn_from", "made_of"
CHANGED_SINCE, SAID_AGAIN = "changed since it was decided", "said again"
SOURCES_ERASED = "some of what it was made of is erased, so it stays"
WORDS_ERASED = "what stood for it was erased with another memory"
# The fewest memories of which one is made again when another of them was erased.
FEWEST_SOURCES = 2
CORRECTS = "corrects"


def forget_memory(command: ForgetMemory, uow: UnitOfWork) -> Outcome:
    """Hides a memory, and the source messages that no other fact shows.

    Changes nothing if the memory was changed, or found, since `command.decided` was read.
    """
    record = uow.find(command.id)
    if record.forgotten_at is not None:
        return _unchanged(record, "forgotten already")
    if command.decided is not None and command.decided != vitals.state_of(uow.connection, record):
        return _unchanged(record, CHANGED_SINCE)
    outcome = _change(replace(record, forgotten_at=uow.now), record, OutcomeType.FORGET, command, uow)
    update_forgotten_sources(uow, outcome.required_record)
    return outcome


def merge_memory(command: MergeMemory, uow: UnitOfWork) -> Outcome:
    """Hides a memory, links it to the one that stands for it, and gives that one the higher importance of both, unless
    the caller gave it one.
    """
    target = uow.find(command.into)
    if target.forgotten_at is not None or target.valid_to is not None or target.layer is not Layer.LONG_TERM:
        return _unchanged(uow.find(command.id), CHANGED_SINCE)
    outcome = forget_memory(ForgetMemory(command.id, f"{MERGED_INTO}{target.id}", command.batch, command.decided), uow)
    if outcome.event is not OutcomeType.FORGET:
        return outcome
    merged = outcome.required_record
    memories.add_link(uow.connection, target.row, COMPRESSES, merged.row)
    known = vitals.stored(uow.connection, [target.row]).get(target.row)
    is_given = known is not None and known.importance_given
    higher = target.importance if is_given else max(target.importance, merged.importance)
    memories.update(uow.connection, replace(target, importance=higher, seq=uow.next_seq()))
    return outcome


def compose_memory(command: ComposeMemory, uow: UnitOfWork) -> Outcome:
    """Stores a memory that was made of others, links it to them and, if it stands for them, hides them."""
    found = memories.records(uow.connection, [uid for uid, _ in command.sources])
    sources = [found[uid] for uid, version in command.sources if uid in found and found[uid].version == version]
    is_over = any(source.valid_to is not None for source in sources)
    stays = command.hides and any(source.pinned or source.forgotten_at is not None for source in sources)
    if len(sources) < len(command.sources) or is_over or stays:
        return Outcome(OutcomeType.NONE, command.record.id, kind=command.record.kind, reason=CHANGED_SINCE)
    record = replace(command.record, valid_from=uow.now, updated_at=uow.now, seq=uow.next_seq())
    record = replace(record, row=memories.insert(uow.connection, record, uow.partition_row(record)))
    vitals.give_importance(uow.connection, [record.row])
    uow.enqueue_enrichments([record])
    kind = ABSTRACTS if command.event is OutcomeType.ABSTRACT else COMPRESSES
    kind = DRAWN_FROM if record.kind is Kind.SUMMARY else kind
    for source in sources:
        memories.add_link(uow.connection, record.row, kind, source.row)
        memories.add_link(uow.connection, record.row, MADE_OF, source.row)
    reason = MADE_OF_OTHERS.format(number=len(sources))
    event_id = uow.add_event(command.event.value, record, new=record.text, reason=reason, batch=command.batch)
    hidden = tuple(sources) if command.hides else ()
    for source in hidden:
        forget_memory(ForgetMemory(source.id, f"{MERGED_INTO}{record.id}", command.batch), uow)
    return Outcome(
        command.event,
        record.id,
        kind=record.kind,
        record=record,
        event_id=event_id,
        sources=tuple(source.id for source in sources),
        hidden=hidden,
    )


def decompose_memory(command: DecomposeMemory, uow: UnitOfWork) -> Outcome:
    """Forgets a memory that was made of others, and shows those again that were forgotten for it.

    One that says what is erased by now stays: nothing else does.
    """
    record = uow.find(command.id)
    if record.forgotten_at is not None:
        return _unchanged(record, "forgotten already")
    if len(memories.records_linked_from(uow.connection, record.row, MADE_OF)) < command.sources:
        return _unchanged(record, SOURCES_ERASED)
    for source in hidden_sources(record, uow):
        remember_memory(RememberMemory(source.id, command.reason), uow)
    return forget_memory(ForgetMemory(record.id, command.reason), uow)


def made_of(record: MemoryRecord, uow: UnitOfWork) -> list[MemoryRecord]:
    """Returns the texts that were made of a memory, with its words: summaries, merged memories and abstractions.

    A memory that stands for it without having been made of it is none: it keeps the words that it had.
    """
    drawn = memories.records_linking_to(uow.connection, record.row, DRAWN_FROM)
    composed = memories.records_linking_to(uow.connection, record.row, MADE_OF)
    return [*composed, *(other for other in drawn if other.kind is Kind.SUMMARY)]


def hidden_sources(record: MemoryRecord, uow: UnitOfWork) -> list[MemoryRecord]:
    """Returns those that a memory was made of and that are forgotten because it stands for them."""
    sources = memories.records_linked_from(uow.connection, record.row, MADE_OF)
    forgotten = [source for source in sources if source.forgotten_at is not None]
    if not forgotten:
        return []
    last = events.last_of_type(uow.connection, [source.id for source in forgotten], OutcomeType.FORGET.value)
    return [source for source in forgotten if last.get(source.id, ("", ""))[1] == f"{MERGED_INTO}{record.id}"]


def compose_again(record: MemoryRecord, erased: Collection[str], uow: UnitOfWork) -> None:
    """Before a composed memory is erased with one that it was made of: shows the others, and records a job to make it
    again of them.
    """
    linked = memories.records_linked_from(uow.connection, record.row, MADE_OF)
    sources = [source for source in linked if source.id not in erased]
    hidden = [source for source in hidden_sources(record, uow) if source.id not in erased]
    for source in hidden:
        remember_memory(RememberMemory(source.id, WORDS_ERASED), uow)
    if len(sources) < FEWEST_SOURCES or record.forgotten_at is not None:
        return
    operation = Operation.ABSTRACT if record.level else Operation.MERGE
    operation = Operation.SUMMARIZE if record.kind is Kind.SUMMARY else operation
    versions = {source.id: source.version for source in sources}
    job = jobs.composition_job(operation, record.scope, versions, record.level, None, hides=bool(hidden))
    jobs.enqueue(uow.connection, job)


def remember_memory(command: RememberMemory, uow: UnitOfWork) -> Outcome:
    """Shows a forgotten memory again, with its source messages; it begins anew, as if it had just been found."""
    record = uow.find(command.id)
    if record.forgotten_at is None:
        return _unchanged(record, "not forgotten")
    outcome = _change(replace(record, forgotten_at=None), record, OutcomeType.REMEMBER, command, uow)
    vitals.record_accesses(uow.connection, {record.row: vitals.Access(1, uow.now)})
    for standing_for_it in memories.records_linking_to(uow.connection, record.row, COMPRESSES):
        memories.set_seq(uow.connection, standing_for_it.row, uow.next_seq())
        vitals.rate_again(uow.connection, standing_for_it.row)  # it had the higher importance of both
    memories.remove_links_to(uow.connection, record.row, COMPRESSES)
    update_forgotten_sources(uow, outcome.required_record)
    return outcome


def remembered(record: MemoryRecord, reason: str, uow: UnitOfWork) -> MemoryRecord:
    """Returns a memory that is not forgotten: one that is, is shown again first."""
    if record.forgotten_at is None:
        return record
    return remember_memory(RememberMemory(record.id, reason), uow).required_record


def move_memory(command: MoveMemory, uow: UnitOfWork) -> Outcome:
    """Moves a memory to another layer; changes nothing if it was changed since `command.decided` was read."""
    record = uow.find(command.id)
    if record.layer is command.layer:
        return _unchanged(record, "there already")
    if command.decided is not None and command.decided.seq != record.seq:
        return _unchanged(record, CHANGED_SINCE)
    event = OutcomeType.PROMOTE if command.layer is Layer.LONG_TERM else OutcomeType.DEMOTE
    return _change(replace(record, layer=command.layer), record, event, command, uow)


def pin_memory(command: PinMemory, uow: UnitOfWork) -> Outcome:
    """Pins a memory, so that no cycle forgets it, or unpins it; without an event, for it says what it said."""
    record = uow.find(command.id)
    if record.pinned is command.pinned:
        return _unchanged(record, "pinned already" if command.pinned else "not pinned")
    pinned = replace(record, pinned=command.pinned, seq=uow.next_seq())
    memories.update(uow.connection, pinned)
    return Outcome(OutcomeType.PIN, record.id, kind=record.kind, record=pinned)


def _change(
    changed: MemoryRecord,
    record: MemoryRecord,
    event: OutcomeType,
    command: ForgetMemory | RememberMemory | MoveMemory,
    uow: UnitOfWork,
) -> Outcome:
    """Stores a change of a memory's state, with its event; `updated_at` stays, for the words do."""
    changed = replace(changed, seq=uow.next_seq())
    memories.update(uow.connection, changed)
    before = memories.encode_record(record)
    event_id = uow.add_event(
        event.value,
        changed,
        old=record.text,
        new=record.text,
        before=before,
        reason=command.reason,
        batch=command.batch,
    )
    return Outcome(event, record.id, kind=record.kind, record=changed, reason=command.reason, event_id=event_id)


def _unchanged(record: MemoryRecord, reason: str) -> Outcome:
    return Outcome(OutcomeType.NONE, record.id, kind=record.kind, record=record, reason=reason)


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
    states = (event.previous_state or {} for event in reversed(events.history(uow.connection, new.id)))
    # Those corrected when the fact last had this text; None if it never had it.
    earlier_ids = next((set(state.get(CORRECTS, ())) for state in states if state.get("text") == new.text), None)
    if earlier_ids is None and not corrects:
        return
    corrected_ids = {source.id for source in sources} if earlier_ids is None else earlier_ids
    memories.remove_links(uow.connection, new.row, CORRECTS)
    for source in sources:
        if source.id in corrected_ids:
            memories.add_link(uow.connection, new.row, CORRECTS, source.row)
    update_source_visibility(uow, new, uow.now)


def update_source_visibility(
    uow: UnitOfWork, fact: MemoryRecord, at: datetime, former_end: datetime | None = None
) -> None:
    """Hides a fact's source messages from `at` on, or shows them again: after the fact is retired, restored, corrected.

    A source stays visible while one of its facts is valid and does not correct it. One that is hidden stays so from the
    same time on, unless that was the end of the fact (`former_end`). Memories of other kinds: no effect.
    """
    for source in _source_messages(uow, fact) if fact.kind is Kind.FACT else []:
        correcting = {one.id for one in memories.records_linking_to(uow.connection, source.row, CORRECTS)}
        drawn = memories.records_linking_to(uow.connection, source.row, "drawn_from")
        ends = [one.valid_to for one in drawn if one.kind is Kind.FACT and one.id not in correcting]
        # Visible while a fact of the source is valid and does not correct it.
        valid_to = None if None in ends else max([at, *(end for end in ends if end is not None)])
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
