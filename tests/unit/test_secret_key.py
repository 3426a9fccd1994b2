"""The secret of a ledger's digests: where it is kept, who may open the ledger, what is left without it."""

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
from support.waiting import PATIENCE

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
KEPT = {"role": "user", "content": "I like tea.", "timestamp": "2024-03-01"}
GONE = {"role": "user", "content": "My PIN is 4711.", "id": "m1", "timestamp": "2024-03-01"}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def opened(home: Path, **config: Any) -> Memory:
    return Memory(home, settings=Settings.from_dict(fake_models(**config)))


def lived(home: Path, **config: Any) -> None:
    """Two equal messages and one with an id are kept, one is erased."""
    with opened(home, **config) as memory:
        memory.add([KEPT, KEPT, {**KEPT, "id": "m0"}], user_id="u")
        memory.delete(memory.add(GONE, user_id="u")["results"][0]["id"])


def reasons(memory: Memory, *messages: Any) -> list[str | None]:
    return [one.get("reason") for one in memory.add(list(messages), user_id="u")["results"]]


# --- where it is ----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.name == "nt", reason="file modes")
def test_the_key_file_lies_beside_the_ledger_for_its_owner_only(home: Path, tmp_path: Path) -> None:
    lived(home)
    file = home / "secret.key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    elsewhere = tmp_path / "data" / "mine.sqlite"
    opened(tmp_path / "other", history_db_path=str(elsewhere)).close()
    assert (elsewhere.parent / "secret.key").is_file()
    assert not (tmp_path / "other" / "secret.key").exists()


def test_the_ledger_and_its_exports_contain_only_the_keys_id(home: Path, tmp_path: Path) -> None:
    lived(home)
    with opened(home) as memory:
        told = memory._engine.ledger.digests
        memory.export(tmp_path / "export")
    assert told.secret.hex() in (home / "secret.key").read_text()
    for file in (home / "ledger.sqlite", tmp_path / "export"):
        content = file.read_bytes()
        assert told.id.encode() in content
        assert told.secret.hex().encode() not in content
        assert told.secret not in content
    assert told.secret.hex() not in repr(told)


def test_a_configured_key_is_in_no_file(home: Path) -> None:
    lived(home, secret_key=CONFIGURED)
    assert not (home / "secret.key").exists()
    with opened(home, secret_key=CONFIGURED) as memory:
        assert reasons(memory, KEPT, GONE) == ["known", "erased"]
    assert CONFIGURED not in repr(Settings.from_dict({"secret_key": CONFIGURED}))


def test_a_short_configured_key_is_refused(home: Path) -> None:
    with pytest.raises(ConfigError, match="secret_key: is shorter than 32 characters; .*openssl") as caught:
        Settings.from_dict({"secret_key": "four"})
    assert "four" not in str(caught.value)


def test_the_text_of_a_key_file_can_be_configured(home: Path) -> None:
    lived(home)
    text = (home / "secret.key").read_text()
    (home / "secret.key").unlink()
    with opened(home, secret_key=text) as memory:
        assert reasons(memory, KEPT, GONE) == ["known", "erased"]
    with pytest.raises(ConfigError, match="secret_key: .*was configured, and none is"):
        opened(home)


OPEN = (
    "import sys; from pathlib import Path; from graphmem.stores.ledger import Ledger; "
    "print(Ledger(Path(sys.argv[1])).digests.id)"
)


@pytest.mark.thorough
def test_processes_that_open_at_once_agree_on_one_key(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OPEN]
    files = [tmp_path / name for name in ("a.sqlite", "a.sqlite", "b.sqlite", "b.sqlite")]
    peers = [subprocess.Popen([*command, str(file)], stdout=subprocess.PIPE, text=True) for file in files]
    told = [peer.communicate(timeout=PATIENCE)[0].strip() for peer in peers]
    assert len(set(told)) == 1
    assert told[0]


def test_the_key_file_is_created_where_unnamed_files_are_not_supported(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(atomic_files, "_UNNAMED", 0)
    lived(home)
    with opened(home) as memory:
        assert reasons(memory, GONE) == ["erased"]


# --- without it -----------------------------------------------------------------------------------------------------


def test_a_lost_key_file_is_logged_and_stored_messages_are_still_recognised(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lived(home)
    (home / "secret.key").unlink()
    with opened(home) as memory:
        assert [line for line in caplog.messages if "secret key is lost" in line]
        assert memory.stats()["unguarded"] == 1
        assert reasons(memory, KEPT, KEPT, {**KEPT, "id": "m0"}) == ["known"] * 3
        assert reasons(memory, GONE) == [None]
        assert memory.verify()["ok"]
    caplog.clear()
    with opened(home) as memory:
        assert not caplog.messages
        memory.reset()
        assert memory.stats()["unguarded"] == 0


def test_a_corrected_message_is_recognised_by_its_original_text(home: Path) -> None:
    with opened(home) as memory:
        memory.update(memory.add(KEPT, user_id="u")["results"][0]["id"], "I like coffee.")
    (home / "secret.key").unlink()
    with opened(home) as memory:
        assert reasons(memory, KEPT) == ["known"]


@pytest.mark.thorough
def test_the_key_file_of_another_ledger_is_refused_until_it_is_removed(home: Path, tmp_path: Path) -> None:
    lived(home)
    lived(tmp_path / "other")
    mine = (home / "secret.key").read_bytes()
    for other in ((tmp_path / "other" / "secret.key").read_bytes(), b"", mine[:40], b"something else"):
        (home / "secret.key").write_bytes(other)
        with pytest.raises(ConfigError, match="secret_key: .*secret.key' is no.*; put .* there, or move this one away"):
            opened(home)
    (home / "secret.key").write_bytes(mine)
    with opened(home) as memory:
        assert reasons(memory, GONE) == ["erased"]


def test_an_unreadable_key_file_does_not_count_as_lost(home: Path) -> None:
    lived(home)
    (home / "secret.key").unlink()
    (home / "secret.key").mkdir()
    with pytest.raises(StoreUnavailable, match="cannot read .*secret.key"):
        opened(home)


def test_a_configured_key_is_replaced_on_demand_only(home: Path) -> None:
    lived(home, secret_key=CONFIGURED)
    with pytest.raises(ConfigError, match="is not the secret .* set replace_secret_key once"):
        opened(home, secret_key=OTHER)
    with pytest.raises(ConfigError, match="was configured, and none is"):
        opened(home)
    assert not (home / "secret.key").exists()
    with opened(home, secret_key=OTHER, replace_secret_key=True) as memory:
        assert memory.stats()["unguarded"] == 1
        assert reasons(memory, KEPT) == ["known"]
    with opened(home, secret_key=OTHER) as memory:
        assert memory.stats()["unguarded"] == 1


def test_a_machine_without_the_key_does_not_replace_it_on_a_server(tmp_path: Path) -> None:
    """What `test_postgres` plays with a real one: elsewhere somebody may have the key."""
    mine, theirs = (SecretKeySource(file=tmp_path / name / "secret.key", is_local=False) for name in ("mine", "theirs"))
    place = tmp_path / "ledger.sqlite"
    with closing(Ledger(place, mine)) as ledger:
        known = ledger.digests
    with pytest.raises(ConfigError, match="another machine .* configure its text as secret_key"):
        Ledger(place, theirs)
    text = (tmp_path / "mine" / "secret.key").read_text()
    with closing(Ledger(place, SecretKeySource(configured=text, is_local=False))) as ledger:
        assert ledger.digests == known


# --- entities -------------------------------------------------------------------------------------------------------


def stones(clerk: Any) -> list[str]:
    return [uid for (uid,) in clerk.rows(select(schema.tombstones.c.uid).where(schema.tombstones.c.kind == "entity"))]


@pytest.fixture
def forget(clerk: Any) -> Callable[[], None]:
    """Erases an entity that something was said of."""

    def erased() -> None:
        record = clerk.say("Zarathustra sleeps", at=NOON)
        clerk.commit(RenameEntity(Scope("alice"), "zarathustra", "Z."))
        clerk.commit(DeleteMemory(record.id))

    return erased


def test_an_entitys_tombstone_is_readable_only_with_the_secret_key(clerk: Any, forget: Callable[[], None]) -> None:
    forget()
    forget()
    name = entity_id("user:alice", "zarathustra")
    found = stones(clerk)
    assert len(set(found)) == 2
    assert not [uid for uid in found if name in uid]
    digests = clerk.ledger.digests
    assert [digests.decrypt(uid) for uid in found] == [name, name]
    assert name not in {Digests(digests.ledger, bytes(32)).decrypt(uid) for uid in found}


def test_an_entitys_tombstone_goes_once_every_projection_has_received_it(
    clerk: Any, forget: Callable[[], None]
) -> None:
    copies = [
        Projection(name, clerk.ledger, GraphSink(NetworkxIndex()), shared=True, place=place)
        for name, place in (("graph", "a"), ("graph", "b"))
    ]
    for copy in copies:
        copy.catch_up([])
    forget()
    copies[0].catch_up([])
    assert len(stones(clerk)) == 1
    copies[1].catch_up([])
    assert stones(clerk) == []
    assert not any(any(copy.verify().values()) for copy in copies)


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
