"""Waiting in tests: they poll, and give up late. No test asserts how long something took.

`TEST_SLOWNESS` stretches every wait, for machines that are slower than a busy laptop.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

SLOWNESS = float(os.environ.get("TEST_SLOWNESS", "1"))
# Seconds after which a test gives up on something that should happen at once.
PATIENCE = 60 * SLOWNESS
# The same where a server has to start for it.
SERVER_PATIENCE = 3 * PATIENCE


def wait_until(condition: Callable[[], object], what: str = "it did not happen", patience: float = PATIENCE) -> None:
    """Returns as soon as the condition holds. Raises AssertionError, with `what`, after `patience` seconds."""
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.005)
