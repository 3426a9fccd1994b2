"""The commands `graphmem import`: of a file that export wrote, and of the chats of other programs.

Heavy imports wait until a command runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from graphmem.boundary import validation
from graphmem.cli.options import CommandContext, PathArgument, chats_command, unscoped_command
from graphmem.cli.transfer import STANDARD_STREAM, fail_if_any, import_records, print_skipped, with_progress
from graphmem.errors import ValidationError

if TYPE_CHECKING:
    from graphmem.cli.render import Renderer


class _DefaultGroup(TyperGroup):
    """Commands of which `default` is run if the first argument is none of their names."""

    default = "file"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, "--help"}:
            args = [self.default, *args]
        return super().parse_args(ctx, args)


imports = typer.Typer(
    cls=_DefaultGroup,
    help="Imports a file that export wrote, or chats of another program.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@unscoped_command
def file(
    call: CommandContext,
    path_or_file: Annotated[
        str, typer.Argument(metavar="FILE|-", help="A file that export wrote, or - for standard input.")
    ],
    restore: Annotated[bool, typer.Option("--restore", help="Import memories that were erased here, too.")] = False,  # noqa: FBT002
) -> None:
    """Imports a file that export wrote; the word may be left out.

    `graphmem import FILE` is short for `graphmem import file FILE`. Memories that exist here stay as they are, so an
    import can be repeated. It takes the memories of all scopes in the file; for those of one, give --user, --agent or
    --run to export.
    """
    from graphmem.cli.render import ProgressBar  # noqa: PLC0415

    source: str | IO[bytes] = sys.stdin.buffer if path_or_file == STANDARD_STREAM else path_or_file
    with call.memory(may_create=True) as memory, ProgressBar() as bar:
        counts = memory.import_(source, restore=restore, progress=bar.update)
    call.print_answer(counts, lambda renderer: _print_imported(renderer, counts))


def _print_imported(renderer: Renderer, counts: Mapping[str, Any]) -> None:
    parts = [f"{counts['added']} added"]
    parts += [f"{counts['known']} known already"] if counts["known"] else []
    parts += [f"{counts['erased']} erased here before, not brought back without --restore"] if counts["erased"] else []
    parts += [f"{counts['tombstones']} erased there, noted"] if counts["tombstones"] else []
    parts += [f"{counts['skipped_links']} links to memories that are not here"] if counts["skipped_links"] else []
    if counts["skipped_data"]:
        remedy = "set attachments.store to folder before an import"
        parts.append(f"{counts['skipped_data']} attachments without their data ({remedy})")
    parts += [f"{counts['settings']} settings restored"] if counts["settings"] else []
    parts += [f"{counts['keys']} keys to be made anew (graphmem keys create)"] if counts["keys"] else []
    parts += [f"{counts['unenriched']} still without vectors and entities"] if counts["unenriched"] else []
    parts += [f"not yet in {' and '.join(counts['pending'])}"] if counts.get("pending") else []
    renderer.line("; ".join(parts))


# --- chats -----------------------------------------------------------------------------------------------------------


@chats_command
def chatgpt(
    call: CommandContext,
    path: Annotated[Path, PathArgument(metavar="FILE", help="The zip file, or the conversations.json in it.")],
) -> None:
    """Imports the chats of ChatGPT from an export of your data.

    Each chat is a run, with the messages that are shown in it. No language model is called. Repeated with a later
    export, it adds what is new.
    """
    _import_chats(call, "chatgpt", path)


@chats_command
def claude(
    call: CommandContext,
    path: Annotated[Path, PathArgument(metavar="FILE", help="The zip file, or the conversations.json in it.")],
) -> None:
    """Imports the chats of Claude from an export of your data.

    Each chat is a run, with the words of both. No language model is called. Repeated with a later export, it adds what
    is new.
    """
    _import_chats(call, "claude", path)


@chats_command
def claude_code(
    call: CommandContext,
    path: Annotated[
        Path | None,
        PathArgument(
            metavar="DIR|FILE", help="The folder of the sessions, or one of them.", show_default="~/.claude/projects"
        ),
    ] = None,
) -> None:
    """Imports the sessions of Claude Code on this machine.

    They are stored as the hooks of `graphmem install claude-code` store turns: each project is an agent, secrets are
    left out, and what hooks have stored is not added again. No tool calls, their output, thoughts and subagents. No
    language model is called. Repeated, it adds what is new.
    """
    _import_chats(call, "claude-code", _sessions_folder() if path is None else path)


def _sessions_folder() -> Path:
    return Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude") / "projects"


@chats_command
def whatsapp(
    call: CommandContext,
    path: Annotated[Path, PathArgument(metavar="FILE", help="The text, or the zip file, of an exported chat.")],
) -> None:
    """Imports a chat that WhatsApp exported.

    The chat is a run, by the name of its file; each message keeps its speaker. No language model is called. Repeated
    with a later export of the chat, it adds what is new.
    """
    _import_chats(call, "whatsapp", path)


def _import_chats(call: CommandContext, program: str, path: Path) -> None:
    from graphmem.cli.render import ProgressBar  # noqa: PLC0415
    from graphmem.transfer.sources import chat_files, conversations, skipped_records  # noqa: PLC0415

    if not call.scope:
        raise ValidationError("--user and --agent are both missing: pass at least one, to say whose chats these are")
    scope = validation.required_scope(**call.scope)[0]
    skipped, left_out = skipped_records.SkippedRecords(), conversations.LeftOut()
    chats = chat_files.conversations(program, path, call.settings().zone, skipped, left_out)
    with ProgressBar() as bar:
        read = conversations.records(chats, scope, skipped, left_out)
        records = list(with_progress(read, lambda number: bar.update("messages read", number, None)))
    with call.memory(may_create=True, embeds=True) as memory:
        counts = import_records(memory, records, len(records))
    answer = {
        **{name: counts[name] for name in ("added", "known", "erased", "refused", "unenriched")},
        "conversations": len({record.get("run_id") or record["session"] for record in records}),
        "left_out": left_out.as_json(),
        "left": skipped.by_reason,
        **({"pending": counts["pending"]} if "pending" in counts else {}),
    }

    def show(renderer: Renderer) -> None:
        _print_chats(renderer, answer)
        print_skipped(renderer, skipped)

    call.print_answer(answer, show)
    fail_if_any(skipped)


def _print_chats(renderer: Renderer, answer: Mapping[str, Any]) -> None:
    labels = {
        "known": "known already",
        "erased": "erased here before, not added again",
        "refused": "refused by before_store",
        "unenriched": "still to be embedded",
    }
    parts = [
        f"{answer['added']:,} added",
        *(f"{answer[name]:,} {label}" for name, label in labels.items() if answer[name]),
    ]
    parts += [f"conversations: {answer['conversations']:,}"]
    parts += [f"not yet in {' and '.join(answer['pending'])}"] if answer.get("pending") else []
    renderer.line("; ".join(parts))
    for reason, left_out in answer["left_out"].items():
        characters = f" ({left_out['characters']:,} characters)" if left_out["characters"] else ""
        renderer.line((f"{left_out['number']:,} left out: ", "dim"), f"{reason}{characters}", hang=2)


for _command in (file, chatgpt, claude, claude_code, whatsapp):
    imports.command(_command.__name__.replace("_", "-"))(_command)
