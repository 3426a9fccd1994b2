"""Fake language models: with an answer for each message and each pair of fact and memory, or with one answer for all.

And an embedding function for which all texts are near, so that each fact is compared with all stored memories.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from graphmem.plugins import Prompt, Reply, Usage
from graphmem.testing import HashEmbedder
from support.fakes import fake_models
from support.waiting import TIMEOUT

NEAR_DIMS = 32
Fact = str | dict[str, Any]
Decision = Mapping[str, Any]


def fact(text: str, *relations: tuple[str, ...], **more: Any) -> dict[str, Any]:
    """A fact in the form of a model's answer, without the numbers of its source messages.

    `entities` are no part of that form: `Scripted` puts them beside the facts.
    """
    stated = [" | ".join(relation) for relation in relations]
    return {"text": text, "type": "semantic", "confidence": 0.9, "relations": stated, **more}


def shown_messages(request: Mapping[str, Any], name: str = "messages") -> list[dict[str, Any]]:
    """The messages of a request: `n` (None in `earlier`), `speaker`, `role`, `text` and the last time shown (`at`)."""
    at, messages = "", []
    for row in request[name]:
        if isinstance(row, str):
            # The day and the UTC offset hold until the next.
            at = row if not at or " " in row else at.replace(at.split()[2], row)
        else:
            *number, speaker, text = row
            message = {"speaker": speaker, "role": request["speakers"][speaker], "text": text, "at": at}
            messages.append({**message, "n": number[0] if number else None})
    return messages


def shown_facts(request: Mapping[str, Any], name: Literal["memories", "facts"]) -> list[dict[str, Any]]:
    """The memories or new facts of a request for decisions: `id` or `fact`, `who`, `text`, and the day (`at`).

    `who` is None where the row has no speaker.
    """
    at, facts = "", []
    for row in request[name]:
        if isinstance(row, str):
            at = row
        else:
            number, *who, text = row
            fact = {"who": who[0] if who else None, "at": at, "text": text}
            facts.append({"id" if name == "memories" else "fact": number, **fact})
    return facts


class Scripted:
    """The `default` of a ModelEndpoint: {words of a message: facts}, {(fact, memory): decision}, else an ADD."""

    def __init__(
        self,
        facts_by_text: Mapping[str, Sequence[Fact]],
        decisions: Mapping[tuple[str, str], Decision | None] | None = None,
        before_deciding: Callable[[], None] | None = None,
    ) -> None:
        self.facts_by_text, self.decisions = facts_by_text, decisions or {}
        self.before_deciding = before_deciding
        self.broken = False
        self.requests: list[dict[str, Any]] = []

    def __call__(self, body: Mapping[str, Any]) -> str:
        request = json.loads(body["messages"][-1]["content"])
        self.requests.append(request)
        if self.broken:
            return "I would rather talk about the weather."
        if "facts" in request:
            return self._decide(request)
        if "about" in request:
            return self._extract(request, summarises='one more field, "summary"' in body["messages"][0]["content"])
        return json.dumps(self._summary(request))

    def _summary(self, request: Mapping[str, Any]) -> dict[str, str]:
        return {"summary": "Of " + ", ".join(one["text"] for one in shown_messages(request))}

    def _extract(self, request: Mapping[str, Any], *, summarises: bool) -> str:
        facts: list[dict[str, Any]] = []
        entities: list[str] = []
        for message in shown_messages(request):
            for one in self.facts_by_text.get(message["text"], ()):
                # A text is a fact of which the model gives no list of relations.
                entry = {"text": one, "confidence": 0.9} if isinstance(one, str) else dict(one)
                entities += entry.pop("entities", ())
                facts.append({"messages": [message["n"]], **entry})
        return json.dumps(
            {"facts": facts, "entities": entities, **(self._summary(request) if summarises else {})}, ensure_ascii=False
        )

    def _decide(self, request: Mapping[str, Any]) -> str:
        if self.before_deciding is not None:
            self.before_deciding()
        entries = []
        for new in shown_facts(request, "facts"):
            decisions = []
            for memory in shown_facts(request, "memories"):
                decision = self.decisions.get((new["text"], memory["text"]))
                if decision is not None:
                    decisions.append({"fact": new["fact"], "id": memory["id"], "text": None, **decision})
            if not decisions or any(one.get("and_add") for one in decisions):
                decisions.append({"fact": new["fact"], "event": "ADD", "id": None, "text": None})
            entries += decisions
        return json.dumps({"memory": entries}, ensure_ascii=False)


UPDATE: Callable[[str], Decision] = lambda text: {"event": "UPDATE", "text": text}
DELETE: Decision = {"event": "DELETE"}
CHANGED: Decision = {"event": "DELETE", "and_add": True}
NONE: Decision = {"event": "NONE"}


class OneAnswer:
    """A language model of one answer, or one error."""

    name = "fake"

    def __init__(self, reply: Any) -> None:
        self.reply = reply
        self.requests: list[Prompt] = []

    def answer(self, prompt: Prompt) -> Reply:
        self.requests.append(prompt)
        if isinstance(self.reply, Exception):
            raise self.reply
        return Reply(self.reply, Usage(1))


def all_near(texts: list[str]) -> list[Any]:
    """Vectors of `NEAR_DIMS` that are all near to each other, whatever a model's rounding."""
    return [np.append(HashEmbedder(NEAR_DIMS - 1).embed_query(text), 3.0).tolist() for text in texts]


def near_config(url: str, **more: Any) -> dict[str, Any]:
    """A configuration with the language model of an endpoint, for which all facts are near to each other."""
    llm = {"openai_base_url": url, "api_key": "any", "model": "scripted", "timeout": TIMEOUT}
    embedder = {"provider": "callable", "config": {"embed": all_near, "embedding_dims": NEAR_DIMS, "model": "near"}}
    return fake_models(**{"llm": {"provider": "openai", "config": llm}, "embedder": embedder, **more})
