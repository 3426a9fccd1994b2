"""The command itself: which form is wanted, and where it goes."""

from __future__ import annotations

import sys
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphmem.cli.options import CommandContext, command, error_exit

if TYPE_CHECKING:
    import networkx as nx

    from graphmem.memory import Memory

# How many names are offered for one that is unknown, and how alike (rapidfuzz's ratio, 0..100) they are at least.
MAX_SUGGESTIONS, MIN_SIMILARITY = 3, 75


class OutputFormat(StrEnum):
    """What the graph can be written as; a file's ending of the same name asks for it, too."""

    HTML = "html"
    GRAPHML = "graphml"
    JSON = "json"
    CYPHER = "cypher"


_FORMS = "|".join(OutputFormat)


@command
def graph(
    call: CommandContext,
    around: Annotated[str | None, typer.Option(metavar="NAME", help="Someone or something, or a memory's id.")] = None,
    hops: Annotated[int, typer.Option(help="How far from there.")] = 2,
    form: Annotated[
        str | None,
        typer.Option(
            "--format", metavar=_FORMS, help="A page for a browser, for Gephi or yEd, node-link data, for Neo4j."
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to write it, readable by you only; else standard output.")
    ] = None,
) -> None:
    """The people and things that memories mention, and how they are related.

    Without --format (or an --output whose ending tells it) it is drawn for people; --json is --format json.
    """
    chosen = _chosen(call, form, output)
    with call.memory() as memory:
        kept = memory._engine.kept  # noqa: SLF001  (what users have no door to)
        drawn = _drawn(memory, call.scope, around, hops)
    if chosen is None:
        call.print_answer(None, lambda renderer: renderer.graph(drawn))
        return
    from graphmem.cli.graph.output import write_output  # noqa: PLC0415

    write_output(_written(chosen, drawn), output, kept)


def _chosen(call: CommandContext, form: str | None, output: Path | None) -> OutputFormat | None:
    """The form that the options name; None for people. Raises BadParameter where they contradict each other."""
    if form is not None:
        chosen: OutputFormat | None = _form(form)
    elif call.json:
        chosen = OutputFormat.JSON
    elif output is not None:
        chosen = _form(output.suffix.removeprefix("."), f"{output.name!r} does not tell the format; add --format.")
    else:
        chosen = None
    if call.json and chosen is not OutputFormat.JSON:
        raise typer.BadParameter(f"--json and --format {chosen} contradict each other")
    if chosen is OutputFormat.HTML and output is None and sys.stdout.isatty():
        raise typer.BadParameter("a page is no reading for a terminal; name a file with --output")
    return chosen


def _form(word: str, otherwise: str = "") -> OutputFormat:
    known = {form.value: form for form in OutputFormat}
    if (plain := word.strip().casefold()) in known:
        return known[plain]
    near = get_close_matches(plain, known, 1, 0.4)
    hint = f" Did you mean {near[0]}?" if near else ""
    told = otherwise or f"{word!r} is not one of {', '.join(known)}."
    raise typer.BadParameter(told + hint, param_hint="--format")


def _drawn(memory: Memory, scope: dict[str, Any], around: str | None, hops: int) -> nx.MultiDiGraph[str]:
    from graphmem.memory import MAX_LIST_LIMIT  # noqa: PLC0415

    drawn = memory.graph(**scope, around=around, hops=hops, limit=MAX_LIST_LIMIT)
    if around is not None and not drawn:
        raise error_exit(_unknown(memory, scope, around))
    total = memory.get_all(**scope, kinds=["episode", "fact", "summary"], limit=1)["total"]
    if total > MAX_LIST_LIMIT:
        typer.echo(f"graphmem: only the newest {MAX_LIST_LIMIT:,} of {total:,} memories were looked at", err=True)
    elif not total:
        typer.echo("graphmem: nothing is remembered there", err=True)
    return drawn


def _unknown(memory: Memory, scope: dict[str, Any], around: str) -> str:
    from rapidfuzz import fuzz, process, utils  # noqa: PLC0415

    from graphmem.memory import MAX_LIST_LIMIT  # noqa: PLC0415

    names = [entity["name"] for entity in memory.entities(**scope, limit=MAX_LIST_LIMIT)]
    near = process.extract(
        around,
        names,
        scorer=fuzz.WRatio,
        processor=utils.default_process,
        limit=MAX_SUGGESTIONS,
        score_cutoff=MIN_SIMILARITY,
    )
    nearest = f"the nearest: {', '.join(repr(name) for name, *_ in near)}" if near else "'graphmem graph' shows all"
    return f"no memory there mentions {around!r} or has it as its id; {nearest}"


def _written(form: OutputFormat, drawn: nx.MultiDiGraph[str]) -> str:
    """The file's text. Each form loads what it needs when it is asked for."""
    if form is OutputFormat.HTML:
        from graphmem.cli.graph.page import page  # noqa: PLC0415

        return page(drawn)
    if form is OutputFormat.CYPHER:
        from graphmem.cli.graph.cypher import cypher  # noqa: PLC0415

        return cypher(drawn)
    from graphmem.cli.graph.formats import graphml, node_link  # noqa: PLC0415

    return node_link(drawn) if form is OutputFormat.JSON else graphml(drawn)
