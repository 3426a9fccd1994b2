"""The discrete-event model: processes of the service on cores, the locks of a ledger, stores that can be away.

A process has `threads`, each of which serves one call, and in front of them a queue that refuses what is too much. What
a call computes with the interpreter's lock (`gil`) takes turns of `SWITCH` seconds with the other calls of its process
and with everything else on the machine's cores; what a model computes (`free`) needs a core and not the lock; `stores`
is what the servers compute for it, on cores of their own or the same; for `wait` it waits for no processor (network,
disk). The locks are those of a ledger on PostgreSQL (docs/decisions/0050), for all processes: an addition, and the
enrichment that it leaves behind, hold the lock of their tenant for `locked` seconds, and a delivery, which takes along
all that was written before it, that of the vector index's cursor for `cursor` seconds. None of them holds the lock of
all writers. In the service a batch of enrichments holds the locks of all of its tenants; here each is a batch.

An addition is acknowledged once the ledger has it. What is left is a job of its process: enrichment, one after the
other, and delivery to the vector index. While a store is away (`Outage`), a search does without it, and costs what it
was measured to cost then; deliveries wait. After the store's return one process delivers them all, under a lease; until
then searches go on without. A process that is killed (`kill_at`) answers nothing more: its clients send again what they
have no answer to, to another process, and the jobs it had are claimed by another one after `CLAIM` seconds.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import simpy

# Seconds for which a thread keeps the interpreter, and a core, while others wait for it (`sys.getswitchinterval()`).
SWITCH = 0.005
# Rounds of computing and waiting for stores that a call with several statements has.
ROUNDS = 4
# Seconds for which a job is claimed (graphmem/jobs/enrichment_lane.py), and the longest pause between two attempts to
# reach a store again (graphmem/stores/projection_worker.py).
CLAIM, RETRY = 60.0, 5.0
# Mean seconds of a piece of work of another program.
OTHER = 0.1
# Seconds after which a client sends again what a killed process has not answered.
RESEND = 0.01

Steps = Generator[simpy.Event, Any, Any]


@dataclass(frozen=True, slots=True)
class Demand:
    """What a call asks of each resource, in seconds; `stores`: the servers' computing, by store.

    `locked`: the lock of the call's tenant; `cursor`: that of the vector index's cursor.
    """

    gil: float = 0.0
    free: float = 0.0
    wait: float = 0.0
    stores: Mapping[str, float] = field(default_factory=dict)
    locked: float = 0.0
    cursor: float = 0.0


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request: when it comes, what it is, whose, and what it takes.

    `degraded` is what it takes by the name of a store that is away; `job` is what is left after the answer; `choice`
    selects its process among those that live.
    """

    at: float
    kind: str
    demand: Demand
    tenant: int = 0
    choice: float = 0.0
    degraded: Mapping[str, Demand] = field(default_factory=dict)
    job: Demand | None = None


@dataclass(frozen=True, slots=True)
class Outage:
    """A store that is away from `start` to `end`; the first call of a process that needs it waits `timeout`."""

    store: str
    start: float
    end: float
    timeout: float = 0.0


@dataclass(frozen=True, slots=True)
class Machines:
    """Where it runs: `cores` are those of a machine with `processes`; `store_cores` those of each store, None: the same
    machine's. `machines` share the processes equally. `per_point`: what delivering one change takes after an outage.
    `other_work`: how many cores of the first machine other programs take, in the mean.
    """

    processes: int = 1
    cores: int = 2
    machines: int = 1
    store_cores: int | None = None
    threads: int = 8
    queue: int = 64
    outages: Sequence[Outage] = ()
    kill_at: float | None = None
    per_point: Demand = Demand()
    other_work: float = 0.0
    seed: int = 0


@dataclass(slots=True)
class Outcome:
    """What became of the requests.

    `latencies` are seconds from a request's arrival to its answer, by kind; `waiting` are samples, one at each arrival,
    of the calls that wait for a thread, `jobs` and `undelivered` of the work left behind. `acknowledged` counts the
    additions that were answered, `refused` the requests that found the queue full.
    """

    latencies: dict[str, list[float]] = field(default_factory=dict)
    degraded: Counter[str] = field(default_factory=Counter)
    waiting: list[int] = field(default_factory=list)
    jobs: list[int] = field(default_factory=list)
    undelivered: list[int] = field(default_factory=list)
    arrived: int = 0
    refused: int = 0
    resent: int = 0
    acknowledged: int = 0
    jobs_done: int = 0
    delivered: int = 0
    computed: float = 0.0
    end: float = 0.0


class Process:
    """A process of the service: its threads, its lock, and its lane of jobs."""

    def __init__(self, env: simpy.Environment, number: int, cores: simpy.PriorityResource, threads: int) -> None:
        self.number, self.cores = number, cores
        self.threads = simpy.Resource(env, threads)
        self.gil, self.lane = simpy.Resource(env, 1), simpy.Resource(env, 1)
        self.is_alive = True
        self.running: set[simpy.Process] = set()
        self.has_noticed: dict[Outage, float] = {}


class Cluster:
    """One simulation; `run` plays the arrivals and returns what became of them."""

    def __init__(self, machines: Machines) -> None:
        self.env, self.machines, self.outcome = simpy.Environment(), machines, Outcome()
        self._chance = random.Random(machines.seed)  # noqa: S311  (a simulation)
        hosts = [simpy.PriorityResource(self.env, machines.cores) for _ in range(machines.machines)]
        self.processes = [
            Process(self.env, number, hosts[number % len(hosts)], machines.threads)
            for number in range(machines.processes)
        ]
        self._hosts, self._stores = hosts, dict[str, simpy.PriorityResource]()
        self._tenants = defaultdict[int, simpy.Resource](lambda: simpy.Resource(self.env, 1))
        self._cursor, self._lease = simpy.Resource(self.env, 1), simpy.Resource(self.env, 1)
        self._delivery_began = -1.0
        self._open_jobs = 0
        self._undelivered: Counter[str] = Counter()
        self._back: dict[Outage, float] = {}

    def run(self, arrivals: Sequence[Arrival], until: float | None = None) -> Outcome:
        """Plays the arrivals, in order of time, and goes on until all work is done, or until `until`."""
        self.env.process(self._arrive(arrivals))
        for outage in self.machines.outages:
            self.env.process(self._return(outage))
        if self.machines.other_work:
            self.env.process(self._work_for_others(arrivals[-1].at))
        if self.machines.kill_at is not None:
            self.env.process(self._kill(self.machines.kill_at))
        self.env.run(until)
        self.outcome.end = self.env.now
        return self.outcome

    # --- resources ----------------------------------------------------------------------------------------------------

    def _compute(
        self, seconds: float, cores: simpy.PriorityResource, gil: simpy.Resource | None = None, priority: int = 0
    ) -> Steps:
        """Computes for so long, in slices; who holds the interpreter's lock may have to wait for a core."""
        while seconds > 0:
            part = min(SWITCH, seconds)
            if gil is None:
                with cores.request(priority) as core:
                    yield core
                    yield self.env.timeout(part)
            else:
                with gil.request() as lock:
                    yield lock
                    with cores.request(priority) as core:
                        yield core
                        yield self.env.timeout(part)
            self.outcome.computed += part
            seconds -= part

    def _cores_of(self, store: str) -> simpy.PriorityResource:
        if self.machines.store_cores is None:
            return self._hosts[0]
        if store not in self._stores:
            self._stores[store] = simpy.PriorityResource(self.env, self.machines.store_cores)
        return self._stores[store]

    def _take(self, process: Process, demand: Demand, tenant: int = 0) -> Steps:
        """Takes what a call asks for; its tenant matters only to `locked`."""
        yield from self._compute(demand.free, process.cores)
        rounds = ROUNDS if demand.stores or demand.wait else 1
        for _ in range(rounds):
            yield from self._compute(demand.gil / rounds, process.cores, process.gil)
            for store, seconds in demand.stores.items():
                yield from self._compute(seconds / rounds, self._cores_of(store))
            if demand.wait:
                yield self.env.timeout(demand.wait / rounds)
        if demand.locked:
            with self._tenants[tenant].request() as lock:
                yield lock
                yield self.env.timeout(demand.locked)
        if demand.cursor:
            yield from self._move_cursor(demand.cursor)

    def _move_cursor(self, seconds: float) -> Steps:
        """Delivers what was written before, unless a delivery that began meanwhile has taken it along."""
        written = self.env.now
        with self._cursor.request() as lock:
            yield lock
            if self._delivery_began < written:
                self._delivery_began = self.env.now
                yield self.env.timeout(seconds)

    # --- requests -----------------------------------------------------------------------------------------------------

    def _arrive(self, arrivals: Sequence[Arrival]) -> Steps:
        for arrival in arrivals:
            yield self.env.timeout(arrival.at - self.env.now)
            self.outcome.arrived += 1
            self._sample()
            self._send(arrival)

    def _sample(self) -> None:
        self.outcome.waiting.append(sum(len(process.threads.queue) for process in self.processes))
        self.outcome.jobs.append(self._open_jobs)
        self.outcome.undelivered.append(self._undelivered.total())

    def _send(self, arrival: Arrival) -> None:
        alive = [process for process in self.processes if process.is_alive]
        process = alive[int(arrival.choice * len(alive))]
        if len(process.threads.queue) >= self.machines.queue and process.threads.count == self.machines.threads:
            self.outcome.refused += 1
            return
        self._start(process, self._serve(process, arrival), partial(self._resend, arrival))

    def _start(self, process: Process, steps: Steps, if_killed: Any) -> None:
        """Runs steps in a process; once that is killed, calls `if_killed` in their place."""

        def guarded() -> Steps:
            try:
                yield from steps
            except simpy.Interrupt:
                if_killed()
            finally:
                process.running.discard(task)

        task = self.env.process(guarded())
        process.running.add(task)

    def _serve(self, process: Process, arrival: Arrival) -> Steps:
        with process.threads.request() as thread:
            yield thread
            demand = arrival.demand
            for outage in self._outages_met(process, arrival):
                if (patience := process.has_noticed[outage] - self.env.now) > 0:
                    yield self.env.timeout(patience)
                demand = arrival.degraded[outage.store]
                self.outcome.degraded[outage.store] += 1
            yield from self._take(process, demand, arrival.tenant)
        self.outcome.latencies.setdefault(arrival.kind, []).append(self.env.now - arrival.at)
        if arrival.job is not None:
            self.outcome.acknowledged += 1
            self._open_jobs += 1
            self._begin_job(process, arrival.job, arrival.tenant)

    def _outages_met(self, process: Process, arrival: Arrival) -> list[Outage]:
        """The outages that a request meets; the process notices one by its first call, after the timeout."""
        met = [outage for outage in self._away() if outage.store in arrival.degraded]
        for outage in met:
            process.has_noticed.setdefault(outage, self.env.now + outage.timeout)
        return met

    def _away(self) -> list[Outage]:
        now = self.env.now
        return [one for one in self.machines.outages if one.start <= now and not now >= self._back.get(one, now + 1)]

    def _resend(self, arrival: Arrival) -> None:
        self.outcome.resent += 1

        def later() -> Steps:
            yield self.env.timeout(RESEND)
            self._send(arrival)

        self.env.process(later())

    # --- what is left behind ------------------------------------------------------------------------------------------

    def _begin_job(self, process: Process, job: Demand, tenant: int) -> None:
        self._start(process, self._do_job(process, job, tenant), partial(self._claim_later, job, tenant))

    def _do_job(self, process: Process, job: Demand, tenant: int) -> Steps:
        with process.lane.request() as turn:
            yield turn
            away = {outage.store for outage in self._away()}
            stores = {store: seconds for store, seconds in job.stores.items() if store not in away}
            cursor = 0.0 if away else job.cursor
            yield from self._take(process, replace(job, stores=stores, cursor=cursor), tenant)
        self._open_jobs -= 1
        self.outcome.jobs_done += 1
        self._undelivered.update(away)
        self.outcome.delivered += not away

    def _claim_later(self, job: Demand, tenant: int) -> None:
        def later() -> Steps:
            yield self.env.timeout(CLAIM)
            self._begin_job(next(process for process in self.processes if process.is_alive), job, tenant)

        self.env.process(later())

    def _return(self, outage: Outage) -> Steps:
        """After an outage: the pause until the next attempt, then one process delivers all that waits."""
        yield self.env.timeout(outage.end + self._chance.uniform(0, RETRY))
        with self._lease.request() as lease:
            yield lease
            while self._undelivered[outage.store]:
                process = next(process for process in self.processes if process.is_alive)
                yield from self._take(process, self.machines.per_point)
                self._undelivered[outage.store] -= 1
                self.outcome.delivered += 1
        self._back[outage] = self.env.now

    def _work_for_others(self, end: float) -> Steps:
        """Computes for other programs: pieces of work that begin as a Poisson process, until the last request comes.

        A scheduler that is fair prefers whoever has computed little, as our calls have, once a slice is over.
        """
        while self.env.now < end:
            yield self.env.timeout(self._chance.expovariate(self.machines.other_work / OTHER))
            self.env.process(self._compute(self._chance.expovariate(1 / OTHER), self._hosts[0], priority=1))

    def _kill(self, at: float) -> Steps:
        yield self.env.timeout(at)
        victim = self.processes[0]
        victim.is_alive = False
        for task in list(victim.running):
            task.interrupt()
