"""Behaviour that only a PostgreSQL server shows: several processes, broken connections, other applications' tables."""

from __future__ import annotations

import socket
import sqlite3
import time
import traceback
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import literal, make_url, select, text
from support.databases import KEY, KEYRING, postgres
from support.fakes import fake_models
from support.ledger_peers import Peer, opened, sql
from support.newer_schema import REVISION, use_newer_schema
from support.spellings import DIFFERENT, SAME, WITHOUT_MARKS
from support.waiting import wait_until
from typer.testing import CliRunner

from graphmem import Memory, Settings
from graphmem.cli.app import app
from graphmem.errors import ConfigError, GraphmemError, StoreError, StoreUnavailable, ValidationError
from graphmem.model import EntityType
from graphmem.stores.ledger import Ledger, entity_names, events, outbox, schema
from graphmem.stores.ledger import memories as rows
from graphmem.stores.ledger.postgres import parse_url
from graphmem.stores.ledger.sql import contains_word
from graphmem.stores.networkx_graph import NetworkxIndex
from graphmem.stores.projection import GraphSink, Projection

psycopg = pytest.importorskip("psycopg")
pytestmark = pytest.mark.server


@pytest.fixture
def url() -> Iterator[str]:
    with postgres() as new_url:
        yield new_url


@contextmanager
def ledger_on(url: str) -> Iterator[Ledger]:
    with closing(Ledger(parse_url(url), KEYRING)) as ledger:
        yield ledger


# --- several at once -------------------------------------------------------------------------------------------------


@pytest.mark.quick
def test_two_processes_open_an_empty_database_at_once(url: str, tmp_path: Path) -> None:
    peers = [Peer(url, tmp_path, "open", f"p{n}") for n in range(3)]
    for peer in peers:
        peer.go()
    assert len({peer.answer() for peer in peers}) == 1
    for peer in peers:
        peer.end()
    assert sql(url, "SELECT count(*) FROM graphmem.ledger") == [(1,)]


def test_two_machines_need_one_secret(url: str, tmp_path: Path) -> None:
    def open_on(machine: str, **config: Any) -> Memory:
        return Memory(tmp_path / machine, settings=Settings.from_dict(fake_models(ledger_url=url, **config)))

    message = {"role": "user", "content": "My PIN is 4711", "timestamp": "2024-03-01"}
    with open_on("one") as memory:
        memory.delete(memory.add(message, user_id="u")["results"][0]["id"])
    with pytest.raises(ConfigError, match="secret_key: .*another machine .*configure its text as secret_key on all"):
        open_on("two")
    assert not (tmp_path / "two" / "secret.key").exists()
    key = (tmp_path / "one" / "secret.key").read_text()
    with open_on("two", secret_key=key) as memory:
        assert memory.add(message, user_id="u")["results"][0]["reason"] == "erased"
    with open_on("two", secret_key=KEY, replace_secret_key=True) as memory:
        assert memory.stats()["unguarded"] == 1
        assert memory.add(message, user_id="u")["results"][0]["event"] == "ADD"
    with pytest.raises(ConfigError, match="secret_key: .*was configured, and none is"):
        open_on("one")


@pytest.mark.quick
def test_processes_that_write_at_once_lose_and_double_nothing(url: str, tmp_path: Path) -> None:
    names = ["p0", "p1"]
    peers = [Peer(url, tmp_path, "write", name) for name in names]
    for peer in peers:
        peer.go()
    ids = [uid for peer in peers for uid in peer.answer()]
    for peer in peers:
        peer.end()
    with ledger_on(url) as ledger, ledger.read() as connection:
        records = rows.changed_after(connection, 0, 1000)
        last = outbox.extent(connection).newest
    assert sorted(record.id for record in records) == sorted(ids)
    texts = [record.text for record in records]
    for name in names:  # each process's texts in its order
        mine = [int(one.split()[-1]) for one in texts if one.startswith(name)]
        assert sorted(mine) == list(range(len(ids) // 2))
    numbers = [record.seq for record in records]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] <= last
    with opened(url, tmp_path / "p0") as memory:
        memory.repair()
        assert memory.verify()["ok"]
        assert len(memory.search("says", user_id="u1", top_k=100)["results"]) == len(ids)


def test_no_cursor_passes_a_transaction_that_lingers(url: str, tmp_path: Path) -> None:
    """One transaction has its sequence number and is not committed: later ones wait for it."""
    with ledger_on(url) as ledger:
        copy = NetworkxIndex()
        projection = Projection("graph", ledger, GraphSink(copy), shared=True)
        with opened(url, tmp_path / "mine") as memory:
            delivered_id = memory.add("I like tea", user_id="u1")["results"][0]["id"]
        projection.catch_up([])
        slow, fast = Peer(url, tmp_path, "linger", "slow"), Peer(url, tmp_path, "write", "fast")
        slow.go()
        assert slow.answer() == "inside"
        fast.go()
        for _ in range(5):
            projection.catch_up([])
            time.sleep(0.1)
        assert [uid for uid, _ in copy.list_held()] == [delivered_id]
        slow.go()
        (first,) = slow.answer()
        later = fast.answer()
        for peer in (slow, fast):
            peer.end()
        projection.catch_up([])
        assert {uid for uid, _ in copy.list_held()} == {delivered_id, first, *later}
        assert not projection.has_pending()
        assert projection.verify() == dict.fromkeys(projection.verify(), [])
        with ledger.read() as connection:
            records = rows.records(connection, [first, *later])
        assert records[first].row < min(records[uid].row for uid in later)


def test_a_writer_killed_in_the_middle_leaves_nothing_and_nobody_waits(url: str, tmp_path: Path) -> None:
    with opened(url, tmp_path / "mine") as memory:
        before = memory.add("I like tea", user_id="u1")["results"][0]["id"]
        dying = Peer(url, tmp_path, "linger", "dying")
        dying.go()
        assert dying.answer() == "inside"
        dying.kill()
        after = memory.add("I like cake", user_id="u1")["results"][0]["id"]
        assert {one["id"] for one in memory.get_all(user_id="u1")["results"]} == {before, after}
        assert sql(url, "SELECT count(*) FROM graphmem.events") == [(2,)]
        assert memory.verify()["ok"]


# --- errors ----------------------------------------------------------------------------------------------------------


def terminate(url: str) -> None:
    """Ends every connection to the database but this one."""
    sql(url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
        "AND pid <> pg_backend_pid()")  # fmt: skip


def test_connections_that_were_cut_while_idle_are_replaced_unnoticed(url: str, tmp_path: Path) -> None:
    with opened(url, tmp_path) as memory:
        memory.add("I like tea", user_id="u1")
        terminate(url)
        assert len(memory.search("tea", user_id="u1")["results"]) == 1
        terminate(url)
        memory.add("I like cake", user_id="u1")
        assert memory.get_all(user_id="u1")["total"] == 2


def test_a_connection_that_is_cut_in_a_transaction_is_our_error_and_the_next_call_works(url: str) -> None:
    with ledger_on(url) as ledger:
        with pytest.raises(StoreUnavailable, match="graphmem_test.*terminating connection"), ledger.write() as writing:
            lost = outbox.next_seq(writing)
            terminate(url)
            outbox.next_seq(writing)
        with ledger.write() as writing:
            assert outbox.next_seq(writing) > lost
        with pytest.raises(StoreUnavailable), ledger.read() as reading:
            outbox.extent(reading)
            terminate(url)
            outbox.extent(reading)
        with ledger.read() as reading:
            assert outbox.extent(reading).newest == 0  # no row took one


def format_traceback(error: BaseException) -> str:
    """The traceback as Python prints it, causes included."""
    return "".join(traceback.format_exception(error))


def test_a_wrong_password_is_reported_without_quoting_it(url: str) -> None:
    wrong = make_url(url).set(password="Xanthippe").render_as_string(hide_password=False)
    with suppress(psycopg.OperationalError), psycopg.connect(wrong):
        pytest.skip("this server lets everybody in")
    with pytest.raises(ConfigError, match="password authentication failed") as caught:
        Ledger(parse_url(wrong))
    assert "Xanthippe" not in format_traceback(caught.value)


def test_no_error_quotes_the_values_of_a_row(url: str) -> None:
    with ledger_on(url) as ledger:
        values = {"key": "Xanthippe", "memory": "x", "content_digest": None}
        with pytest.raises(StoreUnavailable, match="duplicate key") as caught, ledger.write() as connection:
            for _ in range(2):
                connection.execute(schema.messages.insert().values(values))
        assert "Xanthippe" not in str(caught.value)


def test_a_database_that_is_not_there_says_so(url: str) -> None:
    with pytest.raises(ConfigError, match="ledger_url: .*nowhere.*does not exist"):
        Ledger(parse_url(make_url(url).set(database="nowhere").render_as_string(hide_password=False)))


def test_a_server_that_is_not_there_or_does_not_answer_is_out_of_reach() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        for closed in (False, True):
            if closed:
                silent.close()
            with pytest.raises(StoreUnavailable, match=f"127.0.0.1:{port}"):
                Ledger(parse_url(f"postgresql://u:secret@127.0.0.1:{port}/db"))


def test_an_option_nobody_knows_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match='ledger_url: invalid connection option "shoesize"'):
        Ledger(parse_url("postgresql://u:secret@h/db?shoesize=44"))


def test_closing_leaves_no_connection_behind(url: str, tmp_path: Path) -> None:
    with opened(url, tmp_path) as memory:
        memory.add("I like tea", user_id="u1")
        memory.search("tea", user_id="u1")
    count = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    wait_until(lambda: sql(url, count) == [(0,)])


# --- schemas and tables ----------------------------------------------------------------------------------------------


@pytest.mark.quick
def test_other_peoples_tables_are_never_touched(url: str, tmp_path: Path) -> None:
    sql(url, "CREATE TABLE public.memories AS SELECT 'theirs' AS x")
    sql(url, "CREATE TABLE public.alembic_version AS SELECT '17' AS version_num")
    with opened(url, tmp_path) as memory:
        memory.add("I like tea", user_id="u1")
        memory.reset()
        assert memory.get_all(user_id="u1")["total"] == 0
    assert sql(url, "SELECT * FROM public.memories") == [("theirs",)]
    assert sql(url, "SELECT * FROM public.alembic_version") == [("17",)]
    tables = sql(url, "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'")
    assert sorted(tables) == [("alembic_version",), ("memories",)]


def test_a_schema_that_was_made_for_us_is_enough(url: str) -> None:
    sql(url, "CREATE SCHEMA graphmem")
    with ledger_on(url) as ledger:
        assert ledger.uuid


def test_a_newer_schema_is_refused_and_says_what_to_do(url: str) -> None:
    Ledger(parse_url(url)).close()
    sql(url, "UPDATE graphmem.alembic_version SET version_num = '9999'")
    with pytest.raises(StoreError, match="9999.*newer.*upgrade"):
        Ledger(parse_url(url))


def test_an_older_schema_is_migrated(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ledger_on(url) as ledger:
        uuid = ledger.uuid
    use_newer_schema(monkeypatch, tmp_path)
    with ledger_on(url) as again:
        assert again.uuid == uuid
    assert sql(url, "SELECT version_num FROM graphmem.alembic_version") == [(REVISION,)]
    assert sql(url, "SELECT * FROM graphmem.lengths") == []


def test_a_database_that_cannot_hold_all_text_is_refused() -> None:
    with postgres("TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'") as url, pytest.raises(StoreError, match="UTF8"):
        Ledger(parse_url(url))


def test_a_word_is_looked_for_in_all_spellings(url: str) -> None:
    with ledger_on(url) as ledger, ledger.read() as connection:

        def contains(text: str, word: str) -> bool:
            return bool(connection.scalar(select(contains_word.of(literal(text), word))))

        pairs = [*SAME, *WITHOUT_MARKS]
        assert [pair for pair in pairs if not (contains(*pair) and contains(*reversed(pair)))] == []
        assert [pair for pair in DIFFERENT if contains(*pair)] == []


# --- the same as on SQLite -------------------------------------------------------------------------------------------

KEYS = ["ann", "ann b", "ann-b", "Ann c", "anna", "änn", "ann ä", "ann Z", "ann a", "ann \U0001f600", "ann \U0010fffe"]


def list_keys_with_prefix(ledger: Ledger, prefix: str) -> list[str]:
    with ledger.write() as connection:
        partition = connection.scalar(select(schema.partitions.c.id)) or rows.ensure_partition(connection, "user:u").row
        if connection.scalar(select(schema.entities.c.id).limit(1)) is None:
            record = {"partition": partition, "name": "x", "type": "Person", "mentions": 1}
            connection.execute(schema.entities.insert(), [{**record, "key": key} for key in KEYS])
            connection.execute(text(MENTIONED))
        return [
            entity.key
            for entity in entity_names.entities_with_prefix(connection, partition, prefix, list(EntityType), 100)
        ]


MENTIONED = (
    "INSERT INTO memories (uid, partition, kind, text, metadata, session, source_only, at, valid_from, created_at, "
    "updated_at, version, seq, windows) SELECT 'm', id, 'episode', 'x', '{}', 's', false, 0, 0, 0, 0, 1, 1, 0 "
    "FROM partitions; INSERT INTO mentions (memory, entity, kind, at) SELECT memories.id, entities.id, 0, 0 "
    "FROM memories, entities"
)


def test_text_is_compared_by_its_bytes_whatever_the_databases_language() -> None:
    with postgres("TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en-US' LOCALE 'C.UTF-8'") as url:
        assert sql(url, "SELECT 'a' < 'Z'") == [(True,)]  # the language's order, not the bytes'
        with ledger_on(url) as ledger:
            for prefix in ("ann", "ann ", "a", "Ä", ""):
                assert list_keys_with_prefix(ledger, prefix) == sorted(key for key in KEYS if key.startswith(prefix))


ODD = ["\x01\x1f\x7f", "a\r\n\tb", "e\u0301 \ufeff\u200b\u2028", "\U0010ffff\ufffe", "%s %(x)s :name $1 \\ ' \" {}"]


@pytest.mark.parametrize("odd", ODD)
def test_odd_text_is_kept_as_it_is(url: str, tmp_path: Path, odd: str) -> None:
    with opened(url, tmp_path) as memory:
        content = f"I like {odd} tea"
        uid = memory.add(content, user_id="u1", metadata={odd: [odd, {"n": 2**70, "x": 1e300}]})["results"][0]["id"]
        record = memory.get(uid)
        assert (record["memory"], record["metadata"]) == (content, {odd: [odd, {"n": 2**70, "x": 1e300}]})
        assert memory.history(uid)[0]["new_memory"] == content


@pytest.mark.parametrize("bad", ["a\x00b", "\ud800"])
def test_text_that_no_store_can_hold_is_refused_before_it_is_sent(url: str, tmp_path: Path, bad: str) -> None:
    with opened(url, tmp_path) as memory:
        for call in (
            lambda: memory.add(bad, user_id="u1"),
            lambda: memory.add("x", user_id=bad),
            lambda: memory.add({"role": "user", "content": "x", "name": bad}, user_id="u1"),
        ):
            with pytest.raises(ValidationError):
                call()
        for call in (
            lambda: memory.add("y", user_id="u1", metadata={"k": bad}),
            lambda: memory.add("y", user_id="u1", metadata={bad: 1}),
            lambda: memory.search(bad, user_id="u1"),
            lambda: memory.entity(bad, user_id="u1"),
            lambda: memory.graph(user_id="u1", entity=bad),
            lambda: memory.get_all(user_id="u1", filters={"k": bad}),
            lambda: memory.get(bad),
        ):
            try:
                call()
            except StoreError as error:
                raise AssertionError(error) from error
            except (GraphmemError, TypeError):
                pass


@pytest.mark.quick
def test_history_reads_as_in_sqlite(url: str, tmp_path: Path) -> None:
    for place, config in ((tmp_path / "pg", {"ledger_url": url}), (tmp_path / "lite", {})):
        with Memory(place, settings=Settings.from_dict(fake_models(**config))) as memory:
            uid = memory.add("I like tea", user_id="u1")["results"][0]["id"]
            memory.update(uid, "I like cake")
            memory.delete(uid)
            listed = memory.history(uid)
            if config:
                with memory.engine.ledger.read() as connection:
                    history = list(events.history(connection, uid))
    with closing(sqlite3.connect(tmp_path / "lite" / "ledger.sqlite")) as lite:
        cursor = lite.execute("SELECT * FROM history")
        names, theirs = [column[0] for column in cursor.description], cursor.fetchall()
    with psycopg.connect(url) as connection:
        cursor = connection.execute("SELECT * FROM graphmem.history")
        assert [column.name for column in cursor.description] == names
        mine = cursor.fetchall()
    assert [(row[2:5], row[7:]) for row in mine] == [(row[2:5], row[7:]) for row in theirs]
    assert [type(value) for row in mine for value in row] == [type(value) for row in theirs for value in row]
    assert [row[5:7] for row in theirs] == [(one["created_at"], one["updated_at"]) for one in listed]
    assert [row[5:7] for row in mine] == [
        (e.created_at.isoformat(timespec="microseconds"), e.updated_at.isoformat(timespec="microseconds"))
        for e in history
    ]


def test_resetting_shrinks_the_database(url: str, tmp_path: Path) -> None:
    with opened(url, tmp_path) as memory:
        memory.add([f"I like tea number {n} " * 20 for n in range(60)], user_id="u1")
        full = memory.stats()["bytes"]
        memory.reset()
        assert 0 < memory.stats()["bytes"] < full


def test_two_homes_with_vectors_of_their_own_share_a_ledger(tmp_path: Path) -> None:
    """Each home's index has a cursor of its own: a delivery to one is none to the other."""
    with postgres() as url:
        one, other = (Memory(tmp_path / home, settings=_settings(url)) for home in ("one", "other"))
        with one, other:
            for number in range(3):
                one.add(f"Anna paints boat {number}", user_id="u")
                other.add(f"Bo sells boat {number}", user_id="u")
                for memory in (one, other):
                    hit_texts = {hit["memory"] for hit in memory.search("boat", user_id="u", top_k=50)["results"]}
                    assert len(hit_texts) == 2 * (number + 1)
            assert one.verify()["ok"]
            assert other.verify()["ok"]


def _settings(url: str) -> Settings:
    return Settings.from_dict(fake_models(ledger_url=url, secret_key=KEY))


def test_a_command_that_reads_makes_no_ledger_in_a_database_without_one(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHMEM_LEDGER_URL", url)
    monkeypatch.setenv("GRAPHMEM_HOME", str(tmp_path / "home"))
    for command in (["list", "--user", "ana"], ["stats"], ["verify"], ["export", "-"], ["delete", "x"]):
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 1, result.output
        assert result.stderr.startswith("graphmem: there is no memory in the database that ledger_url names; ")
        assert make_url(url).password is None or str(make_url(url).password) not in result.stderr
    assert sql(url, "SELECT 1 FROM information_schema.schemata WHERE schema_name = 'graphmem'") == []
    assert list(tmp_path.iterdir()) == []
    with opened(url, tmp_path / "home"):
        pass
    monkeypatch.setenv("GRAPHMEM_SECRET_KEY", KEY)
    monkeypatch.setenv("GRAPHMEM_EXTRACTOR__PROVIDER", "none")
    assert CliRunner().invoke(app, ["stats"]).exit_code == 0
