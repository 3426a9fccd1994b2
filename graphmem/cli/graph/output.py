"""Writes the text of a graph to standard output or, atomically, to a file."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from graphmem.cli.options import error_exit
from graphmem.transfer.jsonl import atomic_file


def write_output(text: str, output: Path | None, storage_paths: Sequence[Path]) -> None:
    """Writes the text in UTF-8, whatever the terminal's encoding, to `output` or, if None, to standard output.

    A file is readable by its owner only, as it holds memories. It may not be in one of `storage_paths`, the files and
    folders of the memory itself. Exits with an error if it cannot be written.
    """
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
