"""HTTP connections of one process: how many there may be, and how long a client may take to send and to receive.

uvicorn itself waits without end for the head of a request and for a client that takes nothing of its answer, and takes
as many connections as come: a client without a key could hold all that a process may have.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from itertools import chain, islice
from time import monotonic
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from graphmem.service import limits
from graphmem.service.problems import Problem

try:
    import resource
except ImportError:  # Windows, where a process may have as many as it likes
    resource = None  # type: ignore[assignment]

logger = logging.getLogger("graphmem")


def max_connections() -> int:
    """Returns how many connections this process may have.

    A proxied chat has one more, to the endpoint; some descriptors are left for stores and files.
    """
    if resource is None:
        return limits.MAX_CONNECTIONS
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if descriptors == resource.RLIM_INFINITY:
        return limits.MAX_CONNECTIONS
    return max(1, min(limits.MAX_CONNECTIONS, (descriptors - limits.OTHER_DESCRIPTORS) // 2))


def raise_descriptor_limit() -> None:
    """Lets this process have as many descriptors as the system allows it, for up to `limits.MAX_CONNECTIONS`."""
    if resource is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * limits.MAX_CONNECTIONS + limits.OTHER_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (needed if hard == resource.RLIM_INFINITY else min(needed, hard), hard)
        )


class _Occasions:
    """Tells whether a warning is due whose cause may come thousands of times: once in `limits.WARNING_SECONDS`."""

    _next = 0.0

    def is_due(self) -> bool:
        now = monotonic()
        if now < self._next:
            return False
        self._next = now + limits.WARNING_SECONDS
        return True


_too_many, _loop_errors = _Occasions(), _Occasions()


def log_loop_error(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Logs an error that no task has caught in one sentence; asyncio logs a stack each time."""
    if _loop_errors.is_due():
        error = context.get("exception")
        logger.warning(
            "the event loop could not do a part of its work (%s); an OSError may mean too few open files",
            type(error).__name__,
        )


class _Turns:
    """Lets connections begin requests, in their order, `limits.REQUESTS_PER_PASS` in each pass of the event loop.

    Thousands that begin in one pass would let everything else wait for all of them, at each step. A pipelined request,
    which came before the answer to the one in front of it, comes after all others.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # Keys of dictionaries: a connection that ends leaves at once.
        self._sent, self._pipelined = dict[Connection, None](), dict[Connection, None]()
        self._is_scheduled = False

    def __contains__(self, connection: Connection) -> bool:
        return connection in self._sent or connection in self._pipelined

    def add(self, connection: Connection, *, is_pipelined: bool) -> None:
        (self._pipelined if is_pipelined else self._sent)[connection] = None
        self._schedule()

    def remove(self, connection: Connection) -> None:
        self._sent.pop(connection, None)
        self._pipelined.pop(connection, None)

    def _schedule(self) -> None:
        if not self._is_scheduled and (self._sent or self._pipelined):
            self._is_scheduled = True
            self._loop.call_soon(self._take)

    def _take(self) -> None:
        self._is_scheduled = False
        try:
            for connection in list(islice(chain(self._sent, self._pipelined), limits.REQUESTS_PER_PASS)):
                self.remove(connection)
                connection.take_turn()
        finally:
            self._schedule()


class Connection(H11Protocol):
    """A connection that ends if its client takes too long.

    The head of a request may take `limits.HEAD_SECONDS`, and as long the rest of a body that nobody reads, because the
    request is answered. The client may take nothing of an answer for `limits.STALL_SECONDS`; where the answers that
    wait for all clients have more than `limits.MAX_UNSENT_BYTES`, the connection with most of them ends. Where there
    are too many connections, a new one takes the place of the one that has waited longest for any of these, for a
    request, or for its turn; where all have requests that are being answered, it gets 503. Connections take turns to
    begin requests.
    """

    _all: ClassVar[set[Connection]] = set()
    # Those without a request that is being answered, the one that has waited longest first.
    _waiting: ClassVar[dict[Connection, None]] = {}
    _turns_of_loops: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, _Turns]] = WeakKeyDictionary()

    _wait_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None
    _is_between_answers = False

    @property
    def _turns(self) -> _Turns:
        return self._turns_of_loops.setdefault(self.loop, _Turns(self.loop))

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        # All that a client does not take, however little, counts and has an end.
        transport.set_write_buffer_limits(high=0)
        self._all.add(self)
        most = max_connections()
        if len(self._all) > most:
            if _too_many.is_due():
                logger.warning(
                    "more than %d connections: new ones take the place of those that wait for a request, or get 503; "
                    "the system's limit of open files may allow more",
                    most,
                )
            if not self._waiting:
                transport.write(_refusal())
                transport.close()
                return
            oldest = next(iter(self._waiting))
            oldest.transport.abort()
            oldest.forget()
        self._watch_client()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch_client()

    def on_response_complete(self) -> None:
        self._is_between_answers = True
        super().on_response_complete()
        self._is_between_answers = False
        self._watch_client()

    def handle_events(self) -> None:
        """Waits for a turn where the next request may begin; the rest of one that has begun is read at once."""
        if self.conn.their_state is not h11.IDLE:
            super().handle_events()
        elif self not in self._turns and self.conn.trailing_data[0]:
            self._unset_keepalive_if_required()
            self._turns.add(self, is_pipelined=self._is_between_answers)

    def take_turn(self) -> None:
        """Begins the next request, if its head is complete."""
        if not self.transport.is_closing():
            super().handle_events()
            self._watch_client()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_timer = self.loop.call_later(limits.STALL_SECONDS, self.transport.abort)
        unsent = {one: one.transport.get_write_buffer_size() for one in self._all if one.flow.write_paused}
        if sum(unsent.values()) > limits.MAX_UNSENT_BYTES:
            max(unsent, key=lambda one: unsent[one]).transport.abort()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  (uvicorn's words, in its own form)
        """Refuses a request that is no HTTP, in the form of all other errors, and closes the connection."""
        answer, headers = _answer(400, "The request is no valid HTTP/1.1.", "invalid_argument", {})
        self.transport.write(self.conn.send(h11.Response(status_code=400, headers=headers, reason=b"Bad Request")))
        self.transport.write(self.conn.send(h11.Data(data=answer)))
        self.transport.write(self.conn.send(h11.EndOfMessage()))
        self.transport.close()

    def _unsupported_upgrade_warning(self) -> None:
        """Logs nothing, where uvicorn has two lines: a server may answer without the upgrade, as any request does."""

    def connection_lost(self, exc: Exception | None) -> None:
        self.forget()
        super().connection_lost(exc)

    def _watch_client(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()
        elif self not in self._waiting and self in self._all:
            self._waiting[self] = None
            self._wait_timer = self.loop.call_later(limits.HEAD_SECONDS, self.transport.close)

    def _stop_waiting(self) -> None:
        self._waiting.pop(self, None)
        if self._wait_timer is not None:
            self._wait_timer.cancel()
            self._wait_timer = None

    def forget(self) -> None:
        """Leaves this connection out of the count."""
        self._stop_waiting()
        self._turns.remove(self)
        self._all.discard(self)


def _refusal() -> bytes:
    """Returns the answer to a connection for which there is no room, without its request having been read."""
    words = "There are too many connections; try again in a second."
    answer, headers = _answer(503, words, "overloaded", {"Retry-After": "1"})
    lines = [b"HTTP/1.1 503 Service Unavailable", *(name + b": " + value for name, value in headers)]
    return b"\r\n".join([*lines, b"", answer])


def _answer(status: int, words: str, code: str, headers: dict[str, str]) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """Returns body and headers of a problem that the application does not see; the connection ends with it."""
    request_id = secrets.token_hex(8)
    problem = Problem(status, words, code, {**headers, "Connection": "close", "X-Request-ID": request_id})
    answer = problem.response(request_id, "")
    return bytes(answer.body), answer.raw_headers
