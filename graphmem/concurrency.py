"""Thread helpers: pools that raise graphmem's errors, calls that may hang, a lock with an order, work that can be
stopped or that a library ends, work that gives way to searches, BLAS threads.

The products of a search are too small for several threads, and idle BLAS threads wait by spinning: on two cores they
took half of the time of the parser and the model. Uses of the limit are counted: the first sets it, the last lifts it.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import cache, partial
from itertools import count
from math import inf
from threading import BoundedSemaphore, Condition, Lock, Thread, current_thread, main_thread
from time import monotonic, sleep
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary, finalize

from graphmem.errors import CLOSED, NO_THREAD, StoreUnavailable

P = ParamSpec("P")
R = TypeVar("R")
K = TypeVar("K")
T = TypeVar("T")

# Seconds after the end of a search in which the next one is likely; how long work that can wait sleeps for each second
# of work while there are searches, and the longest sleep in seconds.
LATELY, REST, LONGEST_REST = 0.25, 4.0, 1.0

_limiters_lock = Lock()
_limiters: list[Any] = []
_must_stop: ContextVar[Callable[[], bool] | None] = ContextVar("_must_stop", default=None)


def take_next(waiting: dict[K, deque[T]], owner: K) -> T:
    """Removes and returns the oldest of what waits for an owner; his others wait for the turns of all other owners."""
    own = waiting.pop(owner)
    oldest = own.popleft()
    if own:
        waiting[owner] = own
    return oldest


class Pool(ThreadPoolExecutor):
    """A thread pool whose `submit` raises StoreUnavailable after `shutdown`, or if no thread can be started."""

    _is_closed = False

    @property
    def takes_tasks(self) -> bool:
        """False after `shutdown`, if no thread can be started, and once the program's main thread has ended."""
        try:
            self.submit(lambda: None)
        except StoreUnavailable:
            return False
        return True

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        try:
            return super().submit(fn, *args, **kwargs)
        except RuntimeError as error:
            raise StoreUnavailable(CLOSED if self._is_closed else NO_THREAD) from error

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002
        self._is_closed = True
        super().shutdown(wait, cancel_futures=cancel_futures)


class DrainablePool(Pool):
    """A pool whose tasks can be waited for, also after `shutdown`, and whose owners of tasks can take turns."""

    def __init__(self, max_workers: int, thread_name_prefix: str) -> None:
        super().__init__(max_workers, thread_name_prefix)
        self._tasks_lock = Lock()
        self._tasks: set[Future[Any]] = set()
        # Tasks that wait for a thread, by owner: the one whose turn it is comes first.
        self._waiting: dict[str, deque[tuple[Future[Any], Callable[[], Any]]]] = {}

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        task = super().submit(fn, *args, **kwargs)
        with self._tasks_lock:
            self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def submit_in_turn(self, owner: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Submits a task that begins in its owner's turn: it does not wait for all tasks of another owner.

        The tasks of one owner begin in the order of the calls.
        """
        task: Future[R] = Future()
        with self._tasks_lock:
            super().submit(self._run_next)
            self._waiting.setdefault(owner, deque()).append((task, partial(fn, *args, **kwargs)))
            self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def _run_next(self) -> None:
        with self._tasks_lock:
            if not self._waiting:  # no thread could be started for this run, but the executor has queued it
                return
            task, call = take_next(self._waiting, next(iter(self._waiting)))
        if not task.set_running_or_notify_cancel():
            return
        try:
            result = call()
        except BaseException as error:  # noqa: BLE001  (whoever waits for the task gets it)
            task.set_exception(error)
        else:
            task.set_result(result)

    def _forget(self, task: Future[Any]) -> None:
        with self._tasks_lock:
            self._tasks.discard(task)

    def drain(self, timeout: float | None = None) -> bool:
        """Waits for the tasks submitted so far; returns False if `timeout` seconds were not enough."""
        with self._tasks_lock:
            tasks = set(self._tasks)
        return not wait(tasks, timeout).not_done

    def abandon(self, task: Future[Any]) -> None:
        """Cancels a task that has not begun; `drain` no longer waits for one that has."""
        task.cancel()
        self._forget(task)


async def await_task(task: Future[Any], timeout: float) -> None:  # noqa: ASYNC109  (asyncio.timeout would raise)
    """Waits up to `timeout` seconds for a task of a pool; does not raise its error."""
    waiter = asyncio.wrap_future(task)
    try:
        await asyncio.wait([waiter], timeout=timeout)
    finally:  # an event loop that ends before the task must not be called, nor warn of an error that nobody read
        if not waiter.cancel() and not waiter.cancelled():
            waiter.exception()


class SearchLoad:
    """Tells work that can wait whether searches are running in this process. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._running = 0
        self._last_end = -inf

    @contextmanager
    def searching(self) -> Iterator[None]:
        """Counts a search for as long as it runs."""
        with self._lock:
            self._running += 1
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1
                self._last_end = monotonic()

    @property
    def is_high(self) -> bool:
        """Whether a search is running, or has ended so lately that the next one is likely."""
        with self._lock:
            return self._running > 0 or monotonic() - self._last_end < LATELY


class GivingWay:
    """Lets work that can wait leave most of the time to searches, while there are any.

    A thread that computes keeps the interpreter for 5 ms after each statement of a search, and a lower priority of the
    thread would have it keep the interpreter while it does not run. So it sleeps, for `REST` times as long as it has
    worked: what it does between two sleeps is the longest that it holds up a search.
    """

    def __init__(self, load: SearchLoad) -> None:
        self._load = load
        self._began = monotonic()

    def rest(self) -> bool:
        """Sleeps if searches are running; returns whether it did."""
        gives_way = self._load.is_high
        if gives_way:
            sleep(min(LONGEST_REST, REST * (monotonic() - self._began)))
        self._began = monotonic()
        return gives_way


class OrderedLock:
    """A lock that threads get in the order in which they asked for it, urgent ones before all others.

    A plain lock may be taken again and again by the thread that has just released it, while the others wait.
    """

    def __init__(self) -> None:
        self._changed = Condition()
        self._numbers = count()
        self._waiting: set[tuple[bool, int]] = set()  # (not urgent, number): the smallest is the next holder
        self._holder: tuple[bool, int] | None = None

    @property
    def is_held(self) -> bool:
        """Whether a thread holds the lock."""
        return self._holder is not None

    @contextmanager
    def turn(self, *, urgent: bool = False) -> Iterator[None]:
        """Waits for the lock and holds it. Not reentrant."""
        ticket = (not urgent, next(self._numbers))
        try:
            with self._changed:
                self._waiting.add(ticket)
                self._changed.wait_for(lambda: self._holder is None and min(self._waiting) == ticket)
                self._waiting.remove(ticket)
                self._holder = ticket
            yield
        finally:  # also if a signal handler raised during the wait
            with self._changed:
                self._waiting.discard(ticket)
                if self._holder == ticket:
                    self._holder = None
                self._changed.notify_all()


class WorkStopped(StoreUnavailable):
    """The memory was closed, or the program ended, before a piece of background work was done."""


class Panicked(StoreUnavailable):
    """A library failed with an error that is no Exception, as those in Rust do where they get no memory."""

    is_loggable = True


def as_exception(error: BaseException) -> Exception:
    """Returns an error as one of a single call, which the service survives; Panicked for a library's panic.

    Raises those that end the task or the process.
    """
    if isinstance(error, Exception):
        return error
    if isinstance(error, asyncio.CancelledError | KeyboardInterrupt | SystemExit | GeneratorExit):
        raise error
    return _panicked(error)


def _panicked(error: BaseException) -> Panicked:
    panicked = Panicked(f"a library failed ({type(error).__name__}), perhaps for lack of memory")
    panicked.__cause__ = error
    return panicked


class CallTooLate(Exception):
    """A bounded call gave no answer in time. `has_begun`: False if earlier calls, which hang, left no place for it."""

    def __init__(self, *, has_begun: bool) -> None:
        super().__init__()
        self.has_begun = has_begun


class BoundedCalls:
    """Makes calls that may hang, each in a daemon thread of its own: none holds up the end of the process.

    At most `most` are in progress, those that hang among them; another one waits for a place within its time limit.
    """

    def __init__(self, most: int, thread_name: str) -> None:
        self._places = BoundedSemaphore(most)
        self._thread_name = thread_name

    def run(self, call: Callable[[], R], timeout: float) -> R:
        """Returns the call's result and raises its error: Panicked for one that is no Exception, such as SystemExit.

        Raises CallTooLate after `timeout` seconds, StoreUnavailable if no thread can be started.
        """
        deadline = monotonic() + timeout
        if not self._places.acquire(timeout=timeout):
            raise CallTooLate(has_begun=False)
        answer: Future[R] = Future()

        def run() -> None:
            try:
                answer.set_result(call())
            except Exception as error:  # noqa: BLE001  (whoever waits for the answer gets it)
                answer.set_exception(error)
            except BaseException as error:  # noqa: BLE001  (no signal is handled in this thread: it is the call's own)
                answer.set_exception(_panicked(error))
            finally:
                self._places.release()

        try:
            start_thread(Thread(target=copy_context().run, args=(run,), name=self._thread_name, daemon=True))
        except BaseException:
            self._places.release()
            raise
        if wait([answer], max(0.0, deadline - monotonic())).not_done:
            raise CallTooLate(has_begun=True)
        return answer.result()


@contextmanager
def stoppable(must_stop: Callable[[], bool]) -> Iterator[None]:
    """Lets `raise_if_stopped` end the work of this context once `must_stop` returns True."""
    token = _must_stop.set(must_stop)
    try:
        yield
    finally:
        _must_stop.reset(token)


def raise_if_stopped() -> None:
    """Raises WorkStopped if the work of this context is `stoppable` and has to end; to be called between two parts."""
    must_stop = _must_stop.get()
    if must_stop is not None and must_stop():
        raise WorkStopped(CLOSED)


def start_thread(thread: Thread) -> None:
    """Starts a thread. Raises StoreUnavailable if that is not possible."""
    try:
        thread.start()
    except RuntimeError as error:
        raise StoreUnavailable(NO_THREAD) from error


def is_caller_timeout(error: BaseException) -> bool:
    """Tells whether an error was raised by the program's own handler of an alarm signal, not by a system call.

    Such handlers usually raise a TimeoutError without an errno, and run in the main thread only.
    """
    return isinstance(error, TimeoutError) and error.errno is None and current_thread() is main_thread()


def ends_own_thread(error: BaseException) -> bool:
    """Tells whether code that was called ends its thread, as `sys.exit` does; a signal's handler ends the main one."""
    return isinstance(error, SystemExit | KeyboardInterrupt) and current_thread() is not main_thread()


@contextmanager
def single_blas_thread() -> Iterator[None]:
    """Limits the BLAS libraries of this process to one thread. May be nested and entered from several threads."""
    with _limiters_lock:
        limiter = None
        if not _limiters:  # the first limiter stores the former limits; later entries only count
            _release_thread_ownership()
            limiter = _controller().limit(limits=1, user_api="blas")
        _limiters.append(limiter)
    try:
        yield
    finally:
        with _limiters_lock:
            if len(_limiters) == 1:
                _release_thread_ownership()
                _limiters[0].restore_original_limits()
                _release_thread_ownership()
            _limiters.pop()


def _release_thread_ownership() -> None:
    """Lets any thread change the limit, not only the one that set it first.

    From 3.7 on threadpoolctl silently ignores the limits of every other thread while that one lives.
    """
    for library in _controller().lib_controllers:
        if hasattr(library, "clear_controlling_thread"):
            library.clear_controlling_thread(force=True)


@cache
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController  # noqa: PLC0415  (it looks through the process's libraries)

    return ThreadpoolController()


def _reset_after_fork() -> None:
    """Replaces the lock: the thread that may have held it during the fork does not exist in this process."""
    global _limiters_lock  # noqa: PLW0603
    _limiters_lock = Lock()
    _limiters.clear()


# A forked child inherits open files, locks and connections, but no thread that serves them. It never closes them: that
# would release the parent's lock.
_open: WeakKeyDictionary[object, finalize[Any, Any]] = WeakKeyDictionary()
_inherited: list[object] = []


def close_only_here(opened: object, finalizer: finalize[Any, Any]) -> None:
    """Keeps a process that is forked later from closing what was opened here: there `finalizer` never runs."""
    _open[opened] = finalizer


def is_inherited(opened: object) -> bool:
    """Tells whether this process was forked after `close_only_here`; its parent serves what was opened."""
    return opened in _inherited


def _mark_inherited() -> None:
    for opened, finalizer in _open.items():
        finalizer.detach()
        _inherited.append(opened)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
    os.register_at_fork(after_in_child=_mark_inherited)
