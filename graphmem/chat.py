"""ChatLink joins a chat application to a `Memory`: it stores saved chats and recalls memories for a question.

Its `ChatWorker` has the threads for both; the adapters of `graphmem.integrations` use it as well. Neither delays the
chat or raises for a memory that is slow, broken or out of reach: the log gets a warning (without any text of the chat),
and recall returns no memories.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from threading import Lock
from time import monotonic
from typing import Any, Self

from graphmem.boundary import validation
from graphmem.commands.types import UNSET, Unset
from graphmem.concurrency import DrainablePool, Pool, await_task
from graphmem.errors import GraphmemError, ValidationError
from graphmem.ingest.chat_deduplication import ChatHistory
from graphmem.logs import log_text
from graphmem.memory import Memory
from graphmem.model import Message, Scope, View
from graphmem.models.protocols import LanguageModel
from graphmem.retrieval import context
from graphmem.retrieval.fallback import SEARCH_SECONDS, ConversationQuery, FallbackStep, search_with_fallback
from graphmem.retrieval.pipeline import search
from graphmem.retrieval.scoring import AUTO_MAX, automatic_cutoff
from graphmem.retrieval.types import Hit, SearchOutcome, SearchQuery

logger = logging.getLogger("graphmem")

RECALL_THREADS = 4
# Calls of `ChatWorker.store` that wait for the thread that stores.
MAX_QUEUED = 1000
MAX_ROUNDS, MAX_SECONDS = 100, 600.0
# Hits beyond those wanted, in place of texts that the conversation has and of repeated ones. Many cost a third of a
# second, and are searched only if few are not enough.
FEW_SPARE_HITS, MANY_SPARE_HITS = 20, 250


@dataclass(frozen=True, slots=True)
class RecallRequest:
    """The arguments of one recall, as `ChatLink.recall` describes them.

    `names` has the names of users and assistants, by role.
    """

    scope: Scope
    question: str
    recent: Sequence[Mapping[str, Any]] = ()
    top_k: int = 5
    max_chars: int = 1200
    threshold: float | Unset | None = UNSET
    reference_date: datetime | str | float | None = None
    rewrite: bool = True
    rewrite_prompt: str | None = None
    names: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Recall:
    """A recall with checked arguments, and the search steps that are finished.

    `limit` is the number of hits (None: "auto"), `max_chars` the length of the block, `threshold` the lowest cosine
    similarity (None: none), `now` the moment from which the query counts (None: now in UTC), `deadline` a time of the
    monotonic clock in seconds. `said` has the texts of the conversation; `copies` has, for each text of a hit, the
    memory that stands for all with this text.
    """

    scope: Scope
    query: ConversationQuery
    limit: int | None
    max_chars: int
    threshold: float | None
    now: datetime | None
    may_rewrite: bool
    deadline: float
    said: frozenset[str]
    copies: dict[tuple[str | None, ...], str] = field(default_factory=dict)
    steps: list[FallbackStep] = field(default_factory=list)

    def takes(self, hit: Hit) -> bool:
        """Whether the block may have a hit: a text that the conversation does not have, and each text once."""
        record, text = hit.record, _joined(hit.record.text)
        return (
            text not in self.said
            and self.copies.setdefault((record.role, record.speaker, text), record.id) == record.id
        )

    def seconds_left(self) -> float:
        """Returns the seconds up to the deadline."""
        return self.deadline - monotonic()

    def first_hits(self, hits: Sequence[Hit]) -> tuple[Hit, ...]:
        """Returns the first hits, as many as it takes for `limit` of them that the block may have."""
        places = [place for place, hit in enumerate(hits) if self.takes(hit)]
        limit = automatic_cutoff([hits[place].score for place in places]) if self.limit is None else self.limit
        return tuple(hits if len(places) <= limit else hits[: places[limit]])

    def block(self) -> str:
        """Returns the block of the hits that are found so far."""
        found = self.steps[-1].hits if self.steps else ()
        return context.context_block([hit for hit in found if self.takes(hit)][: self.limit], self.max_chars)


class ChatLink:
    """Connects one chat with a `Memory`: call `saved` after the chat was saved, `recall` before the model is asked.

    `user_name` and `agent_name` are used for messages without a name. `rounds` (1 to 100): how many of the last rounds
    (a user's message with its answers) each saving hands over. `time_limit`: seconds that `recall` and `close` may
    take, above 0 and up to 600. `rewrite=False` never asks the language model; `rewrite_prompt` replaces the built-in
    instructions to it. `recall` takes both for one call as well.

    Safe to use from several threads; make one for each chat. It does not close the memory. Raises ValidationError for
    an unusable argument.
    """

    def __init__(
        self,
        memory: Memory,
        *,
        user_id: Any,
        agent_id: Any = None,
        run_id: Any = None,
        user_name: str | None = None,
        agent_name: str | None = None,
        rounds: int = 2,
        time_limit: float = 3.0,
        rewrite: bool = True,
        rewrite_prompt: str | None = None,
    ) -> None:
        self._memory = memory
        self._scope = validation.required_scope(user_id, agent_id, run_id)[0]
        self._names = {"user": user_name, "assistant": agent_name}
        self._rounds = validation.count(rounds, "rounds", 1, MAX_ROUNDS)
        self._rewrite = validation.flag(rewrite, "rewrite")
        self._rewrite_prompt = _checked_prompt(rewrite_prompt)
        self._worker = ChatWorker(memory, validation.seconds(time_limit, "time_limit", MAX_SECONDS))
        self._chat_history = ChatHistory(self._worker.keyed)
        self._lock = Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def saved(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Stores the last rounds of a saved chat in the background and returns at once; never raises for an unusable
        chat. Of more than 1,000 savings that wait for a slow memory, the oldest is dropped.

        `messages` is the whole chat or the last part of it, as messages for `Memory.add`. Calls are stored in their
        order, each message once however often it is saved. A message is recognised by its "id", or by its words and
        "timestamp"; one with neither, by its words and the two messages before it. That requires the whole chat, or a
        last part whose first message was in an earlier call.
        """
        try:
            with self._lock:
                readable = [message for message in messages if isinstance(message, Mapping)]
                if len(readable) < len(messages):
                    logger.warning("%d messages of a saved chat could not be read", len(messages) - len(readable))
                last_rounds = self._chat_history.with_keys(readable, self._rounds)
                self._worker.store(self._scope, [self._with_name(message) for message in last_rounds])
        # Everything but GraphmemError: `messages` is not a list of messages.
        except (GraphmemError, TypeError, AttributeError, ValueError, RecursionError) as error:
            logger.warning("a saved chat could not be taken (%s)", log_text(error))

    def _with_name(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """Adds the configured name to a message that lacks one."""
        name = message.get("name") or self._names.get(message.get("role", ""))
        return {**message, "name": name} if name else message

    def flush(self) -> dict[str, list[str]]:
        """Waits for all chats given to `saved` and for the memory's background work (facts, summaries, delivery).

        It has no time limit. Returns and raises as `Memory.flush` does.
        """
        self._worker.drain()
        return self._memory.flush()

    def recall(
        self,
        question: str,
        recent: Sequence[Mapping[str, Any]] = (),
        top_k: int = 5,
        max_chars: int = 1200,
        *,
        threshold: float | Unset | None = UNSET,
        reference_date: datetime | str | float | None = None,
        rewrite: bool | None = None,
        rewrite_prompt: str | None = None,
    ) -> str:
        """Returns the prompt block for a question, of at most `top_k` memories and `max_chars` characters; "" for none.

        `recent`: the turns of the conversation, oldest first; the question itself may be the last of them. The block
        repeats none of these texts, so give only those that the model is shown, and has the same text only once. A
        question that finds too little is searched again together with these turns, if it may depend on them ("And when
        is it?"), and then rewritten by the language model, if one is configured (`graphmem.retrieval.fallback`). At the
        time limit, or after an error, the block has the hits of the steps finished before. Errors and unusable
        arguments are logged, never raised.

        `threshold` works as in `Memory.context`: by default unrelated memories are left out. `reference_date`: the
        moment from which "last week" and the like are counted, as in `Memory.search`. `rewrite` and `rewrite_prompt`
        override the link's for this call.
        """
        request = RecallRequest(
            self._scope,
            question,
            recent,
            top_k,
            max_chars,
            threshold,
            reference_date,
            self._rewrite if rewrite is None else rewrite,
            self._rewrite_prompt if rewrite_prompt is None else rewrite_prompt,
            self._names,
        )
        return self._worker.recall(request)

    def inject(self, messages: Sequence[Mapping[str, Any]], block: str) -> list[dict[str, Any]]:
        """Returns a copy of the messages with the block at the end of the first system message, or of a new one in
        front.

        The given list and its messages stay unchanged; an empty block adds nothing. Raises ValidationError for an
        argument that is no list of messages, or a block that is no text.
        """
        if not isinstance(messages, list | tuple):
            validation.refuse("messages", type(messages).__name__, 'must be a list of {"role", "content"} dicts')
        for message in messages:
            role = validation.as_object(message, "a message").get("role")
            if not (role is None or isinstance(role, str)):
                validation.refuse("role", type(role).__name__, "must be a string")
            if not isinstance(content := message.get("content"), str | list | tuple | None):
                validation.refuse(
                    "content", type(content).__name__, "must be a string, None, or a list of content parts"
                )
        return context.inject_block(messages, validation.stored_text(block, "block"))

    def close(self) -> None:
        """Waits for running savings and recalls, at most for the time limit.

        Unfinished ones go on in the background as long as the memory is open.
        """
        self._worker.close()


class ChatWorker:
    """Stores messages of chats and recalls memories for them, in threads of its own; `time_limit` is in seconds.

    Whatever fails or is slow is logged, without texts and ids. Safe to use from several threads.
    """

    def __init__(self, memory: Memory, time_limit: float) -> None:
        self._memory = memory
        self._engine = memory._engine  # noqa: SLF001  (same package)
        self.time_limit = time_limit
        # Makes the ids of messages.
        self.keyed = self._engine.ledger.digests.keyed
        self._lock = Lock()
        self._queue: deque[tuple[Scope, list[dict[str, Any]]]] = deque()
        # One thread, so that messages are stored in the order of the calls. Recalls have threads of their own.
        self._writer = DrainablePool(1, thread_name_prefix="graphmem-chat-saving")
        self._readers = DrainablePool(RECALL_THREADS, thread_name_prefix="graphmem-chat-recall")
        preload_models(memory)
        self._engine.call_before_close(self)

    # --- storing --------------------------------------------------------------------------------------------------

    def store(self, scope: Scope, messages: Sequence[Mapping[str, Any]]) -> None:
        """Stores messages in the background and returns at once. Messages without a "timestamp" get the present time.

        At most `MAX_QUEUED` calls wait: another one displaces the oldest. Raises StoreUnavailable after `close`, after
        that of the memory, and in a process that was forked after opening it.
        """
        self._engine.check_open()
        now = datetime.now(UTC)
        dated = [{**one, "timestamp": now if one.get("timestamp") is None else one["timestamp"]} for one in messages]
        with self._lock:
            if len(self._queue) >= MAX_QUEUED:
                self._queue.popleft()  # the task submitted for it stores the next ones
                logger.warning("messages of a chat are not stored: too many wait for a slow memory")
            else:
                self._writer.submit(self._store_next)
            self._queue.append((scope, dated))

    def _store_next(self) -> None:
        with self._lock:
            scope, messages = self._queue.popleft()
        try:
            self._add(scope, messages)
        except ValidationError:  # one message that cannot be stored must not keep the others out
            self._store_singly(scope, messages)
        except GraphmemError as error:
            logger.warning("a saved chat was not stored (%s)", log_text(error))

    def _store_singly(self, scope: Scope, messages: Sequence[Mapping[str, Any]]) -> None:
        errors: list[GraphmemError] = []
        for message in messages:
            try:
                self._add(scope, [message])
            except GraphmemError as error:
                errors.append(error)
        if errors:
            logger.warning("%d messages of a saved chat were not stored (%s)", len(errors), log_text(errors[0]))

    def _add(self, scope: Scope, messages: Sequence[Mapping[str, Any]]) -> None:
        # The engine enriches and delivers in the background, so that the next chat need not wait.
        self._memory.add(messages, user_id=scope.user_id, agent_id=scope.agent_id, run_id=scope.run_id, wait=False)

    # --- recalling ------------------------------------------------------------------------------------------------

    def recall(self, request: RecallRequest) -> str:
        """Returns the prompt block for a question, as `ChatLink.recall` describes it; "" for none."""
        try:
            recall, job = self._start(request)
            wait([job], recall.seconds_left())
            return self._block(recall, job)
        except GraphmemError as error:
            logger.warning("a recall failed (%s)", log_text(error))
            return ""

    async def arecall(self, request: RecallRequest) -> str:
        """Awaits `recall`, without a thread of the event loop's executor."""
        try:
            recall, job = self._start(request)
            await await_task(job, recall.seconds_left())
            return self._block(recall, job)
        except GraphmemError as error:
            logger.warning("a recall failed (%s)", log_text(error))
            return ""

    def _start(self, request: RecallRequest) -> tuple[_Recall, Future[None]]:
        self._engine.check_open()
        recall = self._checked(request, monotonic() + self.time_limit)
        return recall, self._readers.submit(self._run_search_steps, recall)

    def _block(self, recall: _Recall, job: Future[None]) -> str:
        """Returns the block of the steps that are finished; a running step ends by itself."""
        if not job.done():
            self._readers.abandon(job)
            logger.warning("a recall was not done within its time limit")
        elif isinstance(error := job.exception(), GraphmemError):
            logger.warning("a recall failed (%s)", log_text(error))
        else:
            job.result()
        return recall.block()

    def _checked(self, request: RecallRequest, deadline: float) -> _Recall:
        threshold, prompt = request.threshold, _checked_prompt(request.rewrite_prompt)
        question, turns = validation.query(request.question), self._readable_turns(request.recent)
        if turns and turns[-1].content.strip() == question:
            turns.pop()
        names, scope = request.names, request.scope
        user, agent = names.get("user") or scope.user_id or "", names.get("assistant") or scope.agent_id or ""
        only_related = isinstance(threshold, Unset)
        return _Recall(
            scope=scope,
            query=ConversationQuery(question, turns, user, agent, prompt, only_related),
            limit=validation.top_k(request.top_k, maximum=self._memory.limits.max_top_k),
            max_chars=validation.count(request.max_chars, "max_chars", 1, 1_000_000),
            threshold=None if isinstance(threshold, Unset) else validation.threshold(threshold),
            now=validation.reference_date(request.reference_date),
            may_rewrite=validation.flag(request.rewrite, "rewrite"),
            deadline=deadline,
            said=frozenset(map(_joined, [question, *(turn.content for turn in turns)])),
        )

    def _readable_turns(self, recent: Sequence[Mapping[str, Any]]) -> list[Message]:
        """Returns the latest messages of a conversation, without those that are no valid messages."""
        limits, now = self._memory.limits, datetime.now(UTC)
        try:
            latest = list(recent)[-limits.max_messages :]
        except TypeError:
            validation.refuse("recent", recent, "must be a list of messages")
        turns: list[Message] = []
        unreadable = 0
        for message in latest:
            try:
                turns += validation.message_list([message], now=now, limits=limits)
            except ValidationError:
                unreadable += 1
        if unreadable:
            logger.warning("%d messages of a recent conversation could not be read, and are left out", unreadable)
        return turns

    def _run_search_steps(self, recall: _Recall) -> None:
        self._engine.check_embedder()
        model: LanguageModel | None = self._engine.llm if recall.may_rewrite else None
        find, seconds_left = partial(self._find, recall), recall.seconds_left
        for step in search_with_fallback(recall.query, find, model, seconds_left):
            recall.steps.append(step)  # at the deadline `_block` reads the list while this runs

    def _find(self, recall: _Recall, query: str) -> SearchOutcome:
        """Searches, also for hits in place of those that the block may not have."""
        wanted = AUTO_MAX if recall.limit is None else recall.limit
        for limit in (wanted + FEW_SPARE_HITS, wanted + MANY_SPARE_HITS):
            self._engine.check_open()
            view = View(recall.scope, datetime.now(UTC), recall.scope.read_partition)
            search_query = SearchQuery(
                query,
                view,
                limit,
                threshold=recall.threshold,
                now=recall.now,
                with_relevance=True,
                match_sentences_over=context.MIN_CHARS,
            )
            outcome = search(search_query, self._engine.search_deps)
            is_enough = sum(map(recall.takes, outcome.hits)) >= wanted or len(outcome.hits) < limit
            if is_enough or recall.seconds_left() < SEARCH_SECONDS:
                break
        return replace(outcome, hits=recall.first_hits(outcome.hits))

    # --- ending ---------------------------------------------------------------------------------------------------

    def drain(self, timeout: float | None = None) -> bool:
        """Waits for all calls of `store` and `recall` so far, without recalls that took too long.

        Returns False if `timeout` seconds were not enough.
        """
        deadline = None if timeout is None else monotonic() + timeout
        is_stored = self._writer.drain(timeout)
        return self._readers.drain(None if deadline is None else deadline - monotonic()) and is_stored

    def close(self) -> None:
        """Waits for running calls, at most for the time limit; unfinished ones go on as long as the memory is open.

        The memory calls it when it is closed.
        """
        self._writer.shutdown(wait=False)
        self._readers.shutdown(wait=False)
        if not self.drain(self.time_limit):
            logger.warning("a chat was closed while a saving or recall of it was running")


def preload_models(memory: Memory) -> None:
    """Loads the memory's local models in the background, for which the first search would spend its time limit."""
    pool = Pool(1, thread_name_prefix="graphmem-preloading")
    pool.submit(memory._engine.load_models)  # noqa: SLF001  (same package)
    pool.shutdown(wait=False)


def _joined(text: str) -> str:
    """Returns a text with single spaces for white space, by which equal texts are recognised."""
    return " ".join(text.split())


def _checked_prompt(value: str | None) -> str | None:
    return None if value is None else validation.content(value, "rewrite_prompt")
