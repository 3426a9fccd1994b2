"""The simulation of many processes: queues whose waiting is known, and requests of which none is lost."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from statistics import mean
from types import ModuleType
from typing import Any

import pytest
from support.fakes import fake_models

from graphmem import Memory, Settings
from graphmem.stores.ledger.postgres import MOST_NAMES

FOLDER = Path(__file__).parents[2] / "benchmarks" / "simulate"
CALLS, RATE, SERVICE = 6_000, 100.0, 0.006
LOAD = RATE * SERVICE


@pytest.fixture(scope="module")
def cluster() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        yield import_module("cluster")


@pytest.fixture(scope="module")
def measuring(cluster: ModuleType) -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER.parent)
        yield import_module("measuring")


@pytest.fixture(scope="module")
def workload(cluster: ModuleType) -> ModuleType:
    return import_module("workload")


def poisson_calls(cluster: ModuleType, number: int, demand: Callable[[random.Random], float], **more: Any) -> list[Any]:
    chance = random.Random(5)
    times = accumulate(chance.expovariate(RATE) for _ in range(number))
    return [
        cluster.Arrival(at, "call", cluster.Demand(gil=demand(chance)), choice=chance.random(), **more) for at in times
    ]


def exponential(chance: random.Random) -> float:
    return chance.expovariate(1 / SERVICE)


def constant(_: random.Random) -> float:
    return SERVICE


# Mean time in the system: M/M/1 1 / (mu - lambda); M/D/1 by Pollaczek and Khinchine S + rho S / (2 (1 - rho)); and
# processor sharing S / (1 - rho), whatever the times of service are.
@pytest.mark.parametrize(
    ("threads", "demand", "expected"),
    [
        pytest.param(1, constant, SERVICE + LOAD * SERVICE / (2 * (1 - LOAD)), id="M/D/1"),
        pytest.param(1, exponential, SERVICE / (1 - LOAD), id="M/M/1", marks=pytest.mark.thorough),
        pytest.param(1_000, exponential, SERVICE / (1 - LOAD), id="shared", marks=pytest.mark.thorough),
    ],
)
def test_the_mean_time_is_that_of_queueing_theory(
    cluster: ModuleType, threads: int, demand: Callable[[random.Random], float], expected: float
) -> None:
    number = CALLS if demand is constant else 10 * CALLS
    machines = cluster.Machines(cores=1, threads=threads, queue=10**6)
    outcome = cluster.Cluster(machines).run(poisson_calls(cluster, number, demand))
    assert mean(outcome.latencies["call"]) == pytest.approx(expected, rel=0.06)


@pytest.mark.thorough
def test_two_processes_wait_as_two_queues_and_as_one_core(cluster: ModuleType) -> None:
    calls = poisson_calls(cluster, 4 * CALLS, exponential)
    machines = cluster.Machines(processes=2, threads=1, queue=10**6)
    two_cores = cluster.Cluster(replace(machines, cores=2)).run(calls)
    # Each has half of the requests: two queues M/M/1 of half the rate.
    assert mean(two_cores.latencies["call"]) == pytest.approx(SERVICE / (1 - LOAD / 2), rel=0.06)
    # Slices of one core are shared by both, as by the threads of one.
    one_core = cluster.Cluster(replace(machines, cores=1, threads=1_000)).run(calls)
    assert mean(one_core.latencies["call"]) == pytest.approx(SERVICE / (1 - LOAD), rel=0.08)


def test_models_and_waits_leave_the_interpreter_to_others(cluster: ModuleType) -> None:
    def end(demand: Any) -> float:
        calls = [cluster.Arrival(0.0, "call", demand, tenant) for tenant in range(2)]
        return cluster.Cluster(cluster.Machines(cores=2, threads=2)).run(calls).end

    assert end(cluster.Demand(gil=0.1)) == pytest.approx(0.2)
    assert end(cluster.Demand(free=0.1)) == pytest.approx(0.1)
    assert end(cluster.Demand(wait=0.1)) == pytest.approx(0.1)
    assert end(cluster.Demand(locked=0.1)) == pytest.approx(0.1)
    assert end(cluster.Demand(stores={"vectors": 0.1})) == pytest.approx(0.1)


def test_writers_of_one_tenant_wait_for_each_other(cluster: ModuleType) -> None:
    write, job = cluster.Demand(locked=0.1), cluster.Demand(locked=0.2)

    def end(second: int) -> float:
        calls = [cluster.Arrival(0.0, "add", write, 0, 0.0, job=job), cluster.Arrival(0.0, "call", job, second, 0.9)]
        return cluster.Cluster(cluster.Machines(processes=2)).run(calls).end

    assert end(second=0) == pytest.approx(0.5)  # the addition, the other call, what the addition leaves behind
    assert end(second=1) == pytest.approx(0.3)


def test_a_delivery_takes_along_what_was_written_before_it(cluster: ModuleType) -> None:
    deliver = cluster.Demand(cursor=0.1)
    calls = [cluster.Arrival(at, "call", deliver, tenant) for tenant, at in enumerate((0.0, 0.05, 0.06, 0.07))]
    assert cluster.Cluster(cluster.Machines()).run(calls).end == pytest.approx(0.2)


def test_the_queue_refuses_what_is_too_much(cluster: ModuleType) -> None:
    calls = [cluster.Arrival(0.0, "call", cluster.Demand(gil=1.0)) for _ in range(20)]
    outcome = cluster.Cluster(cluster.Machines(threads=2, queue=3)).run(calls)
    assert (len(outcome.latencies["call"]), outcome.refused) == (5, 15)


def additions(cluster: ModuleType, number: int, job_seconds: float = 0.003) -> list[Any]:
    add, job = cluster.Demand(gil=0.004, locked=0.001), cluster.Demand(free=job_seconds, stores={"vectors": 0.001})
    chance = random.Random(7)
    return [cluster.Arrival(n * 0.02, "add", add, choice=chance.random(), job=job) for n in range(number)]


def test_nothing_is_lost_when_a_process_is_killed(cluster: ModuleType) -> None:
    calls = additions(cluster, 200, job_seconds=0.05)
    calls += [replace(calls[n], at=1.99) for n in range(10)]  # so that some are under way
    calls.sort(key=lambda one: one.at)
    outcome = cluster.Cluster(cluster.Machines(processes=2, kill_at=2.0)).run(calls)
    assert outcome.resent > 0
    assert outcome.arrived == len(outcome.latencies["add"]) == outcome.acknowledged == 210
    assert outcome.jobs_done == outcome.delivered == 210
    assert outcome.end > 2 + cluster.CLAIM  # a job of the killed process was claimed by the other


def test_what_a_store_misses_is_delivered_when_it_is_back(cluster: ModuleType) -> None:
    outage = cluster.Outage("vectors", start=1.0, end=3.0, timeout=0.5)
    calls = additions(cluster, 200)
    full, less = cluster.Demand(gil=0.002, stores={"vectors": 0.001}), cluster.Demand(gil=0.003)
    calls += [cluster.Arrival(n * 0.05, "search", full, degraded={"vectors": less}) for n in range(80)]
    calls.sort(key=lambda one: one.at)
    machines = cluster.Machines(outages=[outage], per_point=cluster.Demand(gil=0.001))
    outcome = cluster.Cluster(machines).run(calls)
    assert max(outcome.undelivered) >= 90  # fifty a second, for two seconds
    assert outcome.undelivered[0] == 0
    assert outcome.delivered == outcome.jobs_done == outcome.acknowledged == 200
    assert 40 <= outcome.degraded["vectors"] <= 60  # twenty a second: of the outage, and until all is delivered
    assert max(outcome.latencies["search"]) == pytest.approx(0.5, abs=0.1)
    assert sum(one > 0.2 for one in outcome.latencies["search"]) < 10  # those of the first half second alone


def test_a_seed_makes_the_same_run_again(cluster: ModuleType, workload: ModuleType) -> None:
    load = workload.Load(rate=40, seconds=10, tenants=50)
    planned = workload.plan(load)
    assert planned == workload.plan(load) != workload.plan(replace(load, seed=1))
    sample = {"gil": 5.0, "free": 2.0, "wait": 1.0, "stores": {"ledger": 1.0}}
    times = workload.ServiceTimes(
        {"calls": dict.fromkeys(workload.MIX, [sample, sample | {"gil": 9.0}]), "job": sample, "delivery": {"gil": 1.0}}
    )
    first, again = (cluster.Cluster(cluster.Machines(processes=2)).run(times.arrivals(planned)) for _ in range(2))
    assert first == again
    assert first.arrived == sum(map(len, first.latencies.values())) + first.refused == len(planned)


def test_a_load_has_its_rate_its_tenants_and_its_bursts(workload: ModuleType) -> None:
    load = workload.Load(rate=100, seconds=100, tenants=20, burst_share=0.0)
    calm = workload.plan(load)
    assert len(calm) == pytest.approx(10_000, rel=0.05)
    harmonic = sum(1 / rank for rank in range(1, 21))
    for tenant in (0, 1, 9):
        share = sum(one.tenant == tenant for one in calm) / len(calm)
        assert share == pytest.approx(1 / (tenant + 1) / harmonic, rel=0.15)

    def variance_ratio(planned: list[Any]) -> float:
        """Variance of the requests in a second over their mean: 1 for a Poisson process."""
        counts = [sum(int(one.at) == second for one in planned) for second in range(100)]
        return sum((count - mean(counts)) ** 2 for count in counts) / len(counts) / mean(counts)

    assert variance_ratio(calm) == pytest.approx(1, abs=0.5)
    assert variance_ratio(workload.plan(replace(load, burst_share=0.5, burst=50))) > 5


def test_a_process_computes_more_under_load_and_the_stores_do_not(workload: ModuleType) -> None:
    call = {"gil": 20.0, "free": 4.0, "wait": 3.0, "stores": {"ledger": 5.0}}
    alone = {"calls": dict.fromkeys(workload.MIX, [call]), "job": {"gil": 10.0, "locked": 2.0}, "delivery": {}}
    times = workload.ServiceTimes({**alone, "under_load": 1.5})
    demand = times.demand(workload.SEARCH, 0.5)
    assert (demand.gil, demand.free, demand.wait) == pytest.approx((0.030, 0.006, 0.003))
    assert (demand.stores["ledger"], times.job.locked) == pytest.approx((0.005, 0.002))
    planned = [workload.Planned(0.0, kind, 0, 0.0, 0.5, 0.5) for kind in (workload.SEARCH, workload.ADD)]
    assert times.process_seconds(planned) == pytest.approx(1.5 * (0.024 + 0.024 + 0.010))
    assert workload.ServiceTimes(alone).process_seconds(planned) == pytest.approx(0.058)


def test_the_clock_counts_the_writes_of_an_addition(measuring: ModuleType, tmp_path: Path) -> None:
    clock = measuring.WriteClock()
    with Memory(tmp_path / "m", settings=Settings.from_dict(fake_models())) as memory:
        with clock.watching(memory):
            memory.add("I like tea.", user_id="ana", infer=False, wait=False)
            memory.flush()
            with memory.engine.ledger.write(of=()):
                pass
        counted = len(clock.held)
        memory.add("I like coffee.", user_id="ana", infer=False)
    # The addition, what the enrichment derives of it, and the write above; none after the block.
    assert [(one.lock, one.is_own) for one in clock.held] == [("alone", True), ("alone", False), ("alone", True)]
    assert len(clock.held) == counted
    assert clock.figures(1)["alone"]["writes"] == 3
    assert clock.ms("alone", 2, own=False) == clock.held[1].ms / 2 > 0


def test_the_clock_tells_what_is_held_on_a_server(measuring: ModuleType) -> None:
    places = {"user:ana": "partition", "run:1": "partition", "vectors@qdrant/graphmem": "cursor"}
    assert {name: measuring.lock_of([name]) for name in places} == places
    assert measuring.lock_of(()) == "nothing"
    assert measuring.lock_of(None) == "alone"
    assert measuring.lock_of([f"user:{number}" for number in range(MOST_NAMES + 1)]) == "alone"
