"""Where a written graph goes: standard output, or a file that is there as a whole or not at all."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from graphmem.cli.options import error_exit
from graphmem.transfer.jsonl import atomic_file


def write_output(text: str, output: Path | None, kept: Sequence[Path]) -> None:
    """Writes it in UTF-8, whatever the terminal's encoding. A file is readable by its owner only: it holds memories.

    `kept` is where memories are kept: no place for it.
    """
    content = text.encode(errors="replace")  # half a surrogate pair is no letter in any encoding
    if output is None:
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
        return
    try:
        with atomic_file(output, kept) as write:
            write(content)
    except OSError as error:
        raise error_exit(f"{output}: cannot be written ({error.strerror}); name a file in a folder of yours") from None
    typer.echo(f"graphmem: written to {output}", err=True)
