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
from graphmem.model import MemoryRecord, Mention, Statement
from graphmem.providers.base import Prompt
from graphmem.remember import asking
from graphmem.remember.asking import line, list_of, object_of
from graphmem.remember.contradiction import Said, contradicts
from graphmem.remember.extract import LONGEST_FACT, Fact

OPERATION = "decide"
# How alike (0..100) the texts must be by which an answer without numbers, as mem0's is, belongs to a fact.
ALIKE = 55
_NAMES = {"NOOP": "NONE", "NO CHANGE": "NONE", "NOCHANGE": "NONE", "UNCHANGED": "NONE", "REMOVE": "DELETE"}


class What(StrEnum):
    """What becomes of a fact, or of a memory by it; in mem0's words."""

    ADD = "ADD"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    NONE = "NONE"


SCHEMA = object_of(
    memory=list_of(
        object_of(
            fact={"type": "integer"},
            event={"type": "string", "enum": [str(what) for what in What]},
            id={"type": ["integer", "null"]},
            text={"type": "string"},
        )
    )
)


@dataclass(frozen=True, slots=True)
class Known:
    """A memory that is near to new facts, with what it states."""

    record: MemoryRecord
    statements: tuple[Statement, ...] = ()
    mentions: tuple[Mention, ...] = ()

    @property
    def said(self) -> Said:
        """What it says, to be compared."""
        return Said(self.record.text, self.statements)


@dataclass(frozen=True, slots=True)
class Draft:
    """A new fact as found, and as the memory it would become."""

    fact: Fact
    record: MemoryRecord

    @property
    def said(self) -> Said:
        """What it says, to be compared."""
        return Said(self.fact.text, self.fact.statements)


@dataclass(frozen=True, slots=True)
class Decision:
    """One entry of an answer that could be used: numbers of a fact and of a memory among those shown."""

    fact: int
    what: What
    memory: int | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Action:
    """What is to be done. `fact` and `memory` are numbers as in a decision.

    `reason` says why a memory is untrue now. An ADD may come with `ended`: somebody said later already that it is
    otherwise. An UPDATE that `corrects` has other words for what was not so.
    """

    what: What
    fact: int
    memory: int | None = None
    text: str = ""
    reason: str | None = None
    ended: datetime | None = None
    corrects: bool = False


@dataclass(frozen=True, slots=True)
class Decided:
    """What is to be done about all facts, in their order, and what of the answer could not be used, by why."""

    actions: tuple[Action, ...] = ()
    dropped: Mapping[str, int] = field(default_factory=dict)


# --- asking ---------------------------------------------------------------------------------------------------------


def request(drafts: Sequence[Draft], known: Sequence[Known], instructions: str | None = None) -> Prompt:
    """Asks what some facts change of what is known, shown under small numbers: a model makes up longer ids."""
    told = {
        "memories": [{"id": n, **_told(one.record)} for n, one in enumerate(known)],
        "facts": [{"fact": n, **_told(one.record)} for n, one in enumerate(drafts)],
    }
    return asking.request(OPERATION, told, SCHEMA, instructions)


def _told(record: MemoryRecord) -> dict[str, str]:
    whose = {} if record.speaker is None else {"who": record.speaker}
    return {"text": record.text, **whose, "at": f"{record.at:%Y-%m-%d}"}


# --- reading the answer ---------------------------------------------------------------------------------------------


def read(value: Any, drafts: Sequence[Draft], known: Sequence[Known]) -> Decided:
    """What is to be done by an answer, also by one in mem0's shape. Raises LLMUnusable for what is no answer."""
    listed = value.get("memory", value.get("memories")) if isinstance(value, Mapping) else value
    if not isinstance(listed, list):
        raise LLMUnusable("the model's answer has no list of decisions; a larger model, or one with JSON output, helps")
    reading = _Reading(drafts, known)
    decisions = [one for entry in listed if (one := reading.decision(entry)) is not None]
    return Decided(tuple(_Settling(drafts, known, decisions, reading.dropped).actions()), reading.dropped)


def of_others(one: MemoryRecord, other: MemoryRecord) -> bool:
    """Whether one is what the user said, the other what the assistant did: each says that of themselves.

    Where neither has a name nothing else tells them apart, nor has a model been told.
    """
    return one.role != other.role and None not in {one.role, other.role}


class _Reading:
    """One answer being read."""

    def __init__(self, drafts: Sequence[Draft], known: Sequence[Known]) -> None:
        self._drafts = drafts
        self._known = known
        self._changed: set[int] = set()
        self.dropped: Counter[str] = Counter()

    def decision(self, entry: Any) -> Decision | None:
        what = _what(entry.get("event")) if isinstance(entry, Mapping) else None
        if what is None:
            self.dropped["no decision"] += 1
            return None
        memory = None if what is What.ADD else self._memory(entry.get("id"))
        if what is not What.ADD and memory is None:
            self.dropped["unknown id"] += 1
            return None
        text = line(entry.get("text"), LONGEST_FACT) or ""
        fact = self._fact(entry.get("fact"), what, memory, text)
        if fact is None:
            return None
        if memory is not None and of_others(self._known[memory].record, self._drafts[fact].record):
            self.dropped["of others"] += 1
            return None
        if what in {What.UPDATE, What.DELETE} and memory is not None:
            if memory in self._changed:
                self.dropped["repeated id"] += 1
                return None
            self._changed.add(memory)
        return Decision(fact, what, memory, text)

    def _memory(self, given: Any) -> int | None:
        number = _number(given)
        return number if number is not None and 0 <= number < len(self._known) else None

    def _fact(self, given: Any, what: What, memory: int | None, text: str) -> int | None:
        """The fact that an entry is about: by its number, else by the words; None if it is about none of them.

        Answers in mem0's shape name every memory, most of them only to say that nothing changes.
        """
        number = _number(given)
        if number is not None:
            if 0 <= number < len(self._drafts):
                return number
            self.dropped["unknown fact"] += 1
            return None
        words = text if what in {What.ADD, What.UPDATE} or memory is None else self._known[memory].record.text
        alike = [fuzz.token_set_ratio(words.casefold(), one.fact.text.casefold()) for one in self._drafts]
        best = max(range(len(alike)), key=alike.__getitem__)
        # What is deleted shares few words with what denies it; if there is only one fact, it is that.
        sure = alike[best] >= ALIKE or (what is not What.NONE and len(alike) == 1)
        return best if sure else None


def _what(value: Any) -> What | None:
    name = value.strip().upper() if isinstance(value, str) else ""
    name = _NAMES.get(name, name)
    return What(name) if name in set(What) else None


def _number(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    try:
        return int(value)
    except ValueError:
        return None


class _Settling:
    """Decisions become actions, by the discipline NONE, DELETE, UPDATE, ADD for each fact."""

    def __init__(
        self, drafts: Sequence[Draft], known: Sequence[Known], decisions: Sequence[Decision], dropped: Counter[str]
    ) -> None:
        self._drafts = drafts
        self._known = known
        self._decisions = decisions
        self._dropped = dropped

    def actions(self) -> Iterator[Action]:
        for n in range(len(self._drafts)):
            yield from self._of(n, [one for one in self._decisions if one.fact == n])

    def _of(self, n: int, mine: Sequence[Decision]) -> Iterator[Action]:
        same = [one for one in mine if one.what is What.NONE]
        if same:
            yield Action(What.NONE, n, same[0].memory)
            return
        ends = [action for one in mine if one.what is What.DELETE for action in self._ending(one)]
        updates = [action for one in mine if one.what is What.UPDATE for action in self._updating(one)]
        ended = min((one.ended for one in (*ends, *updates) if one.ended is not None), default=None)
        yield from (one for one in ends if one.what is What.DELETE)
        if updates and updates[0].what is not What.ADD:
            yield updates[0]
        elif not ends or What.ADD in {one.what for one in mine} | {one.what for one in (*ends, *updates)}:
            yield Action(What.ADD, n, text=self._text(n, ends, mine), ended=ended)

    def _text(self, n: int, ends: Sequence[Action], mine: Sequence[Decision]) -> str:
        """The fact's own words. Where it takes a memory's place, what the model has put in of that counts."""
        said = next((one.text for one in mine if one.what is What.ADD and one.text), "")
        return said if said and any(one.what is What.DELETE for one in ends) else self._drafts[n].fact.text

    def _ending(self, one: Decision) -> Iterator[Action]:
        """A retirement, if the structure allows it. Of something said later it makes the fact one that has ended."""
        old, new, reason = self._compared(one)
        if reason is None:
            self._dropped["no contradiction"] += 1
        elif new.at < old.at:
            yield Action(What.ADD, one.fact, ended=old.valid_from)
        else:
            yield Action(What.DELETE, one.fact, one.memory, reason=reason)

    def _updating(self, one: Decision) -> Iterator[Action]:
        """An update, unless it says nothing new. What was said earlier cannot correct what was said later.

        Without words that can be used the fact stays as it was found, beside the memory.
        """
        old, new, reason = self._compared(one)
        if one.text == old.text:
            yield Action(What.NONE, one.fact, one.memory)
        elif reason is not None and new.at < old.at:
            yield Action(What.ADD, one.fact, ended=old.valid_from)
        elif not one.text:
            self._dropped["no text"] += 1
            yield Action(What.ADD, one.fact)
        else:
            yield Action(What.UPDATE, one.fact, one.memory, one.text, reason, corrects=reason is not None)

    def _compared(self, one: Decision) -> tuple[MemoryRecord, MemoryRecord, str | None]:
        """Memory and fact, and why they cannot both be so; what two people say of themselves always can."""
        old, new = self._known[one.memory or 0], self._drafts[one.fact]
        if old.record.speaker != new.record.speaker and None not in {old.record.speaker, new.record.speaker}:
            return old.record, new.record, None
        return old.record, new.record, contradicts(old.said, new.said)


def renumbered(decided: Decided, facts: Sequence[int], memories: Sequence[int]) -> tuple[Action, ...]:
    """The actions of one request among several, by the numbers of the whole call."""
    return tuple(
        replace(one, fact=facts[one.fact], memory=None if one.memory is None else memories[one.memory])
        for one in decided.actions
    )
