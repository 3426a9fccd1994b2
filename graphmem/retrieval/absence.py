"""Tells why a memory is not among the hits of a search: the first step at which it fell out, in a sentence. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from graphmem.model import MemoryRecord, View, iso, optional_iso
from graphmem.retrieval.scoring import AUTO_MAX
from graphmem.retrieval.source_grouping import Reranked

# How the arms are called in a sentence.
ARMS = {"dense": "vectors", "keyword": "words"}


@dataclass(frozen=True, slots=True)
class Trace:
    """What a search knows of one memory, hit or not; ranks count from 1, None: it has none there.

    `arm_ranks`: among what each arm finds, at any depth; `arm_limits`: the last ranks that the arms give to the search.
    `rank`, `score`: among the candidates. `similarity`: its cosine (None: not compared). `passes_threshold`: whether
    it, or the start of its path, has the least cosine. `grouped_under`: the fact under which this source message
    stands. `place`: among what may be hits; `relevance` is assessed for the best of these only, `floor` is the least
    that a hit needs (None: any). `reranked`: what the reranker did with it (None: nothing). `hit`: its rank among the
    hits, `last_score` the score of the last of these. `shares` as in `Explanation`.
    """

    arm_ranks: Mapping[str, int] = field(default_factory=dict)
    arm_limits: Mapping[str, int] = field(default_factory=dict)
    candidates: int = 0
    rank: int | None = None
    score: float | None = None
    similarity: float | None = None
    passes_threshold: bool = True
    grouped_under: str | None = None
    place: int | None = None
    relevance: float | None = None
    floor: float | None = None
    reranked: Reranked | None = None
    hit: int | None = None
    last_score: float | None = None
    shares: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Absence:
    """Why a memory is no hit: `step` names where it fell out, `why` says it in a sentence, `details` as data.

    The steps, in their order: "not_visible", "filtered", "not_found", "threshold", "grouped", "relevance", "reranked"
    for a memory that would be a hit without the reranker, "rank", and "hit" for a memory that is one.
    """

    step: str
    why: str
    details: Mapping[str, Any] = field(default_factory=dict)


def hidden(record: MemoryRecord, view: View) -> Absence | None:
    """Returns why a view does not show a memory, None if it does."""
    if not record.is_in(view.scope):
        differs = [
            name
            for name, value in view.scope.parts.items()
            if getattr(record.scope, name) != value and not (name == "run_id" and value in record.further_runs)
        ]
        return Absence(
            "not_visible", f"it has another {' and '.join(differs)}", {"reason": "scope", "differs": differs}
        )
    if record.kind not in view.kinds:
        kind = record.kind.value
        return Absence("not_visible", f"it is of the kind {kind!r}, which kinds leaves out", {"reason": "kinds"})
    if view.as_of is not None and record.valid_from > view.as_of:
        since = iso(record.valid_from)
        details = {"reason": "as_of", "valid_from": since}
        return Absence("not_visible", f"at the time of as_of it was not there yet: it is valid from {since}", details)
    ends = (
        ("valid_to", record.valid_to, view.show_retired, "retired", "is no longer true since"),
        ("forgotten_at", record.forgotten_at, view.show_forgotten, "forgotten", "was forgotten at"),
        ("expiration_date", record.expires_at, view.show_expired, "expired", "expired at"),
    )
    for name, end, is_shown, reason, words in ends:
        if view.is_past(end) and not is_shown:
            at = optional_iso(end)
            return Absence("not_visible", f"it {words} {at}; show_{reason} finds it", {"reason": reason, name: at})
    return None


def filtered(refusing: Sequence[str]) -> Absence | None:
    """Returns that a memory is refused by these conditions of the filter, None if there are none."""
    if not refusing:
        return None
    return Absence("filtered", f"`filters` refuses it: {', '.join(refusing)}", {"conditions": list(refusing)})


def left_out(trace: Trace, limit: int | None, threshold: float | None) -> Absence:
    """Returns where a search left a visible memory, from what the search knows of it."""
    if trace.rank is None:
        found = (
            f"{ARMS[name]}: {f'rank {rank}' if (rank := trace.arm_ranks.get(name)) else 'not at all'}, of {last}"
            for name, last in trace.arm_limits.items()
        )
        why = f"neither arm gives it to the search ({'; '.join(found)}), and no path leads to it"
        return Absence("not_found", why, {"ranks": dict(trace.arm_ranks), "limits": dict(trace.arm_limits)})
    details: dict[str, Any] = {"rank": trace.rank, "candidates": trace.candidates, "score": trace.score or 0.0}
    details |= {"last_score": trace.last_score, "relevance": trace.relevance, "shares": trace.shares}
    if trace.reranked is not None:
        details["reranked"] = asdict(trace.reranked)
    if trace.hit is not None:
        return Absence("hit", f"it is hit {trace.hit}", {**details, "rank": trace.hit})
    if not trace.passes_threshold:
        why = f"its cosine, {trace.similarity or 0.0:.3f}, is below the threshold, {threshold}"
        return Absence("threshold", why, {**details, "similarity": trace.similarity, "threshold": threshold})
    if trace.grouped_under is not None:
        why = f"it is a source message of {trace.grouped_under}, and stands under that hit"
        return Absence("grouped", why, {**details, "under": trace.grouped_under})
    return _behind(trace, limit, details)


def _behind(trace: Trace, limit: int | None, details: Mapping[str, Any]) -> Absence:
    """Returns why a memory that may be a hit is none: its relevance, or what stands before it."""
    if trace.relevance is not None and trace.floor is not None and trace.relevance < trace.floor:
        why = f"its relevance, {trace.relevance:.3f}, is below {trace.floor:.3f}"
        return Absence("relevance", why, {**details, "floor": trace.floor})
    if (moved := trace.reranked) is not None and moved.before <= (limit or AUTO_MAX):
        why = f"the reranker moves it from {moved.before} to {moved.place}, and {limit or 'at most 50'} are asked for"
        return Absence("reranked", why, {**details, "rank": moved.place})
    place = (trace.place or trace.rank or 1) if moved is None else moved.place
    why = f"{place - 1} come before it, of which {limit or 'at most 50'} are asked for"
    if (lacking := (trace.last_score or 0.0) - (trace.score or 0.0)) > 0:
        why += f"; its score is {lacking:.3f} below that of the last hit"
    return Absence("rank", why, {**details, "rank": place})
