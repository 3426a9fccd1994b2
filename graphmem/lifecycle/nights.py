"""The time of day at which cycles run by themselves (seed 002 §4.2: each night)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo


@dataclass(frozen=True, slots=True)
class Nights:
    """The moments at which it is `time_of_day` in a time zone: each is a night."""

    time_of_day: time
    zone: tzinfo

    def last(self, now: datetime) -> datetime:
        """Returns the latest night that is not after `now`."""
        local = now.astimezone(self.zone)
        night = self._night_of(local)
        return night if night <= now else self._night_of(local - timedelta(days=1))

    def next(self, now: datetime) -> datetime:
        """Returns the first night after `now`."""
        local = now.astimezone(self.zone)
        night = self._night_of(local)
        return night if night > now else self._night_of(local + timedelta(days=1))

    def _night_of(self, local: datetime) -> datetime:
        # By way of UTC: two times of one zone are compared by their clock times, without their offsets.
        return datetime.combine(local.date(), self.time_of_day, self.zone).astimezone(UTC)
