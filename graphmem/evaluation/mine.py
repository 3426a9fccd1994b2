"""Asks the questions that users have judged again, and measures the answers by their own verdicts.

What is expected of a question are the memories that were called right or missing. Searching counts as no use of the
memories. A run with other settings is compared with an earlier one question by question.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from graphmem.errors import NotFoundError
from graphmem.evaluation.environment import environment
from graphmem.evaluation.runner import refuse_degraded
from graphmem.memory import Memory
from graphmem.model import SCOPE_NAMES, Verdict
from graphmem.types import HitDict, JudgementDict

# So many hits are looked at: about those that a person reads, and that a block of 2,000 characters begins with.
FIRST = 5
PAGE = 1000
Place = tuple[str | None, ...]


@dataclass(slots=True)
class JudgedQuestion:
    """A question of one scope, with the ids of the memories that answer it, and of those that do not."""

    query: str
    scope: dict[str, Any]
    expected: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def judged_questions(memory: Memory, scope: Mapping[str, Any]) -> list[JudgedQuestion]:
    """Returns the judged questions of all scopes that carry these ids, by the earliest verdict on each that counts."""
    questions: dict[Place, JudgedQuestion] = {}
    for one in reversed(list(_judgements(memory, scope))):
        own = {name: value for name, value in one.items() if name in SCOPE_NAMES and isinstance(value, str)}
        question = questions.setdefault(_place(one), JudgedQuestion(one["query"], own))
        (question.wrong if one["verdict"] == Verdict.WRONG else question.expected).append(one["memory_id"])
    return list(questions.values())


def _judgements(memory: Memory, scope: Mapping[str, Any]) -> Iterable[JudgementDict]:
    offset = 0
    while page := memory.judgements(**scope, limit=PAGE, offset=offset)["results"]:
        yield from page
        offset += PAGE


def replay(memory: Memory, question: JudgedQuestion) -> dict[str, Any]:
    """Asks a question, and returns what became of the memories that were judged.

    `found`, `missed` and `hidden` have the expected ones: among the first hits (or under one of them), not among them
    (with the step of the search at which they fall out, and why), and those that no search may find by now, as they are
    retired, forgotten or expired, which do not count. `wrong` are those of the wrong ones that are among the first hits
    (or under one of them), `avoided` the others. `silent`: of a question without an answer, whether nothing of the
    default relevance is found; else None. Raises StoreError for a degraded search, whose answers say nothing of others.
    """
    hits = _search(memory, question, FIRST)
    shown = [one["id"] for hit in hits for one in (hit, *hit.get("sources", ()))]
    outcome: dict[str, Any] = {"query": question.query, **question.scope, "found": [], "missed": [], "hidden": []}
    for uid in question.expected:
        if uid in shown:
            outcome["found"].append(uid)
            continue
        try:
            absence = memory.why_not(question.query, uid, **question.scope, top_k=FIRST)
        except NotFoundError:  # erased since the judgements were read, and they with it
            continue
        if absence["step"] == "not_visible":
            outcome["hidden"].append(uid)
        else:
            outcome["missed"].append({"id": uid, "step": absence["step"], "why": absence["why"]})
    outcome["wrong"] = [uid for uid in shown if uid in question.wrong]
    outcome["avoided"] = [uid for uid in question.wrong if uid not in shown]
    outcome["silent"] = None
    if not question.expected:
        outcome["silent"] = not _search(memory, question, "auto")
    return outcome


def _search(memory: Memory, question: JudgedQuestion, top_k: int | str) -> list[HitDict]:
    # With `explain` a search counts as no use of its hits.
    answer = memory.search(question.query, **question.scope, top_k=top_k, explain=True)
    refuse_degraded(answer.get("degraded", ()))
    return answer["results"]


def run(memory: Memory, scope: Mapping[str, Any], update: Callable[[str, int, int], None]) -> list[dict[str, Any]]:
    """Asks all judged questions of a scope; `update` gets a name, how many were asked, and how many there are."""
    questions = judged_questions(memory, scope)
    outcomes = []
    for number, question in enumerate(questions, 1):
        outcomes.append(replay(memory, question))
        update("ask", number, len(questions))
    return outcomes


def build_report(outcomes: Sequence[Mapping[str, Any]], models: Mapping[str, str]) -> dict[str, Any]:
    """Returns the figures of a run, as shares of 1, with its circumstances and what became of each question.

    `recall_at_5`: of the expected memories of a question those that are found, on the average. `precision_at_5`: of the
    judged ones among the first hits those that answer. `silent`: of the questions without an answer those for which
    nothing is found. A figure is None where there is nothing to measure it by.
    """
    answered = [one for one in outcomes if one["found"] or one["missed"]]
    right, wrong = (sum(len(one[name]) for one in outcomes) for name in ("found", "wrong"))
    return {
        "benchmark": "mine",
        **environment(),
        "models": dict(models),
        "questions": len(outcomes),
        "hidden": sum(len(one["hidden"]) for one in outcomes),
        "recall_at_5": _mean([len(one["found"]) / (len(one["found"]) + len(one["missed"])) for one in answered]),
        "precision_at_5": _mean([1.0] * right + [0.0] * wrong),
        "silent": _mean([float(one["silent"]) for one in outcomes if one["silent"] is not None]),
        "cases": list(outcomes),
    }


def is_report(value: object) -> bool:
    """Tells whether a value, such as the JSON of a file, is a report that `compare` can read."""
    if not isinstance(value, dict) or value.get("benchmark") != "mine" or not isinstance(value.get("cases"), list):
        return False
    return all(isinstance(one, dict) and _is_case(one) for one in value["cases"])


def compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, list[str]]:
    """Returns the questions that went better, worse and the same since an earlier report, of those that both measure.

    Better is what finds more of the expected memories, or as many and fewer wrong ones, or is silent where it was not.
    Only memories count that both reports expect, and that were visible in both, or that both call wrong: another
    verdict, or a memory that was forgotten or erased since, is no change of the search.
    """
    earlier = {_place(one): one for one in before["cases"]}
    changes: dict[str, list[str]] = {"better": [], "worse": [], "same": []}
    for one in after["cases"]:
        former = earlier.get(_place(one))
        if former is not None and (worths := _worths(former, one)) is not None:
            then, now = worths
            changes["same" if now == then else "better" if now > then else "worse"].append(one["query"])
    return changes


def _is_case(one: Mapping[str, Any]) -> bool:
    names = ("found", "missed", "wrong", "avoided")
    if not all(isinstance(one.get(name), list) for name in names):
        return False
    missed = [gone.get("id") if isinstance(gone, dict) else None for gone in one["missed"]]
    scope = [one.get(name) or "" for name in SCOPE_NAMES]
    texts = (one.get("query"), *scope, *missed, *one["found"], *one["wrong"], *one["avoided"])
    return all(isinstance(text, str) for text in texts)


def _worths(*outcomes: Mapping[str, Any]) -> list[tuple[int, int, bool]] | None:
    """Returns what each outcome of a question is worth, by what all of them measure; None if that is nothing."""
    expected = set.intersection(*({*one["found"], *(gone["id"] for gone in one["missed"])} for one in outcomes))
    wrong = set.intersection(*({*one["wrong"], *one["avoided"]} for one in outcomes))
    has_silence = all(one.get("silent") is not None for one in outcomes)
    if not (expected or wrong or has_silence):
        return None
    return [
        (len(expected & {*one["found"]}), -len(wrong & {*one["wrong"]}), has_silence and bool(one["silent"]))
        for one in outcomes
    ]


def _place(asked: Mapping[str, Any]) -> Place:
    return asked["query"], *(asked.get(name) for name in SCOPE_NAMES)


def _mean(values: Sequence[float]) -> float | None:
    return round(fmean(values), 3) if values else None
