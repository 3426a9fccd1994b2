"""Answers of a language model on their way to the client: their text, and how long they wait before they are stored."""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import NamedTuple

# The most bytes of an answer that are read for its text, and the most answers that wait.
MAX_ANSWER_BYTES = 4 * 1024 * 1024
MAX_WAITING = 1000
# Reasons for the end of an answer that is one: by itself, or at the limit of its length.
_FINISHED = frozenset({"stop", "length"})


class AnswerReader:
    """Reads the text of the first choice of an answer, whole or streamed, while its bytes pass by.

    `headers` are those of the answer, by names in lower case. What cannot be read has no text: bytes in an unknown
    encoding, an answer that breaks off, one without text.
    """

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._is_stream = headers.get("content-type", "").startswith("text/event-stream")
        self._is_readable = headers.get("content-encoding", "identity") == "identity"
        self._size = 0
        self._rest = bytearray()
        self._parts: list[str] = []
        self._is_finished = False

    def feed(self, chunk: bytes) -> None:
        """Reads the next bytes. Never raises."""
        self._size += len(chunk)
        self._is_readable &= self._size <= MAX_ANSWER_BYTES
        if not self._is_readable:
            return
        self._rest += chunk
        if self._is_stream:
            *lines, self._rest = self._rest.split(b"\n")
            for line in lines:
                if line.startswith(b"data:"):
                    self._read(line[len(b"data:") :], "delta")

    def text(self) -> str | None:
        """Returns the text of an answer that has come to its end; None without one."""
        if not self._is_stream:
            self._read(bytes(self._rest), "message")
        return "".join(self._parts).strip() or None if self._is_readable and self._is_finished else None

    def _read(self, data: bytes | bytearray, part: str) -> None:
        try:
            choices = json.loads(data)["choices"]
            for choice in choices:
                if choice.get("index", 0) == 0:
                    content = (choice.get(part) or {}).get("content")
                    if isinstance(content, str):
                        self._parts.append(content)
                    self._is_finished |= choice.get("finish_reason") in _FINISHED
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            return  # "[DONE]", or what only the client understands


class _Waiting(NamedTuple):
    """An answer that waits: the timer that stores it, its text, and what stores it."""

    timer: asyncio.TimerHandle
    text: str
    store: Callable[[], None]


class WaitingAnswers:
    """The last answers of chats, each until it is kept: it is stored once so many seconds passed without another one.

    A client that regenerates an answer replaces it, and one that goes on with the chat sends back those that count.
    For the event loop's thread only.
    """

    def __init__(self, settle_seconds: float) -> None:
        self._seconds = settle_seconds
        # By the key of the chat and the text of the question.
        self._waiting: OrderedDict[tuple[Hashable, str], _Waiting] = OrderedDict()

    def add(self, chat: Hashable, question: str, answer: str, store: Callable[[], None]) -> None:
        """Keeps the answer to a question of a chat waiting, in place of an earlier one. `store` stores it."""
        key = chat, question
        self._drop(key)
        timer = asyncio.get_running_loop().call_later(self._seconds, self._settle, key)
        self._waiting[key] = _Waiting(timer, answer, store)
        if len(self._waiting) > MAX_WAITING:
            self._settle(next(iter(self._waiting)))

    def resolve(self, chat: Hashable, texts: Collection[str]) -> None:
        """Drops what waits of a chat and has its question or answer among the texts that the client sends back.

        Those texts say which answers count. A client may have cut off the one or the other.
        """
        for key, waiting in list(self._waiting.items()):
            if key[0] == chat and (key[1] in texts or waiting.text in texts):
                self._drop(key)

    def store_all(self) -> None:
        """Stores all answers that wait."""
        while self._waiting:
            self._settle(next(iter(self._waiting)))

    def _drop(self, key: tuple[Hashable, str]) -> None:
        if waiting := self._waiting.pop(key, None):
            waiting.timer.cancel()

    def _settle(self, key: tuple[Hashable, str]) -> None:
        waiting = self._waiting.pop(key)
        waiting.timer.cancel()
        waiting.store()
