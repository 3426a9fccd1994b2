"""The nouns: frozen, slotted, free of I/O. Times are timezone-aware UTC; in stores they are integer microseconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import IntEnum, IntFlag, StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

# The role of messages that an assistant wrote.
ASSISTANT = "assistant"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EMPTY_MAPPING: Mapping[str, Any] = MappingProxyType({})


def iso(moment: datetime) -> str:
    """ISO 8601 in UTC, always with microseconds, so that texts sort like moments."""
    return moment.isoformat(timespec="microseconds")


def optional_iso(moment: datetime | None) -> str | None:
    """The same, or None."""
    return None if moment is None else iso(moment)


def micros(moment: datetime) -> int:
    """Microseconds since 1970-01-01 UTC: exact, unlike a float of seconds."""
    return (moment - EPOCH) // timedelta(microseconds=1)


def from_micros(value: int) -> datetime:
    """The UTC moment that `micros` was taken from."""
    return EPOCH + timedelta(microseconds=value)


class Kind(StrEnum):
    """What a memory is: the words as spoken, what was extracted from them, or a consolidation."""

    EPISODE = "episode"
    FACT = "fact"
    SUMMARY = "summary"


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
    """Which kinds of questions a text may answer, as far as its words show; a text can do several."""

    WHEN = 1
    NUMBER = 2
    DURATION = 4
    PLACE = 8
    PERSON = 16
    ASKS = 32  # it ends with a question itself
    TITLED = 64  # it is a passage with a title


NO_ANSWER_TYPES = AnswerType(0)


class MentionKind(IntEnum):
    """How a memory holds an entity's key. The order is the order of worth: a store reads the lowest first."""

    TITLE = 0
    NAME = 1
    CHUNK = 2
    THING = 3  # one common noun, only because a relation ends there: links nothing


# What the parts of a scope are called: arguments, columns, keys of what is exported.
SCOPE_NAMES = ("user_id", "agent_id", "run_id")


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose memories: at least one part is set. Made by `graphmem.boundary.validation.scope`, which
    checks the values.
    """

    user_id: str | None = None
    agent_id: str | None = None
    run_id: str | None = None

    @property
    def partition(self) -> str:
        """Where what is written under this scope lives: its user's graph, else its agent's, else its run's."""
        if self.user_id is not None:
            return f"user:{self.user_id}"
        if self.agent_id is not None:
            return f"agent:{self.agent_id}"
        return f"run:{self.run_id}"

    @property
    def parts(self) -> dict[str, str]:
        """The parts that are set, by name."""
        named = {name: getattr(self, name) for name in SCOPE_NAMES}
        return {name: value for name, value in named.items() if value is not None}

    def sees(self, other: Scope) -> bool:
        """Whether a memory written under `other` carries every value this scope asks for."""
        return all(getattr(other, name) == value for name, value in self.parts.items())


ALL_KINDS = frozenset(Kind)


@dataclass(frozen=True, slots=True)
class View:
    """What a read may see. Every store applies it before its limits.

    `partition` None spans partitions (a search by agent or run alone). Without `as_of`, what is retired by `now` is
    left out; with it, what was true then is seen: valid_from <= as_of < valid_to.
    """

    scope: Scope
    now: datetime
    partition: str | None = None
    kinds: frozenset[Kind] = ALL_KINDS
    as_of: datetime | None = None
    show_expired: bool = False

    @property
    def moment(self) -> datetime:
        """The moment whose state of the world is asked for."""
        return self.as_of or self.now

    def holds(self, record: MemoryRecord) -> bool:
        """The rule itself, for stores that filter in Python; SQL and Cypher say the same in their words."""
        if self.partition is not None and record.partition != self.partition:
            return False
        if not record.is_in(self.scope) or record.kind not in self.kinds:
            return False
        return self.is_current(record.valid_from, record.valid_to, record.expires_at)

    def is_current(self, valid_from: datetime, valid_to: datetime | None, expires_at: datetime | None) -> bool:
        """Whether something with these dates is seen at this view's moment."""
        if valid_to is not None and valid_to <= self.moment:
            return False
        if self.as_of is not None and valid_from > self.as_of:
            return False
        return self.show_expired or expires_at is None or expires_at > self.moment


VECTOR = "vector"


@dataclass(frozen=True, slots=True)
class EmbeddingSpec:
    """What is kept of each text: `model`'s vectors and, if `tokens` names a form, its token matrices."""

    model: str
    tokens: str | None = None
    token_dims: int = 0

    @property
    def names(self) -> list[str]:
        """The forms by name."""
        return [VECTOR] if self.tokens is None else [VECTOR, self.tokens]


class CandidateRow(NamedTuple):
    """What a search has to know of a memory to weigh it. `at` is in microseconds, `question_share` the share of it that
    asks.

    `before` and `after` are the rows beside it in its session (None: none), whatever a view would hide. `source_only`:
    an episode that is a mere source of facts. `role` is that of whoever said it.
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
    """One thing said. `at` is the observation time; `has_own_time` tells whether the caller gave it (replays need
    that).

    `metadata` is what came in the message itself, beside that of the call; `document` tells of which document the words
    are a part, if nobody said them.
    """

    role: str
    content: str
    at: datetime
    name: str | None = None
    id: str | None = None
    has_own_time: bool = False
    attachments: tuple[Mapping[str, Any], ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=lambda: EMPTY_MAPPING)
    document: str | None = None


@dataclass(frozen=True, slots=True)
class MemoryRecord:
    """A memory as the ledger holds it. Beside its scope's run, it may have been said again in `further_runs`."""

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

    @property
    def runs(self) -> tuple[str, ...]:
        """Every run it was said in, its own first."""
        own = self.scope.run_id
        return self.further_runs if own is None else (own, *self.further_runs)

    def is_in(self, scope: Scope) -> bool:
        """Whether it carries every value that a scope asks for; of its runs each counts."""
        run = scope.run_id
        if run is not None and run in self.further_runs:
            scope = replace(scope, run_id=None)
        return scope.sees(self.scope)

    @property
    def embedded_text(self) -> str:
        """The words with the speaker's name in front: what is embedded and indexed (see RECALL in the README)."""
        return embedded_text(self.speaker, self.text)


def embedded_text(speaker: str | None, text: str) -> str:
    """A memory's words with its speaker's name in front."""
    return f"{speaker}: {text}" if speaker else text


@dataclass(frozen=True, slots=True)
class Mention:
    """An entity's canonical key as found in one text. `key` is lower case, without article or possessive."""

    key: str
    name: str
    type: EntityType
    kind: MentionKind


@dataclass(frozen=True, slots=True)
class Statement:
    """A relation as one text states it: subject and object are entity keys, `fact` is the sentence that says so.

    Predicates are data (a lemma with its preposition, "not " in front when negated), never labels or types.
    `confidence`, 0 to 1, is the share of statements read in this way that are right: the extractor's estimate, not a
    claim about the world. 1.0 where the extractor makes none. `valid_at` and `invalid_at` are since and until when it
    is so, where the text says it; else the memory's own dates stand for them.
    """

    subject: str
    predicate: str
    object: str
    fact: str
    confidence: float = 1.0
    valid_at: datetime | None = None
    invalid_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Extraction:
    """What an extractor found in one text. Every subject and object of a statement is among the mentions."""

    mentions: tuple[Mention, ...] = ()
    statements: tuple[Statement, ...] = ()
    answer_types: AnswerType = NO_ANSWER_TYPES


@dataclass(frozen=True, slots=True)
class Utterance:
    """A text with its speaker, as an extractor gets it.

    `is_fact`: it is written about the speaker, who is left out as its subject ("Lives in Paris").
    """

    text: str
    speaker: str | None = None
    is_fact: bool = False


class Origin(StrEnum):
    """Who says that two names mean one entity: the user, or a rule (see `graphmem.extraction.entity_resolution`)."""

    USER = "user"
    FIRST_NAME = "first name"
    SAID = "said"
    SPELLING = "spelling"


class Link(NamedTuple):
    """Two keys of a partition that mean one entity."""

    key: str
    other: str
    origin: Origin


@dataclass(frozen=True, slots=True)
class OtherName:
    """A further key of an entity that has several, what texts call it, and who says that it is the same."""

    key: str
    name: str
    origin: Origin


@dataclass(frozen=True, slots=True)
class Entity:
    """A node of a partition's graph. `mentions` counts the memories that hold its key (its document frequency).

    As people see it, it may stand for several keys: `aliases` are the others, and `mentions` counts a memory once.
    """

    key: str
    name: str
    type: EntityType
    mentions: int
    aliases: tuple[OtherName, ...] = ()

    @property
    def keys(self) -> list[str]:
        """All keys it stands for, its own first."""
        return [self.key, *(other.key for other in self.aliases)]


@dataclass(frozen=True, slots=True)
class Relation:
    """An edge as a view sees it: facts, dates and memory ids come from the supports inside the view only.

    `confidence` (0..1) is the surest support's.
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


@dataclass(frozen=True, slots=True)
class Event:
    """One line of history. Content is None once the memory is erased."""

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


@dataclass(frozen=True, slots=True)
class Seeds:
    """Where a walk starts: entity keys and memory ids, all of one partition."""

    entities: Sequence[str] = ()
    memories: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class GraphBounds:
    """How much of the graph one `neighbourhood` may read; measured, see README, "Why it is built so"."""

    steps: int = 3
    seed_mentions: int = 30
    frontier: int = 100
    frontier_mentions: int = 10
    memories: int = 400


class MentionEdge(NamedTuple):
    """A mention inside a subgraph. `kind` is a MentionKind's number: there are thousands of them in a search."""

    memory: str
    entity: str
    kind: int


@dataclass(frozen=True, slots=True)
class Subgraph:
    """A bounded neighbourhood.

    `mentions` are the memories' mentions of whatever several memories of the partition hold, and of the seeds; how many
    entities a memory holds alone is counted in `shared_mentions`, {(memory, kind): count}: they lead nowhere, but weigh
    in what the memory passes on. `frequencies` gives the document frequency of every key that occurs. `next_pairs` are
    consecutive memories of a session, both inside the view, at least one of them in `memories`. Relations are no part
    of it: the memory that supports one mentions both its ends, so they would lead nowhere new; readers get them from
    the memories found.
    """

    memories: tuple[str, ...] = ()
    frequencies: Mapping[str, int] = field(default_factory=dict)
    mentions: tuple[MentionEdge, ...] = ()
    shared_mentions: Mapping[tuple[str, int], int] = field(default_factory=dict)
    next_pairs: tuple[tuple[str, str], ...] = ()
