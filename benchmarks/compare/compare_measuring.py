"""Fills all systems with a data set and asks them its questions in turn, with times. Yields records, ready for JSON.

A record has a `kind`: "stored" (`messages`, `bytes` of each system), "question" (`gold`: how many messages answer;
`ranks` of those found and `ms`, by system), "add" (`messages` in one call, `ms` by system). All name their `data`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from systems import SYSTEMS, Encoder, Place, System

from graphmem.evaluation.datasets import POOLED, Dataset, Message

Record = dict[str, Any]
Progress = Callable[[str, int, int], None]
# Messages in one call while a system is filled.
BATCH_SIZE = 200
# The unit of `st_blocks`.
SECTOR = 512

P, T = ParamSpec("P"), TypeVar("T")


@dataclass(frozen=True, slots=True)
class Task:
    """A data set to store and ask with `top_k`, and the calls of `add` to time afterwards, into its one partition."""

    data: Dataset
    top_k: int
    calls: Sequence[Sequence[Message]] = ()


def measure(task: Task, names: Sequence[str], folder: Path, qdrant: str | None, progress: Progress) -> Iterator[Record]:
    """Yields the records of a task for the systems `names`, opened in `folder` anew."""
    encoder, systems = Encoder(), dict[str, System]()
    places = {name: folder / f"{task.data.name}-{number}" for number, name in enumerate(names)}
    with ExitStack() as stack:
        for name in names:
            places[name].mkdir()
            systems[name] = SYSTEMS[name].open(Place(places[name], encoder, qdrant))
            stack.callback(systems[name].close)
        with encoder.remembering():
            for number, (name, system) in enumerate(systems.items()):
                progress(f"{task.data.name}: filling {name}", number, len(systems))
                _fill(system, task.data)
        bytes_by_name = {name: _size(places[name]) if SYSTEMS[name].is_in_folder else None for name in names}
        yield {"kind": "stored", "data": task.data.name, "messages": task.data.messages, "bytes": bytes_by_name}
        yield from _ask(task, systems, progress)
        for number, call in enumerate(task.calls):
            ms = {name: _timed(system.add, POOLED, call)[1] for name, system in _in_turn(systems, number)}
            yield {"kind": "add", "data": task.data.name, "messages": len(call), "ms": ms}


def _fill(system: System, data: Dataset) -> None:
    for partition, messages in data.partitions.items():
        for start in range(0, len(messages), BATCH_SIZE):
            system.add(partition, messages[start : start + BATCH_SIZE])
    system.settle()


def _ask(task: Task, systems: Mapping[str, System], progress: Progress) -> Iterator[Record]:
    """Asks all systems each question; the first question once more before, untimed."""
    for system in systems.values():
        system.search(task.data.cases[0], task.top_k)
    for number, case in enumerate(task.data.cases):
        progress(f"{task.data.name}: asking", number, len(task.data.cases))
        ranks, ms = dict[str, list[int]](), dict[str, float]()
        for name, system in _in_turn(systems, number):
            found, ms[name] = _timed(system.search, case, task.top_k)
            ranks[name] = [rank for rank, key in enumerate(found, 1) if key in case.gold]
        yield {
            "kind": "question",
            "data": task.data.name,
            "group": case.groups[0].data,
            "partition": case.partition,
            "gold": len(case.gold),
            "ranks": ranks,
            "ms": ms,
        }


def _in_turn(systems: Mapping[str, System], number: int) -> list[tuple[str, System]]:
    """Returns the systems by name, another one first each time."""
    start, items = number % len(systems), list(systems.items())
    return items[start:] + items[:start]


def _timed(function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> tuple[T, float]:
    """Returns what a call returns, and its milliseconds."""
    started = time.perf_counter()
    result = function(*arguments, **named)
    return result, round(1000 * (time.perf_counter() - started), 3)


def _size(folder: Path) -> int:
    """Returns the bytes that a folder's files take on the disk, without their holes."""
    return sum(SECTOR * path.stat().st_blocks for path in folder.rglob("*") if path.is_file())
