"""Posts events to the configured webhooks, signed as the Standard Webhooks specification says.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md. Each webhook follows its
events under a name (`events_bus.Follower`), so that one that is down holds up no other. What it does not take is a dead
letter in the ledger.
"""

from __future__ import annotations

import hmac
import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from typing import Any

from graphmem.errors import NotFoundError, StoreUnavailable, ValidationError
from graphmem.events_bus import EventBus, TryLater
from graphmem.model import EventType, MemoryEvent, iso
from graphmem.models.http import EndpointError, LazyClient, open_client, post
from graphmem.settings import WebhookSettings
from graphmem.stores.ledger import Ledger, event_log, outbox
from graphmem.stores.ledger.event_log import DeadEvent

# How the names begin under which webhooks follow events.
PREFIX = "webhook:"
# Seconds that a webhook may take for an answer, of which nothing but the status is read. A lease is longer.
ANSWER_SECONDS = 10.0
# Seconds of attempts after which an event that a webhook may still take becomes a dead letter: the longest pause, too,
# that it may ask for (Retry-After).
GIVE_UP_SECONDS = 600.0
NO_DEAD_LETTER = "no such dead letter of this webhook; dead_letters lists those that there are"


class WebhookFailed(TryLater):
    """A webhook did not take an event. `is_final`: it refused it, so that a further attempt is no use.

    `pause` are the seconds for which it asks to be left alone.
    """

    is_loggable = True

    def __init__(self, error: EndpointError) -> None:
        cause = "no answer in time" if error.timed_out else "cannot be reached"
        super().__init__(cause if error.status is None else f"HTTP {error.status}")
        self.is_final = not error.is_transient
        self.pause = min(GIVE_UP_SECONDS, error.retry_after or 0.0)


def signature(key: bytes, event_id: str, timestamp: int, body: bytes) -> str:
    """Returns the header `webhook-signature`: HMAC-SHA256 of id, time in seconds and body, with dots between them."""
    signed = f"{event_id}.{timestamp}.".encode() + body
    return f"v1,{b64encode(hmac.digest(key, signed, sha256)).decode()}"


class Webhook:
    """One configured webhook. Safe to use from several threads."""

    def __init__(self, settings: WebhookSettings) -> None:
        self.name = settings.name
        self._url = settings.url.get_secret_value()
        self._key = b64decode(settings.secret.get_secret_value().removeprefix("whsec_"))
        self._connection = LazyClient[Any](partial(open_client, ANSWER_SECONDS), StoreUnavailable)

    def post(self, event: MemoryEvent) -> None:
        """Posts an event. Raises WebhookFailed unless the answer's status is 2xx; redirects are not followed."""
        event_id, timestamp = str(event.payload["event_id"]), int(datetime.now(UTC).timestamp())
        fields: Mapping[str, Any] = {
            "event_type": event.event_type,
            "user_id": event.user_id,
            "payload": dict(event.payload),
            "timestamp": iso(event.timestamp),
            "id": event_id,
        }
        body = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()
        headers = {
            "content-type": "application/json",
            "user-agent": "graphmem",
            "webhook-id": event_id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": signature(self._key, event_id, timestamp, body),
        }
        error = post(self._connection.client(), self._url, headers, body)
        if error is not None:
            raise WebhookFailed(error)

    def close(self) -> None:
        """Closes the connections."""
        self._connection.close()


class Webhooks:
    """The configured webhooks of an engine, and the events that they did not take."""

    def __init__(self, ledger: Ledger, settings: tuple[WebhookSettings, ...]) -> None:
        self._ledger = ledger
        self._settings = settings
        self._webhooks = {one.name: Webhook(one) for one in settings}

    def start(self, bus: EventBus) -> None:
        """Lets each webhook follow its events."""
        for one in self._settings:
            for event_type in dict.fromkeys(one.events):
                bus.follow(event_type, self._webhooks[one.name].post, f"{PREFIX}{one.name}", _gives_up)

    def check_not_configured(self, followed: str) -> None:
        """Raises ValidationError for the name under which a configured webhook follows its events."""
        if followed.startswith(PREFIX) and followed.removeprefix(PREFIX) in self._webhooks:
            raise ValidationError(
                "name: this webhook is configured; take it out of `webhooks` and open the memory again first",
                argument="name",
            )

    def dead_letters(self, limit: int, offset: int) -> tuple[list[DeadEvent], int]:
        """Returns the events that webhooks did not take, the oldest first, and the number of all."""
        with self._ledger.read() as connection:
            return event_log.dead_events(connection, limit, offset), sum(event_log.count_dead(connection).values())

    def retry(self, event_id: str, name: str) -> str | None:
        """Posts a dead letter once more; returns why the webhook did not take it, None if it did.

        Raises NotFoundError for an event that is none, ValidationError for one that is not in the log any more, and for
        a webhook that is not configured.
        """
        with self._ledger.read() as connection:
            dead = event_log.find_dead(connection, f"{PREFIX}{name}", event_id)
        webhook = self._webhooks.get(name)
        if dead is None:
            raise NotFoundError(NO_DEAD_LETTER)
        if webhook is None:
            raise ValidationError("webhook: it is not configured any more; drop the dead letter", argument="webhook")
        if dead.event is None:
            raise ValidationError(
                "event_id: the memory of this event was erased since, or the event is too old to be told; drop the "
                "dead letter",
                argument="event_id",
            )
        place = outbox.follower(EventType(dead.event_type), f"{PREFIX}{name}")
        try:
            webhook.post(dead.event)
        except WebhookFailed as error:
            return str(error)
        with self._ledger.write([place]) as connection:
            outbox.remove_dead_letters(connection, place, [event_id])
        return None

    def drop(self, event_id: str, name: str) -> None:
        """Deletes a dead letter: the event is never told. Raises NotFoundError for one that is none."""
        with self._ledger.write() as connection:
            dead = event_log.find_dead(connection, f"{PREFIX}{name}", event_id)
            if dead is None:
                raise NotFoundError(NO_DEAD_LETTER)
            place = outbox.follower(EventType(dead.event_type), f"{PREFIX}{name}")
            outbox.remove_dead_letters(connection, place, [event_id])

    def close(self) -> None:
        """Closes the connections of all."""
        for webhook in self._webhooks.values():
            webhook.close()


def _gives_up(error: BaseException, seconds: float) -> bool:
    is_final = isinstance(error, WebhookFailed) and error.is_final
    return is_final or seconds >= GIVE_UP_SECONDS
