"""A Redis server of a test's own, where `redis-server` is on the machine."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import AF_INET, SOCK_STREAM, socket

import pytest

from support.waiting import SERVER_TIMEOUT, wait_until

PROGRAM = shutil.which("redis-server")
needs_redis = pytest.mark.skipif(PROGRAM is None, reason="no redis-server on this machine")


class RedisServer:
    """A server without files, which ends with its context."""

    def __init__(self, folder: Path) -> None:
        with socket(AF_INET, SOCK_STREAM) as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._folder = folder
        self.start()

    def start(self) -> None:
        """Starts it, empty, at the same port, and waits until it answers."""
        command = [str(PROGRAM), "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=self._folder)
        wait_until(self._answers, "Redis does not start", SERVER_TIMEOUT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def pause(self) -> None:
        """Has it hang: connections are taken, and nothing is answered."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def _answers(self) -> bool:
        with socket(AF_INET, SOCK_STREAM) as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


@contextmanager
def running_redis(folder: Path) -> Iterator[RedisServer]:
    server = RedisServer(folder)
    try:
        yield server
    finally:
        server.resume()
        server.kill()
