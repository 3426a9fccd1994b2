"""Runs a cycle of the lifecycle over one partition: rates new memories, decides, and commits the decisions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import uuid4

from graphmem.commands.types import Command, ForgetMemory, MergeMemory, MoveMemory, Outcome, OutcomeType
from graphmem.lifecycle.clusters import MOST_COMPARED, Cluster, cluster_of, like_memories
from graphmem.lifecycle.decay import (
    OVER_CAPACITY,
    SAYS_WHAT_OTHERS_SAY,
    CyclePlan,
    Decision,
    LifecyclePolicy,
    Vitals,
    plan_cycle,
)
from graphmem.lifecycle.importance import certainty, importance, recency, scarcity
from graphmem.lifecycle.rules import Rule, Rules
from graphmem.model import EmbeddingSpec, Layer
from graphmem.stores.ledger import Ledger, embeddings, memories, vitals
from graphmem.stores.ledger.vitals import MERGED_INTO, Rating, UnratedMemory, VitalState

if TYPE_CHECKING:
    from graphmem.models.protocols import Matrix

    # By the form of the vectors: the rows of memories, and their unit rows.
    Matrices = Mapping[str, tuple[list[int], Matrix]]

# Memories that are rated by one commit, and commands of one.
RATED_BATCH, COMMAND_BATCH = 500, 500
# The type of a memory that nobody named and no rule tells (seed 002 §2.2).
OTHER_TYPE = "episodic"


@dataclass(frozen=True, slots=True)
class CycleResult:
    """What a cycle did, or would do: `id` None for a dry run.

    `left_out` counts decisions on what was changed or found meanwhile.
    """

    id: str | None
    plan: CyclePlan
    forgotten: int = 0
    merged: int = 0
    promoted: int = 0
    left_out: int = 0
    saved_bytes: int = 0


class Cycle:
    """Runs cycles. `commit` carries out commands in one transaction; `documents`: those of documents take part too."""

    def __init__(
        self,
        ledger: Ledger,
        spec: EmbeddingSpec,
        commit: Callable[[Sequence[Command]], list[Outcome]],
        policy: LifecyclePolicy,
        rules: Rules,
        *,
        documents: bool,
    ) -> None:
        self._ledger = ledger
        self._spec = spec
        self._commit = commit
        self._policy = policy
        self._rules = rules
        self._documents = documents

    def run(self, partition: str, now: datetime, *, dry_run: bool, force: bool) -> CycleResult:
        """Runs one cycle over a partition at `now`; a dry run stores nothing but the importance of new memories."""
        with self._ledger.read() as connection:
            row = memories.partition_row(connection, partition)
        if row is None:
            return CycleResult(None, CyclePlan())
        self._rate(row)
        with self._ledger.read() as connection:
            records = vitals.read_all(connection, row, now, documents=self._documents)
        plan = plan_cycle(records, now, self._policy, force=force)
        if plan.brake is not None and not dry_run:
            plan = CyclePlan(processed=plan.processed, brake=plan.brake)
        plan, targets = self._merge(row, records, plan)
        if dry_run:
            return CycleResult(None, plan, len(plan.forgotten), len(targets), len(plan.promoted))
        cycle = str(uuid4())
        outcomes = self._carry_out(plan, targets, cycle)
        with self._ledger.write() as connection:
            vitals.store_strengths(connection, plan.decayed)
            vitals.end_cycle(connection, row, datetime.now(UTC))
        done = [outcome for outcome in outcomes if outcome.event is not OutcomeType.NONE]
        forgotten = [outcome for outcome in done if outcome.event is OutcomeType.FORGET]
        return CycleResult(
            cycle,
            plan,
            forgotten=len(forgotten),
            merged=sum(outcome.id in targets for outcome in forgotten),
            promoted=len(done) - len(forgotten),
            left_out=len(outcomes) - len(done),
            saved_bytes=sum(len(outcome.required_record.text.encode()) for outcome in forgotten),
        )

    def _merge(self, partition: int, records: Sequence[Vitals], plan: CyclePlan) -> tuple[CyclePlan, dict[str, str]]:
        """Returns the plan with like memories merged, and for each memory to be merged the id of what stands for it."""
        if plan.brake is not None:
            return plan, {}
        with self._ledger.read() as connection:
            matrices = embeddings.matrices(connection, self._spec, partition)
        targets = _merge_targets(records, plan, matrices, self._policy.merged_similarity)
        clusters = self._clusters(records, plan, matrices)
        stay = [Decision(cluster.kept, SAYS_WHAT_OTHERS_SAY.format(number=len(cluster.others))) for cluster in clusters]
        targets |= {one.id: cluster.kept.id for cluster in clusters for one in cluster.others}
        forgotten = [
            replace(one, reason=f"{MERGED_INTO}{targets[one.memory.id]}") if one.memory.id in targets else one
            for one in plan.forgotten
        ]
        forgotten += [
            Decision(one, f"{MERGED_INTO}{cluster.kept.id}") for cluster in clusters for one in cluster.others
        ]
        gone = {one.memory.row for one in forgotten}
        plan = replace(
            plan,
            decayed={row: value for row, value in plan.decayed.items() if row not in gone},
            promoted=(*plan.promoted, *stay),
            forgotten=tuple(forgotten),
        )
        return plan, targets

    def _clusters(self, records: Sequence[Vitals], plan: CyclePlan, matrices: Matrices) -> list[Cluster]:
        """Returns the clusters of the short-term memories that stay, as many as the long-term layer has room for."""
        decided = {one.memory.row for one in (*plan.forgotten, *plan.promoted)}
        staying = [one for one in records if one.is_valid and not one.pinned and one.row not in decided]
        short = [one for one in staying if one.layer is Layer.SHORT_TERM][-MOST_COMPARED:]
        in_use = sum(one.layer is Layer.LONG_TERM for one in staying) + len(plan.promoted)
        clusters: list[Cluster] = []
        for rows, matrix in matrices.values():
            places = {row: place for place, row in enumerate(rows)}
            used = {one.row for cluster in clusters for one in (cluster.kept, *cluster.others)}
            compared = [one for one in short if one.row in places and one.row not in used]
            vectors = matrix[[places[one.row] for one in compared]]
            groups = like_memories(compared, vectors, self._policy)
            with self._ledger.read() as connection:
                texts = dict(
                    memories.each_text(connection, [compared[place].row for group in groups for place in group])
                )
            found = (
                cluster_of([compared[place] for place in group], vectors[group], texts, self._policy)
                for group in groups
            )
            clusters += [cluster for cluster in found if cluster is not None]
        return clusters[: max(0, self._policy.long_term_capacity - in_use)]

    def _carry_out(self, plan: CyclePlan, targets: Mapping[str, str], cycle: str) -> list[Outcome]:
        commands: list[Command] = [
            MoveMemory(one.memory.id, Layer.LONG_TERM, one.reason, cycle, _decided(one)) for one in plan.promoted
        ]
        commands += [
            MergeMemory(one.memory.id, targets[one.memory.id], cycle, _decided(one))
            if one.memory.id in targets
            else ForgetMemory(one.memory.id, one.reason, cycle, _decided(one))
            for one in plan.forgotten
        ]
        return [
            outcome
            for start in range(0, len(commands), COMMAND_BATCH)
            for outcome in self._commit(commands[start : start + COMMAND_BATCH])
        ]

    # --- importance -------------------------------------------------------------------------------------------------

    def _rate(self, partition: int) -> None:
        """Computes and stores the importance of new and changed memories, and the type of those that have none."""
        matrices: Matrices | None = None
        while True:
            with self._ledger.read() as connection:
                batch = vitals.unrated(connection, partition, RATED_BATCH, documents=self._documents)
                rules = {memory.row: self._rules.match(memory.text) for memory in batch}
                unmatched = [row for row, rule in rules.items() if rule is None]
                if unmatched and matrices is None:
                    matrices = embeddings.matrices(connection, self._spec, partition)
            if not batch:
                return
            nearest = _highest_similarities(unmatched, matrices or {})
            ratings = [_rating(memory, rules[memory.row], nearest.get(memory.row)) for memory in batch]
            with self._ledger.write() as connection:
                vitals.store_ratings(connection, ratings)


def _rating(memory: UnratedMemory, rule: Rule | None, highest_similarity: float | None) -> Rating:
    """Returns the importance of a memory, by its rule or, without one, as on the day on which it was written."""
    memory_type = memory.memory_type or (OTHER_TYPE if rule is None else rule.memory_type)
    if memory.given is not None:
        return Rating(memory.row, memory.version, memory.given, memory_type)
    if rule is not None:
        return Rating(memory.row, memory.version, rule.importance, memory_type)
    sure = certainty(memory.text, memory.question_share) if memory.confidence is None else memory.confidence
    newness = recency(memory.created_at, memory.created_at)
    number = importance(scarcity(highest_similarity), memory_type, newness, sure)
    return Rating(memory.row, memory.version, number, memory_type)


def _merge_targets(records: Sequence[Vitals], plan: CyclePlan, matrices: Matrices, similarity: float) -> dict[str, str]:
    """Returns, for each faded memory, the id of the nearest in the long-term layer of its scope, with a cosine above
    `similarity`; those without are left out.
    """
    faded = [one.memory for one in plan.forgotten if one.reason != OVER_CAPACITY]
    gone, moved = ({one.memory.row for one in ones} for ones in (plan.forgotten, plan.promoted))
    kept = [
        one
        for one in records
        if one.is_valid and one.row not in gone and (one.layer is Layer.LONG_TERM or one.row in moved)
    ]
    targets: dict[str, str] = {}
    for rows, matrix in matrices.values():
        places = {row: place for place, row in enumerate(rows)}
        for memory in faded:
            like = [one for one in kept if one.scope == memory.scope and one.row in places]
            if memory.id in targets or memory.row not in places or not like:
                continue
            cosines = matrix[[places[one.row] for one in like]] @ matrix[places[memory.row]]
            best = int(cosines.argmax())
            if cosines[best] > similarity:
                targets[memory.id] = like[best].id
    return targets


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
