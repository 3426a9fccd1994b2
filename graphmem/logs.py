"""Texts of errors for logs and results, which hold no text of a memory; logs failures of work that stays recorded."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from graphmem.errors import LOGGABLE_CAUSES, ConfigError, GraphmemError, ModelError, StoreError

logger = logging.getLogger("graphmem")


def cause_of(error: BaseException) -> str | None:
    """Returns the error's text; None if it may quote what a caller passed."""
    is_loggable = isinstance(error, GraphmemError) and (error.is_loggable or str(error) in LOGGABLE_CAUSES)
    return str(error) if is_loggable else None


def log_text(error: BaseException) -> str:
    """Returns the name of the error's class and, unless it may quote what a caller passed, its text."""
    name, cause = type(error).__name__, cause_of(error)
    return name if cause is None else f"{name}: {cause}"


@contextmanager
def log_and_leave_pending() -> Iterator[None]:
    """Logs a failure of a model or store after a commit; the unfinished work stays recorded and is tried again.

    Also logs the ConfigError for a changed embedder: `undo` embeds the restored text without checking the embedder.
    """
    try:
        yield
    except (ModelError, StoreError, ConfigError) as error:
        logger.warning("work after a write failed (%s); it stays recorded and is tried again", log_text(error))
