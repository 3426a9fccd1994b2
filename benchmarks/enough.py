"""How often a search counts as sufficient, and `context()` leaves out hits as unrelated, with and without an answer.

    python benchmarks/enough.py locomo10.json

Over the conversations of a LOCOMO file (`benchmarks/chinese/chats.json` is one, too), then over thirty sentences of one
Chinese speaker (`enough.json`), whose questions name nobody. Kinds of questions: "found" and "missed" (the file's own,
with or without evidence among the first five hits), "foreign" (asked in another conversation), "weak" and "off"
(`enough.json`: those that need their conversation, and those about other things).
"""

from __future__ import annotations

import argparse
import json
import random
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from graphmem import Memory
from graphmem.evaluation.datasets import BenchmarkQuestion, Dataset
from graphmem.evaluation.locomo import load
from graphmem.evaluation.runner import store
from graphmem.model import Scope, View
from graphmem.retrieval import context
from graphmem.retrieval.fallback import is_sufficient
from graphmem.retrieval.pipeline import search
from graphmem.retrieval.types import SearchQuery
from graphmem.text import mostly_latin

QUESTIONS = json.loads((Path(__file__).parent / "enough.json").read_text("utf-8"))
TOP_K, IN_CONTEXT, ROOM, FOREIGN = 5, 20, 1200, 200


class Count:
    """Counts sufficient searches and empty contexts; `keys` are the messages' keys by memory id."""

    def __init__(self, memory: Memory, keys: Mapping[str, str]) -> None:
        self._stores = memory._engine.search_deps  # noqa: SLF001  (not in the public API)
        self._keys = keys
        self._enough: dict[str, list[bool]] = defaultdict(list)
        self._empty: dict[str, list[bool]] = defaultdict(list)
        self._printed = [0, 0]

    def ask(self, user: str, question: str, kind: str, gold: frozenset[str] = frozenset()) -> None:
        """Asks one question, whose evidence is `gold`."""
        view = View(Scope(user), datetime.now(UTC), Scope(user).partition)
        few, many = (
            search(SearchQuery(question, view, most, with_relevance=True), self._stores) for most in (TOP_K, IN_CONTEXT)
        )
        if gold:
            kind = "found" if gold & {self._keys[hit.record.id] for hit in few.hits} else "missed"
        self._enough[kind].append(is_sufficient(few))
        self._empty[kind].append(not many.related)
        for place, hits in enumerate((many.hits, many.related)):
            block = context.context_block(hits, ROOM)
            self._printed[place] += sum(
                self._keys[hit.record.id] in gold and context.context_block([hit], ROOM).splitlines()[2] in block
                for hit in hits
            )

    def print_counts(self) -> None:
        """Prints the counts."""
        for kind, flags in sorted(self._enough.items()):
            empty = self._empty[kind]
            print(
                f"{kind:8}{len(flags):5}  enough {sum(flags) / len(flags):4.0%}  empty {sum(empty) / len(empty):4.0%}"
            )
        print(f"evidence printed: {self._printed[0]} without the floor, {self._printed[1]} with it")


def measure(data: Dataset) -> None:
    """Counts over a data set."""
    language = "en" if mostly_latin(data.cases[0].question) else "zh"
    chance, users = random.Random(7), list(data.partitions)  # noqa: S311  (a sample, no secret)
    with Memory(":memory:") as memory:
        count = Count(memory, store(memory, data, lambda *_: None).keys)
        for case in data.cases:
            count.ask(case.partition, case.question, "", case.gold)
        for case in chance.sample(data.cases, min(FOREIGN, len(data.cases))) if len(users) > 1 else ():
            count.ask(chance.choice([user for user in users if user != case.partition]), case.question, "foreign")
        for kind in ("weak", "off"):
            for user in users:
                for question in QUESTIONS[f"{kind}_{language}"]:
                    count.ask(user, question, kind)
    print(data.name, language)
    count.print_counts()


def one_speaker() -> Dataset:
    """The thirty sentences, a day apart, with their questions."""
    messages = [
        {"role": "user", "content": text, "id": str(n), "timestamp": f"2024-01-{n + 1:02}"}
        for n, text in enumerate(QUESTIONS["said_zh"])
    ]
    cases = [BenchmarkQuestion(question, frozenset({str(n)}), "u", ()) for question, n in QUESTIONS["clear_zh"]]
    return Dataset("one speaker", {"u": tuple(messages)}, tuple(cases), {}, ())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("locomo", type=Path, help="a file in LOCOMO's form")
    measure(load(parser.parse_args().locomo))
    measure(one_speaker())
