"""How answers look in a terminal; in a pipe the same, without colours and line breaks.

Remembered words are data: they are never read as markup, and control characters in them never reach the terminal.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

if TYPE_CHECKING:
    import networkx as nx

Part = str | tuple[str, str]
Json = Mapping[str, Any]

# Nothing is broken where nobody looks at the width.
PIPE_WIDTH, MIN_WIDTH = 1_000_000, 20
QUOTE_CHARS, ID_SHOWN = 160, "dim"
PROGRESS_DELAY = 1.0
_BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_VISIBLE = str.maketrans(
    {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\n\t"}
    | {0x7F: "\u2421"}
    | dict.fromkeys(range(0x80, 0xA0), "\ufffd")
    | dict.fromkeys(map(ord, _BIDI), "\ufffd")
)


_ID = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def escape_controls(text: str) -> str:
    """A text that a terminal can show: control characters become pictures of themselves."""
    return text.replace("\r\n", "\n").translate(_VISIBLE)


def one_line(text: str) -> str:
    """The same without line breaks."""
    return escape_controls(" ".join(text.split()))


def quoted(text: str) -> str:
    """The beginning of a memory, as a quotation."""
    short = one_line(text)
    return f"“{short[: QUOTE_CHARS - 1].rstrip()}…”" if len(short) > QUOTE_CHARS else f"“{short}”"


class Renderer:
    """Standard output."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, markup=False, emoji=False)
        if not self._console.is_terminal:
            self._console = Console(highlight=False, markup=False, emoji=False, width=PIPE_WIDTH)

    def line(self, *parts: Part, indent: int = 0, hang: int = 0) -> None:
        """Words, with styles or without, broken to the terminal's width; lines after the first `hang` further in."""
        lines = Text.assemble(*parts).wrap(self._console, max(MIN_WIDTH, self._console.width - indent - hang))
        for number, one in enumerate(lines):
            one.rstrip()  # the blank that the line was broken at
            self._console.print(Text(" " * (indent + hang * (number > 0))).append_text(one), soft_wrap=True)

    def title(self, words: str) -> None:
        """A heading, with a line above it."""
        self.line()
        self.line((words, "bold cyan"))

    def plain(self, words: str) -> None:
        """Words as they are, line by line, for programs that take them on."""
        if words:
            self._console.print(Text(escape_controls(words)), soft_wrap=True)

    # --- memories -------------------------------------------------------------------------------------------------

    def memory(self, found: Json, *before: Part) -> None:
        """A memory: who and when, the words, the id."""
        ended = [("  until " + found["valid_to"][:10], "yellow")] if found.get("valid_to") else []
        who = one_line(found.get("actor_id") or found.get("role") or "")
        self.line(*before, (found["at"][:10], "green"), "  ", (who, "bold"), *ended, "  ", (found["id"], ID_SHOWN))
        self.line(one_line(found["memory"]), indent=4)

    def memories(self, found: Iterable[Json]) -> None:
        """Some memories."""
        for one in found:
            self.memory(one)

    def updated_memory(self, found: Json) -> None:
        """A memory after an update."""
        self.memory(found)
        self.line(found["message"])

    def hits(self, found: Sequence[Json]) -> None:
        """What a search found, best first, with the ways there if they were asked for."""
        for place, hit in enumerate(found, 1):
            self.memory(hit, f"{place:2}  ", (f"{hit['score']:.2f}", "magenta"), "  ")
            if because := hit.get("explain"):
                self.line((one_line(because["why"]), "italic dim"), indent=4)
                self.path(because["path"])

    def path(self, steps: Sequence[Json], indent: int = 4) -> None:
        """The way to a hit: each memory on a line, and under it what it shares with the next one."""
        if len(steps) < 2:  # noqa: PLR2004  (what matched by itself needs no way)
            return
        for step in steps:
            if step["type"] == "memory":
                self.line("• ", quoted(step["memory"]), indent=indent, hang=2)
            else:
                name = one_line(step.get("name") or step.get("predicate") or "")
                self.line(("╰─ ", "dim"), (name, "bold yellow"), (" ─╮", "dim"), indent=indent + 2)

    def details(self, found: Json) -> None:
        """Everything about one memory."""
        self.line(escape_controls(found["memory"]))
        for name, value in found.items():
            if name != "memory" and value not in (None, {}, []):
                self.pair(name, value)

    def pair(self, name: str, value: object, indent: int = 2) -> None:
        """A name and what it stands for."""
        self.line((f"{one_line(name):<16}", "dim"), one_line(str(value)), indent=indent)

    def history(self, events: Iterable[Json]) -> None:
        """What happened to a memory, oldest first."""
        for event in events:
            # What `undo` takes back is named for it.
            name = f"  {event['id']}" if event["event"] in {"UPDATE", "RETIRE"} else ""
            why = f"  {one_line(event['reason'])}" if event.get("reason") else ""
            at = event["created_at"][:19].replace("T", " ")
            self.line((at, "green"), "  ", (event["event"], "bold"), why, (name, "dim"))
            if event["old_memory"] is not None:
                self.line(("- " + one_line(event["old_memory"]), "red"), indent=4)
            if event["new_memory"] is not None:
                self.line("+ " + one_line(event["new_memory"]), indent=4)

    def explanation(self, found: Json) -> None:
        """Why something is remembered."""
        self.line(one_line(found["memory"]))
        self.title("said in")
        for message in found["messages"]:
            who = one_line(message["name"] or message["role"] or "")
            self.line((message["at"][:10], "green"), "  ", (who, "bold"), "  ", quoted(message["content"]), indent=2)
        if found["mentions"]:
            self.title("mentions")
            named = (f"{one_line(entity['name'])} ({entity['type']})" for entity in found["mentions"])
            self.line(", ".join(named), indent=2)
        if found["relations"]:
            self.title("relations")
            self.relations(found["relations"])
        self.title("history")
        self.history(found["events"])

    def relations(self, found: Iterable[Json]) -> None:
        """Who does what to whom."""
        for one in found:
            self.relation(one["source"], one["relationship"], one["target"])

    def relation(self, source: str, predicate: str, target: str) -> None:
        """One of them."""
        self.line(one_line(source), (f" ─{one_line(predicate)}→ ", "dim"), one_line(target), indent=2)

    # --- the graph ------------------------------------------------------------------------------------------------

    def graph(self, drawn: nx.MultiDiGraph[str]) -> None:
        """The entities, those that most memories mention first, each with its memories; then the relations."""
        entities = {node: data for node, data in drawn.nodes(data=True) if data.get("node") == "entity"}
        mentioned = {
            node: [m for m, _, key in drawn.in_edges(node, keys=True) if key == "MENTIONS"] for node in entities
        }
        memories = len(drawn) - len(entities)
        self.line(f"{memories} memories, {len(entities)} entities, {drawn.number_of_edges()} edges")
        same = [(s, t) for s, t, key in drawn.edges(keys=True) if key == "SAME_AS"]
        for node in sorted(entities, key=lambda one: (-len(mentioned[one]), one)):
            name, kind = entities[node]["name"], entities[node]["type"]
            others = [entities[t if s == node else s]["name"] for s, t in same if node in (s, t)]
            also = [(f"  = {one_line(', '.join(sorted(others)))}", "yellow")] if others else []
            self.line((one_line(name), "bold yellow"), (f"  {kind}, {len(mentioned[node])}", "dim"), *also)
            for memory in sorted(mentioned[node], key=lambda uid: str(drawn.nodes[uid]["at"])):
                self.line(("╰ ", "dim"), quoted(drawn.nodes[memory]["memory"]), indent=2)
        related = [(s, t, data) for s, t, data in drawn.edges(data=True) if data["relationship"] == "RELATES_TO"]
        if related:
            self.title("relations")
        for source, target, data in related:
            self.relation(entities[source]["name"], data["predicate"], entities[target]["name"])

    # --- the folder -----------------------------------------------------------------------------------------------

    def report(self, found: Json) -> None:
        """What `verify` says."""
        self.line(("everything agrees", "bold green") if found["ok"] else ("not everything agrees", "bold red"))
        if waiting := found["ledger"]["tasks"]:
            self.line((f"{waiting} memories still wait for their vectors and entities; repair does it now", "yellow"))
        self.line("ledger", indent=2)
        for name, count in found["ledger"].items():
            self.pair(name, count, indent=4)
        for line in found["damaged"]:
            self.line(("damaged: " + line, "red"), indent=2)
        self.advice(found["damaged"])
        if found["derived"]:
            self.line(("wrong counts: " + ", ".join(found["derived"]), "red"), indent=2)
        for name, state in found["projections"].items():
            wrong = {what: _number(value) for what, value in state.items() if value}
            said = ", ".join(f"{count} {what.replace('_', ' ')}" for what, count in wrong.items())
            self.line(name, ": ", (said, "red") if wrong else ("in step", "green"), indent=2)

    def advice(self, damaged: Sequence[str]) -> None:
        """What to do about damage, which `repair` cannot mend."""
        changed = [line for line in damaged if _ID.fullmatch(line)]
        if changed:
            self.line(
                "their words were changed by something other than graphmem: restore a backup; without one, give them "
                "the right words (graphmem update ID TEXT) or delete them (graphmem delete ID); then graphmem repair",
                indent=2,
            )
        if len(damaged) > len(changed):
            self.line(
                "the ledger's file is broken: restore a backup; without one, save what can still be read "
                "(graphmem export FILE) and import it into a new folder",
                indent=2,
            )

    def pairs(self, found: Json) -> None:
        """Names and values."""
        for name, value in found.items():
            shown = (", ".join(map(str, value)) or "nothing") if isinstance(value, list) else value
            self.pair(name, shown, indent=0)


def _number(value: object) -> object:
    return len(value) if isinstance(value, list | dict | set | tuple) else value


class ProgressBar:
    """A progress bar on standard error, for what takes longer than a second and has somebody who watches."""

    def __init__(self) -> None:
        self._bar: Progress | None = None
        self._tasks: dict[str, Any] = {}
        self._begun = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, name: str, done: int, total: int) -> None:
        """How far it is."""
        if self._bar is None:
            if not sys.stderr.isatty() or time.monotonic() - self._begun < PROGRESS_DELAY:
                return
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.start()
        if name not in self._tasks:
            self._tasks[name] = self._bar.add_task(name, total=total)
        self._bar.update(self._tasks[name], completed=done, total=total)
