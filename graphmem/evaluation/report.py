"""What a benchmark tells: everything as JSON, the main figures as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from statistics import fmean
from typing import TYPE_CHECKING, Any

from graphmem.evaluation import metrics
from graphmem.evaluation.datasets import Dataset, QuestionGroup
from graphmem.evaluation.environment import environment
from graphmem.evaluation.runner import DEPTH, TOP_K, RunResult, StoredMessages

if TYPE_CHECKING:
    from graphmem.cli.render import Renderer

DIGITS = 4
# The measures that are compared, and those that a line of a terminal has room for.
COMPARED = ("recall@10", "all@10")
COLUMN_LABELS = {
    **{f"recall@{k}": f"R@{k}" for k in metrics.DEPTHS},
    "any@10": "any@10",
    "all@10": "all@10",
    "mrr": "MRR",
    f"ndcg@{metrics.NDCG_DEPTH}": "nDCG",
    **{f"recall within {budget} tokens": f"R{budget}t" for budget in metrics.BUDGETS},
}
WIDTH = 7

Pair = tuple[str, str]


def report(dataset: Dataset, outcome: RunResult, pairs: Sequence[Pair], models: Mapping[str, str]) -> dict[str, Any]:
    """Everything that was measured and how, ready for JSON. A pair names two configurations, first minus second."""
    return {
        "benchmark": dataset.name,
        **environment(),
        "models": dict(models),
        "arguments": {
            "depth": DEPTH,
            "tokens_per_word": metrics.TOKENS_PER_WORD,
            "resamples": metrics.RESAMPLES,
            "seed": metrics.SEED,
            "interval_percent": metrics.CONFIDENCE_LEVEL,
        },
        "data": {
            "files": [asdict(source) for source in dataset.sources],
            "partitions": len(dataset.partitions),
            "messages": dataset.messages,
            "questions": len(dataset.cases),
            "left_out": dict(dataset.left_out),
        },
        "adding": _adding(outcome.stored, dataset.messages),
        "latency": {
            name: {"top_k": TOP_K, "questions": one.questions, "p50_ms": round(one.p50, 1), "p95_ms": round(one.p95, 1)}
            for name, one in outcome.latency.items()
        },
        "figures": [_figure(group, places, outcome, pairs) for group, places in _grouped(dataset)],
    }


def _adding(stored: StoredMessages, messages: int) -> dict[str, float] | None:
    """None if some of the messages were there already."""
    if stored.messages < messages:
        return None
    rate = round(stored.messages / stored.seconds, 1)
    return {"messages": stored.messages, "seconds": round(stored.seconds, 2), "per_second": rate}


def _grouped(dataset: Dataset) -> Iterator[tuple[QuestionGroup, list[int]]]:
    """Each group with the places of its cases; what is together comes before its divisions."""
    found: dict[QuestionGroup, list[int]] = {}
    for place, case in enumerate(dataset.cases):
        for group in case.groups:
            found.setdefault(group, []).append(place)
    order = sorted(found, key=lambda group: (group.data != "pooled", group.data, group.by != "all", group))
    return ((group, found[group]) for group in order)


def _figure(group: QuestionGroup, places: Sequence[int], outcome: RunResult, pairs: Sequence[Pair]) -> dict[str, Any]:
    mine = {name: [scores[place] for place in places] for name, scores in outcome.scores.items()}
    return {
        **asdict(group),
        "n": len(places),
        "measures": {
            name: {measure: round(fmean(one[measure] for one in scores), DIGITS) for measure in scores[0]}
            for name, scores in mine.items()
        },
        "differences": [
            {"of": [one, other], **{measure: _difference(mine[one], mine[other], measure) for measure in COMPARED}}
            for one, other in pairs
        ],
    }


def _difference(
    first: Sequence[Mapping[str, float]], second: Sequence[Mapping[str, float]], measure: str
) -> dict[str, float | None]:
    found = metrics.paired_difference([one[measure] for one in first], [one[measure] for one in second])
    return {name: None if value is None else round(value, DIGITS) for name, value in asdict(found).items()}


# --- for people ----------------------------------------------------------------------------------------------------


def show(screen: Renderer, told: Mapping[str, Any]) -> None:
    """The main figures: a line for each configuration, in 80 columns."""
    _show_data(screen, told["data"])
    width = 1 + max(len(name) for name in told["latency"])
    screen.title("Figures (R: recall, within so many places or tokens)")
    screen.line((" " * width + "".join(f"{name:>{WIDTH}}" for name in COLUMN_LABELS.values()), "dim"))
    for figure in told["figures"]:
        screen.line((_title(figure), "bold"))
        for name, found in figure["measures"].items():
            screen.line(f"{name:<{width}}" + "".join(f"{found[measure]:{WIDTH}.3f}" for measure in COLUMN_LABELS))
    _show_differences(screen, told["figures"])
    _show_times(screen, told)


def _show_data(screen: Renderer, data: Mapping[str, Any]) -> None:
    screen.line(f"questions: {data['questions']}, messages: {data['messages']}, partitions: {data['partitions']}")
    for why, count in data["left_out"].items():
        screen.line((f"left out: {count} {why}", "dim"), indent=2)


def _show_differences(screen: Renderer, figures: Sequence[Mapping[str, Any]]) -> None:
    screen.title(f"Differences, with the {metrics.CONFIDENCE_LEVEL} % interval")
    for figure in figures:
        screen.line((_title(figure), "bold"))
        for found in figure["differences"]:
            for measure in COMPARED:
                screen.line(f"{' minus '.join(found['of']):<18}{measure:<12}{_interval(found[measure])}", indent=2)


def _show_times(screen: Renderer, told: Mapping[str, Any]) -> None:
    screen.title("Time")
    if told["adding"] is not None:
        screen.line("{messages} messages added in {seconds} s, {per_second} per second".format(**told["adding"]))
    for name, one in told["latency"].items():
        screen.line("{}: median {p50_ms} ms, 95 % within {p95_ms} ms, top_k={top_k}".format(name, **one))


def _interval(found: Mapping[str, float | None]) -> str:
    mean, low, high = found["mean"], found["low"], found["high"]
    return f"{mean:+.3f}" + ("" if low is None else f"  [{low:+.3f}, {high:+.3f}]")


def _title(figure: Mapping[str, Any]) -> str:
    what = "all" if figure["by"] == "all" else f"{figure['by']} {figure['value']}"
    return f"{figure['data']}, {what}" + (f" ({figure['name']})" if figure["name"] else "") + f", n={figure['n']}"
