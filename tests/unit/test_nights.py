"""When nightly cycles are due (seed 002 §4.2)."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmem.errors import ConfigError
from graphmem.lifecycle.nights import Nights
from graphmem.settings import Settings

ZONES = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Pacific/Kiritimati", "Australia/Lord_Howe"])


@pytest.mark.parametrize(
    ("now", "last"),
    [
        ("2026-06-10T02:59:59", "2026-06-09T03:00"),
        ("2026-06-10T03:00:00", "2026-06-10T03:00"),
        ("2026-06-10T23:00:00", "2026-06-10T03:00"),
    ],
)
def test_a_night_begins_at_three(now: str, last: str) -> None:
    nights = Settings.from_dict({"lifecycle": {"enabled": True}}).lifecycle.nights(None)
    assert nights is not None
    moment, expected = (datetime.fromisoformat(each).replace(tzinfo=UTC) for each in (now, last))
    assert (nights.last(moment), nights.next(moment)) == (expected, expected + timedelta(days=1))


@given(ZONES, st.times(), st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC)))
def test_the_last_night_is_over_and_the_next_is_within_a_day_and_a_change_of_clocks(
    zone: str, time_of_day: time, now: datetime
) -> None:
    nights = Nights(time_of_day, ZoneInfo(zone))
    last, following = nights.last(now), nights.next(now)
    assert last <= now < following
    assert timedelta(hours=22) <= following - last <= timedelta(hours=26)
    assert nights.last(following) == following


def test_nights_are_local_to_the_time_zone_of_the_settings() -> None:
    settings = Settings.from_dict({"timezone": "Asia/Shanghai", "lifecycle": {"enabled": True, "daily_at": "04:30"}})
    nights = settings.lifecycle.nights(settings.zone)
    assert nights is not None
    assert nights.next(datetime(2026, 6, 10, tzinfo=UTC)) == datetime(2026, 6, 10, 20, 30, tzinfo=UTC)


@pytest.mark.parametrize("lifecycle", [{}, {"enabled": True, "daily_at": "never"}])
def test_no_cycle_runs_by_itself_unless_enabled(lifecycle: dict[str, object]) -> None:
    assert Settings.from_dict({"lifecycle": lifecycle}).lifecycle.nights(None) is None


@pytest.mark.parametrize("unusable", ["3:00", "24:00", "03:60", "03:00:00", "at night", "", 3])
def test_a_time_of_day_has_hours_and_minutes(unusable: object) -> None:
    with pytest.raises(ConfigError, match="daily_at"):
        Settings.from_dict({"lifecycle": {"enabled": True, "daily_at": unusable}})
