"""The commands. What they answer goes to standard output, everything else to standard error."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer

from graphmem import __version__
from graphmem.interfaces.options import INTERRUPTED, Call, command, failed, json_object, several

# Memory is imported, and so is what draws on the screen, when a command runs: --help answers at once.

app = typer.Typer(
    help="Memory for agents: a vector index and an entity-relation graph over one durable ledger.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Id = Annotated[str, typer.Argument(metavar="ID", help="A memory's id, as add, search and list show it.")]
Filters = Annotated[str | None, typer.Option(metavar="JSON", help='Conditions, such as \'{"role": "user"}\'.')]
Kinds = Annotated[
    str | None, typer.Option(metavar="KINDS", help="Some of fact, episode, summary, with commas between.")
]
Metadata = Annotated[str | None, typer.Option(metavar="JSON", help="A JSON object to keep with it.")]


class Projection(StrEnum):
    """What can be rebuilt by itself."""

    VECTORS = "vectors"
    GRAPH = "graph"


def main() -> None:
    """The program: `graphmem` and `python -m graphmem`."""
    try:
        app(prog_name="graphmem")
    except KeyboardInterrupt:  # before a command has begun
        sys.exit(INTERRUPTED)
    finally:
        _let_go()


def _let_go() -> None:
    """A reader that has gone (`| head`) is no error; Python would complain about it once more at its own end."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _version(asked: bool) -> None:  # noqa: FBT001  (typer's form)
    if asked:
        typer.echo(f"graphmem {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    _: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Tell the version.")] = False,  # noqa: FBT002
) -> None:
    pass


# --- remembering ---------------------------------------------------------------------------------------------------


@app.command()
@command
def demo(call: Call) -> None:
    """A conversation is remembered, and questions are answered across it. With --home it stays there to explore."""
    from graphmem.interfaces.demo import demonstrate  # noqa: PLC0415

    demonstrate(call)


@app.command()
@command
def add(
    call: Call,
    text: Annotated[str, typer.Argument(metavar="TEXT|FILE|-", help="Words, a file, or - for standard input.")],
    name: Annotated[str | None, typer.Option(help="Who said it, where the file does not tell.")] = None,
    role: Annotated[str, typer.Option(help="user, assistant or tool, where the file does not tell.")] = "user",
    timestamp: Annotated[str | None, typer.Option(metavar="TIME", help="When it was said, ISO 8601.")] = None,
    metadata: Metadata = None,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Answer before vectors and graph are made.")] = False,  # noqa: FBT002
) -> None:
    """Remembers words.

    A file (or standard input) is JSON messages, JSON Lines, a transcript with a "Name: words" on each line, or
    plain text, of which each paragraph becomes a memory.
    """
    from graphmem.interfaces.adding import remember  # noqa: PLC0415
    from graphmem.interfaces.reading import Defaults, read  # noqa: PLC0415

    kept = json_object(metadata, "--metadata")
    source, messages = read(text, Defaults(role, name))
    with call.memory() as memory:
        options = {**call.scope, "metadata": kept, "timestamp": timestamp}
        result = remember(memory, source, messages, options, wait=not no_wait)
        if call.json:
            call.print_json(result)
        else:
            _tell_added(result, len(messages))
        sys.stdout.flush()  # with --no-wait the rest is still to be done, on the way out


def _tell_added(result: Mapping[str, Any], given: int) -> None:
    from graphmem.interfaces.show import Screen  # noqa: PLC0415

    found = result["results"]
    counts = Counter("erased" if one.get("reason") == "erased" else one["event"] for one in found)
    skipped = given - len(found)
    told = [f"{counts['ADD']} added"]
    told += [f"{counts['NONE']} known already"] if counts["NONE"] else []
    told += [f"{counts['erased']} erased before, not added again"] if counts["erased"] else []
    told += [f"{skipped} skipped (system messages, or without words)"] if skipped else []
    told += [f"not yet in {' and '.join(result['pending'])}"] if result.get("pending") else []
    screen = Screen()
    screen.line("; ".join(told))
    if given == 1 and found:
        screen.line((found[0]["id"], "dim"))


@app.command()
@command
def update(
    call: Call,
    memory_id: Id,
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help="The words as they should be.")] = None,
    metadata: Metadata = None,
) -> None:
    """Corrects a memory; its history keeps the old words."""
    kept = json_object(metadata, "--metadata")
    with call.memory() as memory:
        changed = memory.update(memory_id, text, metadata=kept, **call.scope)
    if call.json:
        call.print_json(changed)
        return
    from graphmem.interfaces.show import Screen  # noqa: PLC0415

    screen = Screen()
    screen.memory(changed)
    screen.line(changed["message"])


@app.command()
@command
def delete(
    call: Call,
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID...", help="The memories' ids.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Everything of this scope.")] = False,  # noqa: FBT002
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,  # noqa: FBT002
) -> None:
    """Erases memories, from every store."""
    if everything == bool(ids):
        raise typer.BadParameter("name some ids, or say --all with --user, --agent or --run")
    if everything and call.scope and not yes:
        _confirm(call)
    with call.memory() as memory:
        if everything:
            receipt: Mapping[str, Any] = memory.delete_all(**call.scope)
        else:
            wanted = list(dict.fromkeys(ids or ()))
            if missing := [uid for uid in wanted if memory.get(uid, **call.scope) is None]:
                raise failed(f"no memory {', '.join(missing)}; nothing was deleted")
            receipt = _sum([memory.delete(uid, **call.scope) for uid in wanted])
    if call.json:
        call.print_json(receipt)
    else:
        typer.echo(receipt["message"])


def _confirm(call: Call) -> None:
    if not sys.stdin.isatty():
        raise typer.BadParameter("--all needs --yes where nobody can be asked")
    whose = ", ".join(f"{name.removesuffix('_id')} {value!r}" for name, value in call.scope.items())
    if not typer.confirm(f"Erase everything of {whose}? There is no way back.", err=True):
        raise failed("nothing was deleted")


def _sum(receipts: list[Any]) -> Mapping[str, Any]:
    """Several receipts as one, in the same shape."""
    if len(receipts) == 1:
        return dict(receipts[0])
    erased: Counter[str] = Counter()
    for receipt in receipts:
        erased.update(receipt["erased"])
    return {
        "message": f"{len(receipts)} memories deleted successfully!",
        "deleted": [uid for receipt in receipts for uid in receipt["deleted"]],
        "erased": dict(erased),
        **({"pending": receipts[-1]["pending"]} if "pending" in receipts[-1] else {}),
    }


# --- finding -------------------------------------------------------------------------------------------------------


@app.command()
@command
def search(
    call: Call,
    query: Annotated[str, typer.Argument(metavar="QUERY")],
    top_k: Annotated[int, typer.Option(help="How many, at most.")] = 10,
    filters: Filters = None,
    threshold: Annotated[float | None, typer.Option(help="The least cosine similarity, -1 to 1.")] = None,
    as_of: Annotated[str | None, typer.Option(metavar="TIME", help="The state of the world at that time.")] = None,
    kinds: Kinds = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show why, and the way to each hit.")] = False,  # noqa: FBT002
) -> None:
    """Finds what belongs to a question, also several hops away."""
    only = json_object(filters, "--filters")
    with call.memory() as memory:
        found = memory.search(
            query,
            **call.scope,
            top_k=top_k,
            filters=only,
            threshold=threshold,
            as_of=as_of,
            kinds=several(kinds),
            explain=explain,
        )
    if found.get("degraded"):
        typer.echo(f"graphmem: answered without {', '.join(found['degraded'])}", err=True)
    if call.json:
        call.print_json(found)
        return
    from graphmem.interfaces.show import Screen  # noqa: PLC0415

    Screen().hits(found["results"])
    if not found["results"]:
        typer.echo("graphmem: nothing found", err=True)


@app.command()
@command
def context(
    call: Call,
    query: Annotated[str, typer.Argument(metavar="QUERY")],
    max_chars: Annotated[int, typer.Option(help="How many characters, at most.")] = 1200,
) -> None:
    """The block of memories to put into a prompt."""
    with call.memory() as memory:
        block = memory.context(query, **call.scope, max_chars=max_chars)
    if call.json:
        call.print_json({"context": block})
    else:
        from graphmem.interfaces.show import clean  # noqa: PLC0415

        typer.echo(clean(block), nl=bool(block))


@app.command(name="list")
@command
def list_(
    call: Call,
    limit: Annotated[int, typer.Option(help="How many, at most.")] = 100,
    offset: Annotated[int, typer.Option(help="How many to leave out first.")] = 0,
    filters: Filters = None,
    kinds: Kinds = None,
) -> None:
    """The memories of a scope, newest first."""
    only = json_object(filters, "--filters")
    with call.memory() as memory:
        found = memory.get_all(**call.scope, limit=limit, offset=offset, filters=only, kinds=several(kinds))
    if call.json:
        call.print_json(found)
        return
    from graphmem.interfaces.show import Screen  # noqa: PLC0415

    screen = Screen()
    for one in found["results"]:
        screen.memory(one)
    typer.echo(f"graphmem: {len(found['results'])} of {found['total']} memories", err=True)


@app.command()
@command
def show(call: Call, memory_id: Id) -> None:
    """Everything about one memory."""
    with call.memory() as memory:
        found = memory.get(memory_id, **call.scope)
    _show(call, memory_id, found, "details")


@app.command()
@command
def history(call: Call, memory_id: Id) -> None:
    """What happened to a memory, oldest first."""
    with call.memory() as memory:
        found = memory.history(memory_id, **call.scope)
    _show(call, memory_id, found, "history")


@app.command()
@command
def explain(call: Call, memory_id: Id) -> None:
    """Why something is remembered: who said it, what it mentions and states, its history."""
    with call.memory() as memory:
        found = memory.explain(memory_id, **call.scope)
    _show(call, memory_id, found, "explanation")


def _show(call: Call, memory_id: str, found: object, form: str) -> None:
    if not found:
        raise failed(f"no memory {memory_id}; 'graphmem list' gives the ids that exist")
    if call.json:
        call.print_json(found)
        return
    from graphmem.interfaces.show import Screen  # noqa: PLC0415

    getattr(Screen(), form)(found)


@app.command()
@command
def graph(
    call: Call,
    around: Annotated[str | None, typer.Option(metavar="NAME", help="Someone or something, or a memory's id.")] = None,
    hops: Annotated[int, typer.Option(help="How far from there.")] = 2,
) -> None:
    """The people and things that memories mention, and how they are related. --json gives node-link data."""
    with call.memory() as memory:
        drawn = memory.graph(**call.scope, around=around, hops=hops)
    if call.json:
        import networkx as nx  # noqa: PLC0415

        call.print_json(nx.node_link_data(drawn, edges="edges"))
    else:
        from graphmem.interfaces.show import Screen  # noqa: PLC0415

        Screen().graph(drawn)


# --- housekeeping --------------------------------------------------------------------------------------------------


@app.command()
@command
def verify(
    call: Call,
    repair: Annotated[bool, typer.Option("--repair", help="Mend what is found.")] = False,  # noqa: FBT002
) -> None:
    """Compares the projections with the ledger. Exit status 1 if they do not agree."""
    with call.whole_memory() as memory:
        found = memory.verify(repair=repair)
    _report(call, found)


@app.command()
@command
def repair(call: Call) -> None:
    """Finishes what is unfinished and mends what verify finds."""
    with call.whole_memory() as memory:
        found = memory.repair()
    _report(call, found)


@app.command()
@command
def rebuild(
    call: Call, projection: Annotated[Projection | None, typer.Argument(help="Only this one; else both.")] = None
) -> None:
    """Makes vectors and graph anew from the ledger, as after a change of the embedding model."""
    from graphmem.interfaces.show import Bar  # noqa: PLC0415

    with call.whole_memory() as memory, Bar() as bar:
        found = memory.rebuild(None if projection is None else projection.value, bar.update)
    _report(call, found)


def _report(call: Call, found: Mapping[str, Any]) -> None:
    if call.json:
        call.print_json(found)
    else:
        from graphmem.interfaces.show import Screen  # noqa: PLC0415

        Screen().report(found)
    if not found["ok"]:
        raise typer.Exit(1)


@app.command()
@command
def stats(call: Call) -> None:
    """Counts, sizes, what is unfinished."""
    with call.whole_memory() as memory:
        found = memory.stats()
    if call.json:
        call.print_json(found)
    else:
        from graphmem.interfaces.show import Screen  # noqa: PLC0415

        Screen().pairs(found)
