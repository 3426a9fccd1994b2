"""The report of a run in Markdown, from its records alone (`compare_measuring`). Pure functions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from graphmem.evaluation.metrics import DEPTHS, clustered_interval

Record = Mapping[str, Any]
# The depth at which differences are told.
COMPARED = 10
SMALL = """\
**A small run**, of few questions over few messages: it shows that everything works, and its figures mean little.
"""
FOUND = f"""
Recall at 5, 10 and 20 with its 95 % interval by conversation (by question where there is one conversation), and what
graphmem has more at {COMPARED}, question by question, in points."""
COSTS = """
Milliseconds, p50 / p95, of a search for ten hits, of adding one message, and of adding a list, for each of its
messages; in brackets p50 as a multiple of the floor's. Bytes on the disk for each message; "–": not in a folder."""


def recall(question: Record, system: str, k: int) -> float:
    """Returns the share of a question's gold that a system has among its first k."""
    return sum(rank <= k for rank in question["ranks"][system]) / question["gold"]


def share(questions: Sequence[Record], values: Sequence[float], *, signed: bool = False) -> str:
    """Returns the mean of a value of each question in percent, with its 95 % interval: "84.1 [81.2, 87.0]".

    Conversations are drawn, or questions where there is one conversation; a single question has no interval.
    """
    by_conversation = defaultdict[str, list[float]](list)
    for question, value in zip(questions, values, strict=True):
        by_conversation[question["partition"]].append(value)
    clusters = list(by_conversation.values()) if len(by_conversation) > 1 else [[value] for value in values]
    interval = clustered_interval(clusters)
    shown = f"{100 * fmean(values):{'+' * signed}.1f}"
    return shown if interval is None else f"{shown} [{100 * interval[0]:.1f}, {100 * interval[1]:.1f}]"


def times(milliseconds: Sequence[float], floor: Sequence[float]) -> str:
    """Returns p50 and p95, and p50 as a multiple of the floor's: "12.0 / 20.1 (×3.0)"."""
    low, high = np.percentile(milliseconds, (50, 95))
    return f"{low:.1f} / {high:.1f} (×{low / np.percentile(floor, 50):.1f})"


def report(run: Record, records: Sequence[Record]) -> Iterator[str]:
    """Yields the lines of the report: how it was run, what is found, what it costs, what was used of each system."""
    groups = defaultdict[tuple[str, str], list[Record]](list)
    for one in records:
        if one["kind"] == "question" and one["data"] not in run["timed"]:
            groups[one["data"], one["group"]].append(one)
    data = [name for name, _ in groups]
    columns = {
        name if data.count(name) == 1 else f"{name}: {group}": questions for (name, group), questions in groups.items()
    }
    yield "# graphmem beside other memories\n"
    yield from _circumstances(run)
    if columns:
        yield "\n## What is found\n"
        yield from _overview(columns, run["systems"])
        yield FOUND
        for label, questions in columns.items():
            yield from _with_intervals(label, questions, run)
    # A run that was interrupted has not all of them.
    if timed := [name for name in run["timed"] if any(one["kind"] == "add" and one["data"] == name for one in records)]:
        yield "\n## What it costs"
        yield COSTS
        for name in timed:
            yield from _costs([one for one in records if one["data"] == name], run)
    yield "\n## What was used\n"
    yield from _used(run)


def _circumstances(run: Record) -> Iterator[str]:
    if run["small"]:
        yield SMALL
    commit, machine = run["commit"], run["machine"]
    code = "code" if commit is None else f"commit {commit['id'][:10]}{' with changes' if commit['changed'] else ''}"
    yield f"{run['date'][:10]}, {machine['cpus']} cores ({machine['model']}), Python {machine['python']}, {code}."
    yield """\
All systems hold the same texts, with the speaker's name in front, and are asked the same questions in turn in one
process. All have the same encoder, graphmem's MiniLM, by their own interfaces for that. It reads English only; for
other languages graphmem has a second one, so that over Chinese the others have little but words. graphmem is also told
what they have no use for: when something is said, and when it is asked. mem0 stores the messages as they are: what its
language model would draw from them is not measured. graphmem's weights were fitted to these data sets, but for
`held-out`."""
    for name, reason in run["left_out"].items():
        yield f"\nLeft out: {name} ({reason})."


def _overview(columns: Mapping[str, Sequence[Record]], systems: Sequence[str]) -> Iterator[str]:
    heads = [f"{label}, {len(questions)}" for label, questions in columns.items()]
    yield f"| recall at 5/10/20 in percent; questions | {' | '.join(heads)} |"
    yield "|---" * (len(heads) + 1) + "|"
    for system in systems:
        cells = [
            "/".join(f"{100 * fmean(recall(one, system, k) for one in questions):.0f}" for k in DEPTHS)
            for questions in columns.values()
        ]
        yield f"| {system} | {' | '.join(cells)} |"


def _with_intervals(label: str, questions: Sequence[Record], run: Record) -> Iterator[str]:
    heads = [*(f"at {k}" for k in DEPTHS), f"{run['own']} minus it at {COMPARED}"]
    yield f"\n| {label}: {len(questions)} questions | {' | '.join(heads)} |"
    yield "|---" * (len(heads) + 1) + "|"
    own = [recall(one, run["own"], COMPARED) for one in questions] if run["own"] in run["systems"] else None
    for system in run["systems"]:
        cells = [share(questions, [recall(one, system, k) for one in questions]) for k in DEPTHS]
        more = ""
        if own is not None and system != run["own"]:
            theirs = [recall(one, system, COMPARED) for one in questions]
            more = share(questions, [mine - its for mine, its in zip(own, theirs, strict=True)], signed=True)
        yield f"| {system} | {' | '.join([*cells, more])} |"


def _costs(records: Sequence[Record], run: Record) -> Iterator[str]:
    stored = next(one for one in records if one["kind"] == "stored")
    searches = [one["ms"] for one in records if one["kind"] == "question"]
    adds = [one for one in records if one["kind"] == "add"]
    single = [one["ms"] for one in adds if one["messages"] == 1]
    lists = [{name: ms / one["messages"] for name, ms in one["ms"].items()} for one in adds if one["messages"] > 1]
    size = max(one["messages"] for one in adds)
    head = f"{stored['messages']} messages, {len(searches)} questions"
    yield f"\n| {head} | search | add one | add {size}, each | bytes |"
    yield "|---|---|---|---|---|"
    for system in run["systems"]:
        columns = (
            times([one[system] for one in group], [one[run["floor"]] for one in group])
            for group in (searches, single, lists)
        )
        size_on_disk = stored["bytes"][system]
        shown = "–" if size_on_disk is None else f"{size_on_disk / stored['messages']:,.0f}"
        yield f"| {system} | {' | '.join(columns)} | {shown} |"


def _used(run: Record) -> Iterator[str]:
    yield "| | packages | settings |"
    yield "|---|---|---|"
    for system in run["systems"]:
        used = run["used"][system]
        packages = ", ".join(f"{name} {version}" for name, version in used["packages"].items())
        yield f"| {system} | {packages} | {used['settings']} |"
