"""Has a language model answer questions from their notes alone, and other requests judge what it answered.

    python benchmarks/answers/blind.py locomo10.json http://127.0.0.1:8080/v1 --model qwen3 --notes context

Of a file in LOCOMO's form, `--questions` questions are taken, spread evenly over its kinds; the same ones each time.
The notes are those of `--notes`: what `context` prints (within `--max-chars`), the first twenty hits of `search` as
lines, or the evidence alone. A request to answer holds notes and question; a request to judge holds question, right
answer and the answer given, so that nobody who judges knows where it came from. Prints the share of right answers by
kind.

Requests are the same in each run, so that an endpoint which keeps its replies replays them. With `--replies FILE` the
answers and verdicts are written there.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any

import httpx

from graphmem import Memory
from graphmem.cli.render import ProgressBar
from graphmem.evaluation.configurations import SEARCH_FUNCTIONS
from graphmem.evaluation.datasets import BenchmarkQuestion, Dataset
from graphmem.evaluation.environment import environment
from graphmem.evaluation.locomo import CATEGORIES, load
from graphmem.evaluation.runner import store
from graphmem.retrieval.context import memory_line

SOURCES = ("context", "search", "evidence")
HITS = 20
# Seconds for one reply: somebody may write it by hand.
REPLY_SECONDS = 3_600
ANSWER = (
    "You answer questions about people from notes of their conversations. Use the notes alone. Answer in a few words; "
    "give days as dates where the notes tell them. If the notes do not tell, answer with your best guess from them, or "
    '"not in the notes".'
)
JUDGE = (
    "You judge answers. You get a question, the right answer and an answer that was given. The answer is right if it "
    "says the same as the right answer, in whatever words; for a list, if nothing essential is missing or wrong; for a "
    "time, if it means the same day or period. Reply with one word: RIGHT or WRONG."
)


def chosen(cases: Sequence[BenchmarkQuestion], most: int) -> list[BenchmarkQuestion]:
    """Returns at most `most` of the questions that have an answer, each kind in its share, the same ones each time."""
    answered = sorted((case for case in cases if case.answer), key=_kind)
    return [answered[number * len(answered) // most] for number in range(most)] if most < len(answered) else answered


def _kind(case: BenchmarkQuestion) -> str:
    return next(group.value for group in case.groups if group.by == "category")


class Notes:
    """The notes of a question, by the name of their source; `keys` are the messages' keys by memory id."""

    def __init__(self, memory: Memory, data: Dataset, keys: Mapping[str, str]) -> None:
        self._memory = memory
        self._keys = keys
        self._messages = data.messages_by_id()

    def of(self, case: BenchmarkQuestion, source: str, max_chars: int | None) -> str:
        """Returns the notes from a source; `max_chars` limits a context (None: its default)."""
        if source == "context":
            limit = {} if max_chars is None else {"max_chars": max_chars}
            return self._memory.context(case.question, user_id=case.partition, reference_date=case.query_time, **limit)
        messages = self._messages[case.partition]
        if source == "search":
            keys = [self._keys[uid] for uid in SEARCH_FUNCTIONS["full"](self._memory, case, HITS)]
        else:
            keys = [key for key in messages if key in case.gold]
        return "".join(
            memory_line(one["content"], one["timestamp"], one["name"]) for one in map(messages.get, keys) if one
        )


@contextmanager
def endpoint(url: str, api_key: str, model: str) -> Iterator[Callable[[str, str], str]]:
    """Yields a function from instructions and a message to the model's reply."""
    headers = {"Authorization": f"Bearer {api_key}"}
    with httpx.Client(base_url=url, headers=headers, timeout=REPLY_SECONDS) as client:

        def reply(system: str, user: str) -> str:
            messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
            body = {"model": model, "messages": messages, "temperature": 0}
            answer = client.post("chat/completions", json=body).raise_for_status().json()
            content: str = answer["choices"][0]["message"]["content"]
            return content.strip()

        yield reply


def is_right(verdict: str) -> bool:
    """Reads a verdict. Raises ValueError for one that is neither right nor wrong."""
    word = verdict.strip(" .*\n").upper()
    if word not in {"RIGHT", "WRONG"}:
        raise ValueError(f"a request to judge was answered with {len(verdict)} characters; expected RIGHT or WRONG")
    return word == "RIGHT"


def ask(reply: Callable[[str, str], str], case: BenchmarkQuestion, notes: str) -> dict[str, Any]:
    """Has one question answered and judged; returns both with its kind."""
    answer = reply(ANSWER, f"Notes:\n{notes or '(none)'}\n\nQuestion: {case.question}")
    told = f"Question: {case.question}\nRight answer: {case.answer}\nAnswer given: {answer}"
    return {
        "kind": CATEGORIES[int(_kind(case))],
        "question": case.question,
        "right answer": case.answer,
        "answer": answer,
        "characters": len(notes),
        "is right": is_right(reply(JUDGE, told)),
    }


def figures(replies: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, dict[str, float]]]:
    """Yields (kind, its figures), all kinds together first."""
    kinds: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for one in replies:
        kinds["all"].append(one)
        kinds[one["kind"]].append(one)
    for kind, members in kinds.items():
        right, characters = (fmean(one[name] for one in members) for name in ("is right", "characters"))
        yield kind, {"n": len(members), "right": round(right, 3), "characters": round(characters)}


def main() -> None:
    """Asks the questions that the command line names; prints the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, help="a file in LOCOMO's form")
    parser.add_argument("url", help="an OpenAI-compatible endpoint, with /v1")
    parser.add_argument("--notes", choices=SOURCES, default="context")
    parser.add_argument("--max-chars", type=int, help="the most characters of a context")
    parser.add_argument("--questions", type=int, default=60)
    parser.add_argument("--model", default="gpt-5-mini")
    parser.add_argument("--api-key", default="any")
    parser.add_argument("--parallel", type=int, default=8, help="requests at a time; as many as questions for a person")
    parser.add_argument("--replies", type=Path, help="a JSON file for the answers and verdicts")
    options = parser.parse_args()
    data = load(options.path)
    cases = chosen(data.cases, options.questions)
    with Memory(":memory:") as memory, ProgressBar() as bar:
        notes = Notes(memory, data, store(memory, data, bar.update).keys)
        asked = [(case, notes.of(case, options.notes, options.max_chars)) for case in cases]
    with (
        endpoint(options.url, options.api_key, options.model) as reply,
        ThreadPoolExecutor(options.parallel) as pool,
    ):
        replies = list(pool.map(lambda pair: ask(reply, *pair), asked))
    if options.replies is not None:
        options.replies.write_text(json.dumps(replies, indent=1, ensure_ascii=False) + "\n", "utf-8")
    arguments = {name: getattr(options, name) for name in ("notes", "max_chars", "questions", "model")}
    report = {"benchmark": "blind", **environment(), "arguments": arguments, "figures": dict(figures(replies))}
    print(json.dumps(report, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
