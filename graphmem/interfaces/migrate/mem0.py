"""What one mem0 holds, as records of graphmem's own format: its collection, put together with its history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from graphmem import arguments
from graphmem.errors import ValidationError
from graphmem.interfaces.migrate.history import History
from graphmem.interfaces.migrate.payloads import erased, memory, said_at
from graphmem.interfaces.migrate.points import Key, Point, Points
from graphmem.interfaces.migrate.records import Left, Record, checked
from graphmem.model import SCOPE_NAMES, Scope

AT_ONCE = 500

UNREADABLE = "cannot be read: the stored point is damaged"
WORDLESS = "has no text"
ENTITY = "is an entity of mem0's; entities are found anew in the memories"
NOBODYS = "belongs to no user, agent or run; say whose it is with --user, --agent or --run"
DELETED = "was deleted in mem0, whose history does not say whose it was; only where all is one user's is that clear"
LOST = "is in the history alone, and not as deleted: of another collection, or lost"


@dataclass
class Mem0:
    """A collection and its history.

    `whose` takes only memories that carry its ids, and gives them to those that carry none at all; `at` is when those
    were said that tell no time. What is not taken is in `left` after `records` has been read; `others` counts the
    memories of somebody else.
    """

    points: Points
    history: History
    whose: Scope | None = None
    at: datetime | None = None
    left: Left = field(default_factory=Left)
    others: int = 0
    _ids: set[str] = field(default_factory=set)
    _spaces: set[str] = field(default_factory=set)
    _order: list[tuple[datetime, Key]] = field(default_factory=list)

    def survey(self) -> int:
        """Looks at every point once, to learn who is there and what was said first; returns how many are to be taken.

        Raises ValidationError where nothing is a memory.
        """
        words = 0
        for point in self.points.all():
            if point.id in self._ids:  # an older copy
                continue
            self._ids.add(point.id)
            with self.left.if_bad(point.id):
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
        self._spaces.add(owner.space)
        if self.whose is not None and not self.whose.sees(owner):
            self.others += 1
        else:
            self._order.append((said_at(payload, self.at), point.key))

    def _owner(self, payload: Mapping[str, Any]) -> Scope:
        # mem0 takes an empty id for none.
        own = arguments.scope(*(payload.get(name) or None for name in SCOPE_NAMES))[0] or self.whose
        if own is None:
            raise ValidationError(NOBODYS)
        return own

    def records(self) -> Iterator[Record]:
        """The memories surveyed, in the order in which they were said, then those that are no more."""
        for start in range(0, len(self._order), AT_ONCE):
            keys = [key for _, key in self._order[start : start + AT_ONCE]]
            points = self.points.some(keys)
            there = [points[key] for key in keys if key in points]
            past = self.history.of([point.id for point in there])
            for point in there:
                with self.left.if_bad(point.id):
                    payload = _payload(point)
                    yield checked(memory(point.id, payload, past[point.id], self._owner(payload), self.at))
        yield from self._gone()

    def _gone(self) -> Iterator[Record]:
        owner = self._only_owner()
        for uid, rows in self.history.others(self._ids):
            with self.left.if_bad(uid):
                if rows[-1]["event"] != "DELETE":
                    raise ValidationError(LOST)
                if owner is None:
                    raise ValidationError(DELETED)
                yield checked(erased(uid, rows, owner, self.at))

    def _only_owner(self) -> Scope | None:
        """Whose all of it is, where it is one's: the history itself does not tell."""
        spaces = self._spaces | ({self.whose.space} if self.whose is not None else set())
        if len(spaces) != 1:
            return None
        part, _, name = next(iter(spaces)).partition(":")
        return Scope(**{f"{part}_id": name})


def _payload(point: Point) -> Mapping[str, Any]:
    payload = point.payload
    if payload is None:
        raise ValidationError(UNREADABLE)
    if "linked_memory_ids" in payload and "entity_type" in payload:
        raise ValidationError(ENTITY)
    words = payload.get("data")
    if not isinstance(words, str) or not words.strip():
        raise ValidationError(WORDLESS)
    return payload
