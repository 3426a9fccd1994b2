"""Decides for each chat what is recalled, where it is added, and what is stored."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import takewhile
from time import monotonic
from typing import Any, NamedTuple

from starlette.datastructures import Headers

from graphmem.async_memory import AsyncMemory, run_in
from graphmem.boundary import validation
from graphmem.chat_worker import ChatWorker, Recalled, RecallRequest
from graphmem.concurrency import as_exception
from graphmem.errors import GraphmemError, ValidationError
from graphmem.ingest.chat_deduplication import MESSAGES_BEFORE, message_text
from graphmem.logs import log_text
from graphmem.model import ASSISTANT, Scope
from graphmem.recent import Recent
from graphmem.retrieval.context import inject_block
from graphmem.service import limits
from graphmem.service.auth import Caller
from graphmem.service.chat_settings import ChatSettings, configured_settings, settings_in_force
from graphmem.service.problems import Problem
from graphmem.service.proxy.answers import Place, Saving, WaitingAnswers
from graphmem.service.proxy.chat_body import ChatBody, last_part, read_chat, spoken_turns, without_reasoning
from graphmem.settings.schema import ProxySettings

logger = logging.getLogger("graphmem")

USER = "user"
USER_HEADER, AGENT_HEADER, SESSION_HEADER = "X-Graphmem-User", "X-Graphmem-Agent", "X-Graphmem-Session"
SWITCH_HEADER = "X-Graphmem"
# At the end of a model's name: no memory for this request.
NO_MEMORY_SUFFIX = ":nomemory"
# Members of a body that name the user: OpenAI's former and present one.
USER_MEMBERS = ("user", "safety_identifier")


class Prepared(NamedTuple):
    """A request as it goes to the endpoint: its body, the header X-Graphmem of the answer, and how it is stored."""

    body: bytes
    status_line: str
    saving: Saving | None = None


@dataclass(frozen=True, slots=True)
class _Chat:
    """A chat with memory: whose it is, the key of its session ("" if unknown), and its turns.

    `question` is the index of the last user's turn; the turns after it are of a model that calls tools. `starts_turn`:
    no model has called tools for it yet. `goes_on`: the last message is the beginning of the answer.
    """

    scope: Scope
    session_key: str
    turns: list[dict[str, Any]]
    question: int
    starts_turn: bool
    goes_on: bool

    @property
    def text(self) -> str:
        """The text of the question."""
        return message_text(self.turns[self.question])


class ChatProxy:
    """Adds memories to chats and stores them. Whatever fails in the memory, a chat goes on without it.

    `on_recall` gets the result of each recall. `is_shared`: other processes get requests of the same chats, so that the
    beginning and the end of this one say nothing about the answers that wait. For the event loop's thread only.
    """

    def __init__(
        self,
        memory: AsyncMemory,
        chats: ChatWorker,
        settings: ProxySettings,
        on_recall: Callable[[Recalled], None],
        *,
        is_shared: bool = False,
    ) -> None:
        self._memory, self._chats, self._settings, self._on_recall = memory, chats, settings, on_recall
        self._defaults = configured_settings(settings)
        self._is_shared = is_shared
        self._skip = [re.compile(expression) for expression in settings.skip]
        self._answers = WaitingAnswers(memory.sync, chats)
        self._is_closed = False
        self._blocks = Recent[tuple[Scope, str, str], tuple[str, float]](limits.MAX_BLOCKS)

    async def prepare(self, body: bytes, headers: Headers, caller: Caller, waited: float = 0.0) -> Prepared:
        """Returns a request with the memories for it, and begins to store its chat.

        Takes at most the time limit, less the seconds that the request has waited. Raises Problem 403 if the key is
        bound to another user than the request names.
        """
        deadline = monotonic() + self._settings.time_limit - waited
        chat_body = read_chat(body)
        if chat_body is None:
            return Prepared(body, "off; no-chat")
        model = chat_body.members.get("model")
        if isinstance(model, str) and model.endswith(NO_MEMORY_SUFFIX):
            return Prepared(chat_body.replaced({"model": model.removesuffix(NO_MEMORY_SUFFIX)}), "off; model")
        chat = self._chat(chat_body, headers, caller)
        if isinstance(chat, str):
            return Prepared(body, f"off; {chat}")
        memory, settings = self._memory, None
        reading = run_in(memory.executor, settings_in_force, memory.sync, chat.scope.user_id, self._defaults)
        try:
            settings = await asyncio.wait_for(reading, deadline - monotonic())
        except (TimeoutError, GraphmemError) as error:  # memories are not recalled then; the chat is stored
            logger.warning("the settings of a chat could not be read (%s)", log_text(error))
        block, outcome = await self._recall(chat, settings, deadline)
        if block:
            messages = inject_block(chat_body.messages, block, (settings or self._defaults).inject)
            body = chat_body.replaced({"messages": messages})
        is_saved = (settings or self._defaults).save
        return Prepared(body, f"on; {outcome}", self._save(chat, settings or self._defaults) if is_saved else None)

    def start(self) -> None:
        """Begins to store the answers that a process which was killed has left waiting.

        With several processes, those of the others may be among them: they have their time, too.
        """
        age = self._settings.settle_seconds if self._is_shared else 0.0
        asyncio.get_running_loop().call_later(
            age, self._submit, lambda: self._settle_next(self._answers.older_than(age))
        )

    def close(self) -> None:
        """Begins to store the answers that wait, unless other processes may still replace them."""
        if not self._is_shared:
            self._submit(self._settle_all)
        self._is_closed = True

    def _submit(self, work: Callable[[], None]) -> None:
        """Runs work with answers that wait in the thread that stores, unless the service ends."""
        if self._is_closed:
            return

        def settle() -> bool:
            work()
            return True

        with suppress(GraphmemError):  # the memory was closed; the answers wait on, for the next start
            self._chats.submit(settle)

    def _settle_next(self, batches: Sequence[Sequence[Place]]) -> None:
        """Settles the first of these batches, and the others after the words of chats that wait meanwhile."""
        if batches:
            self._settle(batches[0])
            self._submit(lambda: self._settle_next(batches[1:]))

    def _settle_all(self) -> None:
        for batch in self._answers.older_than(0.0):
            self._settle(batch)

    def _settle(self, batch: Sequence[Place]) -> None:
        self._answers.settle(batch, lambda scope: self._settings_now(scope).save)

    def _settings_now(self, scope: Scope) -> ChatSettings:
        return settings_in_force(self._memory.sync, scope.user_id, self._defaults)

    # --- whose chat -----------------------------------------------------------------------------------------------

    def _chat(self, body: ChatBody, headers: Headers, caller: Caller) -> _Chat | str:
        """Returns the chat of a request, or why it has no memory. Raises Problem 403."""
        if headers.get(SWITCH_HEADER, "").strip().lower() == "off":
            return "requested"
        number = body.members.get("n")
        if isinstance(number, int) and number > 1:
            return "several-answers"
        scope = self._scope(body.members, headers, caller)
        if isinstance(scope, str):
            return scope
        turns = spoken_turns(body.messages, self._memory.sync.limits.max_message_chars)
        question = next((n for n in range(len(turns) - 1, -1, -1) if turns[n]["role"] == USER), None)
        if question is None:
            return "no-question"
        session_key = _first(headers, (SESSION_HEADER, *self._settings.session_headers)) or ""
        since_user = takewhile(lambda message: message.get("role") != USER, reversed(body.messages))
        calls_tools = any(message.get("role") == "tool" or message.get("tool_calls") for message in since_user)
        goes_on = body.messages[-1].get("role") == ASSISTANT and not calls_tools
        chat = _Chat(scope, session_key, turns, question, not calls_tools, goes_on)
        if any(expression.search(chat.text[: limits.SKIP_CHARS]) for expression in self._skip):
            return "skipped"
        return chat

    def _scope(self, members: Mapping[str, Any], headers: Headers, caller: Caller) -> Scope | str:
        """Returns whose memories a request uses, or why nobody's. Raises Problem 403."""
        user_id = _first(headers, (USER_HEADER,))
        if user_id is None and caller.role != "user":
            named = (value for name in USER_MEMBERS if isinstance(value := members.get(name), str) and value)
            user_id = _first(headers, self._settings.user_headers) or next(named, None)
        try:
            ids = caller.scope({"user_id": user_id, "agent_id": _first(headers, (AGENT_HEADER,))})
            return validation.required_scope(**ids)[0] if "user_id" in ids else "no-user"
        except ValidationError:
            return "unusable-user"
        except Problem as problem:
            if problem.status == 403:  # noqa: PLR2004
                raise
            return "no-user"

    # --- recalling ------------------------------------------------------------------------------------------------

    async def _recall(self, chat: _Chat, settings: ChatSettings | None, deadline: float) -> tuple[str, str]:
        """Returns the block for a chat, and the outcome in words; within a turn it is that of the turn's beginning."""
        key = chat.scope, chat.session_key, self._chats.keyed(chat.text)
        block, reusable_until = self._blocks.get(key, ("", 0.0))
        if not chat.starts_turn and reusable_until >= monotonic():
            return block, "memories=reused"
        if settings is None:
            return "", "recall=failed"
        if not settings.recall:
            return "", "recall=off"
        request = RecallRequest(
            chat.scope,
            validation.storable_part(chat.text, validation.MAX_QUERY_CHARS),
            chat.turns[: chat.question],
            min(settings.top_k, self._memory.sync.limits.max_top_k),
            settings.max_chars,
            rewrite=settings.rewrite,
            rewrite_prompt=settings.rewrite_prompt,
        )
        try:
            recalled = await self._chats.arecall_steps(request, max(0.0, deadline - monotonic()))
        except BaseException as raised:  # noqa: BLE001  (no failure of the memory may end a chat)
            error = as_exception(raised)
            logger.warning("a recall failed (%s)", log_text(error))
            self._on_recall(Recalled(failure=error))
            return "", "recall=failed"
        self._on_recall(recalled)
        self._blocks[key] = recalled.block, monotonic() + limits.BLOCK_SECONDS
        if recalled.failure is not None:
            return recalled.block, f"recall={'timeout' if isinstance(recalled.failure, TimeoutError) else 'failed'}"
        return recalled.block, f"memories={len(recalled.hits) if recalled.block else 0}"

    # --- storing --------------------------------------------------------------------------------------------------

    def _save(self, chat: _Chat, settings: ChatSettings) -> Saving:
        """Begins to store the last rounds of a chat as far as the client has kept them."""
        part = last_part(chat.turns[: chat.question + 1], settings.rounds, MESSAGES_BEFORE)
        texts, scope, session_key = set(map(message_text, part)), chat.scope, chat.session_key

        def resolve() -> bool:
            self._answers.resolve(scope, session_key, texts)
            return True

        def rounds() -> int | None:
            in_force = self._settings_now(scope)
            return in_force.rounds if in_force.save else None

        saving = Saving(self._chats)
        saving.begin(lambda: self._chats.submit(resolve, chat.scope.partition))
        saving.begin(lambda: self._chats.store_part(scope, part, rounds, session_key))
        if not chat.goes_on:
            saving.keep = lambda answer: self._keep(chat, answer, saving)
        return saving

    def _keep(self, chat: _Chat, answer: str, saving: Saving) -> None:
        """Begins to keep an answer waiting until it counts."""
        text = validation.storable_part(without_reasoning(answer), self._memory.sync.limits.max_message_chars).strip()
        if not text:
            return
        turns = [*last_part(chat.turns, 1, MESSAGES_BEFORE), {"role": ASSISTANT, "content": text}]
        place = self._answers.place(chat.scope, chat.session_key, chat.text, text)
        new, now = len(chat.turns) - chat.question, datetime.now(UTC)
        loop = asyncio.get_running_loop()

        def settle_later() -> None:
            loop.call_later(self._settings.settle_seconds, self._submit, lambda: self._settle([place]))

        def add() -> bool:
            if self._settings_now(chat.scope).save:
                self._answers.add(place, turns, new, chat.session_key, now)
                with suppress(RuntimeError):  # the service has ended; the next start settles it
                    loop.call_soon_threadsafe(settle_later)  # not before it waits: this may take longer than that time
            return True

        saving.begin(lambda: self._chats.submit(add, chat.scope.partition))


def _first(headers: Headers, names: tuple[str, ...]) -> str | None:
    """Returns the first of these headers that has a value, read as UTF-8 if it is."""
    for name in names:
        if value := headers.get(name, "").strip():
            try:
                return value.encode("latin-1").decode()
            except UnicodeDecodeError:
                return value
    return None
