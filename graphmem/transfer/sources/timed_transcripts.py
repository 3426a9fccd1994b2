"""Reads transcripts whose lines begin with a date and a time, as WhatsApp and other programs export chats.

"[24.12.23, 21:15:03] Ana: …" and "12/24/23, 9:15 PM - Ana: …" are such lines; a line without a time continues the
message before it. What the program wrote in place of words (images left out, deleted messages, who joined) is no
message.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any

# Marks of the direction of writing, which WhatsApp puts around names and, as LEFT_TO_RIGHT, before its own words.
_LEFT_TO_RIGHT = "\u200e"
_MARKS = "\u200e\u200f\u202a\u202c\ufeff"
_MORNING = ("am", "πμ", "上午", "凌晨", "早上", "午前", "오전", "ص")
_AFTERNOON = ("pm", "μμ", "下午", "晚上", "中午", "午後", "오후", "م")
_HALF = "|".join([r"[ap]\.?\s?m\.?", r"[πμ]\.?\s?μ\.?", *_MORNING, *_AFTERNOON])
_LINE = re.compile(
    rf"[{_MARKS}]*\[?(?P<date>\d{{1,4}}(?:[./-]|년)\s?\d{{1,2}}(?:[./-]|월)\s?\d{{1,4}})[.일]?[,،]?\s+(?:\D{{1,4}}\s)??"
    rf"(?P<before>{_HALF})?\s?(?P<clock>\d{{1,2}}[:.]\d{{2}}(?:[:.]\d{{2}})?)\s?(?P<after>{_HALF})?"
    r"(?:\]\s?|\s[-–]\s)(?:(?P<name>[^:\"“„«]{1,100}):(?:\s|$))?(?P<words>.*)",
    re.IGNORECASE | re.DOTALL,
)
_NAME_DECORATION = _MARKS + "~ \u202f\xa0"  # "~" precedes the names of people who are no contacts
# "<Media omitted>" in any language, and "IMG-1.jpg (file attached)".
_LEFT_OUT = re.compile(r"<[^<>]+>|[^\s/]+\.\w{3,4} \([^()]+\)|null")
# "Lease.pdf (file attached)", and "<attached: 00000012-Lease.pdf>", before which a document has its length.
_FILE = re.compile(
    rf"(?P<of_android>[^\n/<>]{{1,200}}\.\w{{2,5}}) \([^()\d]+\)"
    rf"|(?:[^\n<>]{{0,300}})?[{_MARKS}]*<[^<>:\n]+:\s*(?P<of_iphone>[^<>\n/]{{1,200}}\.\w{{2,5}})>"
)
_NUMBER = re.compile(r"\A\d{8}-")
_EDITED = re.compile(rf"\s*(?:{_LEFT_TO_RIGHT}<[^<>]+>|<[^\W\d_]+(?: [^\W\d_]+)+\.?>|<[^\x00-\x7f<>]+>)$")
_DELETED = frozenset({
    "this message was deleted", "you deleted this message",
    "diese nachricht wurde gelöscht", "du hast diese nachricht gelöscht",
    "se eliminó este mensaje", "eliminaste este mensaje",
    "ce message a été supprimé", "vous avez supprimé ce message",
    "mensagem apagada", "você apagou esta mensagem",
    "questo messaggio è stato eliminato", "hai eliminato questo messaggio",
    "dit bericht is verwijderd", "je hebt dit bericht verwijderd",
    "данное сообщение удалено", "вы удалили данное сообщение",
    "ta wiadomość została usunięta", "bu mesaj silindi", "bu mesajı sildiniz",
    "此消息已删除", "您已删除此消息", "このメッセージは削除されました", "삭제된 메시지입니다",
})  # fmt: skip


@dataclass(slots=True)
class TimedEntry:
    """What somebody said, or sent, at a time. `stamp` is the time as the line writes it, `at` what it means, local.

    `words` are "" for an entry that has none; `files` are the names of what was sent.
    """

    name: str
    words: str
    at: datetime
    stamp: str
    files: list[str] = field(default_factory=list)


def messages(lines: Sequence[str], role: str) -> list[dict[str, Any]] | None:
    """Returns the messages of a transcript, with their times, which are local; None if the lines are no such one.

    What was sent beside words is left out.
    """
    found = entries(lines)
    if found is None:
        return None
    return [
        {"role": role, "name": one.name, "content": one.words, "timestamp": one.at.isoformat()}
        for one in found
        if one.name and one.words
    ]


def entries(lines: Sequence[str]) -> list[TimedEntry] | None:
    """Returns the entries of a transcript; None if the lines are no such one. One of the program has no name.

    The first line of a transcript begins with a time, and in some line somebody speaks.
    """
    if not lines or _LINE.fullmatch(lines[0]) is None:
        return None
    parsed = [_LINE.fullmatch(line) for line in lines]
    timed = [line for line in parsed if line is not None]
    order = _date_order(timed) if any(line["name"] for line in timed) else None
    if order is None:
        return None
    found = list[TimedEntry]()
    for text, line in zip(lines, parsed, strict=True):
        if line is None:
            found[-1].words = f"{found[-1].words}\n{_EDITED.sub('', text)}".lstrip("\n")
        else:
            # What has no name is of the program, with the lines that continue it.
            name = (line["name"] or "").strip(_NAME_DECORATION)
            stamp = " ".join(part for part in line.group("date", "before", "clock", "after") if part)
            file = _file_name(line["words"])
            found.append(
                TimedEntry(name, _spoken_words(line["words"]), _time(line, order), stamp, [file] if file else [])
            )
    return found


def _file_name(words: str) -> str | None:
    """Returns the name of the file for which a line stands, without the number that WhatsApp puts in front."""
    match = _FILE.fullmatch(words.strip(f"{_MARKS} "))
    if match is None:
        return None
    return match["of_android"] or _NUMBER.sub("", match["of_iphone"].strip(_MARKS))


def _spoken_words(words: str) -> str:
    """Returns what was said, "" for words of the program."""
    bare = words.strip(_MARKS)
    if words.startswith(_LEFT_TO_RIGHT) or _LEFT_OUT.fullmatch(bare) or _FILE.fullmatch(bare):
        return ""
    spoken = _EDITED.sub("", words).strip()
    return "" if spoken.rstrip(".").casefold() in _DELETED else spoken


# --- times -----------------------------------------------------------------------------------------------------------


def _date_order(lines: Sequence[re.Match[str]]) -> str | None:
    """Returns how the lines write dates: "ymd", "dmy" or "mdy"; None if no order makes dates of all of them.

    A year of four digits may come first. Of day and month either may: it is the order in which the lines go back in
    time least often, otherwise the month where the day has halves (9:15 PM) and the date slashes.
    """
    if re.match(r"\d{4}", lines[0]["date"]):
        orders = ["ymd"]
    else:
        orders = ["mdy", "dmy"] if lines[0]["after"] and "/" in lines[0]["date"] else ["dmy", "mdy"]
    descents = dict[str, int]()
    for order in orders:
        with suppress(ValueError):
            times = [_time(line, order) for line in lines]
            descents[order] = sum(later < earlier for earlier, later in pairwise(times))
    return min(descents, key=descents.__getitem__, default=None)


def _time(line: re.Match[str], order: str) -> datetime:
    """Raises ValueError if the line has no such time."""
    numbers = dict(zip(order, re.findall(r"\d+", line["date"]), strict=True))
    hour, minute, second = (*map(int, re.findall(r"\d+", line["clock"])), 0)[:3]
    half = re.sub(r"[\s.]", "", line["before"] or line["after"] or "").lower()
    if half in _AFTERNOON and hour < 12:  # noqa: PLR2004
        hour += 12
    elif half in _MORNING and hour == 12:  # noqa: PLR2004
        hour = 0
    year = numbers["y"] if len(numbers["y"]) == 4 else f"20{numbers['y']}"  # noqa: PLR2004
    date = int(year), int(numbers["m"]), int(numbers["d"])
    return datetime(*date, hour, minute, second)  # noqa: DTZ001  (local, as `add` reads it)
