"""What calls take on this machine: of a memory in a folder, and of `graphmem serve` on PostgreSQL and Qdrant.

Each call is made alone. `gil` is what the process computes but for encoding, `free` is encoding, `stores` what the
servers' processes compute (Linux counts it in nanoseconds), `locked` how long the lock of the user's partition is held
(in a folder: the ledger's), `cursor` how long that of the vector index's cursor, `wait` the rest of the time until the
answer; all in milliseconds. `client` is what the client computes. `job` is what an addition that is not waited for
leaves behind, `delivery` what each memory takes when the index is filled anew. `held` has all that the writes of an
addition hold, by what that is: `locked` of a call is no more than what its time leaves for it. `under_load` is how much
more a process computes for calls that come beside each other (`real_run`).
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from itertools import cycle
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from urllib.parse import quote

from service import ADMIN_KEY, Server, serving
from workload import ADD, LIST, SEARCH

from graphmem import Memory
from graphmem.evaluation.datasets import Dataset
from graphmem.evaluation.runner import store
from graphmem.settings import Settings
from graphmem.stores.ledger.postgres import MOST_NAMES

WARM, CALLS, ADDITIONS = 30, 150, 60
TOP_K, PAGE = 10, 20
# The share of the calls that other programs have lengthened least.
UNDISTURBED = 0.1
# Seconds between two additions whose jobs are measured, and of a process without requests.
PAUSE, IDLE = 0.3, 5.0
# Seconds for which a connection is used again: the service closes one without requests after five.
KEPT_SECONDS = 3.0
# The commands of the servers' processes, by store.
COMMANDS = {"ledger": "postgres", "vectors": "qdrant"}
MILLION = 1_000_000
# What a write of the ledger holds: the lock of all writers, those of partitions, that of a cursor, or none that another
# one waits for.
ALONE, PARTITION, CURSOR, NOTHING = "alone", "partition", "cursor", "nothing"
PARTITIONS = ("user:", "agent:", "run:")


# --- clocks -----------------------------------------------------------------------------------------------------------


def computed_ms(pid: int) -> float:
    """Returns the milliseconds that the threads of a process have computed."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            total += int((task / "schedstat").read_text("ascii").split()[0])
        except (FileNotFoundError, ProcessLookupError):
            continue  # a thread that has just ended
    return total / MILLION


def stores_computed_ms() -> dict[str, float]:
    """Returns the milliseconds that the servers' processes have computed, by store."""
    computed = dict.fromkeys(COMMANDS, 0.0)
    stores = {command: store for store, command in COMMANDS.items()}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "comm").read_text("utf-8").strip()
            if command in stores:
                computed[stores[command]] += computed_ms(int(folder.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return computed


def lock_of(of: Collection[str] | None) -> str:
    """Returns what a write on a server holds, by what it says that it is of."""
    if of is None or len(of) > MOST_NAMES:
        return ALONE
    if not of:
        return NOTHING
    return PARTITION if all(name.startswith(PARTITIONS) for name in of) else CURSOR


class Held(NamedTuple):
    """What a write held, whether in the thread that watches, and for how many milliseconds."""

    lock: str
    is_own: bool
    ms: float


@dataclass(slots=True)
class WriteClock:
    """What the writes of a ledger held, and for how long. In a file each holds the lock of all."""

    held: list[Held] = field(default_factory=list)

    @contextmanager
    def watching(self, memory: Memory) -> Iterator[None]:
        """Watches the ledger of a memory until the block ends."""
        ledger, caller = memory.engine.ledger, threading.get_ident()

        def watched(write: Callable[..., AbstractContextManager[Any]]) -> Callable[..., AbstractContextManager[Any]]:
            @contextmanager
            def timed(of: Collection[str] | None = None) -> Iterator[Any]:
                with write(of) as connection:
                    begin = time.perf_counter()
                    yield connection
                ms = 1000 * (time.perf_counter() - begin)
                lock = lock_of(of) if ledger.on_server else ALONE
                self.held.append(Held(lock, threading.get_ident() == caller, ms))

            return timed

        methods = {"write": watched(ledger.write), "write_derived": watched(ledger.write_derived)}
        vars(ledger).update(methods)
        try:
            yield
        finally:
            for name in methods:
                del vars(ledger)[name]

    def ms(self, lock: str, additions: int, *, own: bool | None = None) -> float:
        """Returns for how long each of so many additions holds a lock: in the thread that watches, in others, in all.

        The median of the writes stands for each, as other programs lengthen some of them.
        """
        times = [one.ms for one in self.held if one.lock == lock and own in (None, one.is_own)]
        return median(times) * len(times) / additions if times else 0.0

    def figures(self, additions: int) -> dict[str, Any]:
        """Returns the writes of each addition, and the milliseconds that it holds each lock; ready for JSON."""
        writes = Counter(one.lock for one in self.held)
        return {
            lock: {"writes": round(number / additions, 2), "ms": round(self.ms(lock, additions), 3)}
            for lock, number in sorted(writes.items())
        }


# --- requests ---------------------------------------------------------------------------------------------------------


class Tenants:
    """Words of the tenants: each has the memories and the questions of one conversation of the data."""

    def __init__(self, data: Dataset) -> None:
        self.users = list(data.partitions)
        questions: dict[str, list[str]] = {user: [] for user in self.users}
        for case in data.cases:
            questions[case.partition].append(case.question)
        self.users = [user for user in self.users if questions[user]]
        self._questions = questions

    def __len__(self) -> int:
        return len(self.users)

    def question(self, tenant: int, word: float) -> tuple[str, str]:
        """Returns a user and one of his questions."""
        user = self.users[tenant % len(self.users)]
        return user, self._questions[user][int(word * len(self._questions[user]))]

    def note(self, number: str, tenant: int, word: float) -> tuple[str, str]:
        """Returns a user and a sentence that is new."""
        user, question = self.question(tenant, word)
        return user, f"Note {number}: {question} I was asked this again."


class Client:
    """A client of one process of the service, with a connection that stays open."""

    def __init__(self, address: tuple[str, int], timeout: float = 60.0) -> None:
        self._connection, self._used_at = HTTPConnection(*address, timeout=timeout), 0.0
        self._headers = {"X-API-Key": ADMIN_KEY, "Content-Type": "application/json"}

    def search(self, user: str, question: str) -> tuple[int, Any]:
        return self._send("POST", "/search", {"query": question, "user_id": user, "top_k": TOP_K})

    def add(self, user: str, text: str, key: str) -> tuple[int, Any]:
        return self._send("POST", "/memories?wait=false", {"messages": text, "user_id": user}, {"Idempotency-Key": key})

    def list(self, user: str) -> tuple[int, Any]:
        return self._send("GET", f"/memories?user_id={quote(user)}&limit={PAGE}")

    def flush(self) -> list[str]:
        return self._send("POST", "/flush")[1]["pending"]

    def _send(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        if time.monotonic() - self._used_at > KEPT_SECONDS:
            self._connection.close()  # `request` opens it again
        content = None if body is None else json.dumps(body)
        self._connection.request(method, path, content, {**self._headers, **(headers or {})})
        answer = self._connection.getresponse()
        content = answer.read()
        self._used_at = time.monotonic()
        return answer.status, json.loads(content)


# --- measuring --------------------------------------------------------------------------------------------------------


def _sample(pid: int, call: Callable[[], Any], free: float) -> dict[str, Any]:
    """Measures one call of a process; the stores' part is put in later, as a mean."""
    computed, own, begin = computed_ms(pid), time.thread_time(), time.perf_counter()
    call()
    wall = 1000 * (time.perf_counter() - begin)
    client = 1000 * (time.thread_time() - own)
    gil = max(0.0, computed_ms(pid) - computed - free)
    return {"gil": gil, "free": free, "wall": wall, "client": client}


def _samples(pid: int, calls: Iterator[Callable[[], Any]], free: float, number: int) -> list[dict[str, Any]]:
    """Measures calls, the first few left out; the stores' computing is the mean of all."""
    for _, call in zip(range(WARM), calls, strict=False):
        call()
    before = stores_computed_ms()
    measured = [_sample(pid, call, free) for _, call in zip(range(number), calls, strict=False)]
    stores = {name: max(0.0, after - before[name]) / number for name, after in stores_computed_ms().items()}
    return [one | {"stores": stores} for one in measured]


def _finished(samples: list[dict[str, Any]], locked: float = 0.0, *, has_client: bool = True) -> list[dict[str, Any]]:
    """Returns samples with their wait: what is left of the time, of all the one of rank `UNDISTURBED`.

    Other programs lengthen the time of a call, and not what it computes.
    """
    rests = [
        one["wall"] - has_client * one["client"] - one["gil"] - one["free"] - sum(one["stores"].values())
        for one in samples
    ]
    rest = max(0.0, sorted(rests)[int(UNDISTURBED * len(rests))])
    waits = {"locked": min(locked, rest), "wait": max(0.0, rest - locked)}
    return [_rounded({**one, **waits}) for one in samples]


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 3)
    return {name: _rounded(one) for name, one in value.items()} if isinstance(value, dict) else value


def _encoding_ms(memory: Memory, tenants: Tenants) -> float:
    """Returns what the embedder computes for a question."""
    embedder = memory.engine.backends.embedder
    asked = [tenants.question(number, 0.5)[1] for number in range(CALLS)]
    for question in asked[:WARM]:
        embedder.embed_query(question)
    begin = time.process_time()
    for question in asked:
        embedder.embed_query(question)
    return 1000 * (time.process_time() - begin) / CALLS


def _numbers() -> Iterator[tuple[int, float]]:
    """Yields tenants and words, all of them in turn."""
    return ((number, number * 0.618 % 1) for number in cycle(range(100_000)))


def measure_embedded(data: Dataset, tenants: Tenants) -> dict[str, Any]:
    """Measures the calls of a memory in a folder, in this process."""
    with TemporaryDirectory(prefix="graphmem-") as home, Memory(home, settings=Settings()) as memory:
        store(memory, data, lambda *_: None)
        encoding, pid = _encoding_ms(memory, tenants), os.getpid()

        def searches() -> Iterator[Callable[[], Any]]:
            for number, word in _numbers():
                user, question = tenants.question(number, word)
                yield lambda user=user, question=question: memory.search(question, user_id=user, top_k=TOP_K)

        def additions() -> Iterator[Callable[[], Any]]:
            for number, word in _numbers():
                user, text = tenants.note(f"e{number}", number, word)
                yield lambda user=user, text=text: memory.add(text, user_id=user, infer=False)

        def lists() -> Iterator[Callable[[], Any]]:
            for number, _ in _numbers():
                user = tenants.users[number % len(tenants)]
                yield lambda user=user: memory.get_all(user_id=user, limit=PAGE)

        clock, calls = WriteClock(), dict[str, list[dict[str, Any]]]()
        calls[SEARCH] = _samples(pid, searches(), encoding, CALLS)
        calls[LIST] = _samples(pid, lists(), 0.0, CALLS)
        with clock.watching(memory):
            added = _samples(pid, additions(), encoding, ADDITIONS)
        calls[ADD] = added
        locked = clock.ms(ALONE, WARM + ADDITIONS)
    finished = {
        kind: _finished([one | {"stores": {}} for one in some], locked if kind == ADD else 0.0, has_client=False)
        for kind, some in calls.items()
    }
    return {"calls": finished, "job": {}, "delivery": {}, "encode_ms": round(encoding, 3)}


def measure_service(data: Dataset, tenants: Tenants, variables: Mapping[str, str]) -> dict[str, Any]:
    """Measures a process of the service on servers that have the data already, and its searches without Qdrant."""
    with Memory(settings=Settings.from_env()) as memory:
        encoding, clock = _encoding_ms(memory, tenants), WriteClock()
        with clock.watching(memory):
            for number in range(ADDITIONS):
                user, text = tenants.note(f"c{number}", number, 0.5)
                memory.add(text, user_id=user, infer=False, wait=False)
                time.sleep(PAUSE)
            memory.flush()
        delivery = _measure_delivery(memory, data)
    locked = clock.ms(PARTITION, ADDITIONS, own=True)
    with serving("", variables) as server:
        times = _measure_process(server, tenants, encoding, locked)
    away = {
        "GRAPHMEM_VECTOR_STORE__CONFIG__URL": "http://127.0.0.1:9",
        "GRAPHMEM_VECTOR_STORE__CONFIG__PREFER_GRPC": "false",
    }
    with serving("", {**variables, **away}) as server:
        client = Client(server.address)
        without = _samples(server.process.pid, _searches(client, tenants), encoding, CALLS)
    times["calls"][f"{SEARCH}_without_vectors"] = _finished(without)
    times["job"]["locked"] = round(clock.ms(PARTITION, ADDITIONS, own=False), 3)
    times["job"]["cursor"] = round(clock.ms(CURSOR, ADDITIONS), 3)
    held = clock.figures(ADDITIONS)
    return {**times, "held": held, "delivery": _rounded(delivery), "encode_ms": round(encoding, 3)}


def _searches(client: Client, tenants: Tenants) -> Iterator[Callable[[], Any]]:
    for number, word in _numbers():
        user, question = tenants.question(number, word)
        yield lambda user=user, question=question: client.search(user, question)


def _measure_process(server: Server, tenants: Tenants, encoding: float, locked: float) -> dict[str, Any]:
    client, pid = Client(server.address), server.process.pid

    def lists() -> Iterator[Callable[[], Any]]:
        for number, _ in _numbers():
            user = tenants.users[number % len(tenants)]
            yield lambda user=user: client.list(user)

    searches = _finished(_samples(pid, _searches(client, tenants), encoding, CALLS))
    listed = _finished(_samples(pid, lists(), 0.0, CALLS))
    begin, computed, stores = time.monotonic(), computed_ms(pid), stores_computed_ms()
    time.sleep(IDLE)
    idle = (computed_ms(pid) - computed) / IDLE
    idle_stores = {name: (value - stores[name]) / IDLE for name, value in stores_computed_ms().items()}
    begin, computed, stores, added = time.monotonic(), computed_ms(pid), stores_computed_ms(), list[dict[str, Any]]()
    for number in range(ADDITIONS):
        user, text = tenants.note(f"s{number}", number, 0.5)
        before = stores_computed_ms()
        one = _sample(pid, lambda user=user, text=text, key=f"s{number}": client.add(user, text, key), 0.0)
        parts = {name: max(0.0, value - before[name]) for name, value in stores_computed_ms().items()}
        added.append({**one, "stores": parts})
        time.sleep(PAUSE)
    client.flush()
    seconds = time.monotonic() - begin
    left = computed_ms(pid) - computed - idle * seconds - sum(one["gil"] for one in added)
    left_stores = {
        name: max(0.0, value - stores[name] - idle_stores[name] * seconds - sum(one["stores"][name] for one in added))
        for name, value in stores_computed_ms().items()
    }
    job = {
        "gil": max(0.0, left / ADDITIONS - encoding),
        "free": encoding,
        "stores": {name: value / ADDITIONS for name, value in left_stores.items()},
    }
    calls = {SEARCH: searches, LIST: listed, ADD: _finished(added, locked)}
    return {"calls": calls, "job": _rounded(job), "idle_ms_each_second": round(idle, 3)}


def _measure_delivery(memory: Memory, data: Dataset) -> dict[str, Any]:
    """Fills the vector index anew: what that takes for each memory."""
    stores, begin, computed = stores_computed_ms(), time.perf_counter(), time.process_time()
    memory.rebuild()
    wall, gil = 1000 * (time.perf_counter() - begin), 1000 * (time.process_time() - computed)
    parts = {name: (value - stores[name]) / data.messages for name, value in stores_computed_ms().items()}
    wait = max(0.0, wall / data.messages - gil / data.messages - sum(parts.values()))
    return {"gil": gil / data.messages, "stores": parts, "wait": wait}
