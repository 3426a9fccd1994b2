"""Files that are there as a whole or not at all, and of which a killed process leaves nothing.

They are written without a name (Linux's O_TMPFILE) and given one at the end; where a file system has no such files,
under a name of their own. Readable by their owner only from the first moment on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from tempfile import NamedTemporaryFile

FILE_MODE = 0o600
_UNNAMED = getattr(os, "O_TMPFILE", 0)


def create_file(path: Path, content: bytes) -> None:
    """A new file. Raises FileExistsError where there is one."""
    descriptor = _unnamed(path.parent)
    if descriptor is None:
        _create_in_place(path, content)
        return
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)
        _link(descriptor, path)
    _sync(path.parent)


def _create_in_place(path: Path, content: bytes) -> None:
    with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE_MODE), "wb") as file:
        try:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        except BaseException:
            path.unlink()
            raise


@contextmanager
def replace_file(path: Path) -> Iterator[Callable[[bytes], object]]:
    """A file that takes the place of `path` at the end."""
    descriptor = _unnamed(path.parent)
    if descriptor is None:
        with _named(path) as write:
            yield write
        return
    with os.fdopen(descriptor, "wb") as file:
        yield file.write
        file.flush()
        os.fsync(descriptor)
        try:
            _link(descriptor, path)
        except FileExistsError:
            # A link cannot take a name's place. The name in between is the target's, so that the next one removes it.
            between = path.with_name(f".graphmem-{sha256(os.fsencode(path.name)).hexdigest()[:16]}")
            between.unlink(missing_ok=True)
            try:
                _link(descriptor, between)
                between.replace(path)
            except BaseException:
                between.unlink(missing_ok=True)
                raise


@contextmanager
def _named(path: Path) -> Iterator[Callable[[bytes], object]]:
    with NamedTemporaryFile(dir=path.parent, prefix=".graphmem-", delete=False) as file:
        try:
            yield file.write
            file.flush()
            os.fsync(file.fileno())
            Path(file.name).replace(path)
        except BaseException:
            with suppress(OSError):
                Path(file.name).unlink()
            raise


def _unnamed(folder: Path) -> int | None:
    """A file without a name; None where there are none, or no way to give it one later."""
    if not _UNNAMED or not Path("/proc/self/fd").is_dir():
        return None
    try:
        return os.open(folder, _UNNAMED | os.O_WRONLY, FILE_MODE)
    except OSError:  # whatever else is wrong with the folder, the other way tells it, too
        return None


def _link(descriptor: int, path: Path) -> None:
    # With a folder's descriptor Python calls linkat, which alone follows /proc's link to the file.
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.link(f"/proc/self/fd/{descriptor}", path.name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        os.close(folder)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
