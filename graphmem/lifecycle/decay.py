"""Decides what a cycle does to the memories of a partition (seed 002 §4.2): which fade, move up, and are forgotten."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from heapq import heapify, heappop, heapreplace
from math import exp
from typing import TYPE_CHECKING

from graphmem.lifecycle.importance import WEIGHTS, ForgettingCurve, recency
from graphmem.lifecycle.likeness import NewerAlike
from graphmem.lifecycle.rules import Rule, Rules
from graphmem.model import Kind, Layer, Scope

if TYPE_CHECKING:
    from graphmem.lifecycle.likeness import Matrices

# Reasons in histories.
FADED, OVER_CAPACITY = "retention below {least:g}", "over capacity"
# How the reason begins of one that was forgotten because another one stands for it; the id of that one follows.
MERGED_INTO = "merged into "
SAYS_WHAT_OTHERS_SAY = "says what {number} others say"
# The reason of the event by which a memory was made of others.
MADE_OF_OTHERS = "made of {number} memories"
# Why a cycle erases a memory, which has no history any more that could say so.
FORGOTTEN_LONG_AGO = "forgotten for longer than purge_after_days"
# P1: the least importance of a preference or fact, and of any memory, that is kept for good.
KEPT_IMPORTANCE, KEPT_IMPORTANCE_OF_ANY = 0.8, 0.9
PREFERENCE = "preference"
KEPT_TYPES = frozenset({PREFERENCE, "fact"})
# A text is of a kind from this probability on: what is taken for one that is kept competes for its place, what is not
# has faded within days (docs/decisions/0060). With less than PASSING that it is of a kind that is kept, it is a remark
# in passing, even if it has the words of a preference ("I love this cushion"); those of a fact or a life event ("I was
# diagnosed with ...") are not said in passing.
LIKELY, PASSING = 0.4, 0.2
_KEPT_FOR, _MADE_OF = (re.compile(one.format(number=r"(\d+)")) for one in (SAYS_WHAT_OTHERS_SAY, MADE_OF_OTHERS))
# A sentence, and the beginning of another one.
_TWO_SENTENCES = re.compile(r"[.!?。！？\n]+\s*[^\s.!?。！？]")


@dataclass(frozen=True, slots=True)
class Vitals:
    """What a cycle needs to know of a memory; `row` is its row in the ledger, `seq` the number of its last change.

    `strength` is its retention at the last cycle, or 1 since it was found; `accessed_at` the time at which it was last
    found or said again, None for never; `shown_again_at` that at which it last came back from being forgotten. Of one
    with `is_type_computed` nobody named type or importance; `certainty` is how sure it is that its kind is one of those
    that are kept (0..1), None where that is not known.
    """

    id: str
    row: int
    scope: Scope
    seq: int
    layer: Layer
    memory_type: str | None
    importance: float
    pinned: bool
    created_at: datetime
    is_valid: bool
    kind: Kind = Kind.EPISODE
    speaker: str | None = None
    role: str | None = None
    accesses: int = 0
    accessed_at: datetime | None = None
    strength: float = 1.0
    shown_again_at: datetime | None = None
    level: int = 0
    version: int = 1
    is_type_computed: bool = False
    certainty: float | None = None


@dataclass(frozen=True, slots=True)
class LifecyclePolicy:
    """The numbers of a cycle; the defaults are those of the seed (§2.1 for the capacities, §4.1 for the curve, §5.1
    for likeness and for the number of events that are summarised).

    `since`: nothing fades before it. A cycle that would hide more than `brake_share` of the memories, and more than
    `brake_memories`, hides none. What has been forgotten for longer than `purge_after` is erased (None: nothing is).
    """

    curve: ForgettingCurve = field(default_factory=ForgettingCurve)
    since: datetime | None = None
    promote_after: timedelta = timedelta(days=7)
    short_term_capacity: int = 500
    long_term_capacity: int = 100
    merged_similarity: float = 0.85
    smallest_cluster: int = 3
    summarised_memories: int = 20
    brake_share: float = 0.3
    brake_memories: int = 50
    purge_after: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """A memory on which a cycle decided, and why."""

    memory: Vitals
    reason: str


class Operation(StrEnum):
    """What a language model does with several memories: it makes one of them."""

    MERGE = "merge"
    SUMMARIZE = "summarize"
    ABSTRACT = "abstract"


@dataclass(frozen=True, slots=True)
class Composition:
    """A memory to be made of others. `level` is that of an abstraction; `hides`: it stands for its sources."""

    operation: Operation
    sources: tuple[Vitals, ...]
    level: int = 0
    hides: bool = False


@dataclass(frozen=True, slots=True)
class Brake:
    """What holds a cycle: how many memories it would have forgotten, and of how many."""

    forgotten: int
    memories: int

    @property
    def reason(self) -> str:
        """Why the cycle is held, and what to do."""
        return (
            f"{self.forgotten} of {self.memories} memories would be forgotten at once; look at a dry run, then force "
            "the cycle"
        )


@dataclass(frozen=True, slots=True)
class CyclePlan:
    """What a cycle does. `decayed` are the new strengths by row; `brake` is what holds it, None if nothing does.

    `merged` has the id of what stands for a forgotten memory, by the id of that one; `crowded` are those of `forgotten`
    that the long-term layer has no room for, the least important first. `skipped` says by step why it is left out.
    """

    processed: int = 0
    decayed: dict[int, float] = field(default_factory=dict)
    promoted: tuple[Decision, ...] = ()
    forgotten: tuple[Decision, ...] = ()
    crowded: tuple[Decision, ...] = ()
    merged: Mapping[str, str] = field(default_factory=dict)
    compositions: tuple[Composition, ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)
    brake: Brake | None = None

    @property
    def changed(self) -> list[Vitals]:
        """The memories on which it decided."""
        decided = [decision.memory for decision in (*self.promoted, *self.forgotten)]
        return decided + [source for composition in self.compositions for source in composition.sources]


def plan_cycle(memories: Sequence[Vitals], now: datetime, policy: LifecyclePolicy) -> CyclePlan:
    """Returns what a cycle at `now` does to a partition's memories, none of which is forgotten yet.

    But for what the long-term layer has no room for (`make_room`). Pinned memories and retired ones are left as they
    are.
    """
    living = [memory for memory in memories if memory.is_valid and not memory.pinned]
    short = [memory for memory in living if memory.layer is Layer.SHORT_TERM]
    promoted = [Decision(memory, reason) for memory in short if (reason := _promotion(memory, now, policy))]
    moved = {decision.memory.row for decision in promoted}
    short = [memory for memory in short if memory.row not in moved]
    retentions = {memory.row: retention(memory, now, policy) for memory in short}
    faded_reason = FADED.format(least=policy.curve.min_retention)
    forgotten = [
        Decision(memory, faded_reason) for memory in short if policy.curve.is_forgettable(retentions[memory.row])
    ]
    gone = {decision.memory.row for decision in forgotten}
    forgotten += _over_capacity(
        (memory for memory in short if memory.row not in gone),
        policy.short_term_capacity,
        lambda memory: current_importance(memory, now),
    )
    gone = {decision.memory.row for decision in forgotten}
    decayed = {
        row: r for memory in short if (row := memory.row) not in gone and (r := retentions[row]) < memory.strength
    }
    return CyclePlan(
        processed=len(living),
        decayed=decayed,
        promoted=tuple(promoted),
        forgotten=tuple(forgotten),
    )


def make_room(
    plan: CyclePlan,
    memories: Sequence[Vitals],
    now: datetime,
    policy: LifecyclePolicy,
    matrices: Matrices,
    standing: Sequence[Vitals] = (),
) -> tuple[CyclePlan, list[Vitals]]:
    """Returns a plan in which those are forgotten that the long-term layer has no room for, and who else gets none.

    Those are of `standing`, which are to move up because they stand for others: they stay where they are. Nothing is
    merged into what is forgotten. `matrices` tell which memories say much the same as a newer one.
    """
    forgotten = {one.memory.row for one in plan.forgotten}
    kept = [one for one in memories if one.is_valid and not one.pinned and one.layer is Layer.LONG_TERM]
    competing = [*(one for one in kept if one.row not in forgotten), *(one.memory for one in plan.promoted)]
    capacity = policy.long_term_capacity - len(plan.compositions)  # what is to be made has its place
    stays_anyway = {one.row for one in standing}
    gone: set[int] = set()
    crowded: list[Decision] = []
    while True:
        excess = len(competing) + len(standing) - capacity
        least = _least_worth([*competing, *standing], excess, matrices, now, policy)
        given_way = [Decision(one, OVER_CAPACITY) for one in least if one.row not in stays_anyway]
        if not given_way:
            break
        # What stays where it is competes again with what is left, as it would in the next cycle.
        crowded += given_way
        gone |= {one.memory.row for one in given_way}
        competing = [one for one in competing if one.row not in gone]
    out = {one.memory.id for one in crowded}
    merged = {uid: target for uid, target in plan.merged.items() if target not in out}
    without_target = plan.merged.keys() - merged.keys()
    plan = replace(
        plan,
        promoted=tuple(one for one in plan.promoted if one.memory.row not in gone),
        forgotten=(
            *(replace(one, reason=OVER_CAPACITY) if one.memory.id in without_target else one for one in plan.forgotten),
            *crowded,
        ),
        crowded=(*plan.crowded, *crowded),
        merged=merged,
    )
    return plan, least


def number_of_sources(reason: str | None) -> int:
    """Returns how many memories one was made of to stand for them, itself included if it is one of them.

    `reason` is that of the event; with another reason, such as an import brings, it is 0.
    """
    if kept := _KEPT_FOR.fullmatch(reason or ""):
        return int(kept[1]) + 1
    made = _MADE_OF.fullmatch(reason or "")
    return int(made[1]) if made else 0


def retention(memory: Vitals, now: datetime, policy: LifecyclePolicy) -> float:
    """Returns R of a memory (0..1), from the day on which it was stored or last came back, or from `policy.since` if
    that is later.
    """
    begins = [one for one in (memory.created_at, memory.shown_again_at, policy.since) if one is not None]
    return policy.curve.retention(max(begins), now, _strength(memory, policy))


def current_importance(memory: Vitals, now: datetime) -> float:
    """Returns the importance with today's age in it; the stored one has that of the day on which it was computed."""
    return memory.importance - WEIGHTS["recency"] * (1 - recency(memory.created_at, now))


def _least_worth(
    memories: Sequence[Vitals], excess: int, matrices: Matrices, now: datetime, policy: LifecyclePolicy
) -> list[Vitals]:
    """Returns so many that the long-term layer has no room for (none for a negative number), as they give way.

    What gives way is worth least by the weights of seed 002 §3.2, with the terms of today: the scarcity is that among
    what stays, and only what is newer makes a memory less scarce, as it may say what has changed.
    """
    if excess <= 0:
        return []
    by_age = sorted(memories, key=lambda one: (one.created_at, one.row))
    worth = [lasting_worth(one, now, policy) for one in by_age]
    alike = NewerAlike(by_age, matrices)
    # What gives way makes others scarcer and never less so: a worth on the heap is at most what it is by now.
    heap = [(own - WEIGHTS["scarcity"] * alike.highest(place), place) for place, own in enumerate(worth)]
    heapify(heap)
    out: list[Vitals] = []
    while len(out) < excess:
        known, place = heap[0]
        current = worth[place] - WEIGHTS["scarcity"] * alike.highest(place)
        if current > known:
            heapreplace(heap, (current, place))
        else:
            heappop(heap)
            alike.drop(place)
            out.append(by_age[place])
    return out


def lasting_worth(memory: Vitals, now: datetime, policy: LifecyclePolicy) -> float:
    """Returns what a memory is worth in the long-term layer but for its scarcity (0..1).

    Its importance, and the certainty that it is of a kind that is kept, come nearer to 1 each time that it is found or
    said again, and the recency is that of the last such time: that it was told lately makes it worth no more than what
    was told long ago. Where the certainty is not known, the importance holds it.
    """
    unproven = exp(-policy.curve.access_bonus * memory.accesses)
    found_lately = 0.0 if memory.accessed_at is None else recency(memory.accessed_at, now)
    return unfound_worth(memory.importance, memory.certainty, unproven) + WEIGHTS["recency"] * found_lately


def unfound_worth(importance: float, certainty: float | None, unproven: float = 1.0) -> float:
    """Returns what a memory that was never found is worth for good (0..1); `unproven` falls with what it was found."""
    sure = importance if certainty is None else certainty
    return WEIGHTS["impact"] * (1 - (1 - importance) * unproven) + WEIGHTS["certainty"] * (1 - (1 - sure) * unproven)


def _strength(memory: Vitals, policy: LifecyclePolicy) -> float:
    return policy.curve.strength(memory.importance, memory.accesses, memory.memory_type)


def matters(importance: float, memory_type: str | None) -> bool:
    """Returns whether a memory is important enough to be kept for good (P1)."""
    return importance >= (KEPT_IMPORTANCE if memory_type in KEPT_TYPES else KEPT_IMPORTANCE_OF_ANY)


def keeping_rule(rules: Rules, text: str) -> Rule | None:
    """Returns the rule that finds a text important enough to be kept for good, None if none does."""
    rule = rules.match(text)
    return rule if rule is not None and matters(rule.importance, rule.memory_type) else None


def kept_kinds(rules: Rules, names: Iterable[str]) -> frozenset[str]:
    """Returns those of the kinds of sentences that are kept for good by the rules of their names."""
    named = {name: rules.named(name) for name in names}
    return frozenset(name for name, rule in named.items() if rule and matters(rule.importance, rule.memory_type))


def likely_rule(rules: Rules, text: str, likely: Mapping[str, float]) -> Rule | None:
    """Returns the rule of a text of which the probabilities of its kinds are known, None without one.

    The words decide, unless they are those of a preference and the sentence is of another kind: of several sentences
    one may be worth keeping. Without words that match it is the likeliest kind of those that are kept, if it is likely
    that the text is of one of these, or else of the others.
    """
    of_words = rules.match(text)
    kept = kept_kinds(rules, likely)
    share = sum(likely[name] for name in kept)
    if of_words is not None and (of_words.memory_type != PREFERENCE or share >= PASSING or _TWO_SENTENCES.search(text)):
        return of_words
    if share >= LIKELY:
        return rules.named(max(kept, key=lambda name: likely[name]))
    name = max(likely.keys() - kept, key=lambda name: likely[name])
    return rules.named(name) if likely[name] >= LIKELY else None


def deciding_rule(
    rules: Rules,
    text: str,
    likely: Mapping[str, float] | None,
    *,
    memory_type: str | None,
    counted_as: str | None,
    said: str = "",
) -> Rule | None:
    """Returns the rule by which a memory that a user told is rated, None for none (seed 002 §3.1).

    `likely` are the probabilities of its kinds, None if they are not known: they count where nobody named a type
    (`memory_type`). A fact in a model's words ("Likes fado") matches also by what was `said`, if the rule is of the
    type that it counts as.
    """
    if likely is not None and memory_type is None:
        return likely_rule(rules, text, likely)
    rule = rules.match(text)
    if rule is None and (of_words := rules.match(said)) is not None:
        rule = of_words if of_words.memory_type == counted_as else None
    return rule


def kept_certainty(importance: float, memory_type: str | None, share: float) -> float | None:
    """Returns how sure it is that a memory is of a kind that is kept, from the `share` of these kinds.

    None where the words of a fact or a life event have told so against the kind: then its importance holds.
    """
    by_words = share < LIKELY and memory_type != PREFERENCE and matters(importance, memory_type)
    return None if by_words else share


def _promotion(memory: Vitals, now: datetime, policy: LifecyclePolicy) -> str | None:
    """Returns why a memory moves to the long-term layer, None if it does not."""
    if now - memory.created_at >= policy.promote_after and matters(memory.importance, memory.memory_type):
        return f"importance {memory.importance:g}"
    if _strength(memory, policy) >= policy.curve.max_strength:
        return f"found {memory.accesses} times"
    return None


def _over_capacity(memories: Iterable[Vitals], capacity: int, value: Callable[[Vitals], float]) -> list[Decision]:
    """Returns those of the least value beyond the capacity, of equal ones the oldest."""
    by_value = sorted(memories, key=lambda memory: (value(memory), memory.created_at, memory.row))
    return [Decision(memory, OVER_CAPACITY) for memory in by_value[: max(0, len(by_value) - capacity)]]


def brake(plan: CyclePlan, memories: int, policy: LifecyclePolicy) -> Brake | None:
    """Returns what holds a cycle over so many memories, None if nothing does: it would hide too many of them (§4.2).

    Those that another memory is to stand for count as well.
    """
    hidden = len(plan.forgotten) + sum(len(one.sources) for one in plan.compositions if one.hides)
    if hidden <= policy.brake_memories or hidden <= policy.brake_share * memories:
        return None
    return Brake(hidden, memories)
