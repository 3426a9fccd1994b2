"""What one mem0 holds, as records of graphmem's own format: its collection, put together with its history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from graphmem.boundary import validation
from graphmem.errors import ValidationError
from graphmem.model import SCOPE_NAMES, Scope
from graphmem.transfer.sources.mem0_collection import Key, Point, PointCollection
from graphmem.transfer.sources.mem0_history import History
from graphmem.transfer.sources.mem0_payloads import created_at, memory, tombstone
from graphmem.transfer.sources.records import Record, SkippedRecords, validated

BATCH = 500

UNREADABLE = "cannot be read: the stored point is damaged"
NO_TEXT = "has no text"
ENTITY = "is an entity of mem0's; entities are found anew in the memories"
NO_SCOPE = "belongs to no user, agent or run; say whose it is with --user, --agent or --run"
DELETED = "was deleted in mem0, whose history does not say whose it was; only where all is one user's is that clear"
HISTORY_ONLY = "is in the history alone, and not as deleted: of another collection, or lost"


@dataclass
class Mem0Source:
    """A collection and its history.

    `scope_filter` takes only memories that carry its ids, and gives them to those that carry none at all;
    `default_time` is when those were said that tell no time. What is not taken is in `skipped` after `records` has been
    read; `other_scopes` counts the memories of somebody else.
    """

    points: PointCollection
    history: History
    scope_filter: Scope | None = None
    default_time: datetime | None = None
    skipped: SkippedRecords = field(default_factory=SkippedRecords)
    other_scopes: int = 0
    _ids: set[str] = field(default_factory=set)
    _partitions: set[str] = field(default_factory=set)
    _order: list[tuple[datetime, Key]] = field(default_factory=list)

    def survey(self) -> int:
        """Looks at every point once, to learn who is there and what was said first; returns how many are to be taken.

        Raises ValidationError where nothing is a memory.
        """
        words = 0
        for point in self.points.all_points():
            if point.id in self._ids:  # an older copy
                continue
            self._ids.add(point.id)
            with self.skipped.skip_invalid(point.id):
                payload = _payload(point)
                words += 1
                self._note(point, payload)
        if self._ids and not words:
            raise ValidationError(
                f"--collection: none of the {len(self._ids)} points in {self.points.place} is a memory of mem0; give "
                "the name in mem0's vector_store.config.collection_name"
            )
        self._order.sort(key=lambda one: one[0])
        return len(self._order)

    def _note(self, point: Point, payload: Mapping[str, Any]) -> None:
        owner = self._owner(payload)
        self._partitions.add(owner.partition)
        if self.scope_filter is not None and not self.scope_filter.sees(owner):
            self.other_scopes += 1
        else:
            self._order.append((created_at(payload, self.default_time), point.key))

    def _owner(self, payload: Mapping[str, Any]) -> Scope:
        # mem0 takes an empty id for none.
        own = validation.scope(*(payload.get(name) or None for name in SCOPE_NAMES))[0] or self.scope_filter
        if own is None:
            raise ValidationError(NO_SCOPE)
        return own

    def records(self) -> Iterator[Record]:
        """The memories surveyed, in the order in which they were said, then those that are no more."""
        for start in range(0, len(self._order), BATCH):
            keys = [key for _, key in self._order[start : start + BATCH]]
            points = self.points.points_by_key(keys)
            there = [points[key] for key in keys if key in points]
            past = self.history.rows_of([point.id for point in there])
            for point in there:
                with self.skipped.skip_invalid(point.id):
                    payload = _payload(point)
                    yield validated(memory(point.id, payload, past[point.id], self._owner(payload), self.default_time))
        yield from self._gone()

    def _gone(self) -> Iterator[Record]:
        owner = self._only_owner()
        for uid, rows in self.history.unknown_memories(self._ids):
            with self.skipped.skip_invalid(uid):
                if rows[-1]["event"] != "DELETE":
                    raise ValidationError(HISTORY_ONLY)
                if owner is None:
                    raise ValidationError(DELETED)
                yield validated(tombstone(uid, rows, owner, self.default_time))

    def _only_owner(self) -> Scope | None:
        """Whose all of it is, where it is one's: the history itself does not tell."""
        partitions = self._partitions | ({self.scope_filter.partition} if self.scope_filter is not None else set())
        if len(partitions) != 1:
            return None
        part, _, name = next(iter(partitions)).partition(":")
        return Scope(**{f"{part}_id": name})


def _payload(point: Point) -> Mapping[str, Any]:
    payload = point.payload
    if payload is None:
        raise ValidationError(UNREADABLE)
    if "linked_memory_ids" in payload and "entity_type" in payload:
        raise ValidationError(ENTITY)
    words = payload.get("data")
    if not isinstance(words, str) or not words.strip():
        raise ValidationError(NO_TEXT)
    return payload
