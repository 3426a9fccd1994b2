"""Memory beside a chat: what was saved goes in, what belongs to a question comes out, and the chat never waits long.

Both ways are silent: a memory that is slow, broken or away is a warning in the log (without any text), and no memories.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Lock
from time import monotonic
from typing import Any, Self

from graphmem.boundary import validation
from graphmem.commands.types import UNSET, Unset
from graphmem.concurrency import Pool
from graphmem.errors import GraphmemError, ValidationError
from graphmem.ingest.chat_deduplication import ChatHistory
from graphmem.memory import Memory
from graphmem.model import Message, View
from graphmem.models.protocols import LanguageModel
from graphmem.retrieval import context
from graphmem.retrieval.fallback import ConversationQuery, FallbackStep, search_with_fallback
from graphmem.retrieval.pipeline import search
from graphmem.retrieval.types import SearchOutcome, SearchQuery

logger = logging.getLogger("graphmem")

RECALL_THREADS = 4
MAX_ROUNDS, MAX_SECONDS = 100, 600.0


@dataclass(frozen=True, slots=True)
class _RecallRequest:
    """One recall: at most so many memories, of at least that similarity, until a moment of the monotonic clock."""

    query: ConversationQuery
    limit: int | None
    threshold: float | None
    may_rewrite: bool
    deadline: float


class ChatLink:
    """Joins a chat application and a `Memory`: `saved` after a chat was saved, `recall` before the model is asked.

    `user_name` and `agent_name` are what the two are called where messages do not say. `rounds` (1..100): how many of
    the last rounds, a user's message with its answers, are handed over at each saving. `time_limit` in seconds is how
    long `recall` may take, and `close` wait. `rewrite=False` never asks the language model; `rewrite_prompt` stands in
    for our instructions to it (`recall` takes both for one call, too). Safe to use from several threads; one for each
    chat. It does not close the memory.
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
        self._seconds = _seconds(time_limit)
        self._rewrite = validation.flag(rewrite, "rewrite")
        self._prompt = _prompt(rewrite_prompt)
        self._chat = ChatHistory(memory._engine.ledger.digests.keyed)  # noqa: SLF001  (as below)
        self._lock = Lock()
        self._jobs: set[Future[None]] = set()
        # One thread: what is saved first is stored first. Recalls do not wait for it.
        self._writer = Pool(1, thread_name_prefix="graphmem-chat-saving")
        self._readers = Pool(RECALL_THREADS, thread_name_prefix="graphmem-chat-recall")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def saved(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """To be called after a chat was saved, with the chat, or the end of it. Returns at once, whatever happens.

        The last rounds are stored in the background, in the order of the calls, each message once however often it is
        saved. A message is recognised by its "id", or its words and "timestamp"; one that has neither, by its place in
        the chat, for which the whole chat has to be given, or an end of it that begins in the one given before.
        """
        now = datetime.now(UTC)
        try:
            with self._lock:
                readable = [one for one in messages if isinstance(one, Mapping)]
                if len(readable) < len(messages):
                    logger.warning("%d messages of a saved chat could not be read", len(messages) - len(readable))
                told = self._chat.with_keys(readable, self._rounds)
                job = self._writer.submit(self._store, [self._named(one, now) for one in told])
                self._jobs.add(job)
            job.add_done_callback(self._done)
        except (GraphmemError, TypeError, AttributeError, ValueError, RecursionError) as error:  # it is no chat
            logger.warning("a saved chat could not be taken (%s)", type(error).__name__)

    def _named(self, message: Mapping[str, Any], now: datetime) -> dict[str, Any]:
        """With who said it and when, as far as the message does not say."""
        name = message.get("name") or self._names.get(message.get("role", ""))
        at = message.get("timestamp")
        return {**message, "timestamp": now if at is None else at, **({"name": name} if name else {})}

    def _done(self, job: Future[None]) -> None:
        with self._lock:
            self._jobs.discard(job)

    def _store(self, messages: Sequence[Mapping[str, Any]]) -> None:
        try:
            self._add(messages)
        except ValidationError:  # one message that cannot be stored must not keep the others out
            for message in messages:
                self._store_one(message)
        except GraphmemError as error:
            logger.warning("a saved chat was not stored (%s)", type(error).__name__)

    def _store_one(self, message: Mapping[str, Any]) -> None:
        try:
            self._add([message])
        except GraphmemError as error:
            logger.warning("a message of a saved chat was not stored (%s)", type(error).__name__)

    def _add(self, messages: Sequence[Mapping[str, Any]]) -> None:
        # What follows the words is the house's work: the next saving need not wait for it.
        scope = self._scope
        self._memory.add(messages, user_id=scope.user_id, agent_id=scope.agent_id, run_id=scope.run_id, wait=False)

    def flush(self) -> dict[str, list[str]]:
        """Waits for all that `saved` has begun, and for the memory's background work (facts, summaries, delivery).

        It takes as long as that takes. Returns, and raises, what `Memory.flush` does.
        """
        with self._lock:
            left = set(self._jobs)
        wait(left)
        return self._memory.flush()

    def recall(
        self,
        question: str,
        recent: Sequence[Mapping[str, Any]] = (),
        top_k: int = 5,
        max_chars: int = 1200,
        *,
        threshold: float | Unset | None = UNSET,
        rewrite: bool | None = None,
        rewrite_prompt: str | None = None,
    ) -> str:
        """The prompt block for a question, of at most `top_k` memories and `max_chars` characters; "" for none.

        `recent`: the turns of the conversation, oldest first; the question itself may be the last of them. A question
        that finds too little by itself is asked again with these turns, and then rewritten by the language model if
        there is one (`graphmem.retrieval.fallback`). After the time limit, or an error: what was found until then.
        Memories that have nothing to do with what is asked are left out, as in `Memory.context`, whose `threshold` this
        is. `rewrite` and `rewrite_prompt` stand in for those of the link, for this call.
        """
        until = monotonic() + self._seconds
        found: list[FallbackStep] = []
        try:
            most = validation.top_k(top_k, maximum=self._memory.limits.max_top_k)
            room = validation.count(max_chars, "max_chars", 1, 1_000_000)
            only_related = isinstance(threshold, Unset)
            least = None if isinstance(threshold, Unset) else validation.threshold(threshold)
            rewrites = self._rewrite if rewrite is None else validation.flag(rewrite, "rewrite")
            asking = self._asking(question, recent, _prompt(rewrite_prompt) or self._prompt, only_related=only_related)
            self._look(_RecallRequest(asking, most, least, rewrites, until), found)
            return context.context_block(found[-1].hits[:most], room) if found else ""
        except GraphmemError as error:
            logger.warning("a recall failed (%s)", type(error).__name__)
            return ""

    def _asking(
        self, question: str, recent: Sequence[Mapping[str, Any]], prompt: str | None, *, only_related: bool
    ) -> ConversationQuery:
        asked = validation.query(question)
        turns = self._turns(recent)
        if turns and turns[-1].content.strip() == asked.strip():
            turns.pop()
        user, char = self._names["user"] or self._scope.user_id, self._names["assistant"] or self._scope.agent_id
        return ConversationQuery(asked, turns, user or "", char or "", prompt, only_related)

    def _turns(self, recent: Sequence[Mapping[str, Any]]) -> list[Message]:
        """The turns given, without those that cannot be read."""
        limits, now = self._memory.limits, datetime.now(UTC)
        try:
            last = list(recent)[-limits.max_messages :]
        except TypeError:
            validation.refuse("recent", recent, "must be a list of messages")
        turns: list[Message] = []
        for message in last:
            try:
                turns += validation.message_list([message], now=now, limits=limits)
            except ValidationError:
                logger.warning("a message of a recent conversation could not be read, and is left out")
        return turns

    def _look(self, recall: _RecallRequest, found: list[FallbackStep]) -> None:
        """Fills `found` step by step, until the time is up; what is under way then ends by itself."""
        until = recall.deadline
        job = self._readers.submit(self._climb, recall, found)
        with self._lock:
            self._jobs.add(job)
        job.add_done_callback(self._done)
        wait([job], until - monotonic())
        if not job.done():
            logger.warning("a recall was not done within its time limit")
        elif isinstance(error := job.exception(), GraphmemError):
            logger.warning("a recall failed (%s)", type(error).__name__)
        else:
            job.result()

    def _climb(self, recall: _RecallRequest, found: list[FallbackStep]) -> None:
        engine = self._memory._engine  # noqa: SLF001  (a part of the door that stands in a file of its own)
        engine.check_embedder()
        model: LanguageModel | None = getattr(engine, "llm", None) if recall.may_rewrite else None
        partition = self._scope.partition if self._scope.user_id is not None else None

        def find(query: str) -> SearchOutcome:
            engine.check_open()
            view = View(self._scope, datetime.now(UTC), partition)
            question = SearchQuery(
                query,
                view,
                recall.limit,
                threshold=recall.threshold,
                with_relevance=True,
                match_sentences_over=context.MIN_CHARS,
            )
            return search(question, engine.search_deps)

        for step in search_with_fallback(recall.query, find, model, lambda: recall.deadline - monotonic()):
            found.append(step)  # noqa: PERF402  (one by one: `recall` may take what is there while this goes on)

    def inject(self, messages: Sequence[Mapping[str, Any]], block: str) -> list[dict[str, Any]]:
        """The messages with a block at the end of the first system message, or in a system message in front.

        A new list; nothing of the given one is changed. Without a block they stay as they are. Raises ValidationError
        for what are no messages, or no text.
        """
        if not isinstance(messages, list | tuple):
            validation.refuse("messages", type(messages).__name__, 'must be a list of {"role", "content"} dicts')
        for message in messages:
            named = validation.as_object(message, "a message").get("role")
            if not (named is None or isinstance(named, str)):
                validation.refuse("role", type(named).__name__, "must be a string")
            if not isinstance(content := message.get("content"), str | list | tuple | None):
                validation.refuse(
                    "content", type(content).__name__, "must be a string, None, or a list of content parts"
                )
        return context.inject_block(messages, validation.stored_text(block, "block"))

    def close(self) -> None:
        """Waits for what was saved to be stored and for recalls under way, at most for the time limit.

        What is not done then goes on in the background, as long as the memory is open.
        """
        self._writer.shutdown(wait=False)
        self._readers.shutdown(wait=False)
        with self._lock:
            left = set(self._jobs)
        if wait(left, self._seconds).not_done:
            logger.warning("a chat was closed while something of it was under way")


def _prompt(value: str | None) -> str | None:
    return None if value is None else validation.content(value, "rewrite_prompt")


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MAX_SECONDS:
        validation.refuse("time_limit", value, f"must be a number of seconds, above 0 and up to {MAX_SECONDS:g}")
    return float(value)
