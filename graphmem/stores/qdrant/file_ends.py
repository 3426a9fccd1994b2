"""The empty ends of Edge's files: cut off a closed index, and given back before it is opened.

Edge reserves room: each segment has files of 32 MB, of which a small memory fills a few hundred kilobytes. The rest are
holes, which take no room on the disk, but many programs that copy files write them out. Files that are cut are as long
as their contents; Edge, which maps them by their sizes, needs the whole length.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from graphmem.atomic_files import replace_file

# The file, in the index's folder, with the whole lengths in bytes of the files that are cut, by their paths in there.
SIZES = "sizes.json"
# Shorter files are left alone.
_MIN_BYTES = 2**18
_BLOCK = 2**16
_MAPPINGS = Path("/proc/self/maps")


def cut(folder: Path) -> None:
    """Cuts the zeros off the ends of the files of an index that was closed.

    The lengths are written first and kept, so that a process may die at any moment. Does nothing while some file is
    mapped, by a search that has not ended: its process would die by SIGBUS; and where the system does not tell what is
    mapped. Raises OSError.
    """
    if not hasattr(os, "SEEK_DATA") or not _is_unmapped(folder):
        return
    sizes: dict[str, int] = {}
    ends: dict[Path, int] = {}
    for path in folder.rglob("*"):
        if path.is_file() and (size := path.stat().st_size) >= _MIN_BYTES and (end := _end_of_contents(path)) < size:
            sizes[path.relative_to(folder).as_posix()], ends[path] = size, end
    _write_sizes(folder / SIZES, sizes)
    for path, end in ends.items():
        os.truncate(path, end)


def restore(folder: Path) -> None:
    """Gives the files of an index their whole lengths. Raises OSError."""
    try:
        sizes = json.loads((folder / SIZES).read_text("utf-8"))
    except (FileNotFoundError, ValueError):  # Edge refuses short files
        return
    for name, size in sizes.items():
        path = folder / name
        with suppress(FileNotFoundError):  # of a segment that was merged into another
            if path.stat().st_size < size:
                os.truncate(path, size)


def _write_sizes(file: Path, sizes: dict[str, int]) -> None:
    content = json.dumps(sizes, sort_keys=True).encode()
    with suppress(FileNotFoundError):
        if file.read_bytes() == content:  # the index was only read
            return
    with replace_file(file) as write:
        write(content)


def _is_unmapped(folder: Path) -> bool:
    try:
        return f" {folder.resolve()}{os.sep}" not in _MAPPINGS.read_text("utf-8", "surrogateescape")
    except OSError:
        return False


def _end_of_contents(path: Path) -> int:
    """Returns the length of a file without the zeros at its end."""
    with path.open("rb") as file:
        for start, stop in reversed(list(_written(file.fileno()))):
            for position in reversed(range(start, stop, _BLOCK)):
                file.seek(position)
                if content := file.read(min(_BLOCK, stop - position)).rstrip(b"\0"):
                    return position + len(content)
    return 0


def _written(descriptor: int) -> Iterator[tuple[int, int]]:
    """Yields start and stop of each part of a file that is no hole."""
    stop = 0
    while True:
        try:
            start = os.lseek(descriptor, stop, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but holes follows
                return
            raise
        stop = os.lseek(descriptor, start, os.SEEK_HOLE)
        yield start, stop
