"""Which of two facts counts that contradict each other (seed 002 §9.1): by time, by confidence, or both as one text."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, NamedTuple, TypeAlias

from graphmem.model import DEFAULT_CONFIDENCE, UNDO_REASON, MemoryRecord

ConflictRule: TypeAlias = Literal["time", "confidence", "merge"]
# Facts of a higher cosine are compared in any case (§9.1, CONFLICT_THRESHOLD).
CONFLICT_SIMILARITY = 0.8
# So much more has the confidence of a fact to be that counts although it was said earlier (§9.1: `new.confidence >
# old.confidence + 0.2`). Differences are rounded to so many digits: as floats, 0.9 - 0.7 is more than 0.2.
CONFIDENCE_MARGIN, CONFIDENCE_DIGITS = 0.2, 6
# Reasons of events; the first two begin so.
BY_CONFIDENCE, SAID_EARLIER, REFINED = "confidence ", "said earlier: ", "refined by another fact"


class Resolution(NamedTuple):
    """Whether the new one of two facts counts that contradict each other, and since when the other one does not.

    `reason` is that of the other one's end: the contradiction, and which rule decided.
    """

    new_counts: bool
    at: datetime
    contradiction: str
    reason: str


def begin_of(record: MemoryRecord, *, is_composed: bool = False) -> datetime:
    """Returns the time since which a fact counts: that at which it was said or, if it names a later one, that one.

    A composed memory is valid since it was made, but counts since the last of its sources was said.
    """
    return record.at if is_composed else max(record.at, record.valid_from)


def resolve(
    old: MemoryRecord, new: MemoryRecord, contradiction: str, *, begin: datetime, by_confidence: bool
) -> Resolution:
    """Returns which of two facts counts, a stored one (`begin`: since when) and a new one that contradicts it.

    That is the one that was said later, whichever was stored first. With `by_confidence` it is the other one, if that
    is surer by more than `CONFIDENCE_MARGIN`. The one that does not count ends when the other one begins. If it was
    said later, it was never true: it ends when it was said.
    """
    new_is_later = new.at >= begin
    later, earlier = (new, old) if new_is_later else (old, new)
    is_overruled = by_confidence and _is_surer(earlier, later)
    new_counts = new_is_later != is_overruled
    if new_counts:
        at = max(new.at, old.at, old.valid_from)
    else:
        start = min(old.valid_from, begin)
        # A memory that was updated says since its last message what it says.
        at = start if start >= new.valid_from else max(old.at, new.valid_from)
    if is_overruled:
        reason = f"{BY_CONFIDENCE}{earlier.confidence:.2f} against {later.confidence:.2f}"
    else:
        reason = contradiction if new_counts else SAID_EARLIER + contradiction
    return Resolution(new_counts, at, contradiction, reason)


def _is_surer(one: MemoryRecord, other: MemoryRecord) -> bool:
    """Tells whether a fact has a higher confidence by more than the margin; of an unknown confidence none is higher."""
    if DEFAULT_CONFIDENCE in {one.confidence, other.confidence}:
        return False
    return round(one.confidence - other.confidence, CONFIDENCE_DIGITS) > CONFIDENCE_MARGIN


def rule_of(event: str, reason: str | None) -> ConflictRule | None:
    """Returns the rule by which an event of a memory was decided, None for one that no conflict led to.

    An UPDATE has a reason if it joined two facts, or took another change back.
    """
    if reason is None or event not in {"RETIRE", "UPDATE"} or reason.startswith(UNDO_REASON):
        return None
    if reason.startswith(BY_CONFIDENCE):
        return "confidence"
    return "time" if event == "RETIRE" else "merge"
