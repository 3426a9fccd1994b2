"""GraphmemMiddleware in agents of LangChain: what the model sees, what is stored, and what a broken memory changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Barrier, Event
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.tools import tool
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
        agent_options |= {"tools": options.pop("agent_tools", [])}
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


def test_what_was_said_is_durable_after_the_with_statement(memory: Memory) -> None:
    with GraphmemMiddleware(memory, user_id="ana", **LONG_LIMIT) as middleware:
        model = ScriptedModel(messages=iter([AIMessage("Nice.")]), requests=[])
        create_agent(model, middleware=[middleware]).invoke(said("I like tea."))
    assert texts_of(memory) == ["I like tea.", "Nice."]


async def test_what_was_said_is_durable_after_the_awaited_with_statement(memory: Memory) -> None:
    async with GraphmemMiddleware(memory, user_id="ana", **LONG_LIMIT) as middleware:
        model = ScriptedModel(messages=iter([AIMessage("Nice.")]), requests=[])
        await create_agent(model, middleware=[middleware]).ainvoke(said("I like tea."))
    assert texts_of(memory) == ["I like tea.", "Nice."]


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


def test_users_of_one_agent_stay_apart(known: Memory, make_agent: MakeAgent) -> None:
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
    monkeypatch.setattr(known.engine, "check_embedder", lambda: release.wait(TIMEOUT))
    agent.invoke(said("Where does Sarah work?"), context=ANA)
    release.set()
    assert model.requests[0][-1].content == "Where does Sarah work?"
    assert "a recall was not done within its time limit" in warnings(caplog)
    middleware.flush()


async def test_an_awaited_stream_shows_no_block_and_is_stored(known: Memory, make_agent: MakeAgent) -> None:
    agent, model, middleware = make_agent("In Bergen.", checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "t1"}}
    chunks = [
        chunk
        async for chunk in agent.astream(
            said("Where does Sarah work?"), config, context=ANA, stream_mode=["messages", "updates", "values"]
        )
    ]
    assert SARAH in str(model.requests[0][-1].content)
    assert "<memories>" not in str(chunks)
    assert "<memories>" not in str(agent.get_state(config))
    assert await middleware.aflush()
    assert texts_of(known) == [SARAH, "Where does Sarah work?", "In Bergen."]


def test_users_and_threads_at_once_stay_apart(memory: Memory, make_agent: MakeAgent) -> None:
    users = [f"user{n}" for n in range(6)]
    for user in users:
        memory.add(f"The pet of {user} is called Rex{user}.", user_id=user)
    agent, model, middleware = make_agent(*["Good."] * 12, checkpointer=InMemorySaver())
    barrier = Barrier(6)

    def run(user: str) -> None:
        for thread in ("a", "b"):
            barrier.wait(TIMEOUT)
            config = {"configurable": {"thread_id": f"{user}-{thread}"}}
            agent.invoke(said(f"What is the pet of {user} called?"), config, context=Context(user))

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(run, users))
    assert len(model.requests) == 12
    for request in model.requests:
        (asked,) = [user for user in users if f"What is the pet of {user} called?" in str(request[-1].content)]
        assert [user for user in users if f"Rex{user}" in str(request[-1].content)] == [asked]
    assert middleware.flush()
    for user in users:
        assert sorted(texts_of(memory, user)[1:]) == sorted([f"What is the pet of {user} called?", "Good."] * 2)


async def test_awaited_runs_at_once_stay_apart(known: Memory, make_agent: MakeAgent) -> None:
    agent, model, middleware = make_agent(*["Hm."] * 8)
    contexts = [ANA, BEN] * 4
    await asyncio.gather(*(agent.ainvoke(said("Where does Sarah work?"), context=one) for one in contexts))
    assert sum(SARAH in str(request[-1].content) for request in model.requests) == 4
    assert await middleware.aflush()
    assert texts_of(known, "ben").count("Where does Sarah work?") == 4


def test_a_question_of_content_parts_gets_a_part_with_the_block(known: Memory, make_agent: MakeAgent) -> None:
    agent, model, middleware = make_agent("In Bergen.")
    picture = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    parts: list[Any] = [{"type": "text", "text": "Where does Sarah work?"}, picture]
    agent.invoke({"messages": [HumanMessage(parts)]}, context=ANA)
    block, *rest = model.requests[0][-1].content
    assert SARAH in block["text"]
    assert rest == parts
    assert middleware.flush()
    assert texts_of(known)[1:] == ["Where does Sarah work?", "In Bergen."]


def test_a_block_makes_a_system_message_where_there_is_none(
    known: Memory, middlewares: list[GraphmemMiddleware]
) -> None:
    middlewares.append(GraphmemMiddleware(known, placement="system", user_id="ana", **LONG_LIMIT))
    model = ScriptedModel(messages=iter([AIMessage("In Bergen.")]), requests=[])
    create_agent(model, middleware=middlewares).invoke(said("Where does Sarah work?"))
    system, question = model.requests[0]
    assert isinstance(system, SystemMessage)
    assert str(system.content).startswith("<memories>")
    assert question.content == "Where does Sarah work?"


def test_a_function_of_the_runtime_names_the_user(known: Memory, make_agent: MakeAgent) -> None:
    agent, model, middleware = make_agent(
        call_of_search(), "In Bergen.", user_id=lambda runtime: runtime.context.user_id.removeprefix("org/"), tools=True
    )
    result = agent.invoke(said("Where does Sarah work?"), context=Context("org/ana"))
    assert SARAH in str(model.requests[0][-1].content)
    assert SARAH in result["messages"][2].content
    assert middleware.flush()
    assert texts_of(known)[1:] == ["Where does Sarah work?", "In Bergen."]


def test_a_summary_of_earlier_messages_is_not_taken_for_the_users_words(
    memory: Memory, make_agent: MakeAgent, middlewares: list[GraphmemMiddleware]
) -> None:
    middlewares.append(GraphmemMiddleware(memory, **LONG_LIMIT))
    summarised = SummarizationMiddleware(
        ScriptedModel(messages=iter([AIMessage("They spoke of tea.")] * 9), requests=[]),
        trigger=("messages", 3),
        keep=("messages", 1),
    )
    model = ScriptedModel(messages=iter([AIMessage("One."), AIMessage("Two."), AIMessage("Three.")]), requests=[])
    agent = create_agent(
        model, middleware=[summarised, *middlewares], context_schema=Context, checkpointer=InMemorySaver()
    )
    config: Any = {"configurable": {"thread_id": "t1"}}
    for text in ("I like tea.", "And cake.", "And jam."):
        agent.invoke(said(text), config, context=ANA)
    assert "They spoke of tea." in str(agent.get_state(config).values["messages"][0].content)
    assert middlewares[0].flush()
    assert texts_of(memory) == ["I like tea.", "One.", "And cake.", "Two.", "And jam.", "Three."]


def test_a_question_that_is_answered_anew_is_stored_once(memory: Memory, make_agent: MakeAgent) -> None:
    saver, config = InMemorySaver(), {"configurable": {"thread_id": "t1"}}
    agent, _, middleware = make_agent("Nice.", checkpointer=saver)
    agent.invoke(said("I like tea."), config, context=ANA)
    assert middleware.flush()
    (before,) = (state for state in agent.get_state_history(config) if state.next == ("model",))
    agent, _, middleware = make_agent("Noted.", checkpointer=saver)  # as in another process: it knows no thread
    agent.invoke(None, before.config, context=ANA)
    assert middleware.flush()
    assert texts_of(memory) == ["I like tea.", "Nice.", "Noted."]


@tool
def broken_tool() -> str:
    """Breaks off the run."""
    raise RuntimeError


CALL_OF_BROKEN_TOOL = AIMessage(
    "Let me look.", tool_calls=[{"name": "broken_tool", "args": {}, "id": "c1", "type": "tool_call"}]
)


def break_off(agent: Any, text: str, config: Any, context: Context) -> None:
    with pytest.raises(RuntimeError):
        agent.invoke(said(text), config, context=context)


@pytest.mark.parametrize("is_same_process", [True, False])
def test_a_run_that_broke_off_is_stored_with_the_next_one(
    memory: Memory, make_agent: MakeAgent, is_same_process: bool
) -> None:
    options: Any = {"checkpointer": InMemorySaver(), "agent_tools": [broken_tool]}
    config = {"configurable": {"thread_id": "t1"}}
    agent, _, middleware = make_agent("Hello.", CALL_OF_BROKEN_TOOL, "Noted.", **options)
    agent.invoke(said("Hi."), config, context=ANA)
    break_off(agent, "I like tea.", config, ANA)
    assert middleware.flush()
    if not is_same_process:
        agent, _, middleware = make_agent("Noted.", **options)
    agent.invoke(said("And scones."), config, context=ANA)
    assert middleware.flush()
    assert texts_of(memory) == ["Hi.", "Hello.", "I like tea.", "Let me look.", "And scones.", "Noted."]


def test_a_run_that_broke_off_is_not_stored_for_another_user_of_the_thread(
    memory: Memory, make_agent: MakeAgent
) -> None:
    options: Any = {"checkpointer": InMemorySaver(), "agent_tools": [broken_tool]}
    config = {"configurable": {"thread_id": "t1"}}
    agent, _, middleware = make_agent(CALL_OF_BROKEN_TOOL, "Noted.", "And noted.", **options)
    break_off(agent, "I like tea.", config, ANA)
    agent.invoke(said("And scones."), config, context=BEN)
    agent.invoke(said("And jam."), config, context=ANA)
    assert middleware.flush()
    assert texts_of(memory, "ben") == ["And scones.", "Noted."]
    assert texts_of(memory) == ["And jam.", "And noted."]


def test_two_threads_may_have_the_same_words(memory: Memory, make_agent: MakeAgent) -> None:
    agent, _, middleware = make_agent("Hello.", "Hello.", checkpointer=InMemorySaver())
    for thread in ("a", "b"):
        agent.invoke(said("Hi."), {"configurable": {"thread_id": thread}}, context=ANA)
    assert middleware.flush()
    assert sorted(texts_of(memory)) == ["Hello."] * 2 + ["Hi."] * 2


def test_a_failing_tool_lets_the_agent_go_on(
    known: Memory, make_agent: MakeAgent, caplog: pytest.LogCaptureFixture
) -> None:
    agent, _, _ = make_agent(call_of_search(top_k=0), call_of_search(), "I do not know.", tools=True)
    known.close()
    result = agent.invoke(said("Where does Sarah work?"), context=ANA)
    tools = [message for message in result["messages"] if message.type == "tool"]
    assert [message.status for message in tools] == ["error", "error"]
    assert "top_k" in tools[0].content
    assert tools[1].content == "The memory cannot be used now; go on without it."
    assert result["messages"][-1].content == "I do not know."
