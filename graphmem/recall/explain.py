"""Why a memory was found: the arms that found it, the way the walk took to it, one readable line. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphmem.model import MemoryRecord
from graphmem.recall.channels import Found
from graphmem.recall.features import Table
from graphmem.recall.walk import Node, Reached

QUOTED = 60


@dataclass(frozen=True, slots=True)
class Because:
    """`arms`: {name: {"rank": from 1, "score"}}; `path`: memories alternating with entities and relations, beginning
    at what matched the question and ending at the hit; `starts_from`: the memory that the path starts from.
    """

    arms: Mapping[str, Mapping[str, float]]
    path: tuple[Mapping[str, Any], ...]
    why: str
    starts_from: str


class Explainer:
    """Explains the hits of one search."""

    def __init__(
        self,
        found: Found,
        walks: Sequence[Reached],
        table: Table,
        records: Mapping[str, MemoryRecord],
    ) -> None:
        self._arms = {"dense": found.dense, "keyword": found.keyword}
        for reached in walks:
            ranked = sorted(reached.scores.items(), key=lambda pair: (-pair[1], pair[0]))
            self._arms["graph"] = {**self._arms.get("graph", {}), **dict(ranked)}
        for name in [name for name in _WORDS if name not in self._arms]:
            column = dict(zip(table.ids, table.columns[name].tolist(), strict=True))
            ranked = sorted(column.items(), key=lambda pair: (-pair[1], pair[0]))
            self._arms[name] = {uid: score for uid, score in ranked if score > 0}
        self._ranks = {name: {uid: i for i, uid in enumerate(scores, 1)} for name, scores in self._arms.items()}
        self._entities = {key: entity for space in found.spaces for key, entity in space.named.items()}
        for reached in walks:
            self._entities |= reached.entities
        self._walks = walks
        self._records = records

    def because(self, uid: str) -> Because:
        """The explanation of one memory."""
        arms = {
            name: {"rank": self._ranks[name][uid], "score": scores[uid]}
            for name, scores in self._arms.items()
            if uid in scores
        }
        nodes = self._way(uid)
        start = next((name for kind, name in nodes if kind == "memory"), uid)
        return Because(arms, tuple(self._steps(nodes)), self._why(arms, nodes), start)

    def _way(self, uid: str) -> list[Node]:
        """What matched by itself needs no way; what did not is shown with the likeliest one."""
        if uid in self._arms["dense"] and self._ranks["dense"][uid] == 1:
            return [("memory", uid)]
        for reached in self._walks:
            if way := reached.path(uid):
                return way
        return [("memory", uid)]

    def _steps(self, nodes: Sequence[Node]) -> list[dict[str, Any]]:
        steps: list[dict[str, Any]] = []
        for kind, name in nodes:
            if kind == "memory" and steps and steps[-1]["type"] == "memory":
                steps.append({"type": "relation", "predicate": "next in the conversation"})
            steps.append(self._step(kind, name))
        return steps

    def _step(self, kind: str, name: str) -> dict[str, Any]:
        if kind == "memory":
            record = self._records.get(name)
            return {"type": "memory", "id": name, "memory": "" if record is None else record.text}
        entity = self._entities.get(name)
        return {"type": "entity", "key": name, "name": name if entity is None else entity.name}

    def _why(self, arms: Mapping[str, Mapping[str, float]], nodes: Sequence[Node]) -> str:
        said = [f"{_WORDS[name]} (rank {arm['rank']:.0f})" for name, arm in arms.items() if name in _WORDS]
        way = self._told(nodes)
        if way:
            said.append(way)
        return "; ".join(said) or "next to what matches the question"

    def _told(self, nodes: Sequence[Node]) -> str:
        if len(nodes) == 1:
            return ""
        parts = [
            self._step(kind, name)["name"] if kind == "entity" else self._quoted(name) for kind, name in nodes[:-1]
        ]
        return f"reached from {' → '.join(parts)}"

    def _quoted(self, uid: str) -> str:
        record = self._records.get(uid)
        text = " ".join(record.text.split()) if record is not None else ""
        return f"“{text[: QUOTED - 1]}…”" if len(text) > QUOTED else f"“{text}”"


_WORDS = {
    "dense": "close in meaning",
    "keyword": "shares words",
    "dense_beside": "beside what is close in meaning",
    "keyword_beside": "beside what shares words",
    "speaker": "said by who is asked about",
}
