"""Converts the memories of a mem0 installation, its collection and its history, to import records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from typing import Any

from graphmem.boundary import validation
from graphmem.errors import ValidationError
from graphmem.model import SCOPE_NAMES, Scope
from graphmem.transfer.sources.mem0_collection import Key, Point, PointCollection
from graphmem.transfer.sources.mem0_history import History
from graphmem.transfer.sources.mem0_payloads import created_at, memory, tombstone
from graphmem.transfer.sources.skipped_records import Record, SkippedRecords, validated

BATCH = 500

UNREADABLE = "cannot be read: the stored point is damaged"
NO_TEXT = "has no text"
ENTITY = "is an entity of mem0; graphmem extracts entities from the memories itself"
NO_SCOPE = "belongs to no user, agent or run; name its owner with --user, --agent or --run"
DELETED = "was deleted in mem0, whose history has no owners; the owner is known only if all memories have the same"
HISTORY_ONLY = "is only in the history, and not as deleted: it is of another collection, or lost"


@dataclass
class Mem0Source:
    """A mem0 collection and its history. Call `survey` first, then `records`.

    `scope_filter` selects the memories with its ids, and is the scope of memories without any id; `default_time` is the
    time of memories without one, `zone` the time zone of times without a UTC offset (None: that of the machine).
    `skipped` has the points without a record, once `records()` is exhausted; `other_scopes` counts the memories that
    `scope_filter` excludes.
    """

    points: PointCollection
    history: History
    scope_filter: Scope | None = None
    default_time: datetime | None = None
    zone: tzinfo | None = None
    skipped: SkippedRecords = field(default_factory=SkippedRecords)
    other_scopes: int = 0
    _seen_ids: set[str] = field(default_factory=set)
    _partitions: set[str] = field(default_factory=set)
    _keys_by_time: list[tuple[datetime, Key]] = field(default_factory=list)

    def survey(self) -> int:
        """Reads every point once for its owner and time; returns the number of memories to import.

        Raises ValidationError if there are points and none of them is a memory.
        """
        memories = 0
        for point in self.points.all_points():
            if point.id in self._seen_ids:  # an older copy
                continue
            self._seen_ids.add(point.id)
            with self.skipped.skip_invalid(point.id):
                payload = _payload(point)
                memories += 1
                self._register(point, payload)
        if self._seen_ids and not memories:
            raise ValidationError(
                f"--collection: none of the {len(self._seen_ids)} points in {self.points.place} is a memory of mem0; "
                "give the name in mem0's vector_store.config.collection_name"
            )
        self._keys_by_time.sort(key=lambda entry: entry[0])
        return len(self._keys_by_time)

    def _register(self, point: Point, payload: Mapping[str, Any]) -> None:
        owner = self._owner(payload)
        self._partitions.add(owner.partition)
        if self.scope_filter is not None and not self.scope_filter.sees(owner):
            self.other_scopes += 1
        else:
            self._keys_by_time.append((created_at(payload, self.default_time, self.zone), point.key))

    def _owner(self, payload: Mapping[str, Any]) -> Scope:
        # For mem0 an empty id is a missing one.
        owner = validation.scope(*(payload.get(name) or None for name in SCOPE_NAMES))[0] or self.scope_filter
        if owner is None:
            raise ValidationError(NO_SCOPE)
        return owner

    def records(self) -> Iterator[Record]:
        """Yields the surveyed memories in the order of their times, then the tombstones of deleted ones."""
        for start in range(0, len(self._keys_by_time), BATCH):
            keys = [key for _, key in self._keys_by_time[start : start + BATCH]]
            points = self.points.points_by_key(keys)
            present = [points[key] for key in keys if key in points]
            histories = self.history.rows_of([point.id for point in present])
            for point in present:
                with self.skipped.skip_invalid(point.id):
                    payload, rows = _payload(point), histories[point.id]
                    converted = memory(point.id, payload, rows, self._owner(payload), self.default_time, self.zone)
                    yield validated(converted)
        yield from self._tombstones()

    def _tombstones(self) -> Iterator[Record]:
        owner = self._only_owner()
        for uid, rows in self.history.unknown_memories(self._seen_ids):
            with self.skipped.skip_invalid(uid):
                if rows[-1]["event"] != "DELETE":
                    raise ValidationError(HISTORY_ONLY)
                if owner is None:
                    raise ValidationError(DELETED)
                yield validated(tombstone(uid, rows, owner, self.default_time, self.zone))

    def _only_owner(self) -> Scope | None:
        """Returns the scope of all memories if they have one owner, else None: the history records no owners."""
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
    text = payload.get("data")
    if not isinstance(text, str) or not text.strip():
        raise ValidationError(NO_TEXT)
    return payload
