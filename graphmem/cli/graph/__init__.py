"""`graphmem graph`: prints the memory graph or a neighbourhood in it, or writes it to a file for other programs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphmem.cli.options import CommandContext, ShowForgotten, ShowRetired, command, error_exit

if TYPE_CHECKING:
    import networkx as nx

    from graphmem.memory import Memory

# For an unknown name: the names suggested at most, and their minimum similarity (rapidfuzz's ratio, 0 to 100).
MAX_SUGGESTIONS, MIN_SIMILARITY = 3, 75


class OutputFormat(StrEnum):
    """A format in which the graph is written; also the ending of a file in that format."""

    HTML = "html"
    GRAPHML = "graphml"
    JSON = "json"
    CYPHER = "cypher"


_FORMAT_NAMES = "|".join(OutputFormat)


@command
def graph(
    call: CommandContext,
    around: Annotated[str | None, typer.Option(metavar="NAME", help="An entity's name, or a memory's id.")] = None,
    hops: Annotated[int, typer.Option(help="The distance from there.")] = 2,
    show_retired: ShowRetired = False,  # noqa: FBT002
    show_forgotten: ShowForgotten = False,  # noqa: FBT002
    form: Annotated[
        str | None,
        typer.Option(
            "--format", metavar=_FORMAT_NAMES, help="For a browser, for Gephi or yEd, as node-link data, for Neo4j."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The file to write, readable by you only; by default standard output."),
    ] = None,
) -> None:
    """Shows the entities of memories and their relations.

    Without --format, and without an --output whose ending names one, the graph is printed for people; --json is
    --format json.
    """
    chosen = _choose_format(call, form, output)
    with call.memory() as memory:
        storage_paths = memory.engine.storage_paths
        is_page = chosen is OutputFormat.HTML
        view = {**call.scope, "show_retired": show_retired, "show_forgotten": show_forgotten}
        entity_graph, total = _read_graph(memory, view, around, hops, is_page=is_page)
    if chosen is None:
        call.print_answer(None, lambda renderer: renderer.graph(entity_graph))
        return
    write_output(_format_graph(chosen, entity_graph, total), output, storage_paths)


def _choose_format(call: CommandContext, form: str | None, output: Path | None) -> OutputFormat | None:
    """Returns the format that the options name; None to print for people. Raises BadParameter for contradictions."""
    if form is not None:
        chosen: OutputFormat | None = _parse_format(form)
    elif call.json:
        chosen = OutputFormat.JSON
    elif output is not None:
        chosen = _parse_format(
            output.suffix.removeprefix("."), f"{output.name!r} does not tell the format; add --format."
        )
    else:
        chosen = None
    if call.json and chosen is not OutputFormat.JSON:
        raise typer.BadParameter(f"--json and --format {chosen} contradict each other")
    if chosen is OutputFormat.HTML and output is None and sys.stdout.isatty():
        raise typer.BadParameter("an HTML page cannot be read in a terminal; name a file with --output")
    return chosen


def _parse_format(word: str, error: str = "") -> OutputFormat:
    """Returns the format of that name. Raises BadParameter with `error`, or a default one, and the nearest name."""
    formats = {form.value: form for form in OutputFormat}
    if (name := word.strip().casefold()) in formats:
        return formats[name]
    similar = get_close_matches(name, formats, 1, 0.4)
    hint = f" Did you mean {similar[0]}?" if similar else ""
    message = error or f"{word!r} is not one of {', '.join(formats)}."
    raise typer.BadParameter(message + hint, param_hint="--format")


def _read_graph(
    memory: Memory, view: dict[str, Any], around: str | None, hops: int, *, is_page: bool
) -> tuple[nx.MultiDiGraph[str], int | None]:
    """Returns the graph and the number of memories of its view, None if only what is around a name was asked for.

    Exits with an error for an unknown `around`; warns of a graph that is cut or empty.
    """
    from graphmem.cli.graph.formats import MAX_MEMORIES  # noqa: PLC0415
    from graphmem.memory import MAX_LIST_LIMIT  # noqa: PLC0415

    limit = MAX_MEMORIES if is_page and around is None else MAX_LIST_LIMIT
    graph = memory.graph(**view, around=around, hops=hops, limit=limit)
    if around is not None and not graph:
        raise error_exit(_unknown_name_message(memory, view, around))
    every = ["episode", "fact", "summary"]
    total = memory.get_all(**view, kinds=every, limit=1)["total"]
    if total > limit:
        typer.echo(f"graphmem: only the newest {limit:,} of {total:,} memories were read", err=True)
    elif not total:
        typer.echo("graphmem: nothing is remembered there", err=True)
    return graph, total if around is None else None


def _unknown_name_message(memory: Memory, scope: dict[str, Any], around: str) -> str:
    from rapidfuzz import fuzz, process, utils  # noqa: PLC0415

    from graphmem.memory import MAX_LIST_LIMIT  # noqa: PLC0415

    names = [entity["name"] for entity in memory.entities(**scope, limit=MAX_LIST_LIMIT)]
    matches = process.extract(
        around,
        names,
        scorer=fuzz.WRatio,
        processor=utils.default_process,
        limit=MAX_SUGGESTIONS,
        score_cutoff=MIN_SIMILARITY,
    )
    suggestions = ", ".join(repr(name) for name, *_ in matches)
    remedy = f"the nearest: {suggestions}" if matches else "'graphmem graph' shows all"
    return f"no memory there mentions {around!r} or has it as its id; {remedy}"


def _format_graph(form: OutputFormat, graph: nx.MultiDiGraph[str], total: int | None) -> str:
    from graphmem.cli.graph.formats import cypher, graphml, node_link, page  # noqa: PLC0415

    match form:
        case OutputFormat.HTML:
            return page(graph, total)
        case OutputFormat.CYPHER:
            return cypher(graph)
        case OutputFormat.GRAPHML:
            return graphml(graph)
        case OutputFormat.JSON:
            return node_link(graph)


def write_output(text: str, output: Path | None, storage_paths: Sequence[Path]) -> None:
    """Writes the text in UTF-8, whatever the terminal's encoding, to `output` or, if None, to standard output.

    A file is readable by its owner only, as it holds memories. It may not be in one of `storage_paths`, the files and
    folders of the memory itself. Exits with an error if it cannot be written.
    """
    from graphmem.transfer.jsonl import atomic_file  # noqa: PLC0415

    content = text.encode(errors="replace")  # half a surrogate pair has no encoding
    if output is None:
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
        return
    try:
        with atomic_file(output, storage_paths) as write:
            write(content)
    except OSError as error:
        raise error_exit(
            f"{output}: cannot be written ({error.strerror}); name a file in a folder that you can write to"
        ) from None
    typer.echo(f"graphmem: written to {output}", err=True)
