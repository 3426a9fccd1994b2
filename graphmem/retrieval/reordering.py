"""Reorders a ranking: source messages stand under their facts, replies behind their questions, and a reranker decides.

A fact and its source messages say the same; side by side they would take two places. The messages outrank the facts,
having neighbours and a speaker. So grouping is done over the whole ranking and not among the hits only: on a LOCOMO
conversation facts went from 11 % to 54 % of the first ten hits (docs/decisions/0019-source-grouping-before-the-cut.md).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from graphmem.concurrency import BoundedCalls, CallTooLate, Panicked
from graphmem.errors import ModelError
from graphmem.plugins import Reranker

# Calls of one reranker at the same time; a search that finds all of them taken waits, within its time limit.
MOST_CALLS = 8
# The kinds of NumPy's types that are numbers: texts and truth values are none.
_NUMBERS = "iuf"


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

    `relevance_share` is what its relevance added to the score, `repetition_share` what another memory with the same
    words took away; `reranked` is None for a memory that no reranker saw.
    """

    id: str
    score: float
    sources: tuple[str, ...] = ()
    relevance_share: float = 0.0
    repetition_share: float = 0.0
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


def put_last(ranked: Sequence[RankedMemory], repetitions: Collection[str]) -> list[RankedMemory]:
    """Returns the ranking, best first, with the repetitions (ids) behind the others, by their own scores."""
    others = [memory for memory in ranked if memory.id not in repetitions]
    lowered = [memory for memory in ranked if memory.id in repetitions]
    return [*others, *_multiplied(lowered, others[-1].score if others else 1.0, "repetition_share")]


def below(ranked: Sequence[RankedMemory], most: float) -> list[RankedMemory]:
    """Returns the ranking, best first, with scores of at most `most`: all are lowered by the same factor if need be."""
    if not ranked or ranked[0].score <= most:
        return list(ranked)
    return _multiplied(ranked, most / ranked[0].score, "relevance_share")


def _multiplied(
    ranked: Sequence[RankedMemory], factor: float, share: Literal["relevance_share", "repetition_share"]
) -> list[RankedMemory]:
    """Returns memories with their scores times the factor; the difference is added to their `share`."""
    return [
        memory._replace(score=factor * memory.score, **{share: getattr(memory, share) + (factor - 1.0) * memory.score})
        for memory in ranked
    ]


class BoundedReranker:
    """Calls a reranker within `timeout` seconds and checks its answer; `candidates` memories are given to it.

    A call that never ends holds up neither a search nor the end of the process.
    """

    def __init__(self, reranker: Reranker, candidates: int, timeout: float) -> None:
        self.candidates = candidates
        self._reranker = reranker
        self._timeout = timeout
        self._calls = BoundedCalls(MOST_CALLS, "graphmem-reranker")

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        """Returns a finite score for each text, the higher the better. Raises ModelError."""
        try:
            answer = self._calls.run(lambda: self._reranker(query, list(texts)), self._timeout)
            return _checked(answer, len(texts))
        except ModelError:
            raise
        except CallTooLate as late:
            raise ModelError(
                f"the reranker gave no answer in {self._timeout:g} seconds; raise reranker.config.timeout"
            ) from late
        except Exception as error:
            cause = error.__cause__ if isinstance(error, Panicked) else error
            raise ModelError(f"the reranker failed with {type(cause).__name__}") from error


def _checked(answer: Sequence[float], count: int) -> list[float]:
    scores = np.asarray(answer)
    if scores.shape != (count,) or scores.dtype.kind not in _NUMBERS or any(isinstance(one, bool) for one in answer):
        raise ModelError(f"the reranker returned something else than one score for each of {count} texts")
    if not np.isfinite(scores).all():
        raise ModelError("the reranker returned scores that are not finite")
    return [float(score) for score in scores]


def reranked(ranked: Sequence[RankedMemory], scores: Sequence[float]) -> list[RankedMemory]:
    """Returns a ranking with its first `len(scores)` memories in the order of these scores, the others behind them.

    Equal scores leave the order as it is. The places keep the scores of the search: a reranker's may be of any range,
    and what is behind has to stay below.
    """
    order = sorted(range(len(scores)), key=lambda place: -scores[place])
    first = [
        ranked[before]._replace(
            score=ranked[place].score,
            reranked=Reranked(place + 1, before + 1, scores[before], ranked[before].score),
        )
        for place, before in enumerate(order)
    ]
    return [*first, *ranked[len(scores) :]]
