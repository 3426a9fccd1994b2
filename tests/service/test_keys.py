"""Keys of the service's clients: which texts are recognised, what is stored of them, and the command line."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from mcp import Client
from sqlalchemy import select
from support.mcp_clients import ANA, http_client, serving
from support.service import client_of, expired_key
from support.waiting import TIMEOUT, wait_until
from typer.testing import CliRunner

from graphmem import Memory
from graphmem.cli.app import app
from graphmem.errors import NotFoundError, StoreUnavailable, ValidationError
from graphmem.service.keys import Keys
from graphmem.stores.ledger.schema import api_keys


@pytest.fixture
def keys(memory: Memory) -> Keys:
    return Keys(memory)


def test_a_key_is_recognised_by_its_whole_text(keys: Keys) -> None:
    key, text = keys.create("user", user_id="ana", agent_id="bot", label="phone")
    assert keys.find(text) == key
    assert (key.role, key.user_id, key.agent_id, key.label) == ("user", "ana", "bot", "phone")
    other = keys.create("app").text
    for wrong in (
        "", "gm", "gm_", text[:-1], f"{text}x", text.upper(), text.replace(key.id, "00000000"), f" {text}",
        f"gm_{key.id}_{other.split('_', 2)[2]}", f"gm_{key.id}_", f"gm_{key.id}_é", "gm_\ud800_x", f"gx{text[2:]}",
    ):  # fmt: skip
        assert keys.find(wrong) is None, wrong


def test_no_secret_is_stored(keys: Keys, memory: Memory) -> None:
    text = keys.create("user", user_id="ana").text
    secret = text.split("_", 2)[2]
    with memory.engine.ledger.read() as connection:
        row = connection.execute(select(api_keys)).one()
    assert secret not in repr(row)
    assert secret.encode() not in row.hash
    assert secret not in repr(keys.all())


def test_a_revoked_or_expired_key_is_refused(keys: Keys, memory: Memory) -> None:
    now = datetime.now(UTC)
    first, second = keys.create("app"), keys.create("app", expires_at=now + timedelta(days=1))
    assert keys.find(expired_key(memory).text) is None
    keys.revoke(first.key.id)
    keys.revoke(first.key.id)
    assert keys.find(first.text) is None
    assert keys.find(second.text) == second.key
    assert [key.id for key in keys.all() if key.revoked_at] == [first.key.id]
    with pytest.raises(NotFoundError):
        keys.revoke("unknown")


@pytest.mark.parametrize(
    ("role", "arguments", "named"),
    [
        ("user", {}, "user_id"),
        ("app", {"user_id": "ana"}, "user_id"),
        ("admin", {"agent_id": "bot"}, "agent_id"),
        ("owner", {}, "role"),
        ("user", {"user_id": " "}, "user_id"),
        ("app", {"label": "two\nlines"}, "label"),
        ("app", {"expires_at": "soon"}, "expires_at"),
        ("app", {"expires_at": "2020-01-01"}, "expires_at.*is in the past"),
        ("app", {"expires_at": datetime.now(UTC)}, "expires_at.*is in the past"),
        ("app", {"expires_at": 1_600_000_000}, "expires_at.*is in the past"),
        ("app", {"rate": "600 per minute"}, "rate"),
        ("app", {"rate": "0/minute"}, "rate"),
    ],
)
def test_unusable_arguments(keys: Keys, role: str, arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(ValidationError, match=named):
        keys.create(role, **arguments)
    assert keys.all() == []


def test_the_use_of_a_key_is_recorded_at_most_once_a_minute(
    keys: Keys, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, text = keys.create("app")
    written: list[list[str]] = []
    record = Keys.record_uses

    def record_and_note(self: Keys, key_ids: list[str]) -> None:
        record(self, key_ids)
        written.append(key_ids)

    monkeypatch.setattr(Keys, "record_uses", record_and_note)
    with client_of(memory, role=None) as client:
        assert client.get("/nowhere", headers={"X-API-Key": text[:-1]}).status_code == 401
        assert keys.all()[0].last_used_at is None
        for _ in range(3):
            assert client.get("/nowhere", headers={"X-API-Key": text}).status_code == 404
            wait_until(lambda: written)
    assert written == [[key.id]]
    (used,) = keys.all()
    assert used.last_used_at is not None
    assert used.created_at <= used.last_used_at <= datetime.now(UTC)


@pytest.mark.parametrize("trouble", ["fails", "hangs"])
def test_a_use_that_cannot_be_recorded_costs_nothing(
    keys: Keys, memory: Memory, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    go_on, sent = Event(), {"X-API-Key": keys.create("app").text}

    def fail(*_: Any) -> None:
        if trouble == "hangs":
            go_on.wait(TIMEOUT)
        raise StoreUnavailable("away")

    monkeypatch.setattr(Keys, "record_uses", fail)
    with client_of(memory, role=None) as client:
        for _ in range(3):
            assert client.get("/nowhere", headers=sent).status_code == 404
        go_on.set()


def test_a_key_has_a_rate_of_its_own(keys: Keys, memory: Memory) -> None:
    sent = {"X-API-Key": keys.create("app", rate="2/hour").text}
    with client_of(memory, role=None) as client:
        assert [client.get("/nowhere", headers=sent).status_code for _ in range(3)] == [404, 404, 429]


def test_keys_outlive_reset_and_are_another_ledgers_strangers(keys: Keys, memory: Memory, make_memory: Any) -> None:
    text = keys.create("user", user_id="ana").text
    memory.reset()
    assert keys.find(text) is not None
    assert Keys(make_memory()).find(text) is None
    memory.close()
    with pytest.raises(StoreUnavailable):
        keys.find(text)


async def test_mcp_over_http_takes_the_ledgers_keys(keys: Keys, memory: Memory) -> None:
    memory.add("Clara drinks tea.", user_id=ANA)
    mine, others = keys.create("user", user_id=ANA), keys.create("user", user_id="ben")
    application, metrics = keys.create("app"), keys.create("metrics")

    async def total(client: Client) -> int:
        listed = (await client.call_tool("get_memories", {})).structured_content
        assert listed is not None
        count: int = listed["total"]
        return count

    async with serving(memory, find_key=None) as url:
        for text, headers, count in [
            (mine.text, {}, 1), (others.text, {}, 0), (application.text, {"X-Graphmem-User": ANA}, 1),
        ]:  # fmt: skip
            async with http_client(url, text, **headers) as client:
                assert await total(client) == count
        keys.revoke(mine.key.id)
        for text in (mine.text, metrics.text):
            with pytest.raises(ExceptionGroup):
                async with http_client(url, text) as client:
                    await total(client)


def test_the_command_line(tmp_path: Path) -> None:
    def run(*arguments: str, code: int = 0) -> str:
        result = CliRunner().invoke(app, ["keys", *arguments, "--home", str(tmp_path)])
        assert result.exit_code == code, result.output
        return result.stdout

    text = run("create", "--user", "ana", "--label", "phone").strip()
    with Memory(tmp_path) as memory:
        key = Keys(memory).find(text)
    assert key is not None
    assert f"{key.id}  user  user ana  phone" in run("list")
    assert json.loads(run("create", "--role", "app", "--rate", "5/day", "--json"))["key"].startswith("gm_")
    assert "app    5/day" in run("list")
    assert json.loads(run("list", "--json"))[1]["rate"] == "5/day"
    run("create", "--role", "app", "--rate", "much", code=2)
    result = CliRunner().invoke(app, ["keys", "create", "--home", str(tmp_path)])
    assert (result.exit_code, "--user is missing" in result.output) == (2, True)
    run("create", "--user", "ana", "--expires", "2020-01-01", code=2)
    for end, text in {"2099-12-31": "2099-12-31", "2099-12-31T15:59:59+08:00": "2099-12-31 07:59 UTC"}.items():
        run("create", "--role", "app", "--expires", end)
        assert run("list").splitlines()[-1].endswith(f"until {text}")
    assert run("revoke", key.id) == "Revoked.\n"
    assert "revoked" in run("list")
    run("revoke", "unknown", code=1)
