"""The same requests to real processes of `graphmem serve`, one of which is killed, and to the simulation."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from http.client import HTTPException
from itertools import chain
from pathlib import Path
from typing import Any

from cluster import Outcome
from measuring import Client, Tenants, computed_ms, stores_computed_ms
from service import Server, serving
from workload import ADD, LIST, SEARCH, Planned, ServiceTimes

from graphmem import Memory
from graphmem.settings import Settings

CLIENTS = 64
WARM = 10
SETTLE_SECONDS, LOOK_SECONDS = 150.0, 2.0


@dataclass(slots=True)
class RealRun:
    """What became of the requests: seconds by kind, statuses, ids of acknowledged additions."""

    latencies: dict[str, list[float]] = field(default_factory=dict)
    statuses: Counter[str] = field(default_factory=Counter)
    resent: int = 0
    acknowledged: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


class OtherWork:
    """What the machine computes for others than us, since this was made; for as long as all our processes live."""

    def __init__(self, servers: Sequence[Server] = ()) -> None:
        self._pids = [os.getpid(), *(server.process.pid for server in servers)]
        self._begin, self._before, self._own = time.monotonic(), _machine_computed_ms(), self._own_ms()

    def cores(self) -> float:
        """Returns how many cores it took, in the mean."""
        others = _machine_computed_ms() - self._before - (self._own_ms() - self._own)
        return round(max(0.0, others / 1000 / (time.monotonic() - self._begin)), 2)

    def _own_ms(self) -> float:
        return sum(stores_computed_ms().values()) + sum(map(computed_ms, self._pids))


def _machine_computed_ms() -> float:
    """Returns the milliseconds that all cores have computed."""
    fields = [int(one) for one in Path("/proc/stat").read_text("ascii").split("\n", 1)[0].split()[1:]]
    return 1000 * (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


class Balancer:
    """Sends each request to one of the processes that live; what a dead one has not answered goes to another one."""

    def __init__(self, servers: Sequence[Server], tenants: Tenants, run: RealRun, label: str) -> None:
        self._alive, self._tenants, self._run, self._label = list(servers), tenants, run, label
        self._local = threading.local()

    def send(self, number: int, one: Planned, due: float) -> None:
        """Sends a request until a process answers; its time counts from when it was due."""
        while True:
            server = self._alive[int(one.choice * len(self._alive))]
            try:
                status, answer = self._call(server, f"{self._label}-{number}", one)
            except (OSError, HTTPException):
                vars(self._local).get("clients", {}).pop(server.address, None)
                with self._run.lock:
                    self._run.resent += 1
                    if server in self._alive and server.process.poll() is not None:
                        self._alive.remove(server)
                continue
            break
        seconds = time.monotonic() - due
        with self._run.lock:
            self._run.statuses[f"{one.kind} {status}"] += 1
            if status < 300:
                self._run.latencies.setdefault(one.kind, []).append(seconds)
                if one.kind == ADD:
                    self._run.acknowledged += [memory["id"] for memory in answer["results"]]

    def _call(self, server: Server, number: str, one: Planned) -> tuple[int, Any]:
        clients: dict[tuple[str, int], Client] = vars(self._local).setdefault("clients", {})
        if server.address not in clients:
            clients[server.address] = Client(server.address)
        client = clients[server.address]
        calls: dict[str, Callable[[], tuple[int, Any]]] = {
            SEARCH: lambda: client.search(*self._tenants.question(one.tenant, one.word)),
            ADD: lambda: client.add(*self._tenants.note(number, one.tenant, one.word), number),
            LIST: lambda: client.list(self._tenants.users[one.tenant % len(self._tenants)]),
        }
        return calls[one.kind]()


def play(
    variables: Mapping[str, str],
    tenants: Tenants,
    planned: Sequence[Planned],
    processes: int,
    kill_at: float,
) -> dict[str, Any]:
    """Plays the requests against real processes, of which the first is killed; returns what became of them.

    `lost` counts acknowledged additions that the ledger does not have afterwards; `agrees` tells whether ledger and
    projections are the same once the work that the killed process left behind is done.
    """
    run = RealRun()
    with ExitStack() as stack:
        servers = [stack.enter_context(serving("", variables)) for _ in range(processes)]
        for place, server in enumerate(servers):
            _warm(Client(server.address), tenants, f"w{processes}-{place}")
        balancer = Balancer(servers, tenants, run, f"r{processes}")
        others = OtherWork(servers)
        begin = time.monotonic() + 0.1
        busy: list[float] = []

        def kill() -> None:
            busy.append(others.cores())
            servers[0].process.kill()

        killer = threading.Timer(begin + kill_at - time.monotonic(), kill)
        killer.start()
        _send_all(balancer, planned, begin)
        killer.join()
        settled = _wait_until_settled(Client(servers[1].address, SETTLE_SECONDS))
    with Memory(settings=Settings.from_env()) as memory:
        lost = sum(memory.get(uid) is None for uid in run.acknowledged)
        report = memory.verify()
    return {
        "run": run,
        "lost": lost,
        "other_work_cores": busy[0],
        "settled_seconds": settled,
        "agrees": bool(report["ok"]),
        "statuses": dict(sorted(run.statuses.items())),
    }


def under_load(
    variables: Mapping[str, str], tenants: Tenants, planned: Sequence[Planned], times: ServiceTimes
) -> float:
    """Returns how much more a process computes for requests that come as planned than for the same calls made alone.

    Searches read what was added meanwhile, and calls beside each other share caches and the interpreter.
    """
    with serving("", variables) as server:
        client, pid = Client(server.address), server.process.pid
        _warm(client, tenants, "wl")
        before, begin = computed_ms(pid), time.monotonic() + 0.1
        _send_all(Balancer([server], tenants, RealRun(), "rl"), planned, begin)
        client.flush()
        computed = computed_ms(pid) - before
    return round(computed / (1000 * times.process_seconds(planned)), 3)


def _send_all(balancer: Balancer, planned: Sequence[Planned], begin: float) -> None:
    """Sends each request when it is due, and waits for all answers."""
    with ThreadPoolExecutor(CLIENTS) as pool:
        sent = []
        for number, one in enumerate(planned):
            time.sleep(max(0.0, begin + one.at - time.monotonic()))
            sent.append(pool.submit(balancer.send, number, one, begin + one.at))
        for future in sent:
            future.result()


def _warm(client: Client, tenants: Tenants, label: str) -> None:
    """Has a process load all models, and fill its caches with some requests."""
    for number in range(WARM):
        key = f"{label}-{number}"
        client.add(*tenants.note(key, number, 0.5), key)
        client.search(*tenants.question(number, 0.5))
        client.list(tenants.users[number % len(tenants)])
    client.flush()


def _wait_until_settled(client: Client) -> float | None:
    """Waits until no work is left; returns the seconds, None if that was not reached."""
    begin = time.monotonic()
    while time.monotonic() - begin < SETTLE_SECONDS:
        if not client.flush():
            return round(time.monotonic() - begin, 1)
        time.sleep(LOOK_SECONDS)
    return None


def percentile(values: Sequence[float], percent: int) -> float:
    """Returns a percentile of seconds, in milliseconds."""
    return round(1000 * sorted(values)[min(len(values) - 1, len(values) * percent // 100)], 1)


def compare(real: Mapping[str, Any], simulated: Outcome) -> dict[str, Any]:
    """Returns p50 and p99 of both, by kind and of all, and the factor between them: the larger over the smaller."""
    run: RealRun = real["run"]
    both = {"all": (list(chain(*run.latencies.values())), list(chain(*simulated.latencies.values())))}
    both |= {kind: (run.latencies[kind], simulated.latencies[kind]) for kind in sorted(run.latencies)}
    figures = {}
    for kind, (measured, expected) in both.items():
        figures[kind] = {"requests": len(measured)}
        for percent in (50, 99):
            one, other = percentile(measured, percent), percentile(expected, percent)
            factor = round(max(one, other) / min(one, other), 2)
            figures[kind][f"p{percent}_ms"] = {"real": one, "simulated": other, "factor": factor}
    return figures
