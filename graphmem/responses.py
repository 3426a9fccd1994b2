"""Converts results of the engine to the public result types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

from graphmem.boundary.filters import text_hash
from graphmem.commands.types import AddMessage, ErasureReport, Outcome
from graphmem.ingest.facts.pipeline import JobResult
from graphmem.model import Entity, Event, MemoryRecord, Relation, iso, optional_iso
from graphmem.models.protocols import Usage
from graphmem.retrieval.types import Hit, SearchOutcome
from graphmem.types import (
    AddResultItem,
    AliasDict,
    EntityDetails,
    EntityDict,
    ErasedCounts,
    ExportResult,
    HistoryDict,
    HitDict,
    MemoryDict,
    Receipt,
    RelationDict,
    SearchResult,
    SkippedDict,
    SourceDict,
    UsageDict,
)


def memory(record: MemoryRecord) -> MemoryDict:
    """A record for people and programs outside."""
    shown = MemoryDict(
        id=record.id,
        memory=record.text,
        kind=record.kind.value,
        hash=text_hash(record.text),
        metadata=dict(record.metadata),
        memory_type=record.memory_type,
        confidence=record.confidence,
        at=iso(record.at),
        valid_from=iso(record.valid_from),
        valid_to=optional_iso(record.valid_to),
        expiration_date=optional_iso(record.expires_at),
        created_at=iso(record.created_at),
        updated_at=iso(record.updated_at),
        user_id=record.scope.user_id,
        agent_id=record.scope.agent_id,
        run_id=record.scope.run_id,
        actor_id=record.actor_id,
        role=record.role,
        session=record.session,
    )
    if record.further_runs:
        shown["further_runs"] = list(record.further_runs)
    return shown


def hit(found: Hit) -> HitDict:
    """A hit, with its explanation if the question asked for one."""
    shown: HitDict = {**memory(found.record), "score": found.score, "similarity": found.similarity}  # type: ignore[typeddict-item]  # mypy cannot see that these two may be absent
    if found.sources:
        shown["sources"] = [source(one) for one in found.sources]
    if found.explanation is not None:
        shown["explain"] = {
            "arms": {name: dict(arm) for name, arm in found.explanation.arms.items()},
            "path": [dict(step) for step in found.explanation.path],
            "why": found.explanation.why,
            **({} if found.sentence_match is None else {"part": found.sentence_match.excerpt}),
        }
    return shown


def source(record: MemoryRecord) -> SourceDict:
    """What a fact was drawn from."""
    return SourceDict(id=record.id, memory=record.text, at=iso(record.at), role=record.role, actor_id=record.actor_id)


def relation(found: Relation) -> RelationDict:
    """A relation by the names that people see."""
    return RelationDict(
        source=found.source_name,
        relationship=found.predicate,
        target=found.target_name,
        memory_ids=list(found.memory_ids),
        facts=list(found.facts),
        valid_at=optional_iso(found.valid_at),
        invalid_at=optional_iso(found.invalid_at),
        confidence=found.confidence,
    )


def relations(found: Iterable[Relation]) -> list[RelationDict]:
    """Several of them."""
    return [relation(one) for one in found]


def search_result(found: SearchOutcome) -> SearchResult:
    """A search's answer."""
    shown = SearchResult(results=[hit(one) for one in found.hits], relations=relations(found.relations))
    if found.degraded:
        shown["degraded"] = list(found.degraded)
    return shown


def add_result_item(step: AddMessage, outcome: Outcome) -> AddResultItem:
    """What became of one message."""
    record = outcome.record
    shown = AddResultItem(
        id=outcome.id,
        memory=step.message.content if record is None else record.text,
        event=outcome.event,
        kind=outcome.kind.value,
    )
    if record is not None:
        shown |= {"at": iso(record.at), "actor_id": record.actor_id, "role": record.role}
    if outcome.reason is not None:
        shown["reason"] = outcome.reason
    return shown


def fact_result_items(outcomes: Sequence[Outcome]) -> list[AddResultItem]:
    """What became of facts and memories, in mem0's words: what is retired is a DELETE there."""
    return [_became(one) for one in outcomes if one.record is not None]


def _became(outcome: Outcome) -> AddResultItem:
    record = outcome.required_record
    shown = AddResultItem(
        id=record.id,
        memory=record.text,
        event="DELETE" if outcome.event == "RETIRE" else outcome.event,
        kind=record.kind.value,
        at=iso(record.at),
        actor_id=record.actor_id,
        role=record.role,
    )
    if outcome.reason is not None:
        shown["reason"] = outcome.reason
    if outcome.event == "UPDATE" and outcome.previous is not None:
        shown["previous_memory"] = outcome.previous
    if outcome.event == "ADD" and record.valid_to is not None:  # over already: something said later is otherwise
        shown["valid_to"] = iso(record.valid_to)
    if outcome.event == "RETIRE":
        shown["valid_to"] = optional_iso(record.valid_to) or ""
        shown["replaced_by"] = outcome.successor or ""
    return shown


def usage(learned: JobResult) -> UsageDict:
    """What a language model took."""
    total = sum(learned.usage.values(), Usage())
    return UsageDict(
        calls=total.calls,
        prompt_tokens=total.prompt_tokens,
        completion_tokens=total.completion_tokens,
        cached_tokens=total.cached_tokens,
        seconds=total.seconds,
        cost=total.cost,
        by_operation={name: asdict(used) for name, used in learned.usage.items()},
        chunks=learned.chunks,
        again=learned.retries,
        dropped=dict(learned.dropped),
    )


def skipped(wordless: Iterable[int]) -> list[SkippedDict]:
    """The messages that hold attachments but no text."""
    return [SkippedDict(message=place, reason="holds no text; images are not remembered") for place in wordless]


# Parts of an answer that are left out by rule, and cost nothing that the model decided.
_LEFT_OUT_BY_RULE = frozenset(
    {"no relation", "unknown message", "from nobody's message", "of others", "no contradiction"}
)


def dropped_summary(dropped: Mapping[str, int]) -> str:
    """The parts of a language model's answer that were lost because nothing could be made of them, by why; ""."""
    lost = {why: count for why, count in dropped.items() if why not in _LEFT_OUT_BY_RULE}
    return ", ".join(f"{why}: {count}" for why, count in sorted(lost.items()))


def receipt(erased: ErasureReport, pending: list[str], message: str) -> Receipt:
    """What a deletion erased."""
    counts = ErasedCounts(ledger=erased.rows, vectors=erased.points, graph=erased.graph, derived=erased.derived)
    shown = Receipt(message=message, deleted=list(erased.ids), erased=counts)
    if pending:
        shown["pending"] = pending
    return shown


def export_result(counts: Mapping[str, int], path: str | None) -> ExportResult:
    """What was written."""
    return ExportResult(
        memories=counts["memories"],
        erased=counts["erased"],
        aliases=counts["aliases"],
        names=counts["names"],
        path=path,
    )


def event(found: Event) -> HistoryDict:
    """A line of history."""
    return HistoryDict(
        id=found.id,
        memory_id=found.memory_id,
        old_memory=found.old_text,
        new_memory=found.new_text,
        event=found.event,
        created_at=iso(found.created_at),
        updated_at=iso(found.updated_at),
        is_deleted=found.is_deleted,
        actor_id=found.actor_id,
        role=found.role,
        is_retired=found.event == "RETIRE",
    )


def entity(found: Entity) -> EntityDict:
    """Someone or something."""
    return EntityDict(
        key=found.key, name=found.name, type=found.type.value, memories=found.mentions, aliases=aliases(found)
    )


def aliases(found: Entity) -> list[AliasDict]:
    """The further names of someone or something."""
    return [AliasDict(key=other.key, name=other.name, origin=other.origin.value) for other in found.aliases]


def entity_details(found: Entity, records: Iterable[MemoryRecord], stated: Iterable[Relation]) -> EntityDetails:
    """What is known about someone or something."""
    return EntityDetails(
        key=found.key,
        name=found.name,
        type=found.type.value,
        aliases=aliases(found),
        memories=[memory(record) for record in records],
        relations=relations(stated),
    )
