"""Simulates processes of the service, with the service times of this machine.

    python benchmarks/simulate measure benchmarks/chats > benchmarks/results/service-times.json   # on servers
    python benchmarks/simulate run benchmarks/results/simulate-check.json > benchmarks/results/simulate.json
    python benchmarks/simulate check benchmarks/chats > benchmarks/results/simulate-check.json    # on servers

`measure` takes the times of single calls: in a folder, and of `graphmem serve` on the servers of POSTGRES_URL and
QDRANT_URL (a new database and a new collection, gone afterwards). `run` takes these, or those in the result of `check`,
and simulates 1, 4 and 16 processes, one for each core and the stores beside them on as many: a load as even as
Poisson's, one with bursts, and the vector index away for two minutes. `check` takes ten minutes: it measures, sends the
same requests to two and to four real processes on this machine's cores, kills one process halfway, simulates the same,
and says by which factor both differ. What other programs compute meanwhile is measured, and simulated as well. Needs
Linux.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

FOLDER = Path(__file__).parent
sys.path.insert(1, str(FOLDER.parent))

import measuring  # noqa: E402
import real_run  # noqa: E402
from cluster import Cluster, Machines, Outage, Outcome  # noqa: E402
from service import new_stores  # noqa: E402
from workload import Load, ServiceTimes, plan  # noqa: E402

from graphmem import Memory  # noqa: E402
from graphmem.evaluation.chats import load as load_chats  # noqa: E402
from graphmem.evaluation.datasets import Dataset  # noqa: E402
from graphmem.evaluation.environment import environment  # noqa: E402
from graphmem.evaluation.runner import store  # noqa: E402
from graphmem.settings import Settings  # noqa: E402

PROCESSES, CHECKED = (1, 4, 16), (2, 4)
# Shares of the processors' time that the requests of a load take, if they come evenly.
UTILISATIONS, CHECK_UTILISATION = (0.4, 0.7), 0.4
# The share of the cores that `check` leaves to other programs at most: the rest has to do for the requests.
MOST_OTHERS = 0.75
SECONDS, AWAY_SECONDS = 120.0, 120.0
# The load by which is measured what a process computes more than for single calls; a seed of no run that is checked.
LOAD_SECONDS, LOAD_SEED = 40.0, 0
# Seconds that a call waits for a Qdrant server that hangs (graphmem/stores/qdrant/client.py).
READ_TIMEOUT = 1.0


def figures_of(outcome: Outcome) -> dict[str, Any]:
    """Returns the figures of a simulation, ready for JSON."""
    latencies = list(chain(*outcome.latencies.values()))
    return {
        "arrived": outcome.arrived,
        "refused": outcome.refused,
        "p50_ms": real_run.percentile(latencies, 50),
        "p99_ms": real_run.percentile(latencies, 99),
        "waiting": {"mean": round(mean(outcome.waiting), 2), "max": max(outcome.waiting)},
        "jobs": {"mean": round(mean(outcome.jobs), 2), "max": max(outcome.jobs)},
        "undelivered_max": max(outcome.undelivered),
        "degraded": dict(outcome.degraded),
        "lost": outcome.acknowledged - outcome.jobs_done,
    }


def run(times: ServiceTimes, cpu_seconds: float) -> list[dict[str, Any]]:
    """Simulates the loads on all numbers of processes."""
    found = []
    for processes in PROCESSES:
        machines = Machines(processes, cores=processes, store_cores=processes, per_point=times.per_point)
        for utilisation in UTILISATIONS:
            rate = utilisation * processes / cpu_seconds
            even = Load(rate, SECONDS, burst_share=0.0)
            away = Outage("vectors", 30.0, 30.0 + AWAY_SECONDS, READ_TIMEOUT)
            scenarios = {
                "even": (machines, even),
                "bursts": (machines, replace(even, burst_share=0.2)),
                "vectors away": (replace(machines, outages=(away,)), replace(even, seconds=SECONDS + AWAY_SECONDS)),
            }
            for name, (where, load) in scenarios.items():
                outcome = Cluster(where).run(times.arrivals(plan(load)))
                found.append(
                    {
                        "processes": processes,
                        "utilisation": utilisation,
                        "rate": round(rate, 1),
                        "scenario": name,
                        **figures_of(outcome),
                    }
                )
                print(json.dumps(found[-1]), file=sys.stderr, flush=True)
    return found


def process_seconds(times: Mapping[str, Any]) -> float:
    """Returns the mean seconds that a process computes for a request of the mix, without the stores."""
    bare = json.loads(json.dumps(times))
    for one in [*chain(*bare["calls"].values()), bare["job"]]:
        one["stores"] = {}
    return ServiceTimes(bare).cpu_seconds()


def with_client(times: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the times with what the client computes, for a client on the same cores."""
    calls = {
        kind: [one | {"free": one["free"] + one["client"]} for one in samples]
        for kind, samples in times["calls"].items()
    }
    return {**times, "calls": calls}


def check(data: Dataset, seconds: float) -> dict[str, Any]:
    """Measures, then plays the same requests for real and simulated."""
    tenants, cores = measuring.Tenants(data), os.cpu_count() or 1
    other_work = real_run.OtherWork()
    time.sleep(measuring.IDLE)
    others = min(other_work.cores(), MOST_OTHERS * cores)
    with TemporaryDirectory(prefix="graphmem-") as home, new_stores(home) as variables:
        _fill(data)
        measured = _measure_service(data, tenants, variables, cores - others)
        times, runs = ServiceTimes(with_client(measured)), []
        for processes in CHECKED:
            rate = CHECK_UTILISATION * (cores - others) / times.cpu_seconds()
            planned = plan(Load(rate, seconds, tenants=len(tenants), seed=processes))
            real = real_run.play(variables, tenants, planned, processes, seconds / 2)
            done: real_run.RealRun = real.pop("run")
            machines = Machines(processes, cores, kill_at=seconds / 2, other_work=real["other_work_cores"])
            outcome = Cluster(machines).run(times.arrivals(planned))
            runs.append(
                {
                    "processes": processes,
                    "cores": cores,
                    "requests": len(planned),
                    "rate": round(rate, 1),
                    "figures": real_run.compare({"run": done}, outcome),
                    "real": {**real, "resent": done.resent, "acknowledged": len(done.acknowledged)},
                    "simulated": figures_of(outcome) | {"resent": outcome.resent},
                }
            )
            print(json.dumps(runs[-1]), file=sys.stderr, flush=True)
    factors = [one["factor"] for each in runs for key, one in each["figures"]["all"].items() if key.endswith("_ms")]
    return {"worst_factor": max(factors), "lost": sum(one["real"]["lost"] for one in runs), "runs": runs, **measured}


def _measure_service(
    data: Dataset, tenants: measuring.Tenants, variables: Mapping[str, str], cores: float
) -> dict[str, Any]:
    """Measures the calls of the service, and what a process computes more under the load that `check` sends to all."""
    measured = measuring.measure_service(data, tenants, variables)
    times = ServiceTimes(measured)
    load = Load(CHECK_UTILISATION * cores / times.cpu_seconds(), LOAD_SECONDS, tenants=len(tenants), seed=LOAD_SEED)
    return {**measured, "under_load": real_run.under_load(variables, tenants, plan(load), times)}


def _fill(data: Dataset) -> None:
    with Memory(settings=Settings.from_env()) as memory:
        store(memory, data, lambda *_: None)


def _measure(data: Dataset) -> dict[str, Any]:
    tenants = measuring.Tenants(data)
    embedded = measuring.measure_embedded(data, tenants)
    with TemporaryDirectory(prefix="graphmem-") as home, new_stores(home) as variables:
        _fill(data)
        cores = float(os.cpu_count() or 1)
        return {"embedded": embedded, "service": _measure_service(data, tenants, variables, cores)}


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=("measure", "run", "check"))
    parser.add_argument("source", type=Path, help="chats in the form of benchmarks/chats; for `run`: measured times")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each real run of `check` (default: 60)")
    options = parser.parse_args()
    if options.task != "run" and "POSTGRES_URL" not in os.environ:
        parser.error("set POSTGRES_URL and QDRANT_URL: calls of the service are measured on servers")
    if options.task == "run":
        measured = json.loads(options.source.read_text("utf-8"))
        times = measured.get("service", measured)  # `check` writes them as well
        figures: dict[str, Any] = {"runs": run(ServiceTimes(times), process_seconds(times))}
    elif options.task == "check":
        figures = check(load_chats(options.source), options.seconds)
    else:
        figures = _measure(load_chats(options.source))
    print(json.dumps({"benchmark": f"simulate {options.task}", **environment(), **figures}, indent=1))


if __name__ == "__main__":
    main()
