"""Reranking: the scores of a reranker put the first candidates of a search into another order."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from contextvars import copy_context
from threading import BoundedSemaphore, Thread
from time import monotonic

import numpy as np

from graphmem.concurrency import as_exception, start_thread
from graphmem.errors import ModelError
from graphmem.plugins import Reranker
from graphmem.retrieval.source_grouping import RankedMemory, Reranked

# Calls of one reranker at the same time; a search that finds all of them taken waits, within its time limit.
MOST_CALLS = 8
# The kinds of NumPy's types that are numbers: texts and truth values are none.
_NUMBERS = "iuf"


class BoundedReranker:
    """Calls a reranker within `timeout` seconds and checks its answer; `candidates` memories are given to it.

    Each call has a thread of its own: one that never ends holds up neither a search nor the end of the process.
    """

    def __init__(self, reranker: Reranker, candidates: int, timeout: float) -> None:
        self.candidates = candidates
        self._reranker = reranker
        self._timeout = timeout
        self._free_calls = BoundedSemaphore(MOST_CALLS)

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        """Returns a finite score for each text, the higher the better. Raises ModelError."""
        too_late = ModelError(
            f"the reranker gave no answer in {self._timeout:g} seconds; raise reranker.config.timeout"
        )
        deadline = monotonic() + self._timeout
        if not self._free_calls.acquire(timeout=self._timeout):
            raise too_late
        answer: Future[Sequence[float]] = Future()

        def call() -> None:
            try:
                answer.set_result(self._reranker(query, list(texts)))
            except BaseException as error:  # noqa: BLE001  (whoever waits for the answer gets it)
                answer.set_exception(error)
            finally:
                self._free_calls.release()

        try:
            start_thread(Thread(target=copy_context().run, args=(call,), name="graphmem-reranker", daemon=True))
        except BaseException:
            self._free_calls.release()
            raise
        try:
            return _checked(answer.result(max(0.0, deadline - monotonic())), len(texts))
        except ModelError:
            raise
        except TimeoutError:
            raise too_late from None
        except BaseException as raised:  # noqa: BLE001  (a library may panic)
            error = as_exception(raised)
            raise ModelError(f"the reranker failed with {type(error).__name__}") from error


def _checked(answer: Sequence[float], count: int) -> list[float]:
    scores = np.asarray(answer)
    if scores.shape != (count,) or scores.dtype.kind not in _NUMBERS or any(isinstance(one, bool) for one in answer):
        raise ModelError(f"the reranker returned something else than one score for each of {count} texts")
    if not np.isfinite(scores).all():
        raise ModelError("the reranker returned scores that are not finite")
    return [float(score) for score in scores]


def reranked(ranked: Sequence[RankedMemory], scores: Sequence[float]) -> list[RankedMemory]:
    """Returns a ranking with its first `len(scores)` memories in the order of these scores, the others behind them.

    Equal scores leave the order as it is. The places keep the scores of the search: a reranker's may be of any range,
    and what is behind has to stay below.
    """
    order = sorted(range(len(scores)), key=lambda place: -scores[place])
    first = [
        ranked[before]._replace(
            score=ranked[place].score,
            reranked=Reranked(place + 1, before + 1, scores[before], ranked[before].score),
        )
        for place, before in enumerate(order)
    ]
    return [*first, *ranked[len(scores) :]]
