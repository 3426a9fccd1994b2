"""A language model that answers in mem0's shape: texts as facts, every memory listed, no indices of facts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.fake_llm import NEAR_DIMS, all_near, shown_facts, shown_messages
from support.fakes import fake_models

from graphmem import Memory, Settings
from graphmem.testing import ModelEndpoint

THEN = datetime(2024, 5, 1, 12, tzinfo=UTC)
FACTS = {
    "Hi, my name is Desmond.": ["Name is Desmond"],
    "I have a sister.": ["Has a sister"],
    "Her name is Jesica.": ["Has a sister named Jesica"],
    "She has a dog.": ["Jesica has a dog"],
}
CHANGES = {
    "Has a sister named Jesica": ("Has a sister", "UPDATE"),
}


def answer(body: Mapping[str, Any]) -> str:
    """mem0's answers: `{"facts": [texts]}`, then every memory with an event, new ones under the next numbers."""
    request = json.loads(body["messages"][-1]["content"])
    if "facts" not in request:
        return json.dumps({"facts": [text for one in shown_messages(request) for text in FACTS.get(one["text"], [])]})
    entries = [{"id": str(one["id"]), "text": one["text"], "event": "NONE"} for one in shown_facts(request, "memories")]
    for fact in (one["text"] for one in shown_facts(request, "facts")):
        old, event = CHANGES.get(fact, (None, "ADD"))
        entry = next((one for one in entries if one["text"] == old), None)
        if entry is None:
            entries.append({"id": str(len(entries)), "text": fact, "event": "ADD"})
        else:
            entry |= {"text": fact, "event": event, "old_memory": old}
    return json.dumps({"memory": entries})


def test_a_dialogue_gives_three_memories_and_four_rows_of_history() -> None:
    embedder = {"provider": "callable", "config": {"embed": all_near, "embedding_dims": NEAR_DIMS, "model": "near"}}
    with ModelEndpoint(default=answer) as endpoint:
        llm = {"provider": "openai", "config": {"openai_base_url": endpoint.url, "api_key": "any", "model": "as mem0"}}
        settings = Settings.from_dict(fake_models(llm=llm, embedder=embedder))
        with Memory(":memory:", settings=settings) as memory:
            for n, text in enumerate(FACTS):
                result = memory.add(text, user_id="desmond", timestamp=THEN + timedelta(minutes=n))
                assert "failed" not in result
                assert "pending" not in result
            facts = memory.get_all(user_id="desmond", kinds="fact")["results"]
            assert sorted(one["memory"] for one in facts) == [
                "Has a sister named Jesica",
                "Jesica has a dog",
                "Name is Desmond",
            ]
            rows = [(row["event"], row["new_memory"]) for one in facts for row in memory.history(one["id"])]
            assert sorted(rows) == [
                ("ADD", "Has a sister"),
                ("ADD", "Jesica has a dog"),
                ("ADD", "Name is Desmond"),
                ("UPDATE", "Has a sister named Jesica"),
            ]


# --- procedural memories ----------------------------------------------------------------------------------------------

STEPS: list[dict[str, Any]] = [
    {"role": "user", "content": "Find the cheapest train to Bergen."},
    {"role": "assistant", "content": "I looked at the timetable: 07:25, 499 kroner."},
    {"role": "tool", "content": "booked: reference QX7"},
]
RECORD = "Task: find the cheapest train to Bergen.\n1. Looked at the timetable: 07:25, 499 kroner.\n2. Booked: QX7."


def open_memory(url: str, **more: Any) -> Memory:
    llm = {"provider": "openai", "config": {"openai_base_url": url, "api_key": "any", "model": "procedures"}}
    return Memory(":memory:", settings=Settings.from_dict(fake_models(llm=llm, **more)))


def test_a_procedural_memory_is_one_summary_by_one_request() -> None:
    with ModelEndpoint([json.dumps({"summary": RECORD})]) as endpoint, open_memory(endpoint.url) as memory:
        result = memory.add(STEPS, agent_id="bot", memory_type="procedural_memory", metadata={"task": 7})
        (one,) = result["results"]
        assert (one["event"], one["kind"], one["memory"]) == ("ADD", "summary", RECORD)
        assert len(endpoint.requests) == 1
        assert result["usage"]["calls"] == 1
        summary = memory.get(one["id"])
        assert summary is not None
        assert (summary["memory_type"], summary["metadata"]) == ("procedural", {"task": 7})
        assert memory.get_all(agent_id="bot", kinds="fact")["results"] == []
        assert memory.search("train to Bergen", agent_id="bot", kinds="summary")["results"][0]["id"] == one["id"]
        assert [message["content"] for message in memory.explain(one["id"])["messages"]] == [
            step["content"] for step in STEPS
        ]
        system = endpoint.requests[0].body["messages"][0]["content"]
        assert "record of an agent's work" in system
        assert memory.verify()["ok"]


def test_a_procedural_summary_is_no_session_summary_and_is_deleted_with_its_messages() -> None:
    with ModelEndpoint([json.dumps({"summary": RECORD})], default='{"facts": []}') as endpoint:
        with open_memory(endpoint.url, summary_messages=0) as memory:
            (one,) = memory.add(STEPS, user_id="ann", memory_type="procedural_memory")["results"]
            memory.add("And now?", user_id="ann")
            assert json.loads(endpoint.requests[1].body["messages"][-1]["content"])["summary"] == ""
            source = memory.get_all(user_id="ann", kinds="episode")["results"][-1]
            receipt = memory.delete(source["id"])
            assert one["id"] in receipt["deleted"]
            assert memory.flush() == {"pending": []}
            assert memory.get_all(user_id="ann", kinds="summary")["results"] == []


def test_a_procedural_summary_whose_model_fails_is_pending_and_retried() -> None:
    with ModelEndpoint(["no summary"] * 3, default=json.dumps({"summary": RECORD})) as endpoint:
        with open_memory(endpoint.url) as memory:
            result = memory.add(STEPS, agent_id="bot", memory_type="procedural_memory")
            assert result["failed"] == {"procedure": "LLMUnusable"}
            assert "procedure" in result["pending"]
            assert memory.retry_failed()["done"] == 1
            (summary,) = memory.get_all(agent_id="bot", kinds="summary")["results"]
            assert summary["memory"] == RECORD


def test_prompt_replaces_the_instructions_for_a_procedure() -> None:
    with ModelEndpoint([json.dumps({"summary": RECORD})]) as endpoint, open_memory(endpoint.url) as memory:
        memory.add(STEPS, agent_id="bot", memory_type="procedural_memory", prompt="Only what was booked.")
        system = endpoint.requests[0].body["messages"][0]["content"]
        assert system.startswith("Only what was booked.")
        assert "record of an agent's work" not in system


def test_memory_type_procedural_is_a_type_of_ordinary_facts() -> None:
    with ModelEndpoint(default=json.dumps({"facts": ["Boil the eggs for six minutes"]})) as endpoint:
        with open_memory(endpoint.url) as memory:
            (one,) = memory.add("I boil eggs for six minutes.", user_id="ann", memory_type="procedural")["results"]
            assert one["kind"] == "fact"


# --- skipped messages, details of results -----------------------------------------------------------------------------

IMAGE = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://example.com/cat.png"}}]}


@pytest.mark.parametrize("infer", [False, True])
def test_a_message_of_images_alone_is_named_in_the_result(infer: bool) -> None:
    with ModelEndpoint(default='{"facts": []}') as endpoint, open_memory(endpoint.url) as memory:
        calls: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": []}
        result = memory.add(["Look!", IMAGE, calls], user_id="ann", infer=infer)
        (skipped,) = result["skipped"]
        assert (skipped["message"], skipped["reason"].partition(";")[0]) == (1, "holds no text")
        assert "skipped" not in memory.add("Look again!", user_id="ann", infer=infer)


def test_version_1_0_returns_a_list_with_details() -> None:
    with (
        ModelEndpoint(["no JSON"] * 3, default="no JSON") as endpoint,
        open_memory(endpoint.url, version="v1.0") as memory,
    ):
        with pytest.warns(DeprecationWarning), pytest.warns(RuntimeWarning, match="LLMUnusable"):
            results: Any = memory.add("I sing.", user_id="ann")
        assert results == []
        assert results.details["failed"] == {"facts": "LLMUnusable"}
        assert "facts" in results.details["pending"]
        with pytest.warns(DeprecationWarning):
            hits: Any = memory.search("singing", user_id="ann")
        assert json.loads(json.dumps(hits)) == hits
        assert hits.details["relations"] == []
