"""The exact values of adapters: read back unchanged, in their scope alone, and bound to the memory of their text."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.databases import SQLITE_ONLY
from support.fake_llm import Scripted

from graphmem import Memory
from graphmem.commands.types import DeleteItem, DeleteItems, RefreshItem
from graphmem.errors import ValidationError
from graphmem.integrations.items import ItemStore
from graphmem.model import Scope
from graphmem.stores.ledger import items, schema
from graphmem.testing import ModelEndpoint

ANA, BEN = Scope(user_id="ana", agent_id="app"), Scope(user_id="ben", agent_id="app")
TEA = {"memory": "Ana drinks green tea in the morning.", "n": 1}


@pytest.fixture
def store(memory: Memory) -> ItemStore:
    return ItemStore(memory)


def put(store: ItemStore, key: str, value: Any, text: str | None = None, scope: Scope = ANA, **more: Any) -> None:
    namespace = more.pop("namespace", ("memories",))
    message = None if text is None else {"role": "user", "content": text}
    store.write([store.put_command(scope, namespace, key, value, message=message, **more)])


def value_of(store: ItemStore, key: str, scope: Scope = ANA, namespace: tuple[str, ...] = ("memories",)) -> Any:
    item = store.get(scope, namespace, key)
    return None if item is None else json.loads(item.value)


def memory_of(store: ItemStore, key: str) -> str:
    item = store.get(ANA, ("memories",), key)
    assert item is not None
    assert item.memory_id is not None
    return item.memory_id


def found(store: ItemStore, query: str) -> list[str]:
    store.memory.flush()
    return [hit["memory"] for hit in store.memory.search(query, user_id="ana")["results"]]


def keys_below(store: ItemStore, scope: Scope, namespace: tuple[str, ...]) -> list[str]:
    with store.reading() as connection:
        return [item.key for item in items.latest(connection, scope, namespace, datetime.now(UTC))]


@pytest.mark.parametrize(
    "value",
    [None, 0, 1.0, 2**70, "", "line\nzero \x00 lone \ud800 \x7f é 漢", [], {"a": [1, {"": None}]}, [True, 1, 1.5]],
)
def test_a_value_comes_back_unchanged(store: ItemStore, value: Any) -> None:
    put(store, "k", value)
    back = value_of(store, "k")
    assert json.dumps(back) == json.dumps(value)


@pytest.mark.parametrize("value", [{1: "a"}, {"a": {None: 1}}, float("nan"), {"a": object()}, b"bytes", {1, 2}])
def test_a_value_that_json_would_change_is_refused(store: ItemStore, value: Any) -> None:
    with pytest.raises(ValidationError, match="value"):
        put(store, "k", value)
    assert value_of(store, "k") is None


def nested(levels: int) -> Any:
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


def test_a_value_has_at_most_a_hundred_levels(store: ItemStore) -> None:
    put(store, "k", nested(100))
    assert value_of(store, "k") == nested(100)
    for levels in (101, 900, 100_000):
        with pytest.raises(ValidationError, match="nested too deeply; use at most 100 levels"):
            put(store, "k", nested(levels))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"v": [{"at": datetime.now(UTC)}]}, r"^value\.v\[0\]\.at=<datetime>: datetime is not JSON; convert it to str"),
        ({"v": (1, float("inf"))}, r"^value\.v\[1\]=inf: is not a finite number"),
        ({"v": {1: 2}}, r"^value\.v=<dict>: has a key that is no string"),
        ({"v": 10**5000}, r"^value=<dict>: has an integer of too many digits; store it as a string"),
        ("x" * 10_000_000, r"^value=<10000000 characters>: has 10,000,002 characters as JSON; use at most 10,000,000"),
    ],
)
def test_the_error_for_an_unusable_value_names_the_place_and_the_remedy(
    store: ItemStore, value: Any, message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        put(store, "k", value)


def test_an_import_refuses_a_value_nested_too_deeply(store: ItemStore) -> None:
    record = {"type": "item", "user_id": "ana", "namespace": ["n"], "key": "k", "value": nested(101)}
    with pytest.raises(ValidationError, match="value.*nested too deeply"):
        store.memory.import_([record])


def test_an_item_belongs_to_exactly_its_scope_and_namespace(store: ItemStore) -> None:
    put(store, "k", "ana's")
    put(store, "k", "ben's", scope=BEN)
    put(store, "k", "elsewhere", namespace=("memories", "work"))
    assert [value_of(store, "k"), value_of(store, "k", BEN)] == ["ana's", "ben's"]
    assert value_of(store, "k", namespace=("memories", "work")) == "elsewhere"
    assert value_of(store, "k", Scope(user_id="ana")) is None
    assert value_of(store, "k", Scope(agent_id="app")) is None


def test_items_below_a_namespace_end_at_the_border_of_a_label(store: ItemStore) -> None:
    labels = [("user",), ("user", "a"), ("user2",), ("user\n",), ("use",), ('user"',), ("User",), ("user,", "a")]
    for label in labels:
        put(store, repr(label), 1, namespace=label)
    assert set(keys_below(store, ANA, ("user",))) == {repr(("user",)), repr(("user", "a"))}
    assert len(keys_below(store, ANA, ())) == len(labels)
    assert keys_below(store, BEN, ()) == []


@given(st.lists(st.lists(st.text(min_size=1, max_size=3), min_size=1, max_size=3), min_size=2, max_size=2))
def test_an_encoded_namespace_begins_with_those_above_it_and_no_others(pair: list[list[str]]) -> None:
    above, namespace = pair
    encoded, prefix = items.encode_namespace(namespace), items.encode_namespace(above)
    is_below = encoded == prefix or prefix + '"' <= encoded < prefix + "#"
    assert is_below == (namespace[: len(above)] == above)
    assert items.decode_namespace(encoded) == tuple(namespace)


@SQLITE_ONLY
def test_a_listing_that_is_not_read_to_its_end_does_not_keep_a_memory_from_closing(
    make_memory: Callable[..., Memory], tmp_path: Path
) -> None:
    store = ItemStore(make_memory(tmp_path))
    store.write([store.put_command(ANA, ("chat",), str(n), n) for n in range(3)])
    with store.reading() as connection:
        listing = items.latest(connection, ANA, (), datetime.now(UTC))
        assert next(listing).key == "0"
    store.memory.close()
    assert not (tmp_path / "ledger.sqlite-wal").exists()


def test_an_agents_scope_sees_the_items_of_all_its_users(store: ItemStore) -> None:
    put(store, "a", 1)
    put(store, "b", 2, scope=BEN)
    put(store, "c", 3, scope=Scope(user_id="ana", agent_id="other"))
    assert set(keys_below(store, Scope(agent_id="app"), ())) == {"a", "b"}


def test_the_text_of_an_item_is_found_and_points_to_it(store: ItemStore) -> None:
    put(store, "k", TEA, TEA["memory"])
    assert found(store, "What does Ana drink?") == [TEA["memory"]]
    with store.reading() as connection:
        (item,) = items.of_memories(connection, ANA, ("memories",), [memory_of(store, "k")], datetime.now(UTC))
    assert item.key == "k"


def test_a_new_value_replaces_the_text_and_keeps_the_time_of_creation(store: ItemStore) -> None:
    put(store, "k", TEA, TEA["memory"])
    first = store.get(ANA, ("memories",), "k")
    put(store, "k", 2, "Ana drinks black coffee.")
    second = store.get(ANA, ("memories",), "k")
    assert first is not None
    assert second is not None
    assert second.created_at == first.created_at < second.updated_at
    assert found(store, "What does Ana drink?") == ["Ana drinks black coffee."]
    history = store.memory.history(memory_of(store, "k"))
    assert [(event["event"], event["old_memory"]) for event in history] == [("ADD", None), ("UPDATE", TEA["memory"])]


def test_a_value_without_text_erases_the_memory_of_the_former_one(store: ItemStore) -> None:
    put(store, "k", TEA, TEA["memory"])
    put(store, "k", 2)
    assert value_of(store, "k") == 2
    assert found(store, "What does Ana drink?") == []


def test_deleting_an_item_erases_its_memory(store: ItemStore) -> None:
    put(store, "k", TEA, TEA["memory"])
    store.write([DeleteItem(ANA, ("memories",), "k")])
    assert value_of(store, "k") is None
    assert found(store, "What does Ana drink?") == []


def test_a_deleted_item_can_be_stored_again(store: ItemStore) -> None:
    for _ in range(2):
        put(store, "k", TEA, TEA["memory"])
        store.write([DeleteItem(ANA, ("memories",), "k")])
    put(store, "k", TEA, TEA["memory"])
    assert found(store, "What does Ana drink?") == [TEA["memory"]]


def test_erasing_the_memory_erases_the_item(store: ItemStore) -> None:
    put(store, "k", TEA, TEA["memory"])
    receipt = store.memory.delete(memory_of(store, "k"))
    assert value_of(store, "k") is None
    assert receipt["erased"]["ledger"] == 2


def test_deleting_a_user_deletes_the_items_with_and_without_text(store: ItemStore) -> None:
    put(store, "k", TEA, TEA["memory"])
    put(store, "plain", 1)
    put(store, "k", 1, scope=BEN)
    receipt = store.memory.delete_all(user_id="ana")
    assert keys_below(store, ANA, ()) == []
    assert value_of(store, "k", BEN) == 1
    assert receipt["erased"]["ledger"] == 3


def test_clearing_a_namespace_leaves_the_memories(store: ItemStore) -> None:
    put(store, "k", TEA, TEA["memory"])
    store.write([DeleteItems(ANA, ("memories",))])
    assert value_of(store, "k") is None
    assert found(store, "What does Ana drink?") == [TEA["memory"]]


def test_items_are_read_in_the_order_in_which_they_were_stored(store: ItemStore) -> None:
    store.write([store.put_command(ANA, ("chat",), f"{9 - n}", n) for n in range(10)])
    assert [item.value for item in store.last_stored(ANA, ("chat",))] == [str(n) for n in range(10)]
    assert [item.value for item in store.last_stored(ANA, ("chat",), 3)] == ["7", "8", "9"]


def test_a_batch_that_fails_stores_nothing(store: ItemStore) -> None:
    first = store.put_command(ANA, ("chat",), "1", 1, message={"role": "user", "content": "One.", "id": "m"})
    other = store.put_command(ANA, ("chat",), "2", 2, message={"role": "user", "content": "Two.", "id": "m"})
    with pytest.raises(ValidationError):
        store.write([first, other])
    assert store.last_stored(ANA, ("chat",)) == []


def expire(store: ItemStore, key: str) -> None:
    """Moves the expiration of an item, and of its memory, into the past."""
    past = {"expires_at": 1}
    with store._engine.ledger.write() as connection:
        row = items.find_row(connection, ANA, ("memories",), key)
        assert row is not None
        connection.execute(schema.items.update().where(schema.items.c.id == row.id).values(past))
        if row.memory is not None:
            connection.execute(schema.memories.update().where(schema.memories.c.id == row.memory).values(past))


def test_an_expired_item_is_shown_no_longer_and_deleted_in_the_background(store: ItemStore) -> None:
    put(store, "k", TEA, TEA["memory"], ttl_minutes=5)
    expire(store, "k")
    assert value_of(store, "k") is None
    assert keys_below(store, ANA, ()) == []
    store.memory.flush()
    assert store.memory.stats()["items"] == 0
    assert store.memory.search("tea", user_id="ana", show_expired=True)["results"] == []


def test_an_expired_item_is_new_when_it_is_stored_again(store: ItemStore) -> None:
    put(store, "k", 1, "Ana drinks tea.", ttl_minutes=5)
    before = store.get(ANA, ("memories",), "k")
    expire(store, "k")
    put(store, "k", 2, "Ana drinks coffee.")
    after = store.get(ANA, ("memories",), "k")
    assert before is not None
    assert after is not None
    assert after.created_at > before.created_at
    assert after.memory_id != before.memory_id


def test_an_item_that_was_read_lives_longer_with_its_memory(store: ItemStore) -> None:
    put(store, "k", TEA, TEA["memory"], ttl_minutes=5)
    soon = datetime.now(UTC) + timedelta(minutes=1)
    with store._engine.ledger.write() as connection:
        row = items.find_row(connection, ANA, ("memories",), "k")
        assert row is not None
        items.set_expiration(connection, row.id, soon)
    store.write([RefreshItem(ANA, ("memories",), "k")])
    item = store.get(ANA, ("memories",), "k")
    assert item is not None
    assert item.expires_at is not None
    assert item.expires_at > soon + timedelta(minutes=3)
    record = store.memory.get(memory_of(store, "k"))
    assert record is not None
    assert datetime.fromisoformat(record["expiration_date"]) == item.expires_at
    assert [event["event"] for event in store.memory.history(record["id"])] == ["ADD"]


def test_an_export_carries_items_and_their_memories(make_memory: Callable[..., Memory], store: ItemStore) -> None:
    put(store, "k", TEA, TEA["memory"], ttl_minutes=5)
    put(store, "plain", {"é": [1.0, None]})
    put(store, "k", 1, scope=BEN)
    store.memory.flush()
    file = io.BytesIO()
    assert store.memory.export(file, user_id="ana")["items"] == 2
    file.seek(0)
    other = ItemStore(make_memory())
    assert other.memory.import_(file)["items"] == 2
    assert [other.get(ANA, ("memories",), key) for key in ("k", "plain")] == [
        store.get(ANA, ("memories",), key) for key in ("k", "plain")
    ]
    file.seek(0)
    assert other.memory.import_(file)["items"] == 0


def test_an_item_whose_memory_was_erased_stays_out_of_an_import(store: ItemStore) -> None:
    put(store, "k", TEA, TEA["memory"])
    file = io.BytesIO()
    store.memory.export(file)
    store.memory.delete(memory_of(store, "k"))
    file.seek(0)
    store.memory.import_(file)
    assert value_of(store, "k") is None
    file.seek(0)
    store.memory.import_(file, restore=True)
    assert value_of(store, "k") == TEA


def test_an_imported_item_gets_no_memory_of_another_user(store: ItemStore) -> None:
    other = store.memory.add("Ben likes chess.", user_id="ben")["results"][0]["id"]
    record = {"type": "item", "user_id": "ana", "namespace": ["n"], "key": "k", "value": 1, "memory": other}
    store.memory.import_([record])
    store.memory.delete(other)
    assert value_of(store, "k", Scope(user_id="ana"), ("n",)) == 1


def test_verify_and_reset_count_items(store: ItemStore) -> None:
    put(store, "k", TEA, TEA["memory"])
    store.memory.flush()
    report = store.memory.verify()
    assert report["ok"]
    assert report["ledger"]["items"] == 1
    store.memory.reset()
    assert store.memory.stats()["items"] == 0


def test_facts_are_drawn_from_remembered_messages(make_memory: Callable[..., Memory]) -> None:
    text = "I moved to Lisbon in May."
    with ModelEndpoint(default=Scripted({text: ["Ana moved to Lisbon in May."]})) as endpoint:
        llm = {"provider": "openai", "config": {"model": "m", "openai_base_url": endpoint.url, "api_key": "none"}}
        store = ItemStore(make_memory(llm=llm))
        message = {"role": "user", "content": text, "id": "m1"}
        store.write([store.put_command(ANA, ("chat",), "1", {}, message=message)], extract_for=ANA)
        assert found(store, "Where does Ana live?") == ["Ana moved to Lisbon in May."]


@SQLITE_ONLY
def test_nothing_of_a_deleted_item_stays_in_the_file(make_memory: Callable[..., Memory], tmp_path: Path) -> None:
    memory = make_memory(tmp_path / "home")
    store = ItemStore(memory)
    put(store, "xylophone-key", {"xylophone": "xylophone"}, "Ana plays the xylophone.")
    store.write([DeleteItem(ANA, ("memories",), "xylophone-key")])
    memory.close()
    files = [path for path in (tmp_path / "home").rglob("*") if path.is_file()]
    assert not [path.name for path in files if b"xylophone" in path.read_bytes()]
