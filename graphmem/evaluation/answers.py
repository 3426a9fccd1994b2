"""The benchmark of everyday questions (`benchmarks/answers`): lays out small partitions, asks in them, and reports.

A case has a question and the memories that answer it, or none. A partition has a few memories, and several cases are
asked in it; what its other memories tell answers none of them (`about` and `away_from`). Each case is asked once for
each size of partition; a case of two hops twice, its memories being neighbours in one sitting, and far apart. All are
asked by `Memory.context` and `Memory.search`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice, zip_longest
from pathlib import Path
from statistics import fmean, median
from typing import Any

from graphmem.boundary import validation
from graphmem.errors import ValidationError
from graphmem.evaluation.blocks import Verdict, judge
from graphmem.evaluation.datasets import Dataset, Message, SourceFile, field_of, items_of, read_objects
from graphmem.evaluation.environment import environment
from graphmem.evaluation.runner import ProgressCallback, refuse_degraded, store
from graphmem.memory import Memory
from graphmem.model import ASSISTANT
from graphmem.retrieval.context import block, memory_line, speaker_of

NAME = "answers"
# Memories of a partition, and the most cases with memories in it.
SIZES = {3: 1, 12: 3, 60: 12}
TWO_HOPS = "two hops"
# Sittings are a day apart, their memories a minute; questions are asked on `ASKED_AT`.
FIRST_DAY, ASKED_AT = datetime(2026, 1, 5, 18, tzinfo=UTC), datetime(2026, 4, 20, 9, tzinfo=UTC)
SITTING = 4
ROLES = ("user", ASSISTANT)
DECIMALS = 3
# Hits of `search` among which what is needed counts as found.
FIRST, ALL_HITS = 5, 20

Turn = tuple[str, str]
"""Speaker ("user", "assistant" or a name) and words."""


@dataclass(frozen=True, slots=True)
class Case:
    """A question with the memories that are stored for it; `needed` are texts that a right answer takes, () if none is.

    A text in `needed` is a whole memory, or one sentence of a long one. `right` are the memories that may be shown:
    those needed, and those that belong to them, such as the question to which one replies. `topics`: what its memories
    are about; `away_from`: topics of other cases that would answer the question as well.
    """

    id: str
    language: str
    kind: str
    question: str
    turns: tuple[Turn, ...]
    needed: tuple[str, ...]
    right: frozenset[str]
    topics: frozenset[str]
    away_from: frozenset[str]


@dataclass(frozen=True, slots=True)
class AnswerSet:
    """The cases in the order of their file, memories that answer none of them by language, and the files."""

    cases: tuple[Case, ...]
    noise: Mapping[str, Sequence[str]]
    sources: tuple[SourceFile, ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """A case where it is asked: the partition, its size, and the kind, such as "two hops, apart"."""

    case: Case
    partition: str
    size: int
    kind: str


def load(folder: Path) -> AnswerSet:
    """Reads `cases.json` and `noise.json` of a folder. Raises ValidationError, naming file and position."""
    source, records = read_objects(folder / "cases.json")
    noise_source, noises = read_objects(folder / "noise.json")
    noise: dict[str, list[str]] = {}
    for where, record in noises:
        noise.setdefault(field_of(record, "lang", str, where), []).append(_text(record, "text", where))
    cases: dict[str, Case] = {}
    for where, record in records:
        case = _case(record, where)
        if case.id in cases:
            raise ValidationError(f"{where}: 'id' {case.id!r} is there twice; each case needs its own")
        if case.language not in noise:
            raise ValidationError(f"{where}: {noise_source.name} has no memories in its 'lang'; add some")
        cases[case.id] = case
    return AnswerSet(tuple(cases.values()), noise, (source, noise_source))


def _case(record: dict[str, Any], where: str) -> Case:
    turns = tuple(_turns(record, where)) if "stored" in record else ()
    if len(turns) > min(SIZES):
        raise ValidationError(f"{where}: 'stored' has {len(turns)} memories; the smallest partition has {min(SIZES)}")
    holders = [(item, _memory(item, turns, where, "needed")) for item in record.get("needed", ())]
    needed = [(item if isinstance(item, str) else memory, memory) for item, memory in holders]
    fine = [_memory(item, turns, where, "fine") for item in record.get("fine", ())]
    if bool(turns) != ("needed" in record):
        raise ValidationError(
            f"{where}: expected 'stored' and 'needed' both ('needed': [] if none of it answers), or neither"
        )
    return Case(
        validation.stored_name(field_of(record, "id", str, where), f"{where}, 'id'"),
        field_of(record, "lang", str, where),
        field_of(record, "kind", str, where),
        validation.query(field_of(record, "ask", str, where), f"{where}, 'ask'"),
        turns,
        tuple(part for part, _ in needed),
        frozenset([*(text for _, text in needed), *fine]),
        frozenset(text for _, text in items_of(record, "about", str, where)),
        frozenset(text for _, text in items_of(record, "away_from", str, where))
        if "away_from" in record
        else frozenset(),
    )


def _turns(record: dict[str, Any], where: str) -> Iterator[Turn]:
    for number, item in enumerate(field_of(record, "stored", list, where), 1):
        position = f"{where}, 'stored', number {number}"
        if isinstance(item, list):
            yield validation.stored_name(_text(item, 0, position), position), _text(item, 1, position)
        else:
            yield "user", _text(record["stored"], number - 1, position)


def _text(record: Any, key: str | int, where: str) -> str:
    text = validation.stored_text(field_of(record, key, str, where), where)
    if any(sign in text for sign in "<>[]\n"):
        raise ValidationError(f"{where}: holds brackets or a line break, which a block may change; write it without")
    return text


def _memory(item: Any, turns: Sequence[Turn], where: str, key: str) -> str:
    """Returns the stored memory with the number `item`, or the first that holds the sentence `item`."""
    texts = [text for _, text in turns]
    if isinstance(item, int) and 0 <= item < len(texts):
        return texts[item]
    holding = [text for text in texts if item in text] if isinstance(item, str) else []
    if not holding:
        raise ValidationError(f"{where}: {key!r} names no stored memory; give its number from 0, or a sentence of one")
    return holding[0]


@dataclass(slots=True)
class _Partition:
    """A partition that is being filled: runs of turns that stay together, and cases whose turns shall stand far apart.

    `topics`: what its cases tell; `forbidden`: what none may tell; `unanswered`: how many questions nothing answers.
    """

    name: str
    size: int
    runs: list[list[Turn]] = field(default_factory=list)
    apart: list[Sequence[Turn]] = field(default_factory=list)
    topics: set[str] = field(default_factory=set)
    forbidden: set[str] = field(default_factory=set)
    cases: list[str] = field(default_factory=list)
    unanswered: int = 0

    @property
    def room(self) -> int:
        return self.size - sum(map(len, self.runs)) - sum(map(len, self.apart))

    def may_tell(self, case: Case) -> bool:
        """Whether the memories of `case` fit, tell nothing that others forbid, and nobody tells what it forbids."""
        told = case.topics & (self.topics | self.forbidden)
        return len(case.turns) <= self.room and case.id not in self.cases and not told and self.may_be_asked(case)

    def may_be_asked(self, case: Case) -> bool:
        return not case.away_from & self.topics

    def put(self, case: Case, *, apart: bool = False) -> None:
        """Stores the memories of a case: a dialogue or neighbours together, single statements by themselves."""
        is_dialogue = any(speaker != "user" for speaker, _ in case.turns)
        if apart:
            self.apart.append(case.turns)
        elif case.kind == TWO_HOPS or is_dialogue:
            self.runs.append(list(case.turns))
        else:
            self.runs.extend([turn] for turn in case.turns)
        self.topics |= case.topics
        self.forbidden |= case.away_from
        self.cases.append(case.id)

    def messages(self) -> Iterator[Message]:
        """Yields the memories in an order that is the same in each run; those `apart` are spread over all of them."""
        runs = list(self.runs)
        random.Random(self.name).shuffle(runs)  # noqa: S311  (an order, no secret)
        spread = [turn for turns in zip_longest(*self.apart) for turn in turns if turn is not None]
        step = len(runs) // max(1, len(spread) - 1)
        for number, turn in enumerate(spread):
            runs.insert(number * (step + 1), [turn])
        day = said = number = 0
        for run in runs:
            if said + len(run) > SITTING:
                day, said = day + 1, 0
            for speaker, text in run:
                author = {"role": speaker} if speaker in ROLES else {"role": "user", "name": speaker}
                at = FIRST_DAY + timedelta(days=day, minutes=said)
                yield {**author, "content": text, "timestamp": at, "id": str(number)}
                said, number = said + 1, number + 1


def lay_out(answers: AnswerSet) -> tuple[Dataset, list[Asked]]:
    """Returns the partitions as a data set without questions, and where every case is asked: the same each time."""
    partitions: list[_Partition] = []
    asked: list[Asked] = []
    for language in answers.noise:
        cases = [case for case in answers.cases if case.language == language]
        for size, most in SIZES.items():
            filled, placed = _fill(cases, f"{language}-{size}", size, most)
            _top_up(filled, cases, answers.noise[language])
            partitions += filled
            asked += placed
    messages = {partition.name: tuple(partition.messages()) for partition in partitions}
    return Dataset(NAME, messages, (), {}, answers.sources), asked


def _fill(cases: Sequence[Case], name: str, size: int, most: int) -> tuple[list[_Partition], list[Asked]]:
    """Puts each case into the first partition that may have it, and spreads those that nothing answers over all."""
    partitions: list[_Partition] = []
    asked: list[Asked] = []

    def new_partition() -> _Partition:
        partitions.append(_Partition(f"{name}-{len(partitions) + 1}", size))
        return partitions[-1]

    for case in cases:
        for kind, apart in _placements(case, size):
            free = (partition for partition in partitions if len(partition.cases) < most and partition.may_tell(case))
            partition = next(free, None) or new_partition()
            partition.put(case, apart=apart)
            asked.append(Asked(case, partition.name, size, kind))
    for case in cases:
        if not case.turns:
            possible = [partition for partition in partitions if partition.may_be_asked(case)]
            partition = min(possible, key=lambda partition: partition.unanswered) if possible else new_partition()
            partition.forbidden |= case.away_from
            partition.unanswered += 1
            asked.append(Asked(case, partition.name, size, case.kind))
    return partitions, asked


def _placements(case: Case, size: int) -> Iterator[tuple[str, bool]]:
    """Yields (kind, whether the memories stand apart) for each time that a case with memories is asked."""
    if case.kind == TWO_HOPS:
        yield f"{case.kind}, neighbours", False
        if len(case.turns) < size:
            yield f"{case.kind}, apart", True
    elif case.turns:
        yield case.kind, False


def _top_up(partitions: Iterable[_Partition], cases: Sequence[Case], noise: Sequence[str]) -> None:
    """Fills partitions with noise, each from another place in it, then with memories of cases that are not asked."""
    for number, partition in enumerate(partitions):
        start = number * 7 % len(noise)
        rest = [*noise[start:], *noise[:start]][: partition.room]
        partition.runs.extend([("user", text)] for text in rest)
        for case in cases:
            if case.turns and partition.room and case.kind != TWO_HOPS and partition.may_tell(case):
                partition.put(case)


@dataclass(frozen=True, slots=True)
class Answered:
    """What came of one question: the verdict on its block, and the rank of the last needed memory (None: not found).

    `seconds` are those of `context` and of `search`. `first_lines`: a block of the first hits of `search`, as many as
    have room in the length of `block`.
    """

    asked: Asked
    verdict: Verdict
    rank: int | None
    seconds: tuple[float, float]
    block: str = ""
    first_lines: str = ""

    @property
    def outcome(self) -> str:
        """One word: exact, in (with others), lost (though among search's first five), missed; silent, told."""
        if not self.asked.case.needed:
            return "silent" if self.verdict.is_silent else "told"
        if self.verdict.is_in:
            return "exact" if self.verdict.is_exact else "in"
        return "lost" if self.rank is not None and self.rank <= FIRST else "missed"


def run(memory: Memory, answers: AnswerSet, options: Mapping[str, Any], progress: ProgressCallback) -> list[Answered]:
    """Fills the partitions and asks each question in them; `options` are passed to `Memory.context`.

    Raises ValidationError for options that it refuses, StoreError for a degraded search or pending messages.
    """
    dataset, questions = lay_out(answers)
    store(memory, dataset, progress)
    stored = {name: [message["content"] for message in messages] for name, messages in dataset.partitions.items()}
    results = []
    for number, asked in enumerate(questions, 1):
        results.append(_ask(memory, asked, stored[asked.partition], options))
        progress("questions", number, len(questions))
    return results


def _ask(memory: Memory, asked: Asked, stored: Sequence[str], options: Mapping[str, Any]) -> Answered:
    case = asked.case
    scope: dict[str, Any] = {"user_id": asked.partition, "reference_date": ASKED_AT}
    started = time.perf_counter()
    answer = memory.search(case.question, top_k=ALL_HITS, **scope)
    searched = time.perf_counter()
    shown = memory.context(case.question, **scope, **options)
    done = time.perf_counter()
    refuse_degraded(answer.get("degraded", ()))
    hits = [hit["memory"] for hit in answer["results"]]
    ranks = [next((rank for rank, hit in enumerate(hits, 1) if part in hit), None) for part in case.needed]
    found = [rank for rank in ranks if rank is not None]
    rank = max(found) if found and len(found) == len(ranks) else None
    verdict = judge(shown, stored, case.needed, case.right)
    first_lines = _first_lines(answer["results"], len(shown))
    return Answered(asked, verdict, rank, (done - searched, searched - started), shown, first_lines)


def _first_lines(hits: Iterable[Mapping[str, Any]], most: int) -> str:
    """Returns hits in their order, whole, as a block of at most `most` characters; "" if the first one has no room."""
    lines: list[str] = []
    for hit in hits:
        line = memory_line(hit["memory"], hit["at"], speaker_of(hit))
        if len(block([*lines, line])) > most:
            break
        lines.append(line)
    return block(lines) if lines else ""


def build_report(
    answers: AnswerSet,
    results: Sequence[Answered],
    options: Mapping[str, Any],
    models: Mapping[str, str],
    *,
    with_cases: bool,
    examples: int = 0,
) -> dict[str, Any]:
    """Returns the figures of a run by language, kind and size of partition, and their circumstances, ready for JSON.

    `options` are those of `Memory.context`; `with_cases` adds what came of each case in each size of partition, and
    `examples` so many questions that the block alone answers, and so many that search alone answers, with the blocks.
    """
    seconds = list(zip(*(result.seconds for result in results), strict=True))
    report = {
        "benchmark": "answers",
        **environment(),
        "models": dict(models),
        "arguments": {"context": dict(options), "sizes": list(SIZES)},
        "data": {
            "files": [asdict(source) for source in answers.sources],
            "cases": len(answers.cases),
            "partitions": len({result.asked.partition for result in results}),
            "questions": len(results),
        },
        "latency": {
            f"{name}_p50_ms": round(1000 * median(times), 1)
            for name, times in zip(("context", "search"), seconds, strict=True)
        },
        "figures": [figure for by, value, group in _groups(results) for figure in _figures(by, value, group)],
    }
    if with_cases:
        report["cases"] = _outcomes(results)
    if examples:
        report["examples"] = {
            "block alone": _examples(filter(_is_gained, results), examples),
            "search alone": _examples((one for one in results if one.outcome == "lost"), examples),
        }
    return report


def _is_gained(result: Answered) -> bool:
    """Whether the block has what is needed, and the first hits of `search` in its length do not."""
    needed = result.asked.case.needed
    return result.verdict.is_in and not judge(result.first_lines, (), needed, ()).is_in


def _examples(results: Iterable[Answered], most: int) -> list[dict[str, Any]]:
    """Returns the first `most` results of different cases, one of each language and kind in turn, ready for JSON."""
    by_case = {result.asked.case.id: result for result in reversed(list(results))}
    kinds: dict[tuple[str, str], list[Answered]] = {}
    for result in reversed(by_case.values()):
        kinds.setdefault((result.asked.case.kind, result.asked.case.language), []).append(result)
    in_turn = (one for ones in zip_longest(*kinds.values()) for one in ones if one is not None)
    return [
        {
            "case": one.asked.case.id,
            "memories": one.asked.size,
            "question": one.asked.case.question,
            "needed": list(one.asked.case.needed),
            "rank": one.rank,
            "block": one.block,
            "first lines of search": one.first_lines,
        }
        for one in islice(in_turn, most)
    ]


def _groups(results: Sequence[Answered]) -> Iterator[tuple[str, str, list[Answered]]]:
    """Yields (property, value, its results): all, then by language, and in each by size and by kind."""
    yield "all", "all", list(results)
    for language, of_language in _divided(results, lambda asked: asked.case.language):
        yield "language", language, of_language
        for by, key in (("size", lambda asked: str(asked.size)), ("kind", lambda asked: asked.kind)):
            for value, group in _divided(of_language, key):
                yield f"language, {by}", f"{language}, {value}", group


def _divided(results: Iterable[Answered], key: Callable[[Asked], str]) -> Iterable[tuple[str, list[Answered]]]:
    groups: dict[str, list[Answered]] = {}
    for result in results:
        groups.setdefault(key(result.asked), []).append(result)
    return groups.items()


def _figures(by: str, value: str, results: Sequence[Answered]) -> Iterator[dict[str, Any]]:
    """Yields the figures of the questions that something answers, and of those that nothing does, if there are any."""
    for is_answerable in (True, False):
        group = [result for result in results if bool(result.asked.case.needed) == is_answerable]
        if not group:
            continue
        measures = _answerable(group) if is_answerable else {"silent": fmean(one.verdict.is_silent for one in group)}
        sizes = {
            "lines": fmean(one.verdict.shown for one in group),
            "characters": fmean(one.verdict.characters for one in group),
        }
        rounded = {name: number and round(number, DECIMALS) for name, number in (measures | sizes).items()}
        yield {"by": by, "value": value, "answerable": is_answerable, "n": len(group), **rounded}


def _answerable(group: Sequence[Answered]) -> dict[str, float | None]:
    shown = sum(result.verdict.shown for result in group)
    return {
        "in": fmean(result.verdict.is_in for result in group),
        "exact": fmean(result.verdict.is_exact for result in group),
        "precision": sum(result.verdict.right for result in group) / shown if shown else None,
        "empty": fmean(result.verdict.is_silent for result in group),
        **{
            f"search@{most}": fmean(result.rank is not None and result.rank <= most for result in group)
            for most in (FIRST, ALL_HITS)
        },
    }


def _outcomes(results: Iterable[Answered]) -> dict[str, str]:
    """Returns what came of each case by its id: "3 exact, 12 in, 60 lost", two hops "neighbours 3 in, apart 3 lost"."""
    outcomes: dict[str, list[str]] = {}
    for result in results:
        placement = result.asked.kind.removeprefix(result.asked.case.kind).strip(", ")
        words = f"{placement} {result.asked.size} {result.outcome}".strip()
        outcomes.setdefault(result.asked.case.id, []).append(words)
    return {case: ", ".join(words) for case, words in outcomes.items()}
