"""Writes files that exist completely or not at all; a killed process leaves no partial file behind.

They are written without a name (Linux's O_TMPFILE), which they get at the end, or under a temporary name where the file
system does not support that. They are readable only by their owner from the first moment on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from tempfile import mkstemp

FILE_MODE = 0o600
_UNNAMED = getattr(os, "O_TMPFILE", 0)


def create_file(path: Path, content: bytes) -> None:
    """Creates a file with this content. Raises FileExistsError if the path exists."""
    descriptor = _open_unnamed(path.parent)
    if descriptor is None:
        with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE_MODE), "wb") as file:
            try:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            except BaseException:
                path.unlink()
                raise
        return
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)
        _link(descriptor, path)
    _sync_folder(path.parent)


@contextmanager
def replace_file(path: Path) -> Iterator[Callable[[bytes], object]]:
    """Yields a function that writes bytes to a new file, which replaces `path` when the block ends without an error."""
    descriptor = _open_unnamed(path.parent)
    if descriptor is None:
        with _replace_by_temporary_file(path) as write:
            yield write
        return
    with os.fdopen(descriptor, "wb") as file:
        yield file.write
        file.flush()
        os.fsync(descriptor)
        try:
            _link(descriptor, path)
        except FileExistsError:
            # A link cannot replace an existing name. The intermediate name derives from the target's, so that the next
            # call removes one that a killed process left.
            intermediate = path.with_name(f".graphmem-{sha256(os.fsencode(path.name)).hexdigest()[:16]}")
            intermediate.unlink(missing_ok=True)
            try:
                _link(descriptor, intermediate)
                intermediate.replace(path)
            except BaseException:
                intermediate.unlink(missing_ok=True)
                raise


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Yields the path of a new, empty file, which replaces `path` when the block ends without an error.

    For writers that take a path. A process that is killed leaves the file behind, under a name that begins with
    ".graphmem-".
    """
    with temporary_file(path.parent) as file:
        yield file
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        file.replace(path)
        _sync_folder(path.parent)


@contextmanager
def temporary_file(folder: Path) -> Iterator[Path]:
    """Yields the path of a new, empty file in a folder, and removes it at the end, if it still has that name."""
    descriptor, name = mkstemp(dir=folder, prefix=".graphmem-")
    os.close(descriptor)
    try:
        yield Path(name)
    finally:
        with suppress(OSError):
            Path(name).unlink(missing_ok=True)


@contextmanager
def _replace_by_temporary_file(path: Path) -> Iterator[Callable[[bytes], object]]:
    with new_file(path) as temporary, temporary.open("wb") as file:
        yield file.write


def _open_unnamed(folder: Path) -> int | None:
    """Opens a file without a name; returns None where that, or naming it later, is not supported."""
    if not _UNNAMED or not Path("/proc/self/fd").is_dir():
        return None
    try:
        return os.open(folder, _UNNAMED | os.O_WRONLY, FILE_MODE)
    except OSError:  # any other fault of the folder is reported by the attempt with a named file
        return None


def _link(descriptor: int, path: Path) -> None:
    # With a folder's descriptor Python calls linkat; plain link would not follow /proc's link to the file.
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.link(f"/proc/self/fd/{descriptor}", path.name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        os.close(folder)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
