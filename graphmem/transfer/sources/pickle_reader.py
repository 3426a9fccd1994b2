"""Points of Qdrant's local mode, which keeps them as pickles: read by processes that may die of them
(`safe_unpickler`).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from graphmem.errors import StoreUnavailable, ValidationError
from graphmem.transfer.sources import safe_unpickler

# Seconds for a page, which takes some thousandths; time at work is limited more closely.
TIMEOUT = 60
# Processes that may die of what they read before nothing more is tried.
MAX_CRASHES = 20

Fields = Mapping[str, Any]


class PickleReader:
    """What one file holds; it is read page by page, each page by a process."""

    def __init__(self) -> None:
        self._deaths = 0

    def fields(self, page: Sequence[bytes]) -> list[Fields | None]:
        """The "id" and "payload" of each pickled point; None for what is none, or cannot be read within the limits.

        Raises ValidationError where too many take the process down that reads them.
        """
        found: list[Fields | None] = []
        while len(found) < len(page):
            answers, died = _asked(page[len(found) :])
            found += answers
            if died or not answers:
                self._deaths += 1
                if self._deaths > MAX_CRASHES:
                    raise ValidationError(
                        f"--qdrant: reading more than {MAX_CRASHES} of its points fails; see that "
                        "it is a folder that mem0 wrote"
                    )
                found.append(None)  # the one that it was at
        return found[: len(page)]


def _asked(page: Sequence[bytes]) -> tuple[list[Fields | None], bool]:
    """The answers that came, and whether the process died over the next one."""
    given = b"".join(part for data in page for part in (len(data).to_bytes(8, "big"), data))
    command = [sys.executable, "-I", "-S", safe_unpickler.__file__]
    try:
        done = subprocess.run(  # noqa: S603  (our own file)
            command, input=given, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=TIMEOUT, check=False
        )
        out, died = done.stdout, done.returncode != 0
    except subprocess.TimeoutExpired as late:
        out, died = late.stdout or b"", True
    except OSError as error:
        raise StoreUnavailable(f"--qdrant: no process can be started to read it ({error.strerror})") from None
    if not out.startswith(safe_unpickler.READY):
        raise StoreUnavailable("--qdrant: the process that is to read it does not start; see that Python runs here")
    whole = out[len(safe_unpickler.READY) : out.rfind(b"\n") + 1]
    return [json.loads(line) for line in whole.splitlines()], died
