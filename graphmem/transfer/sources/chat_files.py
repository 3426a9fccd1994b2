"""Reads the files of other programs' chats, as `graphmem import` is given them: a file, a zip file or a folder.

Nothing is unpacked to a disk. Of a zip file only the members that hold conversations are read, up to MAX_BYTES.
"""

from __future__ import annotations

import json
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import tzinfo
from pathlib import Path, PurePosixPath
from typing import IO, Any
from uuid import NAMESPACE_OID, uuid5

from graphmem.errors import ValidationError
from graphmem.transfer import other_files
from graphmem.transfer.other_files import PROGRAMS
from graphmem.transfer.sources import exported_chats, mcp_memory, timed_transcripts
from graphmem.transfer.sources.conversations import (
    ChatMessage,
    Conversation,
    LeftOut,
    attachment,
    has_text,
    storable,
)
from graphmem.transfer.sources.message_files import numbered_lines
from graphmem.transfer.sources.skipped_records import SkippedRecords

# Limits of what is read: the bytes of a file or of all members of a zip file, the number of those members, and by how
# much one of them may grow, from RATIO_FROM bytes on. The text of chats becomes about ten times as long.
MAX_BYTES = 4 * 1024**3
MAX_MEMBERS = 100_000
MAX_RATIO, RATIO_FROM = 200, 64 * 1024**2
ENTRIES = "entries of the program (who joined, encryption)"
MEDIA = "images, sounds and other media without a name, and deleted messages"
UNFINISHED = "lines that are still being written"
NO_SESSIONS = "files that are no sessions"

_CONVERSATIONS = re.compile(r"conversations(?:-\d+)?\.json", re.IGNORECASE)
_ZIP_BEGINNINGS = (b"PK\x03\x04", b"PK\x05\x06")
_ENCRYPTED = 0x1
# Lines of a file that are looked at to see whether it is a session.
_FIRST_LINES = 20
# "WhatsApp Chat with Ana", "WhatsApp Chat - Ana", "Chat de WhatsApp con Ana"; "(1)" is of a second download.
_WHATSAPP = re.compile(
    r".*?whatsapp(?:[ -]chat)?(?: (?:with|mit|con|avec|com|met)\b)?[ -]*(?P<name>\S.*)", re.IGNORECASE
)
_JSON_SPACE = re.compile(r"[ \t\n\r]*")
_COPY_NUMBER = re.compile(r"\s*\(\d+\)$")


def conversations(
    program: str, path: Path, zone: tzinfo | None, skipped: SkippedRecords, left_out: LeftOut
) -> Iterator[Conversation]:
    """Yields the conversations of a file or, of Claude Code, of a folder; what is no conversation goes to `skipped`.

    Times without a zone are local to `zone` (None: that of the machine).
    Raises ValidationError if it cannot be read, or is another file: the error says what it is, and what reads it.
    """
    if program == "claude-code":
        yield from _of_claude_code(path, skipped, left_out)
        return
    for source, data in _parts(path, program):
        text = _decode(source, data, program)
        del data  # as long as the text
        if program == "whatsapp":
            yield _of_whatsapp(source, path, text, zone, left_out)
            continue
        read = exported_chats.of_chatgpt if program == "chatgpt" else exported_chats.of_claude
        others = list[int]()
        number = 0
        for number, value in enumerate(_json_values(source, text), 1):
            if other_files.program_of(value) == program:
                yield read(value, left_out)
            else:
                others.append(number)
        if others and len(others) == number:
            raise _foreign(source, text, program)
        for other in others:
            skipped.add(f"is no conversation of {PROGRAMS[program]}", f"conversation {other}")


# --- files ---------------------------------------------------------------------------------------------------------


def _parts(path: Path, program: str) -> Iterator[tuple[str, bytes]]:
    """Yields name and contents of a file or, of a zip file, of each member that holds conversations."""
    if path.is_dir():
        raise ValidationError(f"{path}: is a folder; give the file that {PROGRAMS[program]} exported")
    with _open(path) as file:
        beginning = file.read(len(_ZIP_BEGINNINGS[0]))
        if beginning in _ZIP_BEGINNINGS:
            with _as_validation_error(path), zipfile.ZipFile(file) as archive:
                yield from _members(path, archive, program)
        else:
            yield str(path), _read_all(path, file, beginning)


@contextmanager
def _open(path: Path) -> Iterator[IO[bytes]]:
    try:
        if path.exists() and not path.is_file():
            raise ValidationError(f"{path}: is no regular file; give the file that the program exported")
        file = path.open("rb")
    except (OSError, ValueError) as error:
        if isinstance(error, ValidationError):
            raise
        reason = getattr(error, "strerror", None) or "no file has such a name"
        raise ValidationError(f"{path}: cannot be read ({reason}); give a readable file") from None
    with file:
        yield file


def _read_all(path: Path, file: IO[bytes], beginning: bytes = b"") -> bytes:
    data = beginning + file.read(MAX_BYTES)
    if len(data) > MAX_BYTES:
        raise ValidationError(f"{path}: has more than {MAX_BYTES:,} bytes, which no program exports for chats")
    return data


@contextmanager
def _as_validation_error(path: Path) -> Iterator[None]:
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError) as error:
        what = (
            "was packed in a way that is not read"
            if isinstance(error, NotImplementedError)
            else "was cut off or altered"
        )
        remedy = "unpack it, and give the file in it" if isinstance(error, NotImplementedError) else "download it again"
        raise ValidationError(f"{path}: is a zip file that {what}; {remedy}") from error


def _members(path: Path, archive: zipfile.ZipFile, program: str) -> Iterator[tuple[str, bytes]]:
    """Yields name and contents of the members that hold conversations; raises ValidationError for a zip bomb."""
    infos = archive.infolist()
    if len(infos) > MAX_MEMBERS:
        raise ValidationError(f"{path}: holds {len(infos):,} files, more than {MAX_MEMBERS:,}; give the one to be read")
    wanted = _wanted(infos, program)
    if not wanted:
        raise _without_conversations(path, archive, infos, program)
    if sum(info.file_size for info in wanted) > MAX_BYTES:
        raise ValidationError(f"{path}: becomes longer than {MAX_BYTES:,} bytes, which no program exports for chats")
    for info in wanted:
        yield f"{path}, {info.filename}", _read_member(path, archive, info)


def _read_member(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    if info.flag_bits & _ENCRYPTED:
        raise ValidationError(f"{path}: is encrypted; unpack it with its password, and give {info.filename!r}")
    if info.file_size > max(RATIO_FROM, MAX_RATIO * info.compress_size):
        raise ValidationError(
            f"{path}: {info.filename!r} becomes more than {MAX_RATIO} times as long, as no chat does; if you trust it, "
            "unpack it, and give that file"
        )
    return archive.read(info)  # at most `file_size` bytes, whatever follows


def _wanted(infos: Sequence[zipfile.ZipInfo], program: str) -> list[zipfile.ZipInfo]:
    """Returns the members with conversations, in the order of their names."""
    named = sorted(
        (info.filename, PurePosixPath(info.filename).name, number)
        for number, info in enumerate(infos)
        if not info.is_dir() and not info.filename.startswith("__MACOSX/")
    )
    if program != "whatsapp":
        return [infos[number] for _, name, number in named if _CONVERSATIONS.fullmatch(name)]
    texts = [(name, number) for _, name, number in named if name.lower().endswith(".txt") and not name.startswith("._")]
    of_whatsapp = [number for name, number in texts if name.lower() == "_chat.txt" or "whatsapp" in name.lower()]
    return [infos[number] for number in of_whatsapp or [number for _, number in texts]]


def _without_conversations(
    path: Path, archive: zipfile.ZipFile, infos: Sequence[zipfile.ZipInfo], program: str
) -> ValidationError:
    for other in ("chatgpt", "whatsapp"):
        if other != program and (members := _wanted(infos, other)):
            text = _read_member(path, archive, members[0]).decode("utf-8-sig", errors="replace")
            if (found := other_files.program_of_text(text)) not in {None, program}:
                return ValidationError(f"{path}: {other_files.import_advice(str(found))}")
    expected = "a text of a chat (_chat.txt)" if program == "whatsapp" else "conversations.json"
    held = ", ".join(repr(info.filename) for info in infos[:3]) or "nothing"
    more = ", …" if len(infos) > 3 else ""  # noqa: PLR2004
    return ValidationError(
        f"{path}: is no export of {PROGRAMS[program]}: it holds no {expected}, but {held}{more}; give the zip file as "
        "it was downloaded"
    )


def _decode(source: str, data: bytes, program: str) -> str:
    """Returns the text of a file. Raises ValidationError if it is none, or that of another program."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        advice = other_files.binary_advice(data) or f"is not UTF-8; give the file that {PROGRAMS[program]} wrote"
        raise ValidationError(f"{source}: {advice}") from None
    if not text.strip():
        raise ValidationError(f"{source}: is empty; there is nothing to import")
    if other_files.program_of_text(text) not in {None, program} or other_files.is_export(text):
        raise _foreign(source, text, program)
    return text


def _foreign(source: str, text: str, program: str) -> ValidationError:
    """Returns the error for a file that `program` did not write: what it is, if that is known, and what reads it."""
    other = other_files.program_of_text(text)
    if other_files.is_export(text):
        advice = "is an export of graphmem's; import it with `graphmem import`"
    elif other is not None:
        advice = other_files.import_advice(other)
    elif mcp_memory.is_graph(text):
        advice = "is a memory file of an MCP server; import it with `graphmem migrate jsonl`"
    elif text.lstrip().startswith(("{", "[")):
        advice = (
            f"is JSON, and nothing that {PROGRAMS[program]} writes; messages with role and content are imported by "
            "`graphmem migrate jsonl`"
        )
    else:
        advice = f"is a text, and nothing that {PROGRAMS[program]} writes; `graphmem add --file` reads texts"
    return ValidationError(f"{source}: {advice}")


def _json_values(source: str, text: str) -> Iterator[Any]:
    """Yields the conversations of a list, or one that stands alone."""
    try:
        yield from _values_of_list(text) if text.lstrip().startswith("[") else [json.loads(text)]
    except json.JSONDecodeError as error:
        if not text.lstrip().startswith(("{", "[")):
            raise ValidationError(f"{source}: is no JSON; give the file as it was exported") from None
        cut = " (the file was cut off)" if error.pos >= len(text.rstrip()) or "Unterminated" in error.msg else ""
        raise ValidationError(
            f"{source}, line {error.lineno}: is not valid JSON: {error.msg}{cut}; export it again"
        ) from None
    except (RecursionError, ValueError) as error:
        raise ValidationError(f"{source}: is not valid JSON: {error}; export it again") from None


def _values_of_list(text: str) -> Iterator[Any]:
    """Yields the values of a JSON list one by one: all together they take five times as much memory as the text.

    Raises JSONDecodeError where the text stops being JSON.
    """
    decoder = json.JSONDecoder()
    position = _after_space(text, text.index("[") + 1)
    separator = ","
    if text.startswith("]", position):
        separator, position = "]", _after_space(text, position + 1)
    while separator == ",":
        value, position = decoder.raw_decode(text, position)
        yield value
        position = _after_space(text, position)
        separator = text[position : position + 1]
        position = _after_space(text, position + 1)
    if separator != "]":
        raise json.JSONDecodeError("Expecting ',' delimiter", text, position)
    if position != len(text):
        raise json.JSONDecodeError("Extra data", text, position)


def _after_space(text: str, position: int) -> int:
    return _JSON_SPACE.match(text, position).end()  # type: ignore[union-attr]  # it matches everywhere


# --- WhatsApp ------------------------------------------------------------------------------------------------------


def _of_whatsapp(source: str, path: Path, text: str, zone: tzinfo | None, left_out: LeftOut) -> Conversation:
    """Reads a chat. Its messages have no ids, so they get some of who said what when, as the file writes it."""
    entries = timed_transcripts.entries([line.strip() for line in text.splitlines() if line.strip()])
    if entries is None:
        raise _foreign(source, text, "whatsapp")
    names = dict.fromkeys(entry.name for entry in entries if entry.name)
    member = PurePosixPath(source.removeprefix(f"{path}, ")) if source != str(path) else path
    chat = _chat_name(path, member.stem, list(names))
    messages = list[ChatMessage]()
    ordinals = Counter[str]()
    for entry in entries:
        if not entry.name or not (entry.words or entry.files):
            left_out.add(MEDIA if entry.name else ENTRIES, len(entry.words))
            continue
        attachments = tuple(attachment(storable(name)) for name in entry.files)
        content = json.dumps([chat, entry.name, entry.stamp, entry.words, entry.files])
        ordinals[content] += 1
        id_ = str(uuid5(NAMESPACE_OID, f"{content}#{ordinals[content]}"))
        if has_text(entry.words, attachments):
            at = entry.at.astimezone() if zone is None else entry.at.replace(tzinfo=zone)
            messages.append(ChatMessage(id_, "user", entry.words, at.isoformat(), entry.name, attachments))
        else:
            left_out.add(exported_chats.WORDLESS)
    return Conversation("whatsapp", chat, messages, {"title": chat})


def _chat_name(path: Path, stem: str, names: Sequence[str]) -> str:
    """Returns the name of a chat: of its file or, for `_chat.txt`, of the zip file, the folder, or the two who talk."""
    if stem == "_chat":
        stem = path.stem if path.suffix.lower() == ".zip" else path.resolve().parent.name
        if path.suffix.lower() != ".zip" and "whatsapp" not in stem.lower():
            stem = ", ".join(sorted(names)) if len(names) <= 2 else "_chat"  # noqa: PLR2004
    stem = _COPY_NUMBER.sub("", storable(stem))
    match = _WHATSAPP.fullmatch(stem)
    return " ".join((match["name"] if match is not None else stem).split()) or "WhatsApp"


# --- Claude Code ---------------------------------------------------------------------------------------------------


def _of_claude_code(path: Path, skipped: SkippedRecords, left_out: LeftOut) -> Iterator[Conversation]:
    """Yields the sessions of a file, or of all files in a folder and the folders in it."""
    if not path.is_dir():
        with _open(path) as file:
            text = _decode(str(path), _read_all(path, file), "claude-code")
        if not _is_session(text):
            raise _foreign(str(path), text, "claude-code")
        yield from _sessions(path, text, skipped, left_out)
        return
    files = sorted(path.rglob("*.jsonl"))
    if not files:
        raise ValidationError(f"{path}: holds no sessions of Claude Code (*.jsonl); give the folder that has them")
    for file_path in files:
        with skipped.skip_invalid(str(file_path)):
            with _open(file_path) as file:
                text = _read_all(file_path, file).decode("utf-8-sig", errors="replace")
            if _is_session(text):
                yield from _sessions(file_path, text, skipped, left_out)
            else:
                left_out.add(NO_SESSIONS, len(text))


def _is_session(text: str) -> bool:
    """Whether one of the first lines is one of a session."""
    for _, (_number, line) in zip(range(_FIRST_LINES), numbered_lines(text), strict=False):
        try:
            if other_files.program_of(json.loads(line)) == "claude-code":
                return True
        except (ValueError, RecursionError):
            continue
    return False


def _sessions(path: Path, text: str, skipped: SkippedRecords, left_out: LeftOut) -> list[Conversation]:
    lines = list[Any]()
    last = text.count("\n") + 1
    for number, line in numbered_lines(text):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            if number == last:  # without a line's end
                left_out.add(UNFINISHED, len(line))
            else:
                skipped.add("is not valid JSON", f"{path.name}, line {number}")
            continue
        if isinstance(value, dict):
            lines.append(value)
        else:
            skipped.add("is no JSON object", f"{path.name}, line {number}")
    return exported_chats.of_claude_code(lines, path.stem, left_out)
