from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event
from threading import enumerate as enumerate_threads

import numpy as np
import pytest
from support.waiting import TIMEOUT, wait_until
from threadpoolctl import threadpool_info, threadpool_limits

from graphmem.concurrency import (
    BoundedCalls,
    CallTooLate,
    DrainablePool,
    OrderedLock,
    Panicked,
    Pool,
    WorkStopped,
    raise_if_stopped,
    single_blas_thread,
    stoppable,
)
from graphmem.errors import StoreUnavailable


def blas() -> set[int]:
    """How many threads numpy's BLAS may use."""
    np.ones((2, 2)) @ np.ones((2, 2))
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def inside() -> set[int]:
    with single_blas_thread():
        return blas()


def test_every_thread_can_set_the_limit_whoever_did_so_first() -> None:
    before = blas()
    assert inside() == {1}
    with ThreadPoolExecutor(1) as first, ThreadPoolExecutor(1) as second:
        limits = [pool.submit(inside).result() for pool in (first, second, first)]
    assert limits == [{1}] * 3
    assert blas() == before


def test_the_last_block_lifts_the_limit_in_any_thread() -> None:
    before = blas()
    with ThreadPoolExecutor(1) as other:
        limit = single_blas_thread()
        limit.__enter__()
        mine = single_blas_thread()
        other.submit(mine.__enter__).result()
        limit.__exit__(None, None, None)
        assert blas() == {1}
        other.submit(mine.__exit__, None, None, None).result()
        assert blas() == before


def test_the_program_can_set_its_own_limit_afterwards() -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(inside).result()
        with threadpool_limits(1, user_api="blas"):
            assert blas() == {1}


def test_a_lock_goes_to_the_urgent_thread_and_then_to_the_others_in_their_order() -> None:
    lock, order = OrderedLock(), list[str]()

    def take(name: str, *, urgent: bool) -> None:
        with lock.turn(urgent=urgent):
            order.append(name)

    with ThreadPoolExecutor(4) as pool:
        with lock.turn():
            takers = []
            for waiting, name in enumerate(("first", "second", "urgent"), start=1):
                takers.append(pool.submit(take, name, urgent=name == "urgent"))
                wait_until(lambda waiting=waiting: len(lock._waiting) == waiting)
        for taker in takers:
            taker.result(TIMEOUT)
    assert order == ["urgent", "first", "second"]


def test_a_thread_that_takes_the_lock_again_at_once_lets_the_waiting_one_go_first() -> None:
    lock, order = OrderedLock(), list[str]()

    def take() -> None:
        with lock.turn():
            order.append("other")

    with ThreadPoolExecutor(1) as pool:
        with lock.turn():
            taker = pool.submit(take)
            wait_until(lambda: lock._waiting)
        with lock.turn():
            order.append("again")
        taker.result(TIMEOUT)
    assert order == ["other", "again"]


def test_a_lock_is_released_after_an_error_and_after_a_wait_that_was_broken_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lock = OrderedLock()
    with pytest.raises(ValueError, match="under the lock"), lock.turn():
        raise ValueError("under the lock")

    def interrupted(_condition: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(lock._changed, "wait_for", interrupted)
        with pytest.raises(KeyboardInterrupt), lock.turn():
            pass
    with lock.turn():
        assert not lock._waiting


def test_work_is_stopped_only_in_its_own_context() -> None:
    with stoppable(lambda: True):
        with pytest.raises(WorkStopped):
            raise_if_stopped()
        with stoppable(lambda: False):
            raise_if_stopped()
    raise_if_stopped()


def test_a_pool_that_was_shut_down_takes_no_tasks() -> None:
    with Pool(1) as pool:
        assert pool.takes_tasks
    assert not pool.takes_tasks


def test_owners_of_tasks_take_turns() -> None:
    pool, begun, go_on, order = DrainablePool(1, "test"), Event(), Event(), list[str]()

    def wait_until_allowed() -> bool:
        begun.set()
        return go_on.wait(TIMEOUT)

    first = pool.submit_in_turn("ana", wait_until_allowed)
    assert begun.wait(TIMEOUT)
    ana = [pool.submit_in_turn("ana", order.append, f"ana {n}") for n in range(4)]
    failing = pool.submit_in_turn("cleo", int, "no number")
    pool.submit_in_turn("ben", order.append, "ben")
    pool.abandon(ana[1])
    go_on.set()
    assert pool.drain(TIMEOUT)
    assert order == ["ana 0", "ben", "ana 2", "ana 3"]
    assert first.result(TIMEOUT)
    assert isinstance(failing.exception(TIMEOUT), ValueError)
    pool.shutdown()
    with pytest.raises(StoreUnavailable):
        pool.submit_in_turn("ana", order.append, "late")
    assert pool.drain(TIMEOUT)


def test_a_bounded_call_that_hangs_takes_its_place_until_it_ends() -> None:
    calls, go_on = BoundedCalls(2, "bounded"), Event()
    for has_begun in (True, True, False, False):
        with pytest.raises(CallTooLate) as late:
            calls.run(lambda: go_on.wait(TIMEOUT), 0.05)
        assert late.value.has_begun is has_begun
    assert sum(thread.name == "bounded" for thread in enumerate_threads()) == 2
    go_on.set()
    assert calls.run(lambda: 1, TIMEOUT) == 1


@pytest.mark.parametrize(
    ("raised", "expected"),
    [(ValueError("no"), ValueError), (TimeoutError("no"), TimeoutError), (SystemExit(1), Panicked)],
)
def test_a_bounded_call_raises_what_it_raised(raised: BaseException, expected: type[Exception]) -> None:
    def fail() -> None:
        raise raised

    calls = BoundedCalls(1, "bounded")
    for _ in range(3):  # each gives its place back
        with pytest.raises(expected):
            calls.run(fail, TIMEOUT)
