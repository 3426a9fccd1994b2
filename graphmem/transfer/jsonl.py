"""Records as bytes: JSON Lines with a seal. The last line has the SHA-256 of all before it: nothing half is whole."""

from __future__ import annotations

import json
import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, NoReturn, TypeGuard

from graphmem import atomic_files
from graphmem.boundary import validation
from graphmem.errors import StoreError, ValidationError
from graphmem.escapes import json_text
from graphmem.transfer import serialization
from graphmem.transfer.format import FieldReader, check_format

# The longest memory with all its windows takes some seventy megabytes; then there is its history.
MAX_LINE = 256 * 1024 * 1024
# A file of another kind is known by its first line, without reading much of it.
MAX_HEADER = 64 * 1024
_COUNTED = {"memory": "memories", "erased": "erased", "alias": "aliases", "name": "names"}


class ChecksumTrailer:
    """What the last line says of those before it."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter(dict.fromkeys(_COUNTED.values(), 0))
        self._digest = sha256()

    def add(self, kind: object, line: bytes) -> None:
        """One more line."""
        self._digest.update(line)
        if isinstance(kind, str) and kind in _COUNTED:
            self.counts[_COUNTED[kind]] += 1

    def line(self) -> bytes:
        """The last line."""
        return _line(serialization.trailer(self.counts, self._digest.hexdigest()))


def _line(record: Mapping[str, Any]) -> bytes:
    return json_text(json.dumps(record, ensure_ascii=False, separators=(",", ":"))).encode() + b"\n"


# --- writing -------------------------------------------------------------------------------------------------------


class JsonlWriter:
    """Writes records as lines, and at the end the seal."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write
        self._seal = ChecksumTrailer()

    def write(self, record: Mapping[str, Any]) -> None:
        """Writes a record. Raises StoreError for one that nobody could read again."""
        line = _line(record)
        if len(line) > MAX_LINE:
            raise StoreError(
                f"memory {record.get('id')!r} takes {len(line):,} bytes with its history, and a line {MAX_LINE:,}; "
                "nothing was exported: export other scopes, or delete it"
            )
        self._seal.add(record["type"], line)
        self._write(line)

    def close(self) -> Mapping[str, int]:
        """Writes the seal; returns how many records there are of each kind."""
        self._write(self._seal.line())
        return self._seal.counts


@contextmanager
def open_writer(target: object, kept: Sequence[Path] = ()) -> Iterator[Callable[[bytes], object]]:
    """Where the bytes go: a file object (of text or bytes), or a path, whose file is there as a whole or not at all.

    `kept` are the folders and files in which memories are kept, where no path may lead.
    """
    if isinstance(target, str | os.PathLike):
        path = Path(validation.folder(target, "path_or_file"))
        with _our_errors(f"{path} cannot be written"), atomic_file(path, kept) as write:
            yield write
        return
    write_to = getattr(target, "write", None)
    if not callable(write_to) or getattr(target, "closed", False):
        _no_file(target, "written to")
    with _our_errors("the file cannot be written to"):
        yield (lambda data: write_to(data.decode())) if hasattr(target, "encoding") else _whole(write_to)
        if callable(flush := getattr(target, "flush", None)):
            flush()


def _whole(write: Callable[[bytes], object]) -> Callable[[bytes], object]:
    """Writes on where a raw file has taken a part only."""

    def put(data: bytes) -> None:
        while data:
            taken = write(data)
            data = data[taken:] if isinstance(taken, int) else b""

    return put


@contextmanager
def atomic_file(path: Path, kept: Sequence[Path]) -> Iterator[Callable[[bytes], object]]:
    """A file that takes the place of `path` at the end, readable by its owner only: it holds memories."""
    check_target(path, kept)
    with atomic_files.replace_file(path) as write:
        yield write


def check_target(path: Path, kept: Sequence[Path]) -> None:
    """Raises StoreError for a path that leads to something else than a file, or to where memories are kept."""
    if path.is_symlink():
        raise StoreError(f"{path}: is a link; name the file itself")
    if path.exists() and not path.is_file():
        raise StoreError(f"{path}: is no file; name one in a folder of yours")
    resolved = path.resolve()
    there = [one for one in (resolved, *resolved.parents) if one.exists()]
    # Whatever they are called: by links, or in other case where that makes no difference.
    if any(one.samefile(place) for place in kept if place.exists() for one in there):
        raise StoreError(f"{path}: is where the memories themselves are kept; name a file elsewhere")


@contextmanager
def _our_errors(what: str) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise StoreError("whoever reads the export has closed the pipe; what came through is not whole") from error
    except OSError as error:
        raise StoreError(f"{what} ({error.strerror or error}); name a file in a folder of yours") from error


def _no_file(value: object, use: str) -> NoReturn:
    validation.refuse("path_or_file", type(value).__name__, f"must be a path, or an open file that can be {use}")


# --- reading -------------------------------------------------------------------------------------------------------


def is_record_iterable(source: object) -> TypeGuard[Iterable[Mapping[str, Any]]]:
    """Whether these are records already, and not where they can be read."""
    elsewhere = isinstance(source, str | bytes | os.PathLike | Mapping) or hasattr(source, "readline")
    if elsewhere or not isinstance(source, Iterable):
        return False
    try:
        iter(source)
    except TypeError:  # an array without dimensions says that it can be gone through, and cannot
        return False
    return True


@contextmanager
def open_reader(source: object) -> Iterator[tuple[Iterator[Mapping[str, Any]], int | None]]:
    """The records of a file, and how many there are (None: not known before they are read).

    A path is read twice: one that is not whole is refused before anything of it is taken. An open file is taken as it
    comes; at its end it is known whether it was whole.
    """
    if isinstance(source, str | os.PathLike):
        path = Path(validation.folder(source, "path_or_file"))
        with _our_errors(f"{path} cannot be read"):
            if path.exists() and not path.is_file():
                raise StoreError(f"{path}: is no file; name one that export has written")
        with _our_errors(f"{path} cannot be read"), path.open("rb") as file:
            total = _counted(path, file.readline)
            file.seek(0)
            yield read_records(file.readline), total
        return
    readline = getattr(source, "readline", None)
    if not callable(readline) or getattr(source, "closed", False):
        _no_file(source, "read line by line")
    with _our_errors("the file cannot be read"):
        yield read_records(readline), None


def _counted(path: Path, readline: Callable[[int], bytes]) -> int:
    done = 0
    try:
        for _ in read_records(readline):
            done += 1
    except ValidationError as error:
        raise ValidationError(f"{path}: {error}; nothing was imported{_SALVAGE if done else ''}") from error
    return done


# Of a file whose first line is refused there is nothing to be had, and the error has a remedy of its own.
_SALVAGE = (
    ". Copy or export it again, or give the open file instead of its path (`graphmem import -`) to take what there is "
    "before that"
)


def read_records(readline: Callable[[int], bytes | str]) -> Iterator[Mapping[str, Any]]:
    """The records of lines. Raises ValidationError where a line is none, and at an end that is not the written one."""
    seal, number = ChecksumTrailer(), 0
    lines = _lines(readline)
    for number, line in enumerate(lines, 1):
        record = _parsed(line, number)
        kind = record.get("type")
        if number == 1:
            _check_header(record)
        if kind == "end":
            _check_end(line, seal, number)
            if next(lines, None) is not None:
                raise ValidationError(
                    f"line {number + 1}: stands behind the end of the export, which is line {number}; remove what "
                    "follows that (each export is a file of its own)"
                )
            return
        seal.add(kind, line)
        yield record
    raise ValidationError(f"line {number + 1}: the end is missing; the file was cut off")


def _check_end(line: bytes, seal: ChecksumTrailer, number: int) -> None:
    if line == seal.line():
        return
    if line + b"\n" == seal.line():
        raise _cut_off(number)
    raise ValidationError(f"line {number}: the lines are not those that were written; the file was altered")


def _cut_off(number: int) -> ValidationError:
    return ValidationError(f"line {number}: breaks off; the file was cut off")


def _lines(readline: Callable[[int], bytes | str]) -> Iterator[bytes]:
    most, number = MAX_HEADER, 1
    while line := _read(readline, most + 1, number):
        if len(line) > most:
            raise ValidationError(f"line {number}: is longer than {most:,} bytes; this is no export of graphmem's")
        yield line
        most, number = MAX_LINE, number + 1


def _read(readline: Callable[[int], bytes | str], most: int, number: int) -> bytes:
    try:
        line = readline(most)
        return line.encode() if isinstance(line, str) else line
    except OSError:
        raise
    except EOFError:  # of a compressed file
        raise _cut_off(number) from None
    except (ValueError, zlib.error) as error:  # no UTF-8, or what a damaged compressed file says
        raise ValidationError(f"line {number}: cannot be read ({error}); the file was altered") from error


def _parsed(line: bytes, number: int) -> Mapping[str, Any]:
    try:
        record = json.loads(line, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        if number > 1 and not line.endswith(b"\n"):  # a first line may be anybody's
            raise _cut_off(number) from None
        what = "the file was altered" if number > 1 else "this is no export of graphmem's, or not a whole one"
        raise ValidationError(f"line {number}: is not JSON ({type(error).__name__}); {what}") from None
    if not isinstance(record, dict):
        raise ValidationError(f"line {number}: is no JSON object; this is no export of graphmem's")
    return record


def _no_number(name: str) -> NoReturn:
    raise ValueError(name)


def _check_header(record: Mapping[str, Any]) -> None:
    if record.get("type") != "graphmem":
        raise ValidationError('line 1: is not {"type": "graphmem", "format": …}; this is no export of graphmem\'s')
    check_format(FieldReader(record))
