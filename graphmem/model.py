"""The data classes that every other module uses: scopes, views, memories, mentions, relations, subgraphs.

Frozen, slotted and free of I/O. Times are timezone-aware UTC; stores keep them as integer microseconds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import IntEnum, IntFlag, StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, get_args

from graphmem.folding import is_blank
from graphmem.text import cut_line, folded_key
from graphmem.times import said

if TYPE_CHECKING:
    from graphmem.plugins import Matrix

# The role of messages that an assistant wrote.
ASSISTANT = "assistant"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EMPTY_MAPPING: Mapping[str, Any] = MappingProxyType({})


def iso(moment: datetime) -> str:
    """Formats a UTC moment as ISO 8601, always with microseconds, so that the texts sort like the moments."""
    return moment.isoformat(timespec="microseconds")


def optional_iso(moment: datetime | None) -> str | None:
    """Formats a UTC moment as `iso` does; returns None for None."""
    return None if moment is None else iso(moment)


def micros(moment: datetime) -> int:
    """Returns whole microseconds since 1970-01-01 UTC: exact, unlike a float of seconds."""
    return (moment - EPOCH) // timedelta(microseconds=1)


def from_micros(value: int) -> datetime:
    """Returns the UTC moment of a number from `micros`."""
    return EPOCH + timedelta(microseconds=value)


def optional_micros(moment: datetime | None) -> int | None:
    """Converts a moment as `micros` does; returns None for None."""
    return None if moment is None else micros(moment)


def optional_from_micros(value: int | None) -> datetime | None:
    """Converts a number as `from_micros` does; returns None for None."""
    return None if value is None else from_micros(value)


class Kind(StrEnum):
    """The kind of a memory: a message as it was said, a fact drawn from messages, or a summary."""

    EPISODE = "episode"
    FACT = "fact"
    SUMMARY = "summary"


class AttachmentKind(StrEnum):
    """What an attachment is."""

    IMAGE = "image"
    AUDIO = "audio"
    VIDEO = "video"
    FILE = "file"


# Characters of a caption or transcript in the text of a memory.
MAX_CAPTION_CHARS = 2000


@dataclass(frozen=True, slots=True)
class Attachment:
    """An attachment of a message: what came with its words.

    `ref` refers to it: a URL, the id of a file, the name of its blob, or the beginning of data that came with the
    message. `sha256` (hex) and `size` (bytes) are those of that data, None without any. `caption` says what is to be
    seen, `transcript` what is said; `described_by` is "message", "function" or the name of the model that said so, `at`
    when. `source`, the whole URL or data, is there only until it is stored, and is never compared or shown.
    """

    kind: AttachmentKind
    ref: str
    mime: str | None = None
    sha256: str | None = None
    size: int | None = None
    caption: str | None = None
    transcript: str | None = None
    described_by: str | None = None
    at: datetime | None = None
    source: str | None = field(default=None, repr=False, compare=False)

    @property
    def is_described(self) -> bool:
        """Whether words tell what the attachment is."""
        return bool(self.caption or self.transcript)

    @property
    def identity(self) -> str:
        """What tells the attachment from others: the digest of its data, else its reference."""
        return self.sha256 or self.ref

    @property
    def lines(self) -> list[str]:
        """Its caption and transcript as lines of a memory's text: "[image: …]", "[audio: …]"."""
        told = (" ".join(text.split()) for text in (self.caption, self.transcript) if text)
        return [f"[{self.kind}: {cut_line(text, MAX_CAPTION_CHARS)}]" for text in told if text]


def described_text(words: str, attachments: Iterable[Attachment]) -> str:
    """Returns the text of a memory: words, to the character, and the lines of what came with them."""
    lines = [line for attachment in attachments for line in attachment.lines]
    return "\n".join([words, *lines] if words.strip() else lines) if lines else words


def words_of(text: str, attachments: Iterable[Attachment]) -> str:
    """Returns the words of a text that `described_text` made, now or step by step: those before the lines."""
    lines = [line for attachment in attachments for line in attachment.lines]
    while lines:
        line = next((one for one in lines if text == one or text.endswith(f"\n{one}")), None)
        if line is None:
            break
        lines.remove(line)
        text = text[: -len(line)].removesuffix("\n")
    return text


MemoryType: TypeAlias = Literal["semantic", "episodic", "preference", "procedural", "fact"]
Role: TypeAlias = Literal["user", "assistant", "tool", "function"]
"""The roles whose messages are stored."""
MinRelevance: TypeAlias = float | Literal["default"] | None
"""The least relevance of a hit: 0 to 1, the default by the partition's size, or None for all hits."""


class EntityType(StrEnum):
    """The closed list of entity types."""

    PERSON = "Person"
    ORGANIZATION = "Organization"
    PLACE = "Place"
    EVENT = "Event"
    OBJECT = "Object"
    CONCEPT = "Concept"
    TIME = "Time"
    OTHER = "Other"


class AnswerType(IntFlag):
    """The kinds of question that a text may answer, judged by its words. One text can have several."""

    WHEN = 1
    NUMBER = 2
    DURATION = 4
    PLACE = 8
    PERSON = 16
    ASKS = 32  # the text ends with a question
    TITLED = 64  # the text is a passage with a title


NO_ANSWER_TYPES = AnswerType(0)


class MentionKind(IntEnum):
    """How a memory mentions an entity, most valuable first: stores that read a limited number begin with the lowest."""

    TITLE = 0
    NAME = 1
    NOUN_PHRASE = 2
    COMMON_NOUN = 3  # one common noun, kept only because a relation ends there; it does not link memories


# Names of a scope's parts, alike as arguments, columns and keys of an export.
SCOPE_NAMES = ("user_id", "agent_id", "run_id")


@dataclass(frozen=True, slots=True)
class Scope:
    """The ids that a call is about; at least one is set.

    Built by `graphmem.boundary.validation.scope`, which checks the values.
    """

    user_id: str | None = None
    agent_id: str | None = None
    run_id: str | None = None

    @classmethod
    def of_partition(cls, key: str) -> Scope:
        """Returns the widest scope whose memories are in a partition."""
        kind, _, value = key.partition(":")
        return cls(**{f"{kind}_id": value})

    @property
    def partition(self) -> str:
        """The partition of memories written under this scope: its user's, else its agent's, else its run's."""
        if self.user_id is not None:
            return f"user:{self.user_id}"
        if self.agent_id is not None:
            return f"agent:{self.agent_id}"
        return f"run:{self.run_id}"

    @property
    def read_partition(self) -> str | None:
        """The partition that holds all memories of this scope; None for an agent's or a run's, which are in several."""
        return self.partition if self.user_id is not None else None

    @property
    def parts(self) -> dict[str, Any]:
        """The parts that are set, by name."""
        values = {name: getattr(self, name) for name in SCOPE_NAMES}
        return {name: value for name, value in values.items() if value is not None}

    def sees(self, other: Scope) -> bool:
        """Tells whether memories written under `other` carry every value that this scope names."""
        return all(getattr(other, name) == value for name, value in self.parts.items())


ALL_KINDS = frozenset(Kind)
LISTED_KINDS = frozenset({Kind.FACT, Kind.EPISODE})
"""The kinds of a list that names none."""


class Layer(StrEnum):
    """How long a memory is kept by the lifecycle: until it is forgotten, or as long as there is room."""

    SHORT_TERM = "short_term"
    LONG_TERM = "long_term"


# The importance of a memory that nothing is known of.
NEUTRAL_IMPORTANCE = 0.5
# The confidence of a fact for which a language model gave none.
DEFAULT_CONFIDENCE = 0.7


@dataclass(frozen=True, slots=True)
class View:
    """The memories that a read may see. Every store applies the view before its limits.

    `partition` None spans partitions (a search by agent or run alone). `now` is the time of the call. Without `as_of`,
    memories retired by `now` are hidden; with it, the read sees the memories valid at that time: valid_from <= as_of <
    valid_to. With `show_retired` it also sees those that ended before (facts, and the source messages hidden with
    them). Expired memories are hidden unless `show_expired`, forgotten ones unless `show_forgotten`.
    """

    scope: Scope
    now: datetime
    partition: str | None = None
    kinds: frozenset[Kind] = ALL_KINDS
    as_of: datetime | None = None
    show_expired: bool = False
    show_retired: bool = False
    show_forgotten: bool = False

    @property
    def moment(self) -> datetime:
        """The moment whose state is read: `as_of`, else `now`."""
        return self.as_of or self.now

    def holds(self, record: MemoryRecord) -> bool:
        """Tells whether the view shows a memory; SQL and Cypher apply the same rule by statements of their own."""
        if self.partition is not None and record.partition != self.partition:
            return False
        if not record.is_in(self.scope) or record.kind not in self.kinds:
            return False
        if self.is_past(record.valid_to) and not self.show_retired:
            return False
        if self.as_of is not None and record.valid_from > self.as_of:
            return False
        if self.is_past(record.forgotten_at) and not self.show_forgotten:
            return False
        return self.show_expired or not self.is_past(record.expires_at)

    def is_past(self, end: datetime | None) -> bool:
        """Tells whether an end (None: not yet) is at the view's moment or before it."""
        return end is not None and end <= self.moment


@dataclass(frozen=True, slots=True)
class ListFilter:
    """Which memories of a view are listed: those observed in since <= at < until that mention an entity of a type.

    None leaves a condition out. `words`, in any spelling, are all in the text or its speaker's name, also as parts of
    words; in a view that shows what is retired they may all be in a former text instead. `retired_only` lists those
    that are no longer true, of a view that shows them.
    """

    mentions_type: EntityType | None = None
    since: datetime | None = None
    until: datetime | None = None
    words: tuple[str, ...] = ()
    retired_only: bool = False


# The embedding form of a text's vectors, and the bytes of one number in them.
VECTOR, VECTOR_BYTES = "vector", 4


class EmbedderId(NamedTuple):
    """The name of an embedding model and the length of its vectors. Vectors of different ones are never compared."""

    model: str
    dims: int

    def __str__(self) -> str:
        return f"{self.model!r} ({self.dims} dimensions)"


class SpaceVector(NamedTuple):
    """A text's unit vector (dims,) and its space: the embedding form, "vector" or `EmbeddingSpec.multilingual`."""

    space: str
    vector: Matrix

    def cosine(self, other: SpaceVector) -> float:
        """Returns the cosine to a vector of the same space, -1 to one of another."""
        return float(self.vector @ other.vector) if self.space == other.space else -1.0


@dataclass(frozen=True, slots=True)
class EmbeddingSpec:
    """The embeddings stored for each text: the vectors of `model` and, unless None, token matrices and another vector.

    `dims` is the length of a vector. `tokens` is the embedding form of the token matrices, such as "tokens-128",
    `token_dims` the length of a token vector. `multilingual` is the embedding form of a vector in the multilingual
    space, named after its model, and `multilingual_dims` its length. With it, a text that `model` does not read has
    this vector alone.
    """

    model: str
    dims: int
    tokens: str | None = None
    token_dims: int = 0
    multilingual: str | None = None
    multilingual_dims: int = 0

    @property
    def embedder(self) -> EmbedderId:
        """The model's name and the length of its vectors."""
        return EmbedderId(self.model, self.dims)

    @property
    def names(self) -> list[str]:
        """The embedding forms of a text that `model` reads: "vector", that of its tokens, the multilingual one."""
        return [VECTOR, *(form for form in (self.tokens, self.multilingual) if form is not None)]

    def is_complete(self, forms: Collection[str]) -> bool:
        """Whether these are all embedding forms that a text has; of one that `model` does not read, the last alone."""
        return set(forms) == set(self.names) or (self.multilingual is not None and set(forms) == {self.multilingual})


class CandidateRow(NamedTuple):
    """The columns of a memory that a search needs for its features.

    `row` is the memory's row number, `at` microseconds since 1970 UTC, `answer_types` the number of an AnswerType,
    `question_share` 0 to 1. `before` and `after` are the rows beside it in its session (None for the first and last
    memory), also where the view hides them. `source_only` marks a source message. `role` is the author's.
    """

    row: int
    id: str
    partition: str
    speaker: str | None
    at: int
    answer_types: int
    question_share: float
    before: int | None
    after: int | None
    source_only: bool = False
    role: str | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """One message as a caller adds it.

    `at` is the observation time, `has_own_time` is True if the caller gave it, `utc_offset` the minutes by which the
    clock of whoever spoke is ahead of UTC (None: unknown). A message that has neither `id` nor its own time is never
    recognised as a repetition. `metadata` is the message's own, without that of the call. `document`
    is the id of the document of which the content is a paragraph, None for a message that somebody said. `content`
    are the words alone. `index` is its place in the call, from 0.
    """

    role: str
    content: str
    at: datetime
    name: str | None = None
    id: str | None = None
    has_own_time: bool = False
    utc_offset: int | None = None
    attachments: tuple[Attachment, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=lambda: EMPTY_MAPPING)
    document: str | None = None
    index: int = field(default=0, compare=False)

    @property
    def text(self) -> str:
        """The text of its memory: the words and the lines of what came with them; "" if there is nothing to remember.

        That is so for a message whose attachments nobody has described.
        """
        text = described_text(self.content, self.attachments)
        return "" if is_blank(text) else text

    @property
    def identity(self) -> str:
        """What tells the message from others of its author and time: its words, else what came in their place."""
        return self.content or "\n".join(attachment.identity for attachment in self.attachments)


@dataclass(frozen=True, slots=True)
class MemoryRecord:
    """A memory as the ledger stores it.

    `further_runs` are the runs, beside its scope's, in which the memory was said again. `at` is the observation time,
    of a fact that of its last source message, `utc_offset` the minutes by which the clock of whoever spoke is ahead of
    UTC (None: unknown). `seq` is the number of its last change, `row` its row number in the ledger. `confidence` and
    `importance` are 0 to 1. A memory of `level` 1 to 3 was abstracted from others. From `forgotten_at` on it is hidden.
    `text` has the lines of its described `attachments` after the words.
    """

    id: str
    partition: str
    scope: Scope
    kind: Kind
    text: str
    at: datetime
    valid_from: datetime
    created_at: datetime
    updated_at: datetime
    session: str
    valid_to: datetime | None = None
    expires_at: datetime | None = None
    memory_type: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=lambda: EMPTY_MAPPING)
    speaker: str | None = None
    actor_id: str | None = None
    role: str | None = None
    message_id: str | None = None
    source_only: bool = False
    confidence: float = 1.0
    version: int = 1
    seq: int = 0
    row: int = 0
    further_runs: tuple[str, ...] = ()
    utc_offset: int | None = None
    layer: Layer = Layer.SHORT_TERM
    importance: float = NEUTRAL_IMPORTANCE
    level: int = 0
    pinned: bool = False
    forgotten_at: datetime | None = None
    attachments: tuple[Attachment, ...] = ()

    def message(self, text: str | None = None) -> Message:
        """Returns the message that the memory is of, as far as it is recognised by it.

        `text` is the memory's first text (None: its present one).
        """
        words = words_of(self.text if text is None else text, self.attachments)
        return Message(self.role or "user", words, self.at, self.actor_id, attachments=self.attachments)

    @property
    def said_at(self) -> datetime:
        """The observation time by the clock of whoever spoke."""
        return said(self.at, self.utc_offset)

    @property
    def runs(self) -> tuple[str, ...]:
        """Every run the memory was said in, its scope's first."""
        own_run = self.scope.run_id
        return self.further_runs if own_run is None else (own_run, *self.further_runs)

    def is_in(self, scope: Scope) -> bool:
        """Tells whether the memory carries every value that `scope` names; any of its runs counts."""
        run = scope.run_id
        if run is not None and run in self.further_runs:
            scope = replace(scope, run_id=None)
        return scope.sees(self.scope)

    @property
    def embedded_text(self) -> str:
        """The words after the speaker's name, as they are embedded and indexed."""
        return embedded_text(self.speaker, self.text)


@dataclass(frozen=True, slots=True)
class SaidMessage:
    """A stored message as working memory keeps it; of a long one `text` is the end, of `tokens` tokens.

    `row` and `version` are those of its memory: together they tell whether it still says that.
    """

    id: str
    row: int
    version: int
    session: str
    at: datetime
    text: str
    tokens: int
    role: str | None = None
    speaker: str | None = None


def embedded_text(speaker: str | None, text: str) -> str:
    """Returns the text that is embedded and indexed: a memory's words after its speaker's name ("Anna: I moved")."""
    return f"{speaker}: {text}" if speaker else text


@dataclass(frozen=True, slots=True)
class Mention:
    """An entity named in one text, as `name` there. `key` is lower case, without article or possessive."""

    key: str
    name: str
    type: EntityType
    kind: MentionKind


@dataclass(frozen=True, slots=True)
class Statement:
    """A relation as one text states it. `subject` and `object` are entity keys, `fact` is the sentence that states it.

    Predicates are data (a lemma with its preposition, with "not " in front if negated), never labels or types.

    `confidence`, 0 to 1, is the extractor's estimate of how often statements found in this way are right, not a claim
    about the world; 1.0 where the extractor makes none. `valid_at` and `invalid_at` are the beginning and end that the
    text gives; without them the memory's own dates count. But of what `is_past`, an unknown beginning stays unknown: it
    was not on the day on which somebody told of it.
    """

    subject: str
    predicate: str
    object: str
    fact: str
    confidence: float = 1.0
    valid_at: datetime | None = None
    invalid_at: datetime | None = None
    is_past: bool = False


@dataclass(frozen=True, slots=True)
class Extraction:
    """Entities and relations found in one text. Every subject and object of a statement is among the mentions.

    An entity keeps the type of its first mention, unless its key is among `decided_types`: those of a language model.
    """

    mentions: tuple[Mention, ...] = ()
    statements: tuple[Statement, ...] = ()
    answer_types: AnswerType = NO_ANSWER_TYPES
    decided_types: frozenset[str] = frozenset()

    def with_folded_keys(self) -> Extraction:
        """Returns it with keys as this release makes them, for one that an older release has written down.

        Of mentions that have one key now the strongest stays; a relation of an entity to itself goes.
        """
        mentions: dict[str, Mention] = {}
        for mention in self.mentions:
            folded = replace(mention, key=folded_key(mention.key))
            mentions[folded.key] = min(mentions.get(folded.key, folded), folded, key=lambda one: one.kind)
        statements = (
            replace(one, subject=folded_key(one.subject), object=folded_key(one.object)) for one in self.statements
        )
        return replace(
            self,
            mentions=tuple(mentions.values()),
            statements=tuple(statement for statement in statements if statement.subject != statement.object),
            decided_types=frozenset(map(folded_key, self.decided_types)),
        )


@dataclass(frozen=True, slots=True)
class Utterance:
    """A text with its speaker, the input of an extractor.

    `is_fact`: the text is about the speaker and leaves the subject out ("Lives in Paris"). `speaker_is_id`: the speaker
    is a user's or agent's id, of which nothing says that it is a name; if it does not read like one, `role_name` stands
    for the speaker ("" for nobody).
    """

    text: str
    speaker: str | None = None
    is_fact: bool = False
    speaker_is_id: bool = False
    role_name: str = ""


class Origin(StrEnum):
    """Who linked two names of one entity: the user, or a rule of `graphmem.extraction.entity_resolution`."""

    USER = "user"
    FIRST_NAME = "first name"
    SAID = "said"
    SPELLING = "spelling"


class Link(NamedTuple):
    """An alias: two keys of a partition that mean one entity."""

    key: str
    other: str
    origin: Origin


@dataclass(frozen=True, slots=True)
class OtherName:
    """An alias of an entity: its key, its name as the texts spell it, and the origin of the link."""

    key: str
    name: str
    origin: Origin


@dataclass(frozen=True, slots=True)
class Entity:
    """An entity of a partition. `mentions` counts the memories that mention it (its document frequency).

    Where names are merged for display, it stands for several keys: `aliases` are the others, and `mentions` counts each
    memory once.
    """

    key: str
    name: str
    type: EntityType
    mentions: int
    aliases: tuple[OtherName, ...] = ()

    @property
    def keys(self) -> list[str]:
        """All keys of the entity, its own first."""
        return [self.key, *(other.key for other in self.aliases)]


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation as a view shows it: facts, dates and memory ids come only from supports inside the view.

    `source` and `target` are entity keys. `confidence` (0 to 1) is that of the most certain support.
    """

    id: str
    source: str
    source_name: str
    predicate: str
    target: str
    target_name: str
    memory_ids: tuple[str, ...]
    facts: tuple[str, ...] = ()
    valid_at: datetime | None = None
    invalid_at: datetime | None = None
    confidence: float = 1.0


EventName: TypeAlias = Literal[
    "ADD",
    "UPDATE",
    "RETIRE",
    "RESTORE",
    "SCOPE",
    "FORGET",
    "REMEMBER",
    "PROMOTE",
    "DEMOTE",
    "COMPRESS",
    "ABSTRACT",
    "DELETE",
]
EVENTS: tuple[str, ...] = get_args(EventName)
# The events that `undo` takes back.
REVERSIBLE_EVENTS = ("UPDATE", "RETIRE", "FORGET", "PROMOTE", "COMPRESS", "ABSTRACT")
# Those by which a memory was made of others.
COMPOSING_EVENTS = ("COMPRESS", "ABSTRACT")
# The reason of an event that takes another one back begins so.
UNDO_REASON = "undo of "


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a memory's history. The texts are None once the memory is erased.

    `batch` is the id of the lifecycle's cycle that the event is part of, None for all others.
    """

    id: str
    memory_id: str
    event: str
    old_text: str | None
    new_text: str | None
    created_at: datetime
    updated_at: datetime
    is_deleted: bool
    actor_id: str | None
    role: str | None
    reason: str | None
    previous_state: Mapping[str, Any] | None = None
    batch: str | None = None


class EventType(StrEnum):
    """What subscribers can be told of."""

    SESSION_END = "session.end"
    MEMORY_ADDED = "memory.added"
    MEMORY_ACCESSED = "memory.accessed"
    SCHEDULE_DAILY = "schedule.daily"


@dataclass(frozen=True, slots=True)
class MemoryEvent:
    """What a subscriber is told: what happened, to whose memories, and when.

    `event_type` is one of `EventType`; `user_id` None for memories of an agent or a run alone. `payload` has ids and
    numbers, never a text: `event_id` (the same when an event is told again), what is set of `agent_id` and `run_id`,
    and what `Memory.on` documents for each type.
    """

    event_type: str
    user_id: str | None
    payload: Mapping[str, Any]
    timestamp: datetime

    @classmethod
    def of(cls, event_type: EventType, scope: Scope, event_id: str, timestamp: datetime, **payload: Any) -> MemoryEvent:
        """Returns an event about memories of a scope."""
        others = {name: value for name, value in scope.parts.items() if name != "user_id"}
        return cls(event_type.value, scope.user_id, {"event_id": event_id, **others, **payload}, timestamp)

    @classmethod
    def added(cls, event_id: str, change: str, memory: str, scope: Scope, timestamp: datetime) -> MemoryEvent:
        """Returns the event that an entry of a memory's history is; `change` is its type, such as "UPDATE"."""
        return cls.of(EventType.MEMORY_ADDED, scope, event_id, timestamp, memory_id=memory, change=change)


@dataclass(frozen=True, slots=True)
class Item:
    """An exact value that an adapter of an agent framework stores, under a namespace and a key of exactly one scope.

    `namespace` is a path of labels, `value` JSON text, `memory_id` the id of the memory made of the value's text, None
    without one. An item is deleted `ttl_minutes` after its last access, at `expires_at`; None: never.
    """

    scope: Scope
    namespace: tuple[str, ...]
    key: str
    value: str
    created_at: datetime
    updated_at: datetime
    memory_id: str | None = None
    ttl_minutes: float | None = None
    expires_at: datetime | None = None


class Verdict(StrEnum):
    """What somebody says of a memory as an answer to a question.

    RIGHT: found, and it answers. WRONG: found, and it does not. MISSING: it answers, and was not found.
    """

    RIGHT = "right"
    WRONG = "wrong"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Judgement:
    """What somebody said of a memory as an answer to a question of exactly this scope; None: it is taken back."""

    scope: Scope
    query: str
    memory_id: str
    verdict: Verdict | None
    at: datetime


@dataclass(frozen=True, slots=True)
class Seeds:
    """The nodes from which the graph is read: entity keys and memory ids of one partition."""

    entities: Sequence[str] = ()
    memories: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class GraphBounds:
    """How much of the graph one `neighbourhood` may read. Measured: docs/decisions/0018-pagerank-over-mentions.md."""

    steps: int = 3
    seed_mentions: int = 30
    frontier: int = 100
    frontier_mentions: int = 10
    memories: int = 400


class MentionEdge(NamedTuple):
    """A mention inside a subgraph. `kind` is the plain number of a MentionKind: a search handles thousands of these."""

    memory: str
    entity: str
    kind: int


@dataclass(frozen=True, slots=True)
class Subgraph:
    """The part of the graph around the seeds of a search, bounded in size.

    `mentions` are the mentions of seed entities and of entities that several memories of the partition mention. From an
    entity that only one memory mentions, no other memory can be reached. Mentions of such entities are only counted, in
    `unshared_mentions`, {(memory, kind of mention): count}, because PageRank needs the sum of a memory's edge weights.
    `frequencies` is the document frequency of every entity key that occurs. `next_pairs` are consecutive memories of a
    session, both inside the view, at least one of them in `memories`.

    Relations are left out: a memory that supports one mentions both its ends, so they would lead to no further node.
    Readers load the relations of the hits.
    """

    memories: tuple[str, ...] = ()
    frequencies: Mapping[str, int] = field(default_factory=dict)
    mentions: tuple[MentionEdge, ...] = ()
    unshared_mentions: Mapping[tuple[str, int], int] = field(default_factory=dict)
    next_pairs: tuple[tuple[str, str], ...] = ()
