"""Writers of a ledger on PostgreSQL beside each other: nobody waits for another partition, no cursor passes a gap."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from threading import Barrier, Event, Thread
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, text
from support.databases import KEYRING, postgres
from support.fakes import NOON, Clerk
from support.ledger_peers import Peer, opened, sql
from support.waiting import TIMEOUT, wait_until

from graphmem import Memory
from graphmem.commands.dispatch import execute_all
from graphmem.commands.types import ChangeSet, DeleteMemory, UpdateMemory
from graphmem.commands.unit_of_work import UnitOfWork
from graphmem.concurrency import Pool
from graphmem.errors import StoreUnavailable
from graphmem.ingest.messages import message_commands
from graphmem.model import EventType, MemoryRecord, Message, Scope
from graphmem.stores.ledger import Ledger, event_log, events, jobs, outbox
from graphmem.stores.ledger.postgres import MOST_NAMES, parse_url
from graphmem.stores.ledger.sequence import TRANSACTION_BITS
from graphmem.stores.networkx_graph import NetworkxIndex
from graphmem.stores.projection import GraphSink, Projection

psycopg = pytest.importorskip("psycopg")
pytestmark = pytest.mark.server
NAMES = ("ana", "ben", "eva")


@pytest.fixture
def url() -> Iterator[str]:
    with postgres() as new_url:
        yield new_url


@pytest.fixture
def clerk(url: str) -> Iterator[Clerk]:
    with Pool(2, thread_name_prefix="clerk") as pool, closing(Ledger(parse_url(url), KEYRING)) as ledger:
        yield Clerk(ledger, pool)


class Writer:
    """Writes in one partition, in transactions that stay open until they are told to end."""

    def __init__(self, clerk: Clerk, user: str) -> None:
        self.clerk = clerk
        self.scope = Scope(user)
        self._end: ExitStack | None = None
        self._connection: Connection | None = None
        self.first_seq: int | None = None  # of the open transaction
        self.changed: list[MemoryRecord] = []

    @property
    def is_open(self) -> bool:
        return self._end is not None

    def begin(self) -> None:
        self._end = ExitStack()
        self._connection = self._end.enter_context(self.clerk.ledger.write([self.scope.partition]))

    def say(self, text: str) -> MemoryRecord:
        """Adds a memory in the open transaction."""
        (step,) = message_commands([Message("user", text, NOON)], self.scope, self.clerk.ledger.digests)
        uow = UnitOfWork(self._connection, self.clerk.ledger, ChangeSet((step,), NOON), timedelta(minutes=30))
        record = execute_all([step], uow)[0].required_record
        self.changed.append(record)
        if self.first_seq is None:
            self.first_seq = record.seq
        return record

    def commit(self) -> list[MemoryRecord]:
        self._end.close()
        return self._ended()

    def roll_back(self) -> None:
        with suppress(ZeroDivisionError), self._end:
            raise ZeroDivisionError
        self._ended()

    def _ended(self) -> list[MemoryRecord]:
        changed, self.changed = self.changed, []
        self._end = self._connection = self.first_seq = None
        return changed


class Following:
    """A graph that all changes are delivered to, and a name that follows events, on one ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.store = NetworkxIndex()
        self.told: list[str] = []
        self.restart()
        with self._ledger.write(["event"]) as connection:
            event_log.follow(connection, EventType.MEMORY_ADDED, "name")

    def restart(self) -> None:
        """Forgets what only the process knew."""
        self.projection = Projection("graph", self._ledger, GraphSink(self.store), shared=True, leased=True)

    def deliver(self) -> set[str]:
        self.projection.catch_up([])
        return self.held()

    def held(self) -> set[str]:
        return {uid for uid, _ in self.store.list_held()}

    @property
    def cursor(self) -> int:
        with self._ledger.read() as connection:
            return outbox.cursor(connection, "graph") or 0

    def follow(self) -> None:
        """Is told of the next events, as `events_bus.Follower` reads them."""
        place = outbox.follower(EventType.MEMORY_ADDED, "name")
        with self._ledger.write([place]) as connection:
            cursor = outbox.cursor(connection, place)
            last = event_log.last_row(connection, EventType.MEMORY_ADDED)
            found = event_log.after(connection, EventType.MEMORY_ADDED, cursor or 0, 100)
            self.told += [one.event.payload["memory_id"] for one in found]
            event_log.advance(connection, place, max([last, *(one.row for one in found)]))


# --- the feed --------------------------------------------------------------------------------------------------------


def test_no_cursor_passes_a_number_that_is_not_committed_and_all_that_is_gets_delivered(clerk: Clerk) -> None:
    following = Following(clerk.ledger)
    ana, ben = Writer(clerk, "ana"), Writer(clerk, "ben")
    before = clerk.say("I like tea", scope=Scope("ana"))
    assert following.deliver() == {before.id}
    following.follow()
    ana.begin()
    early = ana.say("I like jam")
    ben.begin()
    late = ben.say("I like cake")
    assert early.seq < late.seq
    ben.commit()
    assert following.deliver() == {before.id, late.id}  # at once, though an earlier number is not there
    assert before.seq <= following.cursor < early.seq
    assert not following.projection.has_pending()
    following.follow()
    assert following.told == [before.id]  # in order: the later event waits
    ana.commit()
    assert following.projection.has_pending(["user:ana"])
    assert following.deliver() == {before.id, early.id, late.id}
    assert following.cursor == late.seq
    following.follow()
    assert following.told == [before.id, early.id, late.id]
    assert not any(following.projection.verify().values())


def test_a_number_that_is_rolled_back_holds_up_nothing(clerk: Clerk) -> None:
    following = Following(clerk.ledger)
    ana, ben = Writer(clerk, "ana"), Writer(clerk, "ben")
    ana.begin()
    ana.say("I like jam")
    ben.begin()
    late = ben.say("I like cake")
    ben.commit()
    following.deliver()
    ana.roll_back()
    following.restart()
    assert following.deliver() == {late.id}
    assert following.cursor == late.seq
    following.follow()
    assert following.told == [late.id]


def test_open_transactions_of_other_programs_hold_up_nothing(clerk: Clerk, url: str) -> None:
    following = Following(clerk.ledger)
    with psycopg.connect(url) as stranger:
        stranger.execute("CREATE TABLE public.other AS SELECT 1")  # and idles in its transaction
        said = clerk.say("I like tea")
        assert following.deliver() == {said.id}
        assert following.cursor == said.seq
        following.follow()
        assert following.told == [said.id]
        stranger.rollback()


def test_a_memory_that_changes_while_another_transaction_is_open_is_delivered_in_its_last_state(clerk: Clerk) -> None:
    following = Following(clerk.ledger)
    ana = Writer(clerk, "ana")
    kept, erased = (clerk.say(f"I like {what}", scope=Scope("ben")) for what in ("tea", "cake"))
    following.deliver()
    ana.begin()
    early = ana.say("I like jam")
    clerk.commit(UpdateMemory(kept.id, text="I like milk"), DeleteMemory(erased.id))
    assert following.deliver() == {kept.id}
    assert dict(following.store.list_held()) == {kept.id: clerk.record(kept.id).seq}
    ana.commit()
    assert following.deliver() == {kept.id, early.id}
    assert not any(following.projection.verify().values())


STEPS = st.lists(
    st.tuples(st.sampled_from(["say", "commit", "roll back", "deliver", "follow", "restart"]), st.sampled_from(NAMES)),
    max_size=30,
)


@pytest.mark.thorough
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_any_interleaving_of_writers_and_followers_loses_nothing_and_doubles_no_event(clerk: Clerk, steps: Any) -> None:
    with clerk.ledger.write() as connection:
        for table in ("memories", "events", "tombstones", "jobs", "messages", "vitals", "cursors"):
            connection.execute(text(f"TRUNCATE {table} CASCADE"))
    following = Following(clerk.ledger)
    writers = {name: Writer(clerk, name) for name in NAMES}
    committed: list[MemoryRecord] = []

    def end(writer: Writer, *, by_commit: bool) -> None:
        if writer.is_open and by_commit:
            committed.extend(writer.commit())
        elif writer.is_open:
            writer.roll_back()

    try:
        for n, (step, name) in enumerate(steps):
            writer = writers[name]
            if step == "say":
                if not writer.is_open:
                    writer.begin()
                writer.say(f"{name} says {n}")
            elif step in {"commit", "roll back"}:
                end(writer, by_commit=step == "commit")
            elif step == "restart":
                following.restart()
            elif step == "follow":
                following.follow()
            else:
                assert following.deliver() == {record.id for record in committed}
                assert not following.projection.has_pending()
            open_numbers = [one.first_seq for one in writers.values() if one.first_seq is not None]
            assert following.cursor < min(open_numbers, default=2**62)
            assert set(following.told) <= {record.id for record in committed}
    finally:
        for writer in writers.values():
            end(writer, by_commit=True)
    assert following.deliver() == {record.id for record in committed}
    assert following.cursor == max((record.seq for record in committed), default=0)
    following.follow()
    assert following.told == [record.id for record in sorted(committed, key=lambda record: record.seq)]
    assert not any(following.projection.verify().values())


# --- waiting ---------------------------------------------------------------------------------------------------------


@contextmanager
def lingering(memory: Any, monkeypatch: pytest.MonkeyPatch, user: str) -> Iterator[Callable[[], str]]:
    """Adds a memory of a user in a thread that stays within its transaction; yields what lets it go on, to the id."""
    inside, go_on, ids = Event(), Event(), list[str]()
    real = events.add_first_events

    def waiting(connection: Connection, records: Any, *more: Any, **named: Any) -> Any:
        added = real(connection, records, *more, **named)
        if not inside.is_set():
            inside.set()
            assert go_on.wait(TIMEOUT)
        return added

    monkeypatch.setattr(events, "add_first_events", waiting)
    thread = Thread(target=lambda: ids.append(memory.add("I like jam", user_id=user)["results"][0]["id"]))
    thread.start()
    assert inside.wait(TIMEOUT)

    def finish() -> str:
        go_on.set()
        thread.join(TIMEOUT)
        return ids[0]

    try:
        yield finish
    finally:
        finish()


def test_a_writer_ends_and_is_found_while_one_of_another_partition_is_open(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the same process and in another one, whatever it does with its own partition."""
    with opened(url, tmp_path / "one") as memory, opened(url, tmp_path / "two") as other:

        def found_by(one: Memory, user: str) -> list[str]:
            return [hit["id"] for hit in one.search("what is liked", user_id=user)["results"]]

        with lingering(memory, monkeypatch, "ana") as finish:
            added = memory.add("I like cake", user_id="ben")["results"][0]["id"]
            assert found_by(memory, "ben") == found_by(other, "ben") == [added]
            more = other.add("I like bread", user_id="eva")["results"][0]["id"]
            assert found_by(memory, "eva") == found_by(other, "eva") == [more]
            other.update(more, "I like rolls")
            memory.delete(added)
            assert found_by(memory, "ben") == found_by(other, "ben") == []
            assert found_by(memory, "ana") == []
            late = finish()
        assert found_by(memory, "ana") == found_by(other, "ana") == [late]
        for one in (memory, other):
            one.flush()
            assert one.verify()["ok"]


def test_writers_of_one_partition_wait_for_each_other(url: str, tmp_path: Path, clerk: Clerk) -> None:
    waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    with opened(url, tmp_path / "mine") as memory:
        ana = Writer(clerk, "ana")
        ana.begin()
        first = ana.say("I like jam")
        ids: list[str] = []
        thread = Thread(target=lambda: ids.append(memory.add("I like tea", user_id="ana")["results"][0]["id"]))
        thread.start()
        wait_until(lambda: sql(url, waiting) == [(1,)])
        assert ids == []
        ana.commit()
        thread.join(TIMEOUT)
        second = clerk.record(ids[0])
        assert (first.seq, first.row) < (second.seq, second.row)


def test_lists_over_the_same_partitions_in_any_order_do_not_wait_in_a_circle(clerk: Clerk) -> None:
    start, failed = Barrier(2), list[BaseException]()

    def write(users: tuple[str, ...]) -> None:
        start.wait(TIMEOUT)
        try:
            for n in range(20):
                said = [Message("user", f"{n} of {users}", NOON)]
                steps = [message_commands(said, Scope(user), clerk.ledger.digests)[0] for user in users]
                clerk.commit(*steps)
        except BaseException as error:  # noqa: BLE001  (asserted below)
            failed.append(error)

    threads = [Thread(target=write, args=(users,)) for users in (NAMES, NAMES[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
    assert failed == []
    assert clerk.counts()["memories"] == 2 * 20 * len(NAMES)


def test_a_change_in_very_many_partitions_writes_alone(clerk: Clerk, url: str) -> None:
    held = "SELECT mode FROM pg_locks WHERE locktype = 'advisory'"
    with clerk.ledger.write([f"user:{n}" for n in range(MOST_NAMES + 1)]):
        assert sql(url, held) == [("ExclusiveLock",)]


def test_what_changes_everything_waits_for_all_and_all_for_it(clerk: Clerk, url: str) -> None:
    ana = Writer(clerk, "ana")
    ana.begin()
    ana.say("I like jam")
    done = list[str]()

    def alone() -> None:
        with clerk.ledger.write():
            done.append("alone")

    def beside() -> None:
        clerk.say("I like tea", scope=Scope("ben"))
        done.append("beside")

    threads = [Thread(target=alone), Thread(target=beside)]
    threads[0].start()
    wait_until(lambda: clerk.ledger._database._turns._waiting_for_all == 1)
    threads[1].start()
    assert done == []
    ana.commit()
    for thread in threads:
        thread.join(TIMEOUT)
    assert done == ["alone", "beside"]


# --- queues and ends -------------------------------------------------------------------------------------------------


def test_a_job_that_an_open_transaction_completes_is_left_out_of_a_claim(clerk: Clerk) -> None:
    rows = [clerk.say(f"I like {what}", scope=Scope(what), enrich=False).row for what in ("tea", "cake")]
    with clerk.ledger.write(["user:tea"]) as finishing:
        jobs.complete_enrichments(finishing, rows[:1])
        with clerk.ledger.write(of=()) as claiming:
            assert jobs.claim_enrichments(claiming, rows, "me", 60, by_force=True) == {rows[1]}
    with clerk.ledger.read() as connection:
        assert jobs.unenriched(connection, rows) == {rows[1]}


def test_a_client_that_is_killed_in_its_transaction_holds_up_no_follower(url: str, tmp_path: Path) -> None:
    with opened(url, tmp_path / "mine") as memory:
        following = Following(memory.engine.ledger)
        dying = Peer(url, tmp_path, "linger", "dying")
        dying.go()
        assert dying.answer() == "inside"
        said = memory.add("I like tea", user_id="ben")["results"][0]["id"]
        assert following.deliver() == {said}
        assert following.cursor == 0
        following.follow()
        assert following.told == []
        dying.kill()
        wait_until(lambda: following.deliver() == {said} and following.cursor > 0)
        following.follow()
        assert following.told == [said]


def test_after_a_move_to_a_server_that_counts_from_lower_numbers_go_on(url: str, clerk: Clerk) -> None:
    """As after pg_restore into a new server, whose transactions have other numbers."""
    following = Following(clerk.ledger)
    before = [clerk.say(f"I like {what}") for what in ("tea", "cake")]
    following.deliver()
    following.follow()
    sql(url, "UPDATE graphmem.ledger SET seq_base = seq_base - 100000")
    with closing(Ledger(parse_url(url), KEYRING)):  # the next opening
        pass
    after = clerk.say("I like jam")
    assert after.seq > max(record.seq for record in before)
    assert following.deliver() == {record.id for record in [*before, after]}
    following.follow()
    assert following.told == [record.id for record in [*before, after]]


def test_a_transaction_takes_no_number_of_the_next_one(clerk: Clerk) -> None:
    with pytest.raises(StoreUnavailable, match="more than 1048575 changes in one transaction"):
        with clerk.ledger.write() as connection:
            outbox.next_seqs(connection, 2**TRANSACTION_BITS)
    with clerk.ledger.write() as connection:
        (*_, last) = outbox.next_seqs(connection, 2**TRANSACTION_BITS - 1)
    assert clerk.say("I like tea").seq > last
