"""`GraphmemMiddleware` recalls memories in an agent of LangChain and captures its messages.

`graphmem.integrations.langchain` has it as well.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Self

from graphmem.async_memory import AsyncMemory
from graphmem.boundary import validation
from graphmem.integrations.base import Id, Recollection, required
from graphmem.integrations.langchain import memory_tools, plain_messages, user_of_run
from graphmem.integrations.turns import Question, last_question
from graphmem.memory import Memory
from graphmem.model import MinRelevance
from graphmem.retrieval.context import Placement

with required("langchain", extra="langchain"):
    from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse, TracePolicy, omit_payload
    from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage


class GraphmemMiddleware(AgentMiddleware[Any, Any, Any]):
    """Gives an agent a memory: `create_agent(model, middleware=[GraphmemMiddleware(memory)], context_schema=Context)`.

    Before the model is called, memories for the last user message are put in front of it (`placement="system"`: at the
    end of the system message), in the request alone: the agent's state stays as it is. When the agent ends, the last
    round is stored in the background, and so is the one before it, whose run may have broken off (with a checkpointer,
    unless the thread has several users). A memory that is slow, broken or closed never disturbs the agent.

    `user_id` is whose memories are written, `recall_user_id` whose are read (default: the same), `agent_id` and
    `run_id` narrow both: strings, or functions of LangGraph's `Runtime`. By default the user is that of the run:
    `user_id` of its context, else of `config["configurable"]`. For a run without one nothing is recalled or stored.
    `tools=True` adds `memory_tools` with the same `min_relevance` and `time_limit`. `top_k`, `max_chars`,
    `min_relevance`, `time_limit`: see `Recollection`.

    Safe for any number of agents, users and runs at once. `with GraphmemMiddleware(memory) as middleware:` closes it at
    the end, and leaves the memory open. Raises ValidationError for an unusable argument.
    """

    # The spans of our hooks hold no messages; those of the model's calls do, by LangSmith's own settings.
    trace_policy = TracePolicy(process_inputs=omit_payload)

    def __init__(
        self,
        memory: Memory | AsyncMemory,
        *,
        user_id: Id | None = None,
        recall_user_id: Id | None = None,
        agent_id: Id | None = None,
        run_id: Id | None = None,
        top_k: int = 5,
        max_chars: int = 1200,
        min_relevance: MinRelevance = "default",
        time_limit: float = 2.0,
        placement: Placement = "user",
        tools: bool = False,
    ) -> None:
        super().__init__()
        ids: Any = {"recall_user_id": recall_user_id, "agent_id": agent_id, "run_id": run_id}
        user = user_of_run if user_id is None else user_id
        self._recollection = Recollection(
            memory,
            user_id=user,
            **ids,
            top_k=top_k,
            max_chars=max_chars,
            min_relevance=min_relevance,
            time_limit=time_limit,
            placement=placement,
        )
        self._placement = placement
        has_tools = validation.flag(tools, "tools")
        options: Any = {**ids, "min_relevance": min_relevance, "time_limit": time_limit}
        self.tools = memory_tools(memory, user_id=user, **options) if has_tools else []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    # --- recall -----------------------------------------------------------------------------------------------------

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any] | AIMessage:
        question = last_question(plain_messages(request.messages))
        if question is None:
            return handler(request)
        key = _session_key(request.state, request.runtime)
        block = self._recollection.recall(request.runtime, question.text, question.recent, session_key=key)
        return handler(self._with_block(request, question, block))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any] | AIMessage:
        question = last_question(plain_messages(request.messages))
        if question is None:
            return await handler(request)
        key = _session_key(request.state, request.runtime)
        block = await self._recollection.arecall(request.runtime, question.text, question.recent, session_key=key)
        return await handler(self._with_block(request, question, block))

    def _with_block(self, request: ModelRequest[Any], question: Question, block: str) -> ModelRequest[Any]:
        if not block:
            return request
        if self._placement == "system":
            system = request.system_message or SystemMessage("")
            return request.override(system_message=self._placed(system, "system", block))
        messages = list(request.messages)
        messages[question.position] = self._placed(messages[question.position], "user", block)
        return request.override(messages=messages)

    def _placed(self, message: Any, role: str, block: str) -> Any:
        """Returns a copy of a message with the block in its content."""
        (plain,) = self._recollection.place([{"role": role, "content": message.content}], block)
        return message.model_copy(update={"content": plain["content"]})

    # --- capture ----------------------------------------------------------------------------------------------------

    def after_agent(self, state: Any, runtime: Any) -> None:
        # The round before the last one may be of a run that broke off. Without a thread nothing would recognise a round
        # that was stored before.
        rounds = 1 if _thread_id(runtime) is None else 2
        messages = plain_messages(state["messages"])
        self._recollection.capture(runtime, messages, _session_key(state, runtime), rounds=rounds)

    async def aafter_agent(self, state: Any, runtime: Any) -> None:
        self.after_agent(state, runtime)  # which returns at once

    def flush(self) -> bool:
        """Waits until captured messages are durable and found; returns False if the time limit was not enough."""
        return self._recollection.flush()

    async def aflush(self) -> bool:
        """Awaits `flush` in a thread."""
        return await self._recollection.aflush()

    def close(self) -> None:
        """Waits for running captures and recalls, at most for the time limit."""
        self._recollection.close()

    async def aclose(self) -> None:
        """Awaits `close` in a thread."""
        await self._recollection.aclose()


def _session_key(state: Mapping[str, Any], runtime: Any) -> str:
    """Returns the id of a run's thread; without one, the id of its last user message, which LangGraph makes anew."""
    thread_id = _thread_id(runtime)
    if thread_id is not None:
        return str(thread_id)
    messages: list[AnyMessage] = state["messages"]
    return next((str(message.id) for message in reversed(messages) if isinstance(message, HumanMessage)), "")


def _thread_id(runtime: Any) -> Any:
    return getattr(runtime.execution_info, "thread_id", None)
