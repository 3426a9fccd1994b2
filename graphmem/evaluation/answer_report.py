"""Asks the everyday questions by `Memory.context` and `Memory.search`, and builds the report of it as JSON data."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice, zip_longest
from statistics import fmean, median
from typing import Any

from graphmem.evaluation.answers import ASKED_AT, SIZES, AnswerSet, Asked, lay_out
from graphmem.evaluation.blocks import Verdict, judge
from graphmem.evaluation.environment import environment
from graphmem.evaluation.runner import ProgressCallback, refuse_degraded, store
from graphmem.memory import Memory
from graphmem.retrieval.context import block, memory_line, speaker_of

DECIMALS = 3
# Hits of `search` among which what is needed counts as found.
FIRST, ALL_HITS = 5, 20


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
