"""Prints answers of commands for people: with colours in a terminal; in a pipe without colours and line breaks.

Texts of memories are data: they are never read as markup, and control characters in them never reach the terminal.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import tzinfo
from functools import cache
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import typer
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from graphmem.model import REVERSIBLE_EVENTS
from graphmem.times import shown_iso

if TYPE_CHECKING:
    import networkx as nx
    from rich.progress import Progress

# A text, or a text with its style.
Part = str | tuple[str, str]
Json = Mapping[str, Any]

# Columns: lines in a pipe are never broken; in a terminal text gets at least MIN_WIDTH.
PIPE_WIDTH, MIN_WIDTH = 1_000_000, 20
# Characters of a memory in quotations.
QUOTE_CHARS = 160
ID_STYLE = "dim"
# How many of the features for and against a hit's relevance are shown.
SHOWN_SHARES = 3
# Seconds before a progress bar appears, and between the lines that stand for it where there is no terminal.
PROGRESS_DELAY, LINE_INTERVAL = 1.0, 30.0
# Bytes of a KiB.
UNIT = 1024
_BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_VISIBLE = str.maketrans(
    {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\n\t"}
    | {0x7F: "\u2421"}
    | dict.fromkeys(range(0x80, 0xA0), "\ufffd")
    | dict.fromkeys(map(ord, _BIDI), "\ufffd")
)


_ID = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def escape_controls(text: str) -> str:
    """Replaces control characters by their visible symbols (U+2400 ff.) and those that change direction by U+FFFD."""
    return text.replace("\r\n", "\n").translate(_VISIBLE)


def one_line(text: str) -> str:
    """Joins a text's words by single blanks and makes control characters visible."""
    return escape_controls(" ".join(text.split()))


def quoted(text: str) -> str:
    """Returns the first QUOTE_CHARS characters of a text in one line and in quotation marks."""
    short = one_line(text)
    return f"“{short[: QUOTE_CHARS - 1].rstrip()}…”" if len(short) > QUOTE_CHARS else f"“{short}”"


class Renderer:
    """Prints to standard output; each method prints one kind of answer, in the shape in which Memory returns it.

    `zone` returns the time zone of days (None: UTC); it is called when one is printed.
    """

    def __init__(self, zone: Callable[[], tzinfo | None]) -> None:
        self._zone = cache(zone)
        self._console = Console(highlight=False, markup=False, emoji=False)
        if not self._console.is_terminal:
            self._console = Console(highlight=False, markup=False, emoji=False, width=PIPE_WIDTH)

    def line(self, *parts: Part, indent: int = 0, hang: int = 0) -> None:
        """Prints a line, broken to the terminal's width: `indent` columns in, after a break `hang` columns more."""
        lines = Text.assemble(*parts).wrap(self._console, max(MIN_WIDTH, self._console.width - indent - hang))
        for number, line in enumerate(lines):
            line.rstrip()  # the blank at which it was broken
            self._console.print(Text(" " * (indent + hang * (number > 0))).append_text(line), soft_wrap=True)

    def local_time(self, at: str) -> str:
        """Returns an ISO 8601 time of a result by the clock of the time zone."""
        return shown_iso(at, self._zone())

    def day(self, at: str) -> str:
        """Returns the day of an ISO 8601 time of a result."""
        return self.local_time(at)[:10]

    def title(self, words: str) -> None:
        """Prints an empty line and a heading."""
        self.line()
        self.line((words, "bold cyan"))

    def plain(self, words: str) -> None:
        """Prints a text with its own line breaks only, for use by other programs."""
        if words:
            self._console.print(Text(escape_controls(words)), soft_wrap=True)

    # --- memories -------------------------------------------------------------------------------------------------

    def memory(self, record: Json, *prefix: Part) -> None:
        """Prints a memory in two lines: date, speaker and id after the prefix; the text."""
        states = (("valid_to", "until"), ("forgotten_at", "forgotten"))
        ended = [(f"  {word} {self.day(record[name])}", "yellow") for name, word in states if record.get(name)]
        speaker = one_line(record.get("actor_id") or record.get("role") or "")
        self.line(
            *prefix, (self.day(record["at"]), "green"), "  ", (speaker, "bold"), *ended, "  ", (record["id"], ID_STYLE)
        )
        self.line(one_line(record["memory"]), indent=4)

    def memories(self, records: Iterable[Json]) -> None:
        """Prints memories of `get_all`."""
        for record in records:
            self.memory(record)

    def updated_memory(self, result: Json) -> None:
        """Prints the result of `update` or `undo`: the memory and the message."""
        self.memory(result)
        self.line(result["message"])

    def judgement(self, judged: Json) -> None:
        """Prints a judgement in two lines: day, verdict, id of the memory, agent and run that asked; the question."""
        verdict = judged["verdict"] or "taken back"
        asked_by = [f"  {name} {one_line(judged[f'{name}_id'])}" for name in ("agent", "run") if judged[f"{name}_id"]]
        day, uid = (self.day(judged["judged_at"]), "green"), (judged["memory_id"], ID_STYLE)
        self.line(day, "  ", (verdict, "bold"), "  ", uid, *asked_by)
        self.line(one_line(judged["query"]), indent=4)

    def judgements(self, found: Json) -> None:
        """Prints the result of `judgements`, and how many more there are."""
        for judged in found["results"]:
            self.judgement(judged)
        if (more := found["total"] - len(found["results"])) > 0:
            self.line((f"{more:,} more: give a greater --limit", "dim"))

    def hits(self, hits: Sequence[Json]) -> None:
        """Prints the hits of a search with score and relevance and, if explained, with reason and path."""
        for rank, hit in enumerate(hits, 1):
            score, relevance = f"{hit['score']:.2f}", f"{hit['relevance']:.2f}"
            self.memory(hit, f"{rank:2}  ", (score, "magenta"), f"  relevance {relevance}  ")
            if explanation := hit.get("explain"):
                self.line((one_line(explanation["why"]), "italic dim"), indent=4)
                shares = explanation["relevance"].items()  # greatest first
                pro = [f"{name} {share:+.1f}" for name, share in shares if share > 0][:SHOWN_SHARES]
                contra = [f"{name} {share:+.1f}" for name, share in shares if share < 0][:SHOWN_SHARES]
                relevant = f"relevant by {', '.join(pro) or 'nothing'}; against it {', '.join(contra) or 'nothing'}"
                self.line((relevant, "italic dim"), indent=4)
                self.path(explanation["path"])

    def path(self, steps: Sequence[Json], indent: int = 4) -> None:
        """Prints the path to a hit: each memory on a line, below it the entity or relation that leads to the next."""
        if len(steps) < 2:  # noqa: PLR2004  (a path of one step is the hit itself)
            return
        for step in steps:
            if step["type"] == "memory":
                self.line("• ", quoted(step["memory"]), indent=indent, hang=2)
            else:
                name = one_line(step.get("name") or step.get("predicate") or "")
                self.line(("╰─ ", "dim"), (name, "bold yellow"), (" ─╮", "dim"), indent=indent + 2)

    def details(self, record: Json) -> None:
        """Prints the text of a memory and all fields that are not empty."""
        self.line(escape_controls(record["memory"]))
        for name, value in record.items():
            if name != "memory" and value not in (None, {}, []):
                self.pair(name, value)

    def pair(self, name: str, value: object, indent: int = 2, width: int = 15) -> None:
        """Prints a name, in `width` columns, and its value."""
        self.line((f"{one_line(name):<{width}} ", "dim"), one_line(_value_text(value)), indent=indent)

    def history(self, events: Iterable[Json]) -> None:
        """Prints events of a memory, each with the old and the new text."""
        for event in events:
            event_id = f"  {event['id']}" if event["event"] in REVERSIBLE_EVENTS else ""
            reason = f"  {one_line(event['reason'])}" if event.get("reason") else ""
            rule = f"  rule: {event['rule']}" if event.get("rule") else ""
            rule += f", replaced by {event['replaced_by']}" if event.get("replaced_by") else ""
            at = self.local_time(event["updated_at"])[:19].replace("T", " ")
            self.line((at, "green"), "  ", (event["event"], "bold"), reason, rule, (event_id, "dim"))
            if event["old_memory"] is not None:
                self.line(("- " + one_line(event["old_memory"]), "red"), indent=4)
            if event["new_memory"] is not None:
                self.line("+ " + one_line(event["new_memory"]), indent=4)

    def explanation(self, explained: Json) -> None:
        """Prints the result of `explain`: the memory, its messages, mentions, relations and history."""
        self.line(one_line(explained["memory"]))
        self.title("said in")
        for message in explained["messages"]:
            speaker = one_line(message["name"] or message["role"] or "")
            self.line(
                (self.day(message["at"]), "green"), "  ", (speaker, "bold"), "  ", quoted(message["content"]), indent=2
            )
        if "note" in explained:
            self.line((explained["note"], "dim"), indent=2)
        if explained["mentions"]:
            self.title("mentions")
            entities = (f"{one_line(entity['name'])} ({entity['type']})" for entity in explained["mentions"])
            self.line(", ".join(entities), indent=2)
        if explained["relations"]:
            self.title("relations")
            for relation in explained["relations"]:
                self.relation(relation["source"], relation["relationship"], relation["target"])
        self.title("history")
        self.history(explained["events"])

    def relation(self, source: str, predicate: str, target: str) -> None:
        """Prints a relation as an arrow from its subject to its object."""
        self.line(one_line(source), (f" ─{one_line(predicate)}→ ", "dim"), one_line(target), indent=2)

    # --- the graph ------------------------------------------------------------------------------------------------

    def graph(self, graph: nx.MultiDiGraph[str]) -> None:
        """Prints the entities with their memories, those with most memories first; then the relations."""
        entities = {node: data for node, data in graph.nodes(data=True) if data.get("node") == "entity"}
        mentions = {
            node: [memory for memory, _, key in graph.in_edges(node, keys=True) if key == "MENTIONS"]
            for node in entities
        }
        memory_count = len(graph) - len(entities)
        self.line(f"{memory_count} memories, {len(entities)} entities, {graph.number_of_edges()} edges")
        aliases = [(source, target) for source, target, key in graph.edges(keys=True) if key == "SAME_AS"]
        for node in sorted(entities, key=lambda entity: (-len(mentions[entity]), entity)):
            name, kind = entities[node]["name"], entities[node]["type"]
            pairs = [pair for pair in aliases if node in pair]
            others = [entities[target if source == node else source] for source, target in pairs]
            other_names = [other["key"] if other["name"] == name else other["name"] for other in others]
            alias_part = [(f"  = {one_line(', '.join(sorted(other_names)))}", "yellow")] if other_names else []
            self.line((one_line(name), "bold yellow"), (f"  {kind}, {len(mentions[node])}", "dim"), *alias_part)
            for memory in sorted(mentions[node], key=lambda memory: str(graph.nodes[memory]["at"])):
                self.line(("╰ ", "dim"), quoted(graph.nodes[memory]["memory"]), indent=2)
        relations = [edge for edge in graph.edges(data=True) if edge[2]["relationship"] == "RELATES_TO"]
        if relations:
            self.title("relations")
        for source, target, data in relations:
            self.relation(entities[source]["name"], data["predicate"], entities[target]["name"])

    # --- the whole memory -----------------------------------------------------------------------------------------

    def report(self, report: Json) -> None:
        """Prints the report of `verify`, `repair` or `rebuild`."""
        self.line(("everything agrees", "bold green") if report["ok"] else ("not everything agrees", "bold red"))
        if jobs := report["ledger"]["jobs"]:
            self.line((f"{jobs} jobs are pending, such as vectors of new memories; repair does them now", "yellow"))
        self.line("ledger", indent=2)
        for name, count in report["ledger"].items():
            self.pair(name, count, indent=4)
        for line in report["damaged"]:
            self.line(("damaged: " + line, "red"), indent=2)
        self.advice(report["damaged"])
        if report["derived"]:
            self.line(("wrong counts: " + ", ".join(report["derived"]), "red"), indent=2)
        for name, state in report["projections"].items():
            counts = {problem: _count(value) for problem, value in state.items() if value}
            problems = ", ".join(f"{count} {problem.replace('_', ' ')}" for problem, count in counts.items())
            self.line(name, ": ", (problems, "red") if counts else ("in step", "green"), indent=2)

    def advice(self, damaged: Sequence[str]) -> None:
        """Prints the remedy for damage, which `repair` cannot undo; a line that is an id names a changed memory."""
        changed = [line for line in damaged if _ID.fullmatch(line)]
        if changed:
            self.line(
                "something other than graphmem changed their words, their history or what else belongs to them: "
                "restore a backup; without one, give them the right words (graphmem update ID TEXT) or delete them "
                "(graphmem delete ID), which alone helps against any other damage; then graphmem repair",
                indent=2,
            )
        if len(damaged) > len(changed):
            self.line(
                "the ledger's file is broken: restore a backup; without one, save what can still be read "
                "(graphmem export FILE) and import it into a new folder",
                indent=2,
            )

    def retried(self, result: Json) -> None:
        """Prints the result of `retry_failed`: how many jobs succeeded, how many failed and why, what is unfinished."""
        self.pair("done", result["done"], indent=0)
        self.pair("failed", sum(result["failed"].values()), indent=0)
        for error, count in result["failed"].items():
            self.pair(error, f"{count}: {result['causes'][error]}" if "causes" in result else count)
        self.pair("pending", result["pending"], indent=0)

    def statistics(self, stats: Json) -> None:
        """Prints the result of `stats`: numbers of rows, sizes, the embedder, and tables of stores, work and usage."""
        rest = dict(stats)
        stores, work, cycles, usage = (rest.pop(name) for name in ("stores", "job_counts", "last_cycles", "usage"))
        sizes = {"bytes": rest.pop("bytes"), **rest.pop("embedding_bytes")}
        width = max(map(len, rest))
        for name, value in rest.items():
            text = f"{value:,}" if _is_number(value) else value
            self.pair(name.replace("_", " "), text, indent=0, width=width)
        self.title("size")
        self.pair("ledger", size_text(sizes.pop("bytes")))
        for form, size in sizes.items():
            self.pair(form, f"{size_text(size)} of embeddings")
        self.table("stores", stores)
        self.table("pending work", work)
        self.table("last cycles", [cycles] if cycles["partitions"] else [])
        self.table("usage", usage)

    def table(self, title: str, rows: Sequence[Json]) -> None:
        """Prints rows that have the same keys as a table with these as headings; nothing without rows."""
        if not rows:
            return
        self.title(title)
        lines = [[name.replace("_", " ") for name in rows[0]]]
        lines += [[_cell(name, value) for name, value in row.items()] for row in rows]
        numeric = [any(map(_is_number, column)) for column in zip(*(row.values() for row in rows), strict=True)]
        widths = [max(cell_len(line[place]) for line in lines) for place in range(len(lines[0]))]
        for number, line in enumerate(lines):
            cells = [
                " " * (width - cell_len(cell)) + cell if is_number else set_cell_size(cell, width)
                for cell, width, is_number in zip(line, widths, numeric, strict=True)
            ]
            self.line(("  ".join(cells).rstrip(), "" if number else "dim"), indent=2)


def size_text(size: int) -> str:
    """Returns a number of bytes as people read it, in units of 1,024: "276.0 KiB"."""
    if size < UNIT:
        return f"{size} bytes"
    value, names = size / UNIT, iter("KMGT")
    name = next(names)
    while round(value, 1) >= UNIT and name != "T":
        value, name = value / UNIT, next(names)
    return f"{value:,.1f} {name}iB"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cell(name: str, value: object) -> str:
    """Returns a value of a table's column as text; seconds and costs are rounded."""
    match value:
        case None:
            return "–"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:,.4f}" if name == "cost" else f"{value:,.1f}"
        case int():
            return f"{value:,}"
    return one_line(str(value))


def _value_text(value: object) -> str:
    """Returns a value as text: lists with commas, dicts as JSON, as options take them."""
    if isinstance(value, list | tuple) and not any(isinstance(one, dict | list) for one in value):
        return ", ".join(map(str, value)) or "nothing"
    if isinstance(value, dict | list | tuple | bool):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def _count(value: object) -> object:
    return len(value) if isinstance(value, list | dict | set | tuple) else value


class ProgressBar:
    """Progress on standard error: in a terminal a bar, for work that takes longer than `delay` seconds; else a line
    every LINE_INTERVAL.
    """

    def __init__(self, delay: float = PROGRESS_DELAY) -> None:
        self._delay = delay
        self._bar: Progress | None = None
        self._tasks: dict[str, Any] = {}
        self._started = self._written = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, name: str, done: int, total: int | None) -> None:
        """Shows that `done` of `total` items of the work `name` are done; None: nobody knows how many there are."""
        if not sys.stderr.isatty():
            now = time.monotonic()
            if now - self._written >= LINE_INTERVAL:
                self._written = now
                typer.echo(f"graphmem: {name}: {done:,}{'' if total is None else f' of {total:,}'}", err=True)
            return
        if self._bar is None:
            if time.monotonic() - self._started < self._delay:
                return
            from rich.progress import (  # noqa: PLC0415  (most commands show no bar)
                BarColumn,
                MofNCompleteColumn,
                Progress,
                TextColumn,
                TimeRemainingColumn,
            )

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.start()
        if name not in self._tasks:
            self._tasks[name] = self._bar.add_task(name, total=total)
        self._bar.update(self._tasks[name], completed=done, total=total)
