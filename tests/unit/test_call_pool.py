"""The pool of the service's calls: shares of users, cancelled calls, and its end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from support.waiting import TIMEOUT

from graphmem.errors import StoreUnavailable
from graphmem.service.calls import CallPool, ShareTaken, calling_user


@contextmanager
def calls_of(user_id: str) -> Iterator[None]:
    token = calling_user.set(user_id)
    yield
    calling_user.reset(token)


def test_calls_beyond_a_share_of_the_threads_wait_and_run_in_order() -> None:
    pool, go_on, order = CallPool(2, 4, 0.5), threading.Event(), list[int]()
    with calls_of("ana"):
        first = pool.submit(go_on.wait, TIMEOUT)
        cancelled, last = pool.submit(order.append, 1), pool.submit(order.append, 2)
        with pytest.raises(ShareTaken):
            pool.submit(order.append, 3)
    with calls_of("ben"):
        assert pool.submit(lambda: "free").result(TIMEOUT) == "free"
    assert cancelled.cancel()
    go_on.set()
    assert first.result(TIMEOUT)
    last.result(TIMEOUT)
    assert order == [2]
    with calls_of("ana"):  # whoever has a result may call again
        for number in range(20):
            pool.submit(order.append, number).result(TIMEOUT)
    pool.shutdown()


def test_calls_that_wait_for_a_share_end_with_the_pool() -> None:
    pool, go_on = CallPool(2, 4, 0.5), threading.Event()
    with calls_of("ana"):
        running, *waiting = pool.submit(go_on.wait, TIMEOUT), pool.submit(str), pool.submit(str)
    pool.shutdown(wait=False)
    go_on.set()
    assert running.result(TIMEOUT)
    for one in waiting:
        assert isinstance(one.exception(TIMEOUT), StoreUnavailable)
    with pytest.raises(StoreUnavailable):
        pool.submit(str)


def test_a_call_for_which_no_thread_could_be_started_costs_no_other_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The executor has put it into its queue, from which another thread takes it later."""

    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    pool, go_on, ran = CallPool(2, 10), threading.Event(), list[str]()
    first = pool.submit(go_on.wait, TIMEOUT)
    with monkeypatch.context() as failing:
        failing.setattr(threading.Thread, "start", fail)
        with pytest.raises(StoreUnavailable):
            pool.submit(ran.append, "given up")
    go_on.set()
    assert first.result(TIMEOUT)
    for number in range(20):
        assert pool.submit(abs, -number).result(TIMEOUT) == number
    pool.shutdown()
    assert ran == []
