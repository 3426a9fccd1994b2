"""The Cypher in `cypher/`: static text, one statement in each file, read once. Values go into it only as parameters."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import LiteralString


@cache
def statement(path: str) -> LiteralString:
    """The statement in `cypher/<path>.cypher`, without its comments.

    It is as good as a literal of ours: nothing is ever put into it.
    """
    lines = (_folder() / f"{path}.cypher").read_text("utf-8").splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith("//"))


@cache
def statements(folder: str) -> tuple[LiteralString, ...]:
    """All statements of a folder, in the order of their files' names."""
    names = sorted(entry.name for entry in (_folder() / folder).iterdir())
    return tuple(statement(f"{folder}/{name.removesuffix('.cypher')}") for name in names)


def _folder() -> Traversable | Path:
    """The wheel carries the folder inside the package; in a checkout it stands beside it, for people to find."""
    packaged = files("graphmem") / "_cypher"
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "cypher"
