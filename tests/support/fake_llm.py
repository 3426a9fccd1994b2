"""Language models whose answers tests choose: by what they find in which words, or one and the same.

And an embedding function for which everything is near, so that every fact is compared with what there is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from graphmem.models.protocols import Prompt, Reply, Usage
from graphmem.testing import HashEmbedder

NEAR_DIMS = 32
Fact = str | dict[str, Any]
Decision = Mapping[str, Any]


def fact(text: str, *relations: tuple[str, str, str], **more: Any) -> dict[str, Any]:
    """A fact as an answer has it; the messages it comes from are filled in."""
    stated = [
        {"subject": a, "predicate": how, "object": b, "valid_at": None, "invalid_at": None} for a, how, b in relations
    ]
    return {"text": text, "type": "semantic", "confidence": 0.9, "entities": [], "relations": stated, **more}


class Scripted:
    """The `default` of a ModelEndpoint: {words of a message: facts}, {(fact, memory): decision}, else an ADD."""

    def __init__(
        self,
        found: Mapping[str, Sequence[Fact]],
        decided: Mapping[tuple[str, str], Decision | None] | None = None,
        before_deciding: Callable[[], None] | None = None,
    ) -> None:
        self.found, self.decided = found, decided or {}
        self.before_deciding = before_deciding
        self.broken = False
        self.asked: list[dict[str, Any]] = []

    def __call__(self, body: Mapping[str, Any]) -> str:
        said = json.loads(body["messages"][-1]["content"])
        self.asked.append(said)
        if self.broken:
            return "I would rather talk about the weather."
        if "facts" in said:
            return self._decide(said)
        if "about" in said:
            return self._find(said)
        return json.dumps({"summary": "Of " + ", ".join(one["text"] for one in said["messages"])})

    def _find(self, said: Mapping[str, Any]) -> str:
        facts = []
        for message in said["messages"]:
            for one in self.found.get(message["text"], ()):
                told = fact(one) if isinstance(one, str) else one
                facts.append({"messages": [message["n"]], **told})
        return json.dumps({"facts": facts}, ensure_ascii=False)

    def _decide(self, said: Mapping[str, Any]) -> str:
        if self.before_deciding is not None:
            self.before_deciding()
        entries = []
        for new in said["facts"]:
            mine = []
            for known in said["memories"]:
                decision = self.decided.get((new["text"], known["text"]))
                if decision is not None:
                    mine.append({"fact": new["fact"], "id": known["id"], "text": known["text"], **decision})
            if not mine or any(one.get("and_add") for one in mine):
                mine.append({"fact": new["fact"], "event": "ADD", "id": None, "text": new["text"]})
            entries += mine
        return json.dumps({"memory": entries}, ensure_ascii=False)


UPDATE: Callable[[str], Decision] = lambda text: {"event": "UPDATE", "text": text}
DELETE: Decision = {"event": "DELETE"}
CHANGED: Decision = {"event": "DELETE", "and_add": True}
NONE: Decision = {"event": "NONE"}


class OneAnswer:
    """A language model of one answer, or one error."""

    name = "fake"

    def __init__(self, said: Any) -> None:
        self.said = said
        self.asked: list[Prompt] = []

    def answer(self, prompt: Prompt) -> Reply:
        self.asked.append(prompt)
        if isinstance(self.said, Exception):
            raise self.said
        return Reply(self.said, Usage(1))


def all_near(texts: list[str]) -> list[Any]:
    """Vectors of `NEAR_DIMS` that are all near to each other, whatever a model's rounding."""
    return [np.append(HashEmbedder(NEAR_DIMS - 1).embed_query(text), 3.0).tolist() for text in texts]
