from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

from graphmem.concurrency import single_blas_thread


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
