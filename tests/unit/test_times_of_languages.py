"""Times in the languages of `retrieval.temporal.languages`: what each expression means, and what is none."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from graphmem.retrieval.context.relative_dates import with_dates
from graphmem.retrieval.dependence import depends_on_conversation
from graphmem.retrieval.query_analysis import analyze_query
from graphmem.retrieval.temporal import languages, periods_in, strip_times

NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)  # a Thursday
YESTERDAY, LAST_WEEK = ("2026-11-25", "2026-11-25"), ("2026-11-16", "2026-11-22")
THREE_DAYS_AGO, MAY = ("2026-11-23", "2026-11-23"), ("2026-05-01", "2026-05-31")
MAY_2023, SEVENTH = ("2023-05-01", "2023-05-31"), ("2026-05-07", "2026-05-07")
NEXT_WEEK, LAST_YEAR = ("2026-11-30", "2026-12-06"), ("2025-01-01", "2025-12-31")


@pytest.mark.parametrize(
    ("query", "meant"),
    [
        ("Was habe ich gestern gegessen?", YESTERDAY),
        ("Wo war ich letzte Woche?", LAST_WEEK),
        ("Seit letzter Woche regnet es, oder?", LAST_WEEK),
        ("Was machst du naechste Woche?", NEXT_WEEK),
        ("Was war vor drei Tagen?", THREE_DAYS_AGO),
        ("Was geschah im Mai?", MAY),
        ("Was geschah im Mai 2023?", MAY_2023),
        ("Was war am 7. Mai?", SEVENTH),
        ("Was habe ich seit Mai gemacht?", ("2026-05-01", "9999-12-31")),
        ("Wo war ich im Jahr 2025?", LAST_YEAR),
        ("Was war in den letzten zwei Wochen?", ("2026-11-12", "2026-11-26")),
        ("Was habe ich heute Morgen gegessen?", ("2026-11-26", "2026-11-26")),
        ("¿Qué comí ayer?", YESTERDAY),
        ("¿Dónde estuve la semana pasada?", LAST_WEEK),
        ("¿Qué hice hace tres días?", THREE_DAYS_AGO),
        ("¿Qué pasó en mayo de 2023?", MAY_2023),
        ("¿Qué pasó el 7 de mayo?", SEVENTH),
        ("Qu'ai-je mangé hier ?", YESTERDAY),
        ("Où étais-je la semaine dernière ?", LAST_WEEK),
        ("Il y a 3 jours, qui est venu ?", THREE_DAYS_AGO),
        ("Que s'est-il passé l’an dernier ?", LAST_YEAR),
        ("Que s'est-il passé en mai 2023 ?", MAY_2023),
        ("Cosa ho mangiato ieri?", YESTERDAY),
        ("Cosa è successo a maggio?", MAY),
        ("Chi è venuto tre giorni fa?", THREE_DAYS_AGO),
        ("Wat deed ik vorige week?", LAST_WEEK),
        ("Wat gebeurde er in mei 2023?", MAY_2023),
        ("Co robiłem w zeszłym tygodniu?", LAST_WEEK),
        ("Co było w maju?", MAY),
        ("O que fiz ontem?", YESTERDAY),
        ("Onde estive na semana passada?", LAST_WEEK),
        ("Что я делал вчера?", YESTERDAY),
        ("Где я был на прошлой неделе?", LAST_WEEK),
        ("Что было 3 дня назад?", THREE_DAYS_AGO),
        ("Что было в мае 2023 года?", MAY_2023),
        ("Dün ne yedim?", YESTERDAY),
        ("Geçen hafta neredeydim?", LAST_WEEK),
        ("Mayısta ne oldu?", MAY),
        ("ماذا أكلت أمس؟", YESTERDAY),
        ("أين كنت الأسبوع الماضي؟", LAST_WEEK),
        ("ماذا حدث في مايو؟", MAY),
        ("昨日は何を食べましたか", YESTERDAY),
        ("先週どこにいましたか", LAST_WEEK),
        ("先週の月曜日に何をした?", ("2026-11-16", "2026-11-16")),
        ("5月7日に何があった?", SEVENTH),
        ("어제 뭐 먹었어?", YESTERDAY),
        ("지난주에 어디 있었지?", LAST_WEEK),
        ("지난 주 월요일에 뭐 했어?", ("2026-11-16", "2026-11-16")),
        ("3일 전에 누가 왔어?", THREE_DAYS_AGO),
        ("เมื่อวานกินอะไร", YESTERDAY),
    ],
)
def test_a_query_names_a_time(query: str, meant: tuple[str, str]) -> None:
    assert [(str(period.first), str(period.last)) for period in periods_in(query, NOW)] == [meant]


@pytest.mark.parametrize(
    "query",
    [
        "Jeden Montag gehe ich schwimmen",
        "Am Morgen trinke ich Tee",
        "Guten Morgen!",
        "¿Qué hago por la mañana?",
        "Ha costado en 2023 euros",
        "Did Mei go to Mars with Juli?",
        "Who lives in Rio de Janeiro once a week?",
    ],
)
def test_what_is_no_time(query: str) -> None:
    found = [query[one.begin : one.end] for one in languages.find_expressions(query, NOW.date())]
    assert found in ([], ["de Janeiro"])  # the Portuguese January: a name of a city, too


def test_words_keep_their_places_where_folding_drops_characters() -> None:
    # A combining accent, and the Arabic marks of vowels.
    assert strip_times("¿Que\u0301 comi\u0301 ayer?", NOW) == "¿Que\u0301 comi\u0301  ?"
    assert strip_times("مَاذَا أكلتُ أمس؟", NOW) == "مَاذَا أكلتُ  ؟"


@pytest.mark.parametrize(
    "query",
    [
        "Was habe ich gestern gemacht?",
        "Was war letzte Woche los?",
        "¿Qué hice ayer?",
        "Qu'est-ce que j'ai fait hier ?",
        "Cosa ho fatto ieri?",
        "Wat heb ik gisteren gedaan?",
        "Co robiłem wczoraj?",
        "O que eu fiz ontem?",
        "Что я делал вчера?",
        "Dün ne yaptım?",
        "ماذا فعلت أمس؟",
        "昨日は何をしましたか?",
        "어제 뭐 했어?",
        "เมื่อวานฉันทำอะไร",
    ],
)
def test_a_query_that_names_nothing_but_a_time_asks_for_all_of_it(query: str) -> None:
    assert analyze_query(query, NOW).is_only_temporal
    assert not depends_on_conversation(query)


def test_a_query_that_names_something_else_asks_for_that() -> None:
    for query in ("Wann war ich gestern im Kino?", "Qui est venu hier ?", "昨日ケンは何をしましたか?"):
        assert not analyze_query(query, NOW).is_only_temporal


@pytest.mark.parametrize(
    ("query", "is_past"), [("What did we do last weekend?", True), ("What do we do next weekend?", False)]
)
def test_a_time_to_come_does_not_ask_for_all_that_was_said_then(query: str, is_past: bool) -> None:
    asked = analyze_query(query, NOW)
    assert asked.periods
    assert asked.is_only_temporal == is_past
    assert depends_on_conversation("Und was hat sie gestern gemacht?")


@pytest.mark.parametrize(
    ("text", "dated"),
    [
        ("Ich war gestern im Kino.", "Ich war gestern [6 May] im Kino."),
        ("Vor drei Tagen kam Anna.", "Vor drei Tagen [4 May] kam Anna."),
        ("La semaine dernière, on a ri.", "La semaine dernière [27 April–3 May], on a ri."),
        ("Вчера я видел Ивана.", "Вчера [6 May] я видел Ивана."),
        ("어제 영화를 봤어.", "어제 [6 May] 영화를 봤어."),
        ("Heute ist es kalt, dieses Jahr auch.", "Heute ist es kalt, dieses Jahr auch."),
        ("Am Montag schwimme ich.", "Am Montag schwimme ich."),
    ],
)
def test_relative_words_of_a_line_get_their_dates(text: str, dated: str) -> None:
    assert with_dates(text, date(2026, 5, 7), 2026) == dated
