"""A run of the benchmark of answers, conversation by conversation, and its forecast from the data alone.

Requests to the answerer and to the judges hold what is to be answered or judged, and nothing else. Both are JSON, in
which no text of a note or an answer can end the data early. All replies are asked for as plain text, so that each
request is one call.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from threading import Event
from typing import Any

from graphmem import prompts
from graphmem.errors import LLMRefused, LLMTruncated, LLMUnusable, ValidationError
from graphmem.evaluation import locomo, longmemeval
from graphmem.evaluation.blocks import evidence_of, shares
from graphmem.evaluation.datasets import BenchmarkQuestion, Dataset, QuestionGroup, read_objects
from graphmem.evaluation.environment import environment
from graphmem.evaluation.qa.results import ANSWERED, STORED, Record, Recorded, ResultsFile
from graphmem.evaluation.qa.systems import (
    EMBEDDER,
    NOTHING,
    Conversation,
    FilledMemory,
    Notes,
    System,
    forecast_of_filling,
)
from graphmem.evaluation.runner import ProgressCallback
from graphmem.ingest.facts.structured_output import as_json, object_schema
from graphmem.models.lenient_json import parse_json
from graphmem.models.openai_chat import Prices
from graphmem.plugins import Embedder, LanguageModel, Prompt, Usage
from graphmem.text import estimate_tokens

SEED = 0
# What a forecast takes for the tokens of an answer and of a verdict.
ANSWER_TOKENS, VERDICT_TOKENS = 30, 60
RECALL_DECIMALS = 4
ANSWER, JUDGE = "qa_answer", "qa_judge"
RIGHT, WRONG = "RIGHT", "WRONG"
# How often a judge is asked if its verdict cannot be read.
ATTEMPTS = 2
_VERDICT = object_schema(reason={"type": "string"}, verdict={"enum": [RIGHT, WRONG]})
# Replies that are no answer: they count, as they are. All other failures end the run, which goes on later.
_NO_ANSWER = (LLMRefused, LLMTruncated, LLMUnusable)
_END_OF_REASONING = "</think>"


def load(path: Path) -> Dataset:
    """Reads a file in the form of LOCOMO or LongMemEval. Raises ValidationError, naming the file."""
    _, records = read_objects(path)
    return longmemeval.load(path) if longmemeval.HISTORY in records[0][1] else locomo.load(path, for_recall=False)


def category_of(case: BenchmarkQuestion) -> QuestionGroup:
    """Returns the category of a question."""
    return next(group for group in case.groups if group.by == "category")


@dataclass(frozen=True)
class Plan:
    """What is asked: questions of a data set, each of every system."""

    dataset: Dataset
    cases: Sequence[BenchmarkQuestion]
    systems: Mapping[str, System]

    @cached_property
    def memories(self) -> set[str]:
        """The memories that the systems ask."""
        return {system.memory for system in self.systems.values()} - {EMBEDDER, NOTHING}

    def conversations(self) -> Iterator[tuple[Conversation, list[BenchmarkQuestion]]]:
        """Yields each conversation that something is asked about, with its questions."""
        cases: dict[str, list[BenchmarkQuestion]] = {}
        for case in self.cases:
            cases.setdefault(case.partition, []).append(case)
        for name, asked in cases.items():
            yield Conversation(name, self.dataset.partitions[name]), asked


def planned(
    dataset: Dataset,
    systems: Mapping[str, System],
    *,
    categories: Collection[str] | None = None,
    leave_out: Collection[str] = (),
    questions: int | None = None,
) -> Plan:
    """Returns the plan for the questions of some categories (None: all but LOCOMO's adversarial ones).

    `leave_out` has ids of questions with a wrong label. Of the others at most `questions` are asked, each category in
    its share, the same ones each time. Raises ValidationError for a category or an id that the data does not have, or
    if nothing is left.
    """
    known = {category_of(case).value for case in dataset.cases}
    chosen = set(categories or known - ({str(locomo.ADVERSARIAL)} if dataset.name == locomo.NAME else set()))
    if unknown := sorted(chosen - known):
        names = ", ".join(sorted(known))
        raise ValidationError(f"categories={unknown[0]!r}: must be among {names}", argument="categories")
    if unknown := sorted(set(leave_out) - {case.id for case in dataset.cases}):
        raise ValidationError(f"leave_out: the data has no question {unknown[0]!r}", argument="leave_out")
    cases = [case for case in dataset.cases if category_of(case).value in chosen and case.id not in leave_out]
    if questions is not None and questions < len(cases):
        cases.sort(key=lambda case: category_of(case).value)
        cases = [cases[number * len(cases) // questions] for number in range(questions)]
    if not cases:
        raise ValidationError("leave_out: leaves no question of these categories", argument="leave_out")
    return Plan(dataset, cases, systems)


def with_texts(recorded: Recorded, dataset: Dataset) -> Recorded:
    """Returns a run whose file was published without the data's texts, with each question and its right answer.

    Raises ValidationError for a question that the data does not have.
    """
    cases = {case.id: case for case in dataset.cases}
    if unknown := sorted({question for question, _ in recorded.answers} - set(cases)):
        raise ValidationError(f"{dataset.sources[0].name}: has no question {unknown[0]!r}; give the file of this run")
    answers: dict[tuple[str, str], Record] = {
        key: {**one, "question": cases[key[0]].question, "right_answer": cases[key[0]].answer}
        for key, one in recorded.answers.items()
    }
    return replace(recorded, answers=answers)


def run_record(plan: Plan, models: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the first line of a results file: data, models, templates and circumstances."""
    files = [asdict(source) for source in plan.dataset.sources]
    data = {"name": plan.dataset.name, "files": files, "left_out": dict(plan.dataset.left_out)}
    return {"data": data, "models": dict(models), "prompts": prompt_digests(), "seed": SEED, **environment()}


# --- the forecast ----------------------------------------------------------------------------------------------------


def forecast(plan: Plan, prices: Mapping[str, Prices | None], done: Collection[tuple[str, str]] = ()) -> dict[str, Any]:
    """Returns calls, tokens and money of a run from the data alone, by role and by system; for JSON.

    `done` has the (question, system) that a run which goes on has answered: they are asked no more. A conversation is
    taken to be stored if a system that asks its memory has something left.

    `prices` are by role: "answer", "memory", and any other is a judge; the cost of a role without a price is None, and
    not in that of all. Calls of answerer and judges are the very number
    unless a verdict cannot be read; those of the memory's model are between `fewest_calls` and `calls`. Tokens are
    estimated, notes at their longest (`estimate_tokens`), replies ANSWER_TOKENS and VERDICT_TOKENS.
    """
    answers: dict[str, Usage] = dict.fromkeys(plan.systems, Usage())
    judged = filled = Usage()
    fewest = 0
    for conversation, cases in plan.conversations():
        left = {case: [name for name in plan.systems if (case.id, name) not in done] for case in cases}
        asked = {plan.systems[name].memory for names in left.values() for name in names}
        for memory in sorted(plan.memories & asked):
            least, most = forecast_of_filling(memory, conversation)
            fewest, filled = fewest + least, filled + most
        for case, names in left.items():
            question = _tokens(answer_prompt(case, ""))
            for name in names:
                answers[name] += Usage(1, question + plan.systems[name].most(case, conversation), ANSWER_TOKENS)
            tokens, calls = _tokens(judge_prompt(case, "")) + ANSWER_TOKENS, len(names)
            judged += Usage(calls, calls * tokens, calls * VERDICT_TOKENS)
    usages = {**dict.fromkeys(prices, judged), "answer": sum(answers.values(), Usage()), "memory": filled}
    roles = {role: _forecast_row(usage, prices[role]) for role, usage in usages.items()}
    roles["memory"]["fewest_calls"] = fewest
    return {
        "questions": len(plan.cases),
        "roles": roles,
        "systems": {name: _forecast_row(usage, prices["answer"]) for name, usage in answers.items()},
        "cost": round(sum(row["cost"] or 0 for row in roles.values()), 4),
    }


def _tokens(prompt: Prompt) -> int:
    return estimate_tokens(prompt.system) + estimate_tokens(prompt.user)


def _forecast_row(usage: Usage, prices: Prices | None) -> dict[str, Any]:
    cost = None if prices is None else round(prices.cost(usage.prompt_tokens, 0, usage.completion_tokens), 4)
    tokens = {"prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.completion_tokens}
    return {"calls": usage.calls, **tokens, "cost": cost}


# --- the run ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Asker:
    """What a run asks: the memories by name, the embedder, the answerer and the judges; `parallel` requests at a time.

    `keeps` tells whether the memories are kept in a folder, so that what was stored in an earlier run is there.
    """

    memories: Mapping[str, FilledMemory]
    embedder: Embedder
    answerer: LanguageModel
    judges: Sequence[LanguageModel]
    parallel: int
    keeps: bool = False


@dataclass(frozen=True, slots=True)
class _Item:
    """A question for one system, with its notes and how much of the evidence they hold (None: not known)."""

    case: BenchmarkQuestion
    system: str
    notes: Notes
    recall: float | None


def run(plan: Plan, asker: Asker, file: ResultsFile, progress: ProgressCallback) -> None:
    """Asks what the file has no answer to yet, and writes a line for each question and system.

    Notes are made one after the other, so that the times of searches mean something; questions of all systems are
    asked in one shuffled order. Raises LLMUnavailable or LLMRejected if a model cannot be asked, StoreError for a
    degraded search or a conversation that cannot be stored; what was answered is kept.
    """
    total, is_warm = len(plan.cases) * len(plan.systems), False
    for conversation, cases in plan.conversations():
        wanted = [(case, name) for case in cases for name in plan.systems]
        open_items = [(case, name) for case, name in wanted if (case.id, name) not in file.recorded.answers]
        if not open_items:
            continue
        for memory in {plan.systems[name].memory for _, name in open_items} & set(asker.memories):
            _fill(memory, conversation, asker, file, progress)
        random.Random(f"{SEED} {conversation.name}").shuffle(open_items)  # noqa: S311  (an order, no secret)
        if not is_warm:
            # The first search of each system loads what later ones have: it does not count.
            for name, case in {name: case for case, name in open_items}.items():
                _notes(case, plan.systems[name], conversation, asker)
            is_warm = True
        items = []
        for number, (case, name) in enumerate(open_items, 1):
            items.append(_noted(case, name, plan.systems[name], conversation, asker))
            progress("notes", number, len(open_items))
        done = sum((case.id, name) in file.recorded.answers for case in plan.cases for name in plan.systems)
        for number, _ in enumerate(_answered(items, asker, file), done + 1):
            progress("answers", number, total)


def _fill(memory: str, conversation: Conversation, asker: Asker, file: ResultsFile, progress: ProgressCallback) -> None:
    was_filled = (memory, conversation.name) in file.recorded.stored
    usage = asker.memories[memory].fill(conversation, progress, was_filled=was_filled and asker.keeps)
    if usage.calls or not was_filled:
        tokens = usage_record(usage)
        file.add({"kind": STORED, "memory": memory, "conversation": conversation.name, "usage": tokens})


def _notes(case: BenchmarkQuestion, system: System, conversation: Conversation, asker: Asker) -> Notes:
    if system.memory == EMBEDDER:
        asked: Any = asker.embedder
    else:
        asked = None if system.memory == NOTHING else asker.memories[system.memory].asked
    return system.notes(asked, case, conversation)


def _noted(case: BenchmarkQuestion, name: str, system: System, conversation: Conversation, asker: Asker) -> _Item:
    notes = _notes(case, system, conversation, asker)
    recall = None
    if case.gold and notes.evidence is not None:
        gold = [str(one["content"]) for one in conversation.messages if one["id"] in case.gold]
        recall = shares(notes.evidence, [evidence_of(text, case, asker.embedder.embed) for text in gold])[0]
    return _Item(case, name, notes, None if recall is None else round(recall, RECALL_DECIMALS))


def _answered(items: Iterable[_Item], asker: Asker, file: ResultsFile) -> Iterator[None]:
    """Has the items answered and judged, and yields after each; after an error no further one is begun.

    The thread that meets the error says so itself: until the caller's thread hears of it, others would be paid for.
    """
    has_failed = Event()

    def answer(item: _Item) -> None:
        if has_failed.is_set():
            return
        try:
            file.add(_record(item, asker))
        except BaseException:
            has_failed.set()
            raise

    with ThreadPoolExecutor(asker.parallel) as pool:
        futures = [pool.submit(answer, item) for item in items]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _record(item: _Item, asker: Asker) -> dict[str, Any]:
    """Has an item answered and judged. An answer that failed is wrong without a judge."""
    case, category = item.case, category_of(item.case)
    answer = ask(asker.answerer, case, item.notes.lines)
    verdicts = [] if answer.failure else [judge(model, case, answer.text) for model in asker.judges]
    judged: list[dict[str, Any]] = [
        {"is_right": one.is_right, "replies": list(one.replies), "usage": usage_record(one.usage)} for one in verdicts
    ] or [{"is_right": False, "replies": [], "usage": usage_record(Usage())} for _ in asker.judges]
    return {
        "kind": ANSWERED,
        "question_id": case.id,
        "system": item.system,
        "conversation": case.partition,
        "category": category.value,
        "category_name": category.name,
        "question": case.question,
        "right_answer": case.answer,
        "is_answerable": case.is_answerable,
        "notes": item.notes.lines,
        "evidence_recall": item.recall,
        "answer": answer.text,
        "failure": answer.failure,
        "verdicts": judged,
        "usage": usage_record(answer.usage),
        "seconds": {"search": round(item.notes.seconds, 6), "answer": round(answer.usage.seconds, 6)},
    }


@dataclass(frozen=True, slots=True)
class Answer:
    """A reply to a question: `text`, "" with the name of the `failure` if there is none, and its usage."""

    text: str
    failure: str | None
    usage: Usage


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a judge said of an answer: whether it is right, None if no reply could be read; all replies as they came."""

    is_right: bool | None
    replies: tuple[str, ...]
    usage: Usage


def answer_prompt(case: BenchmarkQuestion, lines: str) -> Prompt:
    """Returns the request to answer a question from notes."""
    asked_on = {} if case.query_time is None else {"asked_on": f"{case.query_time:%Y-%m-%d}"}
    data = {"question": case.question, **asked_on, "notes": lines.splitlines()}
    return Prompt(ANSWER, prompts.load(ANSWER), as_json(data))


def judge_prompt(case: BenchmarkQuestion, given: str) -> Prompt:
    """Returns the request to judge an answer."""
    data = {"question": case.question, "right_answer": case.answer, "given_answer": given}
    return Prompt(JUDGE, prompts.load(JUDGE), as_json(data))


def ask(model: LanguageModel, case: BenchmarkQuestion, lines: str) -> Answer:
    """Has a question answered. Raises LLMUnavailable or LLMRejected."""
    try:
        reply = model.answer(answer_prompt(case, lines))
    except _NO_ANSWER as error:
        return Answer("", type(error).__name__, error.usage or Usage(1))
    return Answer(str(reply.value).rpartition(_END_OF_REASONING)[2].strip(), None, reply.usage)


def judge(model: LanguageModel, case: BenchmarkQuestion, given: str) -> Verdict:
    """Has an answer judged, twice if the first verdict cannot be read. Raises LLMUnavailable or LLMRejected."""
    replies: list[str] = []
    usage = Usage()
    for _ in range(ATTEMPTS):
        try:
            reply = model.answer(judge_prompt(case, given))
        except _NO_ANSWER as error:
            usage += error.usage or Usage(1)
            replies.append(type(error).__name__)
            continue
        usage += reply.usage
        replies.append(str(reply.value))
        if (verdict := read_verdict(replies[-1])) is not None:
            return Verdict(verdict, tuple(replies), usage)
    return Verdict(None, tuple(replies), usage)


def read_verdict(reply: str) -> bool | None:
    """Returns whether a judge's reply says RIGHT, None if it says neither that nor WRONG in its JSON."""
    try:
        value = parse_json(reply, _VERDICT)
    except (LLMUnusable, LLMTruncated):
        return None
    verdict = value.get("verdict") if isinstance(value, Mapping) else None
    word = verdict.strip().upper() if isinstance(verdict, str) else ""
    return word == RIGHT if word in (RIGHT, WRONG) else None


def prompt_digests() -> dict[str, str]:
    """Returns the SHA-256 of each template: answers to different ones are not compared."""
    return {name: hashlib.sha256(prompts.load(name).encode()).hexdigest() for name in (ANSWER, JUDGE)}


def usage_record(usage: Usage) -> dict[str, Any]:
    """Returns a usage for the results file."""
    return {**asdict(usage), "seconds": round(usage.seconds, 4), "cost": round(usage.cost, 8)}
