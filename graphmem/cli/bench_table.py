"""Prints the main figures of a benchmark report as tables for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from graphmem.cli.render import one_line
from graphmem.evaluation import languages, metrics
from graphmem.evaluation.qa.report import DIFFERENT_QUESTIONS, interval
from graphmem.evaluation.runner import EVERYTHING

if TYPE_CHECKING:
    from graphmem.cli.render import Renderer

# The measures that fit on a line of 80 columns, with their column headings.
COLUMN_LABELS = {
    **{f"recall@{k}": f"R@{k}" for k in metrics.DEPTHS},
    "any@10": "any@10",
    "all@10": "all@10",
    "mrr": "MRR",
    f"ndcg@{metrics.NDCG_DEPTH}": "nDCG",
    **{f"recall within {budget} tokens": f"R{budget}t" for budget in metrics.BUDGETS},
}
COLUMN_WIDTH = 7
# A column of figures such as 100/100/100, and that of the language, such as "zh over en".
LANGUAGE_WIDTH = 12
# A column of the names of systems, and the headings of three with an interval each.
SYSTEM_WIDTH = 15
QA_COLUMNS = ("right", "F1", "evidence")


def print_report(renderer: Renderer, report: Mapping[str, Any]) -> None:
    """Prints a report of `build_report`: for each group of questions a line per configuration, in 80 columns."""
    _print_data(renderer, report["data"])
    width = 1 + max(len(configuration) for configuration in report["latency"])
    renderer.title("Figures (R@k: recall among the first k; Rnt: recall within n tokens)")
    renderer.line((" " * width + "".join(f"{label:>{COLUMN_WIDTH}}" for label in COLUMN_LABELS.values()), "dim"))
    for figure in report["figures"]:
        renderer.line((_group_title(figure), "bold"))
        for configuration, values in figure["measures"].items():
            columns = "".join(f"{values[measure]:{COLUMN_WIDTH}.3f}" for measure in COLUMN_LABELS)
            renderer.line(f"{configuration:<{width}}" + columns)
    renderer.title(f"Differences, with the {metrics.CONFIDENCE_LEVEL} % interval")
    for figure in report["figures"]:
        renderer.line((_group_title(figure), "bold"))
        for difference in figure["differences"]:
            pair = " minus ".join(difference["of"])
            for measure in EVERYTHING.compared:
                renderer.line(f"{pair:<18}{measure:<12}{_interval(difference[measure])}", indent=2)
    _print_times(renderer, report)


# Columns of the everyday questions: heading and width by the figure.
ANSWER_COLUMNS = {
    "n": ("n", 5),
    "in": ("in", 6),
    "exact": ("exact", 6),
    "precision": ("prec.", 6),
    "silent": ("silent", 7),
    "lines": ("lines", 6),
    "search@5": ("s@5", 6),
    "search@20": ("s@20", 6),
}


def print_answers(renderer: Renderer, report: Mapping[str, Any]) -> None:
    """Prints a report of everyday questions: for each group a line for those with an answer and for those without."""
    data, width = report["data"], 1 + max(len(figure["value"]) for figure in report["figures"])
    renderer.line(f"cases: {data['cases']}, partitions: {data['partitions']}, questions: {data['questions']}")
    renderer.title("Context (in: all that is needed; exact: nothing else), and search (s@k: among the first k)")
    renderer.line((" " * width + "".join(f"{name:>{columns}}" for name, columns in ANSWER_COLUMNS.values()), "dim"))
    for figure in report["figures"]:
        cells = (_cell(figure.get(key), columns) for key, (_, columns) in ANSWER_COLUMNS.items())
        renderer.line(f"{figure['value']:<{width}}" + "".join(cells))
    renderer.title("Time")
    renderer.line("median: context {context_p50_ms} ms, search {search_p50_ms} ms".format(**report["latency"]))


def print_mine(renderer: Renderer, report: Mapping[str, Any]) -> None:
    """Prints a report of judged questions: the figures, what was missed and why, and what changed since."""
    if not report["questions"]:
        renderer.line("nothing is judged yet: say by `graphmem judge` what answers a question, and what does not")
        return
    renderer.line(f"judged questions: {report['questions']}, no longer visible answers: {report['hidden']}")
    for name in ("recall_at_5", "precision_at_5", "silent"):
        value = report[name]
        renderer.line(f"{name:<16}{'–' if value is None else f'{100 * value:.0f} %':>6}")
    for one in report["cases"]:
        faults = [
            *(f"missed {missed['id']}: {missed['why']}" for missed in one["missed"]),
            *(f"wrong {uid}" for uid in one["wrong"]),
            *(["not silent"] if one["silent"] is False else []),
        ]
        if faults:
            renderer.line((one_line(one["query"]), "bold"))
        for fault in faults:
            renderer.line(fault, indent=4)
    if (changes := report.get("compared")) is not None:
        renderer.title(", ".join(f"{len(changes[name])} {name}" for name in ("better", "worse", "same")))
        if not any(changes.values()):
            renderer.line(
                "nothing to compare: that run asked none of these questions, or was measured by other verdicts"
            )
        for name in ("better", "worse"):
            for query in changes[name]:
                renderer.line(f"{name}: {one_line(query)}", indent=4)


def _cell(value: float | None, columns: int) -> str:
    text = "" if value is None else str(value) if isinstance(value, int) else f"{value:.2f}"
    return f"{text:>{columns}}"


def print_qa(renderer: Renderer, report: Mapping[str, Any]) -> None:
    """Prints a report of answers: for each group of questions a line per system, then times and tokens."""
    judges, everything = report["models"]["judges"], report["figures"][0]["systems"]
    renderer.line(f"questions: {report['questions']}, conversations: {report['conversations']}")
    if not report["same_questions"]:
        renderer.line((DIFFERENT_QUESTIONS, "bold"))
    for reason, count in report["data"]["left_out"].items():
        renderer.line((f"left out: {count} {reason}", "dim"), indent=2)
    renderer.title(f"In percent, with the {metrics.CONFIDENCE_LEVEL} % interval by conversation")
    for group in report["figures"]:
        name = f" ({group['name']})" if group["name"] else ""
        renderer.line((f"category {group['category']}{name}" if group["category"] != "all" else "all", "bold"))
        renderer.line((f"{'':{SYSTEM_WIDTH}}{'n':>5} " + "".join(f"{head:<20}" for head in QA_COLUMNS), "dim"))
        for system, one in group["systems"].items():
            right = one["right"][0] if judges else None
            cells = "".join(f"{interval(value):<20}" for value in (right, one["f1"], one["evidence_recall"]))
            renderer.line(f"{system:<{SYSTEM_WIDTH}}{one['n']:>5} {cells}")
    renderer.title("Time in ms (median, 95 % within) and tokens")
    renderer.line((f"{'':{SYSTEM_WIDTH}}{'search':>9}{'':9}{'total':>9}{'':9}{'question':>12}{'stored':>12}", "dim"))
    for system, one in everything.items():
        times = "".join(f"{one[key][part]:>9}" for key in ("search_ms", "total_ms") for part in ("p50", "p95"))
        taken = (one["tokens_per_question"], one["tokens_per_conversation"])
        tokens = "".join(f"{'-' if count is None else count:>12}" for count in taken)
        renderer.line(f"{system:<{SYSTEM_WIDTH}}{times}{tokens}")
    for name, counts in (
        ("failed, so wrong", {system: one["failed"] for system, one in everything.items()}),
        ("unjudged", {system: sum(one["unjudged"]) for system, one in everything.items()}),
    ):
        if any(counts.values()):
            renderer.line(f"{name}: {', '.join(f'{system} {count}' for system, count in counts.items() if count)}")
    renderer.title("Asked in all")
    for one in report["spent"]:
        tokens = f"{one['prompt_tokens']:,} tokens in, {one['completion_tokens']:,} out"
        renderer.line(f"{one['role']} ({one['model']}): {one['calls']:,} calls, {tokens}, money {one['cost']:.2f}")
    for pair in report["agreement"]:
        renderer.line(
            "{} answers with verdicts of both judges: agreement {agree}, kappa {kappa}".format(pair["n"], **pair)
        )


def print_forecast(renderer: Renderer, forecast: Mapping[str, Any]) -> None:
    """Prints what a run of answers takes: a line for each role, and for each system."""
    renderer.line(f"questions: {forecast['questions']}")
    for title, rows in (("Models", forecast["roles"]), ("Answers by system", forecast["systems"])):
        renderer.title(f"{title}: about the most")
        renderer.line((f"{'':{SYSTEM_WIDTH}}{'calls':>10}{'tokens in':>14}{'out':>12}{'money':>12}", "dim"))
        for name, row in rows.items():
            money = "-" if row["cost"] is None else f"{row['cost']:.2f}"
            tokens = f"{row['prompt_tokens']:>14,}{row['completion_tokens']:>12,}{money:>12}"
            renderer.line(f"{name:<{SYSTEM_WIDTH}}{row['calls']:>10,}{tokens}")
    fewest = forecast["roles"]["memory"]["fewest_calls"]
    renderer.title("Together")
    asked = {name: row for name, row in forecast["roles"].items() if row["calls"]}
    unpriced = [name for name, row in asked.items() if row["cost"] is None]
    money = "-" if unpriced and len(unpriced) == len(asked) else f"{forecast['cost']:.2f}"
    renderer.line(f"money: {money}; the memory's model is called {fewest:,} times at least")
    if unpriced:
        renderer.line(f"not counted, for want of a price: {', '.join(f'--{name}-price' for name in unpriced)}")


def print_languages(renderer: Renderer, report: Mapping[str, Any]) -> None:
    """Prints a report on parallel languages: for each size of store a line per language and pair, in 80 columns."""
    _print_data(renderer, report["data"])
    (measure,) = languages.MEASUREMENT.compared
    headings = "".join(f"{search:>{LANGUAGE_WIDTH}}" for search in report["latency"])
    for store in dict.fromkeys(figure["data"] for figure in report["figures"]):
        renderer.title(f"Answers among the first {'/'.join(map(str, languages.DEPTHS))} of {store}, in percent")
        renderer.line((f"{'':{LANGUAGE_WIDTH}}{headings}   full minus English, {measure}", "dim"))
        for figure in report["figures"]:
            if figure["data"] == store:
                found = (
                    "/".join(f"{100 * measures[f'recall@{depth}']:.0f}" for depth in languages.DEPTHS)
                    for measures in figure["measures"].values()
                )
                cells = "".join(f"{cell:>{LANGUAGE_WIDTH}}" for cell in found)
                minus = figure.get("minus_baseline")
                difference = "" if minus is None else f"   {_interval(minus['full'][measure])}"
                renderer.line(f"{figure['value']:<{LANGUAGE_WIDTH}}{cells}{difference}")
    _print_times(renderer, report)


def print_lifecycle(renderer: Renderer, report: Mapping[str, Any]) -> None:
    """Prints a report of simulated years: the bars, missed ones first, then what was found and how it grew."""
    data = report["data"]
    renderer.line("persons: {persons}, messages: {messages}, questions: {questions}".format(**data))
    renderer.title("Bars")
    for bar in sorted(report["bars"], key=lambda bar: bar["met"] is not False):
        verdict = {True: "met", False: "MISSED", None: "not measured"}[bar["met"]]
        value = "-" if bar["value"] is None else f"{bar['value']:g}"
        renderer.line(f"{bar['bar']:<46}{value:>9}  {bar['limit']:>7}  {verdict}")
    for scope, figures in report["figures"].items():
        renderer.title(f"Found among {report['arguments']['top_k']}, in percent of the questions: {scope}")
        renderer.line((f"{'':20}{'asked':>7}{'on':>8}{'off':>8}{'equal size':>12}", "dim"))
        totals = {"needed": figures["needed"], "known by a rule": figures["recognised"]}
        for name, shares in {**figures["classes"], **totals}.items():
            found = ("-" if shares[way] is None else shares[way] for way in ("on", "off", "equal"))
            renderer.line(f"{name:<20}{shares['asked']:>7}" + "{:>8}{:>8}{:>12}".format(*found))
    everybody = report["figures"]["all"]
    renderer.title("Why what is found without the lifecycle is not found with it")
    for reason, number in sorted(everybody["lost"].items(), key=lambda pair: -pair[1]):
        renderer.line(f"{number:>7}  {reason}")
    renderer.title("Months, with the lifecycle and growth in percent")
    sizes = ("visible", "memories", "rows", "bytes")
    renderer.line((f"{'':7}" + "".join(f"{name:>10}{'':7}" for name in sizes), "dim"))
    for month in everybody["months"]:
        grown = {name: f"{number:+.1f}" for name, number in month["growth"].get("on", {}).items()}
        renderer.line(month["month"] + "".join(f"{month['on'][name]:>10}{grown.get(name, ''):>7}" for name in sizes))
    if any(month["model"] for month in everybody["months"]):
        renderer.title("Requests to the language model, and tokens, of each month")
        asked = dict.fromkeys(name for month in everybody["months"] for name in month["model"])
        titles = {"prompt_tokens": "tokens in", "completion_tokens": "tokens out"}
        renderer.line((f"{'':7}" + "".join(f"{titles.get(name, name):>12}" for name in asked), "dim"))
        for month in everybody["months"]:
            renderer.line(month["month"] + "".join(f"{month['model'].get(name, 0):>12}" for name in asked))
    renderer.title("Time in ms (median, 99 % within)")
    for name, times in everybody["milliseconds"].items():
        renderer.line(f"{name:<8}{times['p50']:>9}{times['p99']:>9}   of {times['number']}")


def _print_data(renderer: Renderer, data: Mapping[str, Any]) -> None:
    renderer.line(f"questions: {data['questions']}, messages: {data['messages']}, partitions: {data['partitions']}")
    for reason, count in data["left_out"].items():
        renderer.line((f"left out: {count} {reason}", "dim"), indent=2)


def _print_times(renderer: Renderer, report: Mapping[str, Any]) -> None:
    renderer.title("Time")
    if report["adding"] is not None:
        renderer.line("{messages} messages added in {seconds} s, {per_second} per second".format(**report["adding"]))
    for configuration, latency in report["latency"].items():
        line = "{}: median {p50_ms} ms, 95 % within {p95_ms} ms, top_k={top_k}"
        renderer.line(line.format(configuration, **latency))


def _interval(difference: Mapping[str, float | None]) -> str:
    mean, low, high = difference["mean"], difference["low"], difference["high"]
    return f"{mean:+.3f}" + ("" if low is None else f"  [{low:+.3f}, {high:+.3f}]")


def _group_title(figure: Mapping[str, Any]) -> str:
    division = "all" if figure["by"] == "all" else f"{figure['by']} {figure['value']}"
    name = f" ({figure['name']})" if figure["name"] else ""
    return f"{figure['data']}, {division}{name}, n={figure['n']}"
