"""Waiting in tests: polling with a long timeout. No test asserts how long something took.

`TEST_SLOWNESS` stretches every wait, for machines that are slower than a busy laptop.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

SLOWNESS = float(os.environ.get("TEST_SLOWNESS", "1"))
# Seconds after which a test gives up on something that should happen at once.
TIMEOUT = 60 * SLOWNESS
# The same where a server has to start for it.
SERVER_TIMEOUT = 3 * TIMEOUT


def wait_until(condition: Callable[[], object], message: str = "it did not happen", timeout: float = TIMEOUT) -> None:
    """Returns as soon as the condition holds. Raises AssertionError, with `message`, after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, message
        time.sleep(0.005)
