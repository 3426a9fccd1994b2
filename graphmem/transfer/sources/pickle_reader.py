"""Reads points of Qdrant's local mode, which stores them as pickles, in separate processes (`safe_unpickler`).

A malicious or damaged pickle can only crash such a process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from graphmem.errors import StoreUnavailable, ValidationError
from graphmem.transfer.sources import safe_unpickler

# Seconds of wall clock for a page, which takes some thousandths; `safe_unpickler` limits the processor time to less.
TIMEOUT = 60
# Crashes of processes after which reading is given up.
MAX_CRASHES = 20

Fields = Mapping[str, Any]


class PickleReader:
    """Reads the pickled points of one file page by page, each page in a process of its own."""

    def __init__(self) -> None:
        self._crashes = 0

    def fields(self, page: Sequence[bytes]) -> list[Fields | None]:
        """Returns "id" and "payload" of each pickled point; None for a damaged one, or one that exceeds the limits.

        Raises ValidationError after more than `MAX_CRASHES` crashes, and StoreUnavailable if no process can be started.
        """
        results: list[Fields | None] = []
        while len(results) < len(page):
            answers, crashed = _run_unpickler(page[len(results) :])
            results += answers
            if crashed or not answers:
                self._crashes += 1
                if self._crashes > MAX_CRASHES:
                    raise ValidationError(
                        f"--qdrant: reading more than {MAX_CRASHES} of its points fails; check "
                        "that it is a folder that mem0 wrote"
                    )
                results.append(None)  # the point at which it crashed
        return results[: len(page)]


def _run_unpickler(page: Sequence[bytes]) -> tuple[list[Fields | None], bool]:
    """Returns the answers received, and whether the process crashed or timed out at the next point."""
    request = b"".join(part for data in page for part in (len(data).to_bytes(8, "big"), data))
    command = [sys.executable, "-I", "-S", safe_unpickler.__file__]
    try:
        process = subprocess.run(  # noqa: S603  (our own file)
            command, input=request, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=TIMEOUT, check=False
        )
        output, crashed = process.stdout, process.returncode != 0
    except subprocess.TimeoutExpired as timeout:
        output, crashed = timeout.stdout or b"", True
    except OSError as error:
        raise StoreUnavailable(f"--qdrant: no process can be started to read it ({error.strerror})") from None
    if not output.startswith(safe_unpickler.READY):
        raise StoreUnavailable("--qdrant: the process that reads it does not start; check that Python can run here")
    complete_lines = output[len(safe_unpickler.READY) : output.rfind(b"\n") + 1]
    return [json.loads(line) for line in complete_lines.splitlines()], crashed
