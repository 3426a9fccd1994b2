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

from graphmem import arguments
from graphmem.errors import GraphmemError, ValidationError
from graphmem.memory import Memory
from graphmem.model import Message, View
from graphmem.providers.base import LanguageModel
from graphmem.recall import inject
from graphmem.recall.channels import Question
from graphmem.recall.ladder import Asking, Step, climb
from graphmem.recall.search import Answer, search
from graphmem.remember.plan import UNSET, Unset
from graphmem.remember.rounds import Chat
from graphmem.threads import Pool

logger = logging.getLogger("graphmem")

RECALLING = 4
MOST_ROUNDS, MOST_SECONDS = 100, 600.0


@dataclass(frozen=True, slots=True)
class _Recall:
    """One recall: at most so many memories, of at least that similarity, until a moment of the monotonic clock."""

    asking: Asking
    most: int | None
    threshold: float | None
    rewrites: bool
    until: float


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
        self._scope = arguments.required_scope(user_id, agent_id, run_id)[0]
        self._names = {"user": user_name, "assistant": agent_name}
        self._rounds = arguments.count(rounds, "rounds", 1, MOST_ROUNDS)
        self._seconds = _seconds(time_limit)
        self._rewrite = arguments.flag(rewrite, "rewrite")
        self._prompt = _prompt(rewrite_prompt)
        self._chat = Chat(memory._house.ledger.digests.keyed)  # noqa: SLF001  (as below)
        self._lock = Lock()
        self._jobs: set[Future[None]] = set()
        # One thread: what is saved first is stored first. Recalls do not wait for it.
        self._writer = Pool(1, thread_name_prefix="graphmem-chat-saving")
        self._readers = Pool(RECALLING, thread_name_prefix="graphmem-chat-recall")

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
                told = self._chat.numbered(readable, self._rounds)
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
        there is one (`graphmem.recall.ladder`). After the time limit, or an error: what was found until then. Memories
        that have nothing to do with what is asked are left out, as in `Memory.context`, whose `threshold` this is.
        `rewrite` and `rewrite_prompt` stand in for those of the link, for this call.
        """
        until = monotonic() + self._seconds
        found: list[Step] = []
        try:
            most = arguments.top_k(top_k, most=self._memory.limits.max_top_k)
            room = arguments.count(max_chars, "max_chars", 1, 1_000_000)
            only_related = isinstance(threshold, Unset)
            least = None if isinstance(threshold, Unset) else arguments.threshold(threshold)
            rewrites = self._rewrite if rewrite is None else arguments.flag(rewrite, "rewrite")
            asking = self._asking(question, recent, _prompt(rewrite_prompt) or self._prompt, only_related=only_related)
            self._look(_Recall(asking, most, least, rewrites, until), found)
            return inject.block(found[-1].hits[:most], room) if found else ""
        except GraphmemError as error:
            logger.warning("a recall failed (%s)", type(error).__name__)
            return ""

    def _asking(
        self, question: str, recent: Sequence[Mapping[str, Any]], prompt: str | None, *, only_related: bool
    ) -> Asking:
        asked = arguments.query(question)
        turns = self._turns(recent)
        if turns and turns[-1].content.strip() == asked.strip():
            turns.pop()
        user, char = self._names["user"] or self._scope.user_id, self._names["assistant"] or self._scope.agent_id
        return Asking(asked, turns, user or "", char or "", prompt, only_related)

    def _turns(self, recent: Sequence[Mapping[str, Any]]) -> list[Message]:
        """The turns given, without those that cannot be read."""
        limits, now = self._memory.limits, datetime.now(UTC)
        try:
            last = list(recent)[-limits.max_messages :]
        except TypeError:
            arguments.refuse("recent", recent, "must be a list of messages")
        turns: list[Message] = []
        for message in last:
            try:
                turns += arguments.messages([message], now=now, limits=limits)
            except ValidationError:
                logger.warning("a message of a recent conversation could not be read, and is left out")
        return turns

    def _look(self, recall: _Recall, found: list[Step]) -> None:
        """Fills `found` step by step, until the time is up; what is under way then ends by itself."""
        until = recall.until
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

    def _climb(self, recall: _Recall, found: list[Step]) -> None:
        house = self._memory._house  # noqa: SLF001  (a part of the door that stands in a file of its own)
        house.check_embedder()
        model: LanguageModel | None = getattr(house, "llm", None) if recall.rewrites else None
        space = self._scope.space if self._scope.user_id is not None else None

        def find(query: str) -> Answer:
            house.check_open()
            view = View(self._scope, datetime.now(UTC), space)
            question = Question(query, view, recall.most, threshold=recall.threshold, relates=True, parts=inject.LEAST)
            return search(question, house.stores)

        for step in climb(recall.asking, find, model, lambda: recall.until - monotonic()):
            found.append(step)  # noqa: PERF402  (one by one: `recall` may take what is there while this goes on)

    def inject(self, messages: Sequence[Mapping[str, Any]], block: str) -> list[dict[str, Any]]:
        """The messages with a block at the end of the first system message, or in a system message in front.

        A new list; nothing of the given one is changed. Without a block they stay as they are. Raises ValidationError
        for what are no messages, or no text.
        """
        if not isinstance(messages, list | tuple):
            arguments.refuse("messages", type(messages).__name__, 'must be a list of {"role", "content"} dicts')
        for message in messages:
            named = arguments.fields(message, "a message").get("role")
            if not (named is None or isinstance(named, str)):
                arguments.refuse("role", type(named).__name__, "must be a string")
            if not isinstance(content := message.get("content"), str | list | tuple | None):
                arguments.refuse(
                    "content", type(content).__name__, "must be a string, None, or a list of content parts"
                )
        return inject.injected(messages, arguments.stored_text(block, "block"))

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
    return None if value is None else arguments.content(value, "rewrite_prompt")


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MOST_SECONDS:
        arguments.refuse("time_limit", value, f"must be a number of seconds, above 0 and up to {MOST_SECONDS:g}")
    return float(value)
