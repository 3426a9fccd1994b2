"""Commands, change sets and outcomes: frozen descriptions of changes, for `graphmem.commands.dispatch`.

`ingest`, `transfer`, `memory` and `engine` make them. `sources` are always ids of memories.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from graphmem.errors import ValidationError
from graphmem.model import (
    EMPTY_MAPPING,
    Attachment,
    EmbeddingSpec,
    Event,
    Extraction,
    Item,
    Judgement,
    Kind,
    Layer,
    Link,
    MemoryRecord,
    Message,
    Scope,
    SpaceVector,
)

if TYPE_CHECKING:
    from graphmem.plugins import Embedded
    from graphmem.stores.ledger.jobs import Job
    from graphmem.stores.ledger.sequence import Extent
    from graphmem.stores.ledger.service_tables import ApiKey, StoredSetting
    from graphmem.stores.ledger.vitals import LastCycle, StoredVitals, VitalState


class Unset:
    """The type of UNSET, the default of arguments for which None has a meaning."""

    def __repr__(self) -> str:
        return "unset"


UNSET = Unset()

# The reason of an outcome: the text must be embedded again, because the memory whose vectors it shares was erased.
VECTORS_ERASED = "vectors erased since"


class MessageIdReused(ValidationError):
    """A message was stored in this scope under the same id (`message_id`) with other words."""

    def __init__(self, message_id: str) -> None:
        remedy = (
            "was stored in this scope with other words; give the new message an id of its own, or update the memory"
        )
        super().__init__(f"messages: id {message_id!r} {remedy}", f"messages: the id of one {remedy}")
        self.message_id = message_id


@dataclass(frozen=True, slots=True)
class EnqueueExtraction:
    """Records a job that draws facts from the source messages stored as new by the same change set.

    `procedure`: the job records the procedure that the messages describe, instead. `prompt` replaces the instructions
    of graphmem, `importance` (0..1) is that of the facts. `summarise`: if the messages begin a new sitting, records a
    job for the summary of the one before as well, to be done before the facts. `at_session_end`: the facts are drawn
    once the session has ended, from all that was said in it. To be placed after the `AddMessage` commands.
    """

    scope: Scope
    prompt: str | None = None
    procedure: bool = False
    summarise: bool = False
    importance: float | None = None
    at_session_end: bool = False


@dataclass(frozen=True, slots=True)
class EndSession:
    """Ends a session, by the row of its job: subscribers are told, and facts that wait for it are drawn.

    `only_if_due`: not if a message has put its end off meanwhile.
    """

    job: int
    only_if_due: bool = True


@dataclass(frozen=True, slots=True)
class DescribeLater:
    """What a job has a model describe of a message: URLs or data, by the position of their attachments.

    `extraction`: facts are to be drawn from the message with the descriptions.
    """

    sources: Mapping[int, str] = field(repr=False)
    extraction: EnqueueExtraction | None = None


@dataclass(frozen=True, slots=True)
class AddMessage:
    """Stores one message as an episode.

    `key` recognises a repeated message; without one it is new, unless it and all others of its change set that have a
    `repeat_window` were said at most that long before (None: always new). `content_digest` must be the same in a
    repeated message. `source_only`: the episode is a source message, for facts to be drawn from. `importance` (0..1) is
    the caller's, None if it is to be computed. `later`: what is to be described of it.
    """

    scope: Scope
    message: Message
    key: str | None
    content_digest: str
    speaker: str | None
    metadata: Mapping[str, Any] = field(default_factory=lambda: EMPTY_MAPPING)
    memory_type: str | None = None
    expires_at: datetime | None = None
    source_only: bool = False
    repeat_window: timedelta | None = None
    importance: float | None = None
    later: DescribeLater | None = None


@dataclass(frozen=True, slots=True)
class HoldMessage:
    """Records a job that has the attachments of a message without words described, and then adds the message.

    Until then it is no memory, and the job has it.
    """

    message: AddMessage


@dataclass(frozen=True, slots=True)
class DropHeldMessages:
    """Deletes the messages of a scope that wait for a description, to be no memory before it (`HoldMessage`)."""

    scope: Scope


@dataclass(frozen=True, slots=True)
class CompleteJob:
    """Completes a job, together with its results: to be the first command of its change set.

    Raises `JobAlreadyDone` if another worker has completed it, `DecisionConflict` if facts near to the new ones were
    stored since a snapshot of the extent `seen`: with a cosine of at least `min_similarity` to one of `vectors` (a row
    of unit length for each new fact, by the model of `spec`; None: no check). Records a summary job if at least
    `summarise_every` messages of the session are in no summary (0: never).
    """

    job: Job
    spec: EmbeddingSpec
    seen: Extent | None = None
    vectors: tuple[SpaceVector, ...] | None = None
    min_similarity: float = 1.0
    summarise_every: int = 0


@dataclass(frozen=True, slots=True)
class AddFact:
    """Stores a fact or a summary drawn from messages (`sources`), unless one of these was erased.

    `importance` (0..1) is the caller's, None if it is to be computed.
    """

    record: MemoryRecord
    sources: tuple[str, ...]
    importance: float | None = None


@dataclass(frozen=True, slots=True)
class ReaffirmFact:
    """Adds `sources` and `scope` to a memory that was said again: an agent if it has none, the run as a further one."""

    id: str
    scope: Scope
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StoreEnrichment:
    """Stores a memory's enrichment, unless its text has changed since (`version`).

    `text_hash` identifies the embedded text. `embedded` None: the ledger holds its vectors already.
    """

    id: str
    version: int
    spec: EmbeddingSpec
    text_hash: str
    embedded: Embedded | None
    extraction: Extraction


@dataclass(frozen=True, slots=True)
class UpdateMemory:
    """Changes the text, metadata or expiration of a memory; None (for `expires_at`: UNSET) keeps the old value.

    `merges_metadata`: keys that `metadata` does not have keep their former values. `corrects`: the new text contradicts
    the memory's sources (see `graphmem.commands.lifecycle`). `sources` are further messages that the memory is
    drawn from now; if one of them was erased, nothing changes. `scope` is the scope of these messages (see
    `ReaffirmFact`). `extraction`: the mentions and relations of the new text, if known already. `at` and `utc_offset`
    are the observation time of the new text, that of its last source (`at` None: as before). `attachments` are all of
    the memory's, with what was said of them since; without a `text` the lines of that are added to the present one.
    """

    id: str
    text: str | None = None
    metadata: Mapping[str, Any] | None = None
    expires_at: datetime | Unset | None = UNSET
    reason: str | None = None
    merges_metadata: bool = False
    corrects: bool = False
    sources: tuple[str, ...] = ()
    scope: Scope | None = None
    extraction: Extraction | None = None
    at: datetime | None = None
    utc_offset: int | None = None
    attachments: tuple[Attachment, ...] | None = None

    def metadata_after(self, former: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the metadata of the memory after the change."""
        kept = former if self.metadata is None or self.merges_metadata else {}
        return {**kept, **(self.metadata or {})}


@dataclass(frozen=True, slots=True)
class RetireMemory:
    """Ends a memory's validity at `at`, because `successor` (a memory's id) contradicts it.

    The memory stays valid if one of the messages behind the contradiction (`sources`) was erased.
    """

    id: str
    at: datetime
    reason: str
    successor: str | None = None
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RestoreMemory:
    """Makes a retired memory valid again; with `until`, which is after its end, until then."""

    id: str
    reason: str
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class ForgetMemory:
    """Hides a memory. With `decided`, not if it was changed or found since.

    `batch` is the id of the cycle that this is part of.
    """

    id: str
    reason: str
    batch: str | None = None
    decided: VitalState | None = None


@dataclass(frozen=True, slots=True)
class MergeMemory:
    """Hides a memory because a like one, `into`, stands for it from now on. Otherwise as `ForgetMemory`."""

    id: str
    into: str
    batch: str | None = None
    decided: VitalState | None = None


@dataclass(frozen=True, slots=True)
class ComposeMemory:
    """Stores a memory that was made of others, with the event COMPRESS or ABSTRACT.

    `sources` are the ids of these, each with the version of its text that it was made of: if one says something else
    now, is not true any more or was erased, nothing is stored. `hides`: it stands for them, so they are forgotten; not
    if one was pinned, or forgotten already. `batch` as in `ForgetMemory`.
    """

    record: MemoryRecord
    sources: tuple[tuple[str, int], ...]
    event: OutcomeType
    hides: bool
    batch: str | None = None


@dataclass(frozen=True, slots=True)
class DecomposeMemory:
    """Forgets a memory that was made of so many others (`sources`), and shows those again that it stands for."""

    id: str
    reason: str
    sources: int


@dataclass(frozen=True, slots=True)
class RememberMemory:
    """Shows a forgotten memory again."""

    id: str
    reason: str
    batch: str | None = None


@dataclass(frozen=True, slots=True)
class MoveMemory:
    """Moves a memory to another layer. With `decided`, not if it was changed since."""

    id: str
    layer: Layer
    reason: str
    batch: str | None = None
    decided: VitalState | None = None


@dataclass(frozen=True, slots=True)
class PinMemory:
    """Pins a memory, so that no cycle forgets it, or unpins it."""

    id: str
    pinned: bool


@dataclass(frozen=True, slots=True)
class UndoEvent:
    """Reverses an UPDATE, RETIRE, FORGET, PROMOTE, COMPRESS or ABSTRACT, by the id of its event.

    `is_lenient`: one that cannot be taken back any more, because of later changes, is no error.
    """

    event: str
    is_lenient: bool = False


@dataclass(frozen=True, slots=True)
class DeleteMemory:
    """Erases a memory and all others with its words, from all stores. `missing_ok`: an unknown id is no error.

    `run_id`: takes the memory out of that run only; it is erased if it was said nowhere else. `forgotten_before`:
    erases only what was forgotten by then, to make room: what still shows the words stays (a summary, a source message
    of another fact), and of what is erased the tombstone alone, without its history.
    """

    id: str
    missing_ok: bool = False
    run_id: str | None = None
    forgotten_before: datetime | None = None

    def is_about(self, record: MemoryRecord) -> bool:
        """Tells whether a memory with the words may be erased: without `forgotten_before` any, else forgotten ones."""
        before, forgotten_at = self.forgotten_before, record.forgotten_at
        return before is None or (forgotten_at is not None and forgotten_at <= before)


@dataclass(frozen=True, slots=True)
class ReindexMemory:
    """Has everything derived from a memory's text computed again, after a change of the embedding model."""

    id: str


@dataclass(frozen=True, slots=True)
class PutItem:
    """Stores a value (JSON text) under a namespace and a key of exactly this scope, in place of the value there.

    `remember` has the text that becomes the item's memory, or the new text of the memory that the item has. Without it
    the item gets no memory, and the one that it had is erased. `ttl_minutes`: see `model.Item`.
    """

    scope: Scope
    namespace: tuple[str, ...]
    key: str
    value: str
    remember: AddMessage | None = None
    ttl_minutes: float | None = None


@dataclass(frozen=True, slots=True)
class DeleteItem:
    """Deletes an item; `with_memory`: erases its memory, too. An absent item is no error.

    `is_erasure`: whether the words of its value are erased with it. Those that are a memory by now are not.
    """

    scope: Scope
    namespace: tuple[str, ...]
    key: str
    with_memory: bool = True
    is_erasure: bool = True


@dataclass(frozen=True, slots=True)
class DeleteItems:
    """Deletes all items of a scope (those that carry its ids) below a namespace. Their memories stay."""

    scope: Scope
    namespace: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteExpiredItems:
    """Deletes up to `limit` items whose time is over, and erases their memories."""

    limit: int


@dataclass(frozen=True, slots=True)
class RefreshItem:
    """Postpones the expiration of an item that was read: `ttl_minutes` from now."""

    scope: Scope
    namespace: tuple[str, ...]
    key: str


@dataclass(frozen=True, slots=True)
class ImportItem:
    """Stores an item of another ledger, unless its key is taken here.

    `item.memory_id` None, or of a memory that is not here: the item has no memory. If that memory was erased here, the
    item is not stored, either.
    """

    item: Item


@dataclass(frozen=True, slots=True)
class JudgeMemory:
    """Keeps what somebody says of a memory as an answer to a question, in place of what was said of both before.

    `judgement.verdict` None takes that back. Raises NotFoundError for an unknown memory.
    """

    judgement: Judgement

    @property
    def id(self) -> str:
        """The id of the memory."""
        return self.judgement.memory_id


ItemCommand = PutItem | DeleteItem | DeleteItems | DeleteExpiredItems | RefreshItem


@dataclass(frozen=True, slots=True)
class AddAlias:
    """Adds a user's alias: two keys mean one entity."""

    scope: Scope
    key: str
    other: str


@dataclass(frozen=True, slots=True)
class RemoveAlias:
    """Removes an alias of two keys for good: no rule adds it again."""

    scope: Scope
    key: str
    other: str


@dataclass(frozen=True, slots=True)
class RenameEntity:
    """Sets the displayed name of an entity, whichever names the texts use."""

    scope: Scope
    key: str
    name: str


EntityCommand = AddAlias | RemoveAlias | RenameEntity


@dataclass(frozen=True, slots=True)
class ChangeSettings:
    """Sets settings of a user, or (None) of all users. A value of None removes a setting.

    `changed_by` is the id of the key with which the change was asked for.
    """

    user_id: str | None
    values: Mapping[str, Any]
    changed_by: str


@dataclass(frozen=True, slots=True)
class DeleteSettings:
    """Deletes all settings of a user."""

    user_id: str


@dataclass(frozen=True, slots=True)
class ImportLink:
    """A link from an imported memory to the memory `other` or, if `is_incoming`, from `other` to it."""

    kind: str
    other: str
    is_incoming: bool = False


@dataclass(frozen=True, slots=True)
class ImportMemory:
    """Stores a memory of another ledger or program, unless its id or message is stored; then nothing changes.

    An empty `record.session` is set as for a new message; without `events` the history begins with an ADD. `key` and
    `content_digest` recognise its message, as in `AddMessage`. `extraction` or `embedded` None: still to be computed.
    `vitals` None: the lifecycle knows nothing of it. A memory that was erased in this ledger is not imported, unless
    `restore`.
    """

    record: MemoryRecord
    spec: EmbeddingSpec
    text_hash: str
    key: str | None = None
    content_digest: str = ""
    events: tuple[Event, ...] = ()
    links: tuple[ImportLink, ...] = ()
    extraction: Extraction | None = None
    embedded: Embedded | None = None
    vitals: StoredVitals | None = None
    restore: bool = False


@dataclass(frozen=True, slots=True)
class ImportTombstone:
    """Records that another ledger erased a memory, so that it is not imported here. A stored one stays.

    `events` have no words; `keys` recognise the memory's messages.
    """

    id: str
    scope: Scope
    at: datetime
    events: tuple[Event, ...] = ()
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ImportAlias:
    """Stores an alias of another ledger or, if `negated`, that there is none. One decided by users here stays."""

    scope: Scope
    link: Link
    at: datetime
    negated: bool = False


@dataclass(frozen=True, slots=True)
class ImportEntityName:
    """Sets the displayed name of an entity as in another ledger, unless it has a chosen name here."""

    scope: Scope
    key: str
    name: str
    at: datetime


@dataclass(frozen=True, slots=True)
class ImportLifecycle:
    """Records since when the lifecycle of another ledger is enabled, unless there are memories here already."""

    since: datetime


@dataclass(frozen=True, slots=True)
class ImportCycle:
    """Records the last cycle of a partition in another ledger, unless it had one here."""

    scope: Scope
    cycle: LastCycle


@dataclass(frozen=True, slots=True)
class ImportSetting:
    """Stores a setting of another ledger, of a user or (None) of all users, unless it was set or removed here.

    It is not stored if the user's settings were erased here after its change, unless `restore`.
    """

    user_id: str | None
    setting: StoredSetting
    restore: bool = False


@dataclass(frozen=True, slots=True)
class CountLackingKey:
    """Changes nothing: finds whether a key of another ledger is still valid and unknown here.

    An import makes no key: whoever wrote the file could choose one.
    """

    key: ApiKey


ImportCommand = (
    ImportMemory
    | ImportTombstone
    | ImportAlias
    | ImportEntityName
    | ImportLifecycle
    | ImportCycle
    | ImportItem
    | ImportSetting
    | CountLackingKey
)
LifecycleCommand = ForgetMemory | MergeMemory | ComposeMemory | RememberMemory | MoveMemory | PinMemory
FactCommand = EnqueueExtraction | EndSession | CompleteJob | AddFact | ReaffirmFact
Command = (
    AddMessage
    | HoldMessage
    | DropHeldMessages
    | FactCommand
    | StoreEnrichment
    | ReindexMemory
    | UpdateMemory
    | RetireMemory
    | RestoreMemory
    | LifecycleCommand
    | UndoEvent
    | DeleteMemory
    | EntityCommand
    | ItemCommand
    | JudgeMemory
    | ChangeSettings
    | DeleteSettings
    | ImportCommand
)


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """Commands that are committed together or not at all.

    `visible_scope`: ids outside this scope count as unknown. `ends_sessions`: somebody in this process is to know when
    the sessions of its messages end. `embedding`: nothing is committed if the ledger's vectors are of another embedder.
    `partitions` are those in which it writes, if the caller knows them (`graphmem.commands.dispatch`).
    """

    commands: tuple[Command, ...]
    now: datetime
    visible_scope: Scope | None = None
    ends_sessions: bool = False
    embedding: EmbeddingSpec | None = None
    partitions: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class ErasureReport:
    """The ids of the erased memories, and how many rows, points, graph parts and derived rows were removed.

    `partitions` are those of the memories.
    """

    ids: tuple[str, ...] = ()
    rows: int = 0
    points: int = 0
    graph: int = 0
    derived: int = 0
    partitions: frozenset[str] = frozenset()

    def __add__(self, other: ErasureReport) -> ErasureReport:
        return ErasureReport(
            self.ids + other.ids,
            self.rows + other.rows,
            self.points + other.points,
            self.graph + other.graph,
            self.derived + other.derived,
            self.partitions | other.partitions,
        )


class OutcomeType(StrEnum):
    """The change that a command made. ADD to DELETE are also the events in histories and results; NONE: no change."""

    ADD = "ADD"
    UPDATE = "UPDATE"
    RETIRE = "RETIRE"
    RESTORE = "RESTORE"
    FORGET = "FORGET"
    REMEMBER = "REMEMBER"
    PROMOTE = "PROMOTE"
    DEMOTE = "DEMOTE"
    COMPRESS = "COMPRESS"
    ABSTRACT = "ABSTRACT"
    DELETE = "DELETE"
    PIN = "PIN"
    ENRICH = "ENRICH"
    NAME_ENTITY = "NAME_ENTITY"
    IMPORT_TOMBSTONE = "IMPORT_TOMBSTONE"
    IMPORT_LIFECYCLE = "IMPORT_LIFECYCLE"
    ENQUEUE_JOB = "ENQUEUE_JOB"
    COMPLETE_JOB = "COMPLETE_JOB"
    END_SESSION = "END_SESSION"
    PUT_ITEM = "PUT_ITEM"
    DELETE_ITEM = "DELETE_ITEM"
    CHANGE_SETTINGS = "CHANGE_SETTINGS"
    NONE = "NONE"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one command.

    `id` is the memory's; for NAME_ENTITY the entity's key, for ENQUEUE_JOB, COMPLETE_JOB and END_SESSION the job's row,
    for PUT_ITEM and DELETE_ITEM the item's key, for CHANGE_SETTINGS the user's id. For NONE, `reason` says why nothing
    changed. `record` is the memory afterwards (for DELETE: before), None if there is none; for PUT_ITEM the memory that
    is new or has a new text. `previous` is its earlier text, `skipped_links` the number of an imported memory's links
    to unknown memories, `successor` the id of the memory that replaced a retired one, `event_id` that of the event of a
    lifecycle command, `sources` the memories that a composed one was made of, `hidden` those of them that it stands
    for.
    """

    event: OutcomeType
    id: str
    kind: Kind = Kind.EPISODE
    record: MemoryRecord | None = None
    previous: str | None = None
    reason: str | None = None
    erased: ErasureReport = field(default_factory=ErasureReport)
    skipped_links: int = 0
    successor: str | None = None
    event_id: str | None = None
    sources: tuple[str, ...] = ()
    hidden: tuple[MemoryRecord, ...] = ()

    @property
    def required_record(self) -> MemoryRecord:
        """The memory of an outcome. Raises LookupError if there is none."""
        if self.record is None:
            raise LookupError(self.event)
        return self.record
