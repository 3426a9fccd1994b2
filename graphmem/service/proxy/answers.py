"""Answers of a language model on their way to the client: their text, and how long they wait before they are stored."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any, NamedTuple

from graphmem.boundary import validation
from graphmem.chat_worker import ChatWorker
from graphmem.commands.types import DeleteItem, ItemCommand
from graphmem.concurrency import await_task
from graphmem.errors import GraphmemError
from graphmem.ingest.messages import message_commands
from graphmem.integrations.items import ItemStore
from graphmem.logs import log_text
from graphmem.memory import Memory
from graphmem.model import Scope
from graphmem.models.http import content_text
from graphmem.service import limits
from graphmem.stores.ledger import items

logger = logging.getLogger("graphmem")

# Answers that are stored in one transaction.
BATCH = 50
# Reasons for the end of an answer that is one: by itself, or at the limit of its length.
_FINISHED = frozenset({"stop", "length"})


class AnswerReader:
    """Reads the text of the first choice of an answer, whole or streamed, while its bytes pass by.

    `headers` are those of the answer, by names in lower case. What cannot be read has no text: bytes in an unknown
    encoding, an answer that breaks off, one without text.
    """

    def __init__(self, headers: Mapping[str, str]) -> None:
        self.is_stream = headers.get("content-type", "").startswith("text/event-stream")
        self._is_readable = headers.get("content-encoding", "identity") == "identity"
        self._size = 0
        # The bytes after the last line break of a stream, or all of an answer.
        self._rest = bytearray()
        self._parts: list[str] = []
        self._is_finished = False
        self._ends = set[str]()

    @property
    def ends(self) -> int:
        """How many marks of a stream's end were read: the reason for the end of the first choice, and "[DONE]"."""
        return len(self._ends)

    def feed(self, chunk: bytes) -> None:
        """Reads the next bytes, each of them once. Never raises."""
        self._size += len(chunk)
        self._is_readable &= self._size <= limits.MAX_ANSWER_BYTES
        if not self._is_readable:
            self._rest.clear()
            return
        if not self.is_stream or b"\n" not in chunk:
            self._rest += chunk
            return
        first, *lines, rest = chunk.split(b"\n")
        for line in (bytes(self._rest + first), *lines):
            if line.startswith(b"data:"):
                data = line.removeprefix(b"data:")
                if data.strip() == b"[DONE]":
                    self._ends.add("done")
                else:
                    self._read(data, "delta")
        self._rest = bytearray(rest)

    def text(self) -> str | None:
        """Returns the text of an answer that has come to its end; None without one."""
        if not self.is_stream:
            self._parts.clear()
            self._read(bytes(self._rest), "message")
        return "".join(self._parts).strip() or None if self._is_readable and self._is_finished else None

    def _read(self, data: bytes, part: str) -> None:
        try:
            choices = json.loads(data)["choices"]
            for choice in choices:
                if choice.get("index", 0) == 0:
                    self._parts.append(content_text((choice.get(part) or {}).get("content")) or "")
                    if reason := choice.get("finish_reason"):
                        self._is_finished |= reason in _FINISHED
                        self._ends.add("reason")
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            return  # what only the client understands


class Saving:
    """The storing of one chat, which goes on while its answer comes. For the event loop's thread only.

    `keep` begins to store the text of the answer; None: it is stored only when the client sends it back.
    """

    def __init__(self, chats: ChatWorker) -> None:
        self._chats = chats
        self._works: list[Future[bool]] = []
        self._seconds_left = limits.STORED_SECONDS
        self.keep: Callable[[str], None] | None = None

    def begin(self, submit: Callable[[], Future[bool]]) -> None:
        """Begins to store a part of the chat; one that cannot be taken is logged."""
        try:
            self._works.append(submit())
        except GraphmemError as error:
            logger.warning("a chat could not be taken (%s)", log_text(error))

    async def finish(self) -> None:
        """Waits until all parts so far are durable, or could not be stored.

        Gives up on a ledger that takes nothing for `STALLED_SECONDS`, and after `STORED_SECONDS` in all.
        """
        while self._works:
            done, begin = self._chats.done, monotonic()
            await await_task(self._works[0], min(limits.STALLED_SECONDS, self._seconds_left))
            self._seconds_left -= monotonic() - begin
            if self._works[0].done():
                del self._works[0]
            elif self._chats.done == done or self._seconds_left <= 0:
                self._works.clear()
                self._seconds_left = 0.0
                logger.warning(
                    "an answer goes on before the words of its chat are stored, because the ledger is slow or locked; "
                    "they are stored once it takes them, and lost if the process is killed before"
                )


class Place(NamedTuple):
    """Where an answer waits: the scope, namespace and key of its item, which have digests alone."""

    scope: Scope
    namespace: tuple[str, ...]
    key: str


class WaitingAnswers:
    """The last answers of chats, each until it counts.

    A client that regenerates an answer replaces it, and one that goes on with the chat sends back those that count.
    They wait as items of the ledger: so none is lost with the process, and each process sees those of the others.
    All but `place` is for the thread that stores (`ChatWorker.submit`), and raises GraphmemError.
    """

    def __init__(self, memory: Memory, chats: ChatWorker) -> None:
        self._memory, self._chats, self._items = memory, chats, ItemStore(memory)

    def place(self, scope: Scope, session_key: str, question: str, answer: str) -> Place:
        """Returns the place of an answer to a question of a chat."""
        keyed = self._items.keyed
        return Place(scope, (*self._namespace(session_key), keyed(answer)), keyed(question))

    def _namespace(self, session_key: str) -> tuple[str, ...]:
        return items.PROXY_ANSWERS, self._items.keyed(session_key)

    def add(self, place: Place, turns: Sequence[Mapping[str, Any]], new: int, session_key: str, at: datetime) -> None:
        """Keeps an answer waiting, in place of an earlier one to the same question.

        `turns` are the end of the chat with the answer, `new` the number of those that are not stored: the answer, and
        what the model said while it called tools. They get the time `at`.
        """
        memory, engine = self._memory, self._memory.engine
        with self._items.reading():  # shared by the reads
            changes = self._deletions(place.scope, session_key, {place.key})
            identified = self._chats.rounds_with_ids(place.scope, turns, 1, session_key)[-new:]
        messages = validation.message_list(
            [{**one, "timestamp": at} for one in identified], now=at, limits=memory.limits
        )
        # Before they are written, as for a memory. `settle` hands over what the hook has returned.
        hook, digests = engine.settings.before_store, engine.ledger.digests
        value = [
            {
                "role": one.message.role,
                "content": one.message.text,
                "name": one.message.name,
                "id": one.message.id,
                "timestamp": one.message.at.isoformat(),
                "metadata": dict(one.metadata),
            }
            for one in message_commands(messages, place.scope, digests, before_store=hook)
        ]
        if value:
            changes.append(self._items.put_command(*place, value))
        self._items.write(changes)

    def resolve(self, scope: Scope, session_key: str, texts: Collection[str]) -> None:
        """Drops what waits of a chat and has its question or answer among the texts that the client sends back.

        Those texts say which answers count. A client may have cut off the one or the other.
        """
        if changes := self._deletions(scope, session_key, set(map(self._items.keyed, texts))):
            self._items.write(changes)

    def _deletions(self, scope: Scope, session_key: str, digests: Collection[str]) -> list[ItemCommand]:
        with self._items.reading() as connection:
            places = items.places(connection, scope, self._namespace(session_key))
        return [  # an answer among the texts is stored as part of the chat
            DeleteItem(scope, namespace, key, is_erasure=namespace[-1] not in digests)
            for namespace, key in places
            if key in digests or namespace[-1] in digests
        ]

    def older_than(self, seconds: float) -> list[list[Place]]:
        """Returns the places of all answers that have waited so long, the longest first, in batches of one scope."""
        with self._items.reading() as connection:
            found = items.changed_before(
                connection, (items.PROXY_ANSWERS,), datetime.now(UTC) - timedelta(seconds=seconds)
            )
        batches: list[list[Place]] = []
        for item in found:
            if not batches or batches[-1][0].scope != item.scope or len(batches[-1]) == BATCH:
                batches.append([])
            batches[-1].append(Place(item.scope, item.namespace, item.key))
        return batches

    def settle(self, batch: Sequence[Place], may_store: Callable[[Scope], bool]) -> None:
        """Stores the answers of one scope that still wait, unless its chats are stored no longer; they wait no more."""
        found = [item for place in batch if (item := self._items.get(*place)) is not None]
        if not found:
            return
        scope = found[0].scope
        messages = [message for item in found for message in json.loads(item.value)]
        is_stored = may_store(scope) and self._chats.add(scope, messages)
        self._items.write(
            [DeleteItem(item.scope, item.namespace, item.key, is_erasure=not is_stored) for item in found]
        )
