"""The only thing that is ever written: a plan, frozen. `graphmem.remember.commit` carries it out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from graphmem.model import NOTHING, Extraction, Forms, Kind, MemoryRecord, Message, Scope

if TYPE_CHECKING:
    from graphmem.providers.base import Embedded


class Unset:
    """The type of UNSET: an argument that was not given, where None means something."""

    def __repr__(self) -> str:
        return "unset"


UNSET = Unset()


@dataclass(frozen=True, slots=True)
class Say:
    """Store one message as an episode. `key` recognises it when it comes again (None: it never does)."""

    scope: Scope
    message: Message
    key: str | None
    words: str
    speaker: str | None
    metadata: Mapping[str, Any] = field(default_factory=lambda: NOTHING)
    memory_type: str | None = None
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Enrich:
    """Add what was computed from a memory's words. Skipped if the words have changed since (`version`).

    `embedded` None: the ledger had it already.
    """

    id: str
    version: int
    forms: Forms
    text_hash: str
    embedded: Embedded | None
    found: Extraction


@dataclass(frozen=True, slots=True)
class Revise:
    """Correct or refine a memory in place."""

    id: str
    text: str | None = None
    metadata: Mapping[str, Any] | None = None
    expires_at: datetime | Unset | None = UNSET
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Retire:
    """The world has changed: `at` is when; `successor` is the memory that says so."""

    id: str
    at: datetime
    reason: str
    successor: str | None = None


@dataclass(frozen=True, slots=True)
class Restore:
    """Takes a retirement back."""

    id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Erase:
    """Delete for good, from every store. `if_there`: an id that is not (any more) is no error."""

    id: str
    if_there: bool = False


@dataclass(frozen=True, slots=True)
class Renew:
    """Derive everything from the memory's words anew: after a change of the embedding model."""

    id: str


@dataclass(frozen=True, slots=True)
class Alias:
    """Two keys mean one entity; the user says so."""

    scope: Scope
    key: str
    other: str


@dataclass(frozen=True, slots=True)
class Unalias:
    """They do not, or not any more; no rule is to say so again."""

    scope: Scope
    key: str
    other: str


@dataclass(frozen=True, slots=True)
class Rename:
    """What an entity is called in what people see, whatever the texts call it."""

    scope: Scope
    key: str
    name: str


Naming = Alias | Unalias | Rename
Step = Say | Enrich | Renew | Revise | Retire | Restore | Erase | Naming


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps that are committed together or not at all.

    `within`: ids outside this scope read as absent.
    """

    steps: tuple[Step, ...]
    now: datetime
    within: Scope | None = None


@dataclass(frozen=True, slots=True)
class Erased:
    """What an erasure took out of the ledger: rows, vectors owed to the index, graph parts, derived rows."""

    ids: tuple[str, ...] = ()
    rows: int = 0
    points: int = 0
    graph: int = 0
    derived: int = 0

    def __add__(self, other: Erased) -> Erased:
        return Erased(
            self.ids + other.ids,
            self.rows + other.rows,
            self.points + other.points,
            self.graph + other.graph,
            self.derived + other.derived,
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a step did: ADD, UPDATE, RETIRE, RESTORE, DELETE, ENRICH, or NONE with its reason.

    `record` is the memory afterwards (for DELETE: before), None where it is not there any more. A step about names
    is a NAME; its `id` is the key of the entity.
    """

    event: str
    id: str
    kind: Kind = Kind.EPISODE
    record: MemoryRecord | None = None
    previous: str | None = None
    reason: str | None = None
    erased: Erased = field(default_factory=Erased)

    @property
    def revised(self) -> MemoryRecord:
        """The memory of a step that leaves one. Raises LookupError for a step that left none."""
        if self.record is None:
            raise LookupError(self.event)
        return self.record
