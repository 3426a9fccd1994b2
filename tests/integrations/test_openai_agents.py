"""The adapter of the OpenAI Agents SDK: runs of its Runner with its scripted model and a real memory."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from agents import (
    Agent,
    GuardrailFunctionOutput,
    OutputGuardrailTripwireTriggered,
    RunConfig,
    Runner,
    Session,
    SessionSettings,
    function_tool,
    output_guardrail,
    set_trace_processors,
    set_tracing_disabled,
)
from agents.run_context import RunContextWrapper
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
from agents.tracing import TracingProcessor
from pydantic import BaseModel
from support.databases import SQLITE_ONLY
from support.fake_llm import Scripted
from support.fakes import slow_embedder
from support.waiting import TIMEOUT

from graphmem import AsyncMemory, Memory
from graphmem.errors import ConfigError, StoreUnavailable, ValidationError
from graphmem.integrations.openai_agents import GraphmemHooks, GraphmemSession, memory_tools, recall_filter
from graphmem.testing import ModelEndpoint

LONG_LIMIT: dict[str, Any] = {"time_limit": min(TIMEOUT, 600.0)}


@dataclass
class Ctx:
    user_id: str | None


ANA, BEN, NOBODY = Ctx("ana"), Ctx("ben"), Ctx(None)
# The arguments of a session call inside a run of Ana's.
IN_RUN = {"wrapper": RunContextWrapper(ANA)}


@pytest.fixture(autouse=True)
def _no_tracing() -> Iterator[None]:
    """Traces would be sent to OpenAI."""
    set_tracing_disabled(disabled=True)
    yield
    set_tracing_disabled(disabled=False)


@pytest.fixture
def session(memory: Memory) -> GraphmemSession:
    return GraphmemSession("c1", memory)


def make_agent(*steps: Any, **options: Any) -> tuple[Agent[Any], ScriptedModel]:
    """An agent, and its model that gives the texts and items of `steps`."""
    model = ScriptedModel([[assistant_message(step)] if isinstance(step, str) else step for step in steps])
    return Agent(name="Max", instructions="You are Max.", model=model, **options), model


def recalling(memory: Any, **options: Any) -> RunConfig:
    return RunConfig(call_model_input_filter=recall_filter(memory, **{**LONG_LIMIT, **options}))


def call_tool(name: str, call_id: str = "call-1", **arguments: Any) -> list[Any]:
    return [function_call(name, arguments, call_id=call_id)]


def texts(memory: Memory, user_id: str = "ana") -> list[str]:
    """The texts of a user's memories, oldest first."""
    return [one["memory"] for one in reversed(memory.get_all(user_id=user_id, limit=100)["results"])]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "graphmem"]


def user(content: Any) -> Any:
    return {"role": "user", "content": content}


def blocks(model: ScriptedModel) -> list[list[Any]]:
    """The blocks in the inputs of each call of a model."""
    return [
        [item["content"] for item in call.input if "<memories>" in str(item.get("content"))] for call in model.calls
    ]


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "agents", None)
    monkeypatch.delitem(sys.modules, GraphmemSession.__module__)
    with pytest.raises(ConfigError, match=r"pip install '\.\[openai-agents\]'"):
        importlib.import_module(GraphmemSession.__module__)


# --- session ----------------------------------------------------------------------------------------------------------


def test_a_session_follows_the_sdks_protocol(session: GraphmemSession) -> None:
    assert isinstance(session, Session)
    assert session.session_id == "c1"


async def test_items_come_back_unchanged_and_in_order(session: GraphmemSession) -> None:
    items: list[Any] = [
        {
            "role": "user",
            "content": [{"type": "input_text", "text": "Look \x00\ud800"}, {"type": "input_image", "n": 1}],
        },
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": None},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": '{"x": 1.0}', "id": "__fake_id__"},
        {"type": "function_call_output", "call_id": "a", "output": "é漢"},
    ]
    await session.add_items(items[:2], **IN_RUN)
    await session.add_items(items[2:], **IN_RUN)
    assert await session.get_items(**IN_RUN) == items


@pytest.mark.parametrize(
    ("of_settings", "limit", "expected"),
    [
        (None, None, [0, 1, 2, 3]),
        (None, 2, [2, 3]),
        (None, 0, []),
        (None, 9, [0, 1, 2, 3]),
        (3, None, [1, 2, 3]),
        (0, None, []),
        (3, 1, [3]),
        (0, 2, [2, 3]),
    ],
)
async def test_a_limit_gives_the_newest_items_in_order(
    memory: Memory, of_settings: int | None, limit: int | None, expected: list[int]
) -> None:
    session = GraphmemSession("c1", memory, user_id="ana", session_settings=SessionSettings(limit=of_settings))
    await session.add_items([user(str(n)) for n in range(4)])
    assert await session.get_items(limit) == [user(str(n)) for n in expected]


@pytest.mark.parametrize("settings", [SessionSettings(limit=2), {"limit": 2}])
async def test_settings_may_be_a_dict(memory: Memory, settings: Any) -> None:
    session = GraphmemSession("c1", memory, user_id="ana", session_settings=settings)
    await session.add_items([user(str(n)) for n in range(4)])
    assert await session.get_items() == [user("2"), user("3")]


@pytest.mark.parametrize("limit", ["2", 2.0, True, 10**30])
async def test_a_limit_that_is_no_number_of_items_is_refused(session: GraphmemSession, limit: Any) -> None:
    with pytest.raises(ValidationError, match="limit"):
        await session.get_items(limit, **IN_RUN)


@pytest.mark.parametrize(
    ("items", "named"),
    [
        (["x"], "items[0]"),
        ([user("I like tea"), None], "items[1]"),
        ([user("I like tea"), user("And milk"), user(float("nan"))], "items[2]"),
        ([user("I like tea"), user("x" * 10_000_001)], "items[1]"),
        ("x", "items"),
    ],
)
async def test_an_unusable_item_is_named_and_nothing_is_stored(
    memory: Memory, session: GraphmemSession, items: Any, named: str
) -> None:
    with pytest.raises(ValidationError, match=f"^{re.escape(named)}[.=]"):
        await session.add_items(items, **IN_RUN)
    assert await session.get_items(**IN_RUN) == []
    assert texts(memory) == []


async def test_an_output_item_of_a_model_is_stored_as_the_dict_that_the_sdk_makes_of_it(
    memory: Memory, session: GraphmemSession
) -> None:
    item: Any = assistant_message("Tea is green.")
    await session.add_items([item], **IN_RUN)
    assert await session.get_items(**IN_RUN) == [item.model_dump(exclude_unset=True)]
    assert texts(memory) == ["Tea is green."]


async def test_pop_takes_the_last_item_and_leaves_its_memory(memory: Memory, session: GraphmemSession) -> None:
    await session.add_items([user("I like tea"), user("And milk")], **IN_RUN)
    assert await session.pop_item(**IN_RUN) == user("And milk")
    assert await session.get_items(**IN_RUN) == [user("I like tea")]
    assert texts(memory) == ["I like tea", "And milk"]


async def test_pop_of_an_empty_session_gives_none(session: GraphmemSession) -> None:
    assert await session.pop_item(**IN_RUN) is None


async def test_two_pops_at_once_take_two_items(memory: Memory) -> None:
    sessions = [GraphmemSession("c1", memory, user_id="ana", remember=False) for _ in range(2)]
    await sessions[0].add_items([user(str(n)) for n in range(20)])
    popped = await asyncio.gather(*(sessions[n % 2].pop_item() for n in range(20)))
    assert sorted(item["content"] for item in popped) == sorted(str(n) for n in range(20))  # type: ignore[index]


async def test_what_two_runs_add_to_one_session_at_once_is_all_kept(memory: Memory) -> None:
    sessions = [GraphmemSession("c1", memory, user_id="ana", remember=False) for _ in range(2)]
    await asyncio.gather(*(sessions[n % 2].add_items([user(f"{n}a"), user(f"{n}b")]) for n in range(10)))
    stored = [item["content"] for item in await sessions[0].get_items()]  # type: ignore[typeddict-item]
    assert sorted(stored) == sorted(f"{n}{letter}" for n in range(10) for letter in "ab")


async def test_items_taken_back_and_added_again_are_remembered_once(memory: Memory, session: GraphmemSession) -> None:
    items = [user("I like tea"), {"type": "reasoning", "id": "r", "summary": []}, user("And milk")]
    await session.add_items(items, **IN_RUN)
    for _ in items:
        await session.pop_item(**IN_RUN)
    await GraphmemSession("c1", memory).add_items([items[0], items[2]], **IN_RUN)  # without the reasoning this time
    assert texts(memory) == ["I like tea", "And milk"]


async def test_the_same_words_later_in_a_conversation_are_remembered_again(
    memory: Memory, session: GraphmemSession
) -> None:
    for _ in range(2):
        await session.add_items([user("Good morning")], **IN_RUN)
    assert texts(memory) == ["Good morning"] * 2


async def test_models_that_give_all_items_one_id_lose_nothing(memory: Memory, session: GraphmemSession) -> None:
    def answer(text: str) -> Any:
        return {"id": "__fake_id__", "role": "assistant", "type": "message", "content": [{"type": "output_text", "text": text}]}  # fmt: skip  # noqa: E501

    await session.add_items([answer("Tea is green."), answer("Milk is white.")], **IN_RUN)
    assert texts(memory) == ["Tea is green.", "Milk is white."]
    assert len(await session.get_items(**IN_RUN)) == 2


async def test_only_words_of_users_and_assistants_are_remembered(memory: Memory, session: GraphmemSession) -> None:
    items: list[Any] = [
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": "Be kind."},
        user([{"type": "input_text", "text": "See this"}, {"type": "input_image", "image_url": "u"}]),
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "Thinking"}]},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "Secret output"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "I see"}]},
    ]  # fmt: skip
    await session.add_items(items, **IN_RUN)
    assert texts(memory) == ["See this", "I see"]


async def test_items_keep_the_words_that_before_store_redacts_or_refuses(make_memory: Callable[..., Memory]) -> None:
    def redact(message: dict[str, Any]) -> dict[str, Any] | None:
        redacted = {**message, "content": message["content"].replace("4711", "****")}
        return None if "off the record" in message["content"] else redacted

    memory = make_memory(before_store=redact)
    session = GraphmemSession("c1", memory, user_id="ana")
    items = [user("pin 4711"), user("This is off the record")]
    await session.add_items(items)
    assert await session.get_items() == items
    assert texts(memory) == ["pin ****"]


async def test_items_keep_the_words_of_a_memory_that_is_updated(memory: Memory, session: GraphmemSession) -> None:
    await session.add_items([user("I like tea")], **IN_RUN)
    memory.update(memory.get_all(user_id="ana")["results"][0]["id"], "I like coffee")
    assert await session.get_items(**IN_RUN) == [user("I like tea")]


@pytest.mark.parametrize("delete", [lambda memory, id_: memory.delete(id_), lambda memory, _: memory.delete_all(user_id="ana")])  # fmt: skip  # noqa: E501
async def test_erased_words_are_remembered_again_only_under_a_new_session_id(memory: Memory, delete: Any) -> None:
    session = GraphmemSession("c1", memory, user_id="ana")
    await session.add_items([user("I like tea")])
    delete(memory, memory.get_all(user_id="ana")["results"][0]["id"])
    await session.add_items([user("I like tea")])
    assert texts(memory) == []
    assert await session.get_items() == [user("I like tea")]
    await GraphmemSession("c2", memory, user_id="ana").add_items([user("I like tea")])
    assert texts(memory) == ["I like tea"]


async def test_without_remember_items_are_stored_and_no_memories(memory: Memory) -> None:
    session = GraphmemSession("c1", memory, user_id="ana", remember=False)
    await session.add_items([user("I like tea")])
    assert await session.get_items() == [user("I like tea")]
    assert texts(memory) == []


async def test_clearing_a_session_leaves_the_memories_and_other_sessions(memory: Memory) -> None:
    one, other, of_agent = (
        GraphmemSession("c1", memory, user_id="ana"),
        GraphmemSession("c2", memory, user_id="ana"),
        GraphmemSession("c1", memory, user_id="ana", agent_id="max"),
    )
    for session in (one, other, of_agent):
        await session.add_items([user("I like tea")])
    await one.clear_session()
    assert [len(await session.get_items()) for session in (one, other, of_agent)] == [0, 1, 1]
    assert texts(memory) == ["I like tea"] * 3


async def test_each_user_has_sessions_of_their_own(session: GraphmemSession) -> None:
    await session.add_items([user("I like tea")], wrapper=RunContextWrapper(ANA))
    assert await session.get_items(wrapper=RunContextWrapper(BEN)) == []
    assert await session.pop_item(wrapper=RunContextWrapper({"user_id": "ben"})) is None
    await session.clear_session(wrapper=RunContextWrapper(BEN))
    assert await session.get_items(wrapper=RunContextWrapper({"user_id": "ana"})) == [user("I like tea")]


async def test_deleting_a_user_deletes_their_sessions(memory: Memory, session: GraphmemSession) -> None:
    await session.add_items([user("I like tea"), {"type": "reasoning", "id": "r", "summary": []}], **IN_RUN)
    memory.delete_all(user_id="ana")
    assert await session.get_items(**IN_RUN) == []


async def test_a_language_model_draws_facts_from_a_session(make_memory: Callable[..., Memory]) -> None:
    answers = Scripted({"I like tea": ["Ana likes tea."]})
    with ModelEndpoint(default=answers) as endpoint:
        memory = make_memory(
            llm={"provider": "openai", "config": {"model": "m", "openai_base_url": endpoint.url, "api_key": "none"}}
        )
        session = GraphmemSession("c1", memory, user_id="ana")
        await session.add_items([user("I like tea")])
        memory.flush()
        assert [hit["memory"] for hit in memory.search("tea", user_id="ana")["results"]] == ["Ana likes tea."]


async def test_a_session_outside_a_run_needs_a_user(session: GraphmemSession) -> None:
    with pytest.raises(ValidationError, match="user_id"):
        await session.get_items()


async def test_a_session_of_a_closed_memory_says_so(memory: Memory) -> None:
    session = GraphmemSession("c1", memory, user_id="ana")
    memory.close()
    with pytest.raises(StoreUnavailable):
        await session.add_items([user("I like tea")])


@pytest.mark.parametrize(
    "arguments",
    [
        {"session_id": "a\x00"},
        {"session_id": " "},
        {"user_id": ""},
        {"remember": "yes"},
        {"memory": None},
        {"session_settings": {"limits": 3}},
        {"session_settings": {"limit": "3"}},
        {"session_settings": 3},
    ],
)
def test_unusable_arguments_of_a_session_are_refused(memory: Memory, arguments: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(arguments))):
        GraphmemSession(**{"session_id": "c1", "memory": memory, **arguments})


# --- runs with a session ----------------------------------------------------------------------------------------------


@function_tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"Sunny in {city}"


async def test_a_run_with_tools_is_stored_exactly_and_its_words_once(memory: Memory, session: GraphmemSession) -> None:
    agent, model = make_agent(call_tool("weather", city="Graz"), "It is sunny.", "You are welcome.", tools=[weather])
    first = await Runner.run(agent, "Weather in Graz?", context=ANA, session=session)
    assert await session.get_items(**IN_RUN) == first.to_input_list()
    await Runner.run(agent, "Thanks", context=ANA, session=session)
    assert model.last_call is not None
    assert model.last_call.input == [*first.to_input_list(), user("Thanks")]
    assert texts(memory) == ["Weather in Graz?", "It is sunny.", "Thanks", "You are welcome."]


async def test_a_streamed_run_stores_the_same(memory: Memory, session: GraphmemSession) -> None:
    agent, _ = make_agent(call_tool("weather", city="Graz"), "It is sunny.", tools=[weather])
    run = Runner.run_streamed(agent, "Weather in Graz?", context=ANA, session=session, run_config=recalling(memory))
    async for _event in run.stream_events():
        pass
    assert await session.get_items(**IN_RUN) == run.to_input_list()
    assert texts(memory) == ["Weather in Graz?", "It is sunny."]


async def test_a_run_that_hands_over_stores_the_words_of_both_agents_once(
    memory: Memory, session: GraphmemSession
) -> None:
    memory.add("Ana's invoice is number 17", user_id="ana")
    billing, model = make_agent("It is number 17.")
    billing.name = "Billing"
    triage, _ = make_agent(
        [assistant_message("I ask Billing."), function_call("transfer_to_billing", {}, call_id="h")], handoffs=[billing]
    )
    result = await Runner.run(
        triage, "Which invoice is mine?", context=ANA, session=session, run_config=recalling(memory)
    )
    assert result.last_agent is billing
    assert "number 17" in blocks(model)[0][0]
    assert await session.get_items(**IN_RUN) == result.to_input_list()
    assert texts(memory)[1:] == ["Which invoice is mine?", "I ask Billing.", "It is number 17."]


async def test_a_model_that_fails_leaves_the_question_in_the_session(memory: Memory, session: GraphmemSession) -> None:
    agent, _ = make_agent(ModelStep.raise_error(ConnectionError("gone")))
    with pytest.raises(ConnectionError):
        await Runner.run(agent, "I like tea", context=ANA, session=session)
    assert await session.get_items(**IN_RUN) == [user("I like tea")]
    assert texts(memory) == ["I like tea"]


async def test_two_sessions_at_once_stay_apart(memory: Memory) -> None:
    async def converse(number: int) -> list[Any]:
        agent, _ = make_agent(call_tool("weather", city=f"City {number}"), f"Sunny {number}", tools=[weather])
        session, context = GraphmemSession(f"c{number}", memory), (ANA, BEN)[number % 2]
        result = await Runner.run(
            agent, f"Weather {number}?", context=context, session=session, run_config=recalling(memory)
        )
        assert await session.get_items(wrapper=RunContextWrapper(context)) == result.to_input_list()
        return result.to_input_list()

    conversations = await asyncio.gather(*(converse(number) for number in range(4)))
    assert all(str(number) in str(conversations[number]) for number in range(4))
    assert sorted(texts(memory)) == ["Sunny 0", "Sunny 2", "Weather 0?", "Weather 2?"]
    assert sorted(texts(memory, "ben")) == ["Sunny 1", "Sunny 3", "Weather 1?", "Weather 3?"]


async def test_an_agent_remembers_in_another_session(memory: Memory) -> None:
    agent, model = make_agent("Noted.", "At Acme.")
    await Runner.run(agent, "Anna works at Acme", context=ANA, session=GraphmemSession("c1", memory))
    memory.flush()
    await Runner.run(
        agent,
        "Where does Anna work?",
        context=ANA,
        session=GraphmemSession("c2", memory),
        run_config=recalling(memory),
    )
    assert "Anna works at Acme" in blocks(model)[1][0]


async def test_a_run_of_nobody_answers_without_a_session_and_warns_once(
    memory: Memory, session: GraphmemSession, caplog: pytest.LogCaptureFixture
) -> None:
    agent, model = make_agent("Hello.", "Hello again.")
    for text in ("I like tea", "I like milk"):
        await Runner.run(agent, text, context=NOBODY, session=session)
    assert model.last_call is not None
    assert model.last_call.input == [user("I like milk")]
    assert memory.stats()["memories"] == memory.stats()["items"] == 0
    assert len(warnings(caplog)) == 1


@pytest.mark.parametrize("of", [lambda context: context.user_id, "ana"])
async def test_an_async_memory_serves_as_well(make_memory: Callable[..., Memory], of: Any) -> None:
    memory = AsyncMemory(sync=make_memory())
    agent, _ = make_agent(call_tool("add_memory", content="Ana likes tea"), "Noted.")
    agent.tools = list(memory_tools(memory, user_id=of, **LONG_LIMIT))
    session = GraphmemSession("c1", memory, user_id=of)
    await Runner.run(
        agent, "Hi", context=ANA, session=session, run_config=recalling(memory), hooks=GraphmemHooks(memory)
    )
    assert "Ana likes tea" in texts(memory.sync)


# --- recall -----------------------------------------------------------------------------------------------------------


def count_searches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The queries that are searched from now on."""
    queries: list[str] = []
    from graphmem import chat_worker

    search = chat_worker.search

    def counted(query: Any, deps: Any) -> Any:
        queries.append(query.text)
        return search(query, deps)

    monkeypatch.setattr(chat_worker, "search", counted)
    return queries


async def test_memories_stand_before_the_last_user_message_at_each_step_and_are_searched_once(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.add("Ana lives in Graz", user_id="ana")
    agent, model = make_agent(call_tool("weather", city="Graz"), "Sunny.", tools=[weather])
    queries = count_searches(monkeypatch)
    history: list[Any] = [user("Hello"), {"role": "assistant", "content": "Hi"}]
    question = "Is it warm where Ana lives?"
    result = await Runner.run(agent, [*history, user(question)], context=ANA, run_config=recalling(memory))
    first, second = model.calls
    assert first.input[:2] == history
    assert "Ana lives in Graz" in first.input[2]["content"]
    assert first.input[3] == user(question)
    assert second.input[:4] == first.input
    assert len(second.input) == 6
    assert queries == [question]
    assert "<memories>" not in str(result.to_input_list())


async def test_the_same_question_in_another_run_is_searched_again(memory: Memory) -> None:
    agent, model = make_agent("No idea.", "In Graz.")
    run_config = recalling(memory)
    await Runner.run(agent, "Where does Ana live?", context=ANA, run_config=run_config)
    memory.add("Ana lives in Graz", user_id="ana")
    await Runner.run(agent, "Where does Ana live?", context=ANA, run_config=run_config)
    assert [len(found) for found in blocks(model)] == [0, 1]


async def test_memories_may_stand_at_the_end_of_the_instructions(memory: Memory) -> None:
    memory.add("Ana lives in Graz", user_id="ana")
    agent, model = make_agent("In Graz.", "In Graz.")
    for instructions in ("You are Max.", None):
        agent.instructions = instructions
        await Runner.run(agent, "Where does Ana live?", context=ANA, run_config=recalling(memory, placement="system"))
    first, second = (call.system_instructions or "" for call in model.calls)
    assert first.startswith("You are Max.\n\n<memories>")
    assert second.startswith("<memories>")
    assert [call.input for call in model.calls] == [[user("Where does Ana live?")]] * 2


async def test_a_block_stands_before_a_message_of_parts(memory: Memory) -> None:
    memory.add("Ana lives in Graz", user_id="ana")
    agent, model = make_agent("In Graz.")
    question: Any = {"role": "user", "content": [{"type": "input_text", "text": "Where does Ana live?"}]}
    await Runner.run(agent, [question], context=ANA, run_config=recalling(memory))
    assert model.calls[0].input[1] == question
    assert len(blocks(model)[0]) == 1


async def test_only_the_users_memories_are_recalled(memory: Memory) -> None:
    memory.add("Ana's PIN is 4711", user_id="ana")
    agent, model = make_agent("No idea.")
    await Runner.run(agent, "What is the PIN of user_id=ana?", context=BEN, run_config=recalling(memory))
    assert blocks(model) == [[]]


async def test_an_agent_answers_without_a_closed_memory(memory: Memory, caplog: pytest.LogCaptureFixture) -> None:
    agent, model = make_agent(call_tool("weather", city="Graz"), "Sunny.", tools=[weather])
    run_config = recalling(memory)
    memory.close()
    result = await Runner.run(agent, "Weather where Ana lives?", context=ANA, run_config=run_config)
    assert result.final_output == "Sunny."
    assert blocks(model) == [[], []]
    assert len(warnings(caplog)) == 1


async def test_an_agent_answers_without_a_memory_that_hangs(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from graphmem import chat_worker

    release = Event()
    monkeypatch.setattr(chat_worker, "search", lambda *_: release.wait(TIMEOUT))
    agent, model = make_agent("No idea.")
    result = await Runner.run(agent, "Where does Ana live?", context=ANA, run_config=recalling(memory, time_limit=0.01))
    release.set()
    assert result.final_output == "No idea."
    assert blocks(model) == [[]]
    assert len(warnings(caplog)) == 1


async def test_a_recall_for_nobody_gives_nothing_and_warns_once(
    memory: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    memory.add("Ana lives in Graz", user_id="ana")
    agent, model = make_agent("No idea.", "No idea.")
    run_config = recalling(memory)
    for context in (NOBODY, None):
        await Runner.run(agent, "Where does Ana live?", context=context, run_config=run_config)
    assert blocks(model) == [[], []]
    assert len(warnings(caplog)) == 1


# --- tools ------------------------------------------------------------------------------------------------------------


async def use_tool(memory: Any, step: list[Any], context: Any = ANA, **options: Any) -> str:
    """Runs an agent that calls one of the tools; returns the tool's answer to the model."""
    agent, model = make_agent(step, "Done.", tools=memory_tools(memory, **{**LONG_LIMIT, **options}))
    await Runner.run(agent, "Please", context=context)
    assert model.last_call is not None
    return str(model.last_call.input[-1]["output"])


async def test_a_search_answers_with_texts_and_times(memory: Memory) -> None:
    memory.add("Ana likes green tea", user_id="ana", timestamp="2026-03-01T10:00:00Z")
    answer = json.loads(await use_tool(memory, call_tool("search_memories", query="tea")))
    assert 0 < answer[0].pop("relevance") < 1
    assert answer == [{"memory": "Ana likes green tea", "at": "2026-03-01T10:00:00.000000+00:00"}]


async def test_what_was_said_twice_is_one_answer_with_both_days(memory: Memory) -> None:
    days = ("2026-03-01", "2026-03-04")
    ids = {memory.add("I like green tea.", user_id="ana", timestamp=day)["results"][0]["id"] for day in days}
    for shows_ids in (False, True):
        answer = json.loads(await use_tool(memory, call_tool("search_memories", query="Which tea?"), ids=shows_ids))
        assert [one["memory"] for one in answer] == ["I like green tea. [said 2026-03-01 to 2026-03-04]"]
        assert not shows_ids or set(answer[0]["id"].split(", ")) == ids


async def test_ids_are_shown_on_request(memory: Memory) -> None:
    added = memory.add("Ana likes green tea", user_id="ana")["results"][0]["id"]
    answer = json.loads(await use_tool(memory, call_tool("search_memories", query="tea"), ids=True))
    assert [one["id"] for one in answer] == [added]


@pytest.mark.filterwarnings("ignore:version:DeprecationWarning")
async def test_a_search_answers_alike_in_version_1_0(make_memory: Callable[..., Memory]) -> None:
    memory = make_memory(version="v1.0")  # `Memory.search` returns a list
    memory.add("Ana likes green tea", user_id="ana")
    answer = json.loads(await use_tool(memory, call_tool("search_memories", query="tea")))
    assert [one["memory"] for one in answer] == ["Ana likes green tea"]


async def test_a_search_without_hits_says_so(memory: Memory) -> None:
    assert await use_tool(memory, call_tool("search_memories", query="tea")) == "Nothing relevant is remembered."


async def test_a_search_leaves_out_what_is_not_relevant_enough(memory: Memory) -> None:
    memory.add("Ana likes green tea", user_id="ana")
    searched = call_tool("search_memories", query="Which engine drives the spacecraft?")
    answer = await use_tool(memory, searched)
    assert answer == "Nothing relevant enough is remembered: other words may find more."
    assert "green tea" in await use_tool(memory, searched, min_relevance=0)
    with pytest.raises(ValidationError, match="min_relevance.*must be a number from 0 to 1"):
        memory_tools(memory, min_relevance=2)


@pytest.mark.parametrize(("top_k", "expected"), [(2, 2), (0, 1), (10**9, 3)])
async def test_a_search_returns_as_many_as_asked_for(memory: Memory, top_k: int, expected: int) -> None:
    memory.add([f"Ana drank {tea} tea" for tea in ("green", "black", "white")], user_id="ana")
    answer = await use_tool(memory, call_tool("search_memories", query="tea", top_k=top_k))
    assert len(json.loads(answer)) == expected


async def test_a_search_leaves_out_the_question_just_asked_and_fills_its_hits(memory: Memory) -> None:
    memory.add([f"Ana drank {tea} tea" for tea in ("green", "black", "white")], user_id="ana")
    session = GraphmemSession("c1", memory)
    agent, _ = make_agent("None.", "None.", tools=memory_tools(memory, **LONG_LIMIT))
    for text in ("Which tea did Ana drink?", "Ana asks about tea"):
        await Runner.run(agent, text, context=ANA, session=session)
    question = [{"type": "input_text", "text": " Which tea did Ana drink? "}]
    agent.model = ScriptedModel(
        [call_tool("search_memories", query="Which tea did Ana drink?", top_k=4), [assistant_message("Three.")]]
    )
    result = await Runner.run(
        agent,
        [user(question), user("And which tea did she like?")],
        context=ANA,
        session=session,
        run_config=RunConfig(session_input_callback=lambda history, new: [*history, *new]),
    )
    (output,) = (item["output"] for item in result.to_input_list() if item.get("type") == "function_call_output")
    found = [one["memory"] for one in json.loads(str(output))]
    assert len(found) == 4
    assert "Ana asks about tea" in found  # of an earlier run of this session
    assert not {"Which tea did Ana drink?", "And which tea did she like?"} & set(found)


async def test_an_added_memory_is_the_users(memory: Memory) -> None:
    assert await use_tool(memory, call_tool("add_memory", content="Ana likes tea")) == "Stored."
    assert texts(memory) == ["Ana likes tea"]


@pytest.mark.parametrize("content", ["", " ", "off the record"])
async def test_the_model_is_told_when_nothing_was_stored(make_memory: Callable[..., Memory], content: str) -> None:
    memory = make_memory(before_store=lambda message: None)
    answer = await use_tool(memory, call_tool("add_memory", content=content))
    assert answer == "Nothing was stored: the content is empty, or may not be stored."
    assert texts(memory) == []


async def test_words_whose_facts_are_drawn_later_count_as_stored(make_memory: Callable[..., Memory]) -> None:
    with ModelEndpoint(default=Scripted({"Ana likes tea": ["Ana likes tea."]})) as endpoint:
        config = {"model": "m", "openai_base_url": endpoint.url, "api_key": "none"}
        memory = make_memory(llm={"provider": "openai", "config": config})
        assert await use_tool(memory, call_tool("add_memory", content="Ana likes tea")) == "Stored."
        memory.flush()


async def test_memories_are_written_for_one_and_read_of_another(memory: Memory) -> None:
    memory.add("The team drinks tea", user_id="team")
    assert "The team" in await use_tool(memory, call_tool("search_memories", query="tea"), recall_user_id="team")
    await use_tool(memory, call_tool("add_memory", content="I like tea"), recall_user_id="team")
    assert [texts(memory), texts(memory, "team")] == [["I like tea"], ["The team drinks tea"]]


def test_the_model_sees_no_arguments_but_its_own(memory: Memory) -> None:
    search, add = memory_tools(memory)
    assert set(search.params_json_schema["properties"]) == {"query", "top_k"}
    assert set(add.params_json_schema["properties"]) == {"content"}
    assert search.strict_json_schema
    assert add.strict_json_schema
    assert search.params_json_schema["additionalProperties"] is False


@pytest.mark.parametrize("more", [{"user_id": "ben"}, {"ctx": {"context": {"user_id": "ben"}}}, {"scope": "ben"}])
async def test_ids_that_a_model_writes_into_arguments_open_nothing(memory: Memory, more: dict[str, Any]) -> None:
    memory.add("Ben's PIN is 4711", user_id="ben")
    for name, arguments in (("search_memories", {"query": "PIN of ben"}), ("add_memory", {"content": "I was here"})):
        assert "4711" not in await use_tool(memory, call_tool(name, **arguments, **more))
    assert texts(memory, "ben") == ["Ben's PIN is 4711"]


@SQLITE_ONLY
async def test_a_search_finds_what_was_just_added(make_memory: Callable[..., Memory]) -> None:
    memory = make_memory(embedder=slow_embedder())
    assert await use_tool(memory, call_tool("add_memory", content="Clara lives in Lisbon.")) == "Stored."
    assert "Lisbon" in await use_tool(memory, call_tool("search_memories", query="Who lives in Lisbon?"))


async def test_tools_of_nobody_say_so_and_warn_once(memory: Memory, caplog: pytest.LogCaptureFixture) -> None:
    agent, model = make_agent(
        [*call_tool("search_memories", query="tea"), *call_tool("add_memory", "call-2", content="tea")],
        "Done.",
        tools=memory_tools(memory),
    )
    await Runner.run(agent, "Please", context=NOBODY)
    assert model.last_call is not None
    assert [item["output"] for item in model.last_call.input[-2:]] == ["No memories can be used in this run."] * 2
    assert memory.stats()["memories"] == 0
    assert len(warnings(caplog)) == 1


@pytest.mark.parametrize("name", ["search_memories", "add_memory"])
async def test_a_tool_of_a_closed_memory_says_so_to_the_model(
    memory: Memory, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    memory.close()
    arguments = {"query": "tea"} if name == "search_memories" else {"content": "tea"}
    assert "memor" in await use_tool(memory, call_tool(name, **arguments))
    assert warnings(caplog) == ["a tool could not use the memory (StoreUnavailable)"]


async def test_a_tool_that_takes_too_long_says_so_to_the_model(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    release = Event()
    monkeypatch.setattr(memory, "search", lambda *_, **__: release.wait(TIMEOUT))
    answer = await use_tool(memory, call_tool("search_memories", query="tea"), time_limit=0.01)
    release.set()
    assert answer == "The memories cannot be searched now. Answer without them."
    assert warnings(caplog) == ["a tool could not use the memory (ToolTimeoutError)"]


def test_tools_that_hang_hold_up_neither_sessions_nor_the_end_of_the_event_loop(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, ended = Event(), []

    def hang(*_: Any, **__: Any) -> None:
        release.wait(TIMEOUT)
        ended.append(True)

    monkeypatch.setattr(memory, "search", hang)
    session = GraphmemSession("c1", memory, user_id="ana")
    calls = [function_call("search_memories", {"query": "tea"}, call_id=str(n)) for n in range(40)]

    async def use_tools() -> list[Any]:
        agent, _ = make_agent(calls, "Done.", tools=memory_tools(memory, time_limit=0.2))
        await Runner.run(agent, "Please", context=ANA, session=session)
        return await session.get_items()

    items = asyncio.run(use_tools())
    is_held_up = bool(ended)
    release.set()
    assert not is_held_up
    assert str(items).count("The memories cannot be searched now") == len(calls)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [({"query": " "}, "say what to look for"), ({}, "schema"), ({"query": 1, "top_k": "many"}, "schema")],
)
async def test_wrong_arguments_are_explained_to_the_model(
    memory: Memory, arguments: dict[str, Any], expected: str
) -> None:
    assert expected in await use_tool(memory, call_tool("search_memories", **arguments))


# --- hooks ------------------------------------------------------------------------------------------------------------


async def test_hooks_remember_the_last_round_of_each_run(memory: Memory) -> None:
    agent, _ = make_agent(call_tool("weather", city="Graz"), "Sunny.", "You are welcome.", tools=[weather])
    hooks = GraphmemHooks(memory, **LONG_LIMIT)
    first = await Runner.run(agent, "Weather in Graz?", context=ANA, hooks=hooks)
    await Runner.run(agent, [*first.to_input_list(), user("Thanks")], context=ANA, hooks=hooks)
    assert await hooks.aflush()
    assert texts(memory) == ["Weather in Graz?", "Sunny.", "Thanks", "You are welcome."]
    hooks.close()


async def test_hooks_remember_the_same_words_in_another_run_again(memory: Memory) -> None:
    agent, _ = make_agent("Noted.", "Noted.")
    with_hooks: dict[str, Any] = {"context": ANA, "hooks": GraphmemHooks(memory, **LONG_LIMIT)}
    for _ in range(2):
        await Runner.run(agent, "I live in Graz now", **with_hooks)
    assert with_hooks["hooks"].flush()
    assert texts(memory).count("I live in Graz now") == 2


@output_guardrail
def refuse_all(*_: Any) -> GuardrailFunctionOutput:
    return GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)


async def test_an_answer_that_an_output_guardrail_blocks_is_remembered_by_neither_hooks_nor_session(
    memory: Memory,
) -> None:
    hooks, sessions = GraphmemHooks(memory, **LONG_LIMIT), [GraphmemSession(f"c{n}", memory) for n in range(2)]
    of_agent, of_run = {"output_guardrails": [refuse_all]}, RunConfig(output_guardrails=[refuse_all])
    with pytest.raises(OutputGuardrailTripwireTriggered):
        await Runner.run(make_agent("Bad.", **of_agent)[0], "Question 1", context=ANA, hooks=hooks)
    assert hooks.flush()
    with pytest.raises(OutputGuardrailTripwireTriggered):
        await Runner.run(make_agent("Bad.", **of_agent)[0], "Question 2", context=ANA, session=sessions[0])
    run = Runner.run_streamed(make_agent("Bad.")[0], "Question 3", context=ANA, session=sessions[1], run_config=of_run)
    with pytest.raises(OutputGuardrailTripwireTriggered):
        async for _event in run.stream_events():
            pass
    assert texts(memory) == ["Question 1", "Question 2", "Question 3"]
    assert [await session.get_items(**IN_RUN) for session in sessions] == [[user("Question 2")], [user("Question 3")]]


async def test_hooks_and_filter_ignore_items_that_are_no_messages(memory: Memory) -> None:
    memory.add("Ana lives in Graz", user_id="ana")
    agent, model = make_agent("In Graz.")
    hooks = GraphmemHooks(memory, **LONG_LIMIT)
    odd_items: list[Any] = [assistant_message("Hi"), "text", user("Where does Ana live?")]
    await Runner.run(agent, odd_items, context=ANA, hooks=hooks, run_config=recalling(memory))
    assert hooks.flush()
    assert "Ana lives in Graz" in str(model.calls[0].input)
    assert texts(memory)[1:] == ["Where does Ana live?", "In Graz."]


class Answer(BaseModel):
    city: str


async def test_hooks_remember_a_structured_answer_as_its_json(memory: Memory) -> None:
    agent, _ = make_agent('{"city": "Graz"}', output_type=Answer)
    hooks = GraphmemHooks(memory, **LONG_LIMIT)
    await Runner.run(agent, "Where?", context=ANA, hooks=hooks)
    assert hooks.flush()
    assert texts(memory) == ["Where?", '{"city":"Graz"}']


async def test_hooks_of_a_closed_memory_do_not_end_a_run(memory: Memory, caplog: pytest.LogCaptureFixture) -> None:
    agent, _ = make_agent("Noted.")
    hooks = GraphmemHooks(memory, **LONG_LIMIT)
    memory.close()
    assert (await Runner.run(agent, "I like tea", context=ANA, hooks=hooks)).final_output == "Noted."
    hooks.flush()
    assert len(warnings(caplog)) == 1


# --- tracing ----------------------------------------------------------------------------------------------------------


class Spans(TracingProcessor):
    """Collects the spans that end, as text."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def on_span_end(self, span: Any) -> None:
        self.texts.append(json.dumps(span.export(), default=str))

    def on_trace_start(self, trace: Any) -> None: ...
    def on_trace_end(self, trace: Any) -> None: ...
    def on_span_start(self, span: Any) -> None: ...
    def shutdown(self) -> None: ...
    def force_flush(self) -> None: ...


@pytest.fixture
def spans() -> Iterator[Spans]:
    processor = Spans()
    set_trace_processors([processor])
    set_tracing_disabled(disabled=False)
    yield processor
    set_trace_processors([])


async def traced_run(memory: Memory, **options: Any) -> None:
    memory.add("Ana likes green tea", user_id="ana")
    agent, _ = make_agent(call_tool("search_memories", query="tea"), "Green.", tools=memory_tools(memory, **LONG_LIMIT))
    run_config = recalling(memory)
    for name, value in options.items():
        setattr(run_config, name, value)
    session = GraphmemSession("c1", memory)
    result = await Runner.run(agent, "Which tea?", context=ANA, session=session, run_config=run_config)
    assert result.final_output == "Green."
    assert "green tea" in str(result.to_input_list())


async def test_nothing_is_traced_with_tracing_off(memory: Memory, spans: Spans) -> None:
    await traced_run(memory, tracing_disabled=True)
    assert spans.texts == []


async def test_traces_without_sensitive_data_have_no_texts_of_memories(memory: Memory, spans: Spans) -> None:
    await traced_run(memory, trace_include_sensitive_data=False)
    assert any("search_memories" in text for text in spans.texts)
    assert not [text for text in spans.texts if "green tea" in text or "ana" in text]


# --- a killed process -------------------------------------------------------------------------------------------------

KILLED = """
import asyncio, sys, time
from agents import Agent, Runner, function_tool, set_tracing_disabled
from agents.testing import ScriptedModel, assistant_message, function_call
from graphmem import Memory, Settings
from graphmem.integrations.openai_agents import GraphmemSession
from support.fakes import fake_models

set_tracing_disabled(True)

class Acknowledging(GraphmemSession):
    async def add_items(self, items, *, wrapper=None):
        await super().add_items(items, wrapper=wrapper)
        print(len(items), flush=True)

@function_tool
def slow() -> str:
    print("in the tool", flush=True)
    time.sleep(600)

@function_tool
def quick() -> str:
    return "Graz"

model = ScriptedModel([
    [function_call("quick", {}, call_id="1")],
    [assistant_message("You live in Graz.")],
    [assistant_message("I look."), function_call("quick", {}, call_id="2")],
    [function_call("slow", {}, call_id="3")],
])
agent = Agent(name="Max", model=model, tools=[slow, quick])
memory = Memory(sys.argv[1], settings=Settings.from_dict(fake_models()))
session = Acknowledging("c1", memory, user_id="ana")

async def main():
    await Runner.run(agent, "Where do I live?", session=session)
    await Runner.run(agent, "And where is that?", session=session)

asyncio.run(main())
"""


@pytest.mark.thorough  # the process takes seconds to start
@SQLITE_ONLY
async def test_a_process_killed_in_a_tool_loses_nothing_acknowledged(
    tmp_path: Path, make_memory: Callable[..., Memory]
) -> None:
    support = str(Path(__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([support, os.environ.get("PYTHONPATH", "")])}
    process = subprocess.Popen(  # noqa: ASYNC220  (nothing else runs in this loop)
        [sys.executable, "-c", KILLED, str(tmp_path / "home")], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout is not None
    acknowledged = 0
    with process, process.stdout as lines:
        for line in lines:
            if line.strip() == "in the tool":
                break
            acknowledged += int(line)
        process.send_signal(signal.SIGKILL)
    memory = make_memory(tmp_path / "home")
    items = await GraphmemSession("c1", memory, user_id="ana").get_items()
    assert len(items) == acknowledged
    assert acknowledged >= len(["question", "call", "output", "answer", "question", "answer", "call", "output"])
    memory.flush()
    assert texts(memory) == ["Where do I live?", "You live in Graz.", "And where is that?", "I look."]
