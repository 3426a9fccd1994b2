"""Whose day it is: times without a UTC offset, times that keep theirs, and the days that are shown."""

from __future__ import annotations

import io
import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from support.contract import added, ids
from support.fakes import fake_models

from graphmem import ChatLink, Memory, Settings, times
from graphmem.errors import ConfigError
from graphmem.testing import ModelEndpoint

SHANGHAI = "Asia/Shanghai"  # 8 hours ahead of UTC
SUNDAY_MORNING = "2025-05-11T07:00:00+08:00"  # in UTC it is Saturday

Open = Callable[..., Memory]


@pytest.fixture
def open_memory() -> Iterator[Open]:
    with ExitStack() as stack:

        def open_one(**config: Any) -> Memory:
            settings = Settings.from_dict(fake_models(**config))
            return stack.enter_context(Memory(":memory:", settings=settings))

        yield open_one


@pytest.fixture
def in_shanghai(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The machine's zone is Shanghai's."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", SHANGHAI)
        time.tzset()
        yield
    time.tzset()


def days(block: str) -> list[str]:
    return [line[3:13] for line in block.splitlines() if line.startswith("- [")]


# --- times without an offset ------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("in_shanghai")
def test_a_time_without_an_offset_is_local_to_the_machine(open_memory: Open) -> None:
    memory = open_memory()
    uid = added(memory, "I moved.", timestamp=datetime.now())  # noqa: DTZ005
    assert memory.get_all(user_id="u1", as_of=datetime.now(UTC))["total"] == 1
    assert datetime.now(UTC) - datetime.fromisoformat(memory.get(uid)["at"]) < timedelta(hours=1)


def test_a_time_without_an_offset_is_local_to_the_setting(open_memory: Open) -> None:
    memory = open_memory(timezone=SHANGHAI)
    uid = added(
        memory,
        "tea",
        timestamp="2025-05-11T07:00:00",
        metadata={"due": datetime(2025, 5, 12, 8)},  # noqa: DTZ001
        expiration_date="2099-12-31",
    )
    stored = memory.get(uid)
    assert stored["at"].startswith("2025-05-10T23:00:00")
    assert stored["metadata"] == {"due": "2025-05-12T00:00:00+00:00"}
    assert stored["expiration_date"] == "2099-12-31T15:59:59.999999+00:00"
    for moment, number in (("2025-05-11T06:59:59", 0), ("2025-05-11T07:00:00", 1), ("2025-05-12", 1)):
        assert memory.get_all(user_id="u1", as_of=moment)["total"] == number
    for bound, number in (("2025-05-11", 1), ("2025-05-11T07:00:01", 0), (date(2025, 5, 12), 0)):
        assert memory.get_all(user_id="u1", filters={"at": {"gte": bound}})["total"] == number


def test_records_of_other_programs_are_local_as_well(open_memory: Open) -> None:
    memory = open_memory(timezone=SHANGHAI)
    record = {"type": "memory", "user_id": "u1", "text": "tea"}
    first, second = "00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"
    memory.import_([{**record, "id": first, "at": "2025-05-11T07:00:00"}, {**record, "id": second, "at": "2025-05-11"}])
    assert memory.get(first)["at"].startswith("2025-05-10T23:00:00")
    assert memory.get(second)["at"].startswith("2025-05-10T16:00:00")


def test_the_log_says_once_where_times_without_an_offset_count(
    open_memory: Open, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(times, "_is_told", type(times._is_told)())
    memory = open_memory()
    with caplog.at_level(logging.WARNING, "graphmem"):
        for moment in ("2025-05-11T07:00:00+08:00", "2025-05-11T07:00:00Z", "2025-05-11", 1746918000):
            memory.add("tea", user_id="u1", timestamp=moment)
        assert not caplog.records
        for moment in ("2025-05-11T07:00:00", datetime(2025, 5, 11, 8)):  # noqa: DTZ001
            memory.add("tea", user_id="u1", timestamp=moment)
    assert ["without a UTC offset" in record.message for record in caplog.records] == [True]


@pytest.mark.parametrize("name", ["Shanghai", "Asia", "../etc/passwd", "", "+08:00", "Asia/Shanghai\0"])
def test_an_unknown_time_zone_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"timezone.*Europe/Berlin") as refused:
        Settings.from_dict({"timezone": name})
    assert name not in {"../etc/passwd"} or name not in str(refused.value)


def test_a_machine_without_a_time_zone_database_knows_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_none(name: str) -> ZoneInfo:
        raise LookupError(name)

    monkeypatch.setattr(times, "ZoneInfo", find_none)
    monkeypatch.setattr(times, "available_timezones", set)
    assert Settings.from_dict({"timezone": "UTC"}).zone is UTC
    with pytest.raises(ConfigError, match="pip install tzdata"):
        Settings.from_dict({"timezone": SHANGHAI})


# --- days that are shown ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "reference_date", "shown"),
    [
        ({}, None, "2025-05-10"),
        ({}, "2025-05-12T20:00:00+08:00", "2025-05-11"),
        ({}, "2025-05-12T20:00:00Z", "2025-05-10"),
        ({"timezone": SHANGHAI}, None, "2025-05-11"),
        ({"timezone": SHANGHAI}, "2025-05-12", "2025-05-11"),
        ({"timezone": SHANGHAI}, 1747051200, "2025-05-11"),
        ({"timezone": SHANGHAI}, "2025-05-12T20:00:00-05:00", "2025-05-10"),
    ],
)
def test_a_block_has_the_days_of_the_asker(
    open_memory: Open, config: dict[str, Any], reference_date: Any, shown: str
) -> None:
    memory = open_memory(**config)
    added(memory, "I went running.", timestamp=SUNDAY_MORNING)
    assert days(memory.context("running", user_id="u1", reference_date=reference_date)) == [shown]
    with ChatLink(memory, user_id="u1") as link:
        assert days(link.recall("running", reference_date=reference_date)) == [shown]


def test_a_zone_with_summer_time_shows_each_day_as_it_was(open_memory: Open) -> None:
    memory = open_memory(timezone="Europe/Berlin")
    for at in ("2025-01-10T22:30:00Z", "2025-07-10T22:30:00Z"):  # 23:30 in winter, 00:30 in summer
        added(memory, f"I went running {at}.", timestamp=at)
    assert days(memory.context("running", user_id="u1")) == ["2025-07-11", "2025-01-10"]
    assert memory.count_by_day(user_id="u1", utc_offset=0) == [
        {"day": "2025-01-10", "memories": 1},
        {"day": "2025-07-10", "memories": 1},
    ]


def test_days_are_counted_in_the_configured_zone(open_memory: Open) -> None:
    memory = open_memory(timezone=SHANGHAI)
    added(memory, "I went running.", timestamp=SUNDAY_MORNING)
    assert memory.count_by_day(user_id="u1") == [{"day": "2025-05-11", "memories": 1}]


@pytest.mark.parametrize(("offset", "hit"), [("", 0), ("+08:00", 0), ("-05:00", 1)])
def test_last_sunday_is_that_of_the_asker(open_memory: Open, offset: str, hit: int) -> None:
    memory = open_memory(timezone=SHANGHAI)
    # The second is Monday morning in Shanghai, and Sunday evening in New York.
    times_of_breakfast = SUNDAY_MORNING, "2025-05-12T09:00:00+08:00"
    breakfasts = [added(memory, "I met Tom for breakfast.", timestamp=at) for at in times_of_breakfast]
    asked_at = f"2025-05-14T09:00:00{offset}"
    found = memory.search("What did I do last Sunday?", user_id="u1", reference_date=asked_at)
    assert ids(found)[0] == breakfasts[hit]


@pytest.mark.parametrize("asked_at", [1747184400, "1747184400"])
def test_seconds_since_1970_have_no_zone_of_their_own(open_memory: Open, asked_at: str | int) -> None:
    memory = open_memory(timezone=SHANGHAI)
    added(memory, "I went running.", timestamp=SUNDAY_MORNING)
    assert days(memory.context("running", user_id="u1", reference_date=asked_at)) == ["2025-05-11"]


# --- messages keep their offset ---------------------------------------------------------------------------------------


def prompts_of(timestamp: Any, **config: Any) -> list[str]:
    """The times of a message in the request for its facts."""
    with ModelEndpoint(default='{"facts": []}') as endpoint:
        llm = {"config": {"openai_base_url": endpoint.url, "api_key": "any", "model": "any"}}
        with Memory(":memory:", settings=Settings.from_dict(fake_models(llm=llm, **config))) as memory:
            memory.add("I ate dumplings.", user_id="u1", timestamp=timestamp)
        request = json.loads(endpoint.requests[0].body["messages"][-1]["content"])
    return [row for row in request["messages"] if isinstance(row, str)]


@pytest.mark.parametrize(
    ("timestamp", "config", "shown"),
    [
        (SUNDAY_MORNING, {}, "Sun 2025-05-11 07:00 +08:00"),
        (SUNDAY_MORNING, {"timezone": "America/New_York"}, "Sun 2025-05-11 07:00 +08:00"),
        ("2025-05-10T23:00:00Z", {}, "Sat 2025-05-10 23:00 UTC"),
        # Programs convert to UTC, so that it says nothing of the speaker.
        ("2025-05-10T23:00:00Z", {"timezone": SHANGHAI}, "Sun 2025-05-11 07:00 +08:00"),
        ("2025-05-11T07:00:00", {"timezone": SHANGHAI}, "Sun 2025-05-11 07:00 +08:00"),
        (1746918000, {"timezone": SHANGHAI}, "Sun 2025-05-11 07:00 +08:00"),
    ],
)
def test_a_model_is_shown_the_day_of_the_speaker(timestamp: Any, config: dict[str, Any], shown: str) -> None:
    assert prompts_of(timestamp, **config) == [shown]


@pytest.mark.usefixtures("in_shanghai")
def test_what_is_said_now_has_the_clock_of_the_machine() -> None:
    assert [shown[-6:] for shown in prompts_of(None)] == ["+08:00"]


def test_an_offset_survives_a_hook_and_an_export(open_memory: Open) -> None:
    seen = []

    def hook(message: dict[str, Any]) -> dict[str, Any]:
        seen.append(message["timestamp"])
        return {name: value for name, value in message.items() if name != "timestamp"}

    memory, copy, file = open_memory(before_store=hook), open_memory(timezone="Europe/Berlin"), io.StringIO()
    uid = added(memory, "I went running.", timestamp=SUNDAY_MORNING)
    unknown = added(memory, "I went swimming.", timestamp="2025-05-10T23:00:00Z")
    assert seen == [SUNDAY_MORNING, "2025-05-10T23:00:00+00:00"]
    memory.export(file)
    file.seek(0)
    copy.import_(file)
    for one in (memory, copy):
        with one.engine.ledger.read() as connection:
            rows = dict(connection.exec_driver_sql("SELECT uid, utc_offset FROM memories").all())
        assert rows == {uid: 480, unknown: None}


# --- times in metadata ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "condition", "matches"),
    [
        ("2025-10-01T23:30:00-05:00", {"gte": "2025-10-02T00:00:00Z"}, True),
        ("2025-10-01T10:00:00+02:00", {"gte": "2025-10-01T08:30:00Z"}, False),
        ("2025-10-01 10:00:00Z", {"lte": "2025-10-01T10:00:00+00:00"}, True),
        ("2025-10-01T10:00:00.500Z", {"gt": "2025-10-01T10:00:00Z"}, True),
        ("2025-10-01T10:00:00Z", "2025-10-01 12:00:00.000+02:00", True),
        ("2025-10-01T10:00:00Z", {"in": ["x", "2025-10-01T12:00+02:00"]}, True),
        ("2025-10-01T10:00:00Z", {"ne": "2025-10-01T12:00+02:00"}, False),
        ("2025-10-01", {"gte": "2025-10-01", "lt": "2025-10-02"}, True),
        ("2025-10-01", {"lt": "2025-10-01T00:00:01"}, True),
        ("2025-10-01T01:00:00", {"lt": "2025-09-30T23:30:00Z"}, True),  # local, in Shanghai
        # What is no time stays text, a number in digits as well.
        ("2025-10-01 in the evening", {"gt": "2025-10-01 at noon"}, True),
        ("20251001", "2025-10-01", False),
        ("2025-10-32", {"gt": "2025-10-31"}, True),
        ("soon", {"gt": "2025-10-01"}, True),
    ],
)
def test_times_in_metadata_compare_as_moments(open_memory: Open, value: str, condition: Any, *, matches: bool) -> None:
    memory = open_memory(timezone=SHANGHAI)
    added(memory, "The report is due.", metadata={"due": value})
    assert memory.get_all(user_id="u1", filters={"due": condition})["total"] == matches
    found = memory.search("report", user_id="u1", filters={"due": condition})
    assert len(found["results"]) == matches
