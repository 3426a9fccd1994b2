"""Decides which memories one memory comes to stand for: like ones, many events, and what there is no room for. Pure.

Without a language model one of several like memories is kept for the others (`graphmem.lifecycle.compression`). With
one, the plan has compositions: memories to be made of others (seed 002 §5.1 and §5.2).
"""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache
from importlib.resources import files
from itertools import chain, combinations
from math import ceil
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from graphmem.lifecycle.decay import (
    MERGED_INTO,
    OVER_CAPACITY,
    SAYS_WHAT_OTHERS_SAY,
    Composition,
    CyclePlan,
    Decision,
    LifecyclePolicy,
    Operation,
    Vitals,
    make_room,
)
from graphmem.lifecycle.likeness import BLOCK, OF_ONE_KIND, Comparison
from graphmem.model import Layer
from graphmem.text import UNSPACED_RANGES, claims, words_of

if TYPE_CHECKING:
    from graphmem.lifecycle.likeness import Matrices
    from graphmem.plugins import Matrix

# Why a step was left out.
NO_MODEL = "needs a language model, and none is configured"
NO_ROOM = "the long-term layer (long_term_capacity) has no room for {number} more"
# The type of memories that are summarised, and the most that one summary is made of.
SUMMARISED_TYPE, MOST_SUMMARISED = "episodic", 60
# The highest level of abstraction (§5.2).
HIGHEST_LEVEL = 3
# Memories of a partition that are compared with each other, the newest: a short-term layer has 500 by default.
MOST_COMPARED = 2_000
# The most words of a text of which a part may have moved: there are as many ways as the third power of it.
MOST_MOVED = 30
_PART = re.compile(rf"[{UNSPACED_RANGES}]|[^{UNSPACED_RANGES}]+")


def compress(
    plan: CyclePlan,
    memories: Sequence[Vitals],
    matrices: Matrices,
    texts_of: Callable[[list[int]], Mapping[str, str]],
    summarised: Collection[int],
    policy: LifecyclePolicy,
    now: datetime,
    *,
    has_model: bool,
) -> CyclePlan:
    """Returns the plan of a cycle at `now` with what is merged, crowded out, summarised and abstracted.

    `texts_of` returns texts by id, for rows of memories; `summarised` are the rows of those that a summary was made of.
    Without `has_model`, nothing is composed.
    """
    plan = _merge_said_again(plan, memories, matrices, texts_of, policy)
    plan = _compress_like(plan, memories, matrices, texts_of, policy, now, has_model=has_model)
    plan = _merge_faded(plan, memories, matrices, texts_of, policy)
    due = _summaries(memories, summarised, policy)
    if has_model:
        plan = _abstract_crowded(plan, memories, matrices, policy)
        return replace(plan, compositions=(*plan.compositions, *due))
    skipped = {step: NO_MODEL for step, is_left in (("summarize", due), ("abstract", plan.crowded)) if is_left}
    return replace(plan, skipped={**plan.skipped, **skipped})


def _merge_said_again(
    plan: CyclePlan,
    memories: Sequence[Vitals],
    matrices: Matrices,
    texts_of: Callable[[list[int]], Mapping[str, str]],
    policy: LifecyclePolicy,
) -> CyclePlan:
    """Has each memory that would be promoted merged into one of the long-term layer that says it already.

    Otherwise what is said every week would fill that layer with itself.
    """
    gone = {one.memory.row for one in plan.forgotten}
    kept = [one for one in memories if one.is_valid and one.layer is Layer.LONG_TERM and one.row not in gone]
    promoted = [one.memory for one in plan.promoted]
    texts = texts_of([one.row for one in (*kept, *promoted)]) if promoted else {}
    merged: dict[Vitals, str] = {}
    for space in matrices.values():
        has_vector, decided = set(space[0]), {one.row for one in (*kept, *merged)}
        due = [one for one in promoted if one.row in has_vector and one.row not in decided]
        stays = {one.row for one in kept}
        sort = attrgetter("scope", "speaker")
        for memory, near in _nearest(due, [*kept, *due], space, policy.merged_similarity, sort):
            said = (one.id for one in near if one.row in stays and says(texts[one.id], texts[memory.id]))
            target = next(said, None)
            if target is None:
                kept.append(memory)
                stays.add(memory.row)
            else:
                merged[memory] = target
    forgotten = [Decision(one, f"{MERGED_INTO}{target}") for one, target in merged.items()]
    return replace(
        plan,
        promoted=tuple(one for one in plan.promoted if one.memory not in merged),
        forgotten=(*plan.forgotten, *forgotten),
        merged={**plan.merged, **{one.id: target for one, target in merged.items()}},
    )


def _merge_faded(
    plan: CyclePlan,
    memories: Sequence[Vitals],
    matrices: Matrices,
    texts_of: Callable[[list[int]], Mapping[str, str]],
    policy: LifecyclePolicy,
) -> CyclePlan:
    """Has each faded memory merged into the nearest of the long-term layer of its scope, if one is like it (§4.2).

    Two that differ in a number or a denial are not alike, whatever their cosine.
    """
    faded = [one.memory for one in plan.forgotten if one.reason != OVER_CAPACITY and one.memory.id not in plan.merged]
    gone, moved = ({one.memory.row for one in ones} for ones in (plan.forgotten, plan.promoted))
    kept = [
        one
        for one in memories
        if one.is_valid and one.row not in gone and (one.layer is Layer.LONG_TERM or one.row in moved)
    ]
    nearest: dict[Vitals, list[Vitals]] = {}
    for space in matrices.values():
        due = [one for one in faded if one not in nearest]
        like = _nearest(due, kept, space, policy.merged_similarity, attrgetter("scope"))
        nearest |= {memory: near for memory, near in like if near}
    texts = texts_of([one.row for one in {*nearest, *chain(*nearest.values())}])
    claimed = {uid: claims(text) for uid, text in texts.items()}
    targets = {
        memory.id: target.id
        for memory, near in nearest.items()
        if (target := next((one for one in near if claimed[one.id] == claimed[memory.id]), None)) is not None
    }
    forgotten = tuple(
        replace(one, reason=f"{MERGED_INTO}{targets[one.memory.id]}") if one.memory.id in targets else one
        for one in plan.forgotten
    )
    return replace(plan, forgotten=forgotten, merged={**plan.merged, **targets})


def _nearest(
    memories: Sequence[Vitals],
    among: Sequence[Vitals],
    space: tuple[list[int], Matrix],
    similarity: float,
    sort: Callable[[Vitals], object],
) -> Iterator[tuple[Vitals, list[Vitals]]]:
    """Yields each memory with those `among` others of its sort that are like it in a space, the nearest first."""
    comparison = Comparison([*memories, *among], {"": space}, sort)
    for start in range(0, len(memories), BLOCK):
        block = memories[start : start + BLOCK]
        cosines = comparison.cosines(slice(start, start + len(block)), len(memories))
        for memory, line in zip(block, cosines, strict=True):
            places = np.flatnonzero(line > similarity)
            yield memory, [among[place] for place in places[(-line[places]).argsort(kind="stable")]]


def _compress_like(
    plan: CyclePlan,
    memories: Sequence[Vitals],
    matrices: Matrices,
    texts_of: Callable[[list[int]], Mapping[str, str]],
    policy: LifecyclePolicy,
    now: datetime,
    *,
    has_model: bool,
) -> CyclePlan:
    """Compresses like memories of the short-term layer that stay, and makes room in the long-term layer.

    What stands for others competes for the room with what is there and what is promoted. Without room they stay as they
    are. Where something else has got room, what is left is looked through again: a second cycle would find nothing.
    """
    while True:
        decided = {one.row for one in plan.changed}
        short = [one for one in memories if one.is_valid and not one.pinned and one.layer is Layer.SHORT_TERM]
        short = [one for one in short if one.row not in decided][-MOST_COMPARED:]
        made = _like_ones(short, matrices, texts_of, policy, has_model=has_model)
        standing = {_standing(one): one for one in made}
        plan, lost = make_room(plan, memories, now, policy, matrices, list(standing))
        fitting = [one for memory, one in standing.items() if memory not in lost]
        plan = _with_made(plan, fitting)
        if not lost:
            return plan
        if not fitting:
            return replace(plan, skipped={"merge": NO_ROOM.format(number=len(lost))})


def _like_ones(
    memories: Sequence[Vitals],
    matrices: Matrices,
    texts_of: Callable[[list[int]], Mapping[str, str]],
    policy: LifecyclePolicy,
    *,
    has_model: bool,
) -> list[Cluster | Composition]:
    """Returns what one memory can stand for, until there is nothing more; no memory is in two of them.

    With a model one is to be made of like memories; only what says the same to the word is kept as it is.
    """
    made: list[Cluster | Composition] = []
    used: set[int] = set()
    for rows, matrix in matrices.values():
        number_before = -1
        while number_before < len(made):
            number_before = len(made)
            compared, vectors = _in_space((one for one in memories if one.row not in used), rows, matrix)
            groups = like_memories(compared, vectors, policy.merged_similarity, policy.smallest_cluster)
            texts = texts_of([compared[place].row for group in groups for place in group])
            for group in groups:
                members = [compared[place] for place in group]
                same = agreeing(members, vectors[group], texts) if has_model else []
                if len(same) >= policy.smallest_cluster and len({texts[one.id] for one in same}) > 1:
                    made.append(Composition(Operation.MERGE, tuple(same), hides=True))
                else:
                    made += clusters_of(members, vectors[group], texts, policy.smallest_cluster)
            used |= {source.row for one in made[number_before:] for source in one.sources}
    return made


def _standing(one: Cluster | Composition) -> Vitals:
    """Returns what stands for others, as it will be in the long-term layer; a new memory with the row of the latest."""
    if isinstance(one, Cluster):
        return one.kept
    latest = max(one.sources, key=attrgetter("created_at", "row"))
    highest = max(source.importance for source in one.sources)
    return replace(latest, importance=highest, certainty=None, accesses=0, accessed_at=None)


def _with_made(plan: CyclePlan, made: Sequence[Cluster | Composition]) -> CyclePlan:
    """Returns a plan with clusters and compositions."""
    clusters = [one for one in made if isinstance(one, Cluster)]
    stay = [Decision(cluster.kept, SAYS_WHAT_OTHERS_SAY.format(number=len(cluster.others))) for cluster in clusters]
    replaced = [Decision(one, f"{MERGED_INTO}{cluster.kept.id}") for cluster in clusters for one in cluster.others]
    return replace(
        plan,
        decayed={row: value for row, value in plan.decayed.items() if row not in {one.memory.row for one in replaced}},
        promoted=(*plan.promoted, *stay),
        forgotten=(*plan.forgotten, *replaced),
        merged={**plan.merged, **{one.id: cluster.kept.id for cluster in clusters for one in cluster.others}},
        compositions=(*plan.compositions, *(one for one in made if isinstance(one, Composition))),
    )


def _summaries(memories: Sequence[Vitals], summarised: Collection[int], policy: LifecyclePolicy) -> list[Composition]:
    """Returns the summaries that are due: of each scope with more than so many events that no summary was made of.

    Those that the cycle forgets are among them: the summary is what stays of them.
    """
    by_scope: dict[object, list[Vitals]] = defaultdict(list)
    for one in memories:
        is_event = one.is_valid and one.layer is Layer.SHORT_TERM and one.memory_type == SUMMARISED_TYPE
        if is_event and one.row not in summarised:
            by_scope[one.scope].append(one)
    due = []
    for events in by_scope.values():
        if len(events) > policy.summarised_memories:
            size = ceil(len(events) / ceil(len(events) / MOST_SUMMARISED))
            parts = (events[start : start + size] for start in range(0, len(events), size))
            due += [Composition(Operation.SUMMARIZE, tuple(part)) for part in parts]
    return due


def _abstract_crowded(
    plan: CyclePlan, memories: Sequence[Vitals], matrices: Matrices, policy: LifecyclePolicy
) -> CyclePlan:
    """Has memories abstracted that the long-term layer has no room for, instead of forgetting the least important.

    Groups of the least important half are taken until there is room; what they do not make room for is forgotten.
    """
    if not plan.crowded:
        return plan
    moved = {one.memory.row for one in (*plan.promoted, *plan.crowded)}
    gone = {one.memory.row for one in plan.forgotten} - {one.memory.row for one in plan.crowded}
    long = [
        one
        for one in memories
        if one.is_valid
        and not one.pinned
        and one.row not in gone
        and (one.layer is Layer.LONG_TERM or one.row in moved)
    ]
    least = sorted((one for one in long if one.level < HIGHEST_LEVEL), key=lambda one: (one.importance, one.row))
    groups = abstractable(least[: max(len(long) // 2, 2 * len(plan.crowded))], matrices, policy)
    compositions: list[Composition] = []
    excess = len(plan.crowded)
    for group in sorted(groups, key=lambda group: sum(one.importance for one in group) / len(group)):
        if excess > 0:  # and of each group no more than make room, the least important
            taken = sorted(group, key=lambda one: (one.importance, one.row))[: max(policy.smallest_cluster, excess + 1)]
            compositions.append(abstraction(taken, hides=True))
            excess -= len(taken) - 1
    composed = {one.row for composition in compositions for one in composition.sources}
    # An abstraction needs room, too: where all that were crowded out are in it, the next least important give way.
    moved |= {one.row for one in memories if one.id in plan.merged.values()}
    further = [Decision(one, OVER_CAPACITY) for one in least if one.row not in moved | composed]
    over = [*(one for one in plan.crowded if one.memory.row not in composed), *further][: max(0, excess)]
    crowded, still = ({one.memory.row for one in ones} for ones in (plan.crowded, over))
    spared = crowded - still
    return replace(
        plan,
        forgotten=(
            *(one for one in plan.forgotten if one.memory.row not in spared),
            *(one for one in over if one.memory.row not in crowded),
        ),
        crowded=tuple(over),
        compositions=(*plan.compositions, *compositions),
    )


def _in_space(memories: Iterable[Vitals], rows: Sequence[int], matrix: Matrix) -> tuple[list[Vitals], Matrix]:
    """Returns those of the memories that a matrix has, with their unit rows; `rows` are those of its memories."""
    places = {row: place for place, row in enumerate(rows)}
    found = [one for one in memories if one.row in places]
    return found, matrix[[places[one.row] for one in found]]


def abstractable(memories: Sequence[Vitals], matrices: Matrices, policy: LifecyclePolicy) -> list[list[Vitals]]:
    """Returns groups of memories of one kind, each of which one abstraction can stand for."""
    groups: list[list[Vitals]] = []
    for rows, matrix in matrices.values():
        used = {one.row for group in groups for one in group}
        compared, vectors = _in_space((one for one in memories if one.row not in used), rows, matrix)
        found = like_memories(compared, vectors, OF_ONE_KIND, policy.smallest_cluster, of_one_type=False)
        groups += [[compared[place] for place in group] for group in found]
    return groups


def medoid(group: Sequence[Vitals], matrices: Matrices) -> Vitals:
    """Returns the most central memory of a group, by their mean cosine in the first space that has all of them."""
    for rows, matrix in matrices.values():
        compared, vectors = _in_space(group, rows, matrix)
        if len(compared) == len(group):
            return group[int(centrality(vectors).argmax())]
    return group[0]


def abstraction(sources: Sequence[Vitals], *, hides: bool, level: int | None = None) -> Composition:
    """Returns the abstraction of memories, by default to the level after the highest of them."""
    next_level = min(HIGHEST_LEVEL, max(one.level for one in sources) + 1)
    return Composition(Operation.ABSTRACT, tuple(sources), next_level if level is None else level, hides=hides)


class Wording(NamedTuple):
    """Words that say nothing by themselves, and words and signs that change what a sentence says (`wording.toml`)."""

    empty: frozenset[str]
    changing: frozenset[str]
    changing_signs: tuple[str, ...]

    def changes(self, text: str, words: Collection[str]) -> set[str]:
        """Returns the words and signs of a text, `words` being its words, that change what it says."""
        return {sign for sign in self.changing_signs if sign in text} | (self.changing & set(words))


@cache
def wording() -> Wording:
    """Returns the words that come with the package."""
    table = tomllib.loads(files("graphmem.lifecycle").joinpath("wording.toml").read_text("utf-8"))
    return Wording(frozenset(table["empty"].split()), frozenset(table["words"].split()), tuple(table["signs"].split()))


class Cluster(NamedTuple):
    """Like memories: `kept` stands for the `others`."""

    kept: Vitals
    others: tuple[Vitals, ...]

    @property
    def sources(self) -> tuple[Vitals, ...]:
        """All of them."""
        return (self.kept, *self.others)


def like_memories(
    memories: Sequence[Vitals], vectors: Matrix, similarity: float, smallest: int, *, of_one_type: bool = True
) -> list[list[int]]:
    """Returns groups of at least `smallest` like memories, as places in `memories`, whose unit rows are `vectors`.

    The largest group comes first. In order of importance each memory joins the first leader of the same scope and
    speaker and, `of_one_type`, of the same kind and type with a cosine above `similarity`, or becomes a leader: nothing
    is joined by way of a third one.
    """
    places = sorted(range(len(memories)), key=lambda place: (-memories[place].importance, memories[place].row))
    of_sort: dict[object, list[int]] = defaultdict(list)
    for place in places:
        one = memories[place]
        type_of_memory = (one.kind, one.memory_type) if of_one_type else None
        of_sort[one.scope, one.speaker, one.role, type_of_memory].append(place)
    groups: list[list[int]] = []
    for sort in of_sort.values():
        led: list[list[int]] = []
        for place in sort:
            cosines = vectors[[group[0] for group in led]] @ vectors[place] if led else ()
            leader = next((n for n, cosine in enumerate(cosines) if cosine > similarity), None)
            if leader is None:
                led.append([place])
            else:
                led[leader].append(place)
        groups += (group for group in led if len(group) >= smallest)
    return sorted(groups, key=lambda group: (-len(group), group[0]))


def clusters_of(group: Sequence[Vitals], vectors: Matrix, texts: Mapping[str, str], smallest: int) -> list[Cluster]:
    """Returns the clusters of at least `smallest` in a group of like memories, with their unit rows and texts by id.

    The memory that is kept is the one that `says` what most others say. Of several it is the most central one, with the
    highest mean cosine to the group (its medoid), and of equal ones that which was found or said again most. Then the
    rest of the group is looked at in the same way. What is in no cluster stays as it is: sentences that are alike may
    still differ in what matters, such as a name.
    """
    central = centrality(vectors)
    words = [texts[one.id] for one in group]
    said = {text: _Said.of(text) for text in words}  # what was said twice is compared once
    by_text = {text: {other for other in said if own.says(said[other])} for text, own in said.items()}
    left = set(range(len(group)))
    said_by = {kept: {n for n in left if n != kept and words[n] in by_text[words[kept]]} for kept in left}
    clusters: list[Cluster] = []
    while left:
        best = max(
            left, key=lambda kept: (len(said_by[kept] & left), central[kept], group[kept].accesses, group[kept].row)
        )
        others = said_by[best] & left
        if len(others) + 1 < smallest:
            break
        clusters.append(Cluster(group[best], tuple(group[n] for n in sorted(others))))
        left -= {best, *others}
    return clusters


def agreeing(group: Sequence[Vitals], vectors: Matrix, texts: Mapping[str, str]) -> list[Vitals]:
    """Returns those of a group of like memories that can be true together with its most central one.

    Two that differ in a denial, or in a number, say different things (§9.1); one without a number may go with any.
    """
    claimed = [claims(texts[one.id]) for one in group]
    central_numbers, denies = claimed[int(centrality(vectors).argmax())]
    numbers, agree = set(central_numbers), []
    for one, (own, own_denies) in zip(group, claimed, strict=True):
        if own_denies == denies and (numbers <= set(own) or numbers >= set(own)):
            numbers |= set(own)
            agree.append(one)
    return agree


def centrality(vectors: Matrix) -> Matrix:
    """Returns the mean cosine of each unit row to all of them; the highest is that of the medoid."""
    means: Matrix = (vectors @ vectors.T).mean(axis=1)
    return means


class _Said(NamedTuple):
    """What is compared of a text: its words in order, its numbers and denials, and what changes what it says."""

    words: list[str]
    claims: tuple[list[str], bool]
    changes: set[str]

    @classmethod
    def of(cls, text: str) -> _Said:
        words = sequence(text)
        return cls(words, claims(text), wording().changes(text, words))

    def says(self, other: _Said) -> bool:
        """As `says`."""
        if self.claims != other.claims or not self.changes <= other.changes:
            return False
        orders = _with_one_part_moved(self.words)
        return set(other.words) <= set(self.words) and any(_is_within(other.words, order) for order in orders)


def says(kept: str, other: str) -> bool:
    """Tells whether a text says what another one says, in nearly the same words.

    The words of the other come in the same order in it, but that one part may have moved ("On Fridays I bake" / "I bake
    on Fridays", and not "Bob hit Rita" / "Rita hit Bob"). Both have the same numbers and denials, and none of the
    further words changes what is said ("I hardly drink coffee").
    """
    return _Said.of(kept).says(_Said.of(other))


def sequence(text: str) -> list[str]:
    """Returns the words of a text in order, of scripts without spaces the characters, without empty words."""
    words: list[str] = []
    for word in words_of(text):
        words += [part for part in _PART.findall(word) if part not in wording().empty]
    return words


def _with_one_part_moved(words: list[str]) -> Iterator[list[str]]:
    """Yields a list of words as it is and, unless it is long, with any two parts beside each other swapped."""
    yield words
    ends = range(len(words) + 1) if len(words) <= MOST_MOVED else range(0)
    for first, second, third in combinations(ends, 3):
        yield words[:first] + words[second:third] + words[first:second] + words[third:]


def _is_within(words: Sequence[str], others: Sequence[str]) -> bool:
    """Tells whether words come in the same order, with gaps, among others."""
    left = iter(others)
    return all(word in left for word in words)
