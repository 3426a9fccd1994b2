"""`graphmem serve` as a process of its own, which tests end and kill."""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import httpx2

from support.waiting import SERVER_TIMEOUT, TIMEOUT, wait_until

# Its lines have addresses with their queries.
logging.getLogger("httpx2").setLevel(logging.WARNING)


class ServeProcess:
    """A running `graphmem serve`, whose output goes to a file."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process, self._log = process, log

    @property
    def log(self) -> str:
        """What it has printed so far."""
        return self._log.read_text("utf-8")

    @property
    def key(self) -> str:
        """The key that it has printed; "" without one."""
        return _first(r"this once: (\S+)", self.log)

    @property
    def address(self) -> str:
        """Its address; "" as long as it does not listen."""
        return _first(r"serving on (\S+)\n", self.log)

    def client(self, key: str = "", **options: Any) -> httpx2.Client:
        """A client with this key ("": without one)."""
        headers = {"X-API-Key": key} if key else {}
        return httpx2.Client(base_url=self.address, headers=headers, timeout=TIMEOUT, **options)

    def end(self, number: int = signal.SIGTERM) -> int:
        """Sends a signal, waits for the end, and returns the exit status."""
        self.process.send_signal(number)
        return self.process.wait(TIMEOUT)


def _first(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    return "" if found is None else found[1]


@contextmanager
def serve_process(
    home: Path, *arguments: str, port: int = 0, prefix: Sequence[str] = (), **environment: str
) -> Iterator[ServeProcess]:
    """Starts `graphmem serve` on a folder without an extractor, by default on a free port; kills it at the end.

    `prefix` is a command that runs the command after it.
    """
    command = [*prefix, sys.executable, "-m", "graphmem", "serve", "--port", str(port), *arguments]
    env = {"GRAPHMEM_HOME": str(home), "GRAPHMEM_EXTRACTOR__PROVIDER": "none", **environment}
    with NamedTemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **env})
        service = ServeProcess(process, Path(log.name))
        try:
            wait_until(lambda: service.address or process.poll() is not None, timeout=SERVER_TIMEOUT)
            assert service.address, service.log
            yield service
        finally:
            process.kill()
            process.wait()


def is_refused(address: str) -> bool:
    """Tells whether nothing listens on an address any more."""
    host, _, port = address.removeprefix("http://").partition(":")
    try:
        socket.create_connection((host, int(port))).close()
    except ConnectionRefusedError:
        return True
    return False
