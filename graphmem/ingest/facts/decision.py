"""Decides by a language model which memories new facts change: builds the request and turns the answer into actions.

The answer is not trusted: ids that were not shown, or occur twice, are dropped and counted; a memory is retired only if
the fact can contradict it (`contradiction`); and a fact without an entry in the answer is added, never lost. Pure: no
I/O. Facts and memories are identified by their numbers in the request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from operator import itemgetter
from typing import Any

from rapidfuzz import fuzz

from graphmem.errors import LLMUnusable
from graphmem.ingest.facts import structured_output
from graphmem.ingest.facts.contradiction import StatedFact, contradicts, corrects, is_more_than_denial
from graphmem.ingest.facts.extraction import MAX_FACT_CHARS, Fact
from graphmem.ingest.facts.structured_output import (
    answer_entries,
    array_schema,
    object_schema,
    single_line,
    whole_number,
)
from graphmem.lifecycle.conflicts import Resolution, begin_of, resolve
from graphmem.model import MemoryRecord, Mention, Statement
from graphmem.plugins import Prompt

OPERATION = "decide"
# An entry without the number of a fact, as in mem0's shape, belongs to the fact of the most similar text, if the
# similarity (rapidfuzz, 0..100) is at least this.
MIN_SIMILARITY = 55
# The most entries of an answer that are read: more than each shown memory for each fact (`pipeline` shows 60 and 12).
MAX_DECISIONS = 1_000
_SYNONYMS = {"NOOP": "NONE", "NO CHANGE": "NONE", "NOCHANGE": "NONE", "UNCHANGED": "NONE", "REMOVE": "DELETE"}


class DecisionType(StrEnum):
    """The change to a fact or to the memory it is compared with, in mem0's terms: DELETE retires the memory."""

    ADD = "ADD"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    NONE = "NONE"


DECISION_SCHEMA = object_schema(
    memory=array_schema(
        object_schema(
            fact={"type": "integer"},
            event={"type": "string", "enum": [str(type_) for type_ in DecisionType]},
            id={"type": ["integer", "null"]},
            text={"type": ["string", "null"]},
        )
    )
)


@dataclass(frozen=True, slots=True)
class KnownMemory:
    """A memory that is similar to new facts, with its relations and the mentions of their subjects and objects.

    `is_composed`: it was made of other memories.
    """

    record: MemoryRecord
    statements: tuple[Statement, ...] = ()
    mentions: tuple[Mention, ...] = ()
    is_composed: bool = False

    @property
    def begin(self) -> datetime:
        """Since when the memory counts."""
        return begin_of(self.record, is_composed=self.is_composed)

    @property
    def as_stated(self) -> StatedFact:
        """The memory's text and relations, as `contradicts` compares them."""
        return StatedFact(self.record.text, self.statements)


@dataclass(frozen=True, slots=True)
class FactDraft:
    """A new fact as extracted, and as the memory it would become."""

    fact: Fact
    record: MemoryRecord

    @property
    def as_stated(self) -> StatedFact:
        """The fact's text and relations, as `contradicts` compares them."""
        return StatedFact(self.fact.text, self.fact.statements or ())

    @property
    def nameless_text(self) -> str:
        """The fact's text without the speaker's name as its subject, which every text of the speaker may have."""
        text, name = self.record.text, self.record.speaker or ""
        words = text.removeprefix(name)
        return words.lstrip() if name and words[:1].isspace() and words != text else text


@dataclass(frozen=True, slots=True)
class Decision:
    """One usable entry of an answer: the numbers of its fact and memory in the request, and the text that it gives."""

    fact: int
    type: DecisionType
    memory: int | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Action:
    """One change to carry out. `fact` and `memory` are numbers as in a decision, `text` is the new text.

    `resolution` says which of them counts if they contradict each other: the fact in a DELETE and in an UPDATE, the
    memory in an ADD. An UPDATE without one joins both.
    """

    type: DecisionType
    fact: int
    memory: int | None = None
    text: str = ""
    resolution: Resolution | None = None


@dataclass(frozen=True, slots=True)
class DecisionResult:
    """The actions for all facts, in their order, and the number of unusable parts of the answer by reason."""

    actions: tuple[Action, ...] = ()
    dropped: Mapping[str, int] = field(default_factory=dict)


# --- request --------------------------------------------------------------------------------------------------------


def build_request(
    drafts: Sequence[FactDraft], memories: Sequence[KnownMemory], instructions: str | None = None
) -> Prompt:
    """Builds the request for decisions about facts; small numbers as ids, because models invent longer ones."""
    data = {
        "memories": list(_rows(memory.record for memory in memories)),
        "facts": list(_rows(draft.record for draft in drafts)),
    }
    return structured_output.build_prompt(OPERATION, data, DECISION_SCHEMA, instructions)


def _rows(records: Iterable[MemoryRecord]) -> Iterator[str | list[int | str]]:
    """Yields rows [number, speaker, text], and before those of another day, as a text, their day.

    The speaker is left out if unknown, or if the text begins with the name. Objects would take 8 tokens more each, as
    many as a short text, and a day in each row as many.
    """
    day = ""
    for n, record in enumerate(records):
        if day != (day := f"{record.said_at:%Y-%m-%d}"):
            yield day
        if record.speaker is None or record.text.startswith(f"{record.speaker} "):
            yield [n, record.text]
        else:
            yield [n, record.speaker, record.text]


# --- answer ---------------------------------------------------------------------------------------------------------


def parse_answer(
    value: Any, drafts: Sequence[FactDraft], memories: Sequence[KnownMemory], *, by_confidence: bool = False
) -> DecisionResult:
    """Turns an answer, also one in mem0's shape, into actions. Raises LLMUnusable if it has no list of decisions.

    `by_confidence`: see `graphmem.lifecycle.conflicts.resolve`.
    """
    entries = answer_entries(value, "memory", "memories")
    if entries is None:
        raise LLMUnusable("the model's answer has no list of decisions; a larger model, or one with JSON output, helps")
    parser = _AnswerParser(drafts, memories)
    decisions = parser.decisions(entries)
    builder = _ActionBuilder(
        drafts, memories, decisions, parser.dropped, lost_an_add=parser.lost_an_add, by_confidence=by_confidence
    )
    return DecisionResult(tuple(builder.actions()), parser.dropped)


def have_different_speakers(first: MemoryRecord, second: MemoryRecord) -> bool:
    """Returns True if the memories are the words of two: of user and assistant, or of two with names.

    Each speaks of themselves: "Loves chess" of Ana and of Ben are two facts, and neither's words change or retire what
    the other said. What Ben tells of Ana is a fact of his beside hers: of the two, hers is firsthand, and where both
    leave the subject out ("Lives in Paris", "Moved to Rome"), no check of relations or words can tell that they are of
    two. A name that is unknown differs from none.
    """
    return any(
        value != other and None not in {value, other}
        for value, other in ((first.role, second.role), (first.speaker, second.speaker))
    )


@dataclass(frozen=True, slots=True)
class _Entry:
    """One entry of an answer with a valid event: the numbers of its memory and fact, if it gives them, and its text."""

    type: DecisionType
    memory: int | None
    text: str
    fact: int | None


class _AnswerParser:
    """Parses one answer into decisions.

    An entry with the number of a fact is about that fact. An entry without one, as in mem0's shape, is matched by its
    text. That shape lists every memory, most of them as unchanged: such a NONE is about a fact only if it has exactly
    the fact's text.
    """

    def __init__(self, drafts: Sequence[FactDraft], memories: Sequence[KnownMemory]) -> None:
        self._drafts = drafts
        self._memories = memories
        self._changed: set[int] = set()
        self.dropped: Counter[str] = Counter()
        # True if an ADD was dropped: it may have been about any fact.
        self.lost_an_add = False

    def decisions(self, raw_entries: Sequence[Any]) -> list[Decision]:
        """Returns the usable entries, each with its fact."""
        if len(raw_entries) > MAX_DECISIONS:
            self.dropped["over the limit of decisions"] += len(raw_entries) - MAX_DECISIONS
        entries = [entry for raw in raw_entries[:MAX_DECISIONS] if (entry := self._entry(raw)) is not None]
        facts = [self._fact(entry) for entry in entries]
        unmatched = set(range(len(self._drafts))).difference(fact for fact in facts if fact is not None)
        decisions: list[Decision | None] = []
        for entry, matched in zip(entries, facts, strict=True):
            fact = matched
            if fact is None and entry.type is not DecisionType.NONE:
                # A change that matches no fact by its text belongs to the only fact, or the only one without an entry.
                fact = 0 if len(self._drafts) == 1 else next(iter(unmatched)) if len(unmatched) == 1 else None
                if fact is None:
                    self.lost_an_add |= entry.type is DecisionType.ADD
                    self.dropped["of no fact"] += 1
            if fact is not None:
                decisions.append(self._decision(entry, fact))
        return [decision for decision in decisions if decision is not None]

    def _entry(self, entry: Any) -> _Entry | None:
        type_ = _decision_type(entry.get("event")) if isinstance(entry, Mapping) else None
        if type_ is None:
            self.dropped["no decision"] += 1
            return None
        fact = whole_number(entry.get("fact"))
        if fact is not None and not 0 <= fact < len(self._drafts):
            self.lost_an_add |= type_ is DecisionType.ADD
            self.dropped["unknown fact"] += 1
            return None
        memory = None if type_ is DecisionType.ADD else self._memory(entry.get("id"))
        if type_ is not DecisionType.ADD and memory is None:
            self.dropped["unknown id"] += 1
            return None
        text = single_line(entry.get("text"), MAX_FACT_CHARS) or ""
        if memory is not None and type_ in {DecisionType.UPDATE, DecisionType.DELETE}:
            # The old text of an entry in mem0's shape may belong to another memory than its id.
            old = _comparable(single_line(entry.get("old_memory")) or (text if type_ is DecisionType.DELETE else ""))
            texts = [_comparable(other.record.text) for other in self._memories]
            if old and texts[memory] != old and old in texts:
                self.dropped["id of another memory"] += 1
                return None
        return _Entry(type_, memory, text, fact)

    def _memory(self, value: Any) -> int | None:
        number = whole_number(value)
        return number if number is not None and 0 <= number < len(self._memories) else None

    def _decision(self, entry: _Entry, fact: int) -> Decision | None:
        memory = entry.memory
        if memory is not None and have_different_speakers(self._memories[memory].record, self._drafts[fact].record):
            self.dropped["of others"] += 1
            return None
        if entry.type in {DecisionType.UPDATE, DecisionType.DELETE} and memory is not None:
            if memory in self._changed:
                self.dropped["repeated id"] += 1
                return None
            self._changed.add(memory)
        return Decision(fact, entry.type, memory, entry.text)

    def _fact(self, entry: _Entry) -> int | None:
        """Returns the number of the fact that an entry is about; None if no fact matches.

        That is the number in the entry. Without one it is, for NONE, the fact with the text of the entry or of its
        memory; for DELETE a fact that contradicts its memory, if any; else the fact with the most similar text.
        """
        if entry.fact is not None:
            return entry.fact
        memory = None if entry.memory is None else self._memories[entry.memory]
        if entry.type is DecisionType.NONE:
            texts = {_comparable(entry.text), "" if memory is None else _comparable(memory.record.text)} - {""}
            return next((n for n, draft in enumerate(self._drafts) if _comparable(draft.fact.text) in texts), None)
        if entry.type is DecisionType.DELETE and memory is not None:
            # A memory may share few words with the fact that contradicts it.
            contradicting = [
                n for n, draft in enumerate(self._drafts) if _in_order(contradicts, memory, draft) is not None
            ]
            if contradicting:
                return self._most_similar(memory.record.text, contradicting)[0]
        old_text = memory.record.text if memory is not None and entry.type is DecisionType.DELETE else ""
        best, similarity = self._most_similar(entry.text or old_text, range(len(self._drafts)))
        return best if similarity >= MIN_SIMILARITY else None

    def _most_similar(self, text: str, candidates: Sequence[int]) -> tuple[int, float]:
        """Returns the number of the candidate fact with the most similar text, and the similarity (0..100)."""

        def similarity(n: int) -> tuple[float, float]:
            pair = text.casefold(), self._drafts[n].fact.text.casefold()
            return fuzz.token_set_ratio(*pair), fuzz.ratio(*pair)

        best = max(candidates, key=similarity)
        return best, similarity(best)[0]


def _comparable(text: str) -> str:
    """Returns a text without case and closing punctuation: equal for texts of the same words."""
    return text.casefold().strip().rstrip(".!。！")


def _decision_type(value: Any) -> DecisionType | None:
    name = value.strip().upper() if isinstance(value, str) else ""
    name = _SYNONYMS.get(name, name)
    return DecisionType(name) if name in set(DecisionType) else None


class _ActionBuilder:
    """Turns decisions into actions: for each fact the retirements and updates of memories, and its own addition."""

    def __init__(
        self,
        drafts: Sequence[FactDraft],
        memories: Sequence[KnownMemory],
        decisions: Sequence[Decision],
        dropped: Counter[str],
        *,
        lost_an_add: bool,
        by_confidence: bool,
    ) -> None:
        self._drafts = drafts
        self._memories = memories
        self._decisions = decisions
        self._dropped = dropped
        self._lost_an_add = lost_an_add
        self._by_confidence = by_confidence

    def actions(self) -> Iterator[Action]:
        for n in range(len(self._drafts)):
            yield from self._actions_for(n, [decision for decision in self._decisions if decision.fact == n])

    def _actions_for(self, n: int, decisions: Sequence[Decision]) -> Iterator[Action]:
        """Yields the actions about one fact. Explicit changes win over a NONE, which is about another memory.

        A fact that only denies a memory retires it and is not added; a fact with another value is added as well.
        """
        retirements = [action for one in decisions if one.type is DecisionType.DELETE for action in self._retire(one)]
        updates = [action for one in decisions if one.type is DecisionType.UPDATE for action in self._update(one)]
        derived = [*retirements, *updates]
        memory_actions = [action for action in derived if action.type is not DecisionType.ADD]
        ends = [(one.resolution.at, one) for one in derived if one.type is DecisionType.ADD and one.resolution]
        added = min(ends, key=itemgetter(0))[1] if ends else Action(DecisionType.ADD, n)
        changed = {action.memory for action in memory_actions}
        duplicates = [one.memory for one in decisions if one.type is DecisionType.NONE and one.memory not in changed]
        text = self._text(n, retirements, decisions)
        only_retires = (
            bool(memory_actions) and not duplicates and all(one.type is DecisionType.DELETE for one in memory_actions)
        )
        would_be_lost = only_retires and (
            self._lost_an_add
            or any(
                one.resolution is not None and is_more_than_denial(one.resolution.contradiction)
                for one in memory_actions
            )
        )
        yield from memory_actions
        types = [*(one.type for one in decisions), *(one.type for one in derived)]
        if DecisionType.ADD in types or would_be_lost or not (memory_actions or duplicates):
            updated_texts = {
                _comparable(action.text) for action in memory_actions if action.type is DecisionType.UPDATE
            }
            if _comparable(text) not in updated_texts:
                yield replace(added, text=text)
        elif duplicates and not any(
            action.type in {DecisionType.UPDATE, DecisionType.NONE} for action in memory_actions
        ):
            yield Action(DecisionType.NONE, n, duplicates[0])

    def _text(self, n: int, retirements: Sequence[Action], decisions: Sequence[Decision]) -> str:
        """Returns the text to store for a fact: its own, or, if it replaces a memory, that of the model's ADD, if any.

        The model may merge parts of the retired memory into that text.
        """
        added = next((one.text for one in decisions if one.type is DecisionType.ADD and one.text), "")
        replaces = any(action.type is DecisionType.DELETE for action in retirements)
        return added if added and replaces else self._drafts[n].fact.text

    def _retire(self, decision: Decision) -> Iterator[Action]:
        """Yields the retirement of a decision's memory, if the fact contradicts it by relations or words.

        If it is the memory that counts, yields the fact instead, to be stored as one that has ended.
        """
        action = self._resolved(DecisionType.DELETE, decision, contradicts)
        if action.resolution is None:
            self._dropped["no contradiction"] += 1
        else:
            yield action

    def _update(self, decision: Decision) -> Iterator[Action]:
        """Yields the update of a decision's memory to the new text; NONE if that is the old text.

        If the fact's relations correct the memory, and it is the memory that counts, yields the fact instead, to be
        stored as one that has ended. Without a usable text the fact is added, beside the memory.
        """
        action = self._resolved(DecisionType.UPDATE, decision, corrects)
        if decision.text == self._memories[decision.memory or 0].record.text:
            yield Action(DecisionType.NONE, decision.fact, decision.memory)
        elif decision.text or action.type is DecisionType.ADD:
            yield action
        else:
            self._dropped["no text"] += 1
            yield Action(DecisionType.ADD, decision.fact)

    def _resolved(
        self, type_: DecisionType, decision: Decision, compare: Callable[[StatedFact, StatedFact], str | None]
    ) -> Action:
        """Returns a decision as an action of this type, or as an ADD if its memory contradicts the fact and counts.

        `compare` gives the contradiction.
        """
        old, new = self._memories[decision.memory or 0], self._drafts[decision.fact]
        contradiction = _in_order(compare, old, new)
        if contradiction is None:
            return Action(type_, decision.fact, decision.memory, decision.text)
        resolution = resolve(old.record, new.record, contradiction, begin=old.begin, by_confidence=self._by_confidence)
        if not resolution.new_counts:
            type_ = DecisionType.ADD
        return Action(type_, decision.fact, decision.memory, decision.text, resolution)


def _in_order(
    compare: Callable[[StatedFact, StatedFact], str | None], memory: KnownMemory, draft: FactDraft
) -> str | None:
    """Returns the reason that `compare` gives for what was said earlier and what was said later, in this order.

    That somebody left a company says that "Works at Acme" is over, also if that is stored last.
    """
    if draft.record.at >= memory.begin:
        return compare(memory.as_stated, draft.as_stated)
    return compare(draft.as_stated, memory.as_stated)


def place_among_former(
    draft: FactDraft, past: Action, former: Mapping[int, KnownMemory], *, by_confidence: bool = False
) -> list[Action]:
    """Returns the actions for a fact that has ended (`past`, an ADD) among those that were true before: `former`.

    These are the facts, by number, that the memory which ends it has replaced, directly or not: "Lives in Rome" of
    somebody who now lives in Oslo ends "Lives in Paris" if that was said before, and ends with it if it was said later.
    """
    actions = [past]
    for number, memory in former.items():
        old, new = memory.record, draft.record
        if old.valid_to is None or old.valid_to <= max(new.at, memory.begin):
            continue  # it was over when the fact was said, or was never true
        contradiction = _in_order(contradicts, memory, draft)
        if contradiction is None:
            continue
        resolution = resolve(old, new, contradiction, begin=memory.begin, by_confidence=by_confidence)
        if resolution.new_counts:
            actions.append(Action(DecisionType.DELETE, past.fact, number, resolution=resolution))
        elif past.resolution is None or resolution.at < past.resolution.at:
            past = actions[0] = replace(past, memory=number, resolution=resolution)
    return actions


def renumber(decided: DecisionResult, facts: Sequence[int], memories: Sequence[int]) -> tuple[Action, ...]:
    """Returns the actions with other numbers: `facts[n]` in place of fact n, `memories[n]` in place of memory n.

    Needed if several requests are made for a job, because each request numbers its facts and memories from 0.
    """
    return tuple(
        replace(action, fact=facts[action.fact], memory=None if action.memory is None else memories[action.memory])
        for action in decided.actions
    )
