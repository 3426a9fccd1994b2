"""How tests get processes that die where they are told to (`child.py`), and what they look at afterwards."""

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

from support.waiting import PATIENCE

from graphmem import Memory


class Server:
    """The warm process that forks the victims."""

    def __init__(self, *modules: str) -> None:
        """`modules` are those to be warm in besides."""
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
        # A line without an end was being written.
        return code, [json.loads(line) for line in lines if line.endswith("\n")]

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE)
        self._process.stdout.close()


@contextmanager
def in_memory() -> Iterator[Path]:
    """A new folder, where the system can in memory: a killed process leaves what it wrote, synced or not."""
    shared = "/dev/shm"
    made = tempfile.mkdtemp(prefix="graphmem-crash-", dir=shared if os.access(shared, os.W_OK) else None)
    try:
        yield Path(made)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def sound(memory: Memory) -> None:
    report = memory.verify()
    assert report["ok"], report


def words_in_files(home: Path, words: Iterable[str]) -> list[tuple[str, str]]:
    """Which of these words are in which files of a folder."""
    wanted = [word.encode() for word in words]
    found = []
    for path in sorted(home.rglob("*")):
        held = path.read_bytes() if path.is_file() else b""
        found += [(word.decode(), path.name) for word in wanted if word in held]
    return found
