"""Processes and statements beside a test, on a ledger on PostgreSQL."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from graphmem import Memory, Settings
from support.databases import KEY
from support.fakes import fake_models
from support.waiting import TIMEOUT

PROGRAM = Path(__file__).parents[1] / "server" / "peer.py"


@contextmanager
def opened(url: str, home: Path, **config: Any) -> Iterator[Memory]:
    with Memory(home, settings=Settings.from_dict(fake_models(ledger_url=url, secret_key=KEY, **config))) as memory:
        yield memory


def sql(url: str, statement: str) -> list[Any]:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


class Peer:
    """Another process; see `peer.py`."""

    def __init__(self, url: str, home: Path, order: str, name: str = "peer") -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM), url, str(home / name), order, name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.answer() == "ready"

    def go(self) -> None:
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        return json.loads(self._process.stdout.readline())

    def end(self) -> None:
        self._process.stdin.close()
        assert self._process.wait(TIMEOUT) == 0
        self._process.stdout.close()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(TIMEOUT)
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()
