"""What all commands share: the options of every one of them, opening the memory, errors as one line."""

from __future__ import annotations

import functools
import inspect
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec

import typer

from graphmem.errors import GraphmemError
from graphmem.escapes import json_text

if TYPE_CHECKING:
    from graphmem.cli.render import Renderer
    from graphmem.memory import Memory
    from graphmem.settings import Settings

P = ParamSpec("P")
Id = Annotated[str, typer.Argument(metavar="ID", help="A memory's id, as add, search and list show it.")]
Filters = Annotated[str | None, typer.Option(metavar="JSON", help='Conditions, such as \'{"role": "user"}\'.')]
Kinds = Annotated[
    str | None, typer.Option(metavar="KINDS", help="Some of fact, episode, summary, with commas between.")
]
Metadata = Annotated[str | None, typer.Option(metavar="JSON", help="A JSON object to keep with it.")]
INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class CommandContext:
    """The common options as given."""

    scope: dict[str, Any]
    home: Path | None
    config: Path | None
    json: bool

    @contextmanager
    def memory(self) -> Iterator[Memory]:
        """The memory that the options name, open."""
        from graphmem.memory import Memory  # noqa: PLC0415  (a second, which --help need not wait for)

        with Memory(self.home, settings=self.settings()) as memory:
            try:
                yield memory
            except KeyboardInterrupt:
                # Closing would wait for background work; what is undone stays recorded, and the next command does it.
                os._exit(INTERRUPTED)

    def settings(self) -> Settings:
        """The configuration that the options name. Whatever shape a program was promised, the commands have one."""
        from graphmem.settings import Settings  # noqa: PLC0415

        given = Settings.from_env(home=self.home) if self.config is None else Settings.from_file(self.config)
        return given.model_copy(update={"version": "v1.1"})

    @contextmanager
    def whole_memory(self) -> Iterator[Memory]:
        """The same for what is done to the folder as a whole."""
        self.warn_scope_ignored()
        with self.memory() as memory:
            yield memory

    def warn_scope_ignored(self) -> None:
        """Says so to those who named one."""
        if self.scope:
            typer.echo("graphmem: --user, --agent and --run change nothing here", err=True)

    def print_answer(self, value: object, show: Callable[[Renderer], object]) -> None:
        """Prints a command's answer: as JSON if that was asked for, else as `show` draws it."""
        if self.json:
            self._print(value)
            return
        from graphmem.cli.render import Renderer  # noqa: PLC0415

        show(Renderer())

    def _print(self, value: object) -> None:
        typer.echo(json_text(json.dumps(value, ensure_ascii=False, indent=2)))


def _options(
    user: Annotated[str | None, typer.Option(help="Whose memories.", metavar="ID")] = None,
    agent: Annotated[str | None, typer.Option(help="Which agent's memories.", metavar="ID")] = None,
    run: Annotated[str | None, typer.Option(help="Which run's memories.", metavar="ID")] = None,
    home: Annotated[
        Path | None, typer.Option(help="Where it is kept.", metavar="DIR", show_default="$GRAPHMEM_HOME or ~/.graphmem")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="A TOML, YAML or JSON file with the configuration.", metavar="FILE")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,  # noqa: FBT002
) -> CommandContext:
    if home is not None and os.fspath(home) == ":memory:":
        raise typer.BadParameter("a memory that ends with the command would be of no use; name a folder")
    given = {"user_id": user, "agent_id": agent, "run_id": run}
    return CommandContext({name: value for name, value in given.items() if value is not None}, home, config, as_json)


def command(function: Callable[Concatenate[CommandContext, P], None]) -> Callable[..., None]:
    """Gives a command the common options, and lets our errors end it with one line instead of a traceback."""
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    shared = [p.replace(kind=p.KEYWORD_ONLY) for p in inspect.signature(_options, eval_str=True).parameters.values()]
    names = {parameter.name for parameter in shared}

    @functools.wraps(function)
    def run(**given: Any) -> None:
        call = _options(**{name: value for name, value in given.items() if name in names})
        try:
            function(call, **{name: value for name, value in given.items() if name not in names})  # type: ignore[call-arg]  # typer has checked them against the signature below
        except GraphmemError as error:
            raise error_exit(str(error)) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None

    taken = [parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in own] + shared
    run.__signature__ = inspect.Signature(taken)  # type: ignore[attr-defined]  # what typer reads
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in taken}
    return run


def error_exit(message: str) -> typer.Exit:
    """Tells on stderr, in one line, what went wrong; raise what it returns."""
    from graphmem.cli.render import one_line  # noqa: PLC0415

    typer.echo(f"graphmem: {one_line(message)}", err=True)
    return typer.Exit(1)


def json_object(text: str | None, option: str) -> dict[str, Any] | None:
    """An option that holds a JSON object."""
    if text is None:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(f"is not valid JSON: {error}", param_hint=option) from None
    if not isinstance(value, dict):
        raise typer.BadParameter("must be a JSON object, {...}", param_hint=option)
    return value


def comma_separated(text: str | None) -> list[str] | None:
    """An option that holds words between commas."""
    return None if text is None else [word.strip() for word in text.split(",")]
