"""Measures how much evidence a prompt block has, when `context()` leaves everything out, and when a search suffices.

    python benchmarks/enough.py locomo10.json                                      # LOCOMO's form
    python benchmarks/enough.py benchmarks/chats --every 9
    python benchmarks/enough.py musique.json --corpus musique_corpus.json > benchmarks/results/enough-musique-dev.json

`evidence`: by length of the block in characters, its frame included, the share of gold messages whose answering
sentences are in it (`graphmem.evaluation.blocks`), in `whole` those that are in it with all their words: of
`context`, of `context` without a least relevance, of search hits in their order as lines that are cut at
the length, and of the hits of dense + BM25 likewise.

`kinds`, of data in LOCOMO's form (`benchmarks/chinese/chats.json` is one, too), then of thirty sentences of one Chinese
speaker (`enough.json`), whose questions name nobody: the share of searches that suffice (`fallback.is_sufficient`) and
of empty contexts. "found" and "missed" are the file's own questions, with or without evidence among the first five
hits, "foreign" those asked in another conversation, "weak" and "off" those of `enough.json`: that need their
conversation, and about other things.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from graphmem import Memory
from graphmem.cli.render import ProgressBar
from graphmem.evaluation import chats, locomo, multihop
from graphmem.evaluation.blocks import evidence_of, shares
from graphmem.evaluation.datasets import BenchmarkQuestion, Dataset, Message, QuestionGroup
from graphmem.evaluation.environment import environment
from graphmem.evaluation.runner import SEARCH_FUNCTIONS, store
from graphmem.model import ASSISTANT, Scope, View
from graphmem.retrieval import context
from graphmem.retrieval.fallback import is_sufficient
from graphmem.retrieval.pipeline import search
from graphmem.retrieval.types import SearchQuery
from graphmem.text import mostly_latin

QUESTIONS = json.loads((Path(__file__).parent / "enough.json").read_text("utf-8"))
LENGTHS = (600, 1200, 2400)
DECIMALS = 3
TOP_K, IN_CONTEXT, HITS, FOREIGN = 5, 20, 50, 200
ONE_SPEAKER = "one speaker"

Shares = dict[str, dict[int, tuple[float, float]]]
"""By source of the block and its length: the shares of `evidence.shares`."""


class Blocks:
    """Makes blocks of one question from each source; `keys` are the messages' keys by memory id."""

    def __init__(self, memory: Memory, data: Dataset, keys: Mapping[str, str]) -> None:
        self._memory = memory
        self._keys = keys
        self._messages = data.messages_by_id()

    def shares(self, case: BenchmarkQuestion) -> Shares:
        """Returns the shares of a question's evidence that are in blocks from each source, of each length."""
        embed = self._memory.engine.search_deps.embedder.embed
        messages = self._messages[case.partition]
        evidence = [evidence_of(messages[key]["content"], case, embed) for key in sorted(case.gold)]
        return {
            source: {length: shares(block, evidence) for length, block in blocks.items()}
            for source, blocks in self._blocks(case)
        }

    def _blocks(self, case: BenchmarkQuestion) -> Iterator[tuple[str, dict[int, str]]]:
        """Yields (source, blocks by length)."""
        asked: dict[str, Any] = {"user_id": case.partition, "reference_date": case.query_time}
        options: Mapping[str, Any]
        for name, options in (("context", {}), ("context, all hits", {"threshold": None})):
            blocks = [self._memory.context(case.question, max_chars=most, **asked, **options) for most in LENGTHS]
            yield name, dict(zip(LENGTHS, blocks, strict=True))
        for name, configuration in (("search, cut", "full"), ("dense + BM25, cut", "hybrid")):
            hits = SEARCH_FUNCTIONS[configuration](self._memory, case, HITS)
            lines = "".join(_line(self._messages[case.partition][self._keys[uid]]) for uid in hits)
            frame = len(context.OPEN) + len(context.CLOSE)
            yield name, {most: context.block([lines[: most - frame]]) for most in LENGTHS}


def _line(message: Message) -> str:
    speaker = message.get("name") or (ASSISTANT if message["role"] == ASSISTANT else None)
    return context.memory_line(message["content"], str(message["timestamp"]), speaker)


class Count:
    """Counts sufficient searches and empty contexts by kind of question; `keys` are the messages' keys by memory id."""

    def __init__(self, memory: Memory, keys: Mapping[str, str]) -> None:
        self._memory = memory
        self._keys = keys
        self._enough: dict[str, list[bool]] = defaultdict(list)
        self._empty: dict[str, list[bool]] = defaultdict(list)

    def ask(self, user: str, question: str, kind: str, gold: frozenset[str] = frozenset()) -> None:
        """Asks one question, whose evidence is `gold`."""
        view = View(Scope(user), datetime.now(UTC), Scope(user).partition)
        query = SearchQuery(question, view, TOP_K, min_relevance="default", for_prompt=True)
        few = search(query, self._memory.engine.search_deps)
        if gold:
            kind = "found" if gold & {self._keys[hit.record.id] for hit in few.hits} else "missed"
        self._enough[kind].append(is_sufficient(few))
        self._empty[kind].append(not self._memory.context(question, user_id=user))

    def figures(self) -> dict[str, Any]:
        """Returns the counts by kind."""
        return {
            kind: {
                "n": len(flags),
                "sufficient": round(fmean(flags), DECIMALS),
                "empty": round(fmean(self._empty[kind]), DECIMALS),
            }
            for kind, flags in sorted(self._enough.items())
        }


def measure(data: Dataset, every: int = 1) -> dict[str, Any]:
    """Returns the figures of a data set, of whose questions every so many are asked; "kinds" of conversations only."""
    cases = data.cases[::every]
    with Memory(":memory:") as memory, ProgressBar() as bar:
        keys = store(memory, data, bar.update).keys
        blocks, measured = Blocks(memory, data, keys), list[Shares]()
        for number, case in enumerate(cases, 1):
            measured.append(blocks.shares(case))
            bar.update("questions", number, len(cases))
        kinds = _kinds(data, cases, Count(memory, keys)) if data.name in {locomo.NAME, ONE_SPEAKER} else {}
        models = {"embedder": str(memory.stats()["embedder"])}
    return {
        "data": {
            "name": data.name,
            "files": [asdict(source) for source in data.sources],
            "messages": data.messages,
            "questions": len(cases),
            "gold": sum(len(case.gold) for case in cases),
        },
        "models": models,
        "figures": list(_figures(cases, measured)),
        "kinds": kinds,
    }


def _figures(cases: Sequence[BenchmarkQuestion], measured: Sequence[Shares]) -> Iterator[dict[str, Any]]:
    """Yields mean shares by group of questions, all of the data first."""
    groups: dict[QuestionGroup, list[tuple[BenchmarkQuestion, Shares]]] = {}
    for case, of_case in zip(cases, measured, strict=True):
        for group in (QuestionGroup("all", "all", "all"), *case.groups):
            groups.setdefault(group, []).append((case, of_case))
    for group, members in sorted(groups.items(), key=lambda item: (item[0].data != "all", item[0])):
        figure: dict[str, Any] = {**asdict(group), "n": len(members)}
        for place, name in enumerate(("evidence", "whole")):
            figure[name] = {
                source: {
                    str(length): round(_mean([(case, one[source][length][place]) for case, one in members]), DECIMALS)
                    for length in LENGTHS
                }
                for source in members[0][1]
            }
        yield figure


def _mean(values: Sequence[tuple[BenchmarkQuestion, float]]) -> float:
    """Returns the mean over gold messages of shares by question."""
    return sum(len(case.gold) * value for case, value in values) / sum(len(case.gold) for case, _ in values)


def _kinds(data: Dataset, cases: Sequence[BenchmarkQuestion], count: Count) -> dict[str, Any]:
    language = "en" if mostly_latin(data.cases[0].question) else "zh"
    chance, users = random.Random(7), list(data.partitions)  # noqa: S311  (a sample, no secret)
    for case in cases:
        count.ask(case.partition, case.question, "", case.gold)
    for case in chance.sample(cases, min(FOREIGN, len(cases))) if len(users) > 1 else ():
        count.ask(chance.choice([user for user in users if user != case.partition]), case.question, "foreign")
    for kind in ("weak", "off"):
        for user in users:
            for question in QUESTIONS[f"{kind}_{language}"]:
                count.ask(user, question, kind)
    return count.figures()


def one_speaker() -> Dataset:
    """The thirty sentences, a day apart, with their questions."""
    messages = [
        {"role": "user", "content": text, "id": str(n), "timestamp": f"2024-01-{n + 1:02}"}
        for n, text in enumerate(QUESTIONS["said_zh"])
    ]
    cases = [BenchmarkQuestion(question, frozenset({str(n)}), "u", ()) for question, n in QUESTIONS["clear_zh"]]
    return Dataset(ONE_SPEAKER, {"u": tuple(messages)}, tuple(cases), {}, ())


def main() -> None:
    """Measures the data that the command line names; prints the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "path", type=Path, help="a file in LOCOMO's form; with --corpus in MuSiQue's; a folder of chats"
    )
    parser.add_argument("--corpus", type=Path, help="all passages of a file in MuSiQue's form")
    parser.add_argument("--every", type=int, default=1, help="ask every so many questions")
    options = parser.parse_args()
    if options.corpus is not None:
        datasets = [multihop.load(options.path, options.corpus)]
    elif options.path.is_dir():
        datasets = [chats.load(options.path)]
    else:
        datasets = [locomo.load(options.path), one_speaker()]
    report = {
        "benchmark": "enough",
        **environment(),
        "arguments": {"every": options.every, "lengths": LENGTHS, "hits": HITS},
        "measured": [measure(data, 1 if data.name == ONE_SPEAKER else options.every) for data in datasets],
    }
    print(json.dumps(report, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    main()
