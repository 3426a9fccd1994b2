"""Payloads of Qdrant points and conditions on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from graphmem.model import ALL_KINDS, Kind, MemoryRecord, View, micros

if TYPE_CHECKING:
    from graphmem.plugins import Matrix, Point

# The names of the vectors.
DENSE, MULTILINGUAL, SPARSE = "dense", "multilingual", "bm25"
# The kind of almost all memories, and of every point whose payload has no kind.
DEFAULT_KIND = Kind.EPISODE
# Points to request beyond the limit, because several points may belong to one memory of several windows.
SPARE_POINTS = 32


def payload(record: MemoryRecord) -> dict[str, Any]:
    """Returns a point's payload: ids, scope and dates, never texts.

    Leaves out values that most memories share, such as the kind of an episode and an end that is not set: they need no
    condition in a search and no entry in an index.
    """
    ends = {"valid_to": record.valid_to, "expires_at": record.expires_at, "forgotten_at": record.forgotten_at}
    return {
        "memory": record.id,
        "seq": record.seq,
        "partition": record.partition,
        **({} if record.kind is DEFAULT_KIND else {"kind": record.kind.value}),
        "valid_from": micros(record.valid_from),
        **{name: micros(end) for name, end in ends.items() if end is not None},
        **record.scope.parts,
        # Qdrant matches a list if any of its elements meets the condition.
        **({"run_id": list(record.runs)} if record.further_runs else {}),
    }


@dataclass(frozen=True, slots=True)
class PayloadConditions:
    """A view, except its partition, as conditions on payloads. A field missing from a payload meets no condition.

    `parts`: scope parts that must be equal, without the one implied by the partition. `kinds`: the kind must be one of
    these (None: no condition); `not_kinds`: the kind must be none of these. `started_fields`: must be at or before
    `moment`. `ended_fields`: must not be at or before `moment`. `moment` is in microseconds.
    """

    parts: Mapping[str, str]
    kinds: Sequence[str] | None
    not_kinds: Sequence[str]
    started_fields: Sequence[str]
    ended_fields: Sequence[str]
    moment: int


def conditions(view: View) -> PayloadConditions:
    """Converts a view to conditions on payloads."""
    parts = view.scope.parts
    if view.partition == view.scope.partition:
        del parts[next(iter(parts))]  # a partition is named by the first part that is set
    includes_default = DEFAULT_KIND in view.kinds
    return PayloadConditions(
        parts=parts,
        kinds=None if includes_default else sorted(view.kinds),
        not_kinds=sorted(ALL_KINDS - view.kinds) if includes_default else (),
        started_fields=() if view.as_of is None else ("valid_from",),
        ended_fields=tuple(
            name
            for name, is_shown in (
                ("valid_to", view.show_retired),
                ("expires_at", view.show_expired),
                ("forgotten_at", view.show_forgotten),
            )
            if not is_shown
        ),
        moment=micros(view.moment),
    )


def best_by_memory(search: Callable[[int], Sequence[tuple[str, float]]], limit: int) -> list[tuple[str, float]]:
    """Returns (memory id, score) of the best memories, best first, each by its best window.

    `search(n)` returns (memory id, score) of the n best points, best first. It is called with a larger n as long as the
    windows of a few long memories fill the list.
    """
    point_count = limit + SPARE_POINTS
    while True:
        points = search(point_count)
        best: dict[str, float] = {}
        for memory, score in points:  # best first: a memory's first point is its best window
            best.setdefault(memory, score)
        if len(best) >= limit or len(points) < point_count:
            return sorted(best.items(), key=lambda pair: (-pair[1], pair[0]))[:limit]
        point_count *= 4


def vectors_of(point: Point) -> Iterator[dict[str, Matrix]]:
    """Yields the dense vectors of each point of a memory by name; the first has the one of the whole text."""
    whole = {} if point.multilingual is None else {MULTILINGUAL: point.multilingual}
    for window in range(point.windows):
        own = {DENSE: point.vectors[window]} if window < len(point.vectors) else {}
        yield {**own, **whole} if window == 0 else own


def count_windows(payloads: Iterable[dict[str, Any]]) -> list[tuple[str, int, int]]:
    """Returns (memory id, seq, number of windows) for each memory and seq."""
    windows: dict[tuple[str, int], int] = {}
    for point_payload in payloads:
        key = (point_payload["memory"], point_payload["seq"])
        windows[key] = windows.get(key, 0) + 1
    return [(memory, seq, count) for (memory, seq), count in windows.items()]
