"""Groups source messages under the facts drawn from them, as one hit; raises replies to their questions. Pure.

A fact and its source messages say the same; side by side they would take two places. The messages outrank the facts,
having neighbours and a speaker. So grouping is done over the whole ranking and not among the hits only: on a LOCOMO
conversation facts went from 11 % to 54 % of the first ten hits (docs/decisions/0019-source-grouping-before-the-cut.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Reranked:
    """What a reranker did with a memory: its places, from 1, after and before, the reranker's score of it.

    `former_score` is the search's score of the memory before.
    """

    place: int
    before: int
    score: float
    former_score: float


class RankedMemory(NamedTuple):
    """A memory's id with its score (0..1), and the ids of the source messages grouped under it, best first.

    `relevance_share` is what its relevance added to the score, `reranked` None for a memory that no reranker saw.
    """

    id: str
    score: float
    sources: tuple[str, ...] = ()
    relevance_share: float = 0.0
    reranked: Reranked | None = None


def group_sources(ranked: Sequence[RankedMemory], facts_of: Mapping[str, Iterable[str]]) -> list[RankedMemory]:
    """Returns the ranking, best first, without the source messages that have a fact in it.

    `facts_of`: {source message's id: ids of its facts}. A source message raises the best-ranked of its facts to its own
    place and score. It is listed under its other facts too but raises none of them, or a message with many facts would
    fill the list.
    """
    places = {memory.id: place for place, memory in enumerate(ranked)}
    facts_by_source = {
        memory.id: facts
        for memory in ranked
        if (facts := sorted((fact for fact in facts_of.get(memory.id, ()) if fact in places), key=places.__getitem__))
    }
    sources_by_fact: dict[str, list[str]] = {}
    for source, facts in facts_by_source.items():
        for fact in facts:
            sources_by_fact.setdefault(fact, []).append(source)
    grouped: dict[str, RankedMemory] = {}
    for memory in ranked:
        hit_id = facts_by_source[memory.id][0] if memory.id in facts_by_source else memory.id
        grouped.setdefault(hit_id, RankedMemory(hit_id, memory.score, tuple(sources_by_fact.get(hit_id, ()))))
    return list(grouped.values())


def raise_replies(ranked: Sequence[RankedMemory], replies: Mapping[str, str]) -> list[RankedMemory]:
    """Returns the ranking, best first, with each reply at least directly after its question, with the same score.

    `replies`: {question's id: id of the reply}.
    """
    if not replies:
        return list(ranked)
    places = {memory.id: place for place, memory in enumerate(ranked)}
    raised = {
        reply: question
        for question, reply in replies.items()
        if question in places and reply in places and places[question] < places[reply]
    }
    result: list[RankedMemory] = []
    for memory in ranked:
        if memory.id not in raised:
            result.append(memory)
        if (reply := replies.get(memory.id)) in raised:
            result.append(RankedMemory(reply, memory.score))
    return result
