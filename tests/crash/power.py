"""A power cut: writes that were not synced are lost, all of them or those that the system had not written yet.

A killed process leaves what it wrote in the system's cache. So the victim copies its index whenever it has flushed it
(`copy`), and after its death the index is put together from that copy and from what the process left (`cut_power`).
"""

from __future__ import annotations

import mmap
import os
import shutil
from pathlib import Path
from random import Random

PAGE = mmap.PAGESIZE


def _pages(path: Path) -> dict[int, bytes]:
    """The pages of a file that are no holes, by offset."""
    if not path.exists():
        return {}
    found: dict[int, bytes] = {}
    with path.open("rb") as file:
        end = 0
        while True:
            try:
                start = os.lseek(file.fileno(), end, os.SEEK_DATA)
            except OSError:  # no data after `end`
                return found
            end = os.lseek(file.fileno(), start, os.SEEK_HOLE)
            first = start - start % PAGE
            data = os.pread(file.fileno(), end - first, first)
            found.update((first + at, data[at : at + PAGE]) for at in range(0, len(data), PAGE))


def _write(path: Path, size: int, pages: dict[int, bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(size)
        for offset, page in pages.items():
            os.pwrite(file.fileno(), page[: max(0, size - offset)], offset)


def copy(folder: Path, target: Path) -> None:
    """Copies a folder without filling the holes of its files."""
    shutil.rmtree(target, ignore_errors=True)
    for path in folder.rglob("*"):
        if path.is_file():
            _write(target / path.relative_to(folder), path.stat().st_size, _pages(path))


def cut_power(folder: Path, synced: Path, kept: float, dice: Random) -> None:
    """Brings a folder back to its copy, but for this share of the pages, sizes and names written since."""
    names = {path.relative_to(root) for root in (folder, synced) for path in root.rglob("*") if path.is_file()}
    for name in sorted(names):
        old, new = synced / name, folder / name
        if old.exists() != new.exists():
            survivor = new if dice.random() < kept else old
            if not survivor.exists():
                new.unlink(missing_ok=True)
                continue
        sizes = [path.stat().st_size if path.exists() else 0 for path in (old, new)]
        old_pages, new_pages = _pages(old), _pages(new)
        pages = {
            offset: (new_pages if dice.random() < kept else old_pages).get(offset, bytes(PAGE))
            for offset in sorted(old_pages.keys() | new_pages.keys())
        }
        _write(new, sizes[dice.random() < kept], pages)
