"""English expressions of time: those that name a period by themselves (`rules`), and phrases that combine them. Pure.

Phrases are parts ("early May", "the second weekend of June"), ranges ("from May to July"), borders ("before July 2023",
"since May") and distances from a date ("two weeks after 1 May").
"""

from __future__ import annotations

import re
import unicodedata
from calendar import isleap
from collections.abc import Mapping
from datetime import date, timedelta
from functools import cache

from graphmem.retrieval.temporal import periods
from graphmem.retrieval.temporal.expressions import (
    MAX_GAP,
    Rule,
    TimeExpression,
    combine_with_year,
    join_pairs,
    named_period,
    scan,
    share_year,
    with_prefix,
)
from graphmem.retrieval.temporal.periods import Period, Yearly

MONTH_NAMES = "January February March April May June July August September October November December".split()
MONTHS = tuple(name[:3].lower() for name in MONTH_NAMES)
SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
NUMBERS = {
    word: count
    for count, words in enumerate(
        "a,an,one two,couple three,few four,several five six seven eight nine ten eleven twelve".split(), 1
    )
    for word in words.split(",")
}
VAGUE = frozenset(("few", "several"))
ORDINALS = (
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth "
    "sixteenth seventeenth eighteenth nineteenth twentieth twenty-first twenty-second thirtieth thirty-first"
).split()
ORDINAL_DAYS = dict(zip(ORDINALS, [*range(1, 23), 30, 31], strict=True))
WHICH = {"past": "last", "previous": "last", "coming": "next"}

# Words that are months only in certain contexts: "may", "march" and the short forms are also other words, the rest also
# names.
AMBIGUOUS_MONTHS = frozenset((*MONTHS, "march", "april", "june", "august"))
NAMES = frozenset(("april", "june", "august"))

MONTH_WORDS = (*(name.lower() for name in MONTH_NAMES), "sept", *MONTHS)  # the longer ones first
MONTH = rf"(?P<month>{'|'.join(MONTH_WORDS)})\b\.?"
ANY_MONTH = MONTH.replace("?P<month>", "?:")
YEAR = r"(?P<year>(?:19|20)\d\d)\b"
OF_YEAR = rf",? (?:of )?{YEAR}"
DAY = r"(?P<day>3[01]|[12]\d|0?[1-9])(?P<th>st|nd|rd|th)?"
TO_DAY = r"(?: ?(?:-|–|to|and|or|through|until) ?(?P<to>3[01]|[12]\d|0?[1-9])(?:st|nd|rd|th)?)?"
ORDINAL = rf"(?P<ordinal>{'|'.join(sorted(ORDINALS, key=len, reverse=True))})"
# "Two days ago" is no part of "twenty-two days ago".
_NO_TENS = "".join(f"(?<!{tens}[ -])" for tens in "twenty thirty forty fifty sixty seventy eighty ninety".split())
COUNT = rf"{_NO_TENS}(?:(?:a )?(?P<count>couple|few|half|\d{{1,3}}|{'|'.join(NUMBERS)})(?: of| an?)?)"
# The borders of dates in digits.
WORD_START, WORD_END = r"(?<![a-zA-Z\d/.-])", r"(?![a-zA-Z\d/-])"
NUMERIC_DATE = r"(?P<m>1[0-2]|0?[1-9])(?P=mark)(?P<d>3[01]|[12]\d|0?[1-9])"
TODAY = "today|tonight|yesterday|tomorrow|this (?:morning|afternoon|evening)|last (?:night|evening)"
WHICH_PATTERN = r"(?:\b(?P<which>last|past|previous|this|next|coming) )?"
WEEKDAY = "|".join(periods.WEEKDAYS)

# Words before a word or number that make it a month, a month used as a name ("her April party"), a day, a year, a
# season.
_LEADS_TO_MONTH = re.compile(
    r"(?:\b(?:in|during|since|until|till|by|before|after|around|between|through|throughout|every|early|mid|late) "
    r"|\bmid-|\b(?:month|end|beginning|start|middle|rest|half|weeks?|weekends?|days?|(?:mon|tues|wednes|thurs|fri|satur"
    rf"|sun)days?) (?:of|in) |\b{ANY_MONTH} ?(?:to|-|–|through|until|till) ?"
    rf"|\b(?:in|during|since|between) {ANY_MONTH}(?: (?:and|or) ))$",
    re.IGNORECASE,
)
_LEADS_TO_NAME = re.compile(r"(?:\b(?:the|her|his|their|my|our|your)|'s) $", re.IGNORECASE)
_LEADS_TO_DAY = re.compile(
    r"\b(?:on|since|until|till|by|before|after|around|from|between|to|of|the|last) $", re.IGNORECASE
)
_LEADS_TO_YEAR = re.compile(
    r"(?:\b(?:in|of|since|during|before|after|until|till|by|from|around|through|throughout|between|year|early|mid|late"
    r"|for) (?:the year )?|\bmid-|\b(?:19|20)\d\d ?(?:-|–|and|or|to|through|until|till) ?)$",
    re.IGNORECASE,
)
_LEADS_TO_SEASON = re.compile(
    r"\b(?:in|during|over|since|until|till|by|this|that|early|late|mid|of|throughout|for)(?: the)? $", re.IGNORECASE
)
# Words after a word that make it a month.
_MONTH_CONTINUES = re.compile(
    rf" ?(?:to|-|–|through|until|till) ?{ANY_MONTH}|,? (?:of )?(?:last|this|next) year\b", re.IGNORECASE
)
# Words after a number that is a count ("2000 dollars"), and words that look like these.
_COUNT_FOLLOWS = re.compile(r" ?(?:%|[.,:]\d|°)| (?:people|children|percent|million|thousand|hundred|of|[a-z]{2,}s)\b")
_NO_COUNT_FOLLOWS = re.compile(r" (?:was|is|has|does|as|this|his|its|us|of (?:last|this|next))\b")
_CLAUSE_END = re.compile(r"\s*(?:[?.!,;:)]|$)")

# Characters of a query that are read: a longer text is no question, and its dates are not asked about.
MAX_CHARS = 1_000
PARTS = {"middle": "mid", "beginning": "early", "start": "early", "end": "late"}
NTH = {"first": 1, "1st": 1, "second": 2, "2nd": 2, "third": 3, "3rd": 3, "fourth": 4, "4th": 4, "last": -1}

_PART = re.compile(
    r"\b(?:(?P<part>early|mid|late)(?: in)?(?: the)?[ -]|(?:the )?"
    r"(?P<of>beginning|start|middle|end|first half|second half) of (?:the )?)$",
    re.IGNORECASE,
)
_NTH = re.compile(
    rf"\b(?:the )?(?P<nth>{'|'.join(NTH)}) (?P<unit>weekend|week|{WEEKDAY}) (?:of|in) (?:the )?(?:month of )?$",
    re.IGNORECASE,
)
_WEEK_OF = re.compile(r"\b(?:the )?(?P<unit>weekend|week) of (?:the )?$", re.IGNORECASE)
_DISTANCE = re.compile(
    rf"\b(?:(?:the|last|{COUNT}) )?(?P<unit>day|night|weekend|week|month|year|{WEEKDAY})s? "
    r"(?P<side>before|prior to|after|following) (?:the )?$",
    re.IGNORECASE,
)
_BORDER = re.compile(
    r"\b(?P<side>before|prior to|until|till|up to|by|after|since)(?: about| around| the)? $", re.IGNORECASE
)
_BETWEEN = re.compile(r"\b(?:between|from)(?: the)? $", re.IGNORECASE)
_TO = re.compile(r"\s?(?P<word>and|to|-|–|until|till|through)\s?(?:the )?", re.IGNORECASE)
_LISTED = re.compile(r",? (?:and|or) (?:in |on )?(?:the )?|, ", re.IGNORECASE)
_WORD_OR_DIGIT = re.compile(r"[a-z]{2,}|[0-9]")
_SAME_TIME = re.compile(r"(?:,|'s)?(?: (?:of|in|on|at|during|around|the))*\s?", re.IGNORECASE)


class _PlainSigns(dict[int, str]):
    """Each digit of any script in ASCII, by its code, for `str.translate`; other characters are themselves."""

    def __missing__(self, code: int) -> str:
        sign = chr(code)
        self[code] = sign = str(unicodedata.decimal(sign)) if sign.isdecimal() else sign
        return sign


_PLAIN = _PlainSigns({ord(wide): plain for wide, plain in zip("’／．－", "'/.-", strict=True)})


def plain_text(query: str) -> str:
    """Returns the first `MAX_CHARS` characters of a query with plain apostrophes, digits of ASCII and single spaces."""
    text = query[:MAX_CHARS]
    return " ".join((text if text.isascii() else text.translate(_PLAIN)).split())


def find_expressions(text: str, today: date) -> list[TimeExpression]:
    """Returns the expressions of time in a text as `plain_text` returns it, each with all words that belong to it."""
    if _telling_words().isdisjoint(_WORD_OR_DIGIT.findall(text.lower())):
        return []
    expressions = scan(text, today, rules())
    expressions = join_pairs(text, expressions, _weekday_of_date)
    for pattern, apply in ((_PART, _part), (_NTH, _nth), (_WEEK_OF, _week_of)):
        expressions = with_prefix(text, expressions, pattern, apply)
    expressions = join_pairs(text, expressions, _same_time)
    expressions = with_prefix(text, expressions, _DISTANCE, _distance)
    expressions = join_pairs(text, expressions, lambda left, right, words: _range(text, today, (left, right), words))
    return with_prefix(text, expressions, _BORDER, _border)


@cache
def _telling_words() -> frozenset[str]:
    """Returns the digits and the words in small letters of which every expression that `rules` finds has one."""
    words = [*MONTH_WORDS, *SEASONS, *HOLIDAYS, *periods.WEEKDAYS, TODAY, *WHICH, "next", "ago", "earlier", "back"]
    return frozenset(_WORD_OR_DIGIT.findall(" ".join((*words, "0123456789"))))


@cache
def rules() -> tuple[Rule, ...]:
    """Returns the English date patterns, each with the function that builds its period; earlier ones win."""
    patterns = {
        rf"{WORD_START}(?P<year>(?:19|20)\d\d)(?P<mark>[-/.]){NUMERIC_DATE}{WORD_END}": _numeric_date,
        rf"{WORD_START}(?P<year>(?:19|20)\d\d)[-/](?P<m>1[0-2]|0[1-9]){WORD_END}": _numeric_date,
        rf"{WORD_START}(?P<m>\d\d?)(?P<mark>[/.])(?P<d>\d\d?)(?P=mark)(?P<year>(?:19|20)\d\d){WORD_END}": _numeric_date,
        rf"\b(?:{DAY}{TO_DAY}|{ORDINAL}(?= of )) ?(?P<of>of )?{MONTH}(?:{OF_YEAR})?(?!\w)": _day,
        rf"\b{MONTH} (?:the )?(?:{DAY}{TO_DAY}|{ORDINAL})\b(?:{OF_YEAR})?(?!\w)": _day,
        rf"{WHICH_PATTERN}\b{MONTH}(?:{OF_YEAR}|,? '(?P<short>\d\d)\b)?(?!\w)": _month,
        rf"{WHICH_PATTERN}\b(?P<season>{'|'.join(SEASONS)})\b(?: (?:of )?{YEAR})?": _season,
        rf"{WHICH_PATTERN}\b(?P<holiday>{'|'.join(HOLIDAYS)})(?: (?:of |in )?{YEAR})?(?!\w)": _holiday,
        r"\b(?:the )?day (?P<far>before yesterday|after tomorrow)\b": _near_day,
        rf"\b(?P<near>{TODAY})\b": _near_day,
        rf"\b{COUNT} (?P<unit>day|night|weekend|week|month|year)s? (?:ago|earlier|back)\b": _ago,
        rf"\b(?:last|past) {COUNT} (?P<unit>day|week|month|year)s\b": _past_units,
        r"\b(?:the|this) past (?P<unit>week|month|year)\b": _past_units,
        r"\b(?P<which>last|past|previous|this|next|coming) (?P<unit>weekend|week|month|year)\b": _calendar,
        rf"(?<!every )(?<!black )(?<!good ){WHICH_PATTERN}\b(?P<weekday>{WEEKDAY})\b": _weekday,
        rf"(?<![\w.,]){YEAR}": _year,
        rf"(?<=on the ){DAY}(?=\s*(?:[?.!,;]|$))": _day_alone,
    }  # fmt: skip
    return tuple((re.compile(pattern, re.IGNORECASE), build) for pattern, build in patterns.items())


def which(match: re.Match[str]) -> str | None:
    """Returns "last", "this" or "next" as the match says; None if it says none of them."""
    word = match["which"]
    return WHICH.get(word.casefold(), word.casefold()) if word else None


def number(word: str | None) -> int:
    """Returns the number that a word or digits mean; 1 for None. Raises KeyError for other words."""
    word = (word or "one").casefold()
    return int(word) if word.isdecimal() else NUMBERS[word]


def _text_before(match: re.Match[str]) -> str:
    return match.string[max(0, match.start() - MAX_GAP) : match.start()]


def _text_after(match: re.Match[str]) -> str:
    return match.string[match.end() : match.end() + MAX_GAP]


def _year_named(match: re.Match[str]) -> int | None:
    groups = match.groupdict()
    if groups.get("short"):
        return 2000 + int(groups["short"])
    return int(groups["year"]) if groups.get("year") else None


def _month_number(match: re.Match[str]) -> int:
    return MONTHS.index(match["month"][:3].casefold()) + 1


def _numeric_date(match: re.Match[str], _: date) -> Period:
    year, month, day = int(match["year"]), int(match["m"]), match.groupdict().get("d")
    if day is None:
        return periods.month(year, month)
    if month > len(MONTHS) or (match["mark"] == "." and match.start("year") > match.start("m")):
        month, day = int(day), str(month)
    return periods.days(date(year, month, int(day)), dated=True)


def _day(match: re.Match[str], today: date) -> Period | tuple[Period, Yearly] | None:
    month, year, word = _month_number(match), _year_named(match), match["ordinal"]
    if not (year or match["th"] or match.groupdict().get("of") or _is_day(match)):
        return None
    first = ORDINAL_DAYS[word.casefold()] if word else int(match["day"])
    count = int(match["to"] or first) - first + 1

    def build(number: int) -> Period:
        return periods.days(_existing(number, month, first), max(count, 1), dated=True)

    return named_period(build, today, None, year)


def _existing(year: int, month: int, day: int) -> date:
    # 29 February is 28 February in years without it.
    return date(year, month, 28) if (month, day) == (2, 29) and not isleap(year) else date(year, month, day)


def _is_day(match: re.Match[str]) -> bool:
    """Whether "may 7" or "7 may" with nothing else is a date."""
    if _is_count(match) and match.start("month") < match.start("day"):
        return False
    is_doubtful = match["month"].casefold() in ("may", "march")
    is_capitalised = match["month"][0].isupper() and match.start() > 0
    return (
        not is_doubtful
        or is_capitalised
        or bool(_LEADS_TO_DAY.search(_text_before(match)) or _CLAUSE_END.match(_text_after(match)))
    )


def _is_count(match: re.Match[str]) -> bool:
    """Returns True if the number at the end of the match counts something: "2000 dollars"."""
    following = _text_after(match)
    return bool(_COUNT_FOLLOWS.match(following)) and not _NO_COUNT_FOLLOWS.match(following)


def _month(match: re.Match[str], today: date) -> Period | tuple[Period, Yearly] | None:
    year, selected = _year_named(match), which(match)
    if not year and not _is_month(match, selected):
        return None
    month = _month_number(match)
    return named_period(lambda number: periods.month(number, month), today, selected, year)


def _is_month(match: re.Match[str], selected: str | None) -> bool:
    word, after = match["month"], _text_after(match)
    if selected:
        # "I think this may be it."
        return selected != "this" or word != "may" or bool(_CLAUSE_END.match(after))
    if word.casefold() not in AMBIGUOUS_MONTHS:
        return True
    if after.startswith("'s"):
        return False
    if _LEADS_TO_MONTH.search(_text_before(match)) or _MONTH_CONTINUES.match(after):
        return True
    is_adjective = word.casefold() in NAMES and word[0].isupper() and after[:1] == " " and after[1:2].islower()
    return is_adjective and bool(_LEADS_TO_NAME.search(_text_before(match)))


def _season(match: re.Match[str], today: date) -> Period | tuple[Period, Yearly] | None:
    year, selected, word = _year_named(match), which(match), match["season"].casefold()
    if not (year or selected or _LEADS_TO_SEASON.search(_text_before(match))):
        return None
    return named_period(lambda number: periods.months(number, SEASONS[word], 3), today, selected, year)


def _holiday(match: re.Match[str], today: date) -> Period | tuple[Period, Yearly]:
    words = match["holiday"].casefold()
    build = next(build for pattern, build in HOLIDAYS.items() if re.fullmatch(pattern, words))
    return named_period(build, today, which(match), _year_named(match))


def _near_day(match: re.Match[str], today: date) -> Period:
    words = match[0].casefold()
    days = {"before yesterday": -2, "after tomorrow": 2, "yesterday": -1, "tomorrow": 1, "last": -1}
    return periods.days(today + timedelta(next((shift for word, shift in days.items() if word in words), 0)))


def _ago(match: re.Match[str], today: date) -> Period:
    word, unit = match["count"].casefold(), match["unit"].casefold().replace("night", "day")
    return periods.count_ago(today, None if word == "half" else number(word), unit, vague=word in VAGUE)


def _past_units(match: re.Match[str], today: date) -> Period:
    return periods.past_units(today, number(match.groupdict().get("count")), match["unit"].casefold())


def _calendar(match: re.Match[str], today: date) -> Period:
    shift = {"last": -1, "this": 0, "next": 1}[which(match) or "this"]
    return periods.calendar(match["unit"].casefold(), today, shift)


def _weekday(match: re.Match[str], today: date) -> Period:
    return periods.weekday(today, periods.WEEKDAYS.index(match["weekday"].casefold()), which(match) or "")


def _year(match: re.Match[str], _: date) -> Period | None:
    has_lead = _LEADS_TO_YEAR.search(_text_before(match))
    return periods.year(int(match["year"])) if has_lead and not _is_count(match) else None


def _day_alone(match: re.Match[str], today: date) -> Period:
    day = int(match["day"])
    month = today.replace(day=1) if day <= today.day else periods.plus_months(today.replace(day=1), -1)
    return periods.days(month.replace(day=day), dated=True)


def _nth_weekday(month: int, number: int, weekday: str) -> Yearly:
    return lambda year: periods.days(periods.nth(periods.month(year, month), number, weekday).first)


HOLIDAYS: Mapping[str, Yearly] = {
    "(?:christmas|xmas) eve": periods.on_date(12, 24),
    "christmas(?: day)?|xmas": periods.on_date(12, 24, 3),
    "new year's eve": periods.on_date(12, 31),
    "new year(?:'s(?: day)?)?": periods.on_date(1, 1),
    "halloween": periods.on_date(10, 31),
    "valentine's(?: day)?": periods.on_date(2, 14),
    "easter": lambda year: periods.days(periods.easter(year), 2),
    "thanksgiving": _nth_weekday(11, 4, "thursday"),
    "mother's day": _nth_weekday(5, 2, "sunday"),
    "father's day": _nth_weekday(6, 3, "sunday"),
}


def _weekday_of_date(left: TimeExpression, right: TimeExpression, words: str) -> list[TimeExpression] | None:
    """Joins a weekday and its date: leaves only "7 May" of "Friday, 7 May"."""
    is_weekday = left.period.days == 1 and not left.period.is_exact and left.build is None
    if is_weekday and right.period.days == 1 and right.period.is_exact and _SAME_TIME.fullmatch(words):
        return [right]
    return None


def _part(expression: TimeExpression, match: re.Match[str]) -> TimeExpression:
    word = (match["part"] or match["of"]).casefold()
    return expression.map_period(lambda whole: periods.part(whole, PARTS.get(word, word)))


def _nth(expression: TimeExpression, match: re.Match[str]) -> TimeExpression:
    number_in_period, unit = NTH[match["nth"].casefold()], match["unit"].casefold()
    return expression.map_period(lambda whole: periods.nth(whole, number_in_period, unit))


def _week_of(expression: TimeExpression, match: re.Match[str]) -> TimeExpression | None:
    if expression.period.days > 1:
        return None
    unit = match["unit"].casefold()
    return expression.map_period(lambda whole: periods.calendar(unit, whole.first, 0))


def _same_time(left: TimeExpression, right: TimeExpression, words: str) -> list[TimeExpression] | None:
    if _SAME_TIME.fullmatch(words):
        return combine_with_year(left, right)
    return share_year(left, right) if _LISTED.fullmatch(words) or _TO.fullmatch(words) else None


def _distance(expression: TimeExpression, match: re.Match[str]) -> TimeExpression:
    unit = match["unit"].casefold().replace("night", "day")
    back = match["side"].casefold() in ("before", "prior to")
    if unit in periods.WEEKDAYS:
        return expression.map_period(lambda whole: _nearest(whole, periods.WEEKDAYS.index(unit), back=back))
    count = number(match["count"])
    return expression.map_period(lambda whole: periods.offset(whole, -count if back else count, unit))


def _nearest(whole: Period, weekday: int, *, back: bool) -> Period:
    """Returns the first such weekday (0 is Monday) after a period, as for "the Friday after 10 July".

    With `back`, as for "the Friday before 15 July", returns the days from the last such weekday before the period to
    the last day of the period, because a message that mentions the event may have been written on any of these days.
    """
    if back:
        day = periods.weekday(whole.first, weekday, "last")
        return periods.until(day.first, whole.last + timedelta(1))
    return periods.weekday(whole.last, weekday, "next")


def _range(
    text: str, today: date, ends: tuple[TimeExpression, TimeExpression], words: str
) -> list[TimeExpression] | None:
    match = _TO.fullmatch(words)
    begin = ends[0].begin
    if match is None or (
        match["word"].casefold() == "and" and not _BETWEEN.search(text[max(0, begin - MAX_GAP) : begin])
    ):
        return None
    return [ends[0].range_to(ends[1], today)]


def _border(expression: TimeExpression, match: re.Match[str]) -> TimeExpression:
    side = match["side"].casefold()
    if side in ("after", "since"):
        return TimeExpression(0, expression.end, periods.after(expression.period, since=side == "since"))
    return TimeExpression(
        0, expression.end, periods.before(expression.period, through=side not in ("before", "prior to"))
    )
