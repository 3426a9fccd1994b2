"""Plays the cases against an endpoint: recordings, a desk that makes them, or a live model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from recorded.cases import NOON, Case, Told
from recorded.examples import Example
from support.fake_llm import NEAR_DIMS, all_near

from graphmem import Memory, Settings
from graphmem.ingest.facts import decision
from graphmem.ingest.facts.decision import DecisionType, FactDraft, KnownMemory
from graphmem.ingest.facts.extraction import Fact
from graphmem.model import Kind, MemoryRecord, Scope
from graphmem.models.openai_chat import OpenaiChatModel

RECORDINGS = Path(__file__).parent / "recordings"
HOW = (
    "a prompt, a case or what is sent has changed: record anew as tests/README.md says, "
    "with replies written from the requests alone"
)


def config(url: str, model: str, key: str, more: Mapping[str, Any]) -> dict[str, Any]:
    endpoint = {"openai_base_url": url, "model": model, "api_key": key, "timeout": 1200}
    embedder = {"embed": all_near, "embedding_dims": NEAR_DIMS, "model": "all-near"}
    return {
        "llm": {"provider": "openai", "config": endpoint},
        "embedder": {"provider": "callable", "config": embedder},
        "extractor": {"provider": "none"},
        "summary_messages": 0,
        **more,
    }


def play(case: Case, url: str, model: str = "desk", key: str = "any") -> dict[str, bool]:
    """What came of each check."""
    with Memory(":memory:", settings=Settings.from_dict(config(url, model, key, case.config))) as memory:
        results = [
            memory.add(one.messages, **one.scope, timestamp=NOON + timedelta(days=one.days), **one.more)
            for one in case.adds
        ]
        memory.flush()
        told = Told(memory, results)
        if any("failed" in result for result in results):
            return {"answered": False}
        return {name: bool(check(told)) for name, check in case.checks.items()}


def decided(example: Example, url: str, model: str = "desk", key: str = "any") -> tuple[list[str | None], list[str]]:
    """What becomes of the known, and what is added."""
    known = [KnownMemory(_record(text)) for text in example.known]
    drafts = [FactDraft(Fact(text, None, 1.0, (0,)), _record(text, 1)) for text in example.facts]
    endpoint = OpenaiChatModel(model, api_key=key, base_url=url, timeout=1200)
    try:
        answer = endpoint.answer(decision.build_request(drafts, known))
    finally:
        endpoint.close()
    texts: list[str | None] = list(example.known)
    added = []
    for action in decision.parse_answer(answer.value, drafts, known).actions:
        if action.type is DecisionType.ADD:
            added.append(drafts[action.fact].fact.text)
        elif action.type is DecisionType.DELETE:
            texts[action.memory or 0] = None
        elif action.type is DecisionType.UPDATE:
            texts[action.memory or 0] = action.text
    return texts, added


def _record(text: str, days: int = 0) -> MemoryRecord:
    at = NOON + timedelta(days=days)
    scope = Scope("u1")
    return MemoryRecord("id", scope.partition, scope, Kind.FACT, text, at, at, at, at, "s")


def sha_of(body: Mapping[str, Any]) -> str:
    """The name of a request's recording, as the desk has it."""
    canonical = json.dumps(body, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:20]


class Recorded:
    """Answers from recordings; `missing` are requests that there is none for, `used` those that there was."""

    def __init__(self, folder: Path = RECORDINGS) -> None:
        self._folder = folder
        self.missing: list[str] = []
        self.used: set[str] = set()

    def __call__(self, body: Mapping[str, Any]) -> str:
        sha = sha_of(body)
        path = self._folder / f"{sha}.json"
        if not path.exists():
            self.missing.append(sha)
            return ""
        self.used.add(sha)
        return str(json.loads(path.read_text("utf-8"))["content"])
