"""Commands that read memories: search, why-not, context, profile, list, show, history, explain."""

from __future__ import annotations

import shlex
from functools import partial
from typing import Annotated

import typer

from graphmem.cli.options import (
    CommandContext,
    Filters,
    Id,
    Kinds,
    MinRelevance,
    ReferenceDate,
    Rerank,
    ShowExpired,
    ShowForgotten,
    ShowRetired,
    comma_separated,
    command,
    error_exit,
    json_object,
)


def _checked_top_k(value: str) -> str:
    value = value.strip().casefold()
    if value != "auto" and not value.lstrip("-").isdecimal():
        raise typer.BadParameter(f'{value!r} is neither a whole number nor "auto"')
    return value


TopK = Annotated[
    str,
    typer.Option(
        metavar="NUMBER|auto", callback=_checked_top_k, help='Maximum of hits; "auto": those that context takes.'
    ),
]
Threshold = Annotated[float | None, typer.Option(help="The minimum cosine similarity, -1 to 1.")]
AsOf = Annotated[str | None, typer.Option(metavar="TIME", help="Search in the state of that time.")]


@command
def search(
    call: CommandContext,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="What to search for.")],
    top_k: TopK = "10",
    filters: Filters = None,
    threshold: Threshold = None,
    min_relevance: MinRelevance = None,
    as_of: AsOf = None,
    reference_date: ReferenceDate = None,
    kinds: Kinds = None,
    show_expired: ShowExpired = False,  # noqa: FBT002
    show_retired: ShowRetired = False,  # noqa: FBT002
    show_forgotten: ShowForgotten = False,  # noqa: FBT002
    rerank: Rerank = False,  # noqa: FBT002
    explain: Annotated[bool, typer.Option("--explain", help="Print why each hit matches, and its path.")] = False,  # noqa: FBT002
) -> None:
    """Searches for memories that answer a query. Hits may be several hops away in the graph."""
    conditions = json_object(filters, "--filters")
    with call.memory(embeds=True) as memory:
        find = partial(
            memory.search,
            query,
            **call.scope,
            filters=conditions,
            threshold=threshold,
            as_of=as_of,
            reference_date=reference_date,
            kinds=comma_separated(kinds),
            show_expired=show_expired,
            show_retired=show_retired,
            show_forgotten=show_forgotten,
        )
        hits = top_k if top_k == "auto" else int(top_k)
        answer = find(top_k=hits, min_relevance=min_relevance, explain=explain, rerank=rerank)
        has_less_relevant = not answer["results"] and min_relevance != 0 and bool(find(top_k=1)["results"])
    if answer.get("degraded"):
        typer.echo(f"graphmem: answered without {', '.join(answer['degraded'])}", err=True)
    call.print_answer(answer, lambda renderer: renderer.hits(answer["results"]))
    if not answer["results"]:
        is_narrowed = any(option is not None for option in (filters, threshold, as_of, kinds))
        _say_nothing_relevant(was_found=has_less_relevant, is_narrowed=is_narrowed)


@command
def context(
    call: CommandContext,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="What to search for.")],
    max_chars: Annotated[int, typer.Option(help="The maximum number of characters.")] = 2000,
    max_tokens: Annotated[
        int | None, typer.Option(help="The maximum number of tokens, in place of characters.", show_default=False)
    ] = None,
    whole: Annotated[bool, typer.Option("--whole", help="Take whole memories, not sentences.")] = False,  # noqa: FBT002
    profile: Annotated[bool, typer.Option("--profile", help="Begin with standing facts.")] = False,  # noqa: FBT002
    filters: Filters = None,
    threshold: Threshold = None,
    min_relevance: MinRelevance = None,
    reference_date: ReferenceDate = None,
) -> None:
    """Prints the memories for a query as a block for a prompt.

    Without --threshold, --min-relevance is "default".
    """
    from graphmem.boundary.validation import MAX_CONTEXT_CHARS, ROOMY_CONTEXT  # noqa: PLC0415

    conditions = json_object(filters, "--filters")
    # What is not given is left out: with a threshold there is no default of the relevance.
    given = {"threshold": threshold, "min_relevance": min_relevance}
    least = {name: value for name, value in given.items() if value is not None}
    with call.memory(embeds=True) as memory:
        search = partial(memory.context, query, **call.scope, filters=conditions)
        find = partial(search, whole=whole, profile=profile, reference_date=reference_date, **least)
        block = find(max_chars=max_chars, max_tokens=max_tokens)
        is_short = (max_chars if max_tokens is None else max_tokens) < ROOMY_CONTEXT
        is_too_small = not block and is_short and bool(find(max_chars=MAX_CONTEXT_CHARS))
        searched_all = min_relevance == 0 or (threshold is not None and min_relevance is None)
        has_less_relevant = not block and not searched_all and bool(search(**{**least, "min_relevance": 0}))
    call.print_answer({"context": block}, lambda renderer: renderer.plain(block))
    if is_too_small:
        from graphmem.integrations.base import nothing_fits  # noqa: PLC0415  (takes a second)

        _say(nothing_fits(f"raise {'--max-chars' if max_tokens is None else '--max-tokens'}"))
    elif not block:
        is_narrowed = filters is not None or threshold is not None
        _say_nothing_relevant(was_found=has_less_relevant, is_narrowed=is_narrowed)


def _say_nothing_relevant(*, was_found: bool, is_narrowed: bool = False) -> None:
    """Prints to standard error that there are no hits, as `nothing_relevant` does."""
    from graphmem.integrations.base import nothing_relevant  # noqa: PLC0415  (takes a second)

    remedy = "--min-relevance 0 shows the rest"
    _say(nothing_relevant(remedy, was_found=was_found, is_narrowed=is_narrowed))


def _say(sentence: str) -> None:
    """Prints a sentence to standard error, as commands write them."""
    typer.echo(f"graphmem: {sentence[0].lower()}{sentence[1:-1]}", err=True)


@command
def list_(
    call: CommandContext,
    limit: Annotated[int, typer.Option(help="The maximum number of memories.")] = 100,
    offset: Annotated[int, typer.Option(help="The number of memories to skip first.")] = 0,
    filters: Filters = None,
    kinds: Kinds = None,
    show_expired: ShowExpired = False,  # noqa: FBT002
    show_retired: ShowRetired = False,  # noqa: FBT002
    retired_only: Annotated[bool, typer.Option("--retired-only", help="Only these.")] = False,  # noqa: FBT002
    show_forgotten: ShowForgotten = False,  # noqa: FBT002
) -> None:
    """Lists the memories of a scope, newest first."""
    conditions = json_object(filters, "--filters")
    with call.memory() as memory:
        page = memory.get_all(
            **call.scope,
            limit=limit,
            offset=offset,
            filters=conditions,
            kinds=comma_separated(kinds),
            show_expired=show_expired,
            show_retired=show_retired,
            retired_only=retired_only,
            show_forgotten=show_forgotten,
        )
    call.print_answer(page, lambda renderer: renderer.memories(page["results"]))
    retired = page.get("retired", 0)
    if retired_only:
        hidden = " that are no longer true"
    elif show_retired:
        hidden = f", {retired} of them no longer true" if retired else ""
    else:
        hidden = f", and {retired} that are no longer true (--show-retired)" if retired else ""
    typer.echo(f"graphmem: {len(page['results'])} of {page['total']} memories{hidden}", err=True)


@command
def profile(
    call: CommandContext, max_tokens: Annotated[int, typer.Option(help="The most tokens of the block.")] = 1000
) -> None:
    """Prints what is known of a user, as a block for a prompt."""
    with call.memory() as memory:
        found = memory.profile(**call.scope, max_tokens=max_tokens)
    call.print_answer(found, lambda renderer: renderer.plain(found["context"]))


@command
def show(call: CommandContext, memory_id: Id) -> None:
    """Prints all fields of a memory."""
    with call.memory() as memory:
        record = memory.get(memory_id, **call.scope)
    _print_if_exists(call, memory_id, record, "details")


@command
def history(call: CommandContext, memory_id: Id) -> None:
    """Prints the events of a memory, oldest first."""
    with call.memory() as memory:
        events = memory.history(memory_id, **call.scope)
    _print_if_exists(call, memory_id, events, "history")


@command
def explain(call: CommandContext, memory_id: Id) -> None:
    """Prints a memory's messages, entities, relations and history."""
    with call.memory() as memory:
        explanation = memory.explain(memory_id, **call.scope)
    _print_if_exists(call, memory_id, explanation, "explanation")


@command
def why_not(
    call: CommandContext,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="What was searched for.")],
    memory_id: Id,
    top_k: TopK = "10",
    filters: Filters = None,
    threshold: Threshold = None,
    min_relevance: MinRelevance = None,
    as_of: AsOf = None,
    reference_date: ReferenceDate = None,
    kinds: Kinds = None,
    show_expired: ShowExpired = False,  # noqa: FBT002
    show_retired: ShowRetired = False,  # noqa: FBT002
    show_forgotten: ShowForgotten = False,  # noqa: FBT002
    rerank: Rerank = False,  # noqa: FBT002
) -> None:
    """Prints why a search does not find a memory."""
    conditions = json_object(filters, "--filters")
    with call.memory(embeds=True) as memory:
        told = memory.why_not(
            query,
            memory_id,
            **call.scope,
            top_k=top_k if top_k == "auto" else int(top_k),
            filters=conditions,
            threshold=threshold,
            min_relevance=min_relevance,
            as_of=as_of,
            reference_date=reference_date,
            kinds=comma_separated(kinds),
            show_expired=show_expired,
            show_retired=show_retired,
            show_forgotten=show_forgotten,
            rerank=rerank,
        )
    if told.get("degraded"):
        typer.echo(f"graphmem: answered without {', '.join(told['degraded'])}", err=True)
    call.print_answer(told, lambda renderer: renderer.plain(f"{told['step']}: {told['why']}"))


@command
def judge(
    call: CommandContext,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="What was searched for.")],
    memory_id: Id,
    verdict: Annotated[
        str,
        typer.Argument(
            metavar="VERDICT",
            help="right: it answers. wrong: it does not. missing: it does, and was not found. none: take it back.",
        ),
    ],
) -> None:
    """Says whether a memory answers a question, for bench mine."""
    with call.memory() as memory:
        judged = memory.judge(query, memory_id, None if verdict.lower() == "none" else verdict, **call.scope)
    call.print_answer(judged, lambda renderer: renderer.judgement(judged))


@command
def judgements(
    call: CommandContext,
    limit: Annotated[int, typer.Option(help="The maximum number of judgements.")] = 100,
) -> None:
    """Lists what was said by judge, the latest first."""
    with call.memory() as memory:
        found = memory.judgements(**call.scope, limit=limit)
    typer.echo(f"graphmem: {len(found['results'])} of {found['total']} judgements", err=True)
    call.print_answer(found, lambda renderer: renderer.judgements(found))


def _print_if_exists(call: CommandContext, memory_id: str, value: object, renderer_method: str) -> None:
    if not value:
        raise error_exit(f"no memory {shlex.quote(memory_id)}; 'graphmem list' prints the ids that exist")
    call.print_answer(value, lambda renderer: getattr(renderer, renderer_method)(value))
