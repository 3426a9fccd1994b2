"""The only thing that is ever written: a plan, frozen. `graphmem.commands.unit_of_work` carries it out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from graphmem.model import EMPTY_MAPPING, EmbeddingSpec, Event, Extraction, Kind, Link, MemoryRecord, Message, Scope

if TYPE_CHECKING:
    from graphmem.models.protocols import Embedded, Matrix
    from graphmem.stores.ledger.jobs import Job


class Unset:
    """The type of UNSET: an argument that was not given, where None means something."""

    def __repr__(self) -> str:
        return "unset"


UNSET = Unset()


@dataclass(frozen=True, slots=True)
class AddMessage:
    """Store one message as an episode. `key` recognises it when it comes again (None: it never does).

    `source_only`: facts will be drawn from it, and they are what is remembered.
    """

    scope: Scope
    message: Message
    key: str | None
    words: str
    speaker: str | None
    metadata: Mapping[str, Any] = field(default_factory=lambda: EMPTY_MAPPING)
    memory_type: str | None = None
    expires_at: datetime | None = None
    source_only: bool = False


@dataclass(frozen=True, slots=True)
class EnqueueExtraction:
    """Record that a language model has to draw facts from what this plan stores as new, or the `procedure` it tells.

    `prompt` replaces our instructions.
    """

    scope: Scope
    prompt: str | None = None
    procedure: bool = False


@dataclass(frozen=True, slots=True)
class CompleteJob:
    """Take a language model's work off the list, with what came of it: to be the first step of its plan.

    Refused with `DecisionConflict` if facts near to these `vectors` (rows, unit length, by `spec`' model; at least
    `min_similarity` in cosine) were stored after sequence number `last_change_seen`, and with `JobAlreadyDone` if
    somebody else has done it. Where `summarise_every` messages of the session are in no summary, one is recorded to be
    made (0: never).
    """

    job: Job
    spec: EmbeddingSpec
    last_seq_seen: int = 0
    vectors: Matrix | None = None
    min_similarity: float = 1.0
    summarise_every: int = 0


@dataclass(frozen=True, slots=True)
class AddFact:
    """Store what was drawn from messages: a fact or a summary. Not if one of its `sources` has been erased."""

    record: MemoryRecord
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReaffirmFact:
    """A memory is said again: `sources` say it, too. It takes the agent that it lacks, and the run as a further one."""

    id: str
    scope: Scope
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StoreEnrichment:
    """Add what was computed from a memory's words. Skipped if the words have changed since (`version`).

    `embedded` None: the ledger had it already.
    """

    id: str
    version: int
    spec: EmbeddingSpec
    text_hash: str
    embedded: Embedded | None
    extraction: Extraction


@dataclass(frozen=True, slots=True)
class UpdateMemory:
    """Correct or refine a memory in place.

    `corrects`: its new words are not what its sources said (see `graphmem.commands.source_visibility`). `sources` are
    further messages that it is drawn from now; if one of them has been erased, it stays as it is. `scope` is where they
    were said (see `ReaffirmFact`). `extraction`: what the new words mention and state, where that is known already.
    """

    id: str
    text: str | None = None
    metadata: Mapping[str, Any] | None = None
    expires_at: datetime | Unset | None = UNSET
    reason: str | None = None
    corrects: bool = False
    sources: tuple[str, ...] = ()
    scope: Scope | None = None
    extraction: Extraction | None = None


@dataclass(frozen=True, slots=True)
class RetireMemory:
    """The world has changed: `at` is when; `successor` is the memory that says so.

    If one of the messages that tell it (`sources`) has been erased, the memory stays.
    """

    id: str
    at: datetime
    reason: str
    successor: str | None = None
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RestoreMemory:
    """Takes a retirement back."""

    id: str
    reason: str


@dataclass(frozen=True, slots=True)
class UndoEvent:
    """Takes an update or a retirement back, by the id of its event."""

    event: str


@dataclass(frozen=True, slots=True)
class DeleteMemory:
    """Delete for good, from every store. `missing_ok`: an id that is not (any more) is no error.

    `run_id`: only what was said in that run. A memory that was said elsewhere, too, stays there.
    """

    id: str
    missing_ok: bool = False
    run_id: str | None = None


@dataclass(frozen=True, slots=True)
class ReindexMemory:
    """Derive everything from the memory's words anew: after a change of the embedding model."""

    id: str


@dataclass(frozen=True, slots=True)
class AddAlias:
    """Two keys mean one entity; the user says so."""

    scope: Scope
    key: str
    other: str


@dataclass(frozen=True, slots=True)
class RemoveAlias:
    """They do not, or not any more; no rule is to say so again."""

    scope: Scope
    key: str
    other: str


@dataclass(frozen=True, slots=True)
class RenameEntity:
    """What an entity is called in what people see, whatever the texts call it."""

    scope: Scope
    key: str
    name: str


EntityCommand = AddAlias | RemoveAlias | RenameEntity


@dataclass(frozen=True, slots=True)
class ImportLink:
    """A link of a memory that is taken with another one, `other`: from it to that one, or (`is_incoming`) from that to
    it.
    """

    kind: str
    other: str
    is_incoming: bool = False


@dataclass(frozen=True, slots=True)
class ImportMemory:
    """Store a memory as another ledger, or another program, had it. One whose id is here stays as it is.

    An empty `record.session` is found as for something said now, and without `events` it begins with an ADD. `key` and
    `words` recognise its message. `extraction` None: its words are yet to be read; `embedded` None: or to be embedded.
    What was erased here stays out unless `restore`.
    """

    record: MemoryRecord
    spec: EmbeddingSpec
    text_hash: str
    key: str | None = None
    words: str = ""
    events: tuple[Event, ...] = ()
    links: tuple[ImportLink, ...] = ()
    extraction: Extraction | None = None
    embedded: Embedded | None = None
    restore: bool = False


@dataclass(frozen=True, slots=True)
class ImportTombstone:
    """Note a memory that was erased in another ledger, so that it does not come to this one. One that is here stays.

    `events` are without words; `keys` recognise its messages.
    """

    id: str
    scope: Scope
    at: datetime
    events: tuple[Event, ...] = ()
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ImportAlias:
    """Two keys mean one entity (or, `negated`, do not), as another ledger had it. What users said here counts more."""

    scope: Scope
    link: Link
    at: datetime
    negated: bool = False


@dataclass(frozen=True, slots=True)
class ImportEntityName:
    """What an entity was called in another ledger, unless it has a chosen name here."""

    scope: Scope
    key: str
    name: str
    at: datetime


ImportCommand = ImportMemory | ImportTombstone | ImportAlias | ImportEntityName
FactCommand = EnqueueExtraction | CompleteJob | AddFact | ReaffirmFact
Command = (
    AddMessage
    | FactCommand
    | StoreEnrichment
    | ReindexMemory
    | UpdateMemory
    | RetireMemory
    | RestoreMemory
    | UndoEvent
    | DeleteMemory
    | EntityCommand
    | ImportCommand
)


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """Steps that are committed together or not at all.

    `within`: ids outside this scope read as absent.
    """

    commands: tuple[Command, ...]
    now: datetime
    within: Scope | None = None


@dataclass(frozen=True, slots=True)
class ErasureReport:
    """What an erasure took out of the ledger: rows, vectors owed to the index, graph parts, derived rows."""

    ids: tuple[str, ...] = ()
    rows: int = 0
    points: int = 0
    graph: int = 0
    derived: int = 0

    def __add__(self, other: ErasureReport) -> ErasureReport:
        return ErasureReport(
            self.ids + other.ids,
            self.rows + other.rows,
            self.points + other.points,
            self.graph + other.graph,
            self.derived + other.derived,
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a step did: ADD, UPDATE, RETIRE, RESTORE, DELETE, ENRICH, BURY, or NONE with its reason.

    `record` is the memory afterwards (for DELETE: before), None where it is not there any more. A step about names
    is a NAME; its `id` is the key of the entity. `skipped_links` counts links of a memory taken that lead to none here;
    `successor` is what took the place of a retired one.
    """

    event: str
    id: str
    kind: Kind = Kind.EPISODE
    record: MemoryRecord | None = None
    previous: str | None = None
    reason: str | None = None
    erased: ErasureReport = field(default_factory=ErasureReport)
    skipped_links: int = 0
    successor: str | None = None

    @property
    def required_record(self) -> MemoryRecord:
        """The memory of a step that leaves one. Raises LookupError for a step that left none."""
        if self.record is None:
            raise LookupError(self.event)
        return self.record
