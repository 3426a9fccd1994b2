"""Settings that change while the service runs: who reads and changes whose, and in which order they count."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from starlette.testclient import TestClient
from support.ledger_snapshot import exported
from support.log_guard import listening
from support.service import client_of, headers

from graphmem import Memory
from graphmem.service.chat_settings import ChatSettings, SettingsChange, change_settings, settings_in_force
from graphmem.stores.ledger import schema

Make = Callable[..., Memory]
DEFAULTS = ChatSettings().model_dump()


def get(client: TestClient, user_id: str | None = None, **more: Any) -> dict[str, Any]:
    response = client.get("/settings", params={} if user_id is None else {"user_id": user_id}, **more)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def put(client: TestClient, values: dict[str, Any], user_id: str | None = None, **more: Any) -> dict[str, Any]:
    response = client.put("/settings", params={} if user_id is None else {"user_id": user_id}, json=values, **more)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def test_a_users_settings_come_before_those_of_all_users_and_these_before_the_defaults(client: TestClient) -> None:
    answer = get(client)
    assert (answer["user_id"], answer["settings"], answer["own"]) == (None, DEFAULTS, {})
    put(client, {"top_k": 3, "rounds": 1, "inject": "user"})
    assert put(client, {"top_k": 7, "rewrite_prompt": "Ours."}, "ana")["settings"] == {
        **DEFAULTS,
        "top_k": 7,
        "rounds": 1,
        "inject": "user",
        "rewrite_prompt": "Ours.",
    }
    assert get(client, "bob")["settings"] == {**DEFAULTS, "top_k": 3, "rounds": 1, "inject": "user"}
    assert get(client)["settings"]["top_k"] == 3


def test_an_answer_tells_what_is_inherited_and_from_where(client: TestClient) -> None:
    put(client, {"top_k": 3})
    of_ana = put(client, {"top_k": 7, "rounds": 1}, "ana")["inherited"]
    assert of_ana["top_k"] == {"value": 3, "source": "all_users"}
    assert of_ana["rounds"] == {"value": 2, "source": "configuration"}
    assert of_ana.keys() == DEFAULTS.keys()
    assert get(client)["inherited"]["top_k"] == {"value": 5, "source": "configuration"}


def test_an_answer_tells_the_greatest_values_the_prompt_and_whether_there_is_a_language_model(
    client: TestClient,
) -> None:
    answer = get(client)
    for name, greatest in answer["maxima"].items():
        for value, status in ((greatest, 200), (greatest + 1, 422)):
            body = {name: "x" * value if name == "rewrite_prompt" else value}
            assert client.put("/settings", json=body).status_code == status
    assert "search query" in answer["built_in_prompt"]
    assert answer["language_model"] is False


def test_a_request_comes_before_all_settings(memory: Memory) -> None:
    change_settings(memory, "ana", SettingsChange(top_k=7, rewrite=False), "a key")
    in_force = settings_in_force(memory, "ana", ChatSettings(), top_k=2, rewrite=None, max_chars=9)
    assert (in_force.top_k, in_force.rewrite, in_force.max_chars) == (2, False, 9)


def test_a_change_leaves_the_other_settings_and_null_removes_one(client: TestClient) -> None:
    put(client, {"top_k": 3})
    put(client, {"top_k": 7, "save": False, "recall": False}, "ana")
    settings = put(client, {"top_k": None, "recall": True}, "ana")["settings"]
    assert (settings["top_k"], settings["save"], settings["recall"]) == (3, False, True)
    assert put(client, {}, "ana")["settings"] == settings


def test_each_change_tells_who_made_it_and_when(memory: Memory, client: TestClient) -> None:
    key = headers(memory, "user", user_id="ana")
    put(client, {"top_k": 3}, headers=key)
    put(client, {"rounds": 1}, "ana")
    own = put(client, {"top_k": None}, headers=key)["own"]
    assert own["top_k"]["value"] is None
    assert own["top_k"]["changed_by"] == key["X-API-Key"].split("_")[1]
    assert own["rounds"]["changed_by"] != own["top_k"]["changed_by"]
    assert own["rounds"]["changed_at"] < own["top_k"]["changed_at"]


@pytest.mark.parametrize(
    "values",
    [{"top_k": 0}, {"top_k": 1001}, {"top_k": False}, {"top_k": "5"}, {"top_k": 5.5}, {"max_chars": 0},
     {"max_chars": 20_001}, {"rounds": 0}, {"rounds": 101}, {"rewrite": 1}, {"rewrite": "yes"}, {"recall": "off"},
     {"save": []}, {"inject": "assistant"}, {"rewrite_prompt": ""}, {"rewrite_prompt": " \n"}, {"rewrite_prompt": 7},
     {"rewrite_prompt": "a\0b"}, {"rewrite_prompt": "x" * 20_001}, {"temperature": 1}],
    ids=str,
)  # fmt: skip
def test_an_unusable_value_is_refused_and_changes_nothing(client: TestClient, values: dict[str, Any]) -> None:
    (name,) = values
    response = client.put("/settings", json={"rounds": 3, **values})
    assert response.status_code == 422, response.text
    assert name in response.json()["detail"]
    assert get(client)["settings"] == DEFAULTS


@pytest.mark.parametrize("text", ["xylophone" * 3000, "xylophone\0"])
def test_a_refusal_does_not_repeat_the_prompt_and_no_log_has_it(client: TestClient, text: str) -> None:
    with listening() as listener:
        refused = client.put("/settings", json={"rewrite_prompt": text})
        put(client, {"rewrite_prompt": "xylophone"})
    assert refused.status_code == 422
    assert "xylophone" not in refused.text + str(listener.lines)


def test_an_unknown_parameter_and_an_unusable_user_are_refused(client: TestClient) -> None:
    assert client.get("/settings", params={"agent_id": "a"}).status_code == 422
    assert client.put("/settings", params={"user": "a"}, json={}).status_code == 422
    for user in ("", "x" * 300):
        assert client.put("/settings", params={"user_id": user}, json={"top_k": 1}).status_code == 400
        assert client.get("/settings", params={"user_id": user}).status_code == 400


# --- roles ------------------------------------------------------------------------------------------------------------


def test_a_users_key_has_the_settings_of_this_user_alone(memory: Memory) -> None:
    change_settings(memory, "bob", SettingsChange(top_k=9), "a key")
    with client_of(memory, role="user") as client:
        assert put(client, {"top_k": 3})["user_id"] == "ana"
        assert get(client, "ana") == get(client)
        for method, more in (("GET", {}), ("PUT", {"json": {"top_k": 1}})):
            response = client.request(method, "/settings", params={"user_id": "bob"}, **more)
            assert (response.status_code, response.json()["code"]) == (403, "other_scope")
    assert settings_in_force(memory, "bob", ChatSettings()).top_k == 9
    assert settings_in_force(memory, None, ChatSettings()).top_k == DEFAULTS["top_k"]


def test_a_key_bound_to_an_agent_reads_the_settings_of_its_user_and_does_not_change_them(
    memory: Memory, client: TestClient
) -> None:
    key = headers(memory, "user", user_id="ana", agent_id="Max")
    put(client, {"top_k": 3}, "ana")
    assert get(client, headers=key)["settings"]["top_k"] == 3
    assert client.put("/settings", json={"top_k": 1}, headers=key).status_code == 403
    assert get(client, "ana")["settings"]["top_k"] == 3


def test_an_application_names_the_user(memory: Memory) -> None:
    with client_of(memory, role="app") as client:
        assert client.get("/settings").status_code == 400
        assert client.put("/settings", json={"top_k": 1}).status_code == 400
        put(client, {"top_k": 3}, "bob")
        assert get(client, "bob")["settings"]["top_k"] == 3
    assert settings_in_force(memory, None, ChatSettings()).top_k == DEFAULTS["top_k"]


def test_an_admin_without_a_user_means_all_users_also_where_there_is_a_default_user(memory: Memory) -> None:
    with client_of(memory, default_user="ana") as client:
        assert put(client, {"top_k": 3})["user_id"] is None
    assert settings_in_force(memory, "bob", ChatSettings()).top_k == 3


def test_a_key_for_metrics_has_no_settings(memory: Memory) -> None:
    with client_of(memory, role="metrics") as client:
        assert client.get("/settings").status_code == 403
        assert client.put("/settings", json={}).status_code == 403


# --- processes, erasure -----------------------------------------------------------------------------------------------


def test_a_changed_setting_is_in_force_at_the_next_request_in_another_process(
    make_memory: Make, tmp_path: Path
) -> None:
    first, second = make_memory(tmp_path), make_memory(tmp_path)
    first.add(["I like tea", "I like green tea"], user_id="ana")
    question = {"question": "Do I like tea?", "user_id": "ana"}
    with client_of(first) as one, client_of(second) as other:
        for top_k in (1, 2):
            put(one, {"top_k": top_k}, "ana")
            assert get(other, "ana")["settings"]["top_k"] == top_k
            assert len(other.post("/recall", json=question).json()["results"]) == top_k
        put(other, {"recall": False})
        assert one.post("/recall", json=question).json()["steps"] == []


def test_deleting_a_user_erases_this_users_settings(memory: Memory) -> None:
    for user in ("ana", "bob", None):
        change_settings(memory, user, SettingsChange(rewrite_prompt=f"xylophone of {user}"), "a key")
    memory.delete_all(user_id="ana", agent_id="Max")
    assert settings_in_force(memory, "ana", ChatSettings()).rewrite_prompt == "xylophone of ana"
    memory.delete_all(user_id="ana")
    assert settings_in_force(memory, "ana", ChatSettings()).rewrite_prompt == "xylophone of None"
    assert settings_in_force(memory, "bob", ChatSettings()).rewrite_prompt == "xylophone of bob"
    memory.reset()
    with memory.engine.ledger.read() as connection:
        assert connection.execute(select(schema.settings)).all() == []


def test_the_export_of_a_user_has_no_settings(memory: Memory) -> None:
    change_settings(memory, "ana", SettingsChange(rewrite_prompt="xylophone"), "a key")
    assert "xylophone" not in str(exported(memory, user_id="ana"))


def test_settings_of_a_newer_version_do_no_harm(memory: Memory, client: TestClient) -> None:
    with memory.engine.ledger.write() as connection:
        connection.execute(
            schema.settings.insert().values(user_id="ana", name="mood", value='"good"', changed_by="a key", at=0)
        )
    assert get(client, "ana")["settings"] == DEFAULTS
