"""`graphmem worker` as a process of its own, which tests end and kill."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile

from support.waiting import SERVER_TIMEOUT, wait_until

COMMAND = (sys.executable, "-m", "graphmem", "worker")
READY = "graphmem: doing the jobs of this ledger\n"


@contextmanager
def background_process(
    command: Sequence[str], ready: str, **environment: str
) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Starts a command, whose output goes to the file returned, and waits for `ready` in it; kills it at the end."""
    with NamedTemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **environment})
        path = Path(log.name)
        try:
            wait_until(lambda: ready in path.read_text("utf-8") or process.poll() is not None, timeout=SERVER_TIMEOUT)
            assert ready in path.read_text("utf-8"), path.read_text("utf-8")
            yield process, path
        finally:
            process.kill()
            process.wait()


@contextmanager
def worker_process(
    config: Path, command: Sequence[str] = COMMAND, **environment: str
) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Starts `graphmem worker` with a file of settings; kills it at the end."""
    with background_process([*command, "--config", str(config)], READY, **environment) as running:
        yield running
