"""Starts processes that die at a given point (`child.py`), and checks their folders afterwards."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from support.waiting import TIMEOUT

from graphmem import Memory


class Server:
    """The warm process that forks the victims."""

    def __init__(self, *modules: str) -> None:
        """`modules` are further modules to import before the first fork."""
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("child.py")), "serve", *modules],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def order(self, home: Path, act: str, **rest: object) -> tuple[int, list[dict]]:
        journal = home.with_name(home.name + ".journal")
        order = {"home": str(home), "journal": str(journal), "act": act, **rest}
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        code = json.loads(self._process.stdout.readline())["code"]
        error = Path(str(journal) + ".err")
        assert code != 3, error.read_text()
        lines = journal.read_text().splitlines(keepends=True) if journal.exists() else []
        # A line without an end was cut off by the kill.
        return code, [json.loads(line) for line in lines if line.endswith("\n")]

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(TIMEOUT)
        self._process.stdout.close()


@contextmanager
def in_memory() -> Iterator[Path]:
    """A new folder, in memory if the system can: a kill, unlike a power failure, loses no unsynced writes."""
    shared = "/dev/shm"
    folder = tempfile.mkdtemp(prefix="graphmem-crash-", dir=shared if os.access(shared, os.W_OK) else None)
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def assert_verified(memory: Memory) -> None:
    report = memory.verify()
    assert report["ok"], report


def words_in_files(home: Path, words: Iterable[str]) -> list[tuple[str, str]]:
    """The words that are in files of a folder, each with the file's name."""
    encoded = [word.encode() for word in words]
    matches = []
    for path in sorted(home.rglob("*")):
        content = path.read_bytes() if path.is_file() else b""
        matches += [(word.decode(), path.name) for word in encoded if word in content]
    return matches
