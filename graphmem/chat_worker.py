"""Recalls memories for chats and stores their messages in threads of its own, for `graphmem.chat` and other servers.

`ChatWorker` neither delays a chat nor raises for a memory that is slow, broken or out of reach: the log gets a warning
(without any text of the chat), and a recall has the memories found so far.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from threading import Lock
from time import monotonic
from typing import Any, NamedTuple

from graphmem.answer_size import AnswerTooLarge, answer_limit
from graphmem.boundary import validation
from graphmem.commands.types import UNSET, Unset
from graphmem.concurrency import DrainablePool, Pool, as_exception, await_task, take_next
from graphmem.errors import GraphmemError, ValidationError
from graphmem.ingest.chat_deduplication import id_without_text, ids_in_part, last_rounds, with_id
from graphmem.ingest.model_jobs import CountedModel
from graphmem.logs import log_text
from graphmem.memory import Memory, least_relevance
from graphmem.model import Message, MinRelevance, Scope, View
from graphmem.plugins import LanguageModel
from graphmem.queries.memories import known_message_ids, last_turns
from graphmem.retrieval import context
from graphmem.retrieval.dependence import depends_on_conversation
from graphmem.retrieval.fallback import (
    SEARCH_SECONDS,
    ConversationQuery,
    FallbackStep,
    RewriteFailure,
    prepend_turns,
    search_with_fallback,
    without_turns,
)
from graphmem.retrieval.pipeline import search
from graphmem.retrieval.scoring import AUTO_MAX
from graphmem.retrieval.types import Hit, SearchOutcome, SearchQuery
from graphmem.working import turns_before

logger = logging.getLogger("graphmem")

RECALL_THREADS = 4
# Calls of `ChatWorker.store` that wait for the thread that stores.
MAX_QUEUED = 1000
# Stored messages among which those before the part of a chat are looked for.
EARLIER_TURNS = 60
# Hits beyond those wanted, in place of texts that the conversation has and of repeated ones. Many cost a third of a
# second, and are searched only if few are not enough.
FEW_SPARE_HITS, MANY_SPARE_HITS = 20, 250
# Bytes of the memories of one search, of which a block has 20,000 characters at most.
MAX_FOUND_BYTES = 64 * 1024 * 1024
_TOO_LARGE = f"top_k: what was found takes more than {MAX_FOUND_BYTES:,} bytes; ask for fewer hits"


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
    min_relevance: MinRelevance | Unset = UNSET
    reference_date: datetime | str | float | None = None
    rewrite: bool = True
    rewrite_prompt: str | None = None
    names: Mapping[str, str | None] = field(default_factory=dict)


class RecallStep(NamedTuple):
    """The step of one query, and how many memories a recall would give after it."""

    result: FallbackStep
    found: int


@dataclass(frozen=True, slots=True)
class Recalled:
    """The result of a recall: the prompt block, its steps, and the hits of the last step, best first.

    `failure` is the error for which no further step was made, a TimeoutError at the time limit, None without one. The
    other fields have the steps that were finished before it. `rewrite_failure`: why the query was to be rewritten, and
    was not.
    """

    block: str = ""
    steps: tuple[RecallStep, ...] = ()
    hits: tuple[Hit, ...] = ()
    failure: Exception | None = None
    rewrite_failure: RewriteFailure | None = None


@dataclass(frozen=True, slots=True)
class _Recall:
    """A recall with checked arguments, and the search steps that are finished.

    `limit` is the number of hits (None: "auto"), `max_chars` the length of the block, `threshold` the lowest cosine
    similarity (None: none), `min_relevance` as in SearchQuery, `now` the moment from which the query counts, in the
    asker's time zone, `deadline` a time of the monotonic clock in seconds. `said` has the texts of the conversation;
    `copies` has, for each text of a hit, the memory that stands for all with this text.
    """

    scope: Scope
    query: ConversationQuery
    limit: int | None
    max_chars: int
    threshold: float | None
    min_relevance: MinRelevance
    now: datetime
    may_rewrite: bool
    deadline: float
    said: frozenset[str]
    copies: dict[tuple[str | None, ...], str] = field(default_factory=dict)
    steps: list[FallbackStep] = field(default_factory=list)
    rewrite_failures: list[RewriteFailure] = field(default_factory=list)

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
        limit = AUTO_MAX if self.limit is None else self.limit
        return tuple(hits if len(places) <= limit else hits[: places[limit]])

    def finished(self, failure: Exception | None = None) -> Recalled:
        """Returns the result of the steps that are finished."""
        found, hits = list[RecallStep](), list[Hit]()
        for step in tuple(self.steps):
            hits = [hit for hit in step.hits if self.takes(hit)][: self.limit]
            found.append(RecallStep(step, len(hits)))
        rewrite_failure = next(iter(self.rewrite_failures), None)
        block = context.context_block(hits, self.max_chars, self.now.tzinfo)
        return Recalled(block, tuple(found), tuple(hits), failure, rewrite_failure)


class _Queued(NamedTuple):
    """Work that waits for the thread that stores. It tells whether all was stored, which is the result of `stored`."""

    work: Callable[[], bool]
    stored: Future[bool]


class ChatWorker:
    """Stores messages of chats and recalls memories for them, in threads of its own; `time_limit` is in seconds.

    `recall_threads`: recalls that run at the same time; those of several partitions take turns. Whatever fails or is
    slow is logged, without texts and ids. Safe to use from several threads.
    """

    def __init__(self, memory: Memory, time_limit: float, recall_threads: int = RECALL_THREADS) -> None:
        self._memory = memory
        self._engine = memory.engine
        self.time_limit = time_limit
        # Makes the ids of messages.
        self.keyed = self._engine.ledger.digests.keyed
        self._lock = Lock()
        # What waits, by owner: the one whose turn it is comes first.
        self._waiting: dict[str, deque[_Queued]] = {}
        # How many works of `submit` are done: whether the ledger is slow, or takes nothing at all.
        self.done = 0
        # One thread, so that messages are stored in the order of the calls. Recalls have threads of their own.
        self._writer = DrainablePool(1, thread_name_prefix="graphmem-chat-saving")
        self._readers = DrainablePool(recall_threads, thread_name_prefix="graphmem-chat-recall")
        preload_models(memory)
        self._engine.call_before_close(self)

    # --- storing --------------------------------------------------------------------------------------------------

    def submit(self, work: Callable[[], bool], owner: str = "") -> Future[bool]:
        """Runs work that stores in the background, and returns at once.

        The works of one owner, such as a partition, are run in the order of the calls; owners take turns, so that none
        waits for all chats of another.

        `work` tells whether all was stored; an error that it raises is logged. The future's result is False for work
        that failed or was displaced; it cannot be cancelled. At most `MAX_QUEUED` calls wait: another one displaces the
        oldest of the owner that has most. Raises StoreUnavailable after `close`, after that of the memory, and in a
        process that was forked after opening it.
        """
        self._engine.check_open()
        queued = _Queued(work, Future())
        queued.stored.set_running_or_notify_cancel()
        with self._lock:
            if sum(map(len, self._waiting.values())) >= MAX_QUEUED:
                busiest = max(self._waiting, key=lambda one: len(self._waiting[one]))
                # The task submitted for it stores the next ones.
                take_next(self._waiting, busiest).stored.set_result(False)
                logger.warning("messages of a chat are not stored: too many wait for a slow memory")
            else:
                self._writer.submit(self._run_next)
            self._waiting.setdefault(owner, deque()).append(queued)
        return queued.stored

    def _run_next(self) -> None:
        with self._lock:
            queued = take_next(self._waiting, next(iter(self._waiting)))
        is_stored = False
        try:
            is_stored = queued.work()
        except BaseException as error:  # noqa: BLE001  (nobody else would tell of it)
            logger.warning("a saved chat was not stored (%s)", log_text(as_exception(error)))
        finally:
            self.done += 1
            queued.stored.set_result(is_stored)

    def store(self, scope: Scope, messages: Sequence[Mapping[str, Any]]) -> Future[bool]:
        """Stores messages as `submit` does. Messages without a "timestamp" get the present time."""
        dated = _dated(messages, self._local_now())
        return self.submit(lambda: self.add(scope, dated), scope.partition)

    def _local_now(self) -> datetime:
        """Returns the present time by the clock of the configured time zone, else by that of this machine."""
        return datetime.now(UTC).astimezone(self._memory.limits.timezone)

    def store_part(
        self,
        scope: Scope,
        messages: Sequence[Mapping[str, Any]],
        rounds: Callable[[], int | None],
        session_key: str = "",
    ) -> Future[bool]:
        """Stores the last rounds of a chat of which no earlier part is remembered, otherwise as `store` does.

        `messages` is the whole chat or the last part of it. A message is recognised by its "id", or by its words and
        "timestamp"; one with neither, by its words and the two messages before it. If the part does not have these two,
        they are looked for among the stored messages. `rounds` is called in the thread that stores and returns how many
        of the last rounds are stored, None for nothing; it may raise GraphmemError. `session_key` distinguishes chats
        of the scope that begin with the same words.
        """
        accepted_at = self._local_now()

        def store() -> bool:
            with self._engine.ledger.read():  # shared by the reads: each statement waits for its turn on a busy machine
                wanted = rounds()
                part = [] if wanted is None else self.rounds_with_ids(scope, messages, wanted, session_key)
            return self.add(scope, _dated(part, accepted_at))

        return self.submit(store, scope.partition)

    def rounds_with_ids(
        self, scope: Scope, messages: Sequence[Mapping[str, Any]], rounds: int, session_key: str = ""
    ) -> list[Mapping[str, Any]]:
        """Returns the messages of the last rounds, with ids for those that have neither an id nor a timestamp.

        The arguments are those of `store_part`. Reads the ledger, in the thread that stores: an id depends on the
        messages that are stored before.
        """
        ledger = self._engine.ledger
        possible = ids_in_part(self.keyed, messages, last_turns(ledger, scope, EARLIER_TURNS), session_key)
        start = last_rounds(messages, rounds)
        uncertain = {id_ for ids in possible[start:] if len(ids) > 1 for id_ in ids}
        known = known_message_ids(ledger, scope, uncertain) if uncertain else frozenset()
        return [
            with_id(
                message,
                next((id_ for id_ in ids if id_ in known), ids[0])
                if ids
                else id_without_text(self.keyed, message, session_key),
            )
            for message, ids in zip(messages[start:], possible[start:], strict=True)
        ]

    def add(self, scope: Scope, messages: Sequence[Mapping[str, Any]]) -> bool:
        """Stores messages now, in the thread that stores; one that cannot be stored does not keep the others out.

        Returns whether all are stored. Raises GraphmemError.
        """
        if not messages:
            return True
        # The engine enriches and delivers in the background, so that the next chat need not wait.
        add = partial(self._memory.add, user_id=scope.user_id, agent_id=scope.agent_id, run_id=scope.run_id, wait=False)
        try:
            add(messages)
        except ValidationError:
            pass
        else:
            return True
        errors: list[GraphmemError] = []
        for message in messages:
            try:
                add([message])
            except GraphmemError as error:
                errors.append(error)
        if errors:
            logger.warning("%d messages of a saved chat were not stored (%s)", len(errors), log_text(errors[0]))
        return not errors

    # --- recalling ------------------------------------------------------------------------------------------------

    def recall(self, request: RecallRequest) -> str:
        """Returns the prompt block for a question, as `ChatLink.recall` describes it; "" for none."""
        try:
            recall, job = self._start(request)
        except GraphmemError as error:
            return _failed(error).block
        wait([job], recall.seconds_left())
        return self._result(recall, job).block

    async def arecall(self, request: RecallRequest) -> str:
        """Awaits `recall`, without a thread of the event loop's executor."""
        return (await self.arecall_steps(request)).block

    async def arecall_steps(self, request: RecallRequest, time_limit: float | None = None) -> Recalled:
        """Awaits a recall and returns its block, steps and hits; `time_limit` is in seconds (None: the worker's)."""
        try:
            recall, job = self._start(request, time_limit)
        except GraphmemError as error:
            return _failed(error)
        await await_task(job, recall.seconds_left())
        return self._result(recall, job)

    def _start(self, request: RecallRequest, time_limit: float | None = None) -> tuple[_Recall, Future[None]]:
        self._engine.check_open()
        recall = self._checked(request, monotonic() + (self.time_limit if time_limit is None else time_limit))
        return recall, self._readers.submit_in_turn(recall.scope.partition, self._run_search_steps, recall)

    def _result(self, recall: _Recall, job: Future[None]) -> Recalled:
        """Returns the result of the steps that are finished; a running step ends by itself."""
        if not job.done():
            self._readers.abandon(job)
            logger.warning("a recall was not done within its time limit")
            return recall.finished(TimeoutError())
        if isinstance(error := job.exception(), GraphmemError):
            logger.warning("a recall failed (%s)", log_text(error))
            return recall.finished(error)
        job.result()
        return recall.finished()

    def _checked(self, request: RecallRequest, deadline: float) -> _Recall:
        threshold, prompt = request.threshold, checked_prompt(request.rewrite_prompt)
        question, turns = validation.query(request.question, "question"), self._readable_turns(request.recent)
        if turns and turns[-1].content.strip() == question:
            turns.pop()
        names, scope = request.names, request.scope
        user, agent = names.get("user") or scope.user_id or "", names.get("assistant") or scope.agent_id or ""
        return _Recall(
            scope=scope,
            query=ConversationQuery(question, turns, user, agent, prompt),
            limit=validation.top_k(request.top_k, maximum=self._memory.limits.max_top_k),
            max_chars=validation.count(request.max_chars, "max_chars", 1, validation.MAX_CONTEXT_CHARS),
            threshold=None if isinstance(threshold, Unset) else validation.threshold(threshold),
            min_relevance=least_relevance(threshold, request.min_relevance),
            now=validation.asked_at(request.reference_date, datetime.now(UTC), self._memory.limits.timezone),
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
        if model is not None:  # the usage is written in the thread that stores, so that no chat waits for it
            model = CountedModel(model, self._engine.ledger, recall.scope, self._writer.submit)
        query, find = recall.query, partial(self._find, recall)
        if not query.recent and (model is not None or depends_on_conversation(query.question)):
            query = replace(query, recent=turns_before(self._engine.said_before(recall.scope), query.question))
            find = partial(self._find_apart, recall, query)
        for step in search_with_fallback(query, find, model, recall.seconds_left, recall.rewrite_failures.append):
            recall.steps.append(step)  # at the deadline `_result` reads the list while this runs

    def _find_apart(self, recall: _Recall, conversation: ConversationQuery, query: str) -> SearchOutcome:
        """Searches as `_find`. A query with turns in front that the caller has not given does not find these turns."""
        turns = conversation.recent
        if query == conversation.question or query != prepend_turns(conversation.question, turns):
            return self._find(recall, query)
        apart = replace(recall, said=recall.said | {_joined(turn.content) for turn in turns})
        return without_turns(self._find(apart, query), turns)

    def _find(self, recall: _Recall, query: str) -> SearchOutcome:
        """Searches, also for hits in place of those that the block may not have."""
        wanted = AUTO_MAX if recall.limit is None else recall.limit
        found, outcome = list[Hit](), None

        def select(hits: tuple[Hit, ...]) -> tuple[Hit, ...]:
            found[:] = hits
            return recall.first_hits(hits)

        for limit in (wanted + FEW_SPARE_HITS, wanted + MANY_SPARE_HITS):
            self._engine.check_open()
            view = View(recall.scope, datetime.now(UTC), recall.scope.read_partition)
            search_query = SearchQuery(
                query,
                view,
                limit,
                threshold=recall.threshold,
                now=recall.now,
                min_relevance=recall.min_relevance,
                for_prompt=True,
                select=select,
            )
            try:
                with answer_limit(MAX_FOUND_BYTES, _TOO_LARGE):
                    outcome = search(search_query, self._engine.search_deps)
            except AnswerTooLarge:
                if outcome is None:
                    raise
                break  # the hits that are there have to do
            is_enough = sum(map(recall.takes, found)) >= wanted or len(found) < limit
            if is_enough or recall.seconds_left() < SEARCH_SECONDS:
                break
        assert outcome is not None  # noqa: S101  (the first search returns or raises)
        return outcome

    # --- ending ---------------------------------------------------------------------------------------------------

    def drain(self, timeout: float | None = None) -> bool:
        """Waits for all calls of `store` and `recall` so far, without recalls that took too long.

        Returns False if `timeout` seconds were not enough.
        """
        deadline = None if timeout is None else monotonic() + timeout
        is_stored = self._writer.drain(timeout)
        return self._readers.drain(None if deadline is None else deadline - monotonic()) and is_stored

    def drain_texts(self, timeout: float) -> bool:
        """Waits as `drain` does, and until the stored messages can be found, but for those of 50,000 characters."""
        deadline = monotonic() + timeout
        is_drained = self.drain(timeout)
        seconds_left = max(0.0, deadline - monotonic())
        return self._engine.job_worker.wait_for_texts(seconds_left, also_long=False) and is_drained

    def close(self, time_limit: float | None = None) -> None:
        """Waits for running calls, at most for the time limit (None: that of recalls); unfinished ones go on as long as
        the memory is open.

        The memory calls it when it is closed.
        """
        self.close_in(self.time_limit if time_limit is None else time_limit)

    def close_in(self, time_limit: float) -> bool:
        """Closes as `close` does, and returns whether all calls have ended."""
        self._writer.shutdown(wait=False)
        self._readers.shutdown(wait=False)
        is_done = self.drain(time_limit)
        if not is_done:
            logger.warning("a chat was closed while a saving or recall of it was running")
        return is_done


def preload_models(memory: Memory) -> None:
    """Loads the memory's local models in the background, for which the first search would spend its time limit."""
    pool = Pool(1, thread_name_prefix="graphmem-preloading")
    pool.submit(memory.engine.backends.load_models)
    pool.shutdown(wait=False)


def _failed(error: GraphmemError) -> Recalled:
    logger.warning("a recall failed (%s)", log_text(error))
    return Recalled(failure=error)


def _dated(messages: Sequence[Mapping[str, Any]], now: datetime) -> list[Mapping[str, Any]]:
    """Returns the messages with the present time for those without a "timestamp"."""
    return [{**one, "timestamp": now} if one.get("timestamp") is None else one for one in messages]


def _joined(text: str) -> str:
    """Returns a text with single spaces for white space, by which equal texts are recognised."""
    return " ".join(text.split())


def checked_prompt(value: str | None) -> str | None:
    """Checks instructions for the language model; None stands for the built-in ones."""
    return None if value is None else validation.content(value, "rewrite_prompt")
