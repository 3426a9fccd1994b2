"""Time zones: in which one a time without a UTC offset counts, and in which one a moment is shown. Pure.

A zone of None, where one is an argument, is the one that nobody has set: times without an offset then are local to this
machine, and moments are shown in UTC, as nobody knows where they are read.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from threading import Event
from zoneinfo import ZoneInfo, available_timezones

logger = logging.getLogger("graphmem")

MINUTE = timedelta(minutes=1)
# Whether the log has been told of a time without an offset: one such program gives thousands of them.
_is_told = Event()


def zone_of(name: str) -> tzinfo:
    """Returns the time zone of an IANA name, such as "Europe/Berlin". Raises ValueError, which says what to do."""
    if name.upper() in {"UTC", "Z"}:
        return UTC  # also where the machine has no time zone database
    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError):  # OSError: the name of a folder of the database
        pass
    if not available_timezones():
        raise ValueError("this machine has no time zone database; pip install tzdata, or set 'UTC'")
    raise ValueError("is no name of the IANA time zone database; use one such as 'Europe/Berlin' or 'UTC'")


def warn_of_missing_offset() -> None:
    """Logs, once in this process, in which zone times without an offset count."""
    if not _is_told.is_set():
        _is_told.set()
        logger.warning(
            "a time without a UTC offset was given: it counts as local to the setting timezone, by default to this "
            "machine's zone; times with an offset, such as datetime.now().astimezone(), leave no doubt (said once)"
        )


def localized(time: datetime, zone: tzinfo | None) -> datetime:
    """Returns an aware time: one without an offset as a time in `zone`, on the calendar's first and last day in UTC."""
    if time.utcoffset() is not None:
        return time
    try:
        aware = time.astimezone() if zone is None else time.replace(tzinfo=zone)
        aware.astimezone(UTC)
    except (ValueError, OverflowError, OSError):  # OSError: the machine's zone does not reach as far
        return time.replace(tzinfo=UTC)
    return aware


def offset_minutes(time: datetime, zone: tzinfo | None) -> int | None:
    """Returns the minutes by which the clock of whoever gave an aware time is ahead of UTC; None if nobody knows.

    A time in UTC names nobody's clock, because programs convert to it: that of `zone` counts, if it is not None.
    """
    if not time.utcoffset() and zone is not None:
        time = shown(time, zone)
    return (time.utcoffset() or timedelta(0)) // MINUTE or None


def shown(moment: datetime, zone: tzinfo | None) -> datetime:
    """Returns a moment by the clock of a zone; in UTC where that would leave the calendar."""
    try:
        return moment.astimezone(zone or UTC)
    except OverflowError:
        return moment


def said(moment: datetime, utc_offset: int | None) -> datetime:
    """Returns a moment by the clock of whoever spoke, which is `utc_offset` minutes ahead of UTC (None: 0)."""
    return shown(moment, None if utc_offset is None else timezone(utc_offset * MINUTE))


def shown_iso(text: str, zone: tzinfo | None) -> str:
    """Returns an ISO 8601 text of a result by the clock of a zone."""
    return shown(datetime.fromisoformat(text), zone).isoformat(timespec="microseconds")


def asker_zone(reference: datetime | None, zone: tzinfo | None) -> tzinfo:
    """Returns the zone in which an answer is shown: that of the moment of asking, else `zone`, else UTC."""
    return (None if reference is None else reference.tzinfo) or zone or UTC
