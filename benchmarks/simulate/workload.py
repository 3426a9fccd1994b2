"""Requests to be simulated, and to be sent: tenants by Zipf's law, bursts, and what a request of each kind takes."""

from __future__ import annotations

import random
from bisect import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from cluster import Arrival, Demand

SEARCH, ADD, LIST = "search", "add", "list"
# Requests of each kind in a hundred.
MIX = {SEARCH: 70, ADD: 25, LIST: 5}


@dataclass(frozen=True, slots=True)
class Load:
    """`rate` requests a second for `seconds`; the k-th of `tenants` sends 1/k^`exponent` of them.

    `burst_share` of the requests come in bursts: `burst` of them from one tenant within a second. The rest is a Poisson
    process, and so are the beginnings of the bursts.
    """

    rate: float
    seconds: float
    tenants: int = 1000
    exponent: float = 1.0
    burst_share: float = 0.2
    burst: int = 20
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Planned:
    """A request without what it takes: `choice`, `sample` and `word`, from 0 to 1, select process, time and words."""

    at: float
    kind: str
    tenant: int
    choice: float
    sample: float
    word: float


def plan(load: Load) -> list[Planned]:
    """Returns the requests of a load, in order of time; the same ones for the same seed."""
    chance = random.Random(load.seed)  # noqa: S311  (a simulation)
    weights = list(accumulate(1 / rank**load.exponent for rank in range(1, load.tenants + 1)))
    kinds, shares = list(MIX), list(MIX.values())

    def tenant() -> int:
        return bisect(weights, chance.random() * weights[-1])

    def poisson(rate: float) -> list[float]:
        times, at = list[float](), chance.expovariate(rate) if rate else load.seconds
        while at < load.seconds:
            times.append(at)
            at += chance.expovariate(rate)
        return times

    moments = [(at, tenant()) for at in poisson(load.rate * (1 - load.burst_share))]
    for start in poisson(load.rate * load.burst_share / load.burst):
        one = tenant()
        moments += [(start + chance.random(), one) for _ in range(load.burst)]
    return [
        Planned(at, chance.choices(kinds, shares)[0], one, chance.random(), chance.random(), chance.random())
        for at, one in sorted(moments)
    ]


class ServiceTimes:
    """What calls take, as `measure` has written it (`times` of one kind of stores).

    `under_load` of the times is how much more a process computes for a call beside others than for one made alone.
    """

    def __init__(self, times: Mapping[str, Any]) -> None:
        load = times.get("under_load", 1.0)
        self._samples = {kind: [_demand(one, load) for one in samples] for kind, samples in times["calls"].items()}
        self.job, self.per_point = _demand(times["job"], load), _demand(times["delivery"], load)

    def demand(self, kind: str, sample: float) -> Demand:
        """Returns one of the measured demands of a kind."""
        samples = self._samples[kind]
        return samples[int(sample * len(samples))]

    def arrivals(self, planned: Sequence[Planned]) -> list[Arrival]:
        """Returns the requests with what they take."""
        return [self._arrival(one) for one in planned]

    def _arrival(self, one: Planned) -> Arrival:
        without = f"{one.kind}_without_vectors"
        degraded = {"vectors": self.demand(without, one.sample)} if without in self._samples else {}
        job = self.job if one.kind == ADD else None
        return Arrival(one.at, one.kind, self.demand(one.kind, one.sample), one.tenant, one.choice, degraded, job)

    def process_seconds(self, planned: Sequence[Planned]) -> float:
        """Returns the seconds that a process computes for requests and what they leave behind, without the stores."""
        demands = [one for each in self.arrivals(planned) for one in (each.demand, each.job) if one is not None]
        return sum(one.gil + one.free for one in demands)

    def cpu_seconds(self) -> float:
        """Returns the mean seconds that a request of the mix computes, its job and the stores' part included."""
        return sum(share * self._cpu_of(kind) for kind, share in MIX.items()) / sum(MIX.values())

    def _cpu_of(self, kind: str) -> float:
        samples = self._samples[kind]
        own = sum(one.gil + one.free + sum(one.stores.values()) for one in samples) / len(samples)
        return own + (self.job.gil + self.job.free + sum(self.job.stores.values()) if kind == ADD else 0.0)


def _demand(one: Mapping[str, Any], load: float) -> Demand:
    """Returns a demand from milliseconds in JSON; `load`: how much more the process computes than that."""
    numbers = {name: one.get(name, 0.0) / 1000 for name in ("wait", "locked", "cursor")}
    numbers |= {name: load * one.get(name, 0.0) / 1000 for name in ("gil", "free")}
    return Demand(**numbers, stores={store: value / 1000 for store, value in one.get("stores", {}).items()})
