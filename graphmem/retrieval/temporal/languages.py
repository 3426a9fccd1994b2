"""Expressions of time in the other languages that the multilingual encoder reads, by the words of `words.json`. Pure.

Days, weeks, months and years near today, "… days ago", "the last … weeks", months with or without a day and a year,
days of the week; since, before and until a month or a year. Seasons, holidays, ranges and parts of a month are not
read.
Texts are compared as people type them: folded, without the marks of Latin letters.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta
from functools import cache, partial
from importlib.resources import files
from itertools import chain
from typing import Any

from graphmem.folding import fold, without_marks
from graphmem.retrieval.temporal import periods
from graphmem.retrieval.temporal.expressions import (
    Rule,
    RuleBuilder,
    TimeExpression,
    named_period,
    scan,
    union,
)
from graphmem.retrieval.temporal.periods import Period, Yearly

# Languages by script, where the script tells; all others are told by their words.
_SCRIPTS = {
    "ja": re.compile("[\u3040-\u30ff]"),
    "ko": re.compile("[\uac00-\ud7a3]"),
    "th": re.compile("[\u0e00-\u0e7f]"),
}
_WORD = re.compile(r"\w+")
_YEAR, _DAY = r"(?P<year>(?:19|20)\d\d)", r"(?P<day>3[01]|[12]\d|0?[1-9])"
_NUMBER = "(?P<month>1[0-2]|[1-9])"
# What may stand behind the number of a day, between a day, its month and the year, and before the number of a year.
_ORDINAL, _OF, _OF_YEAR = r"(?:\.|º|°|er|-?го)?", r"(?: de | del | di | d'| )", r"(?:,| de| del)?"
_YEAR_WORD = r"(?:jahr |jahre |el ano |l'anno |roku |عام |سنه )?"
# Further words that tell a language: of those beside a year ("в 2023 году"), and Turkish months with an ending.
_FURTHER = {
    "de": "jahr jahre", "ru": "году года", "pl": "roku", "es": "en", "fr": "en", "it": "nel", "pt": "em",
    "ar": "عام سنه",
    "tr": "yilinda ayinda ocakta subatta martta nisanda mayista haziranda temmuzda agustosta eylulde ekimde kasimda "
          "aralikta",
}  # fmt: skip
# A number behind which something is counted is no year.
_COUNTED = re.compile(r" ?(?:%|€|\$|[.,:]\d)| (?:euros?|dollars?|dolares|kilometer|km|metros?|personen|personas)\b")
# Months and years of languages that write them otherwise than with a word before them.
_OTHERWISE = {
    "ja": (rf"{_YEAR}年(?:{_NUMBER}月)?(?:{_DAY}日)?", rf"(?<!\d){_NUMBER}月(?:{_DAY}日)?"),
    "ko": (rf"{_YEAR}년(?: ?{_NUMBER}월)?(?: ?{_DAY}일)?", rf"(?<!\d){_NUMBER}월(?: ?{_DAY}일)?"),
    "th": (rf"(?P<month>MONTHS)(?: ?{_YEAR})?",),
    "tr": (rf"(?<!\w)(?:{_DAY} )?(?P<month>MONTHS)(?: {_YEAR})?(?:'?[dt][ae]| ayinda)(?!\w)",
           rf"(?<!\w){_YEAR} yilinda(?!\w)"),
}  # fmt: skip


def find_expressions(text: str, today: date) -> list[TimeExpression]:
    """Returns the expressions of time in a text, in its order, at their places in it."""
    return _find(
        text, today, lambda language: [*_named_months(language), *_relative_rules(language), _named_weekday(language)]
    )


def find_relative(text: str, today: date) -> list[TimeExpression]:
    """Returns the expressions that count from today, as `find_expressions` does."""
    return _find(text, today, _relative_rules)


def _find(text: str, today: date, rules: Callable[[str], Sequence[Rule]]) -> list[TimeExpression]:
    folded, places = _folded(text)
    found: list[TimeExpression] = []
    for language in _languages_of(folded):
        found = union(found, scan(folded, today, rules(language)))
    if places is None:
        return found
    return [TimeExpression(places[one.begin], places[one.end - 1] + 1, one.period, one.build) for one in found]


def names_nothing(query: str, without_times: str) -> bool:
    """Whether a query has, in a language of which it has a word of time, only words that name nothing beside its times.

    `without_times` is the query without these.
    """
    rest = _folded(without_times)[0]
    return any(_nothing(language).fullmatch(rest) for language in _languages_of(_folded(query)[0]))


@cache
def _nothing(language: str) -> re.Pattern[str]:
    words = "|".join(_words()[language]["nothing"])
    return re.compile(rf"(?:{words}|\W)+" if language in _SCRIPTS else rf"\W*(?:(?:{words})(?:\W+|$))*")


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


def _languages_of(text: str) -> list[str]:
    """Returns the languages of which a folded text has a word of time."""
    told = [language for language, script in _SCRIPTS.items() if script.search(text)]
    by_word = _languages_by_word()
    return list(dict.fromkeys([*told, *chain.from_iterable(by_word.get(word, ()) for word in _WORD.findall(text))]))


@cache
def _words() -> Mapping[str, Mapping[str, Any]]:
    return dict(json.loads(files(__package__).joinpath("words.json").read_text("utf-8")))


@cache
def _languages_by_word() -> Mapping[str, list[str]]:
    """Returns the languages by the longest word of each of their phrases."""
    languages: dict[str, list[str]] = {}
    for language, words in _words().items():
        phrases = chain(*(words[kind] for kind in ("relative", "ago", "past", "months", "weekdays")))
        told = {max(_WORD.findall(phrase.replace("{0}", " ")), key=len) for phrase in phrases}
        for word in [*told, *_FURTHER.get(language, "").split()]:
            languages.setdefault(word, []).append(language)
    return languages


@cache
def _named_months(language: str) -> list[Rule]:
    """Returns the patterns of months and years, those that decide first in front."""
    words = _words()[language]
    months, month_of = _any(words["months"]), partial(_month, words["months"])
    patterns: list[tuple[str, RuleBuilder]] = [
        (pattern.replace("MONTHS", months), month_of) for pattern in _OTHERWISE.get(language, ())
    ]
    if language not in _SCRIPTS:
        month = f"(?P<month>{months})"
        patterns += [
            (rf"(?<!\w){_DAY}{_ORDINAL}{_OF}{month}(?:{_OF_YEAR} {_YEAR})?(?!\w)", month_of),
            (rf"(?<!\w){month}{_OF_YEAR} {_YEAR}(?!\w)", month_of),
        ]
    for side in filter(words.get, ("in", "since", "before", "until")):
        time = rf"(?:(?P<month>{months})|{_YEAR_WORD}{_YEAR})"
        lead = rf"(?<!\w)(?:{words[side]})(?: |(?<='))(?:l')?"
        patterns.append((rf"{lead}{time}(?!\w)", partial(_bordered, side, words["months"])))
    return [(re.compile(pattern), build) for pattern, build in patterns]


@cache
def _relative_rules(language: str) -> list[Rule]:
    """Returns the patterns of times that count from today."""
    words = _words()[language]
    near = {phrase.replace(" ", ""): meaning for phrase, meaning in words["relative"].items()}
    count = rf"(?P<count>\d{{1,3}}|{_any(words['numbers'])})"
    patterns: list[tuple[str, RuleBuilder]] = [
        (phrase.replace("{0}", count), partial(build, unit, words["numbers"]))
        for kind, build in (("ago", _ago), ("past", _past))
        for phrase, unit in words[kind].items()
    ]
    patterns.append((rf"(?P<phrase>{_any(words['relative'])})", partial(_relative, near, words["not"])))
    return [(_whole(pattern, language), build) for pattern, build in patterns]


@cache
def _named_weekday(language: str) -> Rule:
    words = _words()[language]
    pattern = _whole(rf"(?P<weekday>{_any(words['weekdays'])})", language)
    return pattern, partial(_weekday, words["weekdays"], words["every"])


def _whole(pattern: str, language: str) -> re.Pattern[str]:
    """Returns a pattern of whole words; where words are not divided by spaces, of their parts."""
    return re.compile(pattern.replace(" ", " ?") if language in _SCRIPTS else rf"(?<!\w){pattern}(?!\w)")


def _any(words: Mapping[str, Any]) -> str:
    return "|".join(map(re.escape, sorted(words, key=len, reverse=True)))


def _month(months: Mapping[str, int], match: re.Match[str], today: date) -> Period | tuple[Period, Yearly] | None:
    """Returns a month, a day of it, or a year."""
    groups = match.groupdict()
    year = int(groups["year"]) if groups.get("year") else None
    if year is not None and _COUNTED.match(match.string, match.end()):
        return None
    if (name := groups.get("month")) is None:
        return None if year is None else periods.year(year)
    number, day = int(name) if name.isdecimal() else months[name], groups.get("day")

    def build(year: int) -> Period:
        if day is None:
            return periods.month(year, number)
        return periods.days(date(year, number, int(day)), dated=True)

    return named_period(build, today, None, year)


def _bordered(side: str, months: Mapping[str, int], match: re.Match[str], today: date) -> Any:
    """Returns a month or a year, or all time since, before or until it."""
    found = _month(months, match, today)
    if found is None or side == "in":
        return found
    period = found[0] if isinstance(found, tuple) else found
    return periods.after(period, since=True) if side == "since" else periods.before(period, through=side == "until")


def _count(word: str, numbers: Mapping[str, int]) -> int:
    return int(word) if word.isdecimal() else numbers[word]


def _ago(unit: str, numbers: Mapping[str, int], match: re.Match[str], today: date) -> Period:
    return periods.count_ago(today, _count(match["count"], numbers), unit, vague=False)


def _past(unit: str, numbers: Mapping[str, int], match: re.Match[str], today: date) -> Period:
    return periods.past_units(today, _count(match["count"], numbers), unit)


def _relative(
    meanings: Mapping[str, Any], exceptions: Mapping[str, str], match: re.Match[str], today: date
) -> Period | None:
    phrase = match["phrase"].replace(" ", "")
    before = exceptions.get(phrase)
    if before and re.search(rf"(?<!\w)(?:{before}) $", match.string[: match.start()]):
        return None
    unit, number, *which = meanings[phrase]
    if unit == "day":
        return periods.days(today + timedelta(number))
    if unit == "weekday":
        return periods.weekday(today, number, which[0])
    if unit == "weekday of":  # the week that is so many weeks after today's
        return periods.days(periods.calendar("week", today, which[0]).first + timedelta(number))
    return periods.calendar(unit, today, number)


def _weekday(weekdays: Mapping[str, int], every: str, match: re.Match[str], today: date) -> Period | None:
    if every and re.search(rf"(?:{every}) ?$", match.string[: match.start()]):
        return None
    return periods.weekday(today, weekdays[match["weekday"]], "")
