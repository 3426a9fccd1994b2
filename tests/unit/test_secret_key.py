"""The secret key of a ledger's digests: where it is stored, who may open the ledger, and a lost key."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from support.fakes import NOON, fake_models
from support.waiting import TIMEOUT

from graphmem import Memory, Settings, atomic_files
from graphmem.commands.types import DeleteMemory, RenameEntity
from graphmem.digests import Digests
from graphmem.errors import ConfigError, StoreUnavailable
from graphmem.model import Scope
from graphmem.stores.ledger import Ledger, outbox, schema, tombstones
from graphmem.stores.ledger.secret_key import SecretKeySource
from graphmem.stores.networkx_graph import NetworkxIndex
from graphmem.stores.projection import GraphSink, Projection
from graphmem.text import entity_id

CONFIGURED = "0123456789abcdef" * 4
OTHER = "fedcba9876543210" * 4
STORED_MESSAGE = {"role": "user", "content": "I like tea.", "timestamp": "2024-03-01"}
ERASED_MESSAGE = {"role": "user", "content": "My PIN is 4711.", "id": "m1", "timestamp": "2024-03-01"}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def open_memory(home: Path, **config: Any) -> Memory:
    return Memory(home, settings=Settings.from_dict(fake_models(**config)))


def create_home(home: Path, **config: Any) -> None:
    """Creates a ledger with two equal messages, one message with an id, and one erased message."""
    with open_memory(home, **config) as memory:
        memory.add([STORED_MESSAGE, STORED_MESSAGE, {**STORED_MESSAGE, "id": "m0"}], user_id="u")
        memory.delete(memory.add(ERASED_MESSAGE, user_id="u")["results"][0]["id"])


def reasons(memory: Memory, *messages: Any) -> list[str | None]:
    return [one.get("reason") for one in memory.add(list(messages), user_id="u")["results"]]


# --- the place of the key -------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.name == "nt", reason="file modes")
def test_the_key_file_lies_beside_the_ledger_for_its_owner_only(home: Path, tmp_path: Path) -> None:
    create_home(home)
    file = home / "secret.key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    elsewhere = tmp_path / "data" / "mine.sqlite"
    open_memory(tmp_path / "other", history_db_path=str(elsewhere)).close()
    assert (elsewhere.parent / "secret.key").is_file()
    assert not (tmp_path / "other" / "secret.key").exists()


def test_the_ledger_and_its_exports_contain_only_the_keys_id(home: Path, tmp_path: Path) -> None:
    create_home(home)
    with open_memory(home) as memory:
        digests = memory.engine.ledger.digests
        memory.export(tmp_path / "export")
    assert digests.secret.hex() in (home / "secret.key").read_text()
    for file in (home / "ledger.sqlite", tmp_path / "export"):
        content = file.read_bytes()
        assert digests.id.encode() in content
        assert digests.secret.hex().encode() not in content
        assert digests.secret not in content
    assert digests.secret.hex() not in repr(digests)


def test_a_configured_key_is_in_no_file(home: Path) -> None:
    create_home(home, secret_key=CONFIGURED)
    assert not (home / "secret.key").exists()
    with open_memory(home, secret_key=CONFIGURED) as memory:
        assert reasons(memory, STORED_MESSAGE, ERASED_MESSAGE) == ["known", "erased"]
    assert CONFIGURED not in repr(Settings.from_dict({"secret_key": CONFIGURED}))


def test_a_short_configured_key_is_refused(home: Path) -> None:
    with pytest.raises(ConfigError, match="secret_key: is shorter than 32 characters; .*openssl") as caught:
        Settings.from_dict({"secret_key": "four"})
    assert "four" not in str(caught.value)


def test_the_text_of_a_key_file_can_be_configured(home: Path) -> None:
    create_home(home)
    text = (home / "secret.key").read_text()
    (home / "secret.key").unlink()
    with open_memory(home, secret_key=text) as memory:
        assert reasons(memory, STORED_MESSAGE, ERASED_MESSAGE) == ["known", "erased"]
    with pytest.raises(ConfigError, match="secret_key: .*was configured, and none is"):
        open_memory(home)


OPEN = (
    "import sys; from pathlib import Path; from graphmem.stores.ledger import Ledger; "
    "print(Ledger(Path(sys.argv[1])).digests.id)"
)


@pytest.mark.thorough
def test_processes_that_open_at_once_agree_on_one_key(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OPEN]
    files = [tmp_path / name for name in ("a.sqlite", "a.sqlite", "b.sqlite", "b.sqlite")]
    peers = [subprocess.Popen([*command, str(file)], stdout=subprocess.PIPE, text=True) for file in files]
    key_ids = [peer.communicate(timeout=TIMEOUT)[0].strip() for peer in peers]
    assert len(set(key_ids)) == 1
    assert key_ids[0]


def test_the_key_file_is_created_where_unnamed_files_are_not_supported(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(atomic_files, "_UNNAMED", 0)
    create_home(home)
    with open_memory(home) as memory:
        assert reasons(memory, ERASED_MESSAGE) == ["erased"]


# --- a lost or replaced key -----------------------------------------------------------------------------------------


def test_a_lost_key_file_is_logged_and_stored_messages_are_still_recognised(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    create_home(home)
    (home / "secret.key").unlink()
    with open_memory(home) as memory:
        assert [line for line in caplog.messages if "secret key is lost" in line]
        assert memory.stats()["unguarded"] == 1
        assert reasons(memory, STORED_MESSAGE, STORED_MESSAGE, {**STORED_MESSAGE, "id": "m0"}) == ["known"] * 3
        assert reasons(memory, ERASED_MESSAGE) == [None]
        assert memory.verify()["ok"]
    caplog.clear()
    with open_memory(home) as memory:
        assert not caplog.messages
        memory.reset()
        assert memory.stats()["unguarded"] == 0


def test_a_corrected_message_is_recognised_by_its_original_text(home: Path) -> None:
    with open_memory(home) as memory:
        memory.update(memory.add(STORED_MESSAGE, user_id="u")["results"][0]["id"], "I like coffee.")
    (home / "secret.key").unlink()
    with open_memory(home) as memory:
        assert reasons(memory, STORED_MESSAGE) == ["known"]


@pytest.mark.thorough
def test_the_key_file_of_another_ledger_is_refused_until_it_is_removed(home: Path, tmp_path: Path) -> None:
    create_home(home)
    create_home(tmp_path / "other")
    mine = (home / "secret.key").read_bytes()
    for other in ((tmp_path / "other" / "secret.key").read_bytes(), b"", mine[:40], b"something else"):
        (home / "secret.key").write_bytes(other)
        with pytest.raises(ConfigError, match="secret_key: .*secret.key' is no.*; put .* there, or move this one away"):
            open_memory(home)
    (home / "secret.key").write_bytes(mine)
    with open_memory(home) as memory:
        assert reasons(memory, ERASED_MESSAGE) == ["erased"]


def test_an_unreadable_key_file_does_not_count_as_lost(home: Path) -> None:
    create_home(home)
    (home / "secret.key").unlink()
    (home / "secret.key").mkdir()
    with pytest.raises(StoreUnavailable, match="cannot read .*secret.key"):
        open_memory(home)


def test_a_configured_key_is_replaced_on_demand_only(home: Path) -> None:
    create_home(home, secret_key=CONFIGURED)
    with pytest.raises(ConfigError, match="is not the secret .* set replace_secret_key once"):
        open_memory(home, secret_key=OTHER)
    with pytest.raises(ConfigError, match="was configured, and none is"):
        open_memory(home)
    assert not (home / "secret.key").exists()
    with open_memory(home, secret_key=OTHER, replace_secret_key=True) as memory:
        assert memory.stats()["unguarded"] == 1
        assert reasons(memory, STORED_MESSAGE) == ["known"]
    with open_memory(home, secret_key=OTHER) as memory:
        assert memory.stats()["unguarded"] == 1


def test_a_machine_without_the_key_does_not_replace_it_on_a_server(tmp_path: Path) -> None:
    """Another machine may have the key. `test_postgres` checks the same with a PostgreSQL server."""
    mine, theirs = (SecretKeySource(file=tmp_path / name / "secret.key", is_local=False) for name in ("mine", "theirs"))
    place = tmp_path / "ledger.sqlite"
    with closing(Ledger(place, mine)) as ledger:
        digests = ledger.digests
    with pytest.raises(ConfigError, match="another machine .* configure its text as secret_key"):
        Ledger(place, theirs)
    text = (tmp_path / "mine" / "secret.key").read_text()
    with closing(Ledger(place, SecretKeySource(configured=text, is_local=False))) as ledger:
        assert ledger.digests == digests


# --- entities -------------------------------------------------------------------------------------------------------


def entity_tombstones(clerk: Any) -> list[str]:
    return [uid for (uid,) in clerk.rows(select(schema.tombstones.c.uid).where(schema.tombstones.c.kind == "entity"))]


@pytest.fixture
def erase_entity(clerk: Any) -> Callable[[], None]:
    """A function that stores a memory of an entity, renames the entity, and deletes the memory."""

    def erase() -> None:
        record = clerk.say("Zarathustra sleeps", at=NOON)
        clerk.commit(RenameEntity(Scope("alice"), "zarathustra", "Z."))
        clerk.commit(DeleteMemory(record.id))

    return erase


def test_an_entitys_tombstone_is_readable_only_with_the_secret_key(
    clerk: Any, erase_entity: Callable[[], None]
) -> None:
    erase_entity()
    erase_entity()
    name = entity_id("user:alice", "zarathustra")
    tombstone_ids = entity_tombstones(clerk)
    assert len(set(tombstone_ids)) == 2
    assert not [uid for uid in tombstone_ids if name in uid]
    digests = clerk.ledger.digests
    assert [digests.decrypt(uid) for uid in tombstone_ids] == [name, name]
    assert name not in {Digests(digests.ledger, bytes(32)).decrypt(uid) for uid in tombstone_ids}


def test_an_entitys_tombstone_is_removed_once_every_projection_has_received_it(
    clerk: Any, erase_entity: Callable[[], None]
) -> None:
    projections = [
        Projection(name, clerk.ledger, GraphSink(NetworkxIndex()), shared=True, place=place)
        for name, place in (("graph", "a"), ("graph", "b"))
    ]
    for projection in projections:
        projection.catch_up([])
    erase_entity()
    projections[0].catch_up([])
    assert len(entity_tombstones(clerk)) == 1
    projections[1].catch_up([])
    assert entity_tombstones(clerk) == []
    assert not any(any(projection.verify().values()) for projection in projections)


def test_a_lost_key_refills_a_projection_that_lacks_an_entitys_tombstone(tmp_path: Path) -> None:
    place, keyring = tmp_path / "ledger.sqlite", SecretKeySource(file=tmp_path / "secret.key")
    with closing(Ledger(place, keyring)) as ledger, ledger.write() as connection:
        tombstones.add_tombstone(
            connection,
            "entity",
            ledger.digests.encrypt("ab" * 16),
            "s",
            Scope(),
            NOON,
            outbox.next_seq(connection),
        )
        outbox.move_cursor(connection, "behind", 0)
        outbox.move_cursor(connection, "past", 1)
    (tmp_path / "secret.key").unlink()
    with closing(Ledger(place, keyring)) as ledger, ledger.read() as connection:
        assert (outbox.cursor(connection, "behind"), outbox.cursor(connection, "past")) == (None, 1)
        assert tombstones.tombstones_after(connection, -1, 10) == []
