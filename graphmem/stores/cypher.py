"""Loads the Cypher statements in `cypher/`: static text, one per file, read once. Values are always parameters."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import LiteralString


@cache
def statement(path: str) -> LiteralString:
    """Returns the statement in `cypher/<path>.cypher`, without its comment lines.

    Typed as a LiteralString, because the file is part of the package and no value is ever formatted into it.
    """
    lines = (_folder() / f"{path}.cypher").read_text("utf-8").splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith("//"))


@cache
def statements(folder: str) -> tuple[LiteralString, ...]:
    """Returns all statements of a folder, in the order of their file names."""
    names = sorted(entry.name for entry in (_folder() / folder).iterdir())
    return tuple(statement(f"{folder}/{name.removesuffix('.cypher')}") for name in names)


def _folder() -> Traversable | Path:
    """Returns the folder inside the package (in a wheel), else the one at the top of the checkout."""
    packaged = files("graphmem") / "_cypher"
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "cypher"
