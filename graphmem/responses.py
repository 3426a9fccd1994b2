"""Converts results of the engine to the public result types of `graphmem.types`, for `Memory`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, Any, cast

from graphmem.boundary.filters import text_hash
from graphmem.commands.types import AddMessage, ErasureReport, Outcome, OutcomeType
from graphmem.ingest.model_jobs import JobResult
from graphmem.lifecycle.conflicts import rule_of
from graphmem.lifecycle.decay import FORGOTTEN_LONG_AGO
from graphmem.model import (
    NEUTRAL_IMPORTANCE,
    Entity,
    Event,
    Judgement,
    Layer,
    MemoryRecord,
    Relation,
    SaidMessage,
    iso,
    optional_iso,
)
from graphmem.plugins import Usage
from graphmem.queries.graph import EntityMemories
from graphmem.queries.history import ForgottenPage, LifecycleState, MemoryOrigin
from graphmem.queries.memories import Profile
from graphmem.retrieval.types import Hit, SearchOutcome
from graphmem.settings.schema import LifecycleSettings
from graphmem.text import cut_line, estimate_tokens
from graphmem.types import (
    AbsenceDict,
    AbstractionDict,
    AbstractionResult,
    AddResultItem,
    AliasDict,
    AttachmentDict,
    CycleDict,
    DeadLetterDict,
    EntityDetails,
    EntityDict,
    ErasedCounts,
    ExportResult,
    ForgottenDict,
    ForgottenResult,
    HeldDict,
    HistoryDict,
    HitDict,
    JudgementDict,
    LayerCounts,
    LifecycleDict,
    MemoryDict,
    PastCycleDict,
    ProfileDict,
    Receipt,
    RelationDict,
    SearchResult,
    SkippedDict,
    SourceDict,
    UsageDict,
)
from graphmem.webhooks import PREFIX

if TYPE_CHECKING:
    from graphmem.jobs.cycle import CycleResult
    from graphmem.retrieval.explanation import Absence
    from graphmem.stores.ledger.event_log import DeadEvent

# In a profile: the texts of its summary and their characters, and the characters of a topic.
SUMMARY_TEXTS, SUMMARY_CHARS, TOPIC_CHARS = 3, 400, 60
# The part of a profile that what was said just before takes at most: one third.
SHARE_SAID = 3
# The tag that a forgotten memory is shown with, and that is not stored (seed 002 §4.2).
PENDING_DELETION = "pending_deletion"


def memory(record: MemoryRecord) -> MemoryDict:
    """Converts a stored memory to its result dict."""
    result = MemoryDict(
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
        result["further_runs"] = list(record.further_runs)
    if record.layer is not Layer.SHORT_TERM:
        result["layer"] = record.layer.value
    if record.importance != NEUTRAL_IMPORTANCE:
        result["importance"] = record.importance
    if record.level:
        result["level"] = record.level
    if record.pinned:
        result["pinned"] = True
    if record.attachments:
        result["attachments"] = attachments(record)
    if record.forgotten_at is not None:
        result["forgotten_at"] = iso(record.forgotten_at)
        tags = record.metadata.get("tags")
        result["metadata"]["tags"] = [*(tags if isinstance(tags, list) else []), PENDING_DELETION]
    return result


def attachments(record: MemoryRecord) -> list[AttachmentDict]:
    """Converts the attachments of a memory to result dicts, in order."""
    return [
        AttachmentDict(kind=one.kind.value, ref=one.ref, caption=one.caption, transcript=one.transcript)
        for one in record.attachments
    ]


def hit(search_hit: Hit) -> HitDict:
    """Converts a hit to its result dict, with its explanation if the search was asked for one."""
    numbers = {
        "score": search_hit.score,
        "similarity": search_hit.similarity,
        "relevance": search_hit.relevance,
    }
    result: HitDict = {**memory(search_hit.record), **numbers}  # type: ignore[typeddict-item]  # mypy cannot see that further keys may be absent
    if search_hit.sources:
        result["sources"] = [source(record) for record in search_hit.sources]
    if search_hit.explanation is not None:
        result["explain"] = {
            "arms": {name: dict(arm) for name, arm in search_hit.explanation.arms.items()},
            "path": [dict(node) for node in search_hit.explanation.path],
            "why": search_hit.explanation.why,
            "shares": {name: dict(share) for name, share in search_hit.explanation.shares.items()},
            "relevance": dict(search_hit.explanation.relevance),
            **({} if search_hit.sentence_match is None else {"part": search_hit.sentence_match.excerpt}),
        }
    return result


def absence(uid: str, told: Absence, degraded: Sequence[str]) -> AbsenceDict:
    """Converts the reason for which a search does not find a memory to the result of `why_not`."""
    result = AbsenceDict(id=uid, step=told.step, why=told.why, details=dict(told.details))
    if degraded:
        result["degraded"] = list(degraded)
    return result


def source(record: MemoryRecord) -> SourceDict:
    """Converts a source message of a fact to its result dict."""
    result = SourceDict(id=record.id, memory=record.text, at=iso(record.at), role=record.role, actor_id=record.actor_id)
    if record.attachments:
        result["attachments"] = attachments(record)
    return result


def relation(item: Relation) -> RelationDict:
    """Converts a relation to its result dict, with the entities' names instead of their keys."""
    return RelationDict(
        source=item.source_name,
        relationship=item.predicate,
        target=item.target_name,
        memory_ids=list(item.memory_ids),
        facts=list(item.facts),
        valid_at=optional_iso(item.valid_at),
        invalid_at=optional_iso(item.invalid_at),
        confidence=item.confidence,
    )


def relations(items: Iterable[Relation]) -> list[RelationDict]:
    """Converts relations to a list of result dicts."""
    return [relation(item) for item in items]


def search_result(outcome: SearchOutcome) -> SearchResult:
    """Converts the outcome of a search to the result of `Memory.search`."""
    result = SearchResult(
        results=[hit(search_hit) for search_hit in outcome.hits], relations=relations(outcome.relations)
    )
    if outcome.degraded:
        result["degraded"] = list(outcome.degraded)
    return result


def add_result_item(command: AddMessage, outcome: Outcome) -> AddResultItem:
    """Converts the outcome of storing one message to an entry of the result of `add`."""
    record = outcome.record
    result = AddResultItem(
        id=outcome.id,
        memory=command.message.text if record is None else record.text,
        event=outcome.event.value,
        kind=outcome.kind.value,
    )
    if record is not None:
        result |= {"at": iso(record.at), "actor_id": record.actor_id, "role": record.role}
    if outcome.reason is not None:
        result["reason"] = outcome.reason
    return result


def fact_result_items(outcomes: Sequence[Outcome]) -> list[AddResultItem]:
    """Converts outcomes with a record to entries of an `add` result; as in mem0, a retired memory's event is DELETE."""
    results = []
    for outcome in outcomes:
        if (record := outcome.record) is None:
            continue
        result = AddResultItem(
            id=record.id,
            memory=record.text,
            event="DELETE" if outcome.event is OutcomeType.RETIRE else outcome.event.value,
            kind=record.kind.value,
            at=iso(record.at),
            actor_id=record.actor_id,
            role=record.role,
        )
        if outcome.reason is not None:
            result["reason"] = outcome.reason
        if outcome.event is OutcomeType.UPDATE and outcome.previous is not None:
            result["previous_memory"] = outcome.previous
        # A new fact may have ended already: another one that contradicts it counts.
        if outcome.event is OutcomeType.RETIRE or (outcome.event is OutcomeType.ADD and record.valid_to is not None):
            result["valid_to"] = optional_iso(record.valid_to) or ""
            result["replaced_by"] = outcome.successor or ""
        results.append(result)
    return results


def failure_texts(result: Mapping[str, Any]) -> dict[str, str]:
    """Returns the failed steps of a call of `add`, each with the error's name and, if known, its cause."""
    causes = result.get("causes", {})
    return {
        step: f"{error}: {causes[step]}" if step in causes else error
        for step, error in result.get("failed", {}).items()
    }


def usage(job_result: JobResult) -> UsageDict:
    """Returns the calls, tokens, seconds and cost of a job's language model, in all and by operation."""
    total = sum(job_result.usage.values(), Usage())
    return UsageDict(
        calls=total.calls,
        prompt_tokens=total.prompt_tokens,
        completion_tokens=total.completion_tokens,
        cached_tokens=total.cached_tokens,
        seconds=total.seconds,
        cost=total.cost,
        by_operation={name: asdict(operation_usage) for name, operation_usage in job_result.usage.items()},
        chunks=job_result.chunks,
        repeated_decisions=job_result.repeated_decisions,
        dropped=dict(job_result.dropped),
    )


def skipped(indexes: Iterable[int], held: Collection[int]) -> list[SkippedDict]:
    """Returns the entries for messages of a call, by their indexes, that have no text and are no memories.

    Those that are `held` become memories once their attachments are described.
    """
    waits = "holds no text yet; it is remembered once its attachments are described"
    reason = "holds no text; images, calls of tools and other parts that nobody describes are not remembered"
    return [SkippedDict(message=index, reason=waits if index in held else reason) for index in indexes]


def forgotten(page: ForgottenPage) -> ForgottenResult:
    """Converts forgotten memories to the result of `pending_deletion`."""
    results = []
    for record in page.records:
        event_id, reason = page.forgettings.get(record.id, ("", ""))
        result = ForgottenDict(**memory(record), reason=reason)
        if event_id:
            result["event_id"] = event_id
        results.append(result)
    return ForgottenResult(results=results, total=page.total)


def judgement(found: Judgement) -> JudgementDict:
    """Converts what somebody said of a memory as an answer."""
    return JudgementDict(
        query=found.query,
        memory_id=found.memory_id,
        verdict=None if found.verdict is None else found.verdict.value,
        judged_at=iso(found.at),
        user_id=found.scope.user_id,
        agent_id=found.scope.agent_id,
        run_id=found.scope.run_id,
    )


def dead_letter(dead: DeadEvent) -> DeadLetterDict:
    """Converts an event that a webhook did not take."""
    return DeadLetterDict(
        id=dead.event_id,
        webhook=dead.name.removeprefix(PREFIX),
        event_type=dead.event_type,
        error=dead.error,
        user_id=None if dead.event is None else dead.event.user_id,
        timestamp=None if dead.event is None else iso(dead.event.timestamp),
    )


def cycle(result: CycleResult, words: Mapping[str, str]) -> CycleDict:
    """Converts what a cycle did, or would do, to the result of `tend`.

    `words` are the texts of the memories that a dry run would change, by id.
    """
    plan = result.plan
    converted = cast("CycleDict", {"cycle": result.id, **result.counts, "skipped": dict(result.skipped)})
    if plan.brake is not None:
        converted["brake"] = plan.brake.reason
    if result.id is None:
        converted["changes"] = [
            {"id": one.memory.id, "memory": words.get(one.memory.id, ""), "change": change, "reason": one.reason}
            for change, decisions in (("promote", plan.promoted), ("forget", plan.forgotten))
            for one in decisions
        ] + [
            {
                "id": source.id,
                "memory": words.get(source.id, ""),
                "change": composition.operation.value,
                "reason": f"one of {len(composition.sources)} memories",
            }
            for composition in plan.compositions
            for source in composition.sources
        ]
        converted["changes"] += [
            {"id": uid, "memory": words.get(uid, ""), "change": "purge", "reason": FORGOTTEN_LONG_AGO}
            for uid in result.purged.values()
        ]
    return converted


def abstractions(cycle: str, outcomes: Sequence[Outcome], skipped: Mapping[str, str]) -> AbstractionResult:
    """Converts what `abstract` stored to its result."""
    results = [
        AbstractionDict(**memory(outcome.required_record), abstracts=list(outcome.sources)) for outcome in outcomes
    ]
    return AbstractionResult(cycle=cycle, results=results, skipped=dict(skipped))


def profile(found: Profile, said: Sequence[SaidMessage], max_tokens: int, zone: tzinfo | None) -> ProfileDict:
    """Converts a profile to the result of `profile`: a block of at most `max_tokens`, with days in `zone`.

    `said` are the messages that were said just before, oldest first: the last of them end the block.
    """
    from graphmem.retrieval import context  # noqa: PLC0415  (what only a block needs)

    room = max_tokens - estimate_tokens(context.OPEN) - estimate_tokens(context.CLOSE)
    shown_ids, last = {record.id for record in found.standing}, list[str]()
    room_of_said = room // SHARE_SAID
    for message in reversed(said):
        if message.id not in shown_ids:
            line = context.plain_lines([message], room_of_said, zone, estimate_tokens)
            if not line:
                break
            room_of_said -= estimate_tokens(line[0])
            shown_ids.add(message.id)
            last = line + last
    others = [*found.standing, *(record for record in found.recent if record.id not in shown_ids)]
    lines = [*context.plain_lines(others, room - sum(map(estimate_tokens, last)), zone, estimate_tokens), *last]
    told = found.summaries or found.standing
    return ProfileDict(
        context=context.block(lines) if lines else "",
        profile_summary=" ".join(cut_line(context.one_line(one.text), SUMMARY_CHARS) for one in told[:SUMMARY_TEXTS]),
        recent_topics=[cut_line(context.one_line(topic), TOPIC_CHARS) for topic in found.topics],
    )


def lifecycle(state: LifecycleState, settings: LifecycleSettings, next_cycle: datetime | None) -> LifecycleDict:
    """Converts the state of the lifecycle to the result of `lifecycle_status`."""
    layers = LayerCounts(short_term=0, long_term=0)
    for counted in state.layers:
        layers[counted.layer.value] += counted.memories
    last = state.last_cycle
    held = None if last is None else last.held
    return LifecycleDict(
        enabled=settings.enabled,
        layers=layers,
        pinned=sum(counted.memories for counted in state.layers if counted.pinned),
        forgotten=state.forgotten,
        cycled_at=None if last is None else iso(last.ended_at),
        cycle_changed=None if last is None else last.changed,
        held=None if held is None else HeldDict(forgotten=held.forgotten, memories=held.memories, reason=held.reason),
        next_cycle=optional_iso(next_cycle),
        lifecycle_since=optional_iso(settings.policy(state.since).since),
        purge_after_days=settings.purge_after_days,
        cycles=[
            PastCycleDict(
                cycle=one.id,
                at=iso(one.at),
                forgotten=one.forgotten,
                merged=one.merged,
                promoted=one.promoted,
                composed=one.composed,
                undone=one.is_undone,
            )
            for one in state.cycles
        ],
    )


def receipt(report: ErasureReport, pending: list[str], message: str) -> Receipt:
    """Converts the report of a deletion to its receipt; `pending` names the projections that still have the data."""
    counts = ErasedCounts(
        ledger=report.rows,
        vectors=0 if "vectors" in pending else report.points,
        graph=0 if "graph" in pending else report.graph,
        derived=report.derived,
    )
    result = Receipt(message=message, deleted=list(report.ids), erased=counts)
    if pending:
        result["pending"] = pending
    return result


def export_result(counts: Mapping[str, int], path: str | None) -> ExportResult:
    """Converts the record counts of an export to the result of `export`; `path` is None for an open file."""
    return ExportResult(
        memories=counts["memories"],
        erased=counts["erased"],
        aliases=counts["aliases"],
        names=counts["names"],
        items=counts["items"],
        settings=counts["settings"],
        keys=counts["keys"],
        path=path,
    )


def event(item: Event) -> HistoryDict:
    """Converts an event to an entry of `history`."""
    return HistoryDict(
        id=item.id,
        memory_id=item.memory_id,
        old_memory=item.old_text,
        new_memory=item.new_text,
        event=item.event,
        created_at=iso(item.created_at),
        updated_at=iso(item.updated_at),
        is_deleted=item.is_deleted,
        actor_id=item.actor_id,
        role=item.role,
        is_retired=item.event == "RETIRE",
    )


def entity(item: Entity) -> EntityDict:
    """Converts an entity to its result dict."""
    return EntityDict(key=item.key, name=item.name, type=item.type.value, memories=item.mentions, aliases=aliases(item))


def aliases(item: Entity) -> list[AliasDict]:
    """Converts an entity's aliases to result dicts."""
    return [AliasDict(key=alias.key, name=alias.name, origin=alias.origin.value) for alias in item.aliases]


def entity_details(item: EntityMemories) -> EntityDetails:
    """Converts an entity with its memories and relations to one result dict."""
    return EntityDetails(
        key=item.entity.key,
        name=item.entity.name,
        type=item.entity.type.value,
        aliases=aliases(item.entity),
        memories=[memory(record) for record in item.records],
        relations=relations(item.relations),
    )


def origin(record: MemoryRecord, item: MemoryOrigin) -> dict[str, Any]:
    """Converts a memory and where it comes from to the result of `explain`."""
    note = {"note": "its source messages were deleted, or it was imported without them"} if item.lost_sources else {}
    retirement = None if record.valid_to is None else item.retirement
    successor = next((one.id for one in item.successors), None)
    return {
        "id": record.id,
        "memory": record.text,
        "messages": [
            {
                "id": source.message_id,
                "memory_id": source.id,
                "role": source.role,
                "name": source.actor_id,
                "content": item.source_text(source),
                "at": iso(source.at),
            }
            for source in item.sources
        ],
        **note,
        "mentions": [{"key": e.key, "name": e.name, "type": e.type.value} for e in item.entities],
        "relations": relations(item.relations),
        "replaces": [replaced.id for replaced in item.replaced],
        "replaced_by": [successor.id for successor in item.successors],
        "compresses": [merged.id for merged in item.merged],
        "compressed_by": [kept.id for kept in item.merged_into],
        "abstracts": [source.id for source in item.abstracted],
        "abstracted_by": [abstraction.id for abstraction in item.abstractions],
        "events": [
            {
                **event(entry),
                "reason": entry.reason,
                "rule": rule_of(entry.event, entry.reason),
                "replaced_by": successor if entry.id == retirement else None,
            }
            for entry in item.events
        ],
    }
