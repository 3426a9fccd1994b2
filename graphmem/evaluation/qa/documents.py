"""Writes a report as Markdown and as a figure in SVG. Texts of a results file are data: they are escaped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

# Of the figure, in pixels: height of a row, widths of the labels, of the axis and of the column of tokens, margins.
_ROW, _LABELS, _AXIS, _TOKENS, _MARGIN, _HEAD = 26, 150, 420, 110, 16, 44
_BAR, _INK, _GRID = "#4c78a8", "#222", "#ddd"


def markdown(report: Mapping[str, Any], figure: str) -> str:
    """Returns the report as a page; `figure` is the name of the file with the figure."""
    return "\n".join(_page(report, figure)) + "\n"


def _page(report: Mapping[str, Any], figure: str) -> Iterator[str]:
    data, models, judges = report["data"], report["models"], report["models"]["judges"]
    names = ", ".join(f"{_cell(source['name'])} (SHA-256 {source['sha256'][:12]}…)" for source in data["files"])
    yield f"# Answers: {_cell(data['name'])}"
    yield ""
    yield f"{report['questions']} questions about {report['conversations']} conversations of {names}."
    yield f"Answers by {_cell(models['answer'])}; judges: {', '.join(map(_cell, judges)) or 'none'};"
    yield f"the memory's model: {_cell(models['memory'] or 'none')}; embedder: {_cell(models['embedder'])}."
    yield f"In brackets the {report['arguments']['interval_percent']} % interval by conversation."
    yield ""
    yield f"![Shares of right answers by system]({figure})"
    for group in report["figures"]:
        title = "All questions" if group["category"] == "all" else f"Category {_cell(group['category'])}"
        yield from ("", f"## {title}{f' ({_cell(name)})' if (name := group['name']) else ''}", "")
        yield from _table(group["systems"], judges)
    yield from ("", "## Time and tokens", "")
    yield from _costs(report["figures"][0]["systems"])
    for pair in report["agreement"]:
        kappa = "undefined" if pair["kappa"] is None else f"{pair['kappa']:.3f}"
        shared = "-" if pair["agree"] is None else f"{100 * pair['agree']:.1f} %"
        yield ""
        yield f"{_cell(pair['judges'][0])} and {_cell(pair['judges'][1])} agree on {shared} of {pair['n']} answers; "
        yield f"Cohen's kappa {kappa}."
    yield from ("", "## Circumstances", "")
    yield f"- {report['date']}, graphmem {report['versions']['graphmem']}, {_cell(report['machine']['model'])}, "
    yield f"  {report['machine']['cpus']} CPUs, Python {report['machine']['python']}"
    yield f"- left out by their label: {report['arguments']['left_out']}"
    yield from (f"- left out: {count} {_cell(reason)}" for reason, count in data["left_out"].items())


def _table(systems: Mapping[str, Any], judges: Sequence[str]) -> Iterator[str]:
    heads = ["system", "n", *(f"right ({_cell(judge)})" for judge in judges), "F1", "BLEU-1", "evidence", "unjudged"]
    yield _row(heads)
    yield _row(["---", *["---:"] * (len(heads) - 1)])
    for name, one in systems.items():
        shares = [interval(value) for value in (*one["right"], one["f1"], one["bleu_1"], one["evidence_recall"])]
        yield _row([_cell(name), str(one["n"]), *shares, "/".join(map(str, one["unjudged"])) or "-"])


def _costs(systems: Mapping[str, Any]) -> Iterator[str]:
    yield _row(
        ["system", "search p50", "p95", "total p50", "p95 (ms)", "tokens/question", "tokens/conversation", "failed"]
    )
    yield _row(["---", *["---:"] * 7])
    for name, one in systems.items():
        times = [f"{one[key][percent]:.1f}" for key in ("search_ms", "total_ms") for percent in ("p50", "p95")]
        counts = [str(one[key]) for key in ("tokens_per_question", "tokens_per_conversation", "failed")]
        yield _row([_cell(name), *times, *counts])


def interval(value: Mapping[str, Any] | None) -> str:
    """Returns a mean between 0 and 1 in percent with its interval: "61.5 [58.0,64.9]"; "-" for None."""
    if value is None:
        return "-"
    bounds = "" if value["low"] is None else f" [{100 * value['low']:.1f},{100 * value['high']:.1f}]"
    return f"{100 * value['mean']:.1f}{bounds}"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(text: object) -> str:
    """Returns a text of one line that is no markup in a table of Markdown."""
    line = " ".join(escape(str(text)).split())
    return "".join(f"\\{sign}" if sign in "|`*_[]\\" else sign for sign in line)


def svg(report: Mapping[str, Any]) -> str:
    """Returns a figure: for each system the share of right answers with its interval, and the tokens of a question.

    Right is what the first judge says, without a judge the F1.
    """
    systems = report["figures"][0]["systems"]
    judges = report["models"]["judges"]
    title = f"right answers by {judges[0]}" if judges else "token F1"
    height = _HEAD + _ROW * len(systems) + 2 * _MARGIN
    width = _LABELS + _AXIS + _TOKENS + 2 * _MARGIN
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12" fill="{_INK}">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        _text(_LABELS, 18, f"{title}, %"),
        _text(width - _MARGIN, 18, "tokens/question", "end"),
    ]
    for percent in range(0, 101, 20):
        x = _x(percent / 100)
        parts.append(f'<line x1="{x}" y1="{_HEAD - 4}" x2="{x}" y2="{height - _MARGIN}" stroke="{_GRID}"/>')
        parts.append(_text(x, _HEAD - 8, str(percent), "middle"))
    for place, (name, one) in enumerate(systems.items()):
        parts += _bar(
            _HEAD + _ROW * place, name, (one["right"][0] if judges else one["f1"]), one["tokens_per_question"]
        )
    return "\n".join([*parts, "</svg>", ""])


def _bar(top: int, name: str, value: Mapping[str, Any] | None, tokens: int) -> Iterator[str]:
    middle = top + _ROW // 2
    yield _text(_LABELS - 8, middle + 4, name, "end")
    yield _text(_LABELS + _AXIS + _TOKENS, middle + 4, f"{tokens:,}", "end")
    if value is None:
        return
    length = _x(value["mean"]) - _LABELS
    yield f'<rect x="{_LABELS}" y="{top + 5}" width="{length:.1f}" height="{_ROW - 10}" fill="{_BAR}"/>'
    if value["low"] is not None:
        low, high = _x(value["low"]), _x(value["high"])
        yield f'<line x1="{low}" y1="{middle}" x2="{high}" y2="{middle}" stroke="{_INK}" stroke-width="2"/>'


def _x(share: float) -> float:
    return round(_LABELS + _AXIS * share, 1)


def _text(x: float, y: float, words: str, anchor: str = "start") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{escape(" ".join(words.split()))}</text>'
