"""Prompt templates, one Markdown file each: readable for people, and constant, so that endpoints can cache them."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def load(name: str) -> str:
    """Returns the text of the template `<name>.md`, without surrounding white space."""
    return (files(__name__) / f"{name}.md").read_text("utf-8").strip()
