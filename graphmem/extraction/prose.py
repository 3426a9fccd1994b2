"""Separates what a message's author says from what was pasted: code, tables, markup, other people's words, signatures.

Names and relations are read in prose only. A parser takes "class UserService" for a name, a cell of a table for the
object of a verb, and "I" in a pasted chat for the author of the message. Pure.

What is left is prepared for the parser: split into segments, with the forms of its title, and normalised.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import NamedTuple

from graphmem.text import GREETINGS

_FENCED = re.compile(r"^[ \t]*(```+|~~~+).*?(?:^[ \t]*\1[`~]*[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
# A run of its own: a long one would be tried from each of its marks.
_INLINE_CODE = re.compile(r"(?<!`)(`{1,3})(?!`)([^`\n]+)\1(?!`)")
_HIDDEN_ELEMENT = re.compile(
    r"<(script|style|pre|code)\b[^<>]*>.*?(?:</\1\s*>|\Z)|<!--.*?(?:-->|\Z)", re.IGNORECASE | re.DOTALL
)
_BLOCK_TAG = re.compile(
    r"</?(?:article|blockquote|body|br|dd|div|dl|dt|h[1-6]|head|header|footer|hr|html|li|ol|p|section|table|tr|ul)\b[^<>]*>",
    re.IGNORECASE,
)
_CELL = re.compile(r"</?t[dh]\b[^<>]*>", re.IGNORECASE)
# Also "<ana@example.org>" behind a name.
_TAG = re.compile(r"<[/!?]?[A-Za-z][^<>\n]*>")
_CHARACTER_REFERENCE = re.compile(r"&(?:#\d+|#x[0-9a-fA-F]+|[A-Za-z]\w+);")
_ADDRESS = re.compile(
    r"(?:https?://|ftp://|www\.)[^\s<>\"”)\]]*[^\s<>\"”)\].,;:!?]|(?<![\w.+-])(?:mailto:)?[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
)
_LINK = re.compile(r"!?\[([^\[\]\n]*)\]\([^()\s]*(?:\s+\"[^\"\n]*\")?\)")
_EMPHASIS = re.compile(r"(?<![\w*_~])(\*{1,3}|_{1,3}|~~)(?=[^\s*_~])([^\n]{0,200}?[^\s*_~])\1(?![\w*_~])")
_LINE_START = re.compile(r"^[ \t]*(?:#{1,6}|[*+•-])[ \t]+(?:\[[ xX]\][ \t]+)?")
_RULE = re.compile(r"^[ \t]*(?:[-=*_+|:][ \t]?){3,}$")
# A row of a table; the second only where another line has the same sign, the third is one of comma-separated values.
_ROW = re.compile(r"\|.*\||\S\t+\S.*\t+\S")
_ROW_OF_TWO = (re.compile(r"\|"), re.compile(r"\S\t+\S"), re.compile(r"^(?!.*(?:, |\d,\d{3}\b))(?:[^,]*,){2}"))

# Signs of code in a line: a line with one of the first kind is code, and so is one with two of the second.
_CODE = re.compile(
    r"""
    ^\s*(?: \#include\b | (?:from\s+[\w.]+\s+)?import\s+[\w.*{]+(?:\s+as\s+\w+|\s*,\s*\w+|\s*})*;?\s*$
      | (?:async\s+)?(?:def|func|function|fn)\s+\w+\s*[(<] | (?:class|interface|struct|enum)\s+\w+\s*[(:{<]
      | (?:const|let|var)\s+\w+\s*= | (?:public|private|protected|static|export)\s[^.]*[({=;].*[{;)]\s*$
      | @\w+(?:\.\w+)*(?:\(.*\))\s*$ | (?:SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|DROP)\s.*\b(?:FROM|INTO|SET|TABLE)\b
      | \$\s+[a-z][\w./-]* | at\s+[\w$]+\.[\w.$<>]+\( | File\s".*",\sline\s\d+ | Traceback\s\( | "[^"]*"\s*:\s
      | \d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*\s+\S*[A-Z]{4} | \{ | \[\s*[{"\[] | [\]})]+[;,)]*\s*$ | //\s | /\*
    ) | \{\s*$ | =>\s*[{(\w] | \w\([^()]*\)\s*(?:->\s*\w+\s*)?:\s*(?:\.\.\.)?\s*$
    """,
    re.VERBOSE,
)
_CODE_SIGN = re.compile(r"[=!<>+*/-]=|&&|\|\||::|\w\(\)|\w\.\w+\(|\s=\s|[{}]|\w\[\w+\]|;\s*$")

# A turn of a conversation, such as "[10:32] Ana Berg: Hello"; the time may stand behind the name.
_TURN = re.compile(
    r"^[ \t]*(?:[\[(]?\d[\d:./ ,T-]{0,30}(?:[AP]M)?[\])]?[ \t]*[-–|]?[ \t]*)?"
    r"(?:\*\*)?(?P<label>[^\W\d_][\w.'’-]{0,30}(?: [^\W\d_][\w.'’-]{0,30}){0,2})(?:\*\*)?"
    r"(?: ?[\[(][^\])\n]*[\])])?(?:\*\*)?[:：](?:\*\*)?[ \t]*(?P<words>\S.*)$",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"^[ \t]*>[ \t]?")
_ATTRIBUTION = re.compile(r"^\s*\S.*\b\d.*:\s*$")
_SIGNATURE_MARK = re.compile(r"^--[ \t]*$")
_TELEPHONE = re.compile(r"\+?\d[\d ()/.-]{6,}\d")
# The most lines of a signature, words of a closing phrase ("Best regards,"), and words of a line.
_MAX_SIGNATURE_LINES, _MAX_CLOSING_WORDS, _MAX_SIGNATURE_WORDS = 8, 4, 6
_SENTENCE_END = (".", "!", "?", ":", "…", "。", "！", "？")
_MIN_TURNS = 2
# Characters of a line in which code is looked for, and of a line that announces a quotation ("On 5 May, Ana wrote:").
_MAX_LINE_CHARS = 500
# Maximum length of a document for the parser: spaCy refuses a million characters, and takes some 5 kB of memory for
# each.
SEGMENT_CHARS = 2_000
# The model was trained on straight apostrophes and takes "I\u2019m" for a name; it refuses lone surrogates, which JSON
# may contain. One character replaces one, so that offsets stay valid.
PLAIN_CHARACTERS = {ord("’"): "'", ord("ʼ"): "'"} | dict.fromkeys(range(0xD800, 0xE000), "\ufffd")
# Verbs that begin notes without "I"; the tagger takes "Met Greta" for a name.
_LEADING_VERBS = re.compile(
    r"(?:^|(?<=[.!?] )|(?<=\n))(?:Met|Saw|Visited|Called|Phoned|Texted|Emailed|Messaged|Invited|Hired|Married|Asked"
    r"|Told|Tell|Ask|Remember|Helped|Interviewed|Contacted|Joined|Bought|Watched|Finished|Started|Adopted|Introduced"
    r"|Hosted)(?= [A-Z])"
)
# Interjections that never begin a name: "Congrats Anna", "Wow".
OPENINGS = frozenset(
    """
    wow yep yup yeah nope nah hey hi hello thanks congrats congratulations glad lol haha ok okay oh hmm bye yay woohoo
    hooray woah whoa aw aww awww phew oof oops ouch yum damn dang gosh geez jeez yikes ugh omg fyi gotcha lemme
    y'all cheers awesome agreed sorry please honestly seriously anytime
    """.split()
)
# Interjections before a comma or an exclamation mark ("Imagine, Greta is moving"); otherwise they may begin a name.
_AMBIGUOUS_OPENINGS = frozenset(
    """
    imagine guess listen look see wait remember believe trust dude man bro buddy super cool good great brave well
    """.split()
)
INTERJECTIONS = OPENINGS | _AMBIGUOUS_OPENINGS
_LEADING_INTERJECTIONS = re.compile(
    rf"(?:^|(?<=[.!?] )|(?<=\n))"
    rf"(?:(?:{'|'.join(sorted(OPENINGS))})\b|(?:{'|'.join(sorted(_AMBIGUOUS_OPENINGS))})(?=[,!]))",
    re.IGNORECASE,
)
_BRACKETS = re.compile(r"\s*\([^)]*\)")
_PARAGRAPH = re.compile(r"\n\s*\n")


class Prose(NamedTuple):
    """A text without markup: what its author says, and what it quotes: words of others, and cells of tables."""

    own: str
    quoted: str


def read_prose(text: str) -> Prose:
    """Returns the prose of a text. A text of nothing but sentences is returned unchanged, as `own`."""
    lines, cells = _split_tables(_without_code(_without_markup(text).split("\n")))
    lines = [_ADDRESS.sub("", _LINE_START.sub("", line)) for line in _without_signature(lines)]
    turns = _turns(lines)
    own: list[str] = []
    quoted: list[str] = []
    for index, line in enumerate(lines):
        if _QUOTED.match(line):
            quoted.append(_QUOTED.sub("", line))
        elif index in turns:
            quoted.append(turns[index])
        elif not (_QUOTED.match("".join(lines[index + 1 : index + 2])) and _ATTRIBUTION.match(line[-_MAX_LINE_CHARS:])):
            own.append(line)
    return Prose("\n".join(own), "\n\n".join([*quoted, *cells]))


def _without_markup(text: str) -> str:
    """Removes code with marks around it, tags, links and emphasis; keeps the words that these show."""
    text = _FENCED.sub("", text)
    if "<" in text:
        text = _HIDDEN_ELEMENT.sub("", text)
        text = _TAG.sub("", _BLOCK_TAG.sub("\n", _CELL.sub("|", text)))
    if _CHARACTER_REFERENCE.search(text):
        text = html.unescape(text)
    # Code within a sentence stands for a thing without a name.
    text = _INLINE_CODE.sub(lambda match: match[2] if match[2].isalpha() else "it", text)
    text = _LINK.sub(r"\1", text)
    return _EMPHASIS.sub(r"\2", _EMPHASIS.sub(r"\2", text))


def _without_code(lines: list[str]) -> list[str]:
    """Returns the lines, those of code empty."""
    starts = [line[:_MAX_LINE_CHARS] if line.strip() else "" for line in lines]
    are_code = [bool(start) and (bool(_CODE.search(start)) or len(_CODE_SIGN.findall(start)) > 1) for start in starts]
    for index in range(1, len(lines)):
        are_code[index] |= are_code[index - 1] and lines[index][:1] in (" ", "\t") and bool(lines[index].strip())
    return [
        "" if is_code or (_RULE.match(line) and "|" not in line) else line
        for line, is_code in zip(lines, are_code, strict=True)
    ]


def _split_tables(lines: list[str]) -> tuple[list[str], list[str]]:
    """Returns the lines, those of tables empty, and the cells of the tables without their headings."""
    columns = [pattern for pattern in _ROW_OF_TWO if sum(pattern.search(line) is not None for line in lines) > 1]
    outside: list[str] = []
    cells: list[str] = []
    is_inside = False
    for line in lines:
        is_row = bool(_RULE.match(line)) or any(row.search(line) for row in (_ROW, *columns))
        if is_row and is_inside and not _RULE.match(line):
            separator = next(sign for sign in "|\t," if sign in line)
            cells += [cell.strip() for cell in line.split(separator) if any(map(str.isalpha, cell))]
        outside.append("" if is_row else line)
        is_inside = is_row if line.strip() else is_inside  # the first row has the headings
    return outside, cells


def _without_signature(lines: list[str]) -> list[str]:
    """Returns the lines up to a mail's signature.

    It stands behind "--", or it is a last row of short lines behind a closing phrase ("Best regards,") or with a way
    to reach somebody.
    """
    following: list[str] = []
    end = len(lines)
    for index in range(len(lines) - 1, 0, -1):
        line = lines[index].strip()
        are_short = bool(following) and all(map(_is_signature_line, following))
        has_contact = any(_ADDRESS.search(each) or _TELEPHONE.search(each) for each in following)
        is_start = not line or _is_signature_line(line)
        words = line.removesuffix(",").split()
        is_closing = (
            line.endswith(",") and 1 <= len(words) <= _MAX_CLOSING_WORDS and words[0].casefold() not in GREETINGS
        )
        if _SIGNATURE_MARK.match(line) or (are_short and (is_closing or (has_contact and is_start))):
            end = index
        following += [line] if line else []
        if len(following) > _MAX_SIGNATURE_LINES:
            break
    return lines[:end]


def _is_signature_line(line: str) -> bool:
    return len(line.split()) <= _MAX_SIGNATURE_WORDS and not line.endswith((*_SENTENCE_END, ","))


def _turns(lines: list[str]) -> dict[int, str]:
    """Returns the words of each turn of a pasted conversation, by the number of its line; {} if there is none.

    It has two turns or more, and either two speakers or one who speaks twice.
    """
    matches = {index: match for index, line in enumerate(lines) if (match := _TURN.match(line))}
    if len(matches) < _MIN_TURNS:
        return {}
    turns: dict[int, str] = {}
    is_open = False
    for index, line in enumerate(lines):
        if match := matches.get(index):
            turns[index] = match["words"]
            is_open = True
        elif is_open and line.strip():
            turns[index] = line  # a turn of several lines
        else:
            is_open = False
    return turns


def title_forms(title: str) -> tuple[str, ...]:
    """Returns a title as written, without brackets, and up to its first comma: other texts may use either form."""
    return title, _BRACKETS.sub("", title), title.partition(",")[0]


def segments(text: str) -> Iterator[str]:
    """Yields the paragraphs of a text; cuts those over `SEGMENT_CHARS` at the end of a sentence, else at a space."""
    for paragraph in _PARAGRAPH.split(text):
        rest = paragraph.strip()
        while len(rest) > SEGMENT_CHARS:
            end = (
                max(rest.rfind(mark, 1, SEGMENT_CHARS) for mark in (". ", ".\n")) + 1
                or rest.rfind(" ", 1, SEGMENT_CHARS) + 1
                or SEGMENT_CHARS
            )
            yield rest[:end].strip()
            rest = rest[end:].strip()
        if rest:
            yield rest


def normalize_for_parser(text: str) -> str:
    """Returns a text of equal length with straight apostrophes, and leading verbs and interjections in lower case."""
    normalized = text.translate(PLAIN_CHARACTERS)
    for pattern in (_LEADING_VERBS, _LEADING_INTERJECTIONS):
        normalized = pattern.sub(lambda match: match.group().lower(), normalized)
    return normalized
