"""Why a memory was found: the arms that found it, the way the walk took to it, one readable line. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from graphmem.model import MemoryRecord
from graphmem.retrieval.features import FeatureTable
from graphmem.retrieval.pagerank import Node, WalkResult

QUOTED = 60
# Nodes of a way that tells anything: over more of them everything in a long session is reached from everything else.
MAX_PATH_LENGTH = 9
# From an entity to a memory that mentions it, and on over another entity to one more.
SHORT_PATH_LENGTH = 4


@dataclass(frozen=True, slots=True)
class Explanation:
    """`arms`: {name: {"rank": from 1, "score"}}; `path`: memories alternating with entities and relations, beginning
    at what matched the question and ending at the hit.
    """

    arms: Mapping[str, Mapping[str, float]]
    path: tuple[Mapping[str, Any], ...]
    why: str


class ExplanationBuilder:
    """Explains one search's hits: by `arms` {name: {id: score}}, what found on its own, and the table's features."""

    def __init__(
        self, arms: Mapping[str, Mapping[str, float]], walks: Sequence[WalkResult], table: FeatureTable
    ) -> None:
        self._found = arms
        self._walks = walks
        self._table = table
        self._nearest = next(iter(arms.get("dense", {})), None)
        self._ways: dict[str, list[Node]] = {}

    def start_of(self, uid: str) -> str:
        """The memory that the way to a hit starts from: itself, if it matched by itself."""
        return next((name for kind, name in self._way(uid) if kind == "memory"), uid)

    def near_start(self, uid: str) -> Node:
        """What a short way over entities to a hit begins at, an entity or a memory; the hit itself if it has none."""
        way = self._way(uid)
        kinds = [kind for kind, _ in way]
        short = len(way) <= SHORT_PATH_LENGTH and ("memory", "memory") not in pairwise(kinds)
        return way[0] if way and short else ("memory", uid)

    def ids_on_paths(self, ids: Sequence[str], kind: str) -> list[str]:
        """What lies on the ways to these: the ids of each "memory", or the keys of each "entity"."""
        return [name for uid in ids for each, name in self._way(uid) if each == kind]

    def explain(self, uid: str, records: Mapping[str, MemoryRecord], names: Mapping[str, str]) -> Explanation:
        """The explanation of one memory; `records` and `names` are those of the way's memories and entities."""
        arms = {
            name: {"rank": ranks[uid], "score": scores[uid]}
            for name, (scores, ranks) in self._ranked.items()
            if uid in scores
        }
        steps = _steps(self._way(uid), records, names)
        return Explanation(arms, tuple(steps), _why(arms, steps))

    @cached_property
    def _ranked(self) -> dict[str, tuple[Mapping[str, float], Mapping[str, int]]]:
        """Each arm's and each feature's scores above 0, with their ranks."""
        columns = {
            name: dict(zip(self._table.ids, column.tolist(), strict=True))
            for name, column in self._table.columns.items()
            if name in _WORDS
        }
        # A day beside the one asked about counts, but is not from it.
        columns["date"] = {uid: score for uid, score in columns.get("date", {}).items() if score == 1.0}
        found: dict[str, tuple[Mapping[str, float], Mapping[str, int]]] = {}
        for name, scores in {**columns, **self._found}.items():
            ranked = sorted(((uid, score) for uid, score in scores.items() if score > 0), key=lambda pair: -pair[1])
            found[name] = dict(ranked), {uid: rank for rank, (uid, _) in enumerate(ranked, 1)}
        return found

    def _way(self, uid: str) -> list[Node]:
        if uid not in self._ways:
            self._ways[uid] = self._found_way(uid)
        return self._ways[uid]

    def _found_way(self, uid: str) -> list[Node]:
        """What matched by itself needs no way; what did not is shown with the likeliest one."""
        if uid != self._nearest:
            for reached in self._walks:
                if 0 < len(way := reached.path(uid)) <= MAX_PATH_LENGTH:
                    return way
        return [("memory", uid)]


def _steps(way: Sequence[Node], records: Mapping[str, MemoryRecord], names: Mapping[str, str]) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = []
    for kind, name in way:
        if kind == "memory" and steps and steps[-1]["type"] == "memory":
            steps.append({"type": "relation", "predicate": "next in the conversation"})
        if kind == "memory":
            text = records[name].text if name in records else ""
            steps.append({"type": "memory", "id": name, "memory": text})
        else:
            steps.append({"type": "entity", "key": name, "name": names.get(name, name)})
    return steps


def _why(arms: Mapping[str, Mapping[str, float]], steps: Sequence[Mapping[str, Any]]) -> str:
    said = [f"{_WORDS[name]} (rank {arms[name]['rank']:.0f})" for name in _WORDS if name in arms]
    if len(steps) > 1:
        said.append(f"reached from {' → '.join(_named(step) for step in steps[:-1])}")
    return "; ".join(said) or "next to what matches the question"


def _named(step: Mapping[str, Any]) -> str:
    if step["type"] == "memory":
        return _quoted(step["memory"])
    return str(step["name"] if step["type"] == "entity" else step["predicate"])


def _quoted(words: str) -> str:
    text = " ".join(words.split())
    return f"“{text[: QUOTED - 1]}…”" if len(text) > QUOTED else f"“{text}”"


_WORDS = {
    "dense": "close in meaning",
    "keyword": "shares words",
    "tokens": "says it in near words",
    "dense_beside": "beside what is close in meaning",
    "keyword_beside": "beside what shares words",
    "tokens_beside": "beside what says it in near words",
    "reply": "answers a question like it",
    "named": "named by what was found",
    "speaker": "said by who is asked about",
    "date": "from the time asked about",
}
