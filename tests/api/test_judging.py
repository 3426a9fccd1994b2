"""`judge`: verdicts are kept for a question, a memory and a scope, go with the memory, and change no search."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from support.contract import Make, added, ids

from graphmem import Memory
from graphmem.errors import ConfigError, NotFoundError, ValidationError

ANA = {"user_id": "u1"}
QUERY = "What do I drink?"


def said(memory: Memory, **scope: Any) -> list[tuple[str, str, str | None]]:
    found = memory.judgements(**scope or ANA)
    assert found["total"] == len(found["results"])
    return [(one["query"], one["memory_id"], one["verdict"]) for one in found["results"]]


def test_the_last_verdict_on_a_question_and_a_memory_counts(memory: Memory) -> None:
    tea, car = added(memory, "I drink tea."), added(memory, "The car is red.")
    judged = memory.judge(f"  {QUERY} ", tea, "missing", **ANA)
    assert judged == memory.judgements(**ANA)["results"][0]
    assert {**judged, "judged_at": ""} == {
        "query": QUERY, "memory_id": tea, "verdict": "missing", "judged_at": "", **ANA, "agent_id": None, "run_id": None
    }  # fmt: skip
    memory.judge(QUERY, car, "wrong", **ANA)
    memory.judge(QUERY, tea, "right", **ANA)
    assert said(memory) == [(QUERY, tea, "right"), (QUERY, car, "wrong")]
    assert memory.judge(QUERY, car, None, **ANA)["verdict"] is None
    memory.judge("Never asked?", car, None, **ANA)
    assert said(memory) == [(QUERY, tea, "right")]


def test_verdicts_are_listed_in_pages_the_latest_first(memory: Memory) -> None:
    tea = added(memory, "I drink tea.")
    for number in range(5):
        memory.judge(f"{QUERY} {number}", tea, "right", **ANA)
    pages = [memory.judgements(**ANA, limit=2, offset=offset) for offset in (0, 2, 4, 6)]
    assert [one["query"][-1] for page in pages for one in page["results"]] == list("43210")
    assert {page["total"] for page in pages} == {5}
    of_one = memory.judgements(**ANA, query=f" {QUERY} 3")
    assert ([one["query"] for one in of_one["results"]], of_one["total"]) == ([f"{QUERY} 3"], 1)
    assert memory.judgements(**ANA, query=QUERY) == {"results": [], "total": 0}


def test_verdicts_are_of_the_scope_that_asked(memory: Memory) -> None:
    tea = added(memory, "I drink tea.", agent_id="a", run_id="r")
    memory.judge(QUERY, tea, "right", **ANA)
    memory.judge(QUERY, tea, "wrong", **ANA, agent_id="a")
    memory.judge(QUERY, tea, "missing", agent_id="a")
    assert [verdict for *_, verdict in said(memory)] == ["wrong", "right"]
    assert [verdict for *_, verdict in said(memory, agent_id="a")] == ["missing", "wrong"]
    for scope in ({"user_id": "u2"}, {**ANA, "agent_id": "b"}):
        assert said(memory, **scope) == []
        with pytest.raises(NotFoundError, match="no memory"):
            memory.judge(QUERY, tea, "right", **scope)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"verdict": "good"}, "verdict='good': must be one of 'right', 'wrong', 'missing'; None takes back"),
        ({"verdict": True}, "verdict=True"),
        ({"query": " "}, "query=' ': is empty"),
        ({"query": "x" * 4001}, "has 4001 characters; use at most 4,000"),
        ({"user_id": None}, "user_id, agent_id and run_id are all missing"),
    ],
)
def test_bad_input_is_named(memory: Memory, change: dict[str, Any], error: str) -> None:
    tea = added(memory, "I drink tea.")
    with pytest.raises(ValidationError, match=error):
        memory.judge(**{"query": QUERY, "memory_id": tea, "verdict": "right", **ANA, **change})
    assert said(memory) == []


def test_a_verdict_goes_with_its_memory_and_with_its_user(make_memory: Make, tmp_path: Path) -> None:
    memory = make_memory(tmp_path / "home")
    tea, car = added(memory, "I drink tea."), added(memory, "The car is red.")
    theirs = added(memory, "I drink milk.", user_id="u2")
    for uid in (tea, car):
        memory.judge("Do I drink quillonbar?", uid, "wrong", **ANA)
    memory.judge(QUERY, theirs, "right", user_id="u2")
    memory.delete(tea)
    assert [uid for _, uid, _ in said(memory)] == [car]
    memory.delete_all(**ANA)
    assert said(memory) == []
    assert [uid for _, uid, _ in said(memory, user_id="u2")] == [theirs]
    assert memory.export(io.StringIO())["items"] == 1
    memory.close()
    assert all(b"quillonbar" not in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())


def test_searches_and_the_counts_of_use_stay_as_they_were(memory: Memory) -> None:
    tea = added(memory, "I drink tea.")
    before, words = memory.search(QUERY, **ANA), memory.get(tea)
    memory.judge(QUERY, tea, "wrong", **ANA)
    assert memory.search(QUERY, **ANA) == before
    assert memory.get(tea) == words
    assert memory.verify()["ok"]


def test_an_export_and_its_import_carry_verdicts_to_memories_that_are_there(make_memory: Make) -> None:
    memory, file = make_memory(), io.StringIO()
    tea, car = added(memory, "I drink tea."), added(memory, "The car is red.")
    memory.judge(QUERY, tea, "right", **ANA)
    memory.judge(QUERY, car, "wrong", **ANA)
    memory.export(file)
    other = make_memory(before_store=lambda one: None if "car" in one["content"] else one)
    other.import_(io.StringIO(file.getvalue()))
    assert said(other) == [(QUERY, tea, "right")]
    third = make_memory()
    third.import_(io.StringIO(file.getvalue()))
    third.import_(io.StringIO(file.getvalue()))
    assert sorted(said(third)) == sorted(said(memory))


def test_the_question_is_kept_as_before_store_returns_it(make_memory: Make) -> None:
    memory = make_memory(
        before_store=lambda one: (
            None if "no" in one["content"] else {**one, "content": one["content"].replace("pin", "*")}
        )
    )
    tea = added(memory, "I drink tea.")
    assert memory.judge("My pin and tea?", tea, "right", **ANA)["query"] == "My * and tea?"
    with pytest.raises(ValidationError, match="before_store refuses"):
        memory.judge("no", tea, "right", **ANA)
    assert said(memory) == [("My * and tea?", tea, "right")]


def test_a_verdict_outlives_an_update_and_a_retirement_of_its_memory(memory: Memory) -> None:
    tea = added(memory, "I drink tea.")
    memory.judge(QUERY, tea, "right", **ANA)
    memory.update(tea, "I drink coffee.")
    memory.forget(tea)
    assert said(memory) == [(QUERY, tea, "right")]
    assert ids(memory.search(QUERY, **ANA)) == []


def test_a_question_is_looked_up_as_before_store_let_it_be_kept(make_memory: Make) -> None:
    redacted = {"Where is Ann?": "  Where is *? ", "long": "x" * 4001, "off": None}
    memory = make_memory(
        before_store=lambda one: (
            None
            if redacted.get(one["content"], "") is None
            else {**one, "content": redacted.get(one["content"]) or one["content"]}
        )
    )
    tea = added(memory, "I drink tea.")
    assert memory.judge("Where is Ann?", tea, "right", **ANA)["query"] == "Where is *?"
    for query in ("Where is Ann?", "Where is *?"):
        assert memory.judgements(**ANA, query=query)["total"] == 1
    assert memory.judgements(**ANA, query="off") == {"results": [], "total": 0}
    with pytest.raises(ConfigError, match="before_store returned what cannot be kept: .*4001 characters"):
        memory.judge("long", tea, "right", **ANA)
    assert len(said(memory)) == 1


def exported(memory: Memory) -> list[dict[str, Any]]:
    """The records of an export, without header and trailer."""
    memory.export(file := io.StringIO())
    return [json.loads(line) for line in file.getvalue().splitlines()[1:-1]]


def test_an_import_keeps_questions_as_before_store_returns_them(make_memory: Make) -> None:
    memory = make_memory()
    tea = added(memory, "I drink tea.")
    for query in ("Where is Ann?", "off the record"):
        memory.judge(query, tea, "right", **ANA)
    other = make_memory(
        before_store=lambda one: (
            None if "off" in one["content"] else {**one, "content": one["content"].replace("Ann", "*")}
        )
    )
    assert other.import_(exported(memory))["items"] == 1
    assert said(other) == [("Where is *?", tea, "right")]
    other.judge("Where is Ann?", tea, None, **ANA)
    assert said(other) == []


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"value": {"query": QUERY, "verdict": ["right"]}}, "value: is no judgement"),
        ({"value": {"query": QUERY, "verdict": None}}, "value: is no judgement"),
        ({"value": [QUERY]}, "value: is no judgement"),
        ({"memory": None}, "value: is no judgement"),
        ({"value": {"query": " ", "verdict": "right"}}, "query=' ': is empty"),
        ({"value": {"query": "x" * 4001, "verdict": "right"}}, "query=.*use at most 4,000"),
    ],
)
def test_an_import_refuses_what_is_no_judgement(make_memory: Make, change: dict[str, Any], error: str) -> None:
    memory, other = make_memory(), make_memory()
    memory.judge(QUERY, added(memory, "I drink tea."), "right", **ANA)
    *memories, judged = exported(memory)
    with pytest.raises(ValidationError, match=f"record 2: {error}"):
        other.import_([*memories, {**judged, **change}])
    assert said(other) == []


def test_an_imported_verdict_gets_the_place_of_its_question_and_never_expires(make_memory: Make) -> None:
    memory, other = make_memory(), make_memory()
    tea = added(memory, "I drink tea.")
    memory.judge(QUERY, tea, "right", **ANA)
    *memories, judged = exported(memory)
    place = {"namespace": ["graphmem-judgements", "elsewhere"], "key": "other", "ttl_minutes": 1}
    other.import_([*memories, {**judged, **place, "expires_at": "2020-01-01T00:00:00+00:00"}])
    assert other.judgements(**ANA, query=QUERY)["total"] == 1
    other.repair()
    other.judge(QUERY, tea, "wrong", **ANA)
    assert said(other) == [(QUERY, tea, "wrong")]
