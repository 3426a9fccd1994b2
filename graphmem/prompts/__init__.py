"""What is said to language models, as files: people can read them, and endpoints cache what is the same each time."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def load(name: str) -> str:
    """The prompt in `<name>.md`, without white space around it."""
    return (files(__name__) / f"{name}.md").read_text("utf-8").strip()
