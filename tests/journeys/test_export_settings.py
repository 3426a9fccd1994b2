"""Settings and keys of the service in exports of everything: what is restored, what is reported, what stays out."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import pytest
from sqlalchemy import select
from support.ledger_snapshot import contents, exported, same

from graphmem import Memory
from graphmem.errors import ValidationError
from graphmem.service.chat_settings import ChatSettings, SettingsChange, change_settings, settings_in_force
from graphmem.service.keys import Keys, NewKey
from graphmem.stores.ledger.schema import api_keys

Make = Callable[..., Memory]
DEFAULTS = ChatSettings()
SETTING = {"type": "setting", "user_id": "ana", "name": "top_k", "value": 3}
KEY = {"type": "key", "id": "0a1b2c3d", "role": "admin"}


def fill(memory: Memory) -> list[NewKey]:
    """Adds a memory, settings of two users and of all, of which one is removed, and four keys; the last is revoked."""
    memory.add("tea", user_id="ana")
    change_settings(memory, None, SettingsChange(rewrite_prompt="Ask 茶\x85 \x7f.", top_k=4), "0a1b2c3d")
    change_settings(memory, "ana", SettingsChange(save=False, top_k=7), "0a1b2c3d")
    change_settings(memory, "ana", SettingsChange(top_k=None), "4e5f6071")
    change_settings(memory, "bob", SettingsChange(inject="user"), "0a1b2c3d")
    keys = Keys(memory)
    made = [
        keys.create("user", user_id="ana", agent_id="maid", label="phone", expires_at="2099-12-31"),
        keys.create("app", rate="60/minute"),
        keys.create("admin"),
        keys.create("metrics", label="old"),
    ]
    keys.revoke(made[-1].key.id)
    return made


def of_type(memory: Memory, record_type: str, **scope: str) -> list[dict[str, Any]]:
    return [record for record in exported(memory, **scope) if record["type"] == record_type]


def export_bytes(memory: Memory, **scope: str) -> bytes:
    file = io.BytesIO()
    memory.export(file, **scope)
    return file.getvalue()


def import_bytes(memory: Memory, data: bytes, **options: Any) -> dict[str, Any]:
    return dict(memory.import_(io.BytesIO(data), **options))


def test_settings_come_back_and_keys_are_reported(make: Make) -> None:
    memory, target = make(), make()
    made = fill(memory)
    data = export_bytes(memory)
    counts = memory.export(io.BytesIO())
    assert (counts["settings"], counts["keys"]) == (5, 4)
    result = import_bytes(target, data)
    assert (result["added"], result["settings"], result["keys"]) == (1, 5, 3)  # the revoked key is not missed
    same(memory, target)
    for user in (None, "ana", "bob"):
        assert settings_in_force(target, user, DEFAULTS) == settings_in_force(memory, user, DEFAULTS)
    assert Keys(target).all() == []
    assert all(Keys(target).find(key.text) is None for key in made)
    again = import_bytes(target, data)
    assert (again["known"], again["settings"], again["keys"]) == (1, 0, 3)
    home = import_bytes(memory, data)
    assert (home["settings"], home["keys"]) == (0, 0)


def test_a_key_record_has_no_secret_and_no_digest(make: Make) -> None:
    memory = make()
    made = fill(memory)
    phone, app, _, old = of_type(memory, "key")
    assert phone == {
        "type": "key", "id": made[0].key.id, "label": "phone", "role": "user", "user_id": "ana", "agent_id": "maid",
        "rate": None, "created_at": phone["created_at"], "expires_at": "2099-12-31T23:59:59.999999+00:00",
        "revoked_at": None,
    }  # fmt: skip
    assert (app["rate"], app["label"], app["user_id"]) == ("60/minute", None, None)
    assert old["revoked_at"] is not None
    with memory.engine.ledger.read() as connection:
        digests = [bytes(one) for one in connection.scalars(select(api_keys.c.hash))]
    text = export_bytes(memory).decode()
    assert len(digests) == 4
    assert not [digest for digest in digests if digest.hex() in text]
    assert not [key for key in made if key.text.split("_", 2)[2] in text]


def test_an_export_of_a_scope_has_neither(make: Make) -> None:
    memory = make()
    fill(memory)
    for scope in ({"user_id": "ana"}, {"user_id": "ana", "agent_id": "maid"}, {"agent_id": "maid"}):
        assert of_type(memory, "setting", **scope) == of_type(memory, "key", **scope) == []


@pytest.mark.parametrize("record", [SETTING, {**SETTING, "user_id": None}, KEY])
def test_nothing_of_the_service_is_taken_from_an_export_of_a_scope(make: Make, record: dict[str, Any]) -> None:
    memory = make()
    header = {"type": "graphmem", "format": 2, "scope": {"user_id": "ana"}}
    with pytest.raises(ValidationError, match="record 2: type: an export of a scope has no settings, no keys"):
        memory.import_([header, record])
    assert contents(memory)["settings"] == []
    memory.import_([{**header, "scope": None}, record])


def test_settings_that_were_set_or_removed_here_stay(make: Make) -> None:
    memory, target = make(), make()
    fill(memory)
    change_settings(target, None, SettingsChange(top_k=9), "4e5f6071")
    change_settings(target, "bob", SettingsChange(inject="system"), "4e5f6071")
    change_settings(target, "bob", SettingsChange(inject=None), "4e5f6071")
    assert import_bytes(target, export_bytes(memory))["settings"] == 3
    assert settings_in_force(target, None, DEFAULTS).top_k == 9
    assert settings_in_force(target, "bob", DEFAULTS).inject == DEFAULTS.inject
    assert not settings_in_force(target, "ana", DEFAULTS).save


def test_erased_settings_stay_erased_unless_they_are_restored(make: Make) -> None:
    memory = make()
    fill(memory)
    before = export_bytes(memory)
    memory.delete_all(user_id="ana")
    result = import_bytes(memory, before)
    assert (result["erased"], result["settings"]) == (1, 0)
    assert settings_in_force(memory, "ana", DEFAULTS).save
    assert memory.verify()["ok"] and memory.flush() == {"pending": []}
    change_settings(memory, "ana", SettingsChange(rounds=1), "0a1b2c3d")
    later = export_bytes(memory)
    memory.delete_all(user_id="bob")  # who has no memories
    assert import_bytes(memory, before)["settings"] == 0
    assert import_bytes(memory, before, restore=True)["settings"] == 3
    assert not settings_in_force(memory, "ana", DEFAULTS).save
    memory.reset()
    assert import_bytes(memory, later)["settings"] == 4
    assert settings_in_force(memory, "ana", DEFAULTS).rounds == 1


def test_settings_made_after_an_erasure_are_restored(make: Make) -> None:
    """Of another ledger, whose export is later than the erasure here."""
    memory, other = make(), make()
    change_settings(memory, "ana", SettingsChange(rounds=1), "0a1b2c3d")
    memory.delete_all(user_id="ana")
    change_settings(other, "ana", SettingsChange(rounds=3), "0a1b2c3d")
    assert import_bytes(memory, export_bytes(other))["settings"] == 1
    assert settings_in_force(memory, "ana", DEFAULTS).rounds == 3


def test_a_file_of_format_1_is_read(make: Make) -> None:
    """It has neither settings nor keys, and its trailer does not count them."""
    memory, target = make(), make()
    memory.add("tea", user_id="ana")
    header, *lines, end = export_bytes(memory).splitlines(keepends=True)
    body = b"".join([header.replace(b'"format":2', b'"format":1'), *lines])
    trailer = {name: value for name, value in json.loads(end).items() if name not in {"settings", "keys"}}
    trailer["sha256"] = sha256(body).hexdigest()
    data = body + json.dumps(trailer, separators=(",", ":")).encode() + b"\n"
    assert import_bytes(target, data)["added"] == 1
    same(memory, target)
    with pytest.raises(ValidationError, match="altered"):
        import_bytes(target, body + json.dumps({**trailer, "memories": 2}, separators=(",", ":")).encode() + b"\n")


@pytest.mark.parametrize(
    ("record", "error"),
    [
        ({name: value for name, value in SETTING.items() if name != "user_id"}, "user_id: is missing"),
        ({**SETTING, "user_id": ""}, "user_id=''"),
        ({**SETTING, "user_id": "*"}, "user_id='\\*'"),
        ({**SETTING, "value": "x" * 100_000}, "100,002 characters as JSON; use at most 100,000"),
        ({**SETTING, "name": "\n"}, "name="),
        ({**SETTING, "changed_at": "yesterday"}, "changed_at="),
        ({**KEY, "role": "root"}, "role='root'"),
        ({**KEY, "hash": "00"}, "'hash': is not a field"),
        ({**KEY, "rate": "often"}, "rate='often'"),
    ],
    ids=str,
)
def test_unusable_records_are_refused_and_change_nothing(memory: Memory, record: dict[str, Any], error: str) -> None:
    with pytest.raises(ValidationError, match=error):
        memory.import_([record])
    assert contents(memory)["settings"] == []


@pytest.mark.parametrize(
    ("name", "value"), [("top_k", 10**6), ("rounds", 0), ("inject", "assistant"), ("rewrite_prompt", "a\0b\ud800")]
)
def test_an_imported_value_out_of_bounds_is_not_in_force(memory: Memory, name: str, value: Any) -> None:
    assert memory.import_([{**SETTING, "name": name, "value": value}])["settings"] == 1
    assert settings_in_force(memory, "ana", DEFAULTS) == DEFAULTS
    assert exported(memory)[1]["value"] == value
