"""Answers of a language model on their way to the client: their text, and how long they wait before they are stored."""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from starlette.datastructures import Headers

# The most bytes of an answer that are read for its text, and the most answers that wait.
MAX_ANSWER_BYTES = 4 * 1024 * 1024
MAX_WAITING = 1000
# Reasons for the end of an answer that is one: by itself, or at the limit of its length.
_FINISHED = frozenset({"stop", "length"})


class AnswerReader:
    """Reads the text of the first choice of an answer, whole or streamed, while its bytes pass by.

    What cannot be read has no text: bytes in an unknown encoding, an answer that breaks off, one without text.
    """

    def __init__(self, headers: Headers) -> None:
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


class WaitingAnswers:
    """The last answers of chats, each until it is kept: it is stored once so many seconds passed without another one.

    A client that regenerates an answer replaces it, and one that goes on with the chat sends back those that count.
    For the event loop's thread only.
    """

    def __init__(self, settle_seconds: float) -> None:
        self._seconds = settle_seconds
        self._waiting: OrderedDict[Any, tuple[asyncio.TimerHandle, Callable[[], None]]] = OrderedDict()

    def add(self, question: Any, store: Callable[[], None]) -> None:
        """Keeps an answer to a question (its key) waiting, in place of an earlier one. `store` stores it."""
        self.drop(question)
        timer = asyncio.get_running_loop().call_later(self._seconds, self._settle, question)
        self._waiting[question] = timer, store
        if len(self._waiting) > MAX_WAITING:
            self._settle(next(iter(self._waiting)))

    def drop(self, question: Any) -> None:
        """Forgets the answer to a question: the client has gone on, or asks for another one."""
        if waiting := self._waiting.pop(question, None):
            waiting[0].cancel()

    def store_all(self) -> None:
        """Stores all answers that wait."""
        while self._waiting:
            self._settle(next(iter(self._waiting)))

    def _settle(self, question: Any) -> None:
        timer, store = self._waiting.pop(question)
        timer.cancel()
        store()
