"""Webhooks: signed posts of events to a real receiver, what it does not take, and what holds up what."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from support.contract import Make, added
from support.service import free_port
from support.waiting import TIMEOUT, wait_until
from support.webhook_receiver import SECRET, Received, Receiver

from graphmem import Memory, Settings, webhooks
from graphmem.errors import ConfigError, NotFoundError, ValidationError
from graphmem.models import http
from graphmem.models.http import EndpointError
from graphmem.stores import projection_worker
from graphmem.stores.ledger import event_log
from graphmem.stores.ledger import schema as tables
from graphmem.webhooks import WebhookFailed, signature

ADDED = ["memory.added"]


def hook(receiver: Receiver | str, name: str = "orders", events: list[str] = ADDED) -> dict[str, Any]:
    url = receiver if isinstance(receiver, str) else receiver.url
    return {"name": name, "url": url, "events": events, "secret": SECRET}


@pytest.fixture(autouse=True)
def _quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projection_worker, "RETRY_MAX", 0.01)


def refusing(status: int, until: Callable[[Received], bool] = lambda _: False) -> Callable[[Received], int]:
    return lambda one: 204 if until(one) else status


def test_a_signature_is_that_of_the_specification() -> None:
    """The example of the specification's libraries."""
    key = b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    signed = signature(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_events_are_posted_with_a_signature_in_order_and_without_texts(make_memory: Make) -> None:
    with Receiver() as receiver, Receiver() as nights:
        memory = make_memory(webhooks=[hook(receiver), hook(nights, "nights", ["schedule.daily"])])
        uid = added(memory, "I drink tea.", user_id="ana", agent_id="bot")
        memory.update(uid, "I drink coffee.")
        memory.flush()
        memory.close()
    first, second = receiver.received
    history = [first.body["id"], second.body["id"]]
    assert first.body == {
        "event_type": "memory.added",
        "user_id": "ana",
        "payload": {"event_id": history[0], "agent_id": "bot", "memory_id": uid, "change": "ADD"},
        "timestamp": first.body["timestamp"],
        "id": history[0],
    }
    assert second.body["payload"]["change"] == "UPDATE"
    assert all(one.is_signed for one in receiver.received)
    assert [one.headers["webhook-id"] for one in receiver.received] == history
    assert "tea" not in json.dumps(first.body)
    assert nights.received == []


def test_the_end_of_a_session_is_posted(make_memory: Make) -> None:
    with Receiver() as receiver:
        memory = make_memory(webhooks=[hook(receiver, events=["session.end", "memory.accessed"])])
        memory.add("I drink tea.", user_id="ana")
        memory.search("tea", user_id="ana")
        assert memory.end_session(user_id="ana") == {"ended": True}
        memory.flush()
        assert {one.body["event_type"] for one in receiver.received} == {"session.end", "memory.accessed"}
        assert all(one.is_signed and one.body["user_id"] == "ana" for one in receiver.received)


def test_a_webhook_that_is_down_holds_up_nothing_and_gets_all_when_it_is_back(
    make_memory: Make, tmp_path: Path
) -> None:
    port = free_port()
    with Receiver() as other:
        configured = [hook(f"http://127.0.0.1:{port}/hook"), hook(other, "other")]
        memory = make_memory(tmp_path, webhooks=configured)
        for n in range(3):
            added(memory, f"tea {n}")
        wait_until(lambda: len(other.received) == 3)
        memory.close()
        memory = make_memory(tmp_path, webhooks=configured)
        added(memory, "cake")
        with Receiver(port=port) as receiver:
            wait_until(lambda: len(receiver.received) == 4)
            wait_until(lambda: len(other.received) == 4)
            assert receiver.ids == other.ids
            memory.close()
        assert memory_is_clean(make_memory(tmp_path))


def memory_is_clean(memory: Memory) -> bool:
    return memory.stats()["dead_letters"] == {} and memory.dead_letters() == {"results": [], "total": 0}


def test_what_a_webhook_refuses_is_a_dead_letter_that_can_be_retried_or_dropped(make_memory: Make) -> None:
    takes_all = Event()

    def answer(one: Received) -> int:
        return 204 if takes_all.is_set() or one.body["payload"]["memory_id"] == uids[2] else 400

    uids: list[str] = []
    with Receiver(lambda one: answer(one) if len(uids) == 3 else 503) as receiver:
        memory = make_memory(webhooks=[hook(receiver)])
        uids += [added(memory, f"tea {n}", user_id="ana") for n in range(3)]
        wait_until(lambda: memory.stats()["dead_letters"] == {"orders": 2})
        wait_until(lambda: receiver.received[-1].body["payload"]["memory_id"] == uids[2])
        listed = memory.dead_letters()
        assert listed["total"] == 2
        first, second = listed["results"]
        assert first == {
            "id": memory.history(uids[0])[0]["id"],
            "webhook": "orders",
            "event_type": "memory.added",
            "error": "WebhookFailed: HTTP 400",
            "user_id": "ana",
            "timestamp": first["timestamp"],
        }
        assert memory.dead_letters(limit=1, offset=1) == {"results": [second], "total": 2}
        assert memory.retry_dead_letter(first["id"], webhook="orders") == {"delivered": False, "error": "HTTP 400"}
        takes_all.set()
        assert memory.retry_dead_letter(first["id"], webhook="orders") == {"delivered": True}
        assert receiver.ids[-1] == first["id"]
        with pytest.raises(NotFoundError):
            memory.retry_dead_letter(first["id"], webhook="orders")
        with pytest.raises(NotFoundError):
            memory.drop_dead_letter(second["id"], webhook="other")
        assert memory.drop_dead_letter(second["id"], webhook="orders") == {"dropped": True}
        assert memory_is_clean(memory)


def test_a_redirect_is_refused_and_not_followed(make_memory: Make) -> None:
    with Receiver() as elsewhere, Receiver(refusing(307), location=elsewhere.url) as receiver:
        memory = make_memory(webhooks=[hook(receiver)])
        added(memory, "tea")
        wait_until(lambda: memory.dead_letters()["total"] == 1)
        assert memory.dead_letters()["results"][0]["error"] == "WebhookFailed: HTTP 307"
        assert len(receiver.received) == 1
        assert elsewhere.received == []


@pytest.mark.parametrize("status", [503, 429])
def test_a_webhook_that_fails_for_long_loses_an_event_to_the_dead_letters(
    make_memory: Make, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    with Receiver(refusing(status)) as receiver:
        memory = make_memory(webhooks=[hook(receiver)])
        added(memory, "tea")
        wait_until(lambda: len(receiver.received) >= 3)
        assert memory.dead_letters()["total"] == 0
        monkeypatch.setattr(webhooks, "GIVE_UP_SECONDS", 0.0)
        wait_until(lambda: memory.dead_letters()["total"] == 1)
        assert memory.dead_letters()["results"][0]["error"] == f"WebhookFailed: HTTP {status}"
        assert len(set(receiver.ids)) == 1


def test_a_webhook_is_left_alone_for_as_long_as_it_asks(make_memory: Make, caplog: pytest.LogCaptureFixture) -> None:
    """And the log names it by its name, never by its URL, at the first failure."""
    with Receiver(refusing(503), retry_after="3600") as busy, Receiver(refusing(503)) as other:
        memory = make_memory(webhooks=[hook(busy), hook(other, "other")])
        added(memory, "tea")
        wait_until(lambda: len(other.received) >= 5)
        assert len(busy.received) == 1
        lines = [record.getMessage() for record in caplog.records]
        assert "webhook:orders failed at an event (WebhookFailed: HTTP 503); it is called again" in lines
        assert not [line for line in lines if "127.0.0.1" in line or "hook?from" in line]
        with memory.engine.ledger.read() as connection:
            assert set(event_log.delays(connection)) == {"webhook:orders", "webhook:other"}
            assert min(event_log.delays(connection).values()) > 0


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("120", 120.0),
        (" 7 ", 7.0),
        ("-1", None),
        ("soon", None),
        ("1" * 400, None),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
        ("Wed, 21 Oct 2015 07:28:00", None),
    ],
)
def test_what_a_header_asks_for(value: str | None, seconds: float | None) -> None:
    assert http._retry_after(value) == seconds
    assert WebhookFailed(EndpointError(503, retry_after=seconds)).pause == min(600.0, seconds or 0.0)


def test_a_webhook_without_an_answer_is_given_up_by_its_cause(
    make_memory: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "GIVE_UP_SECONDS", 0.0)
    monkeypatch.setattr(webhooks, "ANSWER_SECONDS", 0.05)
    may_answer = Event()

    def late(_: Received) -> int:
        may_answer.wait(TIMEOUT)
        return 204

    with Receiver(late) as receiver:
        memory = make_memory(webhooks=[hook(receiver), hook(f"http://127.0.0.1:{free_port()}/", "nobody")])
        added(memory, "tea")
        wait_until(lambda: memory.dead_letters()["total"] == 2)
        may_answer.set()
        assert {one["webhook"]: one["error"] for one in memory.dead_letters()["results"]} == {
            "orders": "WebhookFailed: no answer in time",
            "nobody": "WebhookFailed: cannot be reached",
        }


def test_a_dead_letter_of_what_is_gone_can_be_dropped_only(make_memory: Make, tmp_path: Path) -> None:
    with Receiver(refusing(400)) as receiver:
        memory = make_memory(tmp_path, webhooks=[hook(receiver)])
        uid, kept = added(memory, "tea"), added(memory, "cake")
        wait_until(lambda: memory.dead_letters()["total"] == 2)
        memory.delete(uid)
        gone, other = memory.dead_letters()["results"]
        assert (gone["timestamp"], gone["user_id"], other["user_id"]) == (None, None, "u1")
        with pytest.raises(ValidationError, match="event_id: the memory of this event was erased"):
            memory.retry_dead_letter(gone["id"], webhook="orders")
        memory.close()
    memory = make_memory(tmp_path)
    with pytest.raises(ValidationError, match="webhook: it is not configured any more"):
        memory.retry_dead_letter(other["id"], webhook="orders")
    assert memory.drop_dead_letter(gone["id"], webhook="orders") == {"dropped": True}
    assert memory.forget_subscriber("webhook:orders") == {"forgotten": ["memory.added"]}
    assert memory_is_clean(memory)
    with memory.engine.ledger.read() as connection:
        assert "event:" not in str(connection.execute(tables.cursors.select()).all())
    assert memory.get(kept)["memory"] == "cake"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"url": "ftp://host/"}, "webhooks.0.url: must be like https://host/path"),
        ({"url": "https://user:pass-word@host/"}, "webhooks.0.url: must be like https://host/path"),
        ({"url": "https://"}, "webhooks.0.url: must be like https://host/path"),
        ({"secret": "whsec_c2hvcnQ="}, "webhooks.0.secret: must be whsec_ and the base64 of 24 to 64 bytes"),
        ({"secret": "a-secret-of-another-form-0123456789"}, "webhooks.0.secret: must be whsec_"),
        ({"events": ["memory.add"]}, "did you mean 'memory.added'?"),
        ({"events": []}, "webhooks.0.events"),
        ({"name": "a b"}, "webhooks.0.name: must be 1 to 80 letters"),
        ({"colour": "red"}, "unknown key 'colour'"),
    ],
)
def test_unusable_settings_name_the_key_and_no_value(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Settings.from_dict({"webhooks": [{**hook("https://host/"), **changed}]})
    assert message in str(caught.value)
    assert SECRET not in str(caught.value)
    assert "pass-word" not in str(caught.value)


def test_webhooks_have_names_of_their_own_and_come_from_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="webhooks: has two webhooks of one name"):
        Settings.from_dict({"webhooks": [hook("https://host/"), hook("https://other/")]})
    monkeypatch.setenv("GRAPHMEM_WEBHOOKS", json.dumps([hook("https://host/?key=quiet")]))
    settings = Settings.from_env()
    assert [(one.name, one.events) for one in settings.webhooks] == [("orders", ("memory.added",))]
    assert SECRET not in repr(settings)
    assert "quiet" not in repr(settings)
