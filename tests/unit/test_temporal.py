"""Periods and offsets in questions asked on Wednesday, 16 August 2023."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import exp

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from graphmem.retrieval.temporal import EventOffset, Period, find_offset, periods_in, proximity

NOW = datetime(2023, 8, 16, 12, tzinfo=UTC)


def format_period(period: Period) -> str:
    """First and last day, ".." for an open end; "yearly" if in any year."""
    first = ".." if period.start.year == 1 else str(period.first)
    last = ".." if period.end.year == 9999 else str(period.last)
    return f"{first} {last}" + (" yearly" if period.is_yearly else "")


def day(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


ABSOLUTE = [
    ("What did Melanie paint in May 2023?", "2023-05-01 2023-05-31"),
    ("What did Jon find on 1 February, 2023?", "2023-02-01 2023-02-01"),
    ("What happened on May 7th, 2023?", "2023-05-07 2023-05-07"),
    ("the 7th of May 2023", "2023-05-07 2023-05-07"),
    ("the first of May 2023", "2023-05-01 2023-05-01"),
    ("Who called on 2023-05-07?", "2023-05-07 2023-05-07"),
    ("Who called in 2023-05?", "2023-05-01 2023-05-31"),
    ("12/25/2022", "2022-12-25 2022-12-25"),
    ("25/12/2022", "2022-12-25 2022-12-25"),
    ("7.5.2023", "2023-05-07 2023-05-07"),
    ("Friday, May 5, 2023", "2023-05-05 2023-05-05"),
    ("What did Joanna finish last Friday on 23January, 2022?", "2022-01-23 2022-01-23"),
    ("May 3-7, 2023", "2023-05-03 2023-05-07"),
    ("from 3 to 7 May 2023", "2023-05-03 2023-05-07"),
    ("Where did they live in 2022?", "2022-01-01 2022-12-31"),
    ("summer 2021", "2021-06-01 2021-08-31"),
    ("the winter of 2021", "2021-12-01 2022-02-28"),
    ("Thanksgiving 2022", "2022-11-24 2022-11-24"),
    ("Easter 2023", "2023-04-09 2023-04-10"),
    ("the first weekend of August 2023", "2023-08-05 2023-08-06"),
    ("the last Friday in June 2023", "2023-06-30 2023-06-30"),
    ("early June 2022", "2022-06-01 2022-06-10"),
    ("at the end of August 2022", "2022-08-22 2022-08-31"),
    ("the first half of September 2022", "2022-09-01 2022-09-15"),
    ("between June and August 2022", "2022-06-01 2022-08-31"),
    ("between November and February 2023", "2022-11-01 2023-02-28"),
    ("between November 2022 and February 2023", "2022-11-01 2023-02-28"),
    ("between 2020 and 2022", "2020-01-01 2022-12-31"),
    ("before July 2023", ".. 2023-06-30"),
    ("How many tournaments has Nate won by July 10, 2022?", ".. 2022-07-10"),
    ("since March 2022", "2022-03-01 .."),
    ("the Sunday before October 25, 2022", "2022-10-23 2022-10-25"),
    ("the week before August 3, 2023", "2023-07-24 2023-08-03"),
    ("two weeks after 1 May 2023", "2023-05-12 2023-05-18"),
    ("the week of May 10, 2023", "2023-05-08 2023-05-14"),
]
YEARLY = [
    ("What did she do on 7 May?", "2023-05-07 2023-05-07 yearly"),
    ("on the twenty-first of december", "2022-12-21 2022-12-21 yearly"),
    ("Where did they go in October?", "2022-10-01 2022-10-31 yearly"),
    ("in the spring", "2023-03-01 2023-05-31 yearly"),
    ("around Christmas", "2022-12-24 2022-12-26 yearly"),
    ("between June and August", "2023-06-01 2023-08-31 yearly"),
    ("from November to January", "2022-11-01 2023-01-31 yearly"),
    ("in early june", "2023-06-01 2023-06-10 yearly"),
    ("the second Monday of July", "2023-07-10 2023-07-10 yearly"),
    ("Who came on Melanie's June trip?", "2023-06-01 2023-06-30 yearly"),
    ("on 29 February", "2023-02-28 2023-02-28 yearly"),
]
FROM_NOW = [
    ("last May", "2023-05-01 2023-05-31"),
    ("from Tuesday to Thursday", "2023-08-15 2023-08-17"),
    ("between next Monday and Wednesday", "2023-08-21 2023-08-23"),
    ("last October", "2022-10-01 2022-10-31"),
    ("this May", "2023-05-01 2023-05-31"),
    ("next May", "2024-05-01 2024-05-31"),
    ("May last year", "2022-05-01 2022-05-31"),
    ("last year in early May", "2022-05-01 2022-05-10"),
    ("Christmas last year", "2022-12-24 2022-12-26"),
    ("What did I do last week?", "2023-08-07 2023-08-13"),
    ("last weekend", "2023-08-12 2023-08-13"),
    ("this weekend", "2023-08-19 2023-08-20"),
    ("last month", "2023-07-01 2023-07-31"),
    ("at the end of last month", "2023-07-22 2023-07-31"),
    ("last year", "2022-01-01 2022-12-31"),
    ("today", "2023-08-16 2023-08-16"),
    ("yesterday", "2023-08-15 2023-08-15"),
    ("last night", "2023-08-15 2023-08-15"),
    ("the day before yesterday", "2023-08-14 2023-08-14"),
    ("tomorrow", "2023-08-17 2023-08-17"),
    ("Who came three days ago?", "2023-08-13 2023-08-13"),
    ("two weeks ago", "2023-07-30 2023-08-05"),
    ("a couple of months ago", "2023-06-01 2023-07-01"),
    ("half a year ago", "2023-02-15 2023-02-15"),
    ("a few days ago", "2023-08-11 2023-08-14"),
    ("in the last two weeks", "2023-08-02 2023-08-16"),
    ("over the past month", "2023-07-17 2023-08-16"),
    ("this summer", "2023-06-01 2023-08-31"),
    ("last summer", "2022-06-01 2022-08-31"),
    ("last winter", "2022-12-01 2023-02-28"),
    ("last Friday", "2023-08-11 2023-08-11"),
    ("last Wednesday", "2023-08-09 2023-08-09"),
    ("on Wednesday", "2023-08-16 2023-08-16"),
    ("on Friday", "2023-08-11 2023-08-11"),
    ("this Friday", "2023-08-18 2023-08-18"),
    ("next Friday", "2023-08-18 2023-08-18"),
    ("on the 3rd", "2023-08-03 2023-08-03"),
    ("on the 20th?", "2023-07-20 2023-07-20"),
    ("after the 3rd of May", "2023-05-04 .."),
    ("until Christmas", ".. 2022-12-26"),
]
CHINESE = [
    ("昨天我们吃了什么?", "2023-08-15 2023-08-15"),
    ("前天晚上", "2023-08-14 2023-08-14"),
    ("三天前", "2023-08-13 2023-08-13"),
    ("几天前", "2023-08-11 2023-08-14"),
    ("小红前两天说了什么", "2023-08-11 2023-08-15"),
    ("两个星期前", "2023-07-30 2023-08-05"),
    ("半年前", "2023-02-15 2023-02-15"),
    ("最近两周", "2023-08-02 2023-08-16"),
    ("上周小明去了哪里", "2023-08-07 2023-08-13"),
    ("上週五", "2023-08-11 2023-08-11"),
    ("周二到周四", "2023-08-15 2023-08-17"),
    ("上周一至上周三", "2023-08-07 2023-08-09"),
    ("上周末", "2023-08-12 2023-08-13"),
    ("晚上周三", "2023-08-16 2023-08-16"),
    ("上个月", "2023-07-01 2023-07-31"),
    ("上个月5号", "2023-07-05 2023-07-05"),
    ("上个月底", "2023-07-22 2023-07-31"),
    ("去年", "2022-01-01 2022-12-31"),
    ("去年五月", "2022-05-01 2022-05-31"),
    ("前年夏天", "2021-06-01 2021-08-31"),
    ("去年圣诞节", "2022-12-24 2022-12-26"),
    ("2022年下半年", "2022-07-02 2022-12-31"),
    ("2023年5月7日我们吃了什么", "2023-05-07 2023-05-07"),
    ("2023 年 5 月", "2023-05-01 2023-05-31"),
    ("二零二三年五月七号", "2023-05-07 2023-05-07"),
    ("五月", "2023-05-01 2023-05-31 yearly"),
    ("12月底", "2022-12-22 2022-12-31 yearly"),
    ("十月一号到七号", "2022-10-01 2022-10-07 yearly"),
    ("聖誕節", "2022-12-24 2022-12-26 yearly"),
    ("国庆", "2022-10-01 2022-10-07 yearly"),
    ("2022年6月到8月", "2022-06-01 2022-08-31"),
    ("六月和八月之间", "2023-06-01 2023-08-31 yearly"),
    ("2023年7月之前", ".. 2023-06-30"),
    ("去年以来", "2022-01-01 .."),
]
SEVERAL = [
    ("in May and June 2022", ["2022-05-01 2022-05-31", "2022-06-01 2022-06-30"]),
    ("in March or in June?", ["2023-03-01 2023-03-31 yearly", "2023-06-01 2023-06-30 yearly"]),
    ("五月和六月", ["2023-05-01 2023-05-31 yearly", "2023-06-01 2023-06-30 yearly"]),
]
NOTHING = [
    "",
    "May I ask who she may meet?",
    "She may 5 times a day",
    "I think this may be it",
    "Did he march 5 miles to the march on the second floor?",
    "wait a second",
    "Who sat in the sun?",
    "What does April like?",
    "Who lives in June's house?",
    "Where did Summer go?",
    "Did he fall off the bike?",
    "Who paid 2000 dollars?",
    "Who wrote it in 2000 words?",
    "Who plays Cyberpunk 2077?",
    "on the 3rd floor",
    "Who swims every Friday?",
    "Does she like Fridays?",
    "What did Jan say?",
    "version 2023.5.1234",
    "每周三",
    "一周三次",
    "一月一次",
    "五月天的演唱会",
    "月饼",
    "三个月",
    "第三周",
    "二十三号线",
    "晚上月亮",
]


@pytest.mark.parametrize(("question", "expected"), ABSOLUTE + YEARLY + FROM_NOW + CHINESE)
def test_a_period(question: str, expected: str) -> None:
    assert [format_period(period) for period in periods_in(question, NOW)] == [expected]


@pytest.mark.parametrize(("question", "expected"), SEVERAL)
def test_several_periods(question: str, expected: list[str]) -> None:
    assert [format_period(period) for period in periods_in(question, NOW)] == expected


@pytest.mark.parametrize("question", NOTHING)
def test_questions_without_a_period(question: str) -> None:
    assert periods_in(question, NOW) == ()


def test_a_winter_is_last_years_until_spring() -> None:
    january = day("2023-01-20")
    assert [format_period(period) for period in periods_in("this winter", january)] == ["2022-12-01 2023-02-28"]
    assert [format_period(period) for period in periods_in("last winter", january)] == ["2021-12-01 2022-02-28"]


def test_the_day_is_that_of_utc() -> None:
    late = datetime.fromisoformat("2023-08-16T23:30:00-02:00")
    assert [format_period(period) for period in periods_in("today", late)] == ["2023-08-17 2023-08-17"]


def test_dates_late_in_a_long_text_are_ignored() -> None:
    assert periods_in("x" * 1_000 + " in May 2023", NOW) == ()


OFFSETS = [
    ("Who came two weeks before the wedding?", ("the wedding", -14, 3.5)),
    ("What did Anna do the week after Caroline's birthday?", ("Caroline's birthday", 3.5, 3.5)),
    ("the day after the race what did she eat", ("the race", 1, 1)),
    ("The night before the exam, who called?", ("the exam", -1, 1)),
    ("a month after moving to Oslo", ("moving to Oslo", 30, 15)),
    ("a few days prior to her surgery", ("her surgery", -3, 3)),
    ("婚礼前两周谁来过?", ("婚礼", -14, 3.5)),
    ("小明生日后一周", ("小明生日", 7, 3.5)),
    ("她在婚礼的前一天买了什么", ("婚礼", -1, 1)),
    ("搬家之前三天", ("搬家", -3, 1)),
]


@pytest.mark.parametrize(("question", "expected"), OFFSETS)
def test_an_offset_from_an_event(question: str, expected: tuple[str, float, float]) -> None:
    anchor, delta, tolerance = expected
    assert find_offset(question) == EventOffset(anchor, timedelta(days=delta), timedelta(days=tolerance))
    assert periods_in(question, NOW) == ()


def test_an_offset_is_counted_from_the_time_of_the_event() -> None:
    offset = find_offset("Who came two weeks before the wedding?")
    assert offset is not None
    period = offset.period_from(day("2023-06-20"))
    assert (period.start, period.end) == (day("2023-06-02T12:00"), day("2023-06-09T12:00"))
    assert proximity([period], day("2023-06-05")) == 1.0 > proximity([period], day("2023-06-20")) > 0.0


@pytest.mark.parametrize(
    "question",
    [
        "two weeks before 11 August 2023",
        "the day after",
        "two weeks after that",
        "What did she do after the race?",
        "the week before last week",
        "小红前两天说了什么",
        "三天前",
        "五月前三天",
        "",
    ],
)
def test_questions_without_an_offset(question: str) -> None:
    assert find_offset(question) is None


def measure_proximity(question: str, at: str) -> float:
    return proximity(periods_in(question, NOW), day(at))


@pytest.mark.parametrize(
    ("question", "at", "expected"),
    [
        ("in May 2023", "2023-05-31T23:59", 1.0),
        ("in May 2023", "2023-06-01", 0.0),
        ("in May 2023", "2022-05-10", 0.0),
        ("in May", "2020-05-10", 1.0),
        ("on 7 May 2023", "2023-05-07T18:00", 1.0),
        ("on 7 May 2023", "2023-05-08", 0.6 + 0.4 * exp(-1 / 5)),
        ("on 7 May 2023", "2023-05-02", 0.6 + 0.4 * exp(-1)),
        ("on 31 May 2023", "2023-06-01", 0.0),
        ("on 7 May", "2019-05-09", 0.6 + 0.4 * exp(-2 / 5)),
        ("in early June 2022", "2022-06-15", 0.6 + 0.4 * exp(-1)),
        ("yesterday", "2023-08-15", 1.0),
        ("yesterday", "2023-08-10", exp(-1)),
        ("last week", "2023-08-14", exp(-1 / 5)),
        ("before July 2023", "1999-01-01", 1.0),
        ("before July 2023", "2023-07-05", exp(-1)),
        ("around Christmas", "2019-12-25", 1.0),
        ("around Christmas", "2019-12-31", exp(-1)),
        ("from November to January", "2019-01-15", 1.0),
        ("in May or on 3 July 2023", "2023-07-03", 1.0),
        ("no time at all", "2023-07-03", 0.0),
    ],
)
def test_proximity(question: str, at: str, expected: float) -> None:
    assert measure_proximity(question, at) == pytest.approx(expected)


def test_a_leap_day_is_the_last_of_any_february() -> None:
    leap_day = Period(day("2024-02-29"), day("2024-03-01"), is_yearly=True, is_exact=True)
    assert [proximity([leap_day], day(f"{year}-02-28")) for year in (1900, 2023, 2100)] == [1.0, 1.0, 1.0]
    assert proximity([leap_day], day("2020-02-29")) == 1.0


def test_a_longer_period_has_softer_borders() -> None:
    assert (
        measure_proximity("last year", "2023-01-10")
        > measure_proximity("last month", "2023-08-10")
        > measure_proximity("yesterday", "2023-08-05")
    )


WORDS = (
    "may march in on the last next first second week weekend day friday before after between and to of 2000 2023 31 7 "
    "- , 's ago two a few early christmas summer year 29 february 上 周 月 三 天 前 年 的 去年 五月 到 之间 婚礼 后 一 "
    "\u0130 s\u0130x"
).split()


@settings(deadline=None, max_examples=300)
@given(
    st.text() | st.lists(st.sampled_from(WORDS)).map(" ".join) | st.lists(st.sampled_from(WORDS)).map("".join),
    st.datetimes(timezones=st.just(UTC)),
)
@example("two years ago, last week, 900 years ago", datetime.min.replace(tzinfo=UTC))
@example("next year, in 20 years, tomorrow, next May", datetime.max.replace(tzinfo=UTC))
@example("before monday, 周一之前", datetime.min.replace(tzinfo=UTC))
def test_any_text_at_any_time(text: str, now: datetime) -> None:
    periods = periods_in(text, now)
    assert all(period.start < period.end for period in periods)
    assert 0.0 <= proximity(periods, now) <= 1.0
    find_offset(text)


@pytest.mark.parametrize(
    "part",
    [*WORDS, "in may ", "may 1-2 ", "early ", "the last ", "上周", "三天前", "5月", "2023-", "5.5.2023 ", "婚礼前一"],
)
def test_hostile_texts_are_read_up_to_a_limit(part: str) -> None:
    """Without the limit, each of these texts would take hours."""
    periods_in(part * 1_000_000, NOW)
    find_offset(part * 1_000_000)
