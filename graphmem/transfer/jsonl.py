"""Writes and reads export files: JSON Lines whose last line, the trailer, has the SHA-256 of all lines before it.

A file that was cut off or altered is therefore recognised.
"""

from __future__ import annotations

import json
import os
import zlib
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, NoReturn, TypeGuard

from graphmem import atomic_files
from graphmem.boundary import validation
from graphmem.errors import StoreError, ValidationError
from graphmem.escapes import json_text
from graphmem.transfer import other_files, serialization
from graphmem.transfer.format import check_format

# Bytes. The longest memory takes about 70 MB with all its windows; its history comes on top.
MAX_LINE = 256 * 1024 * 1024
# Bytes of the first line. The limit recognises a file of another kind without reading much of it.
MAX_HEADER = 64 * 1024
_PROGRAMS = "|".join(other_files.PROGRAMS)
_NO_FILE = "must be the path of a file, or an open file"
_COUNT_NAMES = {
    "memory": "memories", "erased": "erased", "alias": "aliases", "name": "names", "item": "items",
    "setting": "settings", "key": "keys",
}  # fmt: skip


class ChecksumTrailer:
    """Computes the trailer of an export: the number of records by kind, and the SHA-256 of all lines."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter(dict.fromkeys(_COUNT_NAMES.values(), 0))
        self._digest = sha256()

    def add(self, record_type: object, line: bytes) -> None:
        """Adds a line with a record of the given type."""
        self._digest.update(line)
        if isinstance(record_type, str) and record_type in _COUNT_NAMES:
            self.counts[_COUNT_NAMES[record_type]] += 1

    def line(self, names: Container[str] = frozenset(_COUNT_NAMES.values())) -> bytes:
        """Returns the trailer for the lines added so far, as a line with the counts of these names."""
        counts = {name: count for name, count in self.counts.items() if name in names}
        return _line(serialization.trailer(counts, self._digest.hexdigest()))


def _line(record: Mapping[str, Any]) -> bytes:
    return json_text(json.dumps(record, ensure_ascii=False, separators=(",", ":"))).encode() + b"\n"


# --- writing -------------------------------------------------------------------------------------------------------


class JsonlWriter:
    """Writes records as lines, and at the end the trailer."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write
        self._trailer = ChecksumTrailer()

    def write(self, record: Mapping[str, Any]) -> None:
        """Writes a record. Raises StoreError if its line would be longer than `read_records` accepts."""
        line = _line(record)
        if len(line) > MAX_LINE:
            raise StoreError(
                f"memory {record.get('id')!r} takes {len(line):,} bytes with its history, and a line {MAX_LINE:,}; "
                "nothing was exported: export other scopes, or delete it"
            )
        self._trailer.add(record["type"], line)
        self._write(line)

    def close(self) -> Mapping[str, int]:
        """Writes the trailer; returns the number of records by the names of `_COUNT_NAMES`."""
        self._write(self._trailer.line())
        return self._trailer.counts


@contextmanager
def open_writer(target: object, store_paths: Sequence[Path] = ()) -> Iterator[Callable[[bytes], object]]:
    """Opens the target of an export and yields a function that writes bytes to it.

    The target is an open text or binary file, or a path, whose file appears only once it is complete. `store_paths` are
    the folders and files of the stores, where the path must not lead. Raises StoreError if the target cannot be written
    to, and ValidationError if it is neither a path nor a file.
    """
    if isinstance(target, str | os.PathLike):
        path = Path(validation.path_text(target, "path_or_file", _NO_FILE))
        with _as_store_error(f"{path} cannot be written"), atomic_file(path, store_paths) as write:
            yield write
        return
    write_raw = getattr(target, "write", None)
    if not callable(write_raw) or getattr(target, "closed", False):
        _refuse_file(target, "written to")
    with _as_store_error("the file cannot be written to"):
        yield (lambda data: write_raw(data.decode())) if hasattr(target, "encoding") else _retrying_write(write_raw)
        if callable(flush := getattr(target, "flush", None)):
            flush()


def _retrying_write(write: Callable[[bytes], object]) -> Callable[[bytes], object]:
    """Returns a function that calls `write` until all bytes are written: a raw file may accept only some of them."""

    def write_all(data: bytes) -> None:
        while data:
            written = write(data)
            data = data[written:] if isinstance(written, int) else b""

    return write_all


@contextmanager
def atomic_file(path: Path, store_paths: Sequence[Path]) -> Iterator[Callable[[bytes], object]]:
    """Yields a function that writes bytes to a new file, which replaces `path` at the end.

    Only its owner can read the file, as it contains memories. Raises StoreError as `check_target` does.
    """
    check_target(path, store_paths)
    with atomic_files.replace_file(path) as write:
        yield write


def check_target(path: Path, store_paths: Sequence[Path]) -> None:
    """Raises StoreError if `path` is a link or no regular file, or lies in one of `store_paths`."""
    if path.is_symlink():
        raise StoreError(f"{path}: is a link; name the file itself")
    if path.exists() and not path.is_file():
        raise StoreError(f"{path}: is no file; name a new or existing file")
    resolved = path.resolve()
    existing_parents = [parent for parent in (resolved, *resolved.parents) if parent.exists()]
    # samefile() sees through links, and through upper and lower case where the file system ignores it.
    if any(parent.samefile(store) for store in store_paths if store.exists() for parent in existing_parents):
        raise StoreError(f"{path}: is where the memories themselves are kept; name a file elsewhere")


@contextmanager
def _as_store_error(failure: str) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise StoreError("the reader of the export has closed the pipe; the output is incomplete") from error
    except OSError as error:
        raise StoreError(f"{failure} ({error.strerror or error}); name a file that you can read and write") from error


def _refuse_file(value: object, use: str) -> NoReturn:
    validation.refuse_unseen("path_or_file", value, f"must be a path, or an open file that can be {use}")


# --- reading -------------------------------------------------------------------------------------------------------


def is_record_iterable(source: object) -> TypeGuard[Iterable[Mapping[str, Any]]]:
    """Returns True for an iterable of records, and False for a path or a file from which records can be read."""
    is_file_or_path = isinstance(source, str | bytes | os.PathLike | Mapping) or hasattr(source, "readline")
    if is_file_or_path or not isinstance(source, Iterable):
        return False
    try:
        iter(source)
    except TypeError:  # an array without dimensions is an Iterable, but iter() fails
        return False
    return True


@contextmanager
def open_reader(source: object) -> Iterator[tuple[Iterator[Mapping[str, Any]], int | None]]:
    """Opens an export file and yields an iterator over its records, and their number without the header (None for an
    open file).

    A path is read twice, so that an incomplete file is refused before any of it is imported. An open file is read once;
    iterating raises ValidationError where it is incomplete. Raises StoreError if the file cannot be read.
    """
    if isinstance(source, str | os.PathLike):
        path = Path(validation.path_text(source, "path_or_file", _NO_FILE))
        with _as_store_error(f"{path} cannot be read"):
            if path.exists() and not path.is_file():
                raise StoreError(f"{path}: is no file; name one that export has written")
        with _as_store_error(f"{path} cannot be read"), path.open("rb") as file:
            count = 0
            try:
                for _ in read_records(file.readline):
                    count += 1
            except ValidationError as error:
                advice = _PARTIAL_IMPORT_ADVICE if count else ""
                raise ValidationError(f"{path}: {error}; nothing was imported{advice}") from error
            file.seek(0)
            yield read_records(file.readline), count - 1
        return
    readline = getattr(source, "readline", None)
    if not callable(readline) or getattr(source, "closed", False):
        _refuse_file(source, "read line by line")
    with _as_store_error("the file cannot be read"):
        yield read_records(readline), None


# Advice for a damaged file. It is left out for a bad first line: nothing precedes that, and its error has a remedy.
_PARTIAL_IMPORT_ADVICE = (
    ". Copy or export it again, or give the open file instead of its path (`graphmem import -`) to import the "
    "records before that line"
)


def read_records(readline: Callable[[int], bytes | str]) -> Iterator[Mapping[str, Any]]:
    """Yields the records of an export file, header included, without its trailer.

    `readline(size)` returns the next line, at most `size` bytes or characters of it. Raises ValidationError for a line
    that is no record, and for a missing or wrong trailer.
    """
    trailer, number = ChecksumTrailer(), 0
    lines = _lines(readline)
    for number, line in enumerate(lines, 1):
        record = _parse_line(line, number)
        record_type = record.get("type")
        if number == 1:
            if record_type != "graphmem":
                raise _no_export_error(line, 'is not {"type": "graphmem", "format": …}')
            check_format(record)
        if record_type == "end":
            expected = trailer.line(record)
            if line + b"\n" == expected:
                raise _cut_off_error(number)
            if line != expected:
                raise ValidationError(f"line {number}: the lines are not those that were written; the file was altered")
            if next(lines, None) is not None:
                raise ValidationError(
                    f"line {number + 1}: stands behind the end of the export, which is line {number}; remove what "
                    "follows it (each export is a file of its own)"
                )
            return
        trailer.add(record_type, line)
        yield record
    raise ValidationError(f"line {number + 1}: the end is missing; the file was cut off")


def _no_export_error(line: bytes, reason: str) -> ValidationError:
    """Returns the error for a file whose first line is not that of an export."""
    program = other_files.program_of_text(line.decode(errors="replace"))
    advice = other_files.binary_advice(line) or (
        other_files.import_advice(program)
        if program is not None
        else f"{reason}; this is no export of graphmem's, or not a whole one; texts are stored by `add`, messages are "
        f"imported by `graphmem migrate jsonl`, chats of other programs by `graphmem import {_PROGRAMS}`"
    )
    return ValidationError(f"line 1: {advice}")


def _cut_off_error(number: int) -> ValidationError:
    return ValidationError(f"line {number}: breaks off; the file was cut off")


def _lines(readline: Callable[[int], bytes | str]) -> Iterator[bytes]:
    max_bytes, number = MAX_HEADER, 1
    while line := _read_line(readline, max_bytes + 1, number):
        if len(line) > max_bytes:
            if number == 1:
                raise _no_export_error(line, f"is longer than {max_bytes:,} bytes")
            raise ValidationError(f"line {number}: is longer than {max_bytes:,} bytes; this is no export of graphmem's")
        yield line
        max_bytes, number = MAX_LINE, number + 1


def _read_line(readline: Callable[[int], bytes | str], max_bytes: int, number: int) -> bytes:
    try:
        line = readline(max_bytes)
        return line.encode() if isinstance(line, str) else line
    except OSError:
        raise
    except EOFError:  # from a compressed file that was cut off
        raise _cut_off_error(number) from None
    except (ValueError, zlib.error) as error:  # not UTF-8, or a damaged compressed file
        raise ValidationError(f"line {number}: cannot be read ({error}); the file was altered") from error


def _parse_line(line: bytes, number: int) -> Mapping[str, Any]:
    try:
        record = json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        reason = f"is not JSON ({type(error).__name__})"
        if number == 1:
            raise _no_export_error(line, reason) from None
        if not line.endswith(b"\n"):
            raise _cut_off_error(number) from None
        raise ValidationError(f"line {number}: {reason}; the file was altered") from None
    if not isinstance(record, dict):
        if number == 1:
            raise _no_export_error(line, "is no JSON object")
        raise ValidationError(f"line {number}: is no JSON object; this is no export of graphmem's")
    return record


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)
