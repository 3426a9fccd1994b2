"""What a language model finds in messages: the request that asks for it, and the reading of the answer. Pure.

An answer is data from outside: what in it cannot be used is dropped and counted, the rest is taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

from graphmem.boundary import validation
from graphmem.errors import LLMUnusable
from graphmem.ingest.facts import structured_output
from graphmem.ingest.facts.structured_output import array_schema, checked_or, object_schema, single_line, whole_number
from graphmem.model import EntityType, MemoryRecord, Mention, MentionKind, Scope, Statement
from graphmem.models.protocols import Prompt
from graphmem.text import display_form, normalise_key

T = TypeVar("T")
OPERATION = "facts"
# Tokens of messages that one request holds: far from any model's limit, near enough for each of them to be read well.
CHUNK_TOKENS = 3_000
# What a fact, a name and a predicate may have at most; a longer one is not what was asked for.
MAX_FACT_CHARS, MAX_NAME_CHARS, MAX_PREDICATE_CHARS = 2_000, 256, 80
# What an answer may have of facts, and a fact of relations and entities. `CHUNK_TOKENS` of messages are some 200
# sentences, of which few say anything to be remembered; each twelve facts are another request.
MAX_FACTS, MAX_RELATIONS, MAX_ENTITIES = 100, 20, 40
# Characters of an earlier message, which is only there to be understood from.
MAX_EARLIER_CHARS = 400
# How sure a fact is whose answer does not say.
DEFAULT_CONFIDENCE = 0.7
# Names under which answers have the text of a fact: ours, then those of prompts that were written for mem0.
TEXT_KEYS = ("text", "fact", "memory", "content")
NO_FACTS = "the model's answer has no list of facts; a larger model, or one with JSON output, helps"
# What stands for the speaker in an answer.
SPEAKERS = {"user": "user", "the user": "user", "speaker": "user", "i": "user", "用户": "user",
            "assistant": "assistant", "the assistant": "assistant", "助手": "assistant"}  # fmt: skip

_LATIN = re.compile(r"[A-Za-z]+")
_SIGN = re.compile(r"[^\sA-Za-z]")
_BORDER = re.compile(r"(?<=[.!?。！？\n])\s*")
_SPACES = re.compile(r"\s+")

_TEXT = {"type": "string"}
_DATE = {"type": ["string", "null"]}
SCHEMA = object_schema(
    facts=array_schema(
        object_schema(
            text=_TEXT,
            type={"type": "string", "enum": list(validation.MEMORY_TYPES)},
            confidence={"type": "number"},
            messages=array_schema({"type": "integer"}),
            entities=array_schema(
                object_schema(name=_TEXT, type={"type": "string", "enum": [str(one) for one in EntityType]})
            ),
            relations=array_schema(
                object_schema(subject=_TEXT, predicate=_TEXT, object=_TEXT, valid_at=_DATE, invalid_at=_DATE)
            ),
        )
    )
)


@dataclass(frozen=True, slots=True)
class Fact:
    """Something worth remembering. `sources` are the messages that say it: numbers among those of the call."""

    text: str
    memory_type: str | None
    confidence: float
    sources: tuple[int, ...]
    mentions: tuple[Mention, ...] = ()
    statements: tuple[Statement, ...] = ()


@dataclass(frozen=True, slots=True)
class ExtractedFacts:
    """The facts of an answer, and how many parts of it could not be used, by why."""

    facts: tuple[Fact, ...] = ()
    dropped: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MessagePart:
    """A message as a request shows it: `number` is its number in the call; a very long one comes in several pieces."""

    number: int
    record: MemoryRecord
    text: str


# --- asking ---------------------------------------------------------------------------------------------------------


def subject_of(scope: Scope, records: Sequence[MemoryRecord]) -> str:
    """Whose facts are taken: the assistant's own where an agent is named and speaks, beside the user's if there is one.

    Without an agent the assistant's words are never anybody's facts.
    """
    if scope.agent_id is None or not any(record.role == "assistant" for record in records):
        return "user"
    return "both" if scope.user_id is not None else "assistant"


def split_messages(records: Sequence[MemoryRecord], limit: int = CHUNK_TOKENS) -> list[list[MessagePart]]:
    """The messages in requests of at most `limit` tokens; nothing is left out.

    They are parted between messages, one that is longer in itself between sentences.
    """
    found: list[list[MessagePart]] = []
    room = 0
    for n, record in enumerate(records):
        for text in _pieces(record.text, limit):
            size = tokens_in(text)
            if not found or size > room:
                found.append([])
                room = limit
            found[-1].append(MessagePart(n, record, text))
            room -= size
    return found


def tokens_in(text: str) -> int:
    """About how many tokens a text has, rather too many: one for four Latin letters begun, one for any other sign."""
    return sum(-(-len(word) // 4) for word in _LATIN.findall(text)) + len(_SIGN.findall(text))


def _pieces(text: str, limit: int) -> Iterator[str]:
    if tokens_in(text) <= limit:
        yield text
        return
    taken = ""
    for sentence in _BORDER.split(text):
        for part in _cut(sentence, limit):
            if taken and tokens_in(taken) + tokens_in(part) > limit:
                yield taken
                taken = ""
            taken = f"{taken} {part}".strip()
    if taken:
        yield taken


def _cut(sentence: str, limit: int) -> Iterator[str]:
    """A sentence that is itself too long, in pieces of as many signs as there may be tokens."""
    if tokens_in(sentence) <= limit:
        yield sentence
        return
    for start in range(0, len(sentence), limit):
        yield sentence[start : start + limit]


def build_request(
    pieces: Sequence[MessagePart],
    whose: str,
    *,
    instructions: str | None = None,
    summary: str = "",
    earlier: Sequence[MemoryRecord] = (),
) -> Prompt:
    """Asks for the facts in some messages. `instructions` replace ours, not what the answer has to look like."""
    told = {
        "about": whose,
        "summary": summary,
        "earlier": [message_view(record, record.text[:MAX_EARLIER_CHARS]) for record in earlier],
        "messages": [{"n": piece.number, **message_view(piece.record, piece.text)} for piece in pieces],
    }
    return structured_output.build_prompt(OPERATION, told, SCHEMA, instructions)


def message_view(record: MemoryRecord, text: str) -> dict[str, str]:
    """A message as requests show it."""
    named = {} if record.speaker is None else {"name": record.speaker}
    return {"role": record.role or "user", **named, "at": f"{record.at:%a %Y-%m-%d %H:%M} UTC", "text": text}


# --- reading the answer ---------------------------------------------------------------------------------------------


def parse_answer(value: Any, records: Sequence[MemoryRecord], whose: str, shown: Iterable[int]) -> ExtractedFacts:
    """The facts of an answer about these messages, of which it was `shown` some.

    Answers in mem0's shapes are read, too: a list of texts, or of objects that have the text under another name. A fact
    that comes from none of the messages it may come from is dropped. Raises LLMUnusable for what is no answer at all,
    and for one that holds text of which nothing can be read.
    """
    listed = value.get("facts") if isinstance(value, Mapping) else value
    if not isinstance(listed, list):
        raise LLMUnusable(NO_FACTS)
    reading = _AnswerParser(records, whose, sorted(set(shown)))
    found = reading.read(listed)
    if listed and found.dropped.get("no fact") == len(listed) and any(map(_holds_text, listed)):
        raise LLMUnusable(NO_FACTS)
    return found


def _holds_text(value: Any) -> bool:
    """Whether there is text anywhere in a part of an answer."""
    if isinstance(value, str):
        return bool(value.strip())
    within = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return any(map(_holds_text, within))


def deduplicate(facts: Iterable[Fact], records: Sequence[MemoryRecord]) -> list[Fact]:
    """Without what is there twice. What two people say of themselves in the same words is not."""
    found: dict[str, list[tuple[frozenset[tuple[str | None, str | None]], Fact]]] = {}
    for fact in facts:
        whose = frozenset((records[n].role, records[n].speaker) for n in fact.sources)
        same = found.setdefault(normalise_key(fact.text) or fact.text, [])
        if all(whose.isdisjoint(others) for others, _ in same):
            same.append((whose, fact))
    return [fact for same in found.values() for _, fact in same]


class _AnswerParser:
    """One answer being read."""

    def __init__(self, records: Sequence[MemoryRecord], whose: str, shown: Sequence[int]) -> None:
        self._records = records
        self._allowed = [n for n in shown if _speaks_for(whose, records[n].role)]
        self._shown = frozenset(shown)
        self._dropped: dict[str, int] = {}

    def read(self, listed: Sequence[Any]) -> ExtractedFacts:
        found = [fact for one in self._limited(listed, MAX_FACTS, "facts") if (fact := self._fact(one)) is not None]
        return ExtractedFacts(tuple(deduplicate(found, self._records)), self._dropped)

    def _drop(self, why: str, count: int = 1) -> None:
        self._dropped[why] = self._dropped.get(why, 0) + count

    def _limited(self, listed: Sequence[T], most: int, what: str) -> Sequence[T]:
        """The first of a list; what is over is counted."""
        if len(listed) > most:
            self._drop(f"over the limit of {what}", len(listed) - most)
        return listed[:most]

    def _fact(self, one: Any) -> Fact | None:
        told = {"text": one} if isinstance(one, str) else one
        words = [told.get(key) for key in TEXT_KEYS] if isinstance(told, Mapping) else []
        text = next((text for one in words if (text := single_line(one, MAX_FACT_CHARS)) is not None), None)
        if text is None:
            self._drop("no fact")
            return None
        sources = self._sources(told.get("messages"))
        if not sources:
            return None
        names = _FactEntities(self._records[sources[-1]])
        for entity in self._limited(_each(told.get("entities")), MAX_ENTITIES, "entities"):
            names.note(entity.get("name"), entity.get("type"))
        confidence = checked_or(validation.share, told.get("confidence"), DEFAULT_CONFIDENCE) or 0.0
        relations = self._limited(_each(told.get("relations")), MAX_RELATIONS, "relations")
        stated = [self._statement(one, names, text, confidence) for one in relations]
        statements = tuple(dict.fromkeys(one for one in stated if one is not None))
        return Fact(text, _type(told.get("type")), confidence, sources, names.mentions, statements)

    def _sources(self, named: Any) -> tuple[int, ...]:
        """The messages a fact comes from: those it names, or if it names none, all it may come from.

        Empty, and counted as dropped, if none of those it names was shown, or if it may come from none of them.
        """
        given = [n for one in named if (n := whole_number(one)) is not None] if isinstance(named, list) else []
        known = {n for n in given if n in self._shown}
        if unknown := len([n for n in given if n not in self._shown]):
            self._drop("unknown message", unknown)
        if given and not known:
            self._drop("from no message shown")
            return ()
        sources = tuple(n for n in self._allowed if n in known or not given)
        if not sources:
            self._drop("from nobody's message")
        return sources

    def _statement(
        self, told: Mapping[str, Any], names: _FactEntities, fact: str, confidence: float
    ) -> Statement | None:
        subject, target = names.note(told.get("subject")), names.note(told.get("object"))
        predicate = single_line(told.get("predicate"), MAX_PREDICATE_CHARS)
        if not subject or not target or predicate is None or subject == target:
            self._drop("no relation")
            return None
        words = _SPACES.sub(" ", predicate.replace("_", " ")).casefold()
        return Statement(
            subject, words, target, fact, confidence, _day(told.get("valid_at")), _day(told.get("invalid_at"))
        )


class _FactEntities:
    """The entities of one fact, by key. Its speaker goes by the name there is, else by the role."""

    def __init__(self, source: MemoryRecord) -> None:
        self._found: dict[str, Mention] = {}
        self._speaker = (source.role or "user", source.speaker)

    @property
    def mentions(self) -> tuple[Mention, ...]:
        return tuple(self._found.values())

    def note(self, name: Any, type_: Any = None) -> str:
        """The key of a name; "" for what is none. A type that is said later counts if none was said before."""
        words = single_line(name, MAX_NAME_CHARS)
        if words is None:
            return ""
        role = SPEAKERS.get(words.casefold())
        if role is not None:
            words = self._speaker[1] if role == self._speaker[0] and self._speaker[1] else role.title()
            type_ = EntityType.PERSON if role == "user" else type_
        key = normalise_key(words)
        if not key:
            return ""
        kind = checked_or(validation.entity_type, type_, None) or EntityType.OTHER
        known = self._found.get(key)
        if known is None or (known.type is EntityType.OTHER and kind is not EntityType.OTHER):
            self._found[key] = Mention(key, display_form(words), kind, MentionKind.NAME)
        return key


def _speaks_for(whose: str, role: str | None) -> bool:
    """Whether facts may come from a message: what tools return is nobody's."""
    return role in {"user", "assistant"} if whose == "both" else role == whose


def _each(value: Any) -> list[Mapping[str, Any]]:
    listed = value if isinstance(value, list) else []
    named = ({"name": one} if isinstance(one, str) else one for one in listed)
    return [one for one in named if isinstance(one, Mapping)]


def _type(value: Any) -> str | None:
    return checked_or(validation.memory_type, value.casefold() if isinstance(value, str) else None, None)


def _day(value: Any) -> datetime | None:
    """A date of an answer, also of a month or a year; None for what is none."""
    if not isinstance(value, str):
        return None
    text = value.strip()
    for form in ("%Y-%m", "%Y"):
        try:
            return datetime.strptime(text, form).replace(tzinfo=UTC)
        except ValueError:
            continue
    return checked_or(validation.moment, text, None)
