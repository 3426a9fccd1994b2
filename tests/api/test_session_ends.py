"""The end of a session: told once after a silence, and the moment to draw facts with `extract: "session"`."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.contract import Make, texts
from support.fake_llm import Scripted, fact
from support.statement_count import counted
from support.waiting import wait_until

from graphmem import ChatLink, Memory, MemoryEvent
from graphmem.commands import facts
from graphmem.errors import ValidationError
from graphmem.stores.ledger import jobs
from graphmem.stores.ledger import schema as tables
from graphmem.stores.ledger.sql import now_micros
from graphmem.testing import ModelEndpoint

SAID = [f"I like cake number {n}." for n in range(20)]
FACTS = {said: [fact(f"Likes cake number {n}")] for n, said in enumerate(SAID)}
# Minutes of a silence that no test waits for, and of one that is over at once.
LONG, SHORT = 1000.0, 0.0005


def let_silence_pass(memory: Memory) -> None:
    """Lets the sessions of a memory be due: the clock of a test does not wait for half an hour."""
    with memory.engine.ledger.write() as connection:
        is_end = tables.jobs.c.kind == "session"
        connection.execute(tables.jobs.update().where(is_end).values(claimable_at=now_micros()))


def sessions(memory: Memory) -> list[Any]:
    with memory.engine.ledger.read() as connection:
        return connection.execute(tables.jobs.select().where(tables.jobs.c.kind == "session")).all()


# --- telling --------------------------------------------------------------------------------------------------------


def test_a_silence_ends_a_session_once(make_memory: Make, tmp_path: Path) -> None:
    memories, told = [make_memory(tmp_path, session_gap=LONG) for _ in range(2)], list[MemoryEvent]()
    for memory in memories:
        memory.on("session.end", told.append)
        memory.on("session.end", told.append, name="archive")
    memories[0].add("I drink tea.", user_id="ana", run_id="r1")
    memories[0].add("I like cake.", user_id="ana", run_id="r1")
    assert len(sessions(memories[0])) == 1
    assert told == []
    let_silence_pass(memories[0])
    for memory in memories:
        memory.engine.job_worker.schedule()
    wait_until(lambda: len(told) >= 2)
    for memory in memories:
        memory.flush()
    here, named = told
    assert (here.event_type, here.user_id, here.payload["run_id"], here.payload["messages"]) == (
        "session.end", "ana", "r1", 2,
    )  # fmt: skip
    assert here == named
    assert sessions(memories[0]) == []


def test_the_timer_ends_a_session(make_memory: Make, tmp_path: Path) -> None:
    memory, told = make_memory(tmp_path, session_gap=SHORT), list[MemoryEvent]()
    memory.on("session.end", told.append)
    for n in (1, 2):
        memory.add("I drink tea.", user_id="ana")
        wait_until(lambda n=n: len(told) == n)


def test_each_message_puts_the_end_off(make_memory: Make, tmp_path: Path) -> None:
    memory, told = make_memory(tmp_path, session_gap=LONG), list[MemoryEvent]()
    memory.on("session.end", told.append)
    memory.add("I drink tea.", user_id="ana")
    let_silence_pass(memory)
    due = sessions(memory)[0]
    memory.add("I like cake.", user_id="ana")
    memory.engine.job_worker.run(due.id, jobs.JobKind.SESSION).result()  # of a worker that saw it due before
    memory.flush()
    assert told == []
    assert sessions(memory)[0].claimable_at > due.claimable_at
    assert memory.stats()["job_counts"] == []  # a session that goes on is no work that waits


def test_end_session_ends_that_of_exactly_its_scope(make_memory: Make) -> None:
    memory, told = make_memory(), list[MemoryEvent]()
    memory.on("session.end", told.append)
    memory.add("I drink tea.", user_id="ana")
    memory.add("I like cake.", user_id="ana", run_id="r1")
    assert memory.end_session(user_id="ana", agent_id="bot") == {"ended": False}
    assert memory.end_session(user_id="ana") == {"ended": True}
    assert memory.end_session(user_id="ana") == {"ended": False}
    memory.flush()
    assert [(one.user_id, "run_id" in one.payload) for one in told] == [("ana", False)]
    with pytest.raises(ValidationError):
        memory.end_session()


def test_a_chat_link_ends_the_session_of_its_chat(make_memory: Make) -> None:
    memory, told = make_memory(), list[MemoryEvent]()
    memory.on("session.end", told.append)
    with ChatLink(memory, user_id="ana", run_id="chat-1") as link:
        link.saved([{"role": "user", "content": "I drink tea."}])
    memory.flush()
    assert [one.payload["run_id"] for one in told] == ["chat-1"]
    link.close()
    memory.flush()
    assert len(told) == 1


def test_another_process_records_the_end_for_a_name_and_the_one_that_serves_it_ends_it(
    make_memory: Make, tmp_path: Path
) -> None:
    serving, writing = (make_memory(tmp_path, session_gap=LONG) for _ in range(2))
    told: list[MemoryEvent] = []
    serving.on("session.end", told.append, name="archive")
    writing.add("I drink tea.", user_id="ana")
    let_silence_pass(writing)
    writing.engine.job_worker.schedule()  # nobody here is to know
    writing.flush()
    assert len(sessions(writing)) == 1
    serving.flush()
    wait_until(lambda: told)
    assert sessions(serving) == []


def test_who_needs_no_session_pays_no_statement_for_it(make_memory: Make) -> None:
    def cost(memory: Memory) -> int:
        memory.add("I drink tea.", user_id="ana")
        with counted() as counts:
            memory.add("I drink coffee.", user_id="ana")
        return counts["statements"]

    memory = make_memory()
    plain = cost(memory)
    assert sessions(memory) == []
    memory.on("memory.added", print)
    assert cost(memory) == plain
    with memory.on("session.end", print):
        assert cost(memory) > plain
    assert cost(memory) == plain


# --- extract: "session" -----------------------------------------------------------------------------------------------


@pytest.fixture
def scripted() -> Iterator[tuple[Scripted, ModelEndpoint]]:
    model = Scripted(FACTS)
    with ModelEndpoint(default=model) as endpoint:
        yield model, endpoint


def configured(endpoint: ModelEndpoint, extract: str, **more: Any) -> dict[str, Any]:
    llm = {"openai_base_url": endpoint.url, "api_key": "any", "model": "scripted"}
    return {"llm": {"config": llm}, "extract": extract, "summary_messages": 0, "session_gap": LONG, **more}


def known(memory: Memory) -> set[str]:
    return set(texts(memory.get_all(user_id="ana", limit=100, kinds=["fact"])))


@pytest.mark.thorough
def test_the_facts_of_a_session_take_few_requests_and_are_the_same(
    make_memory: Make, tmp_path: Path, scripted: tuple[Scripted, ModelEndpoint]
) -> None:
    model, endpoint = scripted
    results = {}
    for extract in ("all", "session"):
        memory = make_memory(tmp_path / extract, **configured(endpoint, extract))
        for said in SAID:
            result = memory.add(said, user_id="ana")
            assert len(result["sources"]) == 1
            assert "pending" not in result
            assert bool(result["results"]) is (extract == "all")
        if extract == "session":
            assert model.requests == []
            assert known(memory) == set()
            assert memory.search("cake number 3", user_id="ana")["results"]  # the words are found before
            memory.end_session(user_id="ana")
        assert memory.flush() == {"pending": []}
        extractions = [request for request in model.requests if "about" in request]
        results[extract] = known(memory), len(extractions), len(model.requests)
        model.requests.clear()
    assert results["all"][:2] == (known_facts(), 20)
    assert results["session"][0] == known_facts()
    assert results["session"][1] == 1
    assert results["session"][2] <= 2 < 20 <= results["all"][2]


def known_facts() -> set[str]:
    return {f"Likes cake number {n}" for n in range(20)}


def test_a_process_that_ends_before_the_session_loses_nothing(
    make_memory: Make, tmp_path: Path, scripted: tuple[Scripted, ModelEndpoint]
) -> None:
    model, endpoint = scripted
    memory = make_memory(tmp_path, **configured(endpoint, "session"))
    memory.add(SAID[0], user_id="ana")
    gone = memory.add(SAID[1], user_id="ana")["sources"][0]
    memory.add(SAID[2], user_id="ana", prompt="Draw facts about cakes.", importance=0.9)
    memory.delete(gone)
    memory.close()
    memory = make_memory(tmp_path, **configured(endpoint, "session"))
    assert memory.flush() == {"pending": []}
    assert model.requests == []
    let_silence_pass(memory)
    assert memory.flush() == {"pending": []}
    assert known(memory) == {"Likes cake number 0", "Likes cake number 2"}
    assert len([request for request in model.requests if "about" in request]) == 2  # by instructions
    with memory.engine.ledger.read() as connection:
        found = tables.memories.select().where(tables.memories.c.kind == "fact").order_by(tables.memories.c.id)
        assert {row.text: row.importance for row in connection.execute(found)} == {
            "Likes cake number 0": 0.5,
            "Likes cake number 2": 0.9,
        }


def test_the_facts_of_an_endless_session_are_drawn_meanwhile(
    make_memory: Make, scripted: tuple[Scripted, ModelEndpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "MOST_DEFERRED", 3)
    memory = make_memory(**configured(scripted[1], "session"))
    for said in SAID[:4]:
        memory.add(said, user_id="ana")
    memory.flush()
    assert len(known(memory)) == 3
    memory.end_session(user_id="ana")
    memory.flush()
    assert len(known(memory)) == 4


def test_a_procedure_is_recorded_at_once_and_no_model_makes_the_setting_idle(
    make_memory: Make, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    with ModelEndpoint(default='{"summary": "First mix, then bake."}') as endpoint:
        memory = make_memory(**configured(endpoint, "session"))
        steps = [{"role": "assistant", "content": "I mix."}, {"role": "assistant", "content": "I bake."}]
        result = memory.add(steps, user_id="ana", agent_id="cook", memory_type="procedural_memory")
        assert len(result["results"]) == 1
    with pytest.warns(UserWarning, match="extract: without effect"):
        memory = make_memory(extract="session")
    assert memory.add("I drink tea.", user_id="ana")["results"][0]["event"] == "ADD"
    assert sessions(memory) == []
