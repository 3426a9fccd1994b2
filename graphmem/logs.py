"""Texts of errors for logs and results, which hold no text of a memory."""

from __future__ import annotations

from graphmem.errors import LOGGABLE_CAUSES, GraphmemError


def cause_of(error: BaseException) -> str | None:
    """Returns the error's text; None if it may quote what a caller passed."""
    is_loggable = isinstance(error, GraphmemError) and (error.is_loggable or str(error) in LOGGABLE_CAUSES)
    return str(error) if is_loggable else None


def log_text(error: BaseException) -> str:
    """Returns the name of the error's class and, unless it may quote what a caller passed, its text."""
    name, cause = type(error).__name__, cause_of(error)
    return name if cause is None else f"{name}: {cause}"
