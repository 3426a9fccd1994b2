"""What `graphmem serve` adds to the calls of a memory, how many requests it answers, and whether it holds under load.

    python benchmarks/service.py benchmarks/chats > benchmarks/results/service.json
    POSTGRES_URL=… QDRANT_URL=… python benchmarks/service.py benchmarks/chats --workers 2
    python benchmarks/service.py benchmarks/chats --soak-minutes 15 --seconds 10

All figures of a run are of the same memories, those of the chats. `overhead` compares a search by HTTP with the same
search in Python, one after the other: the client's work is part of it. `load` asks the service, which is a process of
its own, from many threads of this one, and `python` the memory in this process from as many threads: client and service
share the machine's cores. `beyond_capacity` sends more than the queue takes. `soak` searches and adds at the same time,
and reads the resident memory of the service's processes. Servers: a new database and a new collection, gone afterwards.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from itertools import count, cycle
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from sqlalchemy import create_engine, make_url

from graphmem import Memory
from graphmem.evaluation.chats import load
from graphmem.evaluation.datasets import Dataset
from graphmem.evaluation.environment import environment
from graphmem.evaluation.runner import store
from graphmem.settings import Settings

CLIENTS = (1, 8, 32)
# Clients beyond capacity, against a service with so few threads and so short a queue.
MANY_CLIENTS, FEW_THREADS, SHORT_QUEUE = 48, 2, 8
WARM, COMPARED = 20, 200
SOAK_CLIENTS, SOAK_SAMPLES = 8, 60
TOP_K = 10
ADMIN_KEY = "of-a-benchmark-that-ends"
HEADERS = {"X-API-Key": ADMIN_KEY, "Content-Type": "application/json"}
START_SECONDS = 60.0


class Question(NamedTuple):
    """A question, and the user whose memories answer it."""

    text: str
    user_id: str


def questions_of(dataset: Dataset) -> list[Question]:
    """Returns the questions of a data set."""
    return [Question(case.question, case.partition) for case in dataset.cases]


@dataclass
class Calls:
    """The calls of one measurement: their milliseconds, and how often each status was answered."""

    milliseconds: list[float] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def figures(self) -> dict[str, Any]:
        """The figures, ready for JSON."""
        return {
            "per_second": round(len(self.milliseconds) / self.seconds, 1),
            **{f"p{percent}_ms": percentile(self.milliseconds, percent) for percent in (50, 95, 99)},
            "statuses": dict(sorted(self.statuses.items())),
        }


def percentile(values: list[float], percent: int) -> float:
    """Returns a percentile, to a tenth."""
    return round(sorted(values)[min(len(values) - 1, len(values) * percent // 100)], 1)


# --- the service ------------------------------------------------------------------------------------------------------


class Client:
    """A connection to the service that stays open."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._connection = HTTPConnection(*address, timeout=120)

    def post(self, path: str, body: Mapping[str, Any]) -> tuple[int, str | None]:
        """Sends a request; returns the status and the header Retry-After."""
        self._connection.request("POST", path, json.dumps(body), HEADERS)
        answer = self._connection.getresponse()
        answer.read()
        return answer.status, answer.headers.get("Retry-After")

    def search(self, question: Question) -> tuple[int, str | None]:
        return self.post("/search", {"query": question.text, "user_id": question.user_id, "top_k": TOP_K})

    def add(self, number: int, question: Question) -> tuple[int, str | None]:
        text = f"Note {number}: {question.text} I was asked this again."
        return self.post("/memories?wait=false", {"messages": text, "user_id": question.user_id})


class Server(NamedTuple):
    """A running `graphmem serve`."""

    address: tuple[str, int]
    process: subprocess.Popen[str]

    def resident_megabytes(self) -> float:
        """Returns the resident memory of the service's processes."""
        processes = subprocess.run(["ps", "-eo", "pid,ppid,rss"], capture_output=True, text=True, check=True)  # noqa: S607
        rows = [tuple(map(int, line.split())) for line in processes.stdout.splitlines()[1:]]
        return sum(rss for pid, parent, rss in rows if self.process.pid in (pid, parent)) / 1024


@contextmanager
def serving(home: str, variables: Mapping[str, str], workers: int = 1, **settings: Any) -> Iterator[Server]:
    """Runs the command on a free port until the block ends, with as many arenas of memory as in the image."""
    serve = {"rate": "100000000/minute", "add_rate": "100000000/minute", "admin_api_key": ADMIN_KEY, **settings}
    variables_of_settings = {f"GRAPHMEM_SERVE__{name.upper()}": str(value) for name, value in serve.items()}
    environment = {"MALLOC_ARENA_MAX": "2"} | os.environ | variables | variables_of_settings
    command = [sys.executable, "-m", "graphmem", "serve", "--port", "0", "--workers", str(workers)]
    if not variables:  # which name a home, too
        command += ["--home", home]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:  # noqa: S603
        assert process.stderr is not None
        lines, said = iter(process.stderr), ""
        for line in lines:
            said += line
            if found := re.search(r"serving on http://([\d.]+):(\d+)", line):
                break
        else:
            sys.exit(f"the service did not start: {said}")
        # Somebody has to read what it logs, or it waits when the pipe is full.
        reader = ThreadPoolExecutor(1)
        reader.submit(lambda: sum(1 for _ in lines))
        address = found[1], int(found[2])
        try:
            _wait_until_ready(address)
            yield Server(address, process)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()
            reader.shutdown()


def _wait_until_ready(address: tuple[str, int]) -> None:
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            connection = HTTPConnection(*address, timeout=5)
            connection.request("GET", "/readyz")
            if connection.getresponse().status == 200:
                return
        except OSError:
            if time.monotonic() > end:
                raise
        time.sleep(0.1)


# --- measuring --------------------------------------------------------------------------------------------------------


def run_clients(clients: int, seconds: float, call_of: Callable[[int], Callable[[], str]]) -> Calls:
    """Calls what `call_of(client)` returns, from one thread for each client, again and again for so many seconds."""
    calls, end = Calls(), time.perf_counter() + seconds

    def run(client: int) -> list[tuple[float, str]]:
        call, found = call_of(client), []
        while time.perf_counter() < end:
            begin = time.perf_counter()
            status = call()
            found.append(((time.perf_counter() - begin) * 1000, status))
        return found

    begin = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        for found in pool.map(run, range(clients)):
            calls.milliseconds += [milliseconds for milliseconds, _ in found]
            calls.statuses.update(status for _, status in found)
    calls.seconds = time.perf_counter() - begin
    return calls


def _by_http(server: Server, questions: list[Question], *, adds: bool) -> Callable[[int], Callable[[], str]]:
    numbers = count()

    def call_of(client: int) -> Callable[[], str]:
        connection, asked = Client(server.address), cycle(questions[client:] + questions[:client])

        def call() -> str:
            status, retry_after = connection.add(next(numbers), next(asked)) if adds else connection.search(next(asked))
            return str(status) if retry_after is None else f"{status} Retry-After: {retry_after}"

        return call

    return call_of


def overhead(server: Server, memory: Memory, questions: list[Question]) -> dict[str, Any]:
    """Compares searches by HTTP and in Python, each question both ways, in alternating order."""
    by_http, in_python = list[float](), list[float]()
    ways: list[tuple[list[float], Callable[[Question], Any]]] = [
        (by_http, Client(server.address).search),
        (in_python, lambda one: memory.search(one.text, user_id=one.user_id, top_k=TOP_K)),
    ]
    for number, question in zip(range(WARM + COMPARED), cycle(questions)):
        for milliseconds, call in ways if number % 2 else reversed(ways):
            begin = time.perf_counter()
            call(question)
            if number >= WARM:
                milliseconds.append((time.perf_counter() - begin) * 1000)
    differences = [one - other for one, other in zip(by_http, in_python, strict=True)]
    return {
        "questions": COMPARED,
        "python_p50_ms": percentile(in_python, 50),
        "http_p50_ms": percentile(by_http, 50),
        "difference_p50_ms": round(statistics.median(differences), 2),
        "difference_p95_ms": percentile(differences, 95),
    }


def load_figures(server: Server, questions: list[Question], seconds: float) -> dict[str, Any]:
    """Requests for searches and for adding, by 1, 8 and 32 clients, once the models are loaded."""
    run_clients(CLIENTS[1], WARM / CLIENTS[1], _by_http(server, questions, adds=False))
    kinds = {"search": False, "add": True}
    return {
        kind: {
            str(clients): run_clients(clients, seconds, _by_http(server, questions, adds=adds)).figures()
            for clients in CLIENTS
        }
        for kind, adds in kinds.items()
    }


def python_figures(memory: Memory, questions: list[Question], seconds: float) -> dict[str, Any]:
    """Searches in Python by 1, 8 and 32 threads."""

    def call_of(client: int) -> Callable[[], str]:
        asked = cycle(questions[client:] + questions[:client])

        def call() -> str:
            question = next(asked)
            memory.search(question.text, user_id=question.user_id, top_k=TOP_K)
            return "found"

        return call

    return {str(clients): run_clients(clients, seconds, call_of).figures() for clients in CLIENTS}


def soak(server: Server, questions: list[Question], minutes: float) -> dict[str, Any]:
    """Searches and adds at the same time, and tells how the service's memory grows.

    `megabytes` are means over the quarters of the time. The first has caches that fill; `growth` is the last quarter
    over the second. What was added is part of it, as the stores keep it in memory: a new process over the same data is
    measured as `megabytes_after_restart`.
    """
    samples = list[float]()
    with ThreadPoolExecutor(2) as pool:
        running = [
            pool.submit(run_clients, SOAK_CLIENTS // 2, minutes * 60, _by_http(server, questions, adds=adds))
            for adds in (False, True)
        ]
        for _ in range(SOAK_SAMPLES):
            time.sleep(minutes * 60 / SOAK_SAMPLES)
            samples.append(server.resident_megabytes())
        searches, additions = (one.result().figures() for one in running)
    size = SOAK_SAMPLES // 4
    quarters = [statistics.mean(samples[start : start + size]) for start in range(0, SOAK_SAMPLES, size)]
    return {
        "minutes": minutes,
        "search": searches,
        "add": additions,
        "megabytes": [round(one) for one in quarters],
        "growth": round(quarters[3] / quarters[1], 3),
    }


def measure(dataset: Dataset, *, seconds: float, workers: int, soak_minutes: float) -> dict[str, Any]:
    """The figures, ready for JSON."""
    questions = questions_of(dataset)
    with tempfile.TemporaryDirectory(prefix="graphmem-") as home, new_stores(home) as variables:
        figures: dict[str, Any] = {}
        with Memory(settings=Settings.from_env(home=None if variables else home)) as memory:
            store(memory, dataset, lambda *_: None)
            with serving(home, variables, workers) as server:
                figures["overhead"] = overhead(server, memory, questions)
            figures["python"] = python_figures(memory, questions, seconds)
        with serving(home, variables, workers) as server:
            figures["load"] = load_figures(server, questions, seconds)
        with serving(home, variables, threads=FEW_THREADS, queue=SHORT_QUEUE) as server:
            calls = run_clients(MANY_CLIENTS, seconds, _by_http(server, questions, adds=False))
            figures["beyond_capacity"] = calls.figures()
        if soak_minutes:
            with serving(home, variables, workers) as server:
                figures["soak"] = soak(server, questions, soak_minutes)
            with serving(home, variables, workers) as server:
                run_clients(SOAK_CLIENTS, seconds, _by_http(server, questions, adds=False))
                figures["soak"]["megabytes_after_restart"] = round(server.resident_megabytes())
    return {
        "benchmark": "service",
        **environment(),
        "data": {"memories": dataset.messages, "questions": len(questions)},
        "settings": {
            "workers": workers, "stores": "servers" if variables else "embedded", "top_k": TOP_K, "seconds": seconds
        },
        **figures,
    }  # fmt: skip


@contextmanager
def new_stores(home: str) -> Iterator[dict[str, str]]:
    """Yields variables for a new database and collection on the servers that the environment names, if any.

    The home folder has their secret key.
    """
    if "POSTGRES_URL" not in os.environ:
        yield {}
        return
    from qdrant_client import QdrantClient  # noqa: PLC0415  (an extra)

    url, name = make_url(os.environ["POSTGRES_URL"]), f"service_{uuid4().hex[:8]}"
    server = create_engine(url.set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
    variables = {
        "GRAPHMEM_HOME": home,
        "GRAPHMEM_LEDGER_URL": url.set(database=name).render_as_string(hide_password=False),
        "GRAPHMEM_VECTOR_STORE__CONFIG__URL": os.environ["QDRANT_URL"],
        "GRAPHMEM_VECTOR_STORE__CONFIG__GRPC_PORT": os.environ.get("QDRANT_GRPC_PORT", "6334"),
        "GRAPHMEM_VECTOR_STORE__CONFIG__COLLECTION_NAME": name,
    }
    os.environ.update(variables)
    with server.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
        try:
            yield variables
        finally:
            connection.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")
            with closing(QdrantClient(os.environ["QDRANT_URL"], check_compatibility=False)) as client:
                client.delete_collection(name)
            for variable in variables:
                del os.environ[variable]


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("chats", type=Path, help="a folder or file of chats in the form of benchmarks/chats")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement under load (default: 10)")
    parser.add_argument("--workers", type=int, default=1, help="processes of the service (default: 1)")
    parser.add_argument("--soak-minutes", type=float, default=0.0, help="of searching and adding (default: none)")
    arguments = parser.parse_args()
    figures = measure(
        load(arguments.chats),
        seconds=arguments.seconds,
        workers=arguments.workers,
        soak_minutes=arguments.soak_minutes,
    )
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
