"""Extracts facts from messages with a language model: builds the requests and parses the answers. Pure: no I/O.

An answer is untrusted data: its unusable parts are dropped and counted by reason, the rest is used. Messages are
identified by their numbers in the job.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, TypeVar

from graphmem.boundary import validation
from graphmem.errors import LLMUnusable
from graphmem.ingest.facts import structured_output
from graphmem.ingest.facts.structured_output import (
    answer_entries,
    array_schema,
    checked_or,
    object_schema,
    single_line,
    whole_number,
)
from graphmem.model import DEFAULT_CONFIDENCE, EntityType, MemoryRecord, Mention, MentionKind, Scope, Statement
from graphmem.plugins import Prompt
from graphmem.text import display_form, is_unspaced, normalise_key

T = TypeVar("T")
OPERATION = "facts"
# Tokens of messages in one request: far below any model's limit, and few enough for the model to read each message.
CHUNK_TOKENS = 3_000
# Characters of a fact, a name and a predicate; a longer one is dropped.
MAX_FACT_CHARS, MAX_NAME_CHARS, MAX_PREDICATE_CHARS = 2_000, 256, 80
# Facts and entities of an answer, relations of a fact; more are dropped. `CHUNK_TOKENS` of messages are some 200
# sentences, few of which state a fact; each twelve facts cost another request, for the decision about them.
MAX_FACTS, MAX_ENTITIES, MAX_RELATIONS = 100, 200, 20
# Characters of an earlier message, which is shown for context only.
MAX_EARLIER_CHARS = 400
# A message's time is shown if it is so far from the last one shown, or of another day or UTC offset.
CLOCK_STEP = timedelta(minutes=10)
# Keys for the text of a fact in answers: ours, then those of prompts written for mem0.
TEXT_KEYS = ("text", "fact", "memory", "content")
NO_FACTS = "the model's answer has no list of facts; a larger model, or one with JSON output, helps"
# Names for the speaker in answers, with their role.
SPEAKERS = {"user": "user", "the user": "user", "speaker": "user", "i": "user", "用户": "user",
            "assistant": "assistant", "the assistant": "assistant", "助手": "assistant"}  # fmt: skip
# Words that models write where there is nothing to write, in lower case.
_PLACEHOLDERS = frozenset({
    "none", "null", "n/a", "n.a", "tbd", "unknown", "unspecified", "undefined", "not specified", "not available",
    "not applicable", "not mentioned", "not stated", "not known", "nothing", "-", "?", "无", "未知", "没有", "不详",
    "未提及", "unbekannt", "inconnu", "desconocido", "неизвестно",
})  # fmt: skip
_PRONOUNS = frozenset({
    "he", "him", "his", "himself", "she", "her", "hers", "herself", "it", "its", "itself", "they", "them", "their",
    "theirs", "themselves", "we", "us", "our", "ours", "you", "your", "yours", "this", "that", "these", "those",
    "there", "here", "who", "what", "which", "something", "someone", "somebody", "anything", "anyone", "everything",
    "everyone", "nobody", "他", "她", "它", "他们", "她们", "它们", "我们", "你", "您", "你们", "这", "那", "这个",
    "那个", "这里", "那里", "er", "ihn", "ihm", "sie", "es", "wir", "jemand", "etwas", "il", "elle", "ils", "elles",
    "lui", "cela", "ça", "él", "ella", "ellos", "ellas", "eso", "esto", "alguien", "algo", "он", "она", "оно", "они",
    "мы", "это", "кто-то", "что-то",
})  # fmt: skip
_NO_FACTS = re.compile(r"no (?:\w+ ){0,2}facts\b")

_LATIN_WORD = re.compile(r"[A-Za-z]+")
_OTHER_CHARACTER = re.compile(r"[^\sA-Za-z]")
_SENTENCE_END = re.compile(r"(?<=[.!?。！？\n])\s*")
_SPACES = re.compile(r"\s+")
# "Acme (Organization)", as the contract has entities; the name itself may end with parentheses.
_TYPED_NAME = re.compile(r"(.*)[(（]([^()（）]*)[)）]\s*", re.DOTALL)
# Between the parts of a relation: subject, predicate, object, and since and until when, of which these may be missing.
_BETWEEN_PARTS = re.compile(r"[|｜]")
_LEAST_PARTS, _MOST_PARTS = 3, 5
# The same parts as members of an object, which is how other libraries' prompts ask for a relation.
_PART_KEYS = (
    ("subject", "source"),
    ("predicate", "relationship", "relation"),
    ("object", "destination", "target"),
    ("since", "valid_at"),
    ("until", "invalid_at"),
)

# The first words of a predicate in the past: "attended", "did not like", "used to play", "has visited". The participles
# that are left out say how something is ("based in", "married to"), and the other words in -ed are no past.
_PAST = re.compile(
    r"(?:not |never )?(?:ha(?:s|ve) )?(?:used to|(?:was|were|been|had|did|went|gone|got|met|saw|seen|ate"
    r"|drank|bought|sold|made|gave|took|came|left|found|lost|won|wrote|ran|sang|swam"
    r"|flew|drove|rode|began|built|brought|caught|chose|fell|felt|fought|forgot|grew"
    r"|heard|held|kept|knew|led|paid|said|sent|slept|spent|spoke|stood|taught|thought|told|wore"
    r"|(?!(?:need|feed|breed|speed|succeed|proceed|exceed|based|located|married|engaged|interested|employed|named|called"
    r"|aged|related|connected|associated|dedicated|scheduled|planned|involved|enrolled|allowed|supposed|used)\b)"
    r"[a-z]+ed)\b)"
)

_STRING = {"type": "string"}
# The memory types that a model is asked for: all of what it draws are facts, and "fact" would say nothing.
ASKED_TYPES = tuple(name for name in validation.MEMORY_TYPES if name != "fact")
# Strict schemas require each property and have no tuples. As objects, with null for most dates, and with the entities
# of each fact, relations and entities took 87 of the 158 tokens of a fact; as texts, each entity once, 20 of 64.
_FIELDS = {
    "facts": array_schema(
        object_schema(
            text=_STRING,
            type={"type": "string", "enum": list(ASKED_TYPES)},
            confidence={"type": "number"},
            messages=array_schema({"type": "integer"}),
            relations=array_schema(_STRING),
        )
    ),
    "entities": array_schema(_STRING),
}
EXTRACTION_SCHEMA = object_schema(**_FIELDS)
SUMMARISING_SCHEMA = object_schema(**_FIELDS, summary=_STRING)


class AlsoSummarise(StrEnum):
    """The summary that an answer about facts shall bring as well; the value is the template that asks for it.

    NEW is of the new messages alone, NEXT the shown summary as it stands after them.
    """

    NEW = "facts_summary_new"
    NEXT = "facts_summary_next"


@dataclass(frozen=True, slots=True)
class Fact:
    """One extracted fact. `sources` are the numbers of the messages that state it, `confidence` is 0 to 1.

    `statements` are None if the answer has no list of relations for it, and () if the list has none that is usable.
    `is_cited`: the answer names its messages. If these are of several speakers, the fact is about the last one: the
    others mostly asked or agreed, so their messages are sources as well. A fact that cites none may be anybody's.
    """

    text: str
    memory_type: str | None
    confidence: float
    sources: tuple[int, ...]
    mentions: tuple[Mention, ...] = ()
    statements: tuple[Statement, ...] | None = None
    is_cited: bool = True

    def with_keys(self, keys: Mapping[str, str]) -> Fact:
        """Returns the fact with other keys of its entities, by their present ones; no relation of one with itself."""
        mentions = {key: replace(one, key=key) for one in self.mentions for key in [keys.get(one.key, one.key)]}
        if self.statements is None:
            return replace(self, mentions=tuple(mentions.values()))
        keyed = (
            replace(one, subject=keys.get(one.subject, one.subject), object=keys.get(one.object, one.object))
            for one in self.statements
        )
        statements = tuple(dict.fromkeys(one for one in keyed if one.subject != one.object))
        return replace(self, mentions=tuple(mentions.values()), statements=statements)

    def of_speaker(self, messages: Sequence[MemoryRecord]) -> list[MemoryRecord]:
        """Returns those of the job's messages whose speaker the fact is about: the last one it cites, else all."""
        return [messages[n] for n in (self.sources[-1:] if self.is_cited else self.sources)]


@dataclass(frozen=True, slots=True)
class ExtractedFacts:
    """The facts of an answer, and the number of its unusable parts by reason."""

    facts: tuple[Fact, ...] = ()
    dropped: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MessagePart:
    """A message, or a part of a long one, as shown in a request; `number` is the message's number in the job."""

    number: int
    record: MemoryRecord
    text: str


# --- request --------------------------------------------------------------------------------------------------------


def subject_of(scope: Scope, records: Sequence[MemoryRecord]) -> str:
    """Returns the role from whose messages facts are drawn: "user", "assistant" or "both".

    It is "user" if the scope names no agent or no message is an assistant's; otherwise "both" if the scope names a user
    as well, else "assistant".
    """
    if scope.agent_id is None or not any(record.role == "assistant" for record in records):
        return "user"
    return "both" if scope.user_id is not None else "assistant"


def split_messages(records: Sequence[MemoryRecord], limit: int = CHUNK_TOKENS) -> list[list[MessagePart]]:
    """Splits messages into chunks of at most `limit` tokens, in order and without a loss.

    A chunk ends between messages; a message longer than `limit` is split between sentences.
    """
    chunks: list[list[MessagePart]] = []
    tokens_left = 0
    for n, record in enumerate(records):
        for text in _split_text(record.text, limit):
            size = _most_tokens(text)
            if not chunks or size > tokens_left:
                chunks.append([])
                tokens_left = limit
            chunks[-1].append(MessagePart(n, record, text))
            tokens_left -= size
    return chunks


def _most_tokens(text: str) -> int:
    """Returns what a text has at most in tokens, in any script: a request must not be longer than models take.

    Counts one for every four letters of a Latin word, rounded up, and one for any other character but white space:
    "Hello, 世界" has 2 + 1 + 2.
    """
    return sum(-(-len(word) // 4) for word in _LATIN_WORD.findall(text)) + len(_OTHER_CHARACTER.findall(text))


def _split_text(text: str, limit: int) -> Iterator[str]:
    if _most_tokens(text) <= limit:
        yield text
        return
    part = ""
    for sentence in _SENTENCE_END.split(text):
        pieces = [sentence]
        if _most_tokens(sentence) > limit:
            pieces = [sentence[start : start + limit] for start in range(0, len(sentence), limit)]
        for piece in pieces:
            if part and _most_tokens(part) + _most_tokens(piece) > limit:
                yield part
                part = ""
            part = f"{part} {piece}".strip()
    if part:
        yield part


def build_request(
    parts: Sequence[MessagePart],
    subject: str,
    *,
    instructions: str | None = None,
    summary: str = "",
    earlier: Sequence[MemoryRecord] = (),
    also: AlsoSummarise | None = None,
) -> Prompt:
    """Builds the request for the facts in messages. `instructions` replace ours, but not the contract of the answer.

    `subject` is as from `subject_of`; `summary` and the `earlier` messages are shown for context. `also`: the answer
    shall have a summary, too.
    """
    data = {"about": subject, "summary": summary, **messages_view(parts, earlier)}
    if also is None:
        return structured_output.build_prompt(OPERATION, data, EXTRACTION_SCHEMA, instructions)
    return structured_output.build_prompt(OPERATION, data, SUMMARISING_SCHEMA, instructions, (also, "summary"))


def messages_view(
    parts: Sequence[MessagePart], earlier: Sequence[MemoryRecord] | None = None
) -> dict[str, dict[str, str] | list[Any]]:
    """Returns the fields of a request that show messages: `speakers`, `earlier` (unless None) and `messages`.

    A message is a row [number, speaker, text], in `earlier` without a number. A text between the rows is the time, by
    the speaker's clock, of those after it. What most messages have in common is thus shown once: in a chat of
    turns of 75 characters the rest takes a quarter of these, where an object for each message took as many.
    `speakers` has the role of each speaker; its keys are names, without a name the role, and differ for any two.
    """
    speakers: dict[str, tuple[str, str | None]] = {}
    rows: dict[str, list[Any]] = {}
    if earlier is not None:
        shown = (((), record, record.text[:MAX_EARLIER_CHARS]) for record in earlier)
        rows["earlier"] = list(_message_rows(shown, speakers))
    rows["messages"] = list(_message_rows((((part.number,), part.record, part.text) for part in parts), speakers))
    return {"speakers": {key: role for key, (role, _) in speakers.items()}, **rows}


def _message_rows(
    messages: Iterable[tuple[tuple[int, ...], MemoryRecord, str]], speakers: dict[str, tuple[str, str | None]]
) -> Iterator[str | list[int | str]]:
    """Yields times and rows of messages (number, record, shown text); adds new speakers (role, name) by their keys."""
    day, shown_at = "", datetime.min.replace(tzinfo=UTC)
    for number, record, text in messages:
        at = record.said_at
        zone = "UTC" if record.utc_offset is None else at.isoformat()[-6:]
        if day != (day := f"{at:%a %Y-%m-%d} {zone}"):
            yield f"{at:%a %Y-%m-%d %H:%M} {zone}"
            shown_at = at
        elif abs(at - shown_at) >= CLOCK_STEP:
            yield f"{at:%H:%M}"
            shown_at = at
        # By a key of its own: a user who is named "assistant" is not the assistant.
        speaker = record.role or "user", record.speaker
        key = name = record.speaker or speaker[0]
        further = 2
        while speakers.setdefault(key, speaker) != speaker:
            key, further = f"{name} {further}", further + 1
        yield [*number, key, text]


# --- answer ---------------------------------------------------------------------------------------------------------


def parse_answer(
    value: Any, records: Sequence[MemoryRecord], subject: str, message_numbers: Iterable[int]
) -> ExtractedFacts:
    """Returns the facts of an answer; `message_numbers` are those of the messages (`records`) in the request.

    Also accepts mem0's shapes, a list of texts, or of objects with the text under another key, and those that
    `answer_entries` reads; "none" and the like stand for no fact. A fact without a source
    among these messages of `subject` is dropped. The answer's entities are mentioned by the facts that have their names
    in text or relations; a single fact mentions all. Raises LLMUnusable for an answer without a list of facts, and for
    one with text but without a single readable fact.
    """
    entries = answer_entries(value, "facts")
    if entries is None:
        raise LLMUnusable(NO_FACTS)
    entries = [
        entry
        for entry in entries
        if not isinstance(entry, str) or not (is_placeholder(entry) or _NO_FACTS.match(entry.casefold()))
    ]
    entities = answer_entries(value.get("entities"), "entities") if isinstance(value, Mapping) else None
    extracted = _AnswerParser(records, subject, sorted(set(message_numbers))).parse(entries, entities or [])
    if entries and extracted.dropped.get("no fact") == len(entries) and any(map(_contains_text, entries)):
        raise LLMUnusable(NO_FACTS)
    return extracted


def typed_name(value: Any) -> tuple[Any, Any]:
    """Returns name and type of an entity of an answer, "Acme (Organization)" or {"name", "type"}; None for no type."""
    if isinstance(value, Mapping):
        return value.get("name"), value.get("type")
    match = _TYPED_NAME.fullmatch(value) if isinstance(value, str) else None
    return (value, None) if match is None else (match[1], match[2].strip())


def _is_named_in(name: str, text: str) -> bool:
    """Returns True if a text has a name as whole words. In a single word capitals count: "May" is no "may"."""
    if is_unspaced(text):
        return name.casefold() in text.casefold()
    flags = re.IGNORECASE if " " in name or name.islower() else re.NOFLAG
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, flags) is not None


def is_placeholder(text: str) -> bool:
    """Returns True for a text that stands for nothing, such as "N/A"."""
    return text.casefold().strip(" .…[]()<>*\"'") in _PLACEHOLDERS


def _contains_text(value: Any) -> bool:
    if isinstance(value, str):
        return bool(value.strip())
    children = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return any(map(_contains_text, children))


def deduplicate(facts: Iterable[Fact], records: Sequence[MemoryRecord]) -> list[Fact]:
    """Removes repeated facts: those with the same normalised text of the same speaker."""
    by_text: dict[str, list[tuple[frozenset[tuple[str | None, str | None]], Fact]]] = {}
    for fact in facts:
        speakers = frozenset((record.role, record.speaker) for record in fact.of_speaker(records))
        same_text = by_text.setdefault(normalise_key(fact.text) or fact.text, [])
        if all(speakers.isdisjoint(other_speakers) for other_speakers, _ in same_text):
            same_text.append((speakers, fact))
    return [fact for same_text in by_text.values() for _, fact in same_text]


class _AnswerParser:
    """Parses one answer into facts."""

    def __init__(self, records: Sequence[MemoryRecord], subject: str, message_numbers: Sequence[int]) -> None:
        self._records = records
        self._allowed = [n for n in message_numbers if may_be_source(subject, records[n].role)]
        self._message_numbers = frozenset(message_numbers)
        self._dropped: dict[str, int] = {}
        # By key: names as the answer has them, and their types.
        self._names: dict[str, str] = {}
        self._types: dict[str, EntityType] = {}

    def parse(self, entries: Sequence[Any], entities: Sequence[Any]) -> ExtractedFacts:
        for entity in self._limited(entities, MAX_ENTITIES, "entities"):
            self._add_name(*typed_name(entity))
        limited = self._limited(entries, MAX_FACTS, "facts")
        facts = [fact for entry in limited if (fact := self._fact(entry, is_single=len(limited) == 1)) is not None]
        if unused := self._names.keys() - {mention.key for fact in facts for mention in fact.mentions}:
            self._drop("entity of no fact", len(unused))
        return ExtractedFacts(tuple(deduplicate(facts, self._records)), self._dropped)

    def _add_name(self, value: Any, type_value: Any) -> None:
        """Adds an entity of the answer, but for a speaker, who is an entity of the facts about him."""
        name = single_line(value, MAX_NAME_CHARS) if self._may_be_name(value) else None
        key = normalise_key(name or "")
        if name is None or not key or name.casefold() in SPEAKERS:
            return
        self._names.setdefault(key, name)
        type_ = checked_or(validation.entity_type, type_value, None) or EntityType.OTHER
        if self._types.get(key, EntityType.OTHER) is EntityType.OTHER:
            self._types[key] = type_

    def _drop(self, reason: str, count: int = 1) -> None:
        self._dropped[reason] = self._dropped.get(reason, 0) + count

    def _limited(self, items: Sequence[T], limit: int, noun: str) -> Sequence[T]:
        """Returns the first `limit` items and counts the rest as dropped."""
        if len(items) > limit:
            self._drop(f"over the limit of {noun}", len(items) - limit)
        return items[:limit]

    def _fact(self, entry: Any, *, is_single: bool) -> Fact | None:
        values = {"text": entry} if isinstance(entry, str) else entry
        texts = [values.get(key) for key in TEXT_KEYS] if isinstance(values, Mapping) else []
        text = next((line for text in texts if (line := single_line(text, MAX_FACT_CHARS)) is not None), None)
        if text is None:
            self._drop("no fact")
            return None
        sources, is_cited = self._sources(values.get("messages"))
        if not sources:
            return None
        named = values.get("type")
        type_ = checked_or(validation.memory_type, named.casefold() if isinstance(named, str) else None, None)
        type_ = type_ if type_ in ASKED_TYPES else None
        fact = Fact(text, type_, DEFAULT_CONFIDENCE, sources, is_cited=is_cited)
        own = values.get("entities")  # the contract has them once for all facts
        for entity in self._limited(own if isinstance(own, list) else [], MAX_ENTITIES, "entities"):
            self._add_name(*typed_name(entity))
        entities = _FactEntities(fact.of_speaker(self._records), self._types)
        for name in self._names.values():
            if is_single or _is_named_in(name, text):
                entities.add(name)
        confidence = checked_or(validation.share, values.get("confidence"), DEFAULT_CONFIDENCE) or 0.0
        relations = values.get("relations")
        limited = self._limited(relations if isinstance(relations, list) else [], MAX_RELATIONS, "relations")
        parsed = [self._statement(relation, entities, text, confidence) for relation in limited]
        statements = tuple(dict.fromkeys(statement for statement in parsed if statement is not None))
        given = statements if isinstance(relations, list) else None
        return replace(fact, confidence=confidence, mentions=entities.mentions, statements=given)

    def _sources(self, value: Any) -> tuple[tuple[int, ...], bool]:
        """Returns the sources of a fact, and whether it names messages.

        The sources are the allowed messages among those it names; all allowed ones if it names none. They are empty,
        and counted as dropped, if it names only messages that were not in the request or are not allowed.
        """
        named = [n for item in value if (n := whole_number(item)) is not None] if isinstance(value, list) else []
        usable = self._message_numbers.intersection(named)
        if unknown := len([n for n in named if n not in self._message_numbers]):
            self._drop("unknown message", unknown)
        if named and not usable:
            self._drop("from no message shown")
            return (), True
        sources = tuple(n for n in self._allowed if n in usable or not named)
        if not sources:
            self._drop("from nobody's message")
        return sources, bool(named)

    def _statement(self, relation: Any, entities: _FactEntities, fact: str, confidence: float) -> Statement | None:
        """Returns the relation of a text as the contract has it, or of a list or an object of these parts."""
        parts = _BETWEEN_PARTS.split(relation) if isinstance(relation, str) else relation
        if isinstance(parts, Mapping):
            parts = [next((parts[key] for key in keys if key in parts), None) for keys in _PART_KEYS]
        if not isinstance(parts, list) or not _LEAST_PARTS <= len(parts) <= _MOST_PARTS:
            self._drop("no relation")
            return None
        ends = parts[0], parts[2]
        if not all(map(self._may_be_name, ends)):
            return None
        subject, object_ = map(entities.add, ends)
        predicate = single_line(parts[1], MAX_PREDICATE_CHARS)
        if not subject or not object_ or predicate is None or subject == object_:
            self._drop("no relation")
            return None
        predicate = _SPACES.sub(" ", predicate.replace("_", " ")).casefold()
        valid_at, invalid_at, *_ = *map(_date, parts[_LEAST_PARTS:]), None, None
        is_past = _PAST.match(predicate) is not None
        return Statement(subject, predicate, object_, fact, confidence, valid_at, invalid_at, is_past)

    def _may_be_name(self, value: Any) -> bool:
        """Returns False for a pronoun or a placeholder such as "N/A", and counts it as dropped."""
        name = value.strip() if isinstance(value, str) else ""
        # "US" and "IT" are names.
        is_pronoun = name.casefold() in _PRONOUNS and not (name.isupper() and len(name) > 1)
        if isinstance(value, str) and (is_placeholder(value) or is_pronoun):
            self._drop("no name")
            return False
        return True


class _FactEntities:
    """Collects the entities of one fact, by key. The speaker's key is made of the name, or without one of the role.

    `messages` are those by whose speaker the fact is; of several, nobody's name is known. `types` are those of the
    answer's entities, by key.
    """

    def __init__(self, messages: Sequence[MemoryRecord], types: Mapping[str, EntityType]) -> None:
        self._mentions: dict[str, Mention] = {}
        self._types = types
        self._speaker_role = common_value(messages, "role") or "user"
        self._speaker_name = common_value(messages, "speaker")

    @property
    def mentions(self) -> tuple[Mention, ...]:
        return tuple(self._mentions.values())

    def add(self, value: Any) -> str:
        """Adds an entity by its name; returns its key, "" for an unusable name."""
        name = single_line(value, MAX_NAME_CHARS)
        if name is None:
            return ""
        role = SPEAKERS.get(name.casefold())
        if role is not None:
            name = self._speaker_name if role == self._speaker_role and self._speaker_name else role.title()
        key = normalise_key(name)
        if not key:
            return ""
        type_ = EntityType.PERSON if role == "user" else self._types.get(key, EntityType.OTHER)
        self._mentions.setdefault(key, Mention(key, display_form(name), type_, MentionKind.NAME))
        return key


def common_value(records: Sequence[MemoryRecord], name: str) -> Any:
    """Returns the value of a field if all records have the same, else None."""
    values = {getattr(record, name) for record in records}
    return values.pop() if len(values) == 1 else None


def may_be_source(subject: str, role: str | None) -> bool:
    """Returns True if facts may be drawn from messages of a role; never from the results of tools."""
    return role in {"user", "assistant"} if subject == "both" else role == subject


def _date(value: Any) -> datetime | None:
    """Returns a date of an answer in UTC, the first day of a month or year; None if it cannot be read."""
    if not isinstance(value, str):
        return None
    text = value.strip()
    for date_format in ("%Y-%m", "%Y"):
        try:
            return datetime.strptime(text, date_format).replace(tzinfo=UTC)
        except ValueError:
            continue
    return checked_or(validation.moment, text, None)
