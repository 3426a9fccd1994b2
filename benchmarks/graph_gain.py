r"""Measures what the graph adds to a search: with the default weights against the same without graph and second hop.

    python benchmarks/graph_gain.py --multihop musique.json --corpus musique_corpus.json --locomo locomo10.json \
        --chats benchmarks/chats > benchmarks/results/graph-gain.md

Writes Markdown: for each data set, and in it by the number of hops (of messages that answer, where the data does not
tell hops), recall@10 with and without the graph, and the mean of the paired differences with its 95 % interval. Then
questions whose answer only the search with the graph has among the first ten, and such that it pushed out, with both
rankings. Texts are quoted from MuSiQue (CC BY 4.0) and from our own chats alone.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from graphmem import Memory
from graphmem.cli.render import ProgressBar
from graphmem.evaluation import chats, locomo, multihop
from graphmem.evaluation.datasets import BenchmarkQuestion, Dataset
from graphmem.evaluation.metrics import paired_difference
from graphmem.evaluation.runner import SEARCH_FUNCTIONS, store

TOP_K, SHOWN, EXAMPLES = 10, 5, 10
QUOTED_CHARS, NODE_CHARS = 110, 50
WITH, WITHOUT = "full", "order"
# LOCOMO's texts may not be used commercially, so none of them is quoted.
QUOTED = frozenset({"musique", chats.NAME})
# What a data set calls its hops; the number of messages that answer stands in where it calls them nothing.
HOPS = ("hops", "gold turns")


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with the first ten of both rankings, as keys of messages."""

    data: Dataset
    case: BenchmarkQuestion
    rankings: Mapping[str, Sequence[str]]
    path: str

    def recall(self, name: str) -> float:
        """Returns the share of gold among the first ten."""
        return len(self.case.gold.intersection(self.rankings[name])) / len(self.case.gold)

    @property
    def gain(self) -> float:
        """What the graph adds to the recall."""
        return self.recall(WITH) - self.recall(WITHOUT)

    @property
    def groups(self) -> Iterator[tuple[str, str]]:
        """The rows of the table to which the question counts."""
        yield self.data.name, "all"
        hops = next((group.value for group in self.case.groups if group.by in HOPS), str(len(self.case.gold)))
        yield self.data.name, f"hops: {hops if hops in ('1', '2', '3') else '4 and more'}"


def ask(memory: Memory, data: Dataset, progress: Callable[[str, int, int], None]) -> Iterator[Asked]:
    """Stores a data set and yields its questions, asked with and without the graph."""
    keys = store(memory, data, progress).keys
    for number, case in enumerate(data.cases, 1):
        rankings = {
            name: [keys[uid] for uid in SEARCH_FUNCTIONS[name](memory, case, TOP_K)] for name in (WITH, WITHOUT)
        }
        yield Asked(data, case, rankings, _path(memory, case, keys, rankings))
        progress("questions", number, len(data.cases))


def _path(
    memory: Memory, case: BenchmarkQuestion, keys: Mapping[str, str], rankings: Mapping[str, Sequence[str]]
) -> str:
    """Returns the path to the first message that answers and only the graph found; "" if there is none."""
    won = case.gold.intersection(rankings[WITH]) - set(rankings[WITHOUT])
    if not won:
        return ""
    hits = memory.search(
        case.question, user_id=case.partition, top_k=TOP_K, reference_date=case.query_time, explain=True
    )["results"]
    path: list[Any] = next(hit["explain"]["path"] for hit in hits if keys[hit["id"]] in won)
    return " → ".join(_node(node) for node in path)


def _node(node: Mapping[str, Any]) -> str:
    if node["type"] == "memory":
        return _quoted(node["memory"], NODE_CHARS)
    return f"({node['name'] if node['type'] == 'entity' else node['predicate']})"


def table(asked: Sequence[Asked]) -> Iterator[str]:
    """Yields what the graph adds to the recall by data set and hops, first which of it is within noise."""
    groups = defaultdict[tuple[str, str], list[Asked]](list)
    for one in asked:
        for row in one.groups:
            groups[row].append(one)
    order = {name: place for place, name in enumerate(dict.fromkeys(one.data.name for one in asked))}
    rows, noise = list[str](), list[str]()
    for (name, group), members in sorted(groups.items(), key=lambda item: (order[item[0][0]], item[0][1])):
        first, second = ([one.recall(search) for one in members] for search in (WITH, WITHOUT))
        gain = paired_difference(first, second)
        interval = ""
        if gain.low is not None and gain.high is not None:
            interval = f" [{100 * gain.low:.1f}, {100 * gain.high:.1f}]"
            noise += [f"{name}, {group}"] if gain.low <= 0 <= gain.high else []
        difference = round(100 * gain.mean, 1) + 0.0  # no "-0.0"
        figures = f"{100 * fmean(first):.1f} | {100 * fmean(second):.1f} | {difference:+.1f}{interval}"
        rows.append(f"| {name}, {group} | {len(members)} | {figures} |")
    yield f"Within noise: {'; '.join(noise) or 'nothing'}.\n"
    yield "| recall@10 in percent | questions | with | without | difference |"
    yield "|---|---|---|---|---|"
    yield from rows


def examples(asked: Sequence[Asked], *, gains: bool) -> Iterator[str]:
    """Yields the questions that the graph helps most, or harms most, taken from the quoted data sets in turn."""
    by_data = defaultdict[str, list[Asked]](list)
    for one in sorted(asked, key=lambda one: one.gain, reverse=gains):
        if one.data.name in QUOTED and (one.gain > 0 if gains else one.gain < 0):
            by_data[one.data.name].append(one)
    chosen: list[Asked] = []
    while len(chosen) < EXAMPLES and any(by_data.values()):
        chosen += [members.pop(0) for members in by_data.values() if members]
    for number, one in enumerate(chosen[:EXAMPLES], 1):
        texts = {str(message["id"]): str(message["content"]) for message in one.data.partitions[one.case.partition]}
        yield f"{number}. **{_quoted(one.case.question, 300)}** ({one.data.name})"
        if one.path:
            yield f"   - path: {one.path}"
        for name, words in ((WITH, "with"), (WITHOUT, "without")):
            ranking = one.rankings[name]
            places = [str(ranking.index(key) + 1) if key in ranking else "–" for key in sorted(one.case.gold)]
            yield f"   - {words}, answers at {', '.join(places)}:"
            for key in ranking[:SHOWN]:
                yield f"     - {'**✓** ' if key in one.case.gold else ''}{_quoted(texts[key], QUOTED_CHARS)}"


def _quoted(text: str, length: int) -> str:
    line = " ".join(text.split()).replace("*", "\\*").replace("|", "\\|").replace("<", "&lt;")
    return line if len(line) <= length else f"{line[: length - 1].rstrip()}…"


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--multihop", type=Path)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--locomo", type=Path)
    parser.add_argument("--chats", type=Path)
    arguments = parser.parse_args()
    data = [
        *([multihop.load(arguments.multihop, arguments.corpus)] if arguments.multihop else []),
        *([locomo.load(arguments.locomo)] if arguments.locomo else []),
        *([chats.load(arguments.chats)] if arguments.chats else []),
    ]
    if not data:
        parser.error("name data: --multihop, --locomo or --chats")
    asked: list[Asked] = []
    for one in data:
        with Memory(":memory:") as memory, ProgressBar() as bar:
            asked += ask(memory, one, bar.update)
    print("# What the graph adds\n", *table(asked), sep="\n")
    print("\n## Questions that only the search with the graph answers\n", *examples(asked, gains=True), sep="\n")
    print("\n## Questions that the graph harms\n", *examples(asked, gains=False), sep="\n")


if __name__ == "__main__":
    main()
