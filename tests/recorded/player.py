"""Plays the cases against an endpoint: the recordings, a manual endpoint for new recordings, or a live model.

`desk`, the default model name, is a part of each recorded request.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from recorded.cases import NOON, Case, CaseRun
from recorded.compositions import Composing
from recorded.examples import Example
from support.fake_llm import NEAR_DIMS, all_near

from graphmem import Memory, Settings
from graphmem.ingest.facts import compositions, decision
from graphmem.ingest.facts.decision import DecisionType, FactDraft, KnownMemory
from graphmem.ingest.facts.extraction import Fact
from graphmem.model import Kind, MemoryRecord, Scope
from graphmem.models.openai_chat import OpenaiChatModel

RECORDINGS = Path(__file__).parent / "recordings"
RECORD_HINT = (
    "a prompt, a case or the form of a request has changed: record anew as tests/README.md says, "
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
    """Plays a case. Returns whether each check passes, by its name."""
    with Memory(":memory:", settings=Settings.from_dict(config(url, model, key, case.config))) as memory:
        results = [
            memory.add(one.messages, **one.scope, timestamp=NOON + timedelta(days=one.days), **one.more)
            for one in case.adds
        ]
        memory.flush()
        run = CaseRun(memory, results)
        if any("failed" in result for result in results):
            return {"answered": False}
        return {name: bool(check(run)) for name, check in case.checks.items()}


def decide_example(
    example: Example, url: str, model: str = "desk", key: str = "any"
) -> tuple[list[str | None], list[str]]:
    """Asks for the decisions of an example. Returns the texts of its memories afterwards, and the added texts."""
    memories = [KnownMemory(_record(text)) for text in example.memories]
    drafts = [FactDraft(Fact(text, None, 1.0, (0,)), _record(text, 1)) for text in example.facts]
    endpoint = OpenaiChatModel(model, api_key=key, base_url=url, timeout=1200)
    try:
        answer = endpoint.answer(decision.build_request(drafts, memories))
    finally:
        endpoint.close()
    texts: list[str | None] = list(example.memories)
    added_texts = []
    for action in decision.parse_answer(answer.value, drafts, memories).actions:
        if action.type is DecisionType.ADD:
            added_texts.append(drafts[action.fact].fact.text)
        elif action.type is DecisionType.DELETE:
            texts[action.memory or 0] = None
        elif action.type is DecisionType.UPDATE:
            texts[action.memory or 0] = action.text
    return texts, added_texts


def compose_example(one: Composing, url: str, model: str = "desk", key: str = "any") -> tuple[str | None, str]:
    """Has one memory made of several. Returns its text and "", or None and why the answer is not taken."""
    sources = [_record(text, days, one.speaker) for days, text in enumerate(one.texts)]
    endpoint = OpenaiChatModel(model, api_key=key, base_url=url, timeout=1200)
    try:
        answer = endpoint.answer(compositions.request(one.operation, one.level, sources))
    finally:
        endpoint.close()
    return compositions.read(one.operation, answer.value, sources)


def _record(text: str, days: int = 0, speaker: str | None = None) -> MemoryRecord:
    at = NOON + timedelta(days=days)
    scope = Scope("u1")
    return MemoryRecord("id", scope.partition, scope, Kind.FACT, text, at, at, at, at, "s", speaker=speaker)


def hash_request(body: Mapping[str, Any]) -> str:
    """The file name of a request's recording: the start of the SHA-256 of its canonical JSON."""
    canonical = json.dumps(body, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:20]


class RecordedAnswers:
    """Answers requests from recordings; `missing`: hashes of requests without a recording, `used`: the others."""

    def __init__(self, folder: Path = RECORDINGS) -> None:
        self._folder = folder
        self.missing: list[str] = []
        self.used: set[str] = set()

    def __call__(self, body: Mapping[str, Any]) -> str:
        sha = hash_request(body)
        path = self._folder / f"{sha}.json"
        if not path.exists():
            self.missing.append(sha)
            return ""
        self.used.add(sha)
        return str(json.loads(path.read_text("utf-8"))["content"])
