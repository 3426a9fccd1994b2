"""Runs a cycle of the lifecycle over one partition: rates new memories, decides, and commits the decisions.

What a language model is to make of memories becomes jobs, which a cycle waits for.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import uuid4

from graphmem.commands.lifecycle import CHANGED_SINCE
from graphmem.commands.types import Command, DeleteMemory, ForgetMemory, MergeMemory, MoveMemory, Outcome, OutcomeType
from graphmem.concurrency import GivingWay, single_blas_thread
from graphmem.errors import ValidationError
from graphmem.ingest.facts.compositions import common_scope, compose_command, composed, without_times
from graphmem.ingest.model_jobs import JobResult
from graphmem.jobs.worker import JobFailure
from graphmem.lifecycle.compression import NO_MODEL, abstractable, abstraction, compress, medoid
from graphmem.lifecycle.decay import (
    Composition,
    CyclePlan,
    Decision,
    Operation,
    brake,
    deciding_rule,
    kept_certainty,
    kept_kinds,
    plan_cycle,
)
from graphmem.lifecycle.importance import certainty, counted_type, importance, recency, scarcity
from graphmem.lifecycle.likeness import kinds_of, said_again
from graphmem.lifecycle.rules import Rule
from graphmem.model import ASSISTANT, EmbeddingSpec, EventType, Kind, Layer, MemoryEvent, Scope
from graphmem.settings import LifecycleSettings
from graphmem.stores.ledger import Ledger, embeddings, event_log, memories, vitals
from graphmem.stores.ledger.jobs import Job, composition_job
from graphmem.stores.ledger.vitals import Access, LastCycle, Rating, UnratedMemory, VitalState

if TYPE_CHECKING:
    from graphmem.lifecycle.likeness import Matrices

logger = logging.getLogger("graphmem")
# Memories that are rated by one commit, and commands of one; of one while searches are running.
RATED_BATCH, COMMAND_BATCH, FEW_COMMANDS = 500, 500, 2
# The type of a memory that nobody named and no rule tells (seed 002 §2.2).
OTHER_TYPE = "episodic"
NOT_ABSTRACTED = "ids: has one of a memory that is forgotten, retired, a source message or of a document; leave it out"
ABSTRACTED = "all of them have an abstraction at this level already, or at a higher one"
NO_TIME = "without a language model only times are cut out, and here is none"
CHANGED_MEANWHILE = "{number} decisions on memories that were changed or found meanwhile"


@dataclass(frozen=True, slots=True)
class CycleResult:
    """What a cycle did, or would do: `id` None for a dry run.

    `made` are the numbers of memories that a language model made of others. `skipped` says, by step, what was left out
    and why. `purged` has the ids of what was erased because it had been forgotten for long, by row. `event` is what
    subscribers are told of one that ran at night.
    """

    id: str | None
    plan: CyclePlan
    forgotten: int = 0
    merged: int = 0
    promoted: int = 0
    made: Mapping[Operation, int] = field(default_factory=dict)
    saved_bytes: int = 0
    skipped: Mapping[str, str] = field(default_factory=dict)
    purged: Mapping[int, str] = field(default_factory=dict)
    event: MemoryEvent | None = None

    @property
    def counts(self) -> dict[str, int]:
        """How many memories were looked at, and what was done with how many."""
        return {
            "processed": self.plan.processed,
            "decayed": len(self.plan.decayed),
            "forgotten": self.forgotten,
            "merged": self.merged,
            "promoted": self.promoted,
            "summarized": self.made.get(Operation.SUMMARIZE, 0),
            "abstracted": self.made.get(Operation.ABSTRACT, 0),
            "saved_bytes": self.saved_bytes,
            "purged": len(self.purged),
        }

    @property
    def changed(self) -> int:
        """How many memories it forgot, promoted, made of others and erased."""
        return self.forgotten + self.promoted + sum(self.made.values()) + len(self.purged)


class Cycle:
    """Runs a cycle. `commit` carries out commands in one transaction; between its steps it gives way to searches.

    `compose` runs jobs of a language model and waits for them; None without a model. Raises ConfigError for a file of
    rules that is not usable.
    """

    def __init__(
        self,
        ledger: Ledger,
        spec: EmbeddingSpec,
        commit: Callable[[Sequence[Command]], list[Outcome]],
        compose: Callable[[Sequence[Job]], list[JobResult | JobFailure]] | None,
        settings: LifecycleSettings,
        giving_way: GivingWay,
    ) -> None:
        self._ledger = ledger
        self._spec = spec
        self._commit = commit
        self._compose = compose
        self._giving_way = giving_way
        with ledger.read() as connection:
            since = vitals.lifecycle_since(connection)
        self._policy = settings.policy(since or datetime.now(UTC))
        self._rules = settings.read_rules()
        self._documents = settings.documents

    def run_nightly(self, partition: str) -> MemoryEvent | None:
        """Runs a cycle at the present; the log says so if the brake held it. Returns what subscribers are told."""
        result = self.run(partition, datetime.now(UTC), dry_run=False, force=False, is_nightly=True)
        if result.plan.brake is not None:
            logger.warning(
                "a nightly cycle over %d memories did nothing: the brake held it; look at a dry run of tend",
                result.plan.processed,
            )
        return result.event

    def run(
        self, partition: str, now: datetime, *, dry_run: bool, force: bool, is_nightly: bool = False
    ) -> CycleResult:
        """Runs one cycle over a partition at `now`; a dry run stores nothing but the importance of new memories.

        `is_nightly`: its end is an event, which is recorded with it.
        """
        with self._ledger.read() as connection:
            row = memories.partition_row(connection, partition)
        if row is None:
            return CycleResult(None, CyclePlan())
        self._rate(partition, row)
        plan = self._plan(row, now, force=force)
        if dry_run:
            merged = sum(len(one.sources) for one in plan.compositions if one.hides)
            return CycleResult(
                None,
                plan,
                forgotten=len(plan.forgotten) + merged,
                merged=len(plan.merged) + merged,
                promoted=len(plan.promoted),
                made=Counter(one.operation for one in plan.compositions),
                skipped=plan.skipped,
                purged=self._purge(partition, now, None),
            )
        if plan.brake is not None:
            plan = CyclePlan(processed=plan.processed, brake=plan.brake)
        cycle = str(uuid4())
        outcomes = self._carry_out(plan, cycle)
        left_out = sum(outcome.event is OutcomeType.NONE for outcome in outcomes)
        composed, skipped = self._run_compositions(plan.compositions, cycle)
        purged = {} if plan.brake is not None else self._purge(partition, now, cycle)
        forgotten = [outcome.required_record for outcome in outcomes if outcome.event is OutcomeType.FORGET]
        hidden = [record for outcome in composed.values() for record in outcome.hidden]
        if left_out:
            skipped["changed"] = CHANGED_MEANWHILE.format(number=left_out)
        result = CycleResult(
            cycle,
            plan,
            forgotten=len(forgotten) + len(hidden),
            merged=sum(record.id in plan.merged for record in forgotten) + len(hidden),
            promoted=sum(outcome.event is OutcomeType.PROMOTE for outcome in outcomes),
            made=Counter(one.operation for one in composed),
            saved_bytes=sum(len(record.text.encode()) for record in (*forgotten, *hidden)),
            skipped={**plan.skipped, **skipped},
            purged=purged,
        )
        last = LastCycle(datetime.now(UTC), plan.brake, result.changed)
        if is_nightly:
            held = int(plan.brake is not None)
            event = MemoryEvent.of(
                EventType.SCHEDULE_DAILY,
                Scope.of_partition(partition),
                cycle,
                last.ended_at,
                **result.counts,
                held=held,
            )
            result = replace(result, event=event)
        with self._ledger.write([partition]) as connection:
            vitals.store_strengths(connection, plan.decayed)
            vitals.end_cycle(connection, row, last)
            if result.event is not None:
                event_log.append(connection, result.event)
        return result

    def abstract(
        self, partition: str, ids: Sequence[str] | None, level: int, now: datetime
    ) -> tuple[str, list[Outcome], dict[str, str]]:
        """Makes abstractions at a level of memories, which stay: one of those with `ids`, or of each group of one kind.

        Returns the id by which `undo_cycle` takes them back, what was stored, and why the rest was not. Raises
        ValidationError for an id of a memory that does not take part in the lifecycle.
        """
        batch = str(uuid4())
        with self._ledger.read() as connection:
            row = memories.partition_row(connection, partition)
        if row is None:
            return batch, [], {}
        self._rate(partition, row)  # an abstraction is as important as the most important of its sources
        with self._ledger.read() as connection:
            records = vitals.read_all(connection, row, now, documents=self._documents)
            matrices = embeddings.matrices(connection, self._spec, row)
            done = vitals.abstracted(connection, row, level)
        if ids is None:
            eligible = [one for one in records if one.is_valid and one.level < level and one.row not in done]
            groups = abstractable(eligible, matrices, self._policy)
        else:
            by_id = {one.id: one for one in records if one.is_valid}
            if any(uid not in by_id for uid in ids):
                raise ValidationError(NOT_ABSTRACTED)
            groups = [[by_id[uid] for uid in ids]]
            if all(one.row in done for one in groups[0]):
                return batch, [], {Operation.ABSTRACT.value: ABSTRACTED}
        if self._compose is not None:
            compositions = [abstraction(group, hides=False, level=level) for group in groups]
            made, skipped = self._run_compositions(compositions, batch)
            return batch, list(made.values()), skipped
        if level > 1:
            return batch, [], {Operation.ABSTRACT.value: NO_MODEL} if groups else {}
        with self._ledger.read() as connection:
            sources = [memories.records(connection, [one.id for one in group]) for group in groups]
        commands: list[Command] = []
        for group, of_group in zip(groups, sources, strict=True):
            central = of_group[medoid(group, matrices).id]
            if (text := without_times(central.text, now)) not in {"", central.text}:
                record = composed(Operation.ABSTRACT, level, text, list(of_group.values()))
                commands.append(compose_command(record, list(of_group.values()), batch, hides=False))
        skipped = {Operation.ABSTRACT.value: NO_TIME} if len(commands) < len(groups) else {}
        outcomes = self._commit(commands) if commands else []
        return batch, [one for one in outcomes if one.event is not OutcomeType.NONE], skipped

    def _plan(self, partition: int, now: datetime, *, force: bool) -> CyclePlan:
        """Decides what a cycle does, or would do if the brake did not hold it."""
        with self._ledger.read() as connection:
            records = vitals.read_all(connection, partition, now, documents=self._documents)
            matrices = embeddings.matrices(connection, self._spec, partition)
        # How sure it is that those whose type was computed are of a kind that is kept.
        likely = kinds_of([one.row for one in records if one.is_type_computed and one.role != ASSISTANT], matrices)
        kept = kept_kinds(self._rules, next(iter(likely.values()), ()))
        records = [
            replace(one, certainty=kept_certainty(one.importance, one.memory_type, sum(shares[name] for name in kept)))
            if (shares := likely.get(one.row))
            else one
            for one in records
        ]
        self._giving_way.rest()
        plan = plan_cycle(records, now, self._policy)
        with single_blas_thread(), self._ledger.read() as connection:
            plan = compress(
                plan,
                records,
                matrices,
                lambda rows: dict(memories.each_text(connection, rows)),
                vitals.summarised(connection, partition),
                self._policy,
                now,
                has_model=self._compose is not None,
            )
        return plan if force else replace(plan, brake=brake(plan, len(records), self._policy))

    def _run_compositions(
        self, compositions: Sequence[Composition], cycle: str
    ) -> tuple[dict[Composition, Outcome], dict[str, str]]:
        """Has memories composed; returns the outcomes of what was, and by operation why the others were not."""
        if not compositions or self._compose is None:
            return {}, {}
        composition_jobs = []
        for one in compositions:
            scope = common_scope([source.scope for source in one.sources])
            sources = {source.id: source.version for source in one.sources}
            job = composition_job(one.operation, scope, sources, one.level, cycle, hides=one.hides)
            composition_jobs.append(job)
        results = self._compose(composition_jobs)
        done: dict[Composition, Outcome] = {}
        skipped: dict[str, str] = {}
        for one, result in zip(compositions, results, strict=True):
            if isinstance(result, JobFailure):
                skipped[one.operation.value] = f"{result.error}; it is tried again later"
            elif result.dropped:
                skipped[one.operation.value] = next(iter(result.dropped))
            elif result.outcomes and result.outcomes[0].event is not OutcomeType.NONE:
                done[one] = result.outcomes[0]
            else:
                skipped[one.operation.value] = CHANGED_SINCE
        return done, skipped

    def _carry_out(self, plan: CyclePlan, cycle: str) -> list[Outcome]:
        commands: list[Command] = [
            MoveMemory(one.memory.id, Layer.LONG_TERM, one.reason, cycle, _decided(one)) for one in plan.promoted
        ]
        commands += [
            MergeMemory(one.memory.id, plan.merged[one.memory.id], cycle, _decided(one))
            if one.memory.id in plan.merged
            else ForgetMemory(one.memory.id, one.reason, cycle, _decided(one))
            for one in plan.forgotten
        ]
        return self._commit_in_batches(commands)

    def _commit_in_batches(self, commands: Sequence[Command]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        while len(outcomes) < len(commands):
            most = FEW_COMMANDS if self._giving_way.rest() else COMMAND_BATCH
            outcomes += self._commit(commands[len(outcomes) : len(outcomes) + most])
        return outcomes

    def _purge(self, partition: str, now: datetime, cycle: str | None) -> dict[int, str]:
        """Erases what has been forgotten for long, as `Memory.purge` does; returns the ids, by row.

        `cycle` None: only returns them.
        """
        if self._policy.purge_after is None:
            return {}
        # Not as of a time to come: what is erased by mistake cannot be brought back.
        before = min(now, datetime.now(UTC)) - self._policy.purge_after
        with self._ledger.read() as connection:
            found = memories.forgotten_ids(connection, partition, before)
        if cycle is None:
            return found
        commands = [DeleteMemory(uid, missing_ok=True, forgotten_before=before) for uid in found.values()]
        erased = {uid for outcome in self._commit_in_batches(commands) for uid in outcome.erased.ids}
        return {row: uid for row, uid in found.items() if uid in erased}

    # --- importance -------------------------------------------------------------------------------------------------

    def _rate(self, key: str, partition: int) -> None:
        """Computes and stores the importance of new and changed memories, and the type of those that have none."""
        with self._ledger.read() as connection:
            is_rated_otherwise = vitals.rules_of(connection, partition) != self._rules.digest
        if is_rated_otherwise:
            with self._ledger.write([key]) as connection:
                vitals.change_rules(connection, partition, self._rules.digest)
        matrices: Matrices | None = None
        new: set[int] = set()
        while True:
            with self._ledger.read() as connection:
                batch = vitals.unrated(connection, partition, RATED_BATCH, documents=self._documents)
                facts = [one.row for one in batch if one.kind is Kind.FACT]
                words = vitals.words_of_sources(connection, facts) if facts else {}
                if batch and matrices is None:
                    matrices = embeddings.matrices(connection, self._spec, partition)
            if not batch or matrices is None:
                break
            new |= {one.row for one in batch if one.is_new and one.role != ASSISTANT}
            likely = kinds_of([one.row for one in batch], matrices)
            rules = {one.row: self._rule(one, words.get(one.row, ""), likely.get(one.row)) for one in batch}
            self._giving_way.rest()
            nearest = _highest_similarities([row for row, rule in rules.items() if rule is None], matrices)
            ratings = [_rating(memory, rules[memory.row], nearest.get(memory.row)) for memory in batch]
            with self._ledger.write([key]) as connection:
                vitals.store_ratings(connection, ratings)
            self._giving_way.rest()
        if new and matrices is not None:
            self._rehearse(key, partition, new, matrices)

    def _rehearse(self, key: str, partition: int, new: Collection[int], matrices: Matrices) -> None:
        """Counts an access of each memory that one of the new ones (rows) says again."""
        with self._ledger.read() as connection:
            records = vitals.read_all(connection, partition, datetime.now(UTC), documents=self._documents)
        again = said_again(new, records, matrices)
        accesses = {
            memory.row: Access(len(sayings), max(one.created_at for one in sayings))
            for memory, sayings in again.items()
        }
        if accesses:
            with self._ledger.write([key]) as connection:
                vitals.record_accesses(connection, accesses)
        self._giving_way.rest()

    def _rule(self, memory: UnratedMemory, said: str, likely: Mapping[str, float] | None) -> Rule | None:
        """Returns the rule by which a memory is rated, None for none: they are about what a user says."""
        if memory.role == ASSISTANT:
            return None
        return deciding_rule(
            self._rules,
            memory.text,
            likely,
            memory_type=memory.memory_type,
            counted_as=counted_type(memory.kind, memory.level, memory.memory_type),
            said=said,
        )


def _rating(memory: UnratedMemory, rule: Rule | None, highest_similarity: float | None) -> Rating:
    """Returns the importance of a memory, by its rule or, without one, as on the day on which it was written."""
    computed_type = None
    if memory.memory_type is None:
        computed_type = OTHER_TYPE if rule is None else rule.memory_type
    if memory.given is not None:
        return Rating(memory.row, memory.version, memory.given, computed_type)
    if rule is not None:
        return Rating(memory.row, memory.version, rule.importance, computed_type)
    sure = certainty(memory.text, memory.question_share) if memory.confidence is None else memory.confidence
    newness = recency(memory.created_at, memory.created_at)
    memory_type = counted_type(memory.kind, memory.level, memory.memory_type or computed_type)
    number = importance(scarcity(highest_similarity), memory_type, newness, sure)
    return Rating(memory.row, memory.version, number, computed_type)


def _highest_similarities(rows: Sequence[int], matrices: Matrices) -> dict[int, float]:
    """Returns the highest cosine of each memory to another one, by row, in the first space that has both."""
    found: dict[int, float] = {}
    for all_rows, matrix in matrices.values():
        places = {row: place for place, row in enumerate(all_rows)}
        own = [row for row in rows if row in places and row not in found]
        if not own or len(all_rows) == 1:
            continue
        similarities = matrix[[places[row] for row in own]] @ matrix.T
        for row, line in zip(own, similarities, strict=True):
            line[places[row]] = -1.0
            found[row] = float(line.max())
    return found


def _decided(decision: Decision) -> VitalState:
    return VitalState(decision.memory.seq, decision.memory.accesses)
