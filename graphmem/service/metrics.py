"""Metrics of the service for Prometheus: counters of what it does, and gauges that are read from the ledger.

No label is the id of a user, an agent, a run or a memory.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from time import monotonic

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from graphmem import __version__
from graphmem.chat_worker import Recalled
from graphmem.commands.types import (
    AddFact,
    AddMessage,
    Command,
    ImportMemory,
    Outcome,
    ReaffirmFact,
    RetireMemory,
    UpdateMemory,
)
from graphmem.concurrency import Pool, await_task
from graphmem.errors import StoreError
from graphmem.logs import log_text
from graphmem.model import MemoryEvent
from graphmem.plugins import Usage
from graphmem.queries.gauges import Gauges

logger = logging.getLogger("graphmem")

MEDIA_TYPE = CONTENT_TYPE_PLAIN_0_0_4
# The folder in which the processes of one service keep their counters; unset with a single process.
FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
# Seconds for which gauges are kept, and that one reading of the ledger may take.
FRESH_SECONDS, READING_SECONDS = 15.0, 5.0
# A reading that takes long is kept for so many times its duration: a large ledger is not read all the time. With 20,000
# memories it takes .3 s.
FRESH_DURATIONS = 20
SEARCH_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
REQUEST_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
DELAY_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0)
MODEL_BUCKETS = (0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
# The commands that `graphmem_added_total` counts: adding messages, the facts drawn from them, updates and imports.
ADDING = (AddMessage, AddFact, ReaffirmFact, UpdateMemory, RetireMemory, ImportMemory)
NO_TYPE = "none"


class ServiceMetrics:
    """The metrics of one application; an `Observer` of its engine. `read_gauges` reads the ledger."""

    def __init__(self, read_gauges: Callable[[], Gauges], clock: Callable[[], float] = monotonic) -> None:
        self.registry = CollectorRegistry()
        self._gauges = LedgerGauges(read_gauges, clock)
        self.registry.register(self._gauges)
        self._requests = self._counter("requests", "Requests.", "route", "method", "status")
        self._request_seconds = self._histogram(
            "request_duration_seconds", "Duration of requests.", REQUEST_BUCKETS, "route"
        )
        self._added = self._counter(
            "added", "Outcomes of adding, updating and importing memories.", "event", "kind", "memory_type"
        )
        self._search_seconds = self._histogram("search_duration_seconds", "Duration of searches.", SEARCH_BUCKETS)
        self._recalls = self._counter("recall", "Steps of recalls (1 to 3) by their outcome.", "step", "outcome")
        self._degraded = self._counter("degraded", "Searches that left out an arm, a store or a model.", "arm")
        self._model_seconds = self._histogram(
            "model_duration_seconds", "Duration of calls of models, failed ones too.", MODEL_BUCKETS, "operation"
        )
        self._model_tokens = self._counter("model_tokens", "Tokens as models count them.", "operation", "direction")
        self._model_errors = self._counter("model_errors", "Failed calls of models.", "operation", "error")
        self._chats = self._counter("proxy_requests", "Chats through the proxy by their outcome.", "outcome")
        self._chat_delay = self._histogram(
            "proxy_overhead_seconds", "Time that a chat waits for the memory before it is sent on.", DELAY_BUCKETS
        )
        self._auth_failures = self._counter("auth_failures", "Requests without a valid key.")
        self._rate_limited = self._counter("rate_limited", "Requests over a rate limit.")

    def _counter(self, name: str, help_text: str, *labels: str) -> Counter:
        return Counter(f"graphmem_{name}", help_text, labels, registry=self.registry)

    def _histogram(self, name: str, help_text: str, buckets: Sequence[float], *labels: str) -> Histogram:
        return Histogram(f"graphmem_{name}", help_text, labels, registry=self.registry, buckets=buckets)

    def on_request(self, method: str, route: str, status: int, seconds: float, _role: str) -> None:
        """Counts a request; a listener of `RequestLog`."""
        self._requests.labels(route, method, str(status)).inc()
        self._request_seconds.labels(route).observe(seconds)

    def on_refusal(self, status: int) -> None:
        """Counts a request that was refused because of its key (401) or a rate limit (429)."""
        if status == 401:  # noqa: PLR2004  (HTTP)
            self._auth_failures.inc()
        elif status == 429:  # noqa: PLR2004
            self._rate_limited.inc()

    def on_recall(self, recalled: Recalled) -> None:
        """Counts the steps of a recall, and the one at which it failed or ran out of time."""
        for number, step in enumerate(recalled.steps, 1):
            self._recalls.labels(str(number), "enough" if step.result.is_sufficient else "insufficient").inc()
        if recalled.failure is not None:
            outcome = "timeout" if isinstance(recalled.failure, TimeoutError) else "failed"
            self._recalls.labels(str(len(recalled.steps) + 1), outcome).inc()

    def on_chat(self, status_line: str, seconds: float) -> None:
        """Counts a chat through the proxy by its header X-Graphmem, with the delay before it is sent on.

        The outcome is "memories" or "nothing" after a recall, "off", "failed" or "timeout" without its result, and the
        reason if the request has no memory at all, such as "no-user".
        """
        kind, _, value = status_line.partition("; ")[2].partition("=")
        outcome = value if kind == "recall" else "nothing" if value == "0" else kind
        self._chats.labels(outcome).inc()
        self._chat_delay.observe(seconds)

    def on_commit(
        self, commands: Sequence[Command], outcomes: Sequence[Outcome], _events: Sequence[MemoryEvent]
    ) -> None:
        """Counts the outcomes of commands that add or change memories."""
        for command, outcome in zip(commands, outcomes, strict=True):
            if isinstance(command, ADDING):
                memory_type = None if outcome.record is None else outcome.record.memory_type
                self._added.labels(outcome.event.value, outcome.kind.value, memory_type or NO_TYPE).inc()

    def on_search(self, seconds: float, degraded: Sequence[str]) -> None:
        """Counts a search."""
        self._search_seconds.observe(seconds)
        for arm in degraded:
            self._degraded.labels(arm).inc()

    def on_model_call(self, operation: str, seconds: float, usage: Usage | None, error: str | None) -> None:
        """Counts a call of a model."""
        self._model_seconds.labels(operation).observe(seconds)
        if usage is not None:
            self._model_tokens.labels(operation, "input").inc(usage.prompt_tokens)
            self._model_tokens.labels(operation, "output").inc(usage.completion_tokens)
        if error is not None:
            self._model_errors.labels(operation, error).inc()

    async def text(self) -> bytes:
        """Returns all metrics in the text format of Prometheus, those of every process of the service.

        Without an answer of the ledger within `READING_SECONDS` its gauges are left out.
        """
        await self._gauges.refresh()
        registry = self.registry
        if folder := os.environ.get(FOLDER_VARIABLE):
            registry = CollectorRegistry()
            MultiProcessCollector(registry, folder)  # type: ignore[no-untyped-call]
            registry.register(self._gauges)
        return generate_latest(_WithoutTimes(registry))

    def close(self) -> None:
        """Ends the thread that reads the ledger."""
        self._gauges.close()


class LedgerGauges(Collector):
    """The gauges that `read` reads from the ledger, in a thread of its own and at most every `FRESH_SECONDS`.

    Those of the last reading are left out once it is much older than that, and after a failed one.
    """

    def __init__(self, read: Callable[[], Gauges], clock: Callable[[], float]) -> None:
        self._read, self._clock = read, clock
        self._thread = Pool(1, thread_name_prefix="graphmem-metrics")
        self._reading: Future[None] | None = None
        self._latest: Gauges | None = None
        self._fresh_until = self._usable_until = 0.0

    async def refresh(self) -> None:
        """Reads the ledger, unless it was read shortly before; waits for at most `READING_SECONDS`."""
        if self._reading is None or self._reading.done():
            if self._latest is not None and self._clock() < self._fresh_until:
                return
            self._reading = self._thread.submit(self._read_ledger)
        await await_task(self._reading, READING_SECONDS)

    def _read_ledger(self) -> None:
        begin = self._clock()
        try:
            self._latest = self._read()
        except StoreError as error:
            self._latest = None
            logger.warning("the gauges of the metrics could not be read (%s)", log_text(error))
        end = self._clock()
        self._fresh_until = end + max(FRESH_SECONDS, FRESH_DURATIONS * (end - begin))
        self._usable_until = self._fresh_until + max(FRESH_SECONDS, 2 * (end - begin))

    def collect(self) -> Iterator[Metric]:
        """Returns the gauges, those of the ledger as they were read last."""
        yield _gauge("build_info", "The version that this process runs.", ("version",), [([__version__], 1)])
        latest = self._latest
        if latest is None or self._clock() > self._usable_until:
            return
        yield _gauge("memories", "Stored memories.", ("kind", "layer"), latest.memories.items())
        if latest.retention is not None:
            retention = [((), latest.retention)]
            yield _gauge("retention_ratio", "Mean retention of short-term memories at the last cycle.", (), retention)
        if latest.compression is not None:
            help_text = "Mean number of memories that one made of several stands for."
            yield _gauge("compression_ratio", help_text, (), [((), latest.compression)])
        yield _gauge("ledger_bytes", "Size of the ledger.", (), [([], latest.ledger_bytes)])
        yield _gauge("embedding_bytes", "Size of the embeddings in the ledger.", (), [([], latest.embedding_bytes)])
        pending = (([name], number) for name, number in latest.pending_changes.items())
        yield _gauge("pending_changes", "Changes that are not delivered yet.", ("projection",), pending)
        refused = (([name], number) for name, number in latest.dead_letters.items())
        yield _gauge("dead_letters", "Rows that a store refuses.", ("projection",), refused)
        jobs = (([job.kind, job.state], job.number) for job in latest.jobs)
        yield _gauge("jobs", "Recorded jobs.", ("kind", "state"), jobs)
        kinds = sorted({job.kind for job in latest.jobs})
        oldest = (([kind], max(job.oldest_seconds for job in latest.jobs if job.kind == kind)) for kind in kinds)
        yield _gauge("jobs_oldest_seconds", "Time since the oldest job was recorded.", ("kind",), oldest)

        delays = (([name], seconds) for name, seconds in latest.delays.items())
        help_text = "Time since the oldest event that a subscriber was not told."
        yield _gauge("subscriber_delay_seconds", help_text, ("subscriber",), delays)
        dead = (([name], latest.dead_events.get(name, 0)) for name in latest.delays)
        yield _gauge("subscriber_dead_letters", "Events that a subscriber did not take.", ("subscriber",), dead)

    def close(self) -> None:
        """Ends the thread; a reading that is under way ends by itself."""
        self._thread.shutdown(wait=False)


def _gauge(
    name: str, help_text: str, labels: Sequence[str], samples: Iterable[tuple[Sequence[str], float]]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"graphmem_{name}", help_text, labels=labels)
    for values, number in samples:
        family.add_metric(values, number)
    return family


class _WithoutTimes(CollectorRegistry):
    """The metrics of a registry without the series of their times of creation, which double the number of series."""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__()
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for metric in self._registry.collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric
