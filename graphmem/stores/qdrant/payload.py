"""What Qdrant's engine is told of a memory, in this process or on a server, and how its points become memories."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphmem.model import ALL_KINDS, Kind, MemoryRecord, View, micros

DENSE, SPARSE = "dense", "bm25"
# The kind that almost all memories are of: a point that names none is one.
DEFAULT_KIND = Kind.EPISODE
# A memory of several windows takes several of the nearest points: read some more than asked.
SPARE_POINTS = 32


def payload(record: MemoryRecord) -> dict[str, Any]:
    """What a point carries beside its vectors: ids, scope and dates, never texts.

    What most memories have in common is not there: an end that has not come and the kind of an episode are no
    condition to check then, and no index has to hold them.
    """
    ends = {"valid_to": record.valid_to, "expires_at": record.expires_at}
    return {
        "memory": record.id,
        "version": record.seq,
        "partition": record.partition,
        **({} if record.kind is DEFAULT_KIND else {"kind": record.kind.value}),
        "valid_from": micros(record.valid_from),
        **{name: micros(end) for name, end in ends.items() if end is not None},
        **record.scope.parts,
        # Of a list each element meets a condition.
        **({"run_id": list(record.runs)} if record.further_runs else {}),
    }


@dataclass(frozen=True, slots=True)
class PayloadConditions:
    """A view, but for its partition, as conditions on payloads.

    `parts` of the scope that the partition does not say already; `kinds`: one of these (None: no condition), none of
    `not_kinds`; `started_fields` no later than the moment; `ended_fields` by the moment are left out. A field that a
    point does not have meets no condition.
    """

    parts: Mapping[str, str]
    kinds: Sequence[str] | None
    not_kinds: Sequence[str]
    started_fields: Sequence[str]
    ended_fields: Sequence[str]
    moment: int


def conditions(view: View) -> PayloadConditions:
    """The conditions of a view."""
    parts = view.scope.parts
    if view.partition == view.scope.partition:
        del parts[next(iter(parts))]  # a partition is named by the first part that is set
    usual = DEFAULT_KIND in view.kinds
    return PayloadConditions(
        parts=parts,
        kinds=None if usual else sorted(view.kinds),
        not_kinds=sorted(ALL_KINDS - view.kinds) if usual else (),
        started_fields=() if view.as_of is None else ("valid_from",),
        ended_fields=("valid_to",) if view.show_expired else ("valid_to", "expires_at"),
        moment=micros(view.moment),
    )


def best_by_memory(ask: Callable[[int], Sequence[tuple[str, float]]], limit: int) -> list[tuple[str, float]]:
    """The best memories by their best windows, best first.

    `ask` gives the memories and scores of so many points, best first; more are asked for while the windows of a few
    long memories fill the list.
    """
    asked = limit + SPARE_POINTS
    while True:
        found = ask(asked)
        best: dict[str, float] = {}
        for memory, score in found:  # best first, so that a memory's first point is its best window
            best.setdefault(memory, score)
        if len(best) >= limit or len(found) < asked:
            return sorted(best.items(), key=lambda pair: (-pair[1], pair[0]))[:limit]
        asked *= 4


def count_windows(payloads: Iterable[dict[str, Any]]) -> list[tuple[str, int, int]]:
    """Points counted by memory and version: (memory id, version, windows)."""
    windows: dict[tuple[str, int], int] = {}
    for one in payloads:
        key = (one["memory"], one["version"])
        windows[key] = windows.get(key, 0) + 1
    return [(memory, version, count) for (memory, version), count in windows.items()]
