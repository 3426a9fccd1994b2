"""Converts the memories of a mem0 installation, its collection and its history, to import records.

A payload of mem0 1 or 2 holds mem0's own keys and the user's metadata side by side. Data derived from the text (hash,
lemmas, vectors) is not converted: graphmem computes its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from graphmem.boundary import validation
from graphmem.errors import ValidationError
from graphmem.ingest.messages import speaker_of
from graphmem.model import SCOPE_NAMES, Kind, Message, Scope, iso, optional_iso
from graphmem.transfer.sources.mem0_stores import History, Key, Point, PointCollection, Row
from graphmem.transfer.sources.skipped_records import Record, SkippedRecords, validated

BATCH = 500
_CONVERTED_KEYS = frozenset({"data", "created_at", "updated_at", "expiration_date", *SCOPE_NAMES})
_DERIVED_KEYS = frozenset({"hash", "text_lemmatized"})
_EVENTS = frozenset({"ADD", "UPDATE", "DELETE"})

NO_TIME = "has no time, neither created_at nor updated_at; give one for such memories with --timestamp"
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
                owner = self._owner(payload)
                self._partitions.add(owner.partition)
                if self.scope_filter is not None and not self.scope_filter.sees(owner):
                    self.other_scopes += 1
                else:
                    self._keys_by_time.append((created_at(payload, self.default_time, self.zone), point.key))
        if self._seen_ids and not memories:
            raise ValidationError(
                f"--collection: none of the {len(self._seen_ids)} points in {self.points.place} is a memory of mem0; "
                "give the name in mem0's vector_store.config.collection_name"
            )
        self._keys_by_time.sort(key=lambda entry: entry[0])
        return len(self._keys_by_time)

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
        # The history records no owners: that of all memories, if they have one.
        partitions = self._partitions | ({self.scope_filter.partition} if self.scope_filter is not None else set())
        owner: Scope | None = None
        if len(partitions) == 1:
            part, _, name = next(iter(partitions)).partition(":")
            owner = Scope(**{f"{part}_id": name})
        for uid, rows in self.history.unknown_memories(self._seen_ids):
            with self.skipped.skip_invalid(uid):
                if rows[-1]["event"] != "DELETE":
                    raise ValidationError(HISTORY_ONLY)
                if owner is None:
                    raise ValidationError(DELETED)
                yield validated(tombstone(uid, rows, owner, self.default_time, self.zone))


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


# --- records ----------------------------------------------------------------------------------------------------------


def created_at(payload: Mapping[str, Any], default_time: datetime | None, zone: tzinfo | None) -> datetime:
    """Returns the time of a memory, else `default_time`. Raises ValidationError if it is invalid or there is none.

    `zone` is here and below that of times without a UTC offset.
    """
    return _time(payload.get("created_at") or payload.get("updated_at"), default_time, zone)


def _time(value: object, default_time: datetime | None, zone: tzinfo | None) -> datetime:
    if value:
        return validation.moment(value, "created_at", zone)
    if default_time is None:
        raise ValidationError(NO_TIME)
    return default_time


def memory(
    uid: str,
    payload: Mapping[str, Any],
    rows: Sequence[Row],
    scope: Scope,
    default_time: datetime | None,
    zone: tzinfo | None,
) -> Record:
    """Converts a memory with its history. Raises ValidationError for an invalid or missing time."""
    at = created_at(payload, default_time, zone)
    fields = _valid_fields(payload)
    record_id, other_keys = _uuid_of(uid), _CONVERTED_KEYS | _DERIVED_KEYS | fields.keys()
    return {
        "type": "memory",
        "id": record_id,
        **scope.parts,
        # With infer=False mem0 stores messages, with their roles; otherwise the facts that its language model drew.
        "kind": (Kind.EPISODE if "role" in fields else Kind.FACT).value,
        "text": payload["data"],
        "at": iso(at),
        "created_at": iso(at),
        "updated_at": iso(_time(payload.get("updated_at"), at, zone)),
        "expires_at": optional_iso(validation.expiration(payload.get("expiration_date") or None, zone=zone)),
        "speaker": speaker_of(Message(_speaker_role(payload), "", at, fields.get("actor_id")), scope),
        **fields,
        "metadata": {
            **{name: value for name, value in payload.items() if name not in other_keys},
            **({} if record_id == uid else {"mem0_id": uid}),
        },
        "events": list(_events(uid, rows, at, zone)),
    }


def tombstone(
    uid: str, rows: Sequence[Row], scope: Scope, default_time: datetime | None, zone: tzinfo | None
) -> Record:
    """Converts a deleted memory: the times of its events, without the texts. Raises ValidationError for a bad time."""
    times = [row[name] for row in rows for name in ("created_at", "updated_at") if row[name]]
    events = [
        {**event, "old_memory": None, "new_memory": None}
        for event in _events(uid, rows, _time(times[0] if times else None, default_time, zone), zone)
    ]
    return {"type": "erased", "id": _uuid_of(uid), **scope.parts, "at": events[-1]["at"], "events": events}


def _uuid_of(uid: str) -> str:
    """Returns mem0's id, or a UUID made of it: points that mem0 did not write itself may have other ids."""
    try:
        return validation.uuid(uid.lower(), "id")
    except ValidationError:
        return str(uuid5(NAMESPACE_OID, f"mem0:{uid}"))


def _speaker_role(payload: Mapping[str, Any]) -> str:
    """Returns the role of the speaker or, for facts of mem0 2, of the person whom the fact is about."""
    return "assistant" if "assistant" in (payload.get("role"), payload.get("attributed_to")) else "user"


def _valid_fields(payload: Mapping[str, Any]) -> dict[str, str]:
    """Returns those of role, actor_id and memory_type that are valid here.

    The keys may be mem0's or the user's own; an invalid one stays in the metadata.
    """
    checks: dict[str, Callable[[Any, str], str | None]] = {
        "role": lambda value, name: validation.one_of(value, name, validation.REMEMBERED_ROLES),
        "actor_id": validation.stored_name,
        "memory_type": validation.memory_type,
    }
    fields = {}
    for name, check in checks.items():
        try:
            fields[name] = check(payload.get(name), name)
        except ValidationError:
            continue
    return {name: value for name, value in fields.items() if value is not None}


def _events(uid: str, rows: Sequence[Row], at: datetime, zone: tzinfo | None) -> Iterator[dict[str, Any]]:
    """Yields the events. mem0 before 1.0 stored no time for a deletion, which then gets that of the previous event."""
    for row in rows:
        if row["event"] not in _EVENTS:
            continue
        event_time = row["updated_at"] or (row["created_at"] if row["event"] == "ADD" else None)
        at = at if event_time is None else validation.moment(event_time, "history", zone)
        yield {
            "id": row["id"] or str(uuid5(NAMESPACE_OID, f"mem0:{uid}/{row['place']}")),
            "event": row["event"],
            "old_memory": row["old_memory"],
            "new_memory": row["new_memory"],
            "actor_id": row["actor_id"],
            "role": row["role"],
            "created_at": iso(_time(row["created_at"], at, zone)),
            "at": iso(at),
        }
