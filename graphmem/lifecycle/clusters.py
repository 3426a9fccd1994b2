"""Finds memories of which one says what the others say (seed 002 §5.1), without a language model. Pure."""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

from graphmem.lifecycle.decay import Vitals
from graphmem.text import UNSPACED_RANGES, claims, words_of

if TYPE_CHECKING:
    from graphmem.plugins import Matrix

# Memories of a partition that are compared with each other, the newest: a short-term layer has 500 by default.
MOST_COMPARED = 2_000
# The most words of a text of which a part may have moved: there are as many ways as the third power of it.
MOST_MOVED = 30
_PART = re.compile(rf"[{UNSPACED_RANGES}]|[^{UNSPACED_RANGES}]+")


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
    highest mean cosine to the group (its medoid). Then the rest of the group is looked at in the same way. What is in
    no cluster stays as it is: sentences that are alike may still differ in what matters, such as a name.
    """
    central = centrality(vectors)
    words = [texts[one.id] for one in group]
    said = {text: _Said.of(text) for text in words}  # what was said twice is compared once
    by_text = {text: {other for other in said if own.says(said[other])} for text, own in said.items()}
    left = set(range(len(group)))
    said_by = {kept: {n for n in left if n != kept and words[n] in by_text[words[kept]]} for kept in left}
    clusters: list[Cluster] = []
    while left:
        best = max(left, key=lambda kept: (len(said_by[kept] & left), central[kept], group[kept].row))
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
