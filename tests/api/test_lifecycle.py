"""Cycles of the lifecycle: what fades is forgotten, what matters is kept, all of it is seen before and undone after."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.contract import Make, added, ids, texts
from support.fake_llm import Scripted, fact
from support.ledger_snapshot import contents, exported, same
from support.statement_count import counted
from support.waiting import TIMEOUT

from graphmem import Memory, Settings, concurrency
from graphmem import accesses as access_log
from graphmem.errors import ConfigError, NotFoundError, ValidationError
from graphmem.jobs import cycle as cycles
from graphmem.lifecycle.decay import Brake
from graphmem.memory import delete_together
from graphmem.stores.ledger import memories, vitals
from graphmem.testing import ModelEndpoint

ANA = {"user_id": "ana"}
NOW = datetime(2026, 3, 1, 3, tzinfo=UTC)
DAY = timedelta(days=1)
LIKES, TALK, PLAIN = "I like tea very much.", "The weather was grey at noon.", "We met Clara near the bridge."


def on(**more: Any) -> dict[str, Any]:
    return {"lifecycle": {"enabled": True, "since": "2026-01-01", **more}}


@pytest.fixture
def ripening(make_memory: Make) -> Memory:
    return make_memory(**on())


def said(memory: Memory, age: int, *words: str, **more: Any) -> list[str]:
    """Stores memories that were said so many days before NOW, and returns their ids."""
    at = (NOW - age * DAY).isoformat()
    records = [{"type": "memory", "text": text, "at": at, "created_at": at, **ANA, **more} for text in words]
    records = [{**one, "id": f"00000000-0000-4000-8000-{hash((one['text'], age)) % 10**12:012}"} for one in records]
    memory.import_(records)
    return [str(one["id"]) for one in records]


def tend(memory: Memory, **more: Any) -> dict[str, Any]:
    return dict(memory.tend(**{**ANA, "now": NOW, **more}))


def test_small_talk_is_forgotten_within_days_and_a_preference_is_kept_for_good(ripening: Memory) -> None:
    (talk,), (likes,), (plain,) = said(ripening, 8, TALK), said(ripening, 8, LIKES), said(ripening, 1, PLAIN)
    result = tend(ripening)
    assert {name: result[name] for name in ("processed", "forgotten", "promoted", "decayed", "merged", "skipped")} == {
        "processed": 3, "forgotten": 1, "promoted": 1, "decayed": 1, "merged": 0, "skipped": {},
    }  # fmt: skip
    assert result["saved_bytes"] == len(TALK)
    assert set(ids(ripening.get_all(**ANA))) == {likes, plain}
    assert ripening.get(likes, **ANA)["layer"] == "long_term"
    assert (ripening.get(likes, **ANA)["importance"], ripening.get(likes, **ANA)["memory_type"]) == (0.9, "preference")
    (listed,) = ripening.pending_deletion(**ANA)["results"]
    assert (listed["id"], listed["reason"], listed["importance"]) == (talk, "retention below 0.1", 0.2)
    assert ripening.verify()["ok"]


def test_a_rated_memory_survives_an_export(ripening: Memory, make_memory: Make, tmp_path: Any) -> None:
    (name,) = said(ripening, 1, "My name is Ana.")
    tend(ripening)
    assert ripening.get(name, **ANA)["memory_type"] == "fact"
    ripening.export(tmp_path / "x.jsonl")
    target = make_memory()
    target.import_(tmp_path / "x.jsonl")
    assert target.get(name, **ANA) == ripening.get(name, **ANA)
    assert ids(target.search("name", **ANA, filters={"memory_type": "fact"})) == [name]


def accesses_of(memory: Memory, uid: str) -> list[int]:
    return [row["accesses"] for row in contents(memory)["vitals"] if row["memory"] == uid]


def test_what_is_said_again_on_another_day_is_rehearsed_once(make_memory: Make, tmp_path: Any) -> None:
    """Whoever rates it again, and wherever it goes: it is no news then."""
    rules = tmp_path / "rules.toml"
    rules.write_text('[tea]\nimportance = 0.95\ntype = "fact"\nwords = ["tea"]\n')
    memory = make_memory(tmp_path / "home", **on(daily_at="never"))
    (first,), (again,) = said(memory, 3, LIKES), said(memory, 2, LIKES)
    for _ in range(2):
        tend(memory)
        assert (accesses_of(memory, first), accesses_of(memory, again)) == ([1], [0])
    memory.close()
    memory = make_memory(tmp_path / "home", **on(daily_at="never", rules=str(rules)))
    tend(memory)
    assert memory.get(first)["importance"] == 0.95
    assert (accesses_of(memory, first), accesses_of(memory, again)) == ([1], [0])
    memory.update(first, text="I like tea with milk.", **ANA)
    tend(memory)
    memory.export(tmp_path / "x.jsonl")
    copy = make_memory(**on(daily_at="never"))
    copy.import_(tmp_path / "x.jsonl")
    tend(copy)
    assert accesses_of(copy, first) == accesses_of(memory, first) == [1]


def ripened(memory: Memory) -> tuple[list[str], str]:
    """Stores memories of every state that the lifecycle knows; returns their ids, and that of the cycle."""
    old = said(memory, 8, "I like green tea with milk", TALK, PLAIN)
    often, pinned = said(memory, 2, "The train left late that day.", "Nobody waited for the other one.")
    (merged,) = said(memory, 7, "green tea with milk like I")
    memory.pin(pinned, **ANA)
    for _ in range(3):
        memory.search("The train left late that day.", **ANA, top_k=1)
    memory.forget(often, reason="asked", **ANA)
    result = tend(memory)
    assert (result["merged"], result["forgotten"] - result["merged"], result["promoted"]) == (1, 2, 1)
    memory.search(TALK, **ANA, show_forgotten=True, top_k=1)
    return [*old, often, pinned, merged], str(result["cycle"])


def test_all_that_the_lifecycle_knows_survives_an_export(make_memory: Make, tmp_path: Any) -> None:
    """Also what is only counted in memory when the export begins; a copy goes on where the original was."""
    memory, copy = (make_memory(lifecycle={"enabled": True}) for _ in range(2))
    with memory.engine.ledger.write() as connection:
        vitals.import_since(connection, NOW - 90 * DAY)
    _, cycle = ripened(memory)
    memory.export(tmp_path / "x.jsonl")
    copy.import_(tmp_path / "x.jsonl")
    same(memory, copy)
    assert sum(row["accesses"] for row in contents(copy)["vitals"]) == 5  # one was said again on the next day
    assert [key for key, *_ in contents(copy)["cycles"]] == ["user:ana"]
    assert copy.tend(**ANA, dry_run=True, now=NOW + 9 * DAY) == memory.tend(**ANA, dry_run=True, now=NOW + 9 * DAY)
    assert copy.undo_cycle(cycle, **ANA) == memory.undo_cycle(cycle, **ANA)


def test_an_import_neither_doubles_nor_loses_accesses(make_memory: Make, tmp_path: Any) -> None:
    memory, other = (make_memory(**on()) for _ in range(2))
    (plain,) = said(memory, 1, PLAIN)
    memory.search(PLAIN, **ANA)
    memory.export(tmp_path / "x.jsonl")
    for _ in range(2):
        other.import_(tmp_path / "x.jsonl")
        other.search(PLAIN, **ANA)
    other.flush()
    assert accesses(other) == [3]
    other.delete(plain, **ANA)
    other.import_(tmp_path / "x.jsonl", restore=True)
    assert accesses(other) == [1]
    other.search(PLAIN, **ANA)
    other.reset()
    other.import_(tmp_path / "x.jsonl")
    other.flush()
    assert accesses(other) == [1]


def test_a_record_without_vitals_comes_in_with_the_defaults(ripening: Memory) -> None:
    (talk,) = said(ripening, 8, TALK)
    assert accesses(ripening) == []
    changes = tend(ripening, dry_run=True)["changes"]
    assert [(one["id"], one["reason"]) for one in changes] == [(talk, "retention below 0.1")]


def test_a_text_that_before_store_changes_is_rated_anew(make_memory: Make, tmp_path: Any) -> None:
    memory = make_memory(**on())
    (likes,) = said(memory, 1, LIKES)
    tend(memory)
    memory.export(tmp_path / "x.jsonl")

    other = make_memory(**on(), before_store=lambda message: {**message, "content": TALK})
    other.import_(tmp_path / "x.jsonl")
    tend(other)
    assert other.get(likes, **ANA)["importance"] == 0.2


def test_an_import_leaves_a_ledger_that_has_memories_when_its_lifecycle_began(make_memory: Make, tmp_path: Any) -> None:
    """Otherwise its own memories would fade from a time on at which it was off. Its own cycles count as well."""
    memory, other = make_memory(lifecycle={"enabled": True}), make_memory()
    said(memory, 1, PLAIN)
    tend(memory, now=None)
    memory.export(tmp_path / "all.jsonl")
    said(other, 90, LIKES, user_id="ben")
    other.import_(tmp_path / "all.jsonl")
    assert contents(other)["lifecycle"] == [None]
    assert contents(other)["cycles"] == contents(memory)["cycles"]
    with other.engine.ledger.write() as connection:
        last = vitals.LastCycle(NOW, Brake(4, 8), changed=0)
        vitals.end_cycle(connection, memories.ensure_partition(connection, "user:ana").row, last)
    own = contents(other)["cycles"]
    assert own != contents(memory)["cycles"]
    other.import_(tmp_path / "all.jsonl")
    assert contents(other)["cycles"] == own


def test_the_export_of_a_scope_says_nothing_of_the_ledger(make_memory: Make) -> None:
    memory = make_memory(lifecycle={"enabled": True})
    said(memory, 1, PLAIN)
    said(memory, 1, TALK, run_id="r")
    tend(memory)
    kinds = {name: {record["type"] for record in exported(memory, **scope)} for name, scope in {
        "all": {}, "user": ANA, "run": {**ANA, "run_id": "r"},
    }.items()}  # fmt: skip
    assert {"lifecycle", "cycle"} <= kinds["all"]
    assert kinds["user"] & {"lifecycle", "cycle"} == {"cycle"}
    assert not kinds["run"] & {"lifecycle", "cycle"}
    header = {"type": "graphmem", "format": 2, "scope": ANA}
    with pytest.raises(ValidationError, match="an export of a scope has no settings, no keys and no lifecycle"):
        memory.import_([header, {"type": "lifecycle", "since": 0}])


def test_a_cycle_twice_is_a_cycle_once(ripening: Memory) -> None:
    said(ripening, 8, TALK, LIKES, PLAIN)
    tend(ripening)
    again = tend(ripening)
    assert (again["forgotten"], again["promoted"], again["decayed"]) == (0, 0, 0)


def test_a_dry_run_says_what_the_cycle_then_does_and_changes_nothing(ripening: Memory) -> None:
    said(ripening, 8, TALK, LIKES, PLAIN)
    before = ripening.get_all(**ANA)["total"]
    dry = tend(ripening, dry_run=True)
    assert (dry["cycle"], ripening.get_all(**ANA)["total"]) == (None, before)
    result = tend(ripening)
    for name in ("processed", "forgotten", "promoted", "decayed", "merged"):
        assert dry[name] == result[name], name
    told = {(one["id"], one["change"].upper(), one["reason"]) for one in dry["changes"]}
    done = {
        (uid, event["event"], event["reason"])
        for uid, *_ in told
        for event in ripening.explain(uid, **ANA)["events"]
        if event["event"] in {"FORGET", "PROMOTE"}
    }
    assert told == done


def test_a_cycle_is_undone_as_a_whole(ripening: Memory) -> None:
    (talk, likes, plain) = said(ripening, 8, TALK, LIKES, PLAIN)
    result = tend(ripening)
    undone = ripening.undo_cycle(result["cycle"], **ANA)
    assert (set(undone["undone"]), undone["skipped"]) == ({talk, likes, plain}, 0)
    assert set(ids(ripening.get_all(**ANA))) == {talk, likes, plain}
    assert "layer" not in ripening.get(likes, **ANA)
    assert set(texts(ripening.search("weather", **ANA))) >= {TALK}
    assert ripening.verify()["ok"]
    with pytest.raises(ValidationError, match="cycle: it has been taken back already"):
        ripening.undo_cycle(result["cycle"], **ANA)


def test_a_cycle_that_changed_nothing_and_one_of_which_nothing_can_be_taken_back_say_so(ripening: Memory) -> None:
    said(ripening, 1, PLAIN)
    with pytest.raises(NotFoundError, match="that changed anything in this scope: it found nothing to do"):
        ripening.undo_cycle(tend(ripening)["cycle"], **ANA)
    (talk,) = said(ripening, 8, TALK)
    first = tend(ripening)["cycle"]
    ripening.undo(ripening.pending_deletion(**ANA)["results"][0]["event_id"], **ANA)
    ripening.forget(talk, **ANA)
    with pytest.raises(ValidationError, match="cycle: all that it did was changed again since"):
        ripening.undo_cycle(first, **ANA)
    ripening.delete(talk, **ANA)
    with pytest.raises(ValidationError, match="cycle: all memories that it changed are erased"):
        ripening.undo_cycle(first, **ANA)
    with pytest.raises(NotFoundError, match="no cycle"):
        ripening.undo_cycle(first, user_id="ben")


def test_what_a_cycle_forgot_comes_back_without_a_twin_when_it_is_said_again(ripening: Memory) -> None:
    """Although the cycle has named its type."""
    talk = ripening.add(TALK, **ANA)["results"][0]["id"]
    assert tend(ripening, now="2099-01-01")["forgotten"] == 1
    (again,) = ripening.add(TALK, **ANA)["results"]
    assert (again["id"], again["event"]) == (talk, "REMEMBER")
    assert ripening.get(talk, **ANA)["memory_type"] == "episodic"
    assert tend(ripening, now="2099-01-01")["forgotten"] == 1
    assert ripening.add(TALK, **ANA, memory_type="semantic")["results"][0]["event"] == "ADD"


def test_what_was_changed_since_a_cycle_is_left_out_of_its_undo(ripening: Memory) -> None:
    (talk, likes, plain) = said(ripening, 8, TALK, LIKES, PLAIN)
    result = tend(ripening)
    ripening.delete(talk, **ANA)
    undone = ripening.undo_cycle(result["cycle"], **ANA)
    assert (set(undone["undone"]), undone["skipped"], undone["erased"]) == ({likes, plain}, 0, 1)


def test_another_users_cycle_is_not_found(ripening: Memory) -> None:
    said(ripening, 8, TALK)
    result = tend(ripening)
    for cycle, scope in ((result["cycle"], {"user_id": "ben"}), ("00000000-0000-4000-8000-000000000000", ANA)):
        with pytest.raises(NotFoundError, match="no cycle"):
            ripening.undo_cycle(cycle, **scope)
    assert ripening.pending_deletion(**ANA)["total"] == 1


def test_pinned_and_retired_memories_of_documents_and_other_users_are_left_alone(ripening: Memory) -> None:
    (pinned,) = said(ripening, 30, TALK)
    ripening.pin(pinned, **ANA)
    said(ripening, 30, PLAIN, user_id="ben")
    said(ripening, 30, "Retired words.", valid_to=(NOW - 20 * DAY).isoformat())
    assert tend(ripening)["forgotten"] == 0
    assert ids(ripening.get_all(**ANA)) == [pinned]
    assert ripening.get_all(user_id="ben")["total"] == 1


def test_a_memory_that_is_found_again_and_again_fades_more_slowly(make_memory: Make) -> None:
    memory = make_memory(**on(access_bonus=3))
    (often, never) = said(memory, 6, PLAIN, "The train left late that day.")
    for _ in range(3):
        memory.search(PLAIN, **ANA, top_k=1)
    memory.flush()
    result = tend(memory)
    assert (result["forgotten"], result["promoted"]) == (1, 1)
    assert ids(memory.get_all(**ANA)) == [often]
    assert memory.explain(often, **ANA)["events"][-1]["reason"] == "found 3 times"
    assert memory.pending_deletion(**ANA)["results"][0]["id"] == never


@pytest.mark.parametrize("searches", [20, pytest.param(1_000, marks=pytest.mark.thorough)])
def test_a_search_writes_nothing_and_reads_of_the_past_count_as_no_access(
    ripening: Memory, monkeypatch: pytest.MonkeyPatch, searches: int
) -> None:
    """LIFECYCLE §10: 1,000 searches leave the change number and what is written where they were."""
    monkeypatch.setattr(access_log, "WRITE_SECONDS", 3600.0)
    said(ripening, 1, PLAIN)
    ripening.flush()
    before = ripening.stats()["stores"][0]["seq"]
    with counted() as counts:
        for _ in range(searches):
            ripening.search(PLAIN, **ANA)
        ripening.search(PLAIN, **ANA, as_of=NOW)
        ripening.search(PLAIN, **ANA, explain=True)
    assert counts["writes"] == 0 < counts["statements"]
    assert accesses(ripening) == []
    ripening.flush()
    assert (accesses(ripening), ripening.stats()["stores"][0]["seq"]) == ([searches], before)


def test_accesses_of_an_erased_memory_count_for_no_other(ripening: Memory) -> None:
    talk = added(ripening, TALK, **ANA)
    ripening.search(TALK, **ANA)
    ripening.delete(talk, **ANA)
    added(ripening, PLAIN, **ANA)
    ripening.flush()
    assert accesses(ripening) == []


def test_with_the_lifecycle_off_nothing_is_counted(memory: Memory) -> None:
    memory.add(PLAIN, **ANA)
    memory.search(PLAIN, **ANA)
    memory.flush()
    assert accesses(memory) == []


def accesses(memory: Memory) -> list[int]:
    with memory.engine.ledger.read() as connection:
        return [row[0] for row in connection.exec_driver_sql("SELECT accesses FROM vitals")]


def test_what_is_found_between_decision_and_commit_is_left_out(
    ripening: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    said(ripening, 9, TALK, PLAIN)
    commit = ripening.engine.commit

    def find_before(commands: Any, *scope: Any, **more: Any) -> Any:
        ripening.search(TALK, **ANA, top_k=1)
        ripening.engine.accesses.write()
        return commit(commands, *scope, **more)

    monkeypatch.setattr(ripening.engine, "commit", find_before)
    result = tend(ripening)
    assert result["forgotten"] == 1
    assert result["skipped"] == {"changed": "1 decisions on memories that were changed or found meanwhile"}
    assert texts(ripening.get_all(**ANA)) == [TALK]


@pytest.mark.parametrize("way", ["undo", "undo_cycle", "update"])
def test_a_memory_that_came_back_fades_from_then_on(ripening: Memory, way: str) -> None:
    (talk,) = said(ripening, 9, TALK)
    now = datetime.now(UTC)
    ended = tend(ripening, now=now)
    match way:
        case "undo":
            ripening.undo(ripening.pending_deletion(**ANA)["results"][0]["event_id"], **ANA)
        case "undo_cycle":
            ripening.undo_cycle(ended["cycle"], **ANA)
        case _:
            ripening.update(talk, f"{TALK} It rained.", **ANA)
    assert ids(ripening.get_all(**ANA)) == [talk]
    assert [tend(ripening, now=now + days * DAY)["forgotten"] for days in (0, 3, 9)] == [0, 0, 1]


@pytest.mark.parametrize("step", ["_highest_similarities", "plan_cycle"])
def test_a_memory_that_is_erased_during_a_cycle_does_not_stop_it(
    ripening: Memory, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    said(ripening, 9, TALK)
    (erased,) = said(ripening, 1, PLAIN)
    take_step = getattr(cycles, step)

    def erase_after(*args: Any, **more: Any) -> Any:
        monkeypatch.undo()
        result = take_step(*args, **more)
        ripening.delete(erased, **ANA)
        return result

    monkeypatch.setattr(cycles, step, erase_after)
    assert tend(ripening)["forgotten"] == 1
    assert ripening.get_all(**ANA)["total"] == 0


def test_a_cycle_that_would_forget_too_much_does_nothing_until_it_is_forced(make_memory: Make, tmp_path: Any) -> None:
    memory = make_memory(**on(brake_memories=2))
    said(memory, 20, *(f"Number {n} was nothing much." for n in range(4)))
    said(memory, 1, *(f"Number {n} is new." for n in range(4)))
    result = tend(memory)
    assert result["brake"].startswith("4 of 8 memories would be forgotten at once")
    assert (result["forgotten"], memory.get_all(**ANA)["total"]) == (0, 8)
    plan = tend(memory, dry_run=True)
    assert (plan["brake"], plan["forgotten"], len(plan["changes"])) == (result["brake"], 4, 4)
    held, copy = memory.lifecycle_status(**ANA)["held"], make_memory(**on())
    assert held == {"forgotten": 4, "memories": 8, "reason": result["brake"]}
    memory.export(tmp_path / "x.jsonl")
    copy.import_(tmp_path / "x.jsonl")
    assert copy.lifecycle_status(**ANA)["held"] == held
    assert tend(memory, force=True)["forgotten"] == 4
    assert memory.get_all(**ANA)["total"] == 4
    assert memory.lifecycle_status(**ANA)["held"] is None


def test_the_least_important_go_where_there_are_too_many(make_memory: Make) -> None:
    memory = make_memory(**on(short_term_capacity=2, long_term_capacity=1))
    (talk, plain, plan) = said(memory, 1, TALK, PLAIN, "I plan to learn the piano.")
    (tea,) = said(memory, 9, LIKES)
    (name,) = said(memory, 12, "My name is Ana.")
    tend(memory, force=True)
    assert set(ids(memory.get_all(**ANA))) == {plain, plan, tea}
    reasons = {one["id"]: one["reason"] for one in memory.pending_deletion(**ANA)["results"]}
    assert reasons == {talk: "over capacity", name: "over capacity"}


def test_a_faded_memory_is_merged_into_a_like_one_that_is_kept(ripening: Memory) -> None:
    (kept,) = said(ripening, 8, "I like green tea with milk")
    (like,) = said(ripening, 7, "green tea with milk like I")
    (other,) = said(ripening, 7, PLAIN)
    said(ripening, 6, "green tea with milk like I", agent_id="helper")
    result = tend(ripening)
    assert (result["forgotten"], result["merged"]) == (3, 1)
    reasons = {one["id"]: one["reason"] for one in ripening.pending_deletion(**ANA)["results"]}
    assert reasons[like] == f"merged into {kept}"
    assert reasons[other] == "retention below 0.1"
    ripening.undo_cycle(result["cycle"], **ANA)
    with ripening.engine.ledger.read() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM links").scalar() == 0
    assert ripening.verify()["ok"]


def test_what_was_merged_goes_with_the_memory_that_stands_for_it_but_a_purge_leaves_that(make_memory: Make) -> None:
    for erase in ("delete", "delete both", "purge"):
        memory = make_memory(**on())
        (kept,) = said(memory, 8, "I like green tea with milk")
        (merged,) = said(memory, 7, "green tea with milk like I")
        assert tend(memory)["merged"] == 1
        if erase == "purge":
            receipt = memory.purge(**ANA, confirm=True)
        else:
            receipt = delete_together(
                memory.engine, [kept, merged] if erase == "delete both" else [kept], None, "Deleted."
            )
        assert set(receipt["deleted"]) == ({merged} if erase == "purge" else {kept, merged})
        assert receipt["erased"]["ledger"] == receipt["erased"]["vectors"] == len(receipt["deleted"])
        assert memory.get_all(**ANA, show_forgotten=True)["total"] == 2 - len(receipt["deleted"])
        assert memory.verify()["ok"]


def test_an_old_ledger_is_not_forgotten_on_the_night_it_is_enabled(make_memory: Make) -> None:
    memory = make_memory(lifecycle={"enabled": True})
    said(memory, 100, TALK)
    assert memory.tend(**ANA)["forgotten"] == 0
    assert memory.tend(**ANA, now=datetime.now(UTC) + 4 * DAY)["forgotten"] == 1


def test_a_lifecycle_that_is_off_forgets_nothing_but_shows_what_it_would(memory: Memory) -> None:
    said(memory, 20, TALK, PLAIN)
    with pytest.raises(ConfigError, match=r"lifecycle\.enabled"):
        memory.tend(**ANA)
    assert memory.tend(**ANA, dry_run=True)["forgotten"] == 0  # it would begin today
    later = datetime.now(UTC) + 30 * DAY
    dry = memory.tend(**ANA, dry_run=True, now=later)
    assert len(dry["changes"]) == dry["forgotten"] == 2
    assert memory.get_all(**ANA)["total"] == 2


def test_purge_erases_what_was_forgotten_before_a_time(ripening: Memory) -> None:
    (talk,), (plain,) = said(ripening, 9, TALK), said(ripening, 1, PLAIN)
    tend(ripening)
    with pytest.raises(ValidationError, match=r"^confirm"):
        ripening.purge(**ANA)
    assert ripening.purge(**ANA, forgotten_before="2026-01-01", confirm=True)["deleted"] == []
    receipt = ripening.purge(**ANA, confirm=True)
    assert (receipt["deleted"], receipt["erased"]["ledger"]) == ([talk], 1)
    assert ripening.get_all(**ANA, show_forgotten=True)["total"] == 1
    assert ripening.pending_deletion(**ANA) == {"results": [], "total": 0}
    assert ids(ripening.get_all(**ANA)) == [plain]


# --- what has been forgotten for long ---------------------------------------------------------------------------------


def test_a_cycle_erases_what_has_been_forgotten_for_longer_than_the_setting_says(make_memory: Make) -> None:
    memory = make_memory(**on(purge_after_days=30))
    (talk, likes) = said(memory, 8, TALK, LIKES)
    (by_hand,) = said(memory, 1, PLAIN)
    memory.forget(by_hand, **ANA)  # today, which is long after NOW
    first = tend(memory)
    assert (first["forgotten"], first["purged"]) == (1, 0)
    assert tend(memory, now=NOW + 29 * DAY)["purged"] == 0
    later = NOW + 31 * DAY
    dry = tend(memory, now=later, dry_run=True)
    assert dry["changes"] == [
        {"id": talk, "memory": TALK, "change": "purge", "reason": "forgotten for longer than purge_after_days"}
    ]
    assert dry["purged"] == memory.pending_deletion(**ANA)["total"] - 1 == 1
    second = tend(memory, now=later)
    assert (second["purged"], second["forgotten"], memory.get(talk, **ANA)) == (1, 0, None)
    assert set(ids(memory.get_all(**ANA, show_forgotten=True))) == {likes, by_hand}
    assert [(one["event"], one["memory_id"]) for one in memory.history(talk, **ANA)] == [("DELETE", talk)]
    assert memory.history(talk, user_id="ben") == []
    assert talk not in {row["memory"] for row in contents(memory)["events"]}  # its tombstone says it
    assert memory.verify()["ok"]
    undone = memory.undo_cycle(first["cycle"], **ANA)
    assert (undone["undone"], undone["skipped"], undone["erased"]) == ([likes], 0, 0)
    with pytest.raises(NotFoundError, match="or all that it forgot has been purged"):
        memory.undo_cycle(second["cycle"], **ANA)
    with pytest.raises(NotFoundError, match="no cycle"):
        memory.undo_cycle(second["cycle"], user_id="ben")


def test_other_rules_rate_what_was_rated_by_former_ones(make_memory: Make, tmp_path: Any) -> None:
    """But for what the caller gave: the docs have one look at a dry run first, and then write rules."""
    rules = tmp_path / "rules.toml"
    rules.write_text('[illness]\nimportance = 0.95\ntype = "fact"\nwords = ["migraine"]\n')
    memory = make_memory(tmp_path / "home", **on(daily_at="never"))
    (ill,) = said(memory, 8, "I have a migraine.")
    given = memory.add("The migraine is over.", **ANA, importance=0.1)["results"][0]["id"]
    assert tend(memory, dry_run=True)["changes"][0]["change"] == "forget"
    memory.close()
    memory = make_memory(tmp_path / "home", **on(daily_at="never", rules=str(rules)))
    assert [(one["id"], one["change"]) for one in tend(memory, dry_run=True)["changes"]] == [(ill, "promote")]
    assert (memory.get(ill)["importance"], memory.get(given)["importance"]) == (0.95, 0.1)


def test_a_cycle_commits_little_at_a_time_while_there_are_searches(
    ripening: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that none of them waits long, and does the same as in one commit."""
    committed: list[int] = []
    commit = ripening.engine.commit

    def counted_commit(commands: Any, *scope: Any, **more: Any) -> Any:
        committed.append(len(commands))
        return commit(commands, *scope, **more)

    monkeypatch.setattr(ripening.engine, "commit", counted_commit)
    monkeypatch.setattr(concurrency, "REST", 0.0)
    talk = said(ripening, 8, TALK, "The weather was fine.", "What to eat today?", "I was bored at noon.", "So bored!")
    committed.clear()
    with ripening.engine.search_load.searching():
        result = tend(ripening)
    assert (result["forgotten"], committed) == (5, [2, 2, 1])
    assert set(ripening.undo_cycle(result["cycle"], **ANA)["undone"]) == set(talk)
    monkeypatch.setattr(concurrency, "LATELY", 0.0)  # nobody has searched of late
    committed.clear()
    assert tend(ripening, now="2999-01-01")["forgotten"] == 5
    assert committed == [5]


def test_a_cycle_as_of_a_time_to_come_erases_nothing_before_its_time(make_memory: Make) -> None:
    memory = make_memory(**on(purge_after_days=30))
    (talk,) = said(memory, 8, TALK)
    memory.forget(talk, **ANA)
    assert tend(memory, now="2999-01-01")["purged"] == 0
    assert memory.get(talk, **ANA) is not None


def test_a_cycle_erases_as_a_purge_does(make_memory: Make) -> None:
    """With the source messages of a fact, and without what another one was merged into, or what the brake holds."""
    memory = make_memory(**on(purge_after_days=30, brake_memories=1))
    (kept,) = said(memory, 8, "I like green tea with milk")
    (merged,) = said(memory, 7, "green tea with milk like I")
    (source,) = said(memory, 7, "She moved to Oslo, she said.", source_only=True, role="user")
    drawn = [{"kind": "drawn_from", "memory": source}]
    (drawn_fact,) = said(memory, 7, "Lives in Oslo.", kind="fact", links=drawn, memory_type="episodic")
    assert tend(memory, force=True)["merged"] == 1
    said(memory, -31, "The weather was grey.", TALK)
    held = tend(memory, now=NOW + 40 * DAY)
    assert ("brake" in held, held["purged"]) == (True, 0)
    assert tend(memory, now=NOW + 40 * DAY, dry_run=True)["purged"] == 2
    assert tend(memory, now=NOW + 40 * DAY, force=True)["purged"] == 2
    left = memory.get_all(**ANA, show_forgotten=True, kinds=["episode", "fact"])
    assert kept in ids(left) and not {merged, drawn_fact, source} & set(ids(left))
    assert memory.get(source, **ANA) is None
    assert memory.verify()["ok"]


def test_a_cycle_forgets_at_the_time_that_it_is_given(make_memory: Make) -> None:
    memory = make_memory(**on(purge_after_days=30))
    (talk,) = said(memory, 8, TALK)
    before = datetime.now(UTC)
    tend(memory)
    (listed,) = memory.pending_deletion(**ANA)["results"]
    assert datetime.fromisoformat(listed["forgotten_at"]) == NOW
    assert ids(memory.get_all(**ANA, as_of=NOW - DAY)) == [talk] and ids(memory.get_all(**ANA, as_of=NOW)) == []
    (plain,) = said(memory, 1, PLAIN)
    assert tend(memory, now=before + 3000 * DAY)["forgotten"] == 1  # of a time to come: now
    (listed,) = memory.pending_deletion(**ANA)["results"]
    assert listed["id"] == plain and before < datetime.fromisoformat(listed["forgotten_at"]) < datetime.now(UTC)
    said(memory, 9, "The weather was grey again.")
    assert tend(memory, now=None)["forgotten"] == 1
    latest = memory.pending_deletion(**ANA)["results"][0]["forgotten_at"]
    assert before < datetime.fromisoformat(latest) < datetime.now(UTC)


@pytest.mark.parametrize("nights", [pytest.param(365, marks=pytest.mark.thorough), 60])
def test_a_simulated_year_keeps_what_matters_and_erases_the_rest_month_by_month(make_memory: Make, nights: int) -> None:
    memory = make_memory(**on(purge_after_days=30, daily_at="never", since="2025-01-01"))
    stored = []
    for night in range(0, nights, 1 if nights > 60 else 4):
        at = NOW - (365 - night) * DAY  # of the past: nothing is erased before its time
        said(memory, 365 - night, f"The weather was grey on day {night}.", f"I like song {night}.")
        tend(memory, now=at + DAY / 2, force=True)
        stored.append(memory.get_all(**ANA, show_forgotten=True, as_of=at + DAY)["total"])
        for one in memory.pending_deletion(**ANA)["results"]:
            assert at + DAY / 2 - 30 * DAY <= datetime.fromisoformat(one["forgotten_at"]) <= at + DAY / 2
    talk = [
        one for one in memory.get_all(**ANA, show_forgotten=True, limit=1000)["results"] if "weather" in one["memory"]
    ]
    assert len(talk) <= 36
    assert memory.lifecycle_status(**ANA)["layers"]["long_term"] >= min(100, len(stored) - 9)
    assert memory.verify()["ok"]


# --- the state of the lifecycle ---------------------------------------------------------------------------------------


def cycles_of(memory: Memory, **scope: Any) -> list[tuple[Any, ...]]:
    names = ("cycle", "forgotten", "merged", "promoted", "undone")
    return [tuple(one[name] for name in names) for one in memory.lifecycle_status(**{**ANA, **scope})["cycles"]]  # type: ignore[literal-required]


def test_the_status_counts_memories_by_layer_and_lists_cycles_newest_first(ripening: Memory) -> None:
    (kept,) = said(ripening, 8, "I like green tea with milk")
    said(ripening, 7, "green tea with milk like I", PLAIN)
    (pinned,) = said(ripening, 30, TALK)
    ripening.pin(pinned, **ANA)
    said(ripening, 1, "It is no longer so.", valid_to=(NOW - DAY).isoformat())
    said(ripening, 1, "It has expired.", expires_at=(NOW - DAY).isoformat())
    said(ripening, 1, "It is Ben's.", user_id="ben")
    status: dict[str, Any] = {**ripening.lifecycle_status(**ANA)}
    night = datetime.fromisoformat(status.pop("next_cycle"))
    assert (night.hour, night.minute) == (3, 0) and timedelta() < night - datetime.now(UTC) <= DAY
    assert status == {
        "enabled": True, "layers": {"short_term": 4, "long_term": 0}, "pinned": 1, "forgotten": 0, "cycled_at": None,
        "cycle_changed": None, "lifecycle_since": "2026-01-01T00:00:00.000000+00:00", "held": None,
        "purge_after_days": None, "cycles": [],
    }  # fmt: skip
    first = tend(ripening)["cycle"]
    said(ripening, 9, LIKES, "The train left late that day.")
    second = tend(ripening)["cycle"]
    assert ripening.lifecycle_status(**ANA)["cycle_changed"] == 2
    tend(ripening)
    status = {**ripening.lifecycle_status(**ANA)}
    assert status["cycle_changed"] == 0
    assert (status["layers"], status["pinned"], status["forgotten"]) == ({"short_term": 1, "long_term": 2}, 1, 3)
    assert status["cycled_at"] is not None and status["cycles"][0]["at"] <= status["cycled_at"]
    # The third cycle changed nothing.
    assert cycles_of(ripening) == [(second, 1, 0, 1, False), (first, 2, 1, 1, False)]
    assert [one["cycle"] for one in ripening.lifecycle_status(**ANA, limit=1)["cycles"]] == [second]
    assert ripening.get(kept, **ANA)["layer"] == "long_term"
    assert ripening.lifecycle_status(user_id="ben")["layers"] == {"short_term": 1, "long_term": 0}
    assert cycles_of(ripening, user_id="ben") == []


def test_a_cycle_is_undone_once_nothing_of_it_holds(ripening: Memory) -> None:
    said(ripening, 9, TALK, LIKES)
    cycle = tend(ripening)["cycle"]
    (forgotten,) = ripening.pending_deletion(**ANA)["results"]
    ripening.undo(forgotten["event_id"], **ANA)
    assert cycles_of(ripening) == [(cycle, 1, 0, 1, False)]
    ripening.undo_cycle(cycle, **ANA)
    assert cycles_of(ripening) == [(cycle, 1, 0, 1, True)]
    again = tend(ripening, force=True)["cycle"]  # what is done again by another cycle is that one's
    assert [(one[0], one[-1]) for one in cycles_of(ripening)] == [(again, False), (cycle, True)]
    ripening.delete(forgotten["id"], **ANA)  # erased: counted no more
    assert cycles_of(ripening) == [(again, 0, 0, 1, False), (cycle, 0, 0, 1, True)]


def test_a_narrower_scope_sees_its_part_of_the_cycles(ripening: Memory) -> None:
    said(ripening, 9, TALK, LIKES)
    (run,) = said(ripening, 9, PLAIN, run_id="monday")
    cycle = tend(ripening)["cycle"]
    assert cycles_of(ripening) == [(cycle, 2, 0, 1, False)]
    assert cycles_of(ripening, run_id="monday") == [(cycle, 1, 0, 0, False)]
    status = ripening.lifecycle_status(run_id="monday")
    assert (status["forgotten"], [one["cycle"] for one in status["cycles"]]) == (1, [cycle])
    assert [one["id"] for one in ripening.pending_deletion(run_id="monday")["results"]] == [run]
    assert ripening.lifecycle_status(**ANA, agent_id="helper")["cycles"] == []


def test_the_status_takes_as_many_statements_for_many_cycles_as_for_none(make_memory: Make) -> None:
    memory = make_memory(**on(daily_at="never"))  # nothing runs in the background
    memory.flush()  # nor what opening began
    with counted() as few:
        assert memory.lifecycle_status(**ANA)["next_cycle"] is None
    for n in range(4):
        said(memory, 9 + n, f"Number {n} was nothing much.")
        tend(memory)
    memory.flush()
    with counted() as many:
        assert len(memory.lifecycle_status(**ANA)["cycles"]) == 4
    assert many == few


def test_the_status_of_a_lifecycle_that_is_off_says_so_and_counts_what_is_forgotten(memory: Memory) -> None:
    (plain,) = said(memory, 1, PLAIN)
    memory.forget(plain, **ANA)
    status = memory.lifecycle_status(**ANA)
    assert (status["enabled"], status["forgotten"]) == (False, 1)
    assert status["lifecycle_since"] is status["next_cycle"] is None


def test_a_dry_run_shows_the_words(ripening: Memory) -> None:
    (likes, talk) = said(ripening, 8, LIKES, TALK)
    changes = {one["id"]: (one["change"], one["memory"]) for one in tend(ripening, dry_run=True)["changes"]}
    assert changes == {likes: ("promote", LIKES), talk: ("forget", TALK)}


SCOPELESS: dict[str, Callable[[Memory], Any]] = {
    "lifecycle_status": lambda memory: memory.lifecycle_status(),
    "tend": lambda memory: memory.tend(),
    "purge": lambda memory: memory.purge(confirm=True),
    "pending_deletion": lambda memory: memory.pending_deletion(),
}


@pytest.mark.parametrize("call", SCOPELESS)
def test_no_call_means_everybody(ripening: Memory, call: str) -> None:
    said(ripening, 9, TALK)
    tend(ripening)
    with pytest.raises(ValidationError, match="user_id"):
        SCOPELESS[call](ripening)
    assert ripening.pending_deletion(**ANA)["total"] == 1


def test_a_cycle_is_over_a_whole_user(ripening: Memory) -> None:
    with pytest.raises(ValidationError, match="a cycle runs over all memories of a user"):
        ripening.tend(**ANA, agent_id="helper")
    assert ripening.tend(user_id="nobody")["processed"] == 0


def test_own_rules_and_numbers(make_memory: Make, tmp_path: Any) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text('[bridges]\nimportance = 1\ntype = "fact"\nwords = ["near the bridge"]\n', "utf-8")
    memory = make_memory(**on(rules=str(rules), promote_after_days=2, min_retention=0.5))
    (plain,) = said(memory, 3, PLAIN)
    said(memory, 3, TALK)
    tend(memory)
    assert ids(memory.get_all(**ANA)) == [plain]
    assert memory.get(plain, **ANA)["importance"] == 1
    with pytest.raises(ConfigError, match=r"lifecycle\.min_retention"):
        make_memory(**on(min_retention=2))
    rules.write_text("nonsense = 1", "utf-8")
    with pytest.raises(ConfigError, match=r"nonsense"):
        make_memory(**on(rules=str(rules)))
    with pytest.raises(ConfigError, match=r"nonsense"):
        tend(memory)


# --- like memories --------------------------------------------------------------------------------------------------


def test_one_of_three_that_say_the_same_stands_for_them(ripening: Memory, make_memory: Make) -> None:
    texts_ = ("We walked along the river at dusk.", "At dusk we walked along the river.", "We walked along the river.")
    most, *_ = said(ripening, 1, *texts_)
    (other,) = said(ripening, 1, "We walked along the river with Clara.")
    dry = tend(ripening, dry_run=True)
    result = tend(ripening)
    assert {name: dry[name] for name in ("forgotten", "merged", "promoted")} == {
        name: result[name] for name in ("forgotten", "merged", "promoted")
    } == {"forgotten": 2, "merged": 2, "promoted": 1}  # fmt: skip
    listed = {one["id"]: one for one in ripening.get_all(**ANA)["results"]}
    assert listed.keys() == {other, kept := next(uid for uid in listed if uid != other)}
    assert listed[kept]["layer"] == "long_term"
    assert {one["reason"] for one in ripening.pending_deletion(**ANA)["results"]} == {f"merged into {kept}"}
    assert ripening.explain(kept, **ANA)["events"][-1]["reason"] == "says what 2 others say"
    merged = [one["id"] for one in ripening.pending_deletion(**ANA)["results"]]
    assert sorted(ripening.explain(kept, **ANA)["compresses"]) == sorted(merged)
    assert ripening.explain(merged[0], **ANA)["compressed_by"] == [kept]
    assert (tend(ripening)["merged"], ripening.verify()["ok"]) == (0, True)
    ripening.undo_cycle(result["cycle"], **ANA)
    assert sorted(texts(ripening.get_all(**ANA))) == sorted([*texts_, "We walked along the river with Clara."])
    assert most in ids(ripening.get_all(**ANA))


def test_like_memories_stay_apart_by_settings_and_by_pins(make_memory: Make) -> None:
    memory = make_memory(**on(smallest_cluster=4))
    said(memory, 1, "We walked along the river.", "Along the river we walked.", "We walked along the river again.")
    assert tend(memory)["merged"] == 0
    pinned = make_memory(**on())
    first, *_ = said(pinned, 1, "We walked along the river.", "Along the river we walked.", "We walked along a river.")
    pinned.pin(first, **ANA)
    assert tend(pinned)["merged"] == 0


# --- importance that the caller gives -------------------------------------------------------------------------------


def test_an_importance_that_the_caller_gives_goes_over_rules_and_sums(ripening: Memory, make_memory: Make) -> None:
    talk = added(ripening, TALK, **ANA, importance=0.95)
    plain = added(ripening, PLAIN, **ANA)
    tend(ripening, dry_run=True)
    assert (ripening.get(talk, **ANA)["importance"], ripening.get(talk, **ANA)["memory_type"]) == (0.95, "episodic")
    ripening.update(talk, "The weather is nice.", **ANA)
    tend(ripening, dry_run=True)
    assert ripening.get(talk, **ANA)["importance"] == 0.95
    assert 0.5 < ripening.get(plain, **ANA)["importance"] < 0.95
    file = io.BytesIO()
    ripening.export(file)
    target = make_memory(**on())
    target.import_(io.BytesIO(file.getvalue()))
    tend(target, dry_run=True)
    assert target.get(talk, **ANA) == ripening.get(talk, **ANA)
    for unusable in (1.5, -0.1, "high", True):
        with pytest.raises(ValidationError, match="importance"):
            ripening.add(TALK, **ANA, importance=unusable)


def test_facts_of_a_language_model_have_the_importance_of_their_call(make_memory: Make) -> None:
    with ModelEndpoint(default=json.dumps({"facts": [fact("Saw the weather change")]})) as endpoint:
        config = {"openai_base_url": endpoint.url, "api_key": "any", "model": "importance", "timeout": TIMEOUT}
        memory = make_memory(**on(), llm={"provider": "openai", "config": config})
        memory.add(TALK, **ANA, importance=0.95)
        tend(memory, dry_run=True)
        assert [one["importance"] for one in memory.get_all(**ANA)["results"]] == [0.95]


def test_a_fact_in_a_models_words_is_rated_by_what_the_user_said(ripening: Memory) -> None:
    """Of the rule's type only: not all that stands beside an explicit preference is one."""
    (source,) = said(ripening, 1, "I like fado, and we met Clara.", source_only=True, role="user")
    drawn = {"kind": "fact", "links": [{"kind": "drawn_from", "memory": source}]}
    (likes,) = said(ripening, 1, "Fado music", memory_type="preference", **drawn)
    (met,) = said(ripening, 1, "Met Clara", memory_type="episodic", **drawn)
    tend(ripening)
    assert ripening.get(likes, **ANA)["importance"] == 0.9
    assert ripening.get(met, **ANA)["importance"] != 0.9


@pytest.mark.parametrize("memory_type", ["semantic", "preference"])
def test_what_a_model_drew_of_the_user_is_kept_for_good(make_memory: Make, memory_type: str) -> None:
    """A fact that the model calls semantic is what the seed calls a fact (§2.2), and its own source message does not
    make it common (§3.2).
    """
    model = Scripted({"I am allergic to peanuts.": [fact("Is allergic to peanuts", type=memory_type)]})
    with ModelEndpoint(default=model) as endpoint:
        config = {"openai_base_url": endpoint.url, "api_key": "any", "model": "kept", "timeout": TIMEOUT}
        memory = make_memory(**on(daily_at="never"), llm={"provider": "openai", "config": config})
        at = datetime.now(UTC)
        (drawn,) = ids(memory.add("I am allergic to peanuts.", **ANA, infer=True))
        for day in range(30):
            memory.tend(**ANA, now=at + day * DAY)
        found = memory.get(drawn, **ANA)
        assert found is not None
        assert (found["layer"], found["memory_type"], "forgotten_at" in found) == ("long_term", memory_type, False)


def test_what_an_assistant_says_of_itself_is_rated_by_no_rule(ripening: Memory) -> None:
    (likes,) = said(ripening, 8, "I'm a language model, and I love hiking routes.", role="assistant")
    tend(ripening)
    found = ripening.get(likes, **ANA)
    assert (found["memory_type"], found.get("layer"), "forgotten_at" in found) == ("episodic", None, True)


def test_a_changed_text_gets_another_type_unless_somebody_named_it(ripening: Memory) -> None:
    (talk,), (named,) = said(ripening, 1, TALK), said(ripening, 1, f"{TALK} Again.", memory_type="semantic")
    tend(ripening)
    for uid in (talk, named):
        ripening.update(uid, LIKES, **ANA)
    tend(ripening)
    assert [ripening.get(uid, **ANA)["memory_type"] for uid in (talk, named)] == ["preference", "semantic"]
    assert ripening.get(talk, **ANA)["importance"] == 0.9


def test_an_importance_that_was_given_is_not_raised_by_a_merge(ripening: Memory) -> None:
    (kept,) = said(ripening, 8, "Ana drinks green tea with milk", importance=0.3, memory_type="fact")
    given = {"vitals": {"importance_given": True}, "layer": "long_term"}
    (kept,) = said(ripening, 9, "Ana drinks green tea with milk", importance=0.3, memory_type="fact", **given)
    assert tend(ripening)["merged"] == 1
    assert ripening.get(kept, **ANA)["importance"] == 0.3


def test_the_brake_counts_what_another_memory_is_to_stand_for(make_memory: Make) -> None:
    memory = make_memory(**on(brake_memories=2))
    said(memory, 1, "Ana drinks green tea", "green tea Ana drinks", "drinks green tea, Ana", "Ana drinks, green tea")
    held = tend(memory)
    assert (held["brake"].partition(";")[0], held["merged"]) == ("3 of 4 memories would be forgotten at once", 0)
    assert tend(memory, force=True)["merged"] == 3


@pytest.mark.thorough
def test_room_is_for_what_is_surely_of_a_kind_that_is_kept(tmp_path: Path) -> None:
    """With the encoder that tells the kinds; what somebody gave a type or an importance is not guessed."""
    guessed, sure, given = "No cheese on mine, ever.", "I was raised by my grandparents in Galway.", "Bob sat there."
    settings = Settings.from_dict({"home": str(tmp_path), **on(long_term_capacity=2, daily_at="never")})
    with Memory(settings=settings) as memory:
        said(memory, 40, guessed, sure)
        said(memory, 40, given, importance=0.9, vitals={"importance_given": True})
        memory.flush()
        planned = {one["memory"]: one["change"] for one in tend(memory, dry_run=True)["changes"]}
        assert planned == {guessed: "forget", sure: "promote", given: "promote"}
