"""Command lines of graphmem as a reader writes them, checked without running them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from typer import BadParameter
from typer.main import get_command

from graphmem.cli.app import app

_APP = get_command(app)
_UsageError = BadParameter.__base__


def check_command(words: Sequence[str], *, is_whole: bool = True) -> None:
    """Checks that `words`, "graphmem" first, name a command with options that it has.

    Of a whole command the arguments have to be complete and of the right kind, too.
    """
    command, rest = _APP, list(words[1:])
    assert words[0] == "graphmem", words
    while hasattr(command, "commands") and rest:
        default = getattr(command, "default", None)
        if default is not None and rest[0] not in command.commands:
            rest = [default, *rest]
        if rest[0].startswith("-"):
            break
        assert rest[0] in command.commands, f"{shlex.join(words)}: no such command"
        command = command.commands[rest.pop(0)]
    if not is_whole:
        options = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in rest if word.startswith("-")} <= options, f"{shlex.join(words)}: no such option"
        return
    try:
        command.make_context(None, rest)
    except _UsageError as error:
        raise AssertionError(f"{shlex.join(words)}: {error}") from error
