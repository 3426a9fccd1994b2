"""Chinese expressions of time, in a text without spaces and, where it matters here, in simplified characters. Pure.

An expression ends where a word ends: 天 is no day in 天气, nor 年 a year in 年轻人 (`_splits_word`). Days of the lunar
calendar (初八) are not read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import date, timedelta
from functools import cache, lru_cache
from itertools import accumulate

from graphmem.folding import fold
from graphmem.retrieval.temporal import periods
from graphmem.retrieval.temporal.expressions import (
    NO_DATE,
    Rule,
    TimeExpression,
    combine_with_year,
    join_pairs,
    named_period,
    scan,
    share_year,
)
from graphmem.retrieval.temporal.periods import Period, Yearly


class _Signs(dict[int, str]):
    """Each Chinese character in simplified form and each digit in ASCII, by its code, for `str.translate`."""

    def __missing__(self, code: int) -> str:
        sign = chr(code)
        is_read = _CHARACTER.match(sign) or sign.isdecimal()
        self[code] = sign = fold(sign) if is_read else sign
        return sign


_SPACE, _CHARACTER = re.compile(r"\s+"), re.compile("[\u4e00-\u9fff]")
SIMPLIFIED = _Signs()
DIGITS = {"零": 0, "〇": 0, "两": 2} | {sign: value for value, sign in enumerate("一二三四五六七八九", 1)}
VAGUE = frozenset("几些")
NUMBER = r"(?:\d{1,3}|[一二三四五六七八九]?十[一二三四五六七八九]?|[一二三四五六七八九两几半])"
MONTH = r"(?P<month>1[0-2]|0?[1-9]|十[一二]?|[一二三四五六七八九])月份?"
DAY_OF_MONTH = r"(?:3[01]|[12]\d|0?[1-9]|三十一?|二?十[一二三四五六七八九]?|二十|[一二三四五六七八九])"
# "5月7" is a date; "五月一起" and "5月7个人" are none.
DAY = (
    rf"(?:的?(?P<day>{DAY_OF_MONTH})(?:[日号]|(?<=\d)(?![\d个天年周月人次点岁块只张条]))"
    rf"(?:[到至~—–-](?P<to>{DAY_OF_MONTH})[日号])?)"
)
# The years before the first one of an era, in Taiwan and in Japan.
ERAS = {"民国": 1911, "令和": 2018, "平成": 1988, "昭和": 1925, "大正": 1911, "明治": 1867}
YEAR_NUMBER = (
    rf"(?:(?:19|20)\d\d|[一二][零〇九][零〇一二三四五六七八九]{{2}}"
    rf"|(?:{'|'.join(ERAS)})(?:元|\d{{1,3}}|[一二三四五六七八九]?十?[一二三四五六七八九十]))"
)
YEAR = f"(?P<year>{YEAR_NUMBER})年"
PART = r"(?P<part>初|底|末|中旬?|[上下]旬|[上下]半[年月])?"
UNITS = {
    "天": "day",
    "日": "day",
    "晚": "day",
    "周": "week",
    "星期": "week",
    "礼拜": "week",
    "月": "month",
    "年": "year",
}
UNIT = r"个?(?P<unit>天|日|晚|周(?!末)|星期|礼拜|(?<=个)月|年)"
YEARS = {"大大前年": -4, "大前年": -3, "前年": -2, "去年": -1, "今年": 0, "明年": 1, "后年": 2}
NEAR = {"大大前": -4, "大前": -3, "前": -2, "昨": -1, "今": 0, "明": 1, "后": 2, "大后": 3, "大大后": 4}
RELATIVE = (
    {"这": 0, "本": 0}
    | {"上" * count: -count for count in range(1, 5)}
    | {"下" * count: count for count in range(1, 5)}
)
RELATIVE_WORD = r"(?<![晚早路马网])(?P<relative>(?<!上)上{1,4}|(?<!下)下{1,4}|(?<=[晚早路马网]上)上|[这本])一?个?"
LUNAR_DAY = "初[一二三四五六七八九十]"
PARTS = {"初": "early", "底": "late", "末": "late", "中": "mid", "上": "early", "下": "late"}
HALVES = {"上": "first half", "下": "second half"}
# After these words "前两天" is before the event, after others it is some days ago.
EVENT = re.compile(
    r"(?:婚礼|结婚|订婚|离婚|分手|生日|出生|考试|高考|面试|答辩|毕业|开学|放假|比赛|马拉松|手术|住院|出院|搬家|出发|出国|回国|旅行|旅游"
    r"|聚会|派对|演出|音乐会|演唱会|典礼|活动|会议|车祸|事故|离职|入职|辞职|退休|开业|开张|展览|展|节|过年|春节)$"
)
_OTHER_IN_JAPANESE = re.compile("[前后後][日晚晩早夜年]")
_BEFORE = re.compile(r"的?(?:之前|以前|前(?![天晚]))(?!几|些|\d|[一二三四五六七八九十两])")
_AFTER = re.compile(r"的?(?:之后|以后|后(?![天晚]))(?!几|些|\d|[一二三四五六七八九十两])")
_SINCE = re.compile(r"的?(?:以来|起(?!来)|开始)")
_TO = re.compile(r"(?P<to>到|至|~|-|–|—)|和|与|跟")
_AND = re.compile(r"(?:、|和|或|还是|与|跟)")


def is_chinese(text: str) -> bool:
    """Whether the text has a Chinese character."""
    return _CHARACTER.search(text) is not None


def simplify(text: str) -> str:
    """Returns a text as the patterns need it: without spaces, the characters in simplified form."""
    return _SPACE.sub("", text).translate(SIMPLIFIED)


def find_expressions(text: str, today: date) -> list[TimeExpression]:
    """Returns the expressions of time in a text as `simplify` returns it, each with all words that belong to it."""
    expressions = join_pairs(text, scan(text, today, rules()), _same_time)
    expressions = join_pairs(text, expressions, lambda left, right, words: _range(text, today, (left, right), words))
    return [_with_border(text, expression) for expression in expressions]


def find_relative(text: str, today: date, *, is_japanese: bool) -> list[TimeExpression]:
    """Returns the expressions that `rules` find in a text with its spaces, in its order."""
    found = scan(text.translate(SIMPLIFIED), today, rules())
    return [one for one in found if not is_japanese or is_time_in_japanese(text, one)]


def is_time_in_japanese(text: str, one: TimeExpression) -> bool:
    """Whether an expression is not of words that count from another day in Japanese: 前日, 結婚式の二日前."""
    counts_from = one.begin > 0 and text[one.begin - 1] == "の" and "前" in text[one.begin : one.end]
    return not counts_from and _OTHER_IN_JAPANESE.match(text, one.begin, one.end) is None


def number(word: str | None) -> int:
    """Returns the number that a word or digits mean; 1 for None, 3 for a vague word."""
    word = word or "一"
    if word.isdecimal():
        return int(word)
    if word in VAGUE:
        return 3
    tens, ten, ones = word.rpartition("十")
    return (DIGITS.get(tens, 1) * 10 if ten else 0) + DIGITS.get(ones, 0)


def year_number(word: str) -> int:
    """Returns the year that digits, Chinese digits (二〇二四) or a year of an era (令和6) mean."""
    if (era := word[:2]) in ERAS:
        return ERAS[era] + (1 if word[2:] == "元" else number(word[2:]))
    return int("".join(str(DIGITS.get(sign, sign)) for sign in word))


@cache
def rules() -> tuple[Rule, ...]:
    """Returns the patterns of Chinese expressions of time, those that decide first in front."""
    patterns = {
        rf"(?<!第)(?P<count>{NUMBER})多?{UNIT}半?[之以]?前(?!天)": _ago,
        r"前(?P<count>[几两些])(?P<unit>天|周|年|个月)": _vaguely_ago,
        rf"(?:最近|过去|近|这)的?(?P<count>{NUMBER}){UNIT}(?!后)": _past_units,
        rf"(?:(?:{YEAR}|(?P<near>{'|'.join(YEARS)}))的?|(?<![\d一二三四五六七八九十第两每]))"
        rf"{MONTH}(?![天饼亮台]|一次|{LUNAR_DAY})(?:{DAY}|{PART}(?!午))": _month,
        rf"{RELATIVE_WORD}月(?![亮饼台]|{LUNAR_DAY})(?:{DAY}|份?{PART}(?!午))": _relative_month,
        rf"{RELATIVE_WORD}(?:周|星期|礼拜)(?P<day>[一二三四五六日天末]|[1-6](?![\d点时:：个次]))": _day_of_week,
        # Where the day is none: "下星期天气不好" is about next week's weather.
        rf"{RELATIVE_WORD}(?:周|星期|礼拜)": _relative_week,
        r"(?<![一二三四五六七八九十两几每\d个第])(?:周|星期|礼拜)(?P<day>[一二三四五六日天])": _weekday,
        rf"(?:{YEAR}|(?P<near>{'|'.join(YEARS)}))(?:年(?=[初底末中]))?{PART}": _year,
        # 一昨日 is the Japanese day before.
        rf"(?<!一(?=昨日))(?P<near>{'|'.join(sorted(NEAR, key=len, reverse=True))})[天日晚早夜](?!性|生)": _near_day,
        rf"(?:(?P<relative>这|上|下)个?)?(?P<holiday>{'|'.join(HOLIDAYS)})": _holiday,
    }
    return tuple((re.compile(pattern), build) for pattern, build in patterns.items())


def _ago(match: re.Match[str], today: date) -> Period:
    unit, word = UNITS[match["unit"]], match["count"]
    return periods.count_ago(today, None if word == "半" else number(word), unit, vague=word in VAGUE)


def _vaguely_ago(match: re.Match[str], today: date) -> Period | None:
    if EVENT.search(match.string[: match.start()]):
        return None
    unit = UNITS[match["unit"].removeprefix("个")]
    return periods.until(periods.ago(today, 5, unit).first, today)


def _past_units(match: re.Match[str], today: date) -> Period:
    unit = UNITS[match["unit"]]
    if match["count"] == "半":
        return periods.past_units(today, periods.LENGTH[unit] // 2, "day")
    return periods.past_units(today, number(match["count"]), unit)


def _year_named(match: re.Match[str], today: date) -> int | None:
    if match["near"]:
        return today.year + YEARS[match["near"]]
    return year_number(match["year"]) if match["year"] else None


def _month(match: re.Match[str], today: date) -> Period | tuple[Period, Yearly]:
    month = number(match["month"])

    def build(year: int) -> Period:
        return _days_or_part(periods.month(year, month), match)

    return named_period(build, today, None, _year_named(match, today))


def _days_or_part(whole: Period, match: re.Match[str]) -> Period:
    if match["day"]:
        first = number(match["day"])
        count = number(match["to"]) - first + 1 if match["to"] else 1
        return periods.days(whole.first.replace(day=first), max(count, 1), dated=True)
    return _part(whole, match)


def _part(whole: Period, match: re.Match[str]) -> Period:
    word = match["part"]
    if not word:
        return whole
    return periods.part(whole, HALVES[word[0]] if "半" in word else PARTS[word[0]])


def _relative_month(match: re.Match[str], today: date) -> Period:
    return _days_or_part(periods.calendar("month", today, RELATIVE[match["relative"]]), match)


def _day_of_week(match: re.Match[str], today: date) -> Period | None:
    if _splits_word(match.string, match.end()):
        return None
    if match["day"] == "末":
        return periods.calendar("weekend", today, RELATIVE[match["relative"]])
    return periods.days(_relative_week(match, today).first + timedelta(_weekday_number(match["day"])))


def _relative_week(match: re.Match[str], today: date) -> Period:
    return periods.calendar("week", today, RELATIVE[match["relative"]])


def _weekday(match: re.Match[str], today: date) -> Period | None:
    if _splits_word(match.string, match.end()):
        return None
    return periods.weekday(today, _weekday_number(match["day"]), "")


def _weekday_number(character: str) -> int:
    return int(character) - 1 if character.isdecimal() else "一二三四五六日".index(character.replace("天", "日"))


def _year(match: re.Match[str], today: date) -> Period | None:
    if _splits_word(match.string, match.end()):
        return None
    return _part(periods.year(_year_named(match, today) or today.year), match)


def _near_day(match: re.Match[str], today: date) -> Period | None:
    if _splits_word(match.string, match.end()):
        return None
    return periods.days(today + timedelta(NEAR[match["near"]]))


def _holiday(match: re.Match[str], today: date) -> Period | tuple[Period, Yearly]:
    build = next(build for pattern, build in HOLIDAYS.items() if re.fullmatch(pattern, match["holiday"]))
    relative = match["relative"]
    return named_period(build, today, {"上": "last", "这": "this", "下": "next"}[relative] if relative else None, None)


def _splits_word(text: str, place: int) -> bool:
    """Whether a word of the text has characters both before and behind a place, as rjieba divides it.

    But it divides "上周一到" behind the week.
    """
    if place >= len(text) or text[place] in "到至" or not _CHARACTER.match(text, place):
        return False
    return place not in _word_ends(text)


@lru_cache(maxsize=64)
def _word_ends(text: str) -> frozenset[int]:
    import rjieba  # noqa: PLC0415  (its dictionary takes a moment to load, and most texts are not Chinese)

    return frozenset(accumulate(map(len, rjieba.cut(text))))


def _same_time(left: TimeExpression, right: TimeExpression, words: str) -> list[TimeExpression] | None:
    if words in ("", "的", "在", "，", ","):
        return combine_with_year(left, right)
    if not _TO.fullmatch(words) and not _AND.fullmatch(words):
        return None
    if left.build is None and left.period.is_exact and right.build is not None:
        # "2023年6月到8月": the year stands before the first month.
        year = left.period.first.year
        period = right.build(year)
        return [
            left,
            replace(right, period=period if period.end > left.period.start else right.build(year + 1), build=None),
        ]
    return share_year(left, right)


def _range(
    text: str, today: date, ends: tuple[TimeExpression, TimeExpression], words: str
) -> list[TimeExpression] | None:
    match = _TO.fullmatch(words)
    if match is None or not (match["to"] or text.startswith(("之间", "间"), ends[1].end)):
        return None
    return [ends[0].range_to(ends[1], today)]


def _with_border(text: str, expression: TimeExpression) -> TimeExpression:
    try:
        return _border(text, expression)
    except NO_DATE:
        return expression


def _border(text: str, expression: TimeExpression) -> TimeExpression:
    if _BEFORE.match(text, expression.end):
        return replace(expression, period=periods.before(expression.period))
    if _AFTER.match(text, expression.end):
        return replace(expression, period=periods.after(expression.period))
    if _SINCE.match(text, expression.end):
        return replace(expression, period=periods.after(expression.period, since=True))
    return expression


def _season(month: int, count: int = 3) -> Yearly:
    return lambda year: periods.months(year, month, count)


# Holidays of the lunar calendar have all days on which they may fall.
HOLIDAYS: Mapping[str, Yearly] = {
    "春[天季]": _season(3),
    "夏[天季]": _season(6),
    "秋[天季]": _season(9),
    "冬[天季]": _season(12),
    "暑假": _season(7, 2),
    "寒假": periods.on_date(1, 15, 40),
    "春节|过年|除夕|元宵节?": periods.on_date(1, 21, 36),
    "清明节?": periods.on_date(4, 4, 3),
    "五一": periods.on_date(5, 1, 5),
    "端午节?": periods.on_date(5, 28, 29),
    "七夕": periods.on_date(8, 2, 30),
    "中秋节?": periods.on_date(9, 8, 30),
    "国庆节?": periods.on_date(10, 1, 7),
    "万圣节": periods.on_date(10, 31, 1),
    "双十一": periods.on_date(11, 11, 1),
    "平安夜": periods.on_date(12, 24, 1),
    "圣诞节?": periods.on_date(12, 24, 3),
    "元旦|跨年": periods.on_date(12, 31, 2),
    "情人节": periods.on_date(2, 14, 1),
    "年初": _season(1, 2),
    "年[底末]": _season(12, 1),
}
