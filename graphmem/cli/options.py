"""Shared parts of all commands: the common options, opening the memory, errors as one line, parsing of options."""

from __future__ import annotations

import functools
import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec

import typer
from typer.models import ArgumentInfo, OptionInfo

from graphmem.errors import ConfigError, GraphmemError, StoreError, ValidationError
from graphmem.escapes import json_text

if TYPE_CHECKING:
    from graphmem.cli.render import Renderer
    from graphmem.memory import Memory
    from graphmem.settings import Settings

P = ParamSpec("P")
Id = Annotated[str, typer.Argument(metavar="ID", help="The memory's id, as add, search and list print it.")]
Filters = Annotated[str | None, typer.Option(metavar="JSON", help='Conditions, such as \'{"role": "user"}\'.')]
Kinds = Annotated[
    str | None, typer.Option(metavar="KINDS", help="Kinds of memories: fact, episode, summary, separated by commas.")
]
ShowRetired = Annotated[
    bool, typer.Option("--show-retired", help="Also memories that are no longer true, and messages hidden with them.")
]
Rerank = Annotated[bool, typer.Option("--rerank", help="Let the configured reranker order the hits.")]
ShowExpired = Annotated[bool, typer.Option("--show-expired", help="Also memories that have expired.")]
ShowForgotten = Annotated[bool, typer.Option("--show-forgotten", help="Also memories that were forgotten.")]
ReferenceDate = Annotated[
    str | None, typer.Option(metavar="TIME", help='The time from which "last week" and the like are counted.')
]


def _number_or_default(value: str) -> float | str:
    try:
        return value if value == "default" else float(value)
    except ValueError:
        raise typer.BadParameter(f'{value!r} is neither a number nor "default"') from None


def _path(value: str) -> Path:
    """Returns a path; an empty one, as of a shell's unset variable, would be the current folder."""
    if not value:
        raise typer.BadParameter("is empty; give a path, or leave it out")
    return Path(value)


PathOption = partial(typer.Option, parser=_path)
PathArgument = partial(typer.Argument, parser=_path)
MinRelevance = Annotated[
    Any,
    typer.Option(
        parser=_number_or_default,
        metavar="NUMBER|default",
        help='The lowest relevance of a memory, 0 (all) to 1; "default": from where it helps more than it distracts.',
    ),
]
Metadata = Annotated[str | None, typer.Option(metavar="JSON", help="A JSON object to store with the memory.")]
# The exit statuses: the work failed; the command line or the configuration cannot be used; Ctrl+C (128 + SIGINT, as
# shells report it).
FAILED, UNUSABLE, INTERRUPTED = 1, 2, 130
SCOPE_OPTIONS = "user", "agent", "run"
# The options by the names that arguments of `Memory` have in its errors.
_OPTION_OF_SCOPE_ID = {f"{name}_id": f"--{name}" for name in SCOPE_OPTIONS}
_FIRST_NAME = re.compile(r"[\w-]+")
_SCOPE_ID = re.compile(rf"(?<![\w.])(?:{'|'.join(_OPTION_OF_SCOPE_ID)})\b")


@dataclass(frozen=True, slots=True)
class CommandContext:
    """The common options of one command: scope, folder, configuration, form of the answer.

    `scope` has those of user_id, agent_id and run_id that the options give, none for a command without these options.
    `home` and `config` are None by default.
    """

    scope: dict[str, Any]
    home: Path | None
    config: Path | None
    json: bool

    @contextmanager
    def memory(self, *, may_create: bool = False, is_server: bool = False, embeds: bool = False) -> Iterator[Memory]:
        """Opens the memory that the options name, and closes it. Only a server runs nightly cycles.

        `embeds`: the command embeds texts, so that the models load beside the imports.

        Raises StoreError if there is none, unless it `may_create` one: a command that reads would show a misspelt
        folder as an empty memory, and leave it behind.
        """
        settings = self.settings()
        if embeds:
            from graphmem.models import minilm, use_multilingual  # noqa: PLC0415
            from graphmem.settings import MinilmEmbedder  # noqa: PLC0415

            # In threads, mostly without the interpreter's lock: they take .3 s of CPU, a sixth of that of a search.
            if isinstance(settings.embedder, MinilmEmbedder) and settings.embedder.config.tokens:
                use_multilingual.load_beside()
                minilm.load_beside()
        # They take a second, for which --help need not wait.
        from graphmem.memory import Memory  # noqa: PLC0415
        from graphmem.settings.schema import NEVER  # noqa: PLC0415

        if not may_create:
            _check_exists(settings)
        if not is_server:
            lifecycle = settings.lifecycle.model_copy(update={"daily_at": NEVER})
            settings = settings.model_copy(update={"lifecycle": lifecycle})
        with Memory(self.home, settings=settings) as memory:
            try:
                yield memory
            except KeyboardInterrupt:
                # Closing would wait for background work. Unfinished work stays recorded; the next command does it.
                os._exit(INTERRUPTED)

    def settings(self) -> Settings:
        """Returns the configuration that the options name, with `version` "v1.1": commands rely on its result shape."""
        from graphmem.boundary import validation  # noqa: PLC0415
        from graphmem.settings import Settings  # noqa: PLC0415

        settings = Settings.from_env(home=self.home) if self.config is None else Settings.from_file(self.config)
        home = {} if self.home is None else {"home": validation.home(self.home, "home")}
        return settings.model_copy(update={"version": "v1.1", **home})

    def print_answer(self, value: object, show: Callable[[Renderer], object]) -> None:
        """Prints a command's answer: `value` as JSON with --json, else whatever `show` prints with the renderer."""
        if self.json:
            typer.echo(json_text(json.dumps(value, ensure_ascii=False, indent=2)))
            return
        from graphmem.cli.render import Renderer  # noqa: PLC0415

        show(Renderer(lambda: self.settings().zone))


def _options(
    user: Annotated[str | None, typer.Option(help="The user whose memories these are.", metavar="ID")] = None,
    agent: Annotated[str | None, typer.Option(help="The agent whose memories these are.", metavar="ID")] = None,
    run: Annotated[str | None, typer.Option(help="The run whose memories these are.", metavar="ID")] = None,
    home: Annotated[
        Path | None,
        PathOption(help="The memory's folder.", metavar="DIR", show_default="$GRAPHMEM_HOME or ~/.graphmem"),
    ] = None,
    config: Annotated[
        Path | None, PathOption(help="A TOML, YAML or JSON file with the configuration.", metavar="FILE")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,  # noqa: FBT002
) -> CommandContext:
    if home is not None and os.fspath(home) == ":memory:":
        raise typer.BadParameter("a memory that ends with the command is of no use; name a folder")
    scope = {"user_id": user, "agent_id": agent, "run_id": run}
    return CommandContext({name: value for name, value in scope.items() if value is not None}, home, config, as_json)


_COMMON_OPTIONS = inspect.signature(_options, eval_str=True).parameters


def command(function: Callable[Concatenate[CommandContext, P], None]) -> Callable[..., None]:
    """Decorates a command: adds the common options, and turns graphmem's errors into one line and an exit status.

    UNUSABLE is that of errors which name a part of the command line or are about the configuration, FAILED that of all
    others, such as a file with unusable contents.

    The function gets a CommandContext in place of the common options; typer reads the extended signature.
    """
    return _with_options(function, list(_COMMON_OPTIONS))


def chats_command(function: Callable[Concatenate[CommandContext, P], None]) -> Callable[..., None]:
    """Decorates a command as `command` does, for one that stores conversations: each of them is a run."""
    return _with_options(function, [name for name in _COMMON_OPTIONS if name != "run"])


def unscoped_command(function: Callable[Concatenate[CommandContext, P], None]) -> Callable[..., None]:
    """Decorates a command as `command` does, for a command on which --user, --agent and --run have no effect."""
    return _with_options(function, [name for name in _COMMON_OPTIONS if name not in SCOPE_OPTIONS])


def server_command(function: Callable[Concatenate[CommandContext, P], None]) -> Callable[..., None]:
    """Decorates a command as `command` does, for one that answers programs until it is stopped, and prints nothing."""
    return _with_options(function, [name for name in _COMMON_OPTIONS if name != "as_json"])


def service_command(function: Callable[Concatenate[CommandContext, P], None]) -> Callable[..., None]:
    """Decorates a command as `server_command` does, for one that answers programs of several users."""
    return _with_options(function, [name for name in _COMMON_OPTIONS if name not in {*SCOPE_OPTIONS, "as_json"}])


def _with_options(
    function: Callable[Concatenate[CommandContext, P], None], shared_names: Collection[str]
) -> Callable[..., None]:
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    shared = [_COMMON_OPTIONS[name].replace(kind=inspect.Parameter.KEYWORD_ONLY) for name in shared_names]
    written_names = _written_names([*own, *shared])

    @functools.wraps(function)
    def run(**arguments: Any) -> None:
        call = _options(**{name: value for name, value in arguments.items() if name in shared_names})
        try:
            function(call, **{name: value for name, value in arguments.items() if name not in shared_names})  # type: ignore[call-arg]  # typer has checked them against the signature below
        except ValidationError as error:
            message, status = _as_written(error, written_names)
            raise error_exit(message, status) from None
        except ConfigError as error:
            raise error_exit(str(error), UNUSABLE) from None
        except GraphmemError as error:
            raise error_exit(str(error)) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None

    parameters = [parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in own] + shared
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # read by typer
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _written_names(parameters: Sequence[inspect.Parameter]) -> dict[str, str]:
    """Returns how a command line writes arguments, by the names that errors have for them: `--top-k` for "top_k"."""
    names = dict(_OPTION_OF_SCOPE_ID)
    for parameter in parameters:
        for info in getattr(parameter.annotation, "__metadata__", ()):
            if isinstance(info, ArgumentInfo):
                names[parameter.name] = (info.metavar or parameter.name.upper()).partition("|")[0].removesuffix("...")
            elif isinstance(info, OptionInfo):
                default = f"--{parameter.name.replace('_', '-')}"
                # Of an annotation, typer keeps the first name as `default`.
                declared = [name for name in (info.default, *(info.param_decls or ())) if isinstance(name, str)]
                names[parameter.name] = next((name for name in declared if name.startswith("--")), default)
    return names


def _as_written(error: ValidationError, written_names: Mapping[str, str]) -> tuple[str, int]:
    """Returns the message with the argument at its beginning, and the scope's in its remedy, as a command line writes
    them, and the exit status: UNUSABLE if it begins with a part of the command line. The value in it stays as it is.
    """
    message, name = str(error), _FIRST_NAME.match(error.argument or "")
    if name is None or name[0] not in written_names:
        first = _FIRST_NAME.match(message)
        return message, UNUSABLE if first is not None and first[0] in written_names.values() else FAILED
    rest = message.removeprefix(name[0])
    remedy = rest if message == error.without_value else error.without_value.partition("): ")[2]
    value = rest.removesuffix(remedy)
    return (
        written_names[name[0]] + value + _SCOPE_ID.sub(lambda match: _OPTION_OF_SCOPE_ID[match[0]], remedy),
        UNUSABLE,
    )


def error_exit(message: str, status: int = FAILED) -> typer.Exit:
    """Prints the message to standard error in one line; returns the exception to be raised."""
    from graphmem.cli.render import one_line  # noqa: PLC0415

    typer.echo(f"graphmem: {one_line(message)}", err=True)
    return typer.Exit(status)


def require_terminal(asker: str) -> None:
    """Raises an error of usage unless somebody can be asked; `asker` is what needs a confirmation, as it is written."""
    if not sys.stdin.isatty():
        raise typer.BadParameter(f"{asker} needs --yes without a terminal, as nobody can be asked")


def confirm_erasure(question: str) -> None:
    """Asks whether to erase; ends the command, with an error, if the answer is no."""
    if not typer.confirm(f"{question} This cannot be reversed.", err=True):
        raise error_exit("nothing was deleted")


def _check_exists(settings: Settings) -> None:
    """Raises StoreError if no ledger is where the settings say."""
    from graphmem.wiring import has_ledger, ledger_location  # noqa: PLC0415

    if has_ledger(settings):
        return
    location = ledger_location(settings)
    place = f"at {str(location)!r}" if isinstance(location, Path) else "in the database that ledger_url names"
    raise StoreError(
        f"there is no memory {place}; name the folder (--home, GRAPHMEM_HOME) or the configuration (--config) of one "
        "that exists, or make one with 'graphmem add'"
    )


def json_object(text: str | None, option: str) -> dict[str, Any] | None:
    """Parses an option that holds a JSON object. Raises BadParameter, naming `option`, for anything else."""
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
    """Splits an option at its commas."""
    return None if text is None else [word.strip() for word in text.split(",")]
