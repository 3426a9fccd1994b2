"""GraphmemMiddleware in agents of LangChain: what the model sees, what is stored, and what a broken memory changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Event
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langgraph.checkpoint.memory import InMemorySaver
from support.waiting import TIMEOUT

from graphmem import AsyncMemory, Memory
from graphmem.integrations.langchain import GraphmemMiddleware

SARAH = "Sarah is a vet in Bergen."
LONG_LIMIT: dict[str, Any] = {"time_limit": min(TIMEOUT, 600.0)}


@dataclass
class Context:
    user_id: str | None


ANA, BEN, NOBODY = Context("ana"), Context("ben"), Context(None)


class ScriptedModel(GenericFakeChatModel):
    """LangChain's scripted model, which keeps the messages of each request, and takes tools."""

    requests: list[list[BaseMessage]] = []  # noqa: RUF012  (pydantic copies it for each model)

    def bind_tools(self, *_: Any, **__: Any) -> ScriptedModel:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> Any:
        self.requests.append(messages)
        return super()._generate(messages, *args, **kwargs)


@pytest.fixture
def middlewares() -> Iterator[list[GraphmemMiddleware]]:
    made: list[GraphmemMiddleware] = []
    yield made
    for middleware in made:
        middleware.close()


MakeAgent = Callable[..., tuple[Any, ScriptedModel, GraphmemMiddleware]]


@pytest.fixture
def make_agent(memory: Memory, middlewares: list[GraphmemMiddleware]) -> MakeAgent:
    """`make_agent(*answers, memory=…, checkpointer=…, **options)`: an agent, its model and its middleware."""

    def make(*answers: str | AIMessage, **options: Any) -> tuple[Any, ScriptedModel, GraphmemMiddleware]:
        used = options.pop("memory", memory)
        agent_options = {name: options.pop(name) for name in ("checkpointer",) if name in options}
        middleware = GraphmemMiddleware(used, **{**LONG_LIMIT, **options})
        middlewares.append(middleware)
        model = ScriptedModel(
            messages=iter(AIMessage(answer) if isinstance(answer, str) else answer for answer in answers), requests=[]
        )
        agent = create_agent(
            model, middleware=[middleware], context_schema=Context, system_prompt="You are Max.", **agent_options
        )
        return agent, model, middleware

    return make


@pytest.fixture
def known(memory: Memory) -> Memory:
    memory.add(SARAH, user_id="ana")
    return memory


def said(*texts: str) -> dict[str, Any]:
    return {"messages": [HumanMessage(text) for text in texts]}


def texts_of(memory: Memory, user_id: str = "ana") -> list[str]:
    """A user's memories, oldest first."""
    return [one["memory"] for one in reversed(memory.get_all(user_id=user_id)["results"])]


def call_of_search(**arguments: Any) -> AIMessage:
    call = {"name": "search_memories", "args": {"query": "Sarah", **arguments}, "id": "c1", "type": "tool_call"}
    return AIMessage("", tool_calls=[call])


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "graphmem"]


def test_a_block_stands_in_front_of_the_last_user_message_of_the_request_alone(
    known: Memory, make_agent: MakeAgent
) -> None:
    agent, model, _ = make_agent("In Bergen.")
    result = agent.invoke(said("Where does Sarah work?"), context=ANA)
    system, question = model.requests[0]
    assert system.content == "You are Max."
    assert question.content.startswith("<memories>")
    assert SARAH in question.content
    assert question.content.endswith("Where does Sarah work?")
    assert [message.content for message in result["messages"]] == ["Where does Sarah work?", "In Bergen."]


def test_a_block_may_stand_at_the_end_of_the_system_message(known: Memory, make_agent: MakeAgent) -> None:
    agent, model, _ = make_agent("In Bergen.", placement="system")
    agent.invoke(said("Where does Sarah work?"), context=ANA)
    system, question = model.requests[0]
    assert isinstance(system, SystemMessage)
    assert str(system.content).startswith("You are Max.")
    assert SARAH in str(system.content)
    assert question.content == "Where does Sarah work?"


async def test_an_awaited_agent_recalls_and_stores_the_same(known: Memory, make_agent: MakeAgent) -> None:
    wrapper = AsyncMemory.__new__(AsyncMemory)
    wrapper.sync = known
    agent, model, middleware = make_agent("In Bergen.", memory=wrapper)
    await agent.ainvoke(said("Where does Sarah work?"), context=ANA)
    assert SARAH in str(model.requests[0][-1].content)
    assert await middleware.aflush()
    assert texts_of(known) == [SARAH, "Where does Sarah work?", "In Bergen."]


def test_a_streamed_run_is_stored(known: Memory, make_agent: MakeAgent) -> None:
    agent, model, middleware = make_agent("In Bergen.")
    assert list(agent.stream(said("Where does Sarah work?"), context=ANA, stream_mode="messages"))
    assert SARAH in str(model.requests[0][-1].content)
    assert middleware.flush()
    assert texts_of(known) == [SARAH, "Where does Sarah work?", "In Bergen."]


def test_a_tool_loop_is_recalled_for_once_and_stored_once(
    known: Memory, make_agent: MakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, model, middleware = make_agent(call_of_search(), "In Bergen.", tools=True)
    recalled: list[str] = []
    recall = middleware._recollection._worker.recall
    monkeypatch.setattr(
        middleware._recollection._worker, "recall", lambda *args, **more: recalled.append("x") or recall(*args, **more)
    )
    agent.invoke(said("Where does Sarah work?"), context=ANA)
    assert recalled == ["x"]
    first, second = (request[1].content for request in model.requests)
    assert first == second
    assert middleware.flush()
    assert texts_of(known) == [SARAH, "Where does Sarah work?", "In Bergen."]


def test_the_middlewares_tools_search_the_runs_user(known: Memory, make_agent: MakeAgent) -> None:
    known.add("Sarah is Ben's dentist.", user_id="ben")
    agent, _, _ = make_agent(call_of_search(user_id="ben"), "In Bergen.", tools=True)
    result = agent.invoke(said("Where does Sarah work?"), context=ANA)
    answer = result["messages"][2].content
    assert SARAH in answer
    assert "dentist" not in answer


def test_a_thread_with_a_checkpointer_is_stored_once(memory: Memory, make_agent: MakeAgent) -> None:
    agent, _, middleware = make_agent("Nice.", "Noted.", checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "t1"}}
    agent.invoke(said("I like tea."), config, context=ANA)
    agent.invoke(said("And I like scones."), config, context=ANA)
    assert middleware.flush()
    assert texts_of(memory) == ["I like tea.", "Nice.", "And I like scones.", "Noted."]


def test_the_same_words_in_two_runs_without_a_checkpointer_are_said_twice(
    memory: Memory, make_agent: MakeAgent
) -> None:
    agent, _, middleware = make_agent("Nice.", "Nice.")
    agent.invoke(said("I like tea."), context=ANA)
    agent.invoke(said("I like tea."), context=ANA)
    assert middleware.flush()
    assert texts_of(memory) == ["I like tea.", "Nice."] * 2


def test_the_configuration_may_name_the_user(known: Memory, make_agent: MakeAgent) -> None:
    agent, model, _ = make_agent("In Bergen.")
    agent.invoke(said("Where does Sarah work?"), {"configurable": {"user_id": "ana"}}, context=NOBODY)
    assert SARAH in str(model.requests[0][-1].content)


def test_users_at_once_stay_apart(known: Memory, make_agent: MakeAgent) -> None:
    agent, model, middleware = make_agent("I do not know.", "In Bergen.")
    agent.invoke(said("Where does Sarah work?"), context=BEN)
    agent.invoke(said("Where does Sarah work?"), context=ANA)
    assert [SARAH in str(request[-1].content) for request in model.requests] == [False, True]
    assert middleware.flush()
    assert texts_of(known, "ben") == ["Where does Sarah work?", "I do not know."]


def test_a_run_of_nobody_recalls_and_stores_nothing_and_warns_once(
    known: Memory, make_agent: MakeAgent, caplog: pytest.LogCaptureFixture
) -> None:
    agent, model, middleware = make_agent("I do not know.", "Nor now.")
    for _ in range(2):
        agent.invoke(said("Where does Sarah work?"), context=NOBODY)
    assert [request[-1].content for request in model.requests] == ["Where does Sarah work?"] * 2
    assert middleware.flush()
    assert known.stats()["memories"] == 1
    assert len(warnings(caplog)) == 1


def test_an_agent_answers_without_a_closed_memory(
    known: Memory, make_agent: MakeAgent, caplog: pytest.LogCaptureFixture
) -> None:
    agent, model, middleware = make_agent("I do not know.")
    known.close()
    result = agent.invoke(said("Where does Sarah work?"), context=ANA)
    assert result["messages"][-1].content == "I do not know."
    assert model.requests[0][-1].content == "Where does Sarah work?"
    middleware.flush()
    assert warnings(caplog)
    assert "Sarah" not in caplog.text


def test_an_agent_answers_without_a_memory_that_hangs(
    known: Memory, make_agent: MakeAgent, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    release = Event()
    agent, model, middleware = make_agent("I do not know.", time_limit=0.05)
    monkeypatch.setattr(known._engine, "check_embedder", lambda: release.wait(TIMEOUT))
    agent.invoke(said("Where does Sarah work?"), context=ANA)
    release.set()
    assert model.requests[0][-1].content == "Where does Sarah work?"
    assert "a recall was not done within its time limit" in warnings(caplog)
    middleware.flush()
