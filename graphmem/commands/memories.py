"""The handlers of commands about memories: enrich, update, retire, restore, undo, reindex, delete.

`graphmem.commands.dispatch` calls them, each with its command and the transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from sqlalchemy import or_

from graphmem.boundary.validation import MAX_CONTENT_CHARS
from graphmem.commands import entities, facts, lifecycle
from graphmem.commands.types import (
    UNSET,
    VECTORS_ERASED,
    DecomposeMemory,
    DeleteMemory,
    ErasureReport,
    MoveMemory,
    Outcome,
    OutcomeType,
    ReindexMemory,
    RememberMemory,
    RestoreMemory,
    RetireMemory,
    StoreEnrichment,
    UndoEvent,
    Unset,
    UpdateMemory,
)
from graphmem.commands.unit_of_work import UnitOfWork
from graphmem.errors import NotFoundError, ValidationError
from graphmem.lifecycle.decay import number_of_sources
from graphmem.model import (
    COMPOSING_EVENTS,
    REVERSIBLE_EVENTS,
    UNDO_REASON,
    Event,
    Extraction,
    Kind,
    Layer,
    MemoryRecord,
    Mention,
    Statement,
    described_text,
    optional_micros,
)
from graphmem.stores.ledger import (
    attachments,
    embeddings,
    entity_names,
    events,
    graph_reads,
    graph_writes,
    items,
    jobs,
    memories,
    term_stats,
    tombstones,
    vitals,
)
from graphmem.stores.ledger.embeddings import Enriched
from graphmem.stores.ledger.graph_writes import GraphAddition
from graphmem.stores.ledger.schema import dead_letters, links
from graphmem.stores.ledger.schema import jobs as jobs_table
from graphmem.stores.ledger.schema import memories as memories_table
from graphmem.stores.ledger.sql import decoding, entity_type, mention_kind, moment

DERIVED, ATTACHMENTS = "derived", "attachments"
ReverseCommand = RestoreMemory | RememberMemory | MoveMemory | DecomposeMemory | UpdateMemory
_TIMES = ("valid_at", "invalid_at")
# Fields that these events change: name in `Event.previous_state` → name for callers.
_FIELDS = {
    "text": "text", "metadata": "metadata", "expires_at": "expiration_date", "at": "at", "valid_to": "valid_to",
    "forgotten_at": "forgotten", "layer": "layer",
}  # fmt: skip


def store_enrichments(commands: Sequence[StoreEnrichment], uow: UnitOfWork) -> list[Outcome]:
    """Stores memories' embeddings, term counts and extractions, and applies the rules for aliases to their new names.

    Does so once for each version of a memory's text. The commands have one `spec`.
    """
    connection = uow.connection
    states = jobs.enrichment_states(connection, [command.id for command in commands])
    outcomes: dict[int, Outcome] = {}
    due: dict[str, tuple[int, StoreEnrichment, jobs.EnrichmentState]] = {}
    for place, command in enumerate(commands):
        state = states.get(command.id)
        if state is None or state.record.version != command.version:
            outcomes[place] = Outcome(OutcomeType.NONE, command.id, reason="changed since")
        elif not state.is_waiting or command.id in due:
            outcomes[place] = Outcome(OutcomeType.NONE, command.id, record=state.record, reason="done already")
        else:
            due[command.id] = place, command, state
    if not due:
        return list(outcomes.values())
    jobs.complete_enrichments(connection, [state.record.row for _, _, state in due.values()])
    to_graph = [(state.partition, command.extraction) for _, command, state in due.values() if not state.has_mentions]
    seqs = uow.next_seqs(len(due) + graph_writes.count_relations(to_graph))
    enriched = [
        Enriched(
            replace(state.record, seq=seq),
            state.partition,
            command.text_hash,
            command.extraction.answer_types,
            command.embedded,
        )
        for seq, (_, command, state) in zip(seqs[: len(due)], due.values(), strict=True)
    ]
    erased = {record.id for record in embeddings.store_embeddings_and_terms(connection, commands[0].spec, enriched)}
    additions: list[GraphAddition] = []
    for one, (place, command, state) in zip(enriched, due.values(), strict=True):
        record = one.record
        if record.id in erased:
            # The last other memory with these vectors was erased during the computation: they must be computed again.
            outcomes[place] = Outcome(OutcomeType.NONE, record.id, record=state.record, reason=VECTORS_ERASED)
            continue
        outcomes[place] = Outcome(OutcomeType.ENRICH, record.id, kind=record.kind, record=record)
        if not state.has_mentions:
            additions.append(GraphAddition(record, state.partition, command.extraction))
    uow.enqueue_enrichments([one.record for one in enriched if one.record.id in erased])
    mentioned = graph_writes.add(connection, additions, seqs[len(due) :])
    entities.link_new_names(connection, additions, mentioned, uow.now)
    return [outcomes[place] for place in range(len(commands))]


def _remove_derived(record: MemoryRecord, uow: UnitOfWork, *, with_graph: bool = True) -> ErasureReport:
    """Removes a memory's reference to its embeddings, its term counts and, `with_graph`, its mentions and relations."""
    connection = uow.connection
    text_hash, windows = embeddings.enrichment_state(connection, record.row)
    partition = uow.partition_row(record)
    graph_parts = 0
    if with_graph:
        keys = entity_names.mentioned_keys(connection, record.row)
        removed = graph_writes.remove(connection, record, uow.now, uow.digests)
        entities.prune_rule_links(connection, partition, keys)
        graph_parts = removed.mentions + removed.entities + removed.relations
    if text_hash is None:
        return ErasureReport(graph=graph_parts)
    term_stats.remove_term_counts(connection, partition, record)
    vectors = embeddings.release_reference(connection, text_hash)
    embeddings.clear_enrichment(connection, record.row)
    return ErasureReport(points=windows, graph=graph_parts, derived=vectors)


def reindex_memory(command: ReindexMemory, uow: UnitOfWork) -> Outcome:
    """Removes a memory's enrichment, except the graph of a fact, and stores the job to enrich it again."""
    record = uow.find(command.id)
    # A fact's mentions and relations come from a language model: no extractor would find them again.
    _remove_derived(record, uow, with_graph=record.kind is not Kind.FACT)
    memories.set_seq(uow.connection, record.row, uow.next_seq())
    uow.enqueue_enrichments([record])
    return Outcome(OutcomeType.NONE, record.id, kind=record.kind, record=record, reason="to be derived anew")


def update_memory(command: UpdateMemory, uow: UnitOfWork) -> Outcome:
    """Changes text, metadata, expiration, scope and sources of a memory; stores the job to enrich a new text."""
    record = uow.find(command.id)
    if command.attachments is None:  # to describe is not to say again
        record = lifecycle.remembered(record, "changed", uow)
    if _updated(record, command) == record:
        return Outcome(OutcomeType.NONE, record.id, kind=record.kind, record=record, reason="nothing to change")
    sources = facts.sources_of(command.sources, uow)
    if sources is None:
        return Outcome(OutcomeType.NONE, record.id, kind=record.kind, record=record, reason=facts.ERASED)
    if command.scope is not None:
        record = facts.add_scope(command.scope, record, uow)
    updated = _updated(record, command)
    before = {**memories.encode_record(record), **lifecycle.correction_details(uow, record)}
    if updated.text != record.text:
        before |= derived_from(record, uow)
        _remove_derived(record, uow)
        updated = replace(updated, version=record.version + 1)
        uow.enqueue_enrichments([record])
        if command.extraction is not None:
            uow.add_to_graph(updated, command.extraction)
    if updated.attachments != record.attachments:
        before[ATTACHMENTS] = [attachments.encode(one) for one in record.attachments]
        attachments.put(uow.connection, record.row, updated.attachments)
    updated = _save(updated, uow)
    if command.attachments is not None and record.source_only:
        uow.new_source_messages.append(updated)
    lifecycle.update_corrected_sources(uow, record, updated, corrects=command.corrects)
    facts.add_source_links(updated, sources, uow)
    uow.add_event("UPDATE", updated, old=record.text, new=updated.text, before=before, reason=command.reason)
    return Outcome(OutcomeType.UPDATE, record.id, kind=record.kind, record=updated, previous=record.text)


def _updated(record: MemoryRecord, command: UpdateMemory) -> MemoryRecord:
    text, after = record.text if command.text is None else command.text, record.attachments
    if command.attachments is not None and len(command.attachments) == len(after):
        new = [now for now, then in zip(command.attachments, after, strict=True) if not then.is_described]
        after = command.attachments
        longer = described_text(text, new)
        text = longer if command.text is None and len(longer) <= MAX_CONTENT_CHARS else text
    elif command.text is not None:  # new words, which may tell by lines of their own what came with them
        untold = [one for one in after if f"\n[{one.kind}: " not in f"\n{text}"]
        longer = described_text(text, untold)
        text = longer if len(longer) <= MAX_CONTENT_CHARS else text
    return replace(
        record,
        text=text,
        attachments=after,
        metadata=command.metadata_after(record.metadata),
        expires_at=record.expires_at if isinstance(command.expires_at, Unset) else command.expires_at,
        at=command.at or record.at,
        utc_offset=record.utc_offset if command.at is None else command.utc_offset,
    )


def _save(record: MemoryRecord, uow: UnitOfWork) -> MemoryRecord:
    record = replace(record, updated_at=uow.now, seq=uow.next_seq())
    memories.update(uow.connection, record)
    return record


def retire_memory(command: RetireMemory, uow: UnitOfWork) -> Outcome:
    """Ends the validity of a memory and of its relations at `command.at`, and links the memory to its successor.

    One that has ended already ends earlier, if that is before its end, and has this successor in place of the former.
    """
    if facts.sources_of(command.sources, uow) is None:  # then a new fact of these messages is not there, either
        return Outcome(OutcomeType.NONE, command.id, kind=Kind.FACT, reason=facts.ERASED)
    record = uow.find(command.id)
    if record.valid_to is not None and record.valid_to <= command.at:
        return Outcome(OutcomeType.NONE, record.id, kind=record.kind, record=record, reason="retired already")
    if command.at < max(record.at, record.valid_from):  # an imported memory may become valid later than it was said
        return Outcome(
            OutcomeType.NONE, record.id, kind=record.kind, record=record, reason="older than what it would retire"
        )
    before = memories.encode_record(record)
    retired = _save(replace(record, valid_to=command.at), uow)
    graph_writes.end_supports(uow.connection, retired, command.at)
    lifecycle.update_source_visibility(uow, retired, command.at, record.valid_to)
    if record.valid_to is not None:
        _remove_successors(record, uow)
    if command.successor is not None:
        successor = uow.find(command.successor)
        memories.add_link(uow.connection, successor.row, "replaces", record.row)
        memories.set_seq(uow.connection, successor.row, uow.next_seq())
    uow.add_event("RETIRE", retired, old=record.text, new=record.text, before=before, reason=command.reason)
    return Outcome(
        OutcomeType.RETIRE,
        record.id,
        kind=record.kind,
        record=retired,
        reason=command.reason,
        successor=command.successor,
    )


def _remove_successors(record: MemoryRecord, uow: UnitOfWork) -> list[MemoryRecord]:
    """Removes the links to a memory from those that replaced it, and returns these."""
    successors = memories.records_linking_to(uow.connection, record.row, "replaces")
    for successor in successors:
        memories.set_seq(uow.connection, successor.row, uow.next_seq())
    memories.remove_links_to(uow.connection, record.row, "replaces")
    return successors


def restore_memory(command: RestoreMemory, uow: UnitOfWork) -> Outcome:
    """Makes a retired memory valid again, reopens its relations and removes the links from its successors.

    With `command.until` it is valid until then, and its successors are those of its successors.
    """
    record, until = uow.find(command.id), command.until
    if record.valid_to is None or (until is not None and until <= record.valid_to):
        return Outcome(OutcomeType.NONE, record.id, kind=record.kind, record=record, reason="not retired")
    before = memories.encode_record(record)
    restored = _save(replace(record, valid_to=until), uow)
    graph_writes.reopen_supports(uow.connection, restored, record.valid_to)
    if until is not None:
        graph_writes.end_supports(uow.connection, restored, until)
    lifecycle.update_source_visibility(uow, restored, until or uow.now, record.valid_to)
    for successor in _remove_successors(record, uow):
        for heir in [] if until is None else memories.records_linking_to(uow.connection, successor.row, "replaces"):
            memories.add_link(uow.connection, heir.row, "replaces", record.row)
            memories.set_seq(uow.connection, heir.row, uow.next_seq())
    uow.add_event("RESTORE", restored, old=record.text, new=record.text, before=before, reason=command.reason)
    return Outcome(OutcomeType.RESTORE, record.id, kind=record.kind, record=restored, reason=command.reason)


def undo_event(command: UndoEvent, uow: UnitOfWork) -> Outcome:
    """Carries out the command that reverses an event. Raises ValidationError if that changes nothing."""
    try:
        reverse = reverse_command(command, uow)
    except (NotFoundError, ValidationError):
        if command.is_lenient:
            return Outcome(OutcomeType.NONE, command.event, reason="changed since")
        raise
    match reverse:
        case RestoreMemory():
            outcome = restore_memory(reverse, uow)
        case RememberMemory():
            outcome = lifecycle.remember_memory(reverse, uow)
        case MoveMemory():
            outcome = lifecycle.move_memory(reverse, uow)
        case DecomposeMemory():
            outcome = lifecycle.decompose_memory(reverse, uow)
        case UpdateMemory():
            outcome = update_memory(reverse, uow)
    if outcome.reason == lifecycle.SOURCES_ERASED and not command.is_lenient:
        raise ValidationError(f"event_id: {outcome.reason}; forget or delete it, if it is to go")
    if outcome.event is OutcomeType.NONE and not command.is_lenient:
        raise ValidationError("event_id: it has been taken back already; the history shows by which event")
    return outcome


def delete_memory(command: DeleteMemory, uow: UnitOfWork) -> Outcome:
    """Erases a memory with all others that have its words (`_with_its_words`).

    With `command.run_id`, a memory that was also said in other runs is removed from that run alone.
    """
    is_gone = command.id in uow.erased_ids  # with another memory of this change set
    if is_gone or (command.missing_ok and not memories.records_to_erase(uow.connection, [command.id])):
        return Outcome(OutcomeType.NONE, command.id, reason="not there")
    record = uow.find_to_erase(command.id)
    if not command.is_about(record):
        return Outcome(OutcomeType.NONE, record.id, kind=record.kind, record=record, reason="not forgotten by then")
    remaining = None if command.run_id is None else facts.remove_from_run(command.run_id, record, uow)
    if remaining is not None:
        return Outcome(OutcomeType.NONE, record.id, kind=record.kind, record=remaining, reason="said elsewhere, too")
    erased_records = _with_its_words(record, command, uow)
    erased_ids = {erased.id for erased in erased_records}
    for other in erased_records[1:]:
        lifecycle.compose_again(other, erased_ids, uow)
    keeps_history = command.forgotten_before is None
    report = sum((_erase(erased, uow, keeps_history=keeps_history) for erased in erased_records), ErasureReport())
    others = [other for other in erased_records if other.id != record.id]
    shown_summaries = [other for other in others if other.kind is Kind.SUMMARY and other.forgotten_at is None]
    facts.enqueue_summaries(shown_summaries, uow)
    return Outcome(OutcomeType.DELETE, record.id, kind=record.kind, record=record, previous=record.text, erased=report)


def _with_its_words(record: MemoryRecord, command: DeleteMemory, uow: UnitOfWork) -> list[MemoryRecord]:
    """Returns a memory and all others with its words, as far as the command is about them.

    These are the memories that it stands for, directly or not; of all of them that are facts, the source messages; and
    the texts that were made of any of these: summaries, merged memories, abstractions. What else such a text was made
    of stays.
    """
    connection = uow.connection
    records = {record.id: record}
    unvisited = [(record, True)]
    while unvisited:
        one, has_its_words = unvisited.pop(0)
        found: list[MemoryRecord] = []
        if has_its_words:
            stood_for = memories.records_linked_from(connection, one.row, lifecycle.COMPRESSES)
            hidden = lifecycle.hidden_sources(one, uow)
            found = [
                other
                for other in {other.id: other for other in (*stood_for, *hidden)}.values()
                if command.run_id is None or facts.remove_from_run(command.run_id, other, uow) is None
            ]
            if one.kind is Kind.FACT:
                drawn_from = memories.records_linked_from(connection, one.row, "drawn_from")
                found += [source for source in drawn_from if source.source_only]
        new = {
            other.id: (other, has_same_words)
            for others, has_same_words in ((lifecycle.made_of(one, uow), False), (found, True))
            for other in others
            if other.id not in records and command.is_about(other)
        }
        records |= {uid: other for uid, (other, _) in new.items()}
        unvisited += new.values()
    return list(records.values())


def _erase(record: MemoryRecord, uow: UnitOfWork, *, keeps_history: bool) -> ErasureReport:
    """Deletes one memory and everything derived from it; of its history what happened stays, without the words.

    Without `keeps_history` its tombstone alone stays, which tells when it was erased.
    """
    connection, row = uow.connection, record.row
    uow.has_erased = True
    uow.erased_ids.add(record.id)
    derived = _remove_derived(record, uow)
    uow.partitions_with_stale_names.add(uow.partition_row(record))
    connection.execute(links.delete().where(or_(links.c.memory == row, links.c.other == row)))
    connection.execute(jobs_table.delete().where(jobs_table.c.memory == row))
    connection.execute(dead_letters.delete().where(dead_letters.c.memory == record.id))
    vitals.delete(connection, row)
    attachments.put(connection, row, ())
    uow.erased_data |= {one.sha256 for one in record.attachments if one.sha256 is not None}
    erased_items = items.delete_of_memory(connection, row)
    memories.set_further_runs(connection, row, ())
    uow.remove_from_session(record)
    seq = uow.next_seq()
    events.erase_content(connection, record.id)
    if keeps_history:
        uow.add_event("DELETE", replace(record, seq=seq))
    else:
        events.delete_history(connection, record.id)
    tombstones.add_tombstone(connection, "memory", record.id, record.partition, record.scope, uow.now, seq)
    connection.execute(memories_table.delete().where(memories_table.c.id == row))
    partitions = frozenset({record.partition})
    return derived + ErasureReport(ids=(record.id,), rows=1 + erased_items, graph=1, partitions=partitions)


def reverse_command(command: UndoEvent, uow: UnitOfWork) -> ReverseCommand:
    """Returns the command that reverses an event.

    Raises NotFoundError for an unknown event or one outside `uow.visible_scope`, ValidationError for an event that
    cannot be reversed: another type, no change left, or a later change of the same field.
    """
    event = events.find_event(uow.connection, command.event)
    record = None if event is None else memories.find(uow.connection, event.memory_id)
    if event is None or record is None or (uow.visible_scope and not record.is_in(uow.visible_scope)):
        raise NotFoundError(
            f"no event {command.event!r:.80} in this scope; the history of a memory gives the ids there are"
        )
    if event.event == "SCOPE":
        raise ValidationError(
            "event_id: a SCOPE event cannot be taken back: what was said in a run was said there; "
            "erasing all memories of a run takes it out of the run"
        )
    if event.event in COMPOSING_EVENTS:
        if record.text != event.new_text:
            raise ValidationError("event_id: text changed again after this event; take the later events back first")
        return DecomposeMemory(record.id, f"{UNDO_REASON}{event.id}", number_of_sources(event.reason))
    if event.event not in REVERSIBLE_EVENTS or event.previous_state is None:
        raise ValidationError(
            f"event_id: its event is {event.event}, and only {', '.join(REVERSIBLE_EVENTS)} can be taken back; "
            "to take back an addition, delete the memory"
        )
    changed = _changed_fields(event, event.previous_state, record, uow)
    if "valid_to" in changed:
        return RestoreMemory(record.id, f"{UNDO_REASON}{event.id}", _moment(event.previous_state["valid_to"]))
    if "forgotten_at" in changed:
        return RememberMemory(record.id, f"{UNDO_REASON}{event.id}")
    if "layer" in changed:
        return MoveMemory(record.id, Layer(event.previous_state["layer"]), f"{UNDO_REASON}{event.id}")
    return _reverse_update(event, event.previous_state, changed)


def _changed_fields(event: Event, before: Mapping[str, Any], record: MemoryRecord, uow: UnitOfWork) -> set[str]:
    """Returns the fields that an event changed. Raises ValidationError for none, or one that was changed again."""
    now = memories.encode_record(record)
    history = events.history(uow.connection, record.id)
    later_events = history[[other.id for other in history].index(event.id) + 1 :]
    after = next((later.previous_state for later in later_events if later.previous_state is not None), now)
    changed = {name for name in _FIELDS if before.get(name) != after.get(name)}
    if not changed:
        raise ValidationError(f"event_id: this {event.event} changed nothing that can be taken back")
    # A field with its value from before the event counts as unchanged; so a second undo becomes a NONE and is refused.
    if changed_again := sorted(
        _FIELDS[name] for name in changed if now[name] not in (before.get(name), after.get(name))
    ):
        raise ValidationError(
            f"event_id: {', '.join(changed_again)} changed again after this event; take the later events back first"
        )
    return changed


def _reverse_update(event: Event, before: Mapping[str, Any], changed: set[str]) -> UpdateMemory:
    expires_at, derived, former = before.get("expires_at"), before.get(DERIVED), before.get(ATTACHMENTS)
    extraction = None
    if derived is not None and "text" in changed:
        extraction = _decode_derived(derived)
    return UpdateMemory(
        event.memory_id,
        text=str(before["text"]) if "text" in changed else None,
        metadata=before.get("metadata") or {} if "metadata" in changed else None,
        expires_at=UNSET if "expires_at" not in changed else _moment(expires_at),
        reason=f"{UNDO_REASON}{event.id}",
        at=_moment(before["at"]) if "at" in changed else None,
        utc_offset=before.get("utc_offset"),
        extraction=extraction,
        attachments=None if former is None or "text" not in changed else tuple(map(attachments.decode, former)),
    )


@decoding
def _decode_derived(derived: Mapping[str, Any]) -> Extraction:
    """Returns the mentions and relations of a fact that its UPDATE event keeps (`derived_from`)."""
    mentions = tuple(
        Mention(encoded["key"], encoded["name"], entity_type(encoded["type"]), mention_kind(encoded["kind"]))
        for encoded in derived["mentions"]
    )
    statements = tuple(
        Statement(**{**encoded, **{name: _moment(encoded[name]) for name in _TIMES}})
        for encoded in derived["statements"]
    )
    return Extraction(mentions, statements).with_folded_keys()


def derived_from(record: MemoryRecord, uow: UnitOfWork) -> dict[str, Any]:
    """Returns a fact's mentions and relations in the form kept by its UPDATE event; {} for other kinds."""
    if record.kind is not Kind.FACT:
        return {}
    connection = uow.connection
    mentions = [
        {"key": entity.key, "name": entity.name, "type": entity.type.value, "kind": int(kind)}
        for _, entity, kind in graph_reads.mentions_of(connection, [record.id])
    ]
    statements = [
        {**asdict(statement), **{name: optional_micros(getattr(statement, name)) for name in _TIMES}}
        for _, statement, *_ in graph_reads.statements_of(connection, [record.id])
    ]
    return {DERIVED: {"mentions": mentions, "statements": statements}}


def _moment(value: int | None) -> Any:
    return None if value is None else moment(value)
