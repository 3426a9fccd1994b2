"""The requests to the answerer and to the judges. They hold what is to be answered or judged, and nothing else.

Both are JSON, in which no text of a note or an answer can end the data early. All replies are asked for as plain text,
so that each request is one call.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from graphmem.errors import LLMRefused, LLMTruncated, LLMUnusable
from graphmem.evaluation.datasets import BenchmarkQuestion
from graphmem.ingest.facts.structured_output import as_json, object_schema
from graphmem.models.lenient_json import parse_json
from graphmem.plugins import LanguageModel, Prompt, Usage
from graphmem.prompts import load

ANSWER, JUDGE = "qa_answer", "qa_judge"
RIGHT, WRONG = "RIGHT", "WRONG"
# How often a judge is asked if its verdict cannot be read.
ATTEMPTS = 2
_VERDICT = object_schema(reason={"type": "string"}, verdict={"enum": [RIGHT, WRONG]})
# Replies that are no answer: they count, as they are. All other failures end the run, which goes on later.
_NO_ANSWER = (LLMRefused, LLMTruncated, LLMUnusable)
_END_OF_REASONING = "</think>"


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
    return Prompt(ANSWER, load(ANSWER), as_json(data))


def judge_prompt(case: BenchmarkQuestion, given: str) -> Prompt:
    """Returns the request to judge an answer."""
    data = {"question": case.question, "right_answer": case.answer, "given_answer": given}
    return Prompt(JUDGE, load(JUDGE), as_json(data))


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
    return {name: hashlib.sha256(load(name).encode()).hexdigest() for name in (ANSWER, JUDGE)}


def usage_record(usage: Usage) -> dict[str, Any]:
    """Returns a usage for the results file."""
    return {**asdict(usage), "seconds": round(usage.seconds, 4), "cost": round(usage.cost, 8)}
