"""Tells the program's handlers what happens: those of this process after each commit, named ones durably.

A handler without a name is told what this process does. One with a name follows the ledger's log (`event_log`), under a
lease: of all processes that serve a name one at a time calls its handler, and moves the cursor only after that, so that
nothing is lost with a process.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from inspect import isawaitable, iscoroutine
from threading import Condition, Event, Thread, current_thread
from time import monotonic
from typing import TYPE_CHECKING, Self
from uuid import uuid4

from graphmem.concurrency import start_thread
from graphmem.errors import CLOSED, GraphmemError, StoreError, StoreUnavailable, ValidationError
from graphmem.logs import log_text
from graphmem.model import EventType, MemoryEvent
from graphmem.stores.ledger import Ledger, event_log, outbox
from graphmem.stores.projection import LEASE
from graphmem.stores.projection_worker import retrying

if TYPE_CHECKING:
    from graphmem.commands.types import Command, Outcome

logger = logging.getLogger("graphmem")
# Events that wait for handlers without a name. One more displaces the oldest.
MAX_WAITING = 10_000
# Seconds that closing waits for a handler that is running, and `drain` for all of them.
CLOSE_SECONDS, DRAIN_SECONDS = 5.0, 30.0
# Seconds after which a follower looks for what other processes have committed.
POLL_SECONDS = 1.0
# A follower calls its handler for so many events, or for half of its lease, between two moves of its cursor.
FOLLOWED_BATCH, FOLLOWED_SECONDS = 100, LEASE / 2

Handler = Callable[[MemoryEvent], object]


class TryLater(GraphmemError):
    """A handler did not take an event; it is to be called again after `pause` seconds at the earliest."""

    pause = 0.0


class HandlerFailed(GraphmemError):
    """A handler raised an error, whose class the text names: what the error says may quote a memory.

    `pause` are the seconds after which it is called again at the earliest.
    """

    is_loggable = True

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"a handler failed ({type(error).__name__})")
        self.pause = error.pause if isinstance(error, TryLater) else 0.0


class Subscription:
    """A handler that is told of events, until `close` or the end of a `with` block."""

    def __init__(self, event_type: EventType, handler: Handler, end: Callable[[Subscription, bool], None]) -> None:
        self.event_type = event_type
        self.handler = handler
        self._end = end

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self, *, wait: bool = True) -> None:
        """Ends the subscription: none of its calls begins any more. May be repeated.

        Waits for a call that is running, at most `CLOSE_SECONDS`, unless `wait` is False. A name stays where it is in
        the log; whoever subscribes with it again is told what happened since.
        """
        self._end(self, wait)


class EventBus:
    """The handlers of one engine, of which it is an observer. Safe to use from several threads.

    `tell` returns at once: one thread calls the handlers without a name, one event after the other. A handler that
    fails is logged, and the next one is called all the same. Each follower has a thread of its own.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._subscriptions: tuple[Subscription, ...] = ()
        self._followers: dict[str, Follower] = {}
        self._changed = Condition()  # of all that follows
        self._waiting: deque[MemoryEvent] = deque()
        self._running: Subscription | None = None
        self._is_told = False  # an event is with the handlers
        self._thread: Thread | None = None
        self._closed = False

    def subscribe(self, event_type: EventType, handler: Handler) -> Subscription:
        """Calls a handler for what this process does from now on. Raises StoreUnavailable after `close`."""
        subscription = Subscription(event_type, handler, self._unsubscribe)
        with self._changed:
            self._check_open()
            if self._thread is None:
                # A daemon: a program must be able to end while a handler hangs.
                thread = Thread(target=self._call_handlers, name="graphmem-events", daemon=True)
                start_thread(thread)
                self._thread = thread
            self._subscriptions = (*self._subscriptions, subscription)
        return subscription

    def _unsubscribe(self, subscription: Subscription, wait: bool) -> None:  # noqa: FBT001
        with self._changed:
            self._subscriptions = tuple(one for one in self._subscriptions if one is not subscription)
            if wait and current_thread() is not self._thread:
                self._changed.wait_for(lambda: self._running is not subscription, CLOSE_SECONDS)

    def follow(
        self, event_type: EventType, handler: Handler, name: str, gives_up: GivesUp | None = None
    ) -> Subscription:
        """Calls a handler for all events of a type since the name was last served; of a new name, from now on.

        Raises ValidationError for a name that this process serves already, StoreUnavailable after `close`.
        """
        place = outbox.follower(event_type, name)
        follower = Follower(self._ledger, event_type, place, handler, gives_up)
        with self._changed:
            self._check_open()
            if place in self._followers:
                raise ValidationError(
                    "name: this process has a handler of this event under it; close that subscription, or use another",
                    argument="name",
                )
            self._followers[place] = follower
        try:
            with self._ledger.write([place]) as connection:
                event_log.follow(connection, event_type, name)
            follower.start()
        except BaseException:
            self._end_following(place)
            raise
        return Subscription(event_type, handler, lambda _, wait: self._end_following(place, follower, wait=wait))

    def _end_following(self, place: str, follower: Follower | None = None, *, wait: bool = True) -> None:
        with self._changed:
            if follower is None or self._followers.get(place) is follower:
                self._followers.pop(place, None)
        if follower is not None:
            follower.stop()
            if wait:
                follower.join(CLOSE_SECONDS)

    def forget(self, name: str) -> list[str]:
        """Deletes all that is kept for a name, and ends its subscriptions here; returns what it followed."""
        for place, follower in list(self._followers.items()):
            if event_log.name_of(place)[1] == name:
                self._end_following(place, follower)
        with self._ledger.write([outbox.follower(event_type, name) for event_type in EventType]) as connection:
            return event_log.unfollow(connection, name)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable(CLOSED)

    def has_handlers_of(self, event_type: EventType) -> bool:
        """Returns whether anybody in this process is told of these events."""
        followers = tuple(self._followers.values())
        return any(one.event_type is event_type for one in self._subscriptions) or any(
            one.event_type is event_type for one in followers
        )

    def tell(self, events: Sequence[MemoryEvent]) -> None:
        """Lets the handlers know of events, which have been committed."""
        if not events:
            return
        happened = {event.event_type for event in events}
        for follower in tuple(self._followers.values()):
            if follower.event_type.value in happened:
                follower.request()
        wanted = {one.event_type.value for one in self._subscriptions}
        told = [event for event in events if event.event_type in wanted]
        if not told:
            return
        with self._changed:
            self._waiting += told
            displaced = max(0, len(self._waiting) - MAX_WAITING)
            for _ in range(displaced):
                self._waiting.popleft()
            self._changed.notify_all()
        if displaced:
            logger.warning("%d events are told nobody: too many wait for slow handlers", displaced)

    def _call_handlers(self) -> None:
        while True:
            with self._changed:
                self._is_told = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    return
                event, self._is_told = self._waiting.popleft(), True
            for subscription in self._subscriptions:
                if subscription.event_type.value == event.event_type:
                    self._call(subscription, event)

    def _call(self, subscription: Subscription, event: MemoryEvent) -> None:
        with self._changed:
            if subscription not in self._subscriptions:  # closed meanwhile
                return
            self._running = subscription
        try:
            _call_handler(subscription.handler, event)
        except BaseException as error:  # noqa: BLE001  (the program's own code; nobody else would tell of it)
            logger.warning("the handler of an event failed (%s)", type(error).__name__)
        finally:
            with self._changed:
                self._running = None
                self._changed.notify_all()

    def drain(self) -> None:
        """Waits until the handlers were told all so far, for at most `DRAIN_SECONDS`; not for those that fail.

        Returns at once in the thread of a handler.
        """
        followers, deadline = tuple(self._followers.values()), monotonic() + DRAIN_SECONDS
        if current_thread() in {self._thread, *(one.thread for one in followers)}:
            return
        with self._changed:
            self._changed.wait_for(lambda: not (self._waiting or self._is_told), DRAIN_SECONDS)
        for follower in followers:
            follower.drain(max(0.0, deadline - monotonic()))

    def close(self) -> None:
        """Has the handlers without a name called for the events so far; ends all, for at most `CLOSE_SECONDS` each.

        Followers go on where they are when the memory is opened again.
        """
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
            followers, thread = list(self._followers.values()), self._thread
            self._followers.clear()
        for follower in followers:
            follower.stop()
        ended = [follower.join(CLOSE_SECONDS) for follower in followers]
        if thread is not None and thread is not current_thread():
            thread.join(CLOSE_SECONDS)
            ended.append(not thread.is_alive())
        if not all(ended):
            logger.warning("closed while the handler of an event was running")

    # --- as an observer of the engine -----------------------------------------------------------------------------

    def on_commit(
        self, _commands: Sequence[Command], _outcomes: Sequence[Outcome], events: Sequence[MemoryEvent]
    ) -> None:
        """Tells of what a commit did."""
        self.tell(events)


def _call_handler(handler: Handler, event: MemoryEvent) -> None:
    """Calls a handler; raises TypeError if it only returns what is to be awaited, which would have done nothing."""
    result = handler(event)
    if isawaitable(result):
        if iscoroutine(result):
            result.close()
        raise TypeError("the handler returned an awaitable; AsyncMemory.on awaits it")


def _pause(error: BaseException | None) -> float:
    return error.pause if isinstance(error, HandlerFailed) else 0.0


GivesUp = Callable[[BaseException, float], bool]
"""Takes the error of a handler, and for how many seconds it has failed at the event; tells whether to leave it."""


class Follower:
    """Calls one handler for each event of a type, in order, in a thread of its own; at least once, whoever is killed.

    A handler that fails is called again for the same event, after pauses as for a store that is away, until `gives_up`
    (None: never) says otherwise: then the event is a dead letter. `place` is `outbox.follower` of its name. A call
    that takes longer than `projection.LEASE` seconds may be repeated by another process meanwhile; whichever ends first
    moves the cursor.
    """

    def __init__(
        self, ledger: Ledger, event_type: EventType, place: str, handler: Handler, gives_up: GivesUp | None
    ) -> None:
        self._ledger = ledger
        self.event_type = event_type
        self._place = place
        name = event_log.name_of(place)[1]
        self._called = name if gives_up is not None else "a handler"  # of webhooks, whose names are configured
        self._handler = handler
        self._gives_up = gives_up
        self._lease_holder = str(uuid4())
        self._failing_since: float | None = None
        self._closing = Event()
        self._changed = Condition()  # of the two numbers: of rounds that were asked for, and the last one that ended
        self._requested, self._done = 1, 0
        self.thread = Thread(target=self._run, name="graphmem-follower", daemon=True)

    def start(self) -> None:
        """Begins to call the handler."""
        start_thread(self.thread)

    def request(self) -> int:
        """Asks for a round at once, and returns its number."""
        with self._changed:
            self._requested += 1
            self._changed.notify_all()
            return self._requested

    def drain(self, timeout: float) -> None:
        """Waits until the handler was called for all so far, unless it fails."""
        wanted = self.request()
        with self._changed:
            self._changed.wait_for(
                lambda: self._done >= wanted or self._failing_since is not None or self._closing.is_set(), timeout
            )

    def stop(self) -> None:
        """Lets no further call of the handler begin."""
        self._closing.set()
        with self._changed:
            self._changed.notify_all()

    def join(self, timeout: float) -> bool:
        """Waits for a call that is running; returns whether it has ended. Does not wait for the thread that asks."""
        if not self.thread.is_alive() or self.thread is current_thread():
            return True
        self.thread.join(timeout)
        return not self.thread.is_alive()

    def _run(self) -> None:
        while not self._closing.is_set():
            wanted = self._requested
            try:
                retrying(self._closing, HandlerFailed, StoreError, least_pause=_pause)(self._catch_up)
            except GraphmemError as error:
                if not self._closing.is_set():
                    logger.warning("events could not be told (%s); they stay recorded", log_text(error))
            with self._changed:
                self._done = wanted
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._requested > self._done or self._closing.is_set(), POLL_SECONDS)

    def _catch_up(self) -> None:
        """Calls the handler for all events so far, unless another process has the lease. Raises HandlerFailed."""
        while not self._closing.is_set():
            with self._ledger.read() as connection:
                cursor = outbox.cursor(connection, self._place)
                if cursor is None or event_log.last_row(connection, self.event_type) <= cursor:
                    return  # without a cursor the name was forgotten
            with self._ledger.write([self._place]) as connection:
                cursor = outbox.cursor(connection, self._place)
                if cursor is None or not outbox.acquire_lease(connection, self._place, self._lease_holder, LEASE):
                    return
                # Behind the last event there may be rows of others, which are not to be looked through again. Their end
                # is read first: what is committed meanwhile may be before it, and in no later batch.
                upto = event_log.last_row(connection, self.event_type)
                batch = event_log.after(connection, self.event_type, cursor, FOLLOWED_BATCH)
                if batch:
                    upto = batch[-1].row if len(batch) == FOLLOWED_BATCH else max(upto, batch[-1].row)
            self._call_for(batch, upto)

    def _call_for(self, batch: Sequence[event_log.LoggedEvent], upto: int) -> None:
        """Calls the handler for each event, then moves the cursor behind those that it took, and gives up the lease.

        With all of them it moves to the row `upto`.
        """
        deadline = monotonic() + FOLLOWED_SECONDS
        done: int | None = None
        refused: list[tuple[event_log.LoggedEvent, str]] = []
        try:
            for logged in batch:
                if self._closing.is_set() or monotonic() > deadline:
                    break
                if (error := self._call(logged.event)) is not None:
                    refused.append((logged, error))
                done = logged.row
            else:
                done = upto
        finally:
            with self._ledger.write([self._place]) as connection:
                if done is not None:
                    event_log.advance(connection, self._place, done)
                for logged, error in refused:
                    letter = {logged.event.payload["event_id"]: error}
                    outbox.add_dead_letters(connection, self._place, letter, logged.row)
                outbox.release_lease(connection, self._place, self._lease_holder)

    def _call(self, event: MemoryEvent) -> str | None:
        """Calls the handler; returns the error for which the event is given up, None if it took the event."""
        try:
            _call_handler(self._handler, event)
        except BaseException as error:  # noqa: BLE001  (the program's own code)
            is_first = self._failing_since is None
            began = self._failing_since = monotonic() if self._failing_since is None else self._failing_since
            if self._gives_up is not None and self._gives_up(error, monotonic() - began):
                logger.warning("an event is left as a dead letter of %s (%s)", self._called, log_text(error))
                self._failing_since = None
                return log_text(error)
            if is_first:
                logger.warning("%s failed at an event (%s); it is called again", self._called, log_text(error))
                with self._changed:
                    self._changed.notify_all()
            raise HandlerFailed(error) from None
        if self._failing_since is not None:
            logger.warning("%s works again after %.0f s", self._called, monotonic() - self._failing_since)
            self._failing_since = None
        return None
