"""What new facts change of what is known: the request that asks a language model, and what is made of its answer. Pure.

An answer is an opinion. Ids that were not shown, or come twice, are dropped and counted; what would retire a memory has
to be possible by the structure of both (`contradiction`); and a fact that nothing is said of is added, never lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from rapidfuzz import fuzz

from graphmem.errors import LLMUnusable
from graphmem.ingest.facts import structured_output
from graphmem.ingest.facts.contradiction import StatedFact, contradicts, is_replaced_value
from graphmem.ingest.facts.extraction import MAX_FACT_CHARS, Fact
from graphmem.ingest.facts.structured_output import array_schema, object_schema, single_line, whole_number
from graphmem.model import MemoryRecord, Mention, Statement
from graphmem.models.protocols import Prompt

OPERATION = "decide"
# How alike (0..100) the texts must be by which an answer without numbers, as mem0's is, belongs to a fact.
MIN_SIMILARITY = 55
# Entries of one answer that are read: every memory shown for every fact, the most that any shape lists (see
# `pipeline`).
MAX_DECISIONS = 1_000
_NAMES = {"NOOP": "NONE", "NO CHANGE": "NONE", "NOCHANGE": "NONE", "UNCHANGED": "NONE", "REMOVE": "DELETE"}


class DecisionType(StrEnum):
    """What becomes of a fact, or of a memory by it; in mem0's words."""

    ADD = "ADD"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    NONE = "NONE"


SCHEMA = object_schema(
    memory=array_schema(
        object_schema(
            fact={"type": "integer"},
            event={"type": "string", "enum": [str(what) for what in DecisionType]},
            id={"type": ["integer", "null"]},
            text={"type": "string"},
        )
    )
)


@dataclass(frozen=True, slots=True)
class KnownMemory:
    """A memory that is near to new facts, with what it states."""

    record: MemoryRecord
    statements: tuple[Statement, ...] = ()
    mentions: tuple[Mention, ...] = ()

    @property
    def as_stated(self) -> StatedFact:
        """What it says, to be compared."""
        return StatedFact(self.record.text, self.statements)


@dataclass(frozen=True, slots=True)
class FactDraft:
    """A new fact as found, and as the memory it would become."""

    fact: Fact
    record: MemoryRecord

    @property
    def as_stated(self) -> StatedFact:
        """What it says, to be compared."""
        return StatedFact(self.fact.text, self.fact.statements)


@dataclass(frozen=True, slots=True)
class Decision:
    """One entry of an answer that could be used: numbers of a fact and of a memory among those shown."""

    fact: int
    type: DecisionType
    memory: int | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Action:
    """What is to be done. `fact` and `memory` are numbers as in a decision.

    `reason` says why a memory is untrue now. An ADD may come with `ended_at`: somebody said later already that it is
    otherwise. An UPDATE that `corrects` has other words for what was not so.
    """

    type: DecisionType
    fact: int
    memory: int | None = None
    text: str = ""
    reason: str | None = None
    ended_at: datetime | None = None
    corrects: bool = False


@dataclass(frozen=True, slots=True)
class DecisionResult:
    """What is to be done about all facts, in their order, and what of the answer could not be used, by why."""

    actions: tuple[Action, ...] = ()
    dropped: Mapping[str, int] = field(default_factory=dict)


# --- asking ---------------------------------------------------------------------------------------------------------


def build_request(drafts: Sequence[FactDraft], known: Sequence[KnownMemory], instructions: str | None = None) -> Prompt:
    """Asks what some facts change of what is known, shown under small numbers: a model makes up longer ids."""
    told = {
        "memories": [{"id": n, **_told(one.record)} for n, one in enumerate(known)],
        "facts": [{"fact": n, **_told(one.record)} for n, one in enumerate(drafts)],
    }
    return structured_output.build_prompt(OPERATION, told, SCHEMA, instructions)


def _told(record: MemoryRecord) -> dict[str, str]:
    whose = {} if record.speaker is None else {"who": record.speaker}
    return {"text": record.text, **whose, "at": f"{record.at:%Y-%m-%d}"}


# --- reading the answer ---------------------------------------------------------------------------------------------


def parse_answer(value: Any, drafts: Sequence[FactDraft], known: Sequence[KnownMemory]) -> DecisionResult:
    """What is to be done by an answer, also by one in mem0's shape. Raises LLMUnusable for what is no answer."""
    listed = value.get("memory", value.get("memories")) if isinstance(value, Mapping) else value
    if not isinstance(listed, list):
        raise LLMUnusable("the model's answer has no list of decisions; a larger model, or one with JSON output, helps")
    reading = _AnswerParser(drafts, known)
    decisions = reading.decisions(listed)
    settling = _ActionBuilder(drafts, known, decisions, reading.dropped, lost_an_add=reading.lost_an_add)
    return DecisionResult(tuple(settling.actions()), reading.dropped)


def have_different_speakers(one: MemoryRecord, other: MemoryRecord) -> bool:
    """Whether one is what the user said, the other what the assistant did: each says that of themselves.

    Where neither has a name nothing else tells them apart, nor has a model been told.
    """
    return one.role != other.role and None not in {one.role, other.role}


@dataclass(frozen=True, slots=True)
class _Entry:
    """One entry of an answer: a valid event, the number of a memory, its text, and the number of a fact, if any."""

    type: DecisionType
    memory: int | None
    text: str
    fact: int | None


class _AnswerParser:
    """One answer being read.

    Entries that carry the number of a fact are about that fact. Those without, as in mem0's shape, are matched by their
    words. That shape lists every memory, most of them only to say that nothing changes: such a NONE is about a fact
    only if it has the fact's very words.
    """

    def __init__(self, drafts: Sequence[FactDraft], known: Sequence[KnownMemory]) -> None:
        self._drafts = drafts
        self._known = known
        self._changed: set[int] = set()
        self.dropped: Counter[str] = Counter()
        # Whether an ADD is among what was dropped: it may have been of any fact.
        self.lost_an_add = False

    def decisions(self, listed: Sequence[Any]) -> list[Decision]:
        """The usable entries, each with the fact it is about."""
        if len(listed) > MAX_DECISIONS:
            self.dropped["over the limit of decisions"] += len(listed) - MAX_DECISIONS
        entries = [entry for one in listed[:MAX_DECISIONS] if (entry := self._entry(one)) is not None]
        facts = [self._fact(entry) for entry in entries]
        unnamed = set(range(len(self._drafts))).difference(fact for fact in facts if fact is not None)
        made: list[Decision | None] = []
        for entry, matched in zip(entries, facts, strict=True):
            fact = matched
            if fact is None and entry.type is not DecisionType.NONE:
                # An explicit change whose words match no fact is about the only one it can be about.
                fact = 0 if len(self._drafts) == 1 else next(iter(unnamed)) if len(unnamed) == 1 else None
                if fact is None:
                    self.lost_an_add |= entry.type is DecisionType.ADD
                    self.dropped["of no fact"] += 1
            if fact is not None:
                made.append(self._decision(entry, fact))
        return [one for one in made if one is not None]

    def _entry(self, entry: Any) -> _Entry | None:
        what = _what(entry.get("event")) if isinstance(entry, Mapping) else None
        if what is None:
            self.dropped["no decision"] += 1
            return None
        fact = whole_number(entry.get("fact"))
        if fact is not None and not 0 <= fact < len(self._drafts):
            self.lost_an_add |= what is DecisionType.ADD
            self.dropped["unknown fact"] += 1
            return None
        memory = None if what is DecisionType.ADD else self._memory(entry.get("id"))
        if what is not DecisionType.ADD and memory is None:
            self.dropped["unknown id"] += 1
            return None
        text = single_line(entry.get("text"), MAX_FACT_CHARS) or ""
        if (
            memory is not None
            and what in {DecisionType.UPDATE, DecisionType.DELETE}
            and self._names_another(entry, what, memory, text)
        ):
            self.dropped["id of another memory"] += 1
            return None
        return _Entry(what, memory, text, fact)

    def _names_another(self, entry: Mapping[str, Any], what: DecisionType, memory: int, text: str) -> bool:
        """Whether the old words that an entry gives in mem0's shape are another memory's than the one of its id."""
        old = _same_words(single_line(entry.get("old_memory")) or (text if what is DecisionType.DELETE else ""))
        words = [_same_words(one.record.text) for one in self._known]
        return bool(old) and words[memory] != old and old in words

    def _memory(self, given: Any) -> int | None:
        known = whole_number(given)
        return known if known is not None and 0 <= known < len(self._known) else None

    def _decision(self, entry: _Entry, fact: int) -> Decision | None:
        memory = entry.memory
        if memory is not None and have_different_speakers(self._known[memory].record, self._drafts[fact].record):
            self.dropped["of others"] += 1
            return None
        if entry.type in {DecisionType.UPDATE, DecisionType.DELETE} and memory is not None:
            if memory in self._changed:
                self.dropped["repeated id"] += 1
                return None
            self._changed.add(memory)
        return Decision(fact, entry.type, memory, entry.text)

    def _fact(self, entry: _Entry) -> int | None:
        """The number of the fact that an entry is about: as given, else by its words; None if it matches none."""
        if entry.fact is not None:
            return entry.fact
        known = None if entry.memory is None else self._known[entry.memory]
        if entry.type is DecisionType.NONE:
            words = {_same_words(entry.text), "" if known is None else _same_words(known.record.text)} - {""}
            return next((n for n, one in enumerate(self._drafts) if _same_words(one.fact.text) in words), None)
        if entry.type is DecisionType.DELETE and known is not None:
            # A memory shares few words with the fact that denies it, but the two contradict each other.
            opposed = [
                n for n, one in enumerate(self._drafts) if contradicts(known.as_stated, one.as_stated) is not None
            ]
            if opposed:
                return self._most_alike(known.record.text, opposed)[0]
        words_of = known.record.text if known is not None and entry.type is DecisionType.DELETE else ""
        best, alike = self._most_alike(entry.text or words_of, range(len(self._drafts)))
        return best if alike >= MIN_SIMILARITY else None

    def _most_alike(self, words: str, among: Sequence[int]) -> tuple[int, float]:
        """The number of the fact whose words are most alike, and how alike they are (0..100)."""

        def alike(n: int) -> tuple[float, float]:
            pair = words.casefold(), self._drafts[n].fact.text.casefold()
            return fuzz.token_set_ratio(*pair), fuzz.ratio(*pair)

        best = max(among, key=alike)
        return best, alike(best)[0]


def _same_words(text: str) -> str:
    """Text by which two are compared that say the same in the same words: no case, no closing signs."""
    return text.casefold().strip().rstrip(".!。！")


def _what(value: Any) -> DecisionType | None:
    name = value.strip().upper() if isinstance(value, str) else ""
    name = _NAMES.get(name, name)
    return DecisionType(name) if name in set(DecisionType) else None


class _ActionBuilder:
    """Decisions become actions: for each fact what retires memories, what updates them, and whether it is added."""

    def __init__(
        self,
        drafts: Sequence[FactDraft],
        known: Sequence[KnownMemory],
        decisions: Sequence[Decision],
        dropped: Counter[str],
        *,
        lost_an_add: bool,
    ) -> None:
        self._drafts = drafts
        self._known = known
        self._decisions = decisions
        self._dropped = dropped
        self._lost_an_add = lost_an_add

    def actions(self) -> Iterator[Action]:
        for n in range(len(self._drafts)):
            yield from self._of(n, [one for one in self._decisions if one.fact == n])

    def _of(self, n: int, mine: Sequence[Decision]) -> Iterator[Action]:
        """What is to be done about one fact. An explicit change counts more than a NONE: that is of another memory.

        A fact that only denies needs no memory of its own where it retires one; a fact with another value does.
        """
        ends = [action for one in mine if one.type is DecisionType.DELETE for action in self._ending(one)]
        updates = [action for one in mine if one.type is DecisionType.UPDATE for action in self._updating(one)]
        made = [*ends, *updates]
        ended = min((one.ended_at for one in made if one.ended_at is not None), default=None)
        kept = [one for one in made if one.type is not DecisionType.ADD]
        changed = {one.memory for one in kept}
        same = [one.memory for one in mine if one.type is DecisionType.NONE and one.memory not in changed]
        text = self._text(n, ends, mine)
        only_ends = bool(kept) and not same and all(one.type is DecisionType.DELETE for one in kept)
        is_lost = only_ends and (self._lost_an_add or any(is_replaced_value(one.reason) for one in kept))
        yield from kept
        if (
            DecisionType.ADD in [*(one.type for one in mine), *(one.type for one in made)]
            or is_lost
            or not (kept or same)
        ):
            if _same_words(text) not in {_same_words(one.text) for one in kept if one.type is DecisionType.UPDATE}:
                yield Action(DecisionType.ADD, n, text=text, ended_at=ended)
        elif same and not any(one.type in {DecisionType.UPDATE, DecisionType.NONE} for one in kept):
            yield Action(DecisionType.NONE, n, same[0])

    def _text(self, n: int, ends: Sequence[Action], mine: Sequence[Decision]) -> str:
        """The fact's own words. Where it takes a memory's place, what the model has put in of that counts."""
        said = next((one.text for one in mine if one.type is DecisionType.ADD and one.text), "")
        return said if said and any(one.type is DecisionType.DELETE for one in ends) else self._drafts[n].fact.text

    def _ending(self, one: Decision) -> Iterator[Action]:
        """A retirement, if the structure allows it. Of something said later it makes the fact one that has ended."""
        old, new, reason = self._compared(one)
        if reason is None:
            self._dropped["no contradiction"] += 1
        elif new.at < old.at:
            yield Action(DecisionType.ADD, one.fact, ended_at=old.valid_from)
        else:
            yield Action(DecisionType.DELETE, one.fact, one.memory, reason=reason)

    def _updating(self, one: Decision) -> Iterator[Action]:
        """An update, unless it says nothing new. What was said earlier cannot correct what was said later.

        Without words that can be used the fact stays as it was found, beside the memory.
        """
        old, new, reason = self._compared(one)
        if one.text == old.text:
            yield Action(DecisionType.NONE, one.fact, one.memory)
        elif reason is not None and new.at < old.at:
            yield Action(DecisionType.ADD, one.fact, ended_at=old.valid_from)
        elif not one.text:
            self._dropped["no text"] += 1
            yield Action(DecisionType.ADD, one.fact)
        else:
            yield Action(DecisionType.UPDATE, one.fact, one.memory, one.text, reason, corrects=reason is not None)

    def _compared(self, one: Decision) -> tuple[MemoryRecord, MemoryRecord, str | None]:
        """Memory and fact, and why they cannot both be so; what two people say of themselves always can."""
        old, new = self._known[one.memory or 0], self._drafts[one.fact]
        if old.record.speaker != new.record.speaker and None not in {old.record.speaker, new.record.speaker}:
            return old.record, new.record, None
        return old.record, new.record, contradicts(old.as_stated, new.as_stated)


def renumber(decided: DecisionResult, facts: Sequence[int], memories: Sequence[int]) -> tuple[Action, ...]:
    """The actions of one request among several, by the numbers of the whole call."""
    return tuple(
        replace(one, fact=facts[one.fact], memory=None if one.memory is None else memories[one.memory])
        for one in decided.actions
    )
