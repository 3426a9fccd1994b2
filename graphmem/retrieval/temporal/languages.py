"""Expressions of time in the other languages that the multilingual encoder reads, by the words of `words.json`. Pure.

Days, weeks, weekends, months and years near today, "… days ago", "the last … weeks", months with or without a day and
a year, dates in digits, days of the week, seasons, holidays; since, before and until a month or a year; ranges. Parts
of a month and distances from an event are not read. A longer phrase counts before one inside it, and part of a longer
one that is not known is no time. Texts are compared as people type them: folded, without the marks of Latin letters.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache, lru_cache, partial
from importlib.resources import files
from itertools import chain
from typing import Any

from graphmem.folding import fold, without_marks
from graphmem.retrieval.temporal import chinese, periods
from graphmem.retrieval.temporal.expressions import (
    MAX_GAP,
    Rule,
    RuleBuilder,
    TimeExpression,
    apart,
    combine_with_year,
    join_pairs,
    named_period,
    scan,
    share_year,
)
from graphmem.retrieval.temporal.periods import Period, Yearly

# Languages by script, where the script tells; all others are told by their words.
_SCRIPTS = {
    "ja": re.compile("[\u3040-\u30ff]"),
    "ko": re.compile("[\uac00-\ud7a3]"),
    "th": re.compile("[\u0e00-\u0e7f]"),
}
# A Japanese word of time without kana that is no Chinese.
_NO_CHINESE = re.compile("[先来再曜]|昨年|一昨|今周")
_WORD = re.compile(r"\w+")
_YEAR_NUMBER, _DAY_NUMBER = r"(?:19|20)\d\d", r"(?:3[01]|[12]\d|0?[1-9])"
_YEAR, _DAY = f"(?P<year>{_YEAR_NUMBER})", f"(?P<day>{_DAY_NUMBER})"
# Years of other counts: of eras in Japanese, in Thai from the year of the Buddha, which is so many years ahead.
_YEAR_NUMBERS = {"ja": chinese.YEAR_NUMBER, "th": r"(?:19|20|2[45])\d\d"}
_BUDDHIST, _FIRST_BUDDHIST = 543, 2400
# "2024'te", of which the language is told by the ending alone.
_TURKISH_YEAR = re.compile(rf"(?<!\d){_YEAR_NUMBER}'[dt][ae]n?(?!\w)")
_NUMBER = "(?P<month>1[0-2]|[1-9])"
# What may stand behind the number of a day, between a day, its month and the year, and before the number of a year.
_ORDINAL, _OF, _OF_YEAR = r"(?:\.|º|°|er|-?го)?", r"(?: de | del | di | d'| )", r"(?:,| de| del)?"
# A year where months have names, and the word behind it.
_FULL_YEAR = rf"{_YEAR}(?: (?:года|году|год|г\b\.?|roku|r\b\.?)(?!\w)|'[dt][ae]n?)?"
_YEAR_WORD = r"(?:jahr |jahre |el ano |l'anno |roku |عام |سنه )?"
# Further words that tell a language: of those beside a year ("в 2023 году"), and Turkish months with an ending.
_FURTHER = {
    "de": "jahr jahre bis zwischen", "ru": "год году года", "pl": "roku od", "es": "en entre", "fr": "en entre",
    "it": "nel dal tra", "pt": "em entre", "nl": "tussen",
    "ar": "عام سنه",
    "tr": "yilinda ayinda ocakta subatta martta nisanda mayista haziranda temmuzda agustosta eylulde ekimde kasimda "
          "aralikta",
}  # fmt: skip
_EASTERS = {"easter": periods.easter, "orthodox easter": periods.orthodox_easter}
_TELLING = ("relative", "ago", "past", "weekend", "months", "weekdays", "short", "seasons", "adverbs", "holidays")
# A number behind which something is counted is no year.
_COUNTED = re.compile(r" ?(?:%|€|\$|[.,:]\d)| (?:euros?|dollars?|dolares|kilometer|km|metros?|personen|personas)\b")
# A date in digits with its day first, and all texts that may have one.
_DAY_FIRST = rf"(?<![\w/.-]){_DAY}(?P<mark>[/.-])(?P<month>1[0-2]|0?[1-9])(?P=mark){_YEAR}(?![\w/-])"
_HAS_DIGITS = re.compile(r"\d[/.-]\d")
# The languages of further scripts by what stands for it; and words that tell an English text, whose month comes first.
_OF_SCRIPT = {"ru": re.compile("[\u0400-\u04ff]"), "ar": re.compile("[\u0600-\u06ff]"), "th": _SCRIPTS["th"]}
_ENGLISH = frozenset(
    "the a an of on in at to for and or is are was were be been am i you he she it we they my your his her our "
    "their this that these those what when where who which why how did do does done have has had will would can "
    "could not no with from by about after before since until last next there here if but so me us them as".split()
)
_OF_LANGUAGE = ("in", "since", "before", "until", "days", "of", "digits")
# What stands between a month and a year near today, in either order.
_BESIDE_YEAR = re.compile(
    r",?\s?(?:(?:de|del|des|du|do|da|di|dello|la|el|le|lo|il|en|em|im|in|am|van|w|z|в|من|في)\s|(?:d|l|dell|nell)')*|[のに、]"
    r"|(?:의|에|ของ|เมื่อ|ใน)\s?"
)
_SATURDAY = 5
_A_YEAR = re.compile(rf"{_OF_YEAR} {_YEAR_NUMBER}")
# A word and the space behind it, before a day or a month.
_WORD_BEFORE = re.compile(r"(\w+)\.? $")
_THAI_YEAR = rf"(?:(?:ปี|พ\.ศ\.|ค\.ศ\.) ?)*(?P<year>{_YEAR_NUMBERS['th']})(?!\d)"
# Months and years of languages that write them otherwise than with a word before them.
_OTHERWISE = {
    "ja": (rf"{chinese.YEAR}(?![一二三四五六七八九十]+月)(?:{_NUMBER}月)?(?:{_DAY}日)?",
           rf"(?<!\d){_NUMBER}月(?:{_DAY}日)?"),
    "ko": (rf"{_YEAR}년(?: ?{_NUMBER}월)?(?: ?{_DAY}일)?", rf"(?<!\d){_NUMBER}월(?: ?{_DAY}일)?"),
    "th": (rf"(?:(?<!\d){_DAY} ?)?(?P<month>MONTHS)(?: ?{_THAI_YEAR})?",
           rf"(?:ปี|พ\.ศ\.|ค\.ศ\.) ?{_THAI_YEAR}"),
    "tr": (rf"(?<!\w)(?:{_DAY} )?(?P<month>MONTHS)(?: {_YEAR})?(?:'?[dt][ae]n?| ayinda| gunu)(?!\w)",
           rf"(?<!\w){_YEAR}(?: yilinda|'[dt][ae]n?)(?!\w)"),
}  # fmt: skip


# What makes a phrase near today the end of a longer word that is not known (再再来週, 지지지난주).
_LONGER_WORDS = {"ja": "(?<![一再先大])", "ko": "(?<![\uac00-\ud7a3])"}
# What makes "two days ago" two days before another time, before and behind it: "düğünden iki gün önce", 結婚式の二日前.
_COUNTS_FROM = {"tr": (r"\w[dt][ae]n", ""), "ja": ("の", ""), "ar": ("", " من (?!الان|اليوم)")}
# A pattern as it is applied, by its source.
_compiled = cache(re.compile)


@dataclass(frozen=True, slots=True)
class _Phrase:
    """The source of a pattern, words without which no text matches it, and what builds its period.

    Every text that it matches has all of `words`, and one of `one_of` if there are some.

    It is compiled for the first text that has the words: "in September" makes a question German, too, and all patterns
    of a language take 50 to 130 ms.
    """

    words: tuple[str, ...]
    pattern: str
    build: RuleBuilder
    one_of: tuple[str, ...] = ()

    def rule_for(self, text: str) -> Rule | None:
        """Returns the rule, None if the folded text lacks one of the words."""
        if not all(word in text for word in self.words):
            return None
        if self.one_of and not any(word in text for word in self.one_of):
            return None
        return _compiled(self.pattern), self.build


def find_expressions(text: str, today: date) -> list[TimeExpression]:
    """Returns the expressions of time in a text, in its order, at their places in it."""
    return _find(
        text,
        today,
        lambda language: [*_named_months(language), *_relative_phrases(language), *_named_days(language)],
        has_dates=True,
    )


def is_japanese(text: str) -> bool:
    """Whether a text has a sign of kana, beside which Chinese characters are Japanese ones."""
    return _SCRIPTS["ja"].search(text) is not None


def find_relative(text: str, today: date) -> list[TimeExpression]:
    """Returns the expressions that count from today, as `find_expressions` does."""
    return _find(text, today, lambda language: [*_relative_phrases(language), *_relative_seasons(language)])


def _find(
    text: str, today: date, phrases: Callable[[str], Sequence[_Phrase]], *, has_dates: bool = False
) -> list[TimeExpression]:
    folded, places = _folded(text)
    told = {language: phrases(language) for language in _languages_of(folded)}
    if has_dates and _HAS_DIGITS.search(folded) and (written := _written_in(folded)):
        told[written] = [*_dates(written), *told.get(written, ())]
    by_language = (
        join_pairs(
            folded,
            scan(
                _without_names(text, folded, places, language),
                today,
                filter(None, (phrase.rule_for(folded) for phrase in known)),
            ),
            partial(_same_time, folded, _words()[language]["weekdays"]),
        )
        for language, known in told.items()
    )
    # The longest first: "5 mai" is German too, "du 3 au 5 mai" French.
    found = apart(sorted(chain.from_iterable(by_language), key=lambda one: one.begin - one.end))
    if places is None:
        return found
    places = [*places, len(text)]  # what folding drops belongs to the word before it
    return [TimeExpression(places[one.begin], places[one.end], one.period, one.build) for one in found]


def _same_time(
    text: str, weekdays: Mapping[str, int], left: TimeExpression, right: TimeExpression, words: str
) -> list[TimeExpression] | None:
    """Joins a month, a day or a season and its year ("mayo del año pasado"), or a week and its day (再来週の月曜日)."""
    day = weekdays.get(text[right.begin : right.end]) if words in ("", " ", "の") else None
    if day is not None and left.period == periods.calendar("week", left.period.first, 0):
        return [left.merged(right, periods.days(left.period.first + timedelta(day)))]
    return combine_with_year(left, right) if len(words) <= MAX_GAP and _BESIDE_YEAR.fullmatch(words) else None


def names_nothing(query: str, without_times: str) -> bool:
    """Whether a query has only words of its language that name nothing beside its times.

    `without_times` is the query without these.
    """
    rest = _folded(without_times)[0]
    asked = _folded(query)[0]
    # A date in digits is no word of a language, but the words beside it are.
    languages = dict.fromkeys([*_languages_of(asked), *filter(None, [_written_in(asked)])])
    return any(_nothing(language).fullmatch(rest) for language in languages)


@cache
def _nothing(language: str) -> re.Pattern[str]:
    words = "|".join(_words()[language]["nothing"])
    # Atomic: where words may be divided otherwise ("얘기했어"), trying each division takes exponential time.
    return re.compile(rf"(?>{words}|\W)++" if language in _SCRIPTS else rf"\W*+(?>(?:{words})(?:\W++|$))*+")


class _Signs(dict[int, str]):
    """Each character as it is compared, by its code, for `str.translate`."""

    def __missing__(self, code: int) -> str:
        self[code] = sign = without_marks(fold(chr(code)))
        return sign


_SIGNS = _Signs({ord("’"): "'"})


def _folded(text: str) -> tuple[str, list[int] | None]:
    """Returns a text as it is compared, and for each of its characters the place in the text (None: the same)."""
    if text.isascii():
        return text.lower(), None
    folded = text.translate(_SIGNS)
    if len(folded) == len(text):
        return folded, None
    return folded, [place for place, sign in enumerate(text) for _ in _SIGNS[ord(sign)]]


def _without_names(text: str, folded: str, places: list[int] | None, language: str) -> str:
    """Returns a folded text with "_" for days and months that are names: of "Santo Domingo" and "Frau Sonntag".

    By their capitals in languages that write days and months small: a day inside a sentence without a word that stands
    before days or at its beginning before another capital, and a month behind an "of". `places` as `_folded` has it.
    """
    words = _words()[language]

    def capital(place: int) -> bool:
        return place < len(folded) and text[place if places is None else places[place]].isupper()

    def masked(match: re.Match[str]) -> str:
        return "_" * len(match[0]) if is_name(match) else match[0]

    def is_name(match: re.Match[str]) -> bool:
        before = folded[max(0, match.start() - MAX_GAP) : match.start()]
        previous = _WORD_BEFORE.search(before)
        if words["titles"]:
            return previous is not None and re.fullmatch(words["titles"], previous[1]) is not None
        if not capital(match.start()) or capital(match.start() + 1):  # small, or a text in capitals
            return False
        if match[0] in words["months"]:
            is_of = re.search(rf"(?<!\w)(?<!\d )(?:{words['of']})(?: |(?<='))$", before) if words["of"] else None
            return is_of is not None and not _A_YEAR.match(folded, match.end())
        if previous is None:
            return folded[match.end() : match.end() + 1] == " " and capital(match.end() + 1)
        return not re.fullmatch(words["days"], previous[1]) and not _near(language).match(folded, match.start())

    return _days_and_months(language).sub(masked, folded) if words["days"] or words["titles"] else folded


@cache
def _days_and_months(language: str) -> re.Pattern[str]:
    words = _words()[language]
    days = words["weekdays"] if words["titles"] else words["weekdays"] | words["months"]
    return re.compile(_whole(f"(?:{_any(days)})", language))


@cache
def _near(language: str) -> re.Pattern[str]:
    """Returns the pattern of the phrases near today ("domingo pasado"), which are no end of a longer word."""
    start = _LONGER_WORDS.get(language, "")
    return re.compile(_whole(f"{start}(?P<phrase>{_any(_words()[language]['relative'])})", language))


def _languages_of(text: str) -> list[str]:
    """Returns the languages of which a folded text has a word of time."""
    told = [] if text.isascii() else [language for language, script in _SCRIPTS.items() if script.search(text)]
    if "'" in text and _TURKISH_YEAR.search(text):
        told.append("tr")
    by_word, words = _languages_by_word(), _WORD.findall(text)
    if by_word.keys().isdisjoint(words):  # as most texts
        return told
    return list(dict.fromkeys([*told, *chain.from_iterable(by_word.get(word, ()) for word in words)]))


def _written_in(text: str) -> str | None:
    """Returns the language of a folded text if it writes the day before the month; None for English and without a sign.

    By its script or by the words that questions and dates have; English needs as many of them as any other language.
    """
    if is_japanese(text) or _SCRIPTS["ko"].search(text) or chinese.is_chinese(text):
        return None
    if (by_script := next((one for one, script in _OF_SCRIPT.items() if script.search(text)), None)) is not None:
        return by_script
    by_word, words = _languages_by_sign(), set(_WORD.findall(text))
    counts = Counter(language for word in words for language in by_word.get(word, ()))
    language, count = max(counts.items(), key=lambda one: one[1], default=("", 0))
    return language if count > len(words & _ENGLISH) else None


@cache
def _languages_by_sign() -> Mapping[str, list[str]]:
    """Returns the languages in Latin script by the words that tell in which of them a text is written."""
    languages: dict[str, list[str]] = {}
    for language, words in _words().items():
        if language not in (*_SCRIPTS, *_OF_SCRIPT):
            phrases = [*words["nothing"], *chain(*(words[kind].split("|") for kind in _OF_LANGUAGE))]
            for word in set(_WORD.findall(" ".join(phrases))):
                languages.setdefault(word, []).append(language)
    return languages


@cache
def _dates(language: str) -> list[_Phrase]:
    """Returns the patterns of dates in digits whose day comes first; without a year behind words before a day."""
    words = _words()[language]
    build = partial(_month, words["months"])
    patterns = [_DAY_FIRST.replace(_YEAR_NUMBER, _year_number(language))]
    if words["digits"]:
        lead = rf"(?<!\w)(?:{words['digits']})(?: |(?<=')){_DAY}"
        months = (r"/(?P<month>1[0-2]|0?[1-9])", r"\.(?P<month>1[0-2]|0[1-9]|[1-9](?=\.))\.?")
        patterns += [rf"{lead}{month}(?![\w/-]|\.\d)" for month in months]
    return [_Phrase((), pattern, build) for pattern in patterns]


@cache
def _words() -> Mapping[str, Mapping[str, Any]]:
    return dict(json.loads(files(__package__).joinpath("words.json").read_text("utf-8")))


@cache
def _languages_by_word() -> Mapping[str, list[str]]:
    """Returns the languages by the longest word of each of their phrases; Japanese by those that are no Chinese."""
    languages: dict[str, list[str]] = {}
    for language, words in _words().items():
        phrases = chain(*(words[kind] for kind in _TELLING))
        told = {max(_WORD.findall(phrase.replace("{0}", " ")), key=len) for phrase in phrases}
        for word in [*told, *_FURTHER.get(language, "").split()]:
            if language == "ja" and not _NO_CHINESE.search(word):
                continue
            languages.setdefault(word, []).append(language)
    return languages


@cache
def _named_months(language: str) -> list[_Phrase]:
    """Returns the patterns of ranges, seasons, months and years, those that decide first in front."""
    words = _words()[language]
    months, month_of = _any(words["months"]), partial(_month, words["months"])
    names = tuple(words["months"])
    otherwise = [_Phrase((), pattern.replace("MONTHS", months), month_of) for pattern in _OTHERWISE.get(language, ())]
    days: list[_Phrase] = []
    if language not in _SCRIPTS:
        month, year = f"(?P<month>{months})", f"{_OF_YEAR} {_FULL_YEAR}"
        days = [_Phrase((), rf"(?<!\w){_DAY}{_ORDINAL}{_OF}{month}(?:{year})?(?!\w)", month_of, names)]
        otherwise.append(_Phrase((), rf"(?<!\w){month}{year}(?!\w)", month_of, names))
    for side in filter(words.get, ("in", "since", "before", "until")):
        time = rf"(?:(?P<month>{months})|{_YEAR_WORD}{_FULL_YEAR})"
        pattern = rf"(?<!\w)(?:{words[side]})(?: |(?<='))(?:l')?{time}(?!\w)"
        otherwise.append(_Phrase((), pattern, partial(_bordered, side, words["months"]), (*names, "19", "20")))
    return [*_ranges(language), *_seasons(language), *days, *_months_of_years(language), *otherwise]


def _ranges(language: str) -> list[_Phrase]:
    words = _words()[language]
    build = partial(_range, words["weekdays"] | words["short"], words["months"], words["every"])
    first, second = (_end(language, number) for number in (1, 2))
    without_years = partial(build, with_years=False)
    return [
        *(_phrase(phrase, (first, second), build, language) for phrase in words["ranges"]),
        *(_Phrase((dash,), rf"(?<![\w-]){first} ?{dash} ?{second}(?![\w-])", without_years) for dash in "-–~"),
    ]


def _end(language: str, number: int) -> str:
    """Returns the pattern of either end (1, 2) of a range: a weekday, a month with or without a day, a day, a year."""
    words = _words()[language]
    weekday, year = (
        f"(?P<weekday{number}>{_any(words['weekdays'] | words['short'])})",
        f"(?P<year{number}>{_year_number(language)})",
    )
    day = rf"(?<!\d)(?P<day{number}>{_DAY_NUMBER})(?!\d)"
    if language in ("ja", "ko"):
        signs = "年月日" if language == "ja" else "년월일"
        month = "(?P<month{}>1[0-2]|[1-9])"
        parts = (year, month.format(number), day)
        return (
            rf"(?:{weekday}|(?=\d){' ?'.join(f'(?:{part}{sign})?' for part, sign in zip(parts, signs, strict=True))})"
        )
    month = f"(?P<month{number}>{_any(words['months'])})"
    # A day alone and a year alone have groups of their own, since a pattern may name a group once.
    alone = rf"(?P<alone{number}>{_year_number(language)}|{_DAY_NUMBER}(?!\d)){_ORDINAL}"
    return rf"(?:{weekday}|(?:{day}{_ORDINAL}{_OF})?{month}(?:{_OF_YEAR} {year})?|{_YEAR_WORD}(?<!\d){alone})"


def _seasons(language: str, *, is_relative: bool = False) -> list[_Phrase]:
    """Returns the patterns of seasons and holidays; of those only that count from today ("letzten Sommer") if asked."""
    words = _words()[language]
    alone = words["adverbs"] | words["holidays"]
    names = words["seasons"] | alone
    name = f"(?P<name>{_any(names)})"
    # No part of a longer word ("千春に", "한겨울에").
    start = "(?<![\u3005\u4e00-\u9fff\uac00-\ud7a3])" if language in _SCRIPTS else ""
    of_year = rf"(?:{_OF_YEAR} {_YEAR_WORD}{_FULL_YEAR})"
    dated = rf"(?P<year>{_year_number(language)})(?:年の?|년 ?){name}" if start else name + of_year
    patterns = [] if is_relative else [("", "{0}", dated, "")]
    patterns += [
        (start, phrase, name, which) for phrase, which in words["season"].items() if which != "" or not is_relative
    ]
    if alone and not is_relative:
        patterns.append((start, "{0}", f"(?P<name>{_any(alone)})", ""))
    one_of = tuple(name.replace(" ", "") if language in _SCRIPTS else name for name in names)
    return [
        _phrase(phrase, (part,), partial(_season, names, which), language, begin, one_of)
        for begin, phrase, part, which in patterns
    ]


def _months_of_years(language: str) -> list[_Phrase]:
    """Returns the patterns of months in the phrases that tell a season's year ("letzten Mai")."""
    words = _words()[language]
    months = {month: ["month", number, 1] for month, number in words["months"].items()}
    name = f"(?P<name>{_any(months)})" + (r"(?! ?\d)" if language in _SCRIPTS else "")
    return [
        _phrase(phrase, (name,), partial(_season, months, which), language, one_of=tuple(months))
        for phrase, which in words["season"].items()
        if which != ""
    ]


@cache
def _relative_seasons(language: str) -> list[_Phrase]:
    """Returns the patterns of seasons, holidays and months that count from today."""
    return [*_seasons(language, is_relative=True), *_months_of_years(language)]


@cache
def _relative_phrases(language: str) -> list[_Phrase]:
    """Returns the patterns of times that count from today."""
    words = _words()[language]
    near = {phrase.replace(" ", ""): meaning for phrase, meaning in words["relative"].items()}
    start, longer = "" if language in _SCRIPTS else r"(?<!\w)", _LONGER_WORDS.get(language, "")
    number = f"{_any(words['numbers'])}|{chinese.NUMBER}" if language == "ja" else _any(words["numbers"])
    count = rf"(?P<count>(?<!\d)\d{{1,3}}|{_no_longer_number(language)}(?:{number}))"
    return [
        *(
            _phrase(phrase, (count,), partial(_ago, meaning, language), language, "" if "{0}" in phrase else longer)
            for phrase, meaning in words["ago"].items()
        ),
        *(
            _phrase(phrase, (count,), partial(_past, unit, words["numbers"]), language)
            for phrase, unit in words["past"].items()
        ),
        _Phrase((), _near(language).pattern, partial(_relative, near, words, start)),
    ]


@cache
def _no_ago(language: str) -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """Returns what stands before a time ago and makes it another one, before one without a number, and behind one.

    Part of a longer number, another time from which it counts, and a month or day of the week of the same name.
    """
    words = _words()[language]
    start = "" if language in _SCRIPTS else r"(?<!\w)"
    counts_from, from_behind = _COUNTS_FROM.get(language, ("", ""))
    before = "|".join(filter(None, (words["tens"] and f"{start}(?:{words['tens']})", counts_from)))
    number = rf"\d|{start}(?:{_any(words['numbers'])})"
    behind = "|".join(filter(None, (r" ?\d", f" (?:{_any(words['months'] | words['weekdays'])})", from_behind)))
    return (
        re.compile(rf"(?:{before or '(?!)'}) ?$"),
        re.compile(rf"(?:{before or '(?!)'}|{number}) ?$"),
        re.compile(behind),
    )


def _no_longer_number(language: str) -> str:
    """Returns the pattern before a number in a script without spaces: no other part of the same number."""
    if language == "ja":
        return "(?<![\\d一二三四五六七八九十百千数何])"
    if language != "th":
        return _LONGER_WORDS.get(language, "")
    return "".join(f"(?<!{word})" for word in _words()[language]["numbers"])


@cache
def _named_days(language: str) -> list[_Phrase]:
    """Returns the patterns of days of the week and of the weekend that are the latest ones."""
    words = _words()[language]
    pattern = _any(words["weekdays"])
    if words["short"]:  # "na segunda?", but not "na segunda vez"
        pattern += rf"|(?<=\bna )(?:{_any(words['short'])})(?= ?(?:[?!.,;:]|$))"
    build = partial(_weekday, words["weekdays"] | words["short"], words["every"])
    weekend = partial(_weekend, words["every"])
    return [
        *(_phrase(phrase, (), weekend, language) for phrase in words["weekend"]),
        _phrase("{0}", (f"(?P<weekday>{pattern})",), build, language, one_of=(*words["weekdays"], *words["short"])),
    ]


def _phrase(
    phrase: str,
    parts: Sequence[str],
    build: RuleBuilder,
    language: str,
    start: str = "",
    one_of: tuple[str, ...] = (),
) -> _Phrase:
    """Returns a phrase with the patterns of its parts in place of "{0}" and "{1}", behind the pattern `start`."""
    words = phrase.format(*" " * len(parts)).split()
    return _Phrase(tuple(words), _whole(start + phrase.format(*parts), language), build, one_of)


def _whole(pattern: str, language: str) -> str:
    """Returns a pattern of whole words; where words are not divided by spaces, of their parts."""
    return pattern.replace(" ", " ?") if language in _SCRIPTS else rf"(?<!\w){pattern}(?!\w)"


def _any(words: Mapping[str, Any]) -> str:
    return "|".join(map(re.escape, sorted(words, key=len, reverse=True)))


def _year_number(language: str) -> str:
    """Returns the pattern of the years of a language, without a group."""
    return _YEAR_NUMBERS.get(language, _YEAR_NUMBER)


def _year(number: str) -> int:
    year = chinese.year_number(number)
    return year - _BUDDHIST if year >= _FIRST_BUDDHIST else year


def _month(months: Mapping[str, int], match: re.Match[str], today: date) -> Period | tuple[Period, Yearly] | None:
    """Returns a month, a day of it, or a year."""
    groups = match.groupdict()
    year = _year(groups["year"]) if groups.get("year") else None
    if year is not None and _COUNTED.match(match.string, match.end()):
        return None
    if (name := groups.get("month")) is None:
        return None if year is None else periods.year(year)
    number, day = int(name) if name.isdecimal() else months[name], groups.get("day")
    return named_period(partial(_month_or_day, number, int(day) if day else None), today, None, year)


def _bordered(side: str, months: Mapping[str, int], match: re.Match[str], today: date) -> Any:
    """Returns a month or a year, or all time since, before or until it."""
    found = _month(months, match, today)
    if found is None or side == "in":
        return found
    period = found[0] if isinstance(found, tuple) else found
    return periods.after(period, since=True) if side == "since" else periods.before(period, through=side == "until")


def _yearly(meaning: int | list[Any]) -> Yearly:
    if isinstance(meaning, int):
        return lambda year: periods.months(year, meaning, 3)
    begin, day, count = meaning
    if begin == "month":
        return partial(periods.month, number=day)
    if begin in _EASTERS:
        return lambda year: periods.days(_EASTERS[begin](year) + timedelta(day), count)
    return periods.on_date(begin, day, count)


def _season(
    names: Mapping[str, int | list[Any]], which: str | int, match: re.Match[str], today: date
) -> Period | tuple[Period, Yearly]:
    """Returns a season of three months or a holiday, given the meanings of their names as `words.json` has them.

    `which` is as in `periods.select_period`, or the years from now.
    """
    build, year = _yearly(names[match["name"]]), match.groupdict().get("year")
    if isinstance(which, int):
        return build(today.year + which)
    return named_period(build, today, which, _year(year) if year else None)


def _range(
    weekdays: Mapping[str, int],
    months: Mapping[str, int],
    every: str,
    match: re.Match[str],
    today: date,
    *,
    with_years: bool = True,
) -> Period | tuple[Period, Yearly] | None:
    """Returns the days from one end to the other; None for numbers that are no days, and for weekdays of any week."""
    first, last = (
        {kind: match.groupdict().get(f"{kind}{number}") for kind in ("weekday", "day", "month", "year", "alone")}
        for number in (1, 2)
    )
    if first["weekday"] and last["weekday"]:
        if _stands_behind(match, every):
            return None
        begin, length = weekdays[first["weekday"]], (weekdays[last["weekday"]] - weekdays[first["weekday"]]) % 7
        return periods.days(periods.weekday(today, begin, "").first, length + 1)
    for end in (first, last):
        if alone := end["alone"]:
            end["year" if len(alone) == len("2023") else "day"] = alone
    years, has_month = [end["year"] for end in (first, last)], first["month"] or last["month"]
    if all(years) and not has_month:
        is_meant = with_years and not _COUNTED.match(match.string, match.end())
        return periods.span(*(periods.year(_year(year)) for year in years if year)) if is_meant else None
    if first["day"] and last["day"]:  # "3 to 5 May", "5月3日から5日まで"; but of "18 mai à 14 h" the 14 is no day
        first["month"] = first["month"] or last["month"]
        last["month"] = last["month"] or (None if last["alone"] else first["month"])
    dated = [_dated(end["year"], month, end["day"], months, today) for end in (first, last) if (month := end["month"])]
    if len(dated) < len((first, last)):
        return None
    left, right = dated
    if shared := share_year(left, right):
        left, right = shared
    joined = left.range_to(right, today)
    return joined.period if joined.build is None else (joined.period, joined.build)


def _dated(year: str | None, month: str, day: str | None, months: Mapping[str, int], today: date) -> TimeExpression:
    """Returns a month, or a day of it, in the year or in the latest one in which it has begun."""
    build = partial(_month_or_day, int(month) if month.isdecimal() else months[month], int(day) if day else None)
    return (
        TimeExpression(0, 0, build(_year(year))) if year else TimeExpression(0, 0, periods.latest(build, today), build)
    )


def _month_or_day(month: int, day: int | None, year: int) -> Period:
    return periods.month(year, month) if day is None else periods.days(date(year, month, day), dated=True)


def _stands_behind(match: re.Match[str], words: str) -> bool:
    """Whether one of the words (a pattern, "" for none) stands directly before a match."""
    before = match.string[max(0, match.start() - MAX_GAP) : match.start()]
    return bool(words) and re.search(rf"(?:{words}) ?$", before) is not None


def _count(word: str, numbers: Mapping[str, int]) -> int:
    return int(word) if word.isdecimal() else numbers.get(word) or chinese.number(word)


def _ago(meaning: str | list[Any], language: str, match: re.Match[str], today: date) -> Period | None:
    """Returns the period so many units ago; `meaning` is the unit, with the number (0: half) if the phrase names it.

    None beside what makes it another time ("двадцать два дня назад").
    """
    before, before_none, behind = _no_ago(language)
    text_before = match.string[max(0, match.start() - MAX_GAP) : match.start()]
    is_counted = isinstance(meaning, str)
    if (before if is_counted else before_none).search(text_before) or behind.match(match.string, match.end()):
        return None
    if not isinstance(meaning, str):
        unit, number = meaning
        return periods.count_ago(today, number or None, unit, vague=False)
    count = None if match["count"] == "半" else _count(match["count"], _words()[language]["numbers"])
    return periods.count_ago(today, count, meaning, vague=False)


def _past(unit: str, numbers: Mapping[str, int], match: re.Match[str], today: date) -> Period:
    if match["count"] == "半":
        return periods.past_units(today, periods.LENGTH[unit] // 2, "day")
    return periods.past_units(today, _count(match["count"], numbers), unit)


def _relative(
    meanings: Mapping[str, Any], words: Mapping[str, Any], start: str, match: re.Match[str], today: date
) -> Period | None:
    """Returns the period of a phrase near today; `start` is the pattern of where a word begins.

    None behind words with which it is no time, or another day that is not known ("nach vorgestern").
    """
    phrase = match["phrase"].replace(" ", "")
    unit, *numbers = meanings[phrase]
    before = "|".join(filter(None, (words["not"].get(phrase), words["shifts"] if unit == "day" else None)))
    beside = words["beside"].get(phrase)
    if unit == "none" or (before and _stands_behind(match, f"{start}(?:{before})")):
        return None
    if beside and _has_word(match.string, beside):  # the German and Dutch "hier"
        return None
    if unit == "day":
        return periods.days(today + timedelta(numbers[0]))
    if unit == "weekday":
        return periods.weekday(today, numbers[0], numbers[1])
    if unit == "weekday of":  # the week that is so many weeks after today's
        return periods.days(periods.calendar("week", today, numbers[1]).first + timedelta(numbers[0]))
    return periods.calendar(unit, today, numbers[0])


@lru_cache(maxsize=8)
def _has_word(text: str, words: str) -> bool:
    return re.search(rf"(?<!\w)(?:{words})(?!\w)", text) is not None


def _weekend(every: str, match: re.Match[str], today: date) -> Period | None:
    if _stands_behind(match, every):
        return None
    return periods.calendar("weekend", today, 0 if today.weekday() >= _SATURDAY else -1)


def _weekday(weekdays: Mapping[str, int], every: str, match: re.Match[str], today: date) -> Period | None:
    if _stands_behind(match, every):
        return None
    return periods.weekday(today, weekdays[match["weekday"]], "")
