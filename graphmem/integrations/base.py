"""What all adapters share: `Recollection` recalls memories for a run of an agent and stores its messages.

An adapter translates the types of its framework. This module has the rest: the scope of a run, the time limit, the
thread that stores, the ids of messages and the placement of the block.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from inspect import iscoroutine, iscoroutinefunction
from threading import Lock
from time import monotonic
from typing import Any, NamedTuple, Self, TypeAlias, TypeVar, get_args
from uuid import UUID

from graphmem.async_memory import AsyncMemory
from graphmem.boundary import validation
from graphmem.chat import MAX_SECONDS
from graphmem.chat_worker import ChatWorker, RecallRequest, preload_models
from graphmem.concurrency import Pool, await_task
from graphmem.errors import ConfigError, ValidationError, install_extra
from graphmem.integrations.turns import Session, plain_turns
from graphmem.logs import log_text
from graphmem.memory import Memory
from graphmem.model import SCOPE_NAMES, MinRelevance, Scope
from graphmem.recent import Recent
from graphmem.retrieval.context import Placement, inject_block, strip_block
from graphmem.types import AddResult, ListResult, ResultList, SearchResult

logger = logging.getLogger("graphmem")

# Seconds for which a block is reused, within one turn; and how many blocks and sessions are kept.
BLOCK_SECONDS = 300.0
MAX_BLOCKS, MAX_SESSIONS = 256, 256
# The most hits that a model may ask a tool for.
MAX_TOOL_HITS = 50
# The remedy for a search without hits of a tool whose model cannot choose the least relevance.
SEARCH_AGAIN = "other words may find more"
# Threads for the calls of one set of tools: those of a store or model that hangs must leave some to others.
CALL_THREADS = 32

Id: TypeAlias = str | int | UUID | Callable[[Any], Any]
"""An id of a scope, or the function that gets it from a run's context."""
V = TypeVar("V")


class _Turn(NamedTuple):
    """The user message for which a block is reused: the scope that is read, the session key, the digest of the text
    (`question`), and the number of turns before the message.
    """

    scope: Scope
    session_key: str
    question: str
    turns_before: int


@contextmanager
def required(*packages: str, extra: str) -> Iterator[None]:
    """Turns the failure to import a package that is not installed into a ConfigError that says how to install it.

    `packages` are names that are imported, `extra` the extra of graphmem that brings them:
    `with required("langchain", extra="langchain"): from langchain.agents import create_agent`.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in packages:
            raise  # an installed package that lacks one of its own
        raise ConfigError(f"{package} is not installed; {install_extra(extra)}") from error


def sync_memory(memory: Memory | AsyncMemory) -> Memory:
    """Returns a memory, or the one behind an AsyncMemory. Raises ValidationError for anything else."""
    if isinstance(memory, AsyncMemory):
        return memory.sync
    if not isinstance(memory, Memory):
        validation.refuse_unseen("memory", memory, "must be a Memory or an AsyncMemory")
    return memory


def result_dict(result: AddResult | SearchResult | ListResult | ResultList) -> dict[str, Any]:
    """Returns a result of `Memory` as a dict, also that of a memory of version "v1.0", which is a list."""
    return {"results": list(result), **result.details} if isinstance(result, ResultList) else dict(result)


def nothing_relevant(remedy: str, *, was_found: bool, is_narrowed: bool = False) -> str:
    """Returns the sentence, for people or models, that a search has no hits.

    `was_found`: there are memories of too little relevance; `remedy` says how to get to them. `is_narrowed`: the search
    had filters, or the like, beside its scope.
    """
    if was_found:
        return f"Nothing relevant enough is remembered: {remedy}."
    return "No memory passes the filters." if is_narrowed else "Nothing relevant is remembered."


def nothing_fits(remedy: str) -> str:
    """Returns the sentence, for people or models, that a block is too small for what is relevant.

    `remedy` says how to get a larger one.
    """
    return f"Nothing that is relevant fits into the block: {remedy}."


class TimedCalls:
    """Calls methods of a memory in threads of its own, for at most `time_limit` seconds (above 0, up to 600) each.

    Loads the memory's local models in the background. Raises ValidationError for an unusable argument.
    """

    def __init__(self, memory: Memory, time_limit: float) -> None:
        self._memory = memory
        self._time_limit = validation.seconds(time_limit, "time_limit", MAX_SECONDS)
        self._pool = Pool(CALL_THREADS, thread_name_prefix="graphmem-calls")
        preload_models(memory)

    def call(self, function: Callable[[], V]) -> V:
        """Returns what a function returns. Raises its error, or TimeoutError; then the function goes on by itself."""
        job = self._pool.submit(function)
        wait([job], self._time_limit)
        return _result(job)

    def add(self, content: str, **scope_ids: Any) -> dict[str, Any]:
        """Returns the result of `Memory.add`, as a function for `call`: the words are durable.

        Waits until a search finds them, so that an agent finds at once what it has just stored; at most for half of the
        time limit, as a process that has just started loads its models first.
        """
        added = self._memory.add(content, **scope_ids, wait=False)
        self._memory.engine.job_worker.wait_for_texts(self._time_limit / 2, also_long=False)
        return result_dict(added)

    async def acall(self, function: Callable[[], V]) -> V:
        """Awaits `call`, without a thread of the event loop's executor."""
        job = self._pool.submit(function)
        await await_task(job, self._time_limit)
        return _result(job)


def _result(job: Future[V]) -> V:
    if not job.done():
        job.cancel()  # one that has not begun must not run later for nobody
        raise TimeoutError
    return job.result()


class RunScope:
    """Finds the scope of a run. Each id is a string, or a function that gets the id from the run's context.

    `user_argument` is the name of the user's id in errors and logs. Logs the first run for which an id is not known, or
    cannot be used. Safe to use from several threads. Raises ValidationError for an unusable id.
    """

    def __init__(
        self, *, user_id: Id, agent_id: Id | None = None, run_id: Id | None = None, user_argument: str = "user_id"
    ) -> None:
        if user_id is None:
            validation.refuse(user_argument, user_id, "give a string, or a function of the run's context")
        ids = {user_argument: user_id, "agent_id": agent_id, "run_id": run_id}
        self._ids = {name: _checked_id(value, name) for name, value in ids.items() if value is not None}
        self._lock = Lock()
        self._is_warned = False

    def __call__(self, run_context: Any) -> Scope | None:
        """Returns the scope of a run; None, with a warning for the first such run, if one of its ids is not known."""
        ids: list[str] = []
        for name, id_ in self._ids.items():
            try:
                value = id_(run_context) if callable(id_) else id_
            except Exception as error:  # noqa: BLE001  (whatever a caller's function raises about a run without a user)
                self._warn(name, error)
                return None
            try:
                ids.append(_id_text(value, name))
            except ValidationError:
                self._warn(name, value)
                return None
        names = [name if name in SCOPE_NAMES else "user_id" for name in self._ids]
        return validation.required_scope(**dict(zip(names, ids, strict=True)))[0]

    def _warn(self, name: str, cause: object) -> None:
        """Logs, for the first run without a usable id, the id's name and the class of its value or error."""
        if iscoroutine(cause):
            cause.close()  # or Python warns that it was never awaited
        with self._lock:
            is_warned, self._is_warned = self._is_warned, True
        if not is_warned:
            logger.warning(
                "the %s of a run is not known or cannot be used (%s), so nothing is recalled or stored for it: give "
                "user_id, a string or a function that finds it in the run's context, and likewise agent_id and run_id, "
                "or leave these out",
                name,
                type(cause).__name__,
            )


def _id_text(value: Any, argument: str) -> str:
    """Returns an id as a string of a scope. Raises ValidationError for one that is unusable."""
    return validation.identifier(str(value) if isinstance(value, UUID) else value, argument)


def _checked_id(value: Any, argument: str) -> Id:
    """Returns an id, or the function that gets it. Raises ValidationError for an async function, an unusable id."""
    if iscoroutinefunction(value):
        validation.refuse(argument, value, "must be a string or a plain function, not an async one")
    return value if callable(value) else _id_text(value, argument)


def run_scopes(
    user_id: Id, recall_user_id: Id | None, agent_id: Id | None, run_id: Id | None
) -> tuple[RunScope, RunScope]:
    """Returns the `RunScope` of what a run writes, and that of what it reads (`recall_user_id` None: the same).

    Raises ValidationError for an unusable id.
    """
    written = RunScope(user_id=user_id, agent_id=agent_id, run_id=run_id)
    if recall_user_id is None:
        return written, written
    return written, RunScope(user_id=recall_user_id, agent_id=agent_id, run_id=run_id, user_argument="recall_user_id")


def user_in_context(run_context: Any) -> Any:
    """Returns the attribute or key `user_id` of a run's context; None if it has none."""
    if isinstance(run_context, Mapping):
        return run_context.get("user_id")
    return getattr(run_context, "user_id", None)


class Recollection:
    """Recalls memories for the runs of an agent, and captures the messages of these runs.

    The constructor raises ValidationError for an unusable argument. `recall` and `capture` never raise: they log a
    memory that fails and a run that cannot be read, and return "" or None. Safe to use from several threads, for any
    number of users and sessions.

    `memory` is a Memory or an AsyncMemory, and stays open. Messages are stored for the user `user_id`, and memories are
    read of the user `recall_user_id` (default: the same); `agent_id` and `run_id` narrow both, as in `Memory.search`.
    Each of these ids is a string or a function of the run's context, the object that the caller passes to `recall` and
    `capture`. A run for which an id is not known recalls and stores nothing; the first such run is logged.

    A recall takes at most `time_limit` seconds (above 0, up to 600) and gives a block of at most `top_k` memories and
    `max_chars` characters, with a relevance of at least `min_relevance`, as in `Memory.context`. `placement` says where
    `place` puts it: "user", in front of the text of the last user message, or "system", at the end of the system
    message.
    """

    def __init__(
        self,
        memory: Memory | AsyncMemory,
        *,
        user_id: Id,
        recall_user_id: Id | None = None,
        agent_id: Id | None = None,
        run_id: Id | None = None,
        top_k: int = 5,
        max_chars: int = 1200,
        min_relevance: MinRelevance = "default",
        time_limit: float = 2.0,
        placement: Placement = "user",
    ) -> None:
        checked_memory = sync_memory(memory)
        self._scope, self._recall_scope = run_scopes(user_id, recall_user_id, agent_id, run_id)
        validation.top_k(top_k, maximum=checked_memory.limits.max_top_k)
        self._top_k = top_k
        self._max_message_chars = checked_memory.limits.max_message_chars
        self._max_chars = validation.count(max_chars, "max_chars", 1, validation.MAX_CONTEXT_CHARS)
        self._min_relevance = validation.min_relevance(min_relevance)
        self._placement: Any = validation.one_of(placement, "placement", get_args(Placement))
        self._worker = ChatWorker(checked_memory, validation.seconds(time_limit, "time_limit", MAX_SECONDS))
        self._lock = Lock()
        self._sessions = Recent[tuple[Scope, str], Session](MAX_SESSIONS)
        # Blocks with the time (of the monotonic clock) until which they are reused.
        self._blocks = Recent[_Turn, tuple[str, float]](MAX_BLOCKS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    # --- recall ---------------------------------------------------------------------------------------------------

    def recall(
        self,
        run_context: Any,
        question: str,
        recent: Sequence[Mapping[str, Any]] = (),
        *,
        session_key: str = "",
        starts_turn: bool = False,
    ) -> str:
        """Returns the prompt block for the last user message, `question`; "" without memories, at the time limit, or
        after an error.

        `recent` has the messages before the question, oldest first. `graphmem.integrations.turns.last_question` finds
        both in a conversation.

        The block has no text of `recent`, and each text once. `recall` searches once for each user message, also if
        that fails or is too slow, so that a prompt keeps its beginning while a model calls tools: further calls with
        the same question, `session_key` and number of turns in `recent` return the same block, for up to five minutes
        or until `capture` ends the turn. `session_key` is the framework's key of the conversation; where it has none,
        the id of the run, or else "". `starts_turn=True` says that no model has been asked this question yet: then the
        block is always searched.
        """
        begun = self._begin(run_context, question, recent, session_key, starts_turn=starts_turn)
        if isinstance(begun, str):
            return begun
        turn, request = begun
        try:
            block = self._worker.recall(request)
        except Exception as error:  # noqa: BLE001  (no failure of the memory may end a run)
            block = _no_block(error)
        return self._keep(turn, block)

    async def arecall(
        self,
        run_context: Any,
        question: str,
        recent: Sequence[Mapping[str, Any]] = (),
        *,
        session_key: str = "",
        starts_turn: bool = False,
    ) -> str:
        """Awaits `recall`, which takes no thread of the event loop's executor."""
        begun = self._begin(run_context, question, recent, session_key, starts_turn=starts_turn)
        if isinstance(begun, str):
            return begun
        turn, request = begun
        try:
            block = await self._worker.arecall(request)
        except Exception as error:  # noqa: BLE001  (no failure of the memory may end a run)
            block = _no_block(error)
        return self._keep(turn, block)

    def _begin(
        self,
        run_context: Any,
        question: str,
        recent: Sequence[Mapping[str, Any]],
        session_key: str,
        *,
        starts_turn: bool,
    ) -> tuple[_Turn, RecallRequest] | str:
        """Returns the block that is reused, or "" for a run without a question or user; else what is to be recalled."""
        try:
            scope, turns = self._recall_scope(run_context), plain_turns(recent, self._max_message_chars)
            text = validation.storable_part(strip_block(question), validation.MAX_QUERY_CHARS)
            if scope is None or not text.strip():
                return ""
            turn = _Turn(scope, session_key, self._worker.keyed(text), len(turns))
        except Exception as error:  # noqa: BLE001  (no failure of the memory may end a run)
            return _no_block(error)
        with self._lock:
            block, reusable_until = self._blocks.get(turn, ("", 0.0))
        if not starts_turn and reusable_until >= monotonic():
            return block
        return turn, RecallRequest(scope, text, turns, self._top_k, self._max_chars, min_relevance=self._min_relevance)

    def _keep(self, turn: _Turn, block: str) -> str:
        with self._lock:
            self._blocks[turn] = block, monotonic() + BLOCK_SECONDS
        return block

    def place(self, messages: Sequence[Mapping[str, Any]], block: str) -> list[dict[str, Any]]:
        """Returns copies of plain messages (role and content) with the block in its place; "" changes nothing.

        With `placement="user"` the block stands in front of the text of the last user message, with "system" at the end
        of the first system message, or in a new one in front.
        """
        return inject_block(messages, block, self._placement)

    # --- capture --------------------------------------------------------------------------------------------------

    def capture(
        self,
        run_context: Any,
        messages: Sequence[Mapping[str, Any]],
        session_key: str,
        *,
        rounds: int | None = None,
        ends_turn: bool = True,
    ) -> None:
        """Stores the texts of users and assistants in the background, each message once; returns at once.

        `messages` is the conversation as far as it is known, or the last part of it, as the plain messages of
        `graphmem.integrations.turns`. With `rounds` only that many of the last rounds are stored, and
        only the last one if the session has other users, whose words the earlier ones may be. Blocks of `recall` in
        the texts are left out. A repeated message is recognised by its "id", which must be durable, or by its place in
        the session: two lists with the same words, both without messages before them, count as the same messages.
        `session_key` is the framework's key of the conversation; where it has none, the id of the run.

        `ends_turn=False` says that the run goes on: `recall` then keeps reusing its block.
        """
        try:
            scope = self._scope(run_context)
            turns = plain_turns(messages, self._max_message_chars)
            if scope is not None and turns:
                session = self._session(scope, session_key)
                if rounds is not None and self._has_other_users(run_context, scope, session_key):
                    rounds = 1
                with session.lock:  # so that messages are stored in the order of their ids
                    self._worker.store(scope, session.with_ids(turns, rounds))
            if ends_turn:
                self._forget_blocks(self._recall_scope(run_context), session_key)
        except Exception as error:  # noqa: BLE001  (no failure of the memory may end a run)
            logger.warning("messages of a run were not stored (%s)", log_text(error))

    def _session(self, scope: Scope, session_key: str) -> Session:
        with self._lock:
            session = self._sessions.get((scope, session_key)) or Session(self._worker.keyed, session_key)
            self._sessions[scope, session_key] = session
            return session

    def _has_other_users(self, run_context: Any, scope: Scope, session_key: str) -> bool:
        own = scope, self._recall_scope(run_context)
        with self._lock:
            known = [*self._sessions, *((turn.scope, turn.session_key) for turn in self._blocks)]
        return any(key == session_key and other not in own for other, key in known)

    def _forget_blocks(self, scope: Scope | None, session_key: str) -> None:
        with self._lock:
            for turn in [turn for turn in self._blocks if (turn.scope, turn.session_key) == (scope, session_key)]:
                del self._blocks[turn]

    def flush(self) -> bool:
        """Waits until captured messages are durable and found; returns False if the time limit was not enough.

        `Memory.flush` waits for all that follows from them (facts, summaries, delivery to the stores).
        """
        return self._worker.drain_texts(self._worker.time_limit)

    async def aflush(self) -> bool:
        """Awaits `flush` in a thread."""
        return await asyncio.to_thread(self.flush)

    def close(self) -> None:
        """Waits for running captures and recalls, at most for the time limit; does not close the memory.

        Unfinished ones go on in the background as long as the memory is open.
        """
        self._worker.close()

    async def aclose(self) -> None:
        """Awaits `close` in a thread."""
        await asyncio.to_thread(self.close)


def _no_block(error: Exception) -> str:
    logger.warning("a recall failed (%s)", log_text(error))
    return ""
