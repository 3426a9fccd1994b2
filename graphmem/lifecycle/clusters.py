"""Finds memories of which one says what the others say (seed 002 §5.1), without a language model. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from graphmem.lifecycle.decay import LifecyclePolicy, Vitals
from graphmem.text import FUNCTION_CHARACTERS, UNSPACED_RUN, claims, tokens

if TYPE_CHECKING:
    from graphmem.models.protocols import Matrix

# Memories of a partition that are compared with each other, the newest: a short-term layer has 500 by default.
MOST_COMPARED = 2_000


class Cluster(NamedTuple):
    """Like memories: `kept` stands for the `others`."""

    kept: Vitals
    others: tuple[Vitals, ...]


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


def cluster_of(
    group: Sequence[Vitals], vectors: Matrix, texts: Mapping[str, str], policy: LifecyclePolicy
) -> Cluster | None:
    """Returns the cluster of a group of like memories, with their unit rows and their texts by id; None without one.

    The memory that is kept is the one that says what most others say: their words, numbers and negations are in it. Of
    several it is the most central one, with the highest mean cosine to the group (its medoid). The others of the group
    stay as they are: sentences that are alike may still differ in what matters, such as a name.
    """
    words = [_content_words(texts[one.id]) for one in group]
    claimed = [claims(texts[one.id]) for one in group]
    centrality = (vectors @ vectors.T).mean(axis=1)
    said_by = [
        [n for n in range(len(group)) if n != kept and words[n] <= words[kept] and claimed[n] == claimed[kept]]
        for kept in range(len(group))
    ]
    best = max(range(len(group)), key=lambda kept: (len(said_by[kept]), centrality[kept], group[kept].row))
    if len(said_by[best]) + 1 < policy.smallest_cluster:
        return None
    return Cluster(group[best], tuple(group[n] for n in said_by[best]))


def agreeing(group: Sequence[Vitals], vectors: Matrix, texts: Mapping[str, str]) -> list[Vitals]:
    """Returns those of a group of like memories that can be true together with its most central one.

    Two that differ in a denial, or in a number, say different things (§9.1); one without a number may go with any.
    """
    claimed = [claims(texts[one.id]) for one in group]
    central_numbers, denies = claimed[int((vectors @ vectors.T).mean(axis=1).argmax())]
    numbers, agree = set(central_numbers), []
    for one, (own, own_denies) in zip(group, claimed, strict=True):
        if own_denies == denies and (numbers <= set(own) or numbers >= set(own)):
            numbers |= set(own)
            agree.append(one)
    return agree


def _content_words(text: str) -> frozenset[str]:
    """Returns the words of a text without those of grammar, of scripts without spaces the characters."""
    words: set[str] = set()
    for token in tokens(text):
        words |= set(token) - FUNCTION_CHARACTERS if UNSPACED_RUN.match(token) else {token}
    return frozenset(words)
