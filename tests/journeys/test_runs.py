"""A fact that a user repeats in another run is one memory of both runs; deleting one run leaves it in the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.fake_llm import CHANGED, NEAR_DIMS, NONE, UPDATE, Scripted, all_near, fact, shown_facts
from support.fakes import fake_models
from support.ledger_snapshot import exported, same
from support.waiting import TIMEOUT

from graphmem import Memory
from graphmem.errors import NotFoundError, ValidationError
from graphmem.testing import ModelEndpoint

ANN: dict[str, Any] = {"user_id": "ann7"}
ONE, TWO, THREE = ({**ANN, "run_id": run} for run in ("r1", "r2", "r3"))

SISTER, AGAIN, NAMED = "My sister Bea sings.", "Bea, my sister, is a singer.", "My sister Bea sings in Oslo."
PARIS, ROME, TEA = "I live in Paris.", "I moved to Rome.", "I like tea."
SINGS = fact("Has a sister Bea who sings", ("user", "has sister", "Bea"))
FACTS = {
    SISTER: [SINGS],
    AGAIN: [fact("Bea, a sister, is a singer", ("user", "has sister", "Bea"))],
    NAMED: [fact("Has a sister Bea who sings in Oslo", ("user", "has sister", "Bea"))],
    PARIS: [fact("Lives in Paris", ("user", "lives in", "Paris"))],
    ROME: [fact("Moved to Rome", ("user", "lives in", "Rome"))],
    TEA: ["Likes tea"],
}
DECISIONS = {
    ("Bea, a sister, is a singer", "Has a sister Bea who sings"): NONE,
    ("Has a sister Bea who sings in Oslo", "Has a sister Bea who sings"): UPDATE("Has a sister Bea who sings in Oslo"),
    ("Moved to Rome", "Lives in Paris"): CHANGED,
}

Make = Callable[..., Memory]


@pytest.fixture
def model() -> Scripted:
    return Scripted(FACTS, DECISIONS)


@pytest.fixture
def make_with_model(make_memory: Make, model: Scripted) -> Iterator[Make]:
    """Makes memories with this model, in memory or with all stores on servers."""
    with ModelEndpoint(default=model) as endpoint:
        llm = {"openai_base_url": endpoint.url, "api_key": "any", "model": "scripted", "timeout": TIMEOUT}
        embedder = {"provider": "callable", "config": {"embed": all_near, "embedding_dims": NEAR_DIMS, "model": "near"}}

        def make(path: Any = None, **more: Any) -> Memory:
            models = fake_models(llm={"provider": "openai", "config": llm}, embedder=embedder)
            return make_memory(path, **models, summary_messages=0, **more)

        yield make


@pytest.fixture
def memory(make_with_model: Make) -> Memory:
    return make_with_model()


def list_facts(memory: Memory, **scope: Any) -> list[str]:
    return sorted(one["memory"] for one in memory.get_all(**scope, kinds="fact")["results"])


def collect_visibility(memory: Memory, uid: str, **scope: Any) -> set[bool]:
    """Whether a fact about Bea is shown in a scope, by each method that reads: one value if they agree."""
    graph = memory.graph(**scope)
    return {
        uid in [one["id"] for one in memory.get_all(**scope)["results"]],
        uid in [one["id"] for one in memory.search("who sings?", **scope, kinds="fact")["results"]],
        uid in [one["id"] for one in memory.search("Bea", **scope, kinds="fact", as_of="2999-01-01")["results"]],
        uid in [other for one in memory.get_all(**scope)["relations"] for other in one["memory_ids"]],
        memory.get(uid, **scope) is not None,
        bool(memory.history(uid, **scope)),
        "bea" in [one["key"] for one in memory.entities(**scope)] and memory.entity("Bea", **scope) is not None,
        uid in graph and "entity:bea" in graph,
    }


def test_new_facts_are_compared_with_the_users_facts_of_every_run(memory: Memory, model: Scripted) -> None:
    memory.add(SISTER, **ONE)
    memory.add(TEA, **TWO)
    assert [one["text"] for one in shown_facts(model.requests[-1], "memories")] == ["Has a sister Bea who sings"]


@pytest.mark.parametrize(("words", "event"), [(SISTER, "NONE"), (AGAIN, "NONE"), (NAMED, "UPDATE")])
def test_a_fact_repeated_in_another_run_is_one_memory_of_both(memory: Memory, words: str, event: str) -> None:
    (first,) = memory.add(SISTER, **ONE)["results"]
    uid = first["id"]
    assert collect_visibility(memory, uid, **TWO) == {False}
    (repetition,) = memory.add(words, **TWO)["results"]
    assert (repetition["id"], repetition["event"]) == (uid, event)
    for scope in (ANN, ONE, TWO, {"run_id": "r1"}, {"run_id": "r2"}):
        assert collect_visibility(memory, uid, **scope) == {True}, scope
        assert memory.get_all(**scope, kinds="fact")["total"] == 1
    assert collect_visibility(memory, uid, **THREE) == {False}
    shared_fact = memory.get(uid)
    assert shared_fact is not None
    assert (shared_fact["run_id"], shared_fact["further_runs"]) == ("r1", ["r2"])
    assert memory.verify()["ok"]


def test_a_memory_of_one_run_names_no_further_runs(memory: Memory) -> None:
    for scope in (ONE, ONE):
        memory.add(SISTER, **scope)
    (one,) = memory.get_all(**ANN, kinds="fact")["results"]
    assert (one["run_id"], "further_runs" in one) == ("r1", False)


def test_further_runs_are_in_the_order_of_their_messages(memory: Memory) -> None:
    for run in ("r9", "r1", "r5", "r1", "r9", "r3"):
        memory.add(SISTER, **ANN, run_id=run)
    (one,) = memory.get_all(**ANN, kinds="fact")["results"]
    assert (one["run_id"], one["further_runs"]) == ("r9", ["r1", "r5", "r3"])


def test_a_run_shows_no_message_of_another(memory: Memory) -> None:
    uid = memory.add(SISTER, **ONE)["results"][0]["id"]
    memory.add(AGAIN, **TWO)
    list_messages = lambda **scope: [one["content"] for one in memory.explain(uid, **scope)["messages"]]  # noqa: E731
    assert (list_messages(**ONE), list_messages(**TWO), list_messages(**ANN)) == ([SISTER], [AGAIN], [SISTER, AGAIN])


def test_a_message_that_only_another_run_shows_is_not_called_deleted(memory: Memory) -> None:
    uid = memory.add(SISTER, **ONE)["results"][0]["id"]
    memory.add(AGAIN, **TWO)
    memory.delete(memory.explain(uid, **TWO)["messages"][0]["memory_id"])
    explained = memory.explain(uid, **TWO)
    assert (explained["messages"], "note" in explained) == ([], False)


def test_a_contradiction_in_another_run_retires_the_fact(memory: Memory) -> None:
    old = memory.add(PARIS, **ONE)["results"][0]["id"]
    new = memory.add(ROME, **TWO)["results"][0]["id"]
    assert (list_facts(memory, **ANN), list_facts(memory, **ONE)) == (["Moved to Rome"], [])
    assert (memory.explain(new)["replaces"], memory.explain(new, **TWO)["replaces"]) == ([old], [])


def test_other_agents_and_other_users_stay_apart(memory: Memory, model: Scripted) -> None:
    memory.add(SISTER, **ONE, agent_id="bot")
    for scope in (
        {"user_id": "bob", "run_id": "r1"},
        {**TWO, "agent_id": "other"},
        {"agent_id": "bot", "run_id": "r2"},
    ):
        (one,) = memory.add(SISTER, **scope)["results"]
        assert one["event"] == "ADD"
        assert memory.get(one["id"])["run_id"] == scope["run_id"]  # type: ignore[index]
    assert not [one for one in model.requests if one.get("memories")]
    assert [one["user_id"] for one in memory.get_all(run_id="r2", kinds="fact")["results"]] == [None, "ann7"]


def test_a_further_run_makes_nothing_visible_to_another_user(memory: Memory) -> None:
    uid = memory.add(SISTER, **ONE)["results"][0]["id"]
    memory.add(SISTER, **TWO)
    memory.add(TEA, user_id="bob", run_id="r2")
    assert collect_visibility(memory, uid, user_id="bob", run_id="r2") == {False}
    with pytest.raises(NotFoundError):
        memory.delete(uid, user_id="bob", run_id="r2")
    assert memory.delete_all(user_id="bob", run_id="r2")["deleted"]
    assert memory.get(uid)["further_runs"] == ["r2"]  # type: ignore[index]


# --- deleting a run --------------------------------------------------------------------------------------------------


def test_deleting_a_run_that_repeated_a_fact_keeps_the_fact(memory: Memory) -> None:
    uid = memory.add(SISTER, **ONE)["results"][0]["id"]
    memory.add(AGAIN, **TWO)
    memory.add(TEA, **TWO)
    receipt = memory.delete_all(**TWO)
    assert (len(receipt["deleted"]), uid in receipt["deleted"]) == (3, False)
    assert (collect_visibility(memory, uid, **ONE), collect_visibility(memory, uid, **TWO)) == ({True}, {False})
    assert memory.get_all(**TWO, kinds=["fact", "episode"])["total"] == 0
    remaining_fact = memory.get(uid)
    assert remaining_fact is not None
    assert (remaining_fact["run_id"], "further_runs" in remaining_fact) == ("r1", False)
    assert [one["content"] for one in memory.explain(uid)["messages"]] == [SISTER]
    assert memory.verify()["ok"]


def test_after_the_deletion_of_its_own_run_a_fact_belongs_to_the_next(memory: Memory) -> None:
    uid = memory.add(SISTER, **ONE)["results"][0]["id"]
    memory.add(AGAIN, **TWO)
    memory.add(SISTER, **THREE)
    assert uid not in memory.delete_all(run_id="r1")["deleted"]
    remaining_fact = memory.get(uid)
    assert remaining_fact is not None
    assert (remaining_fact["run_id"], remaining_fact["further_runs"], remaining_fact["session"]) == ("r2", ["r3"], "r2")
    assert (
        collect_visibility(memory, uid, **ONE),
        collect_visibility(memory, uid, **TWO),
        collect_visibility(memory, uid, **THREE),
    ) == ({False}, {True}, {True})
    memory.delete_all(**TWO)
    assert uid in memory.delete_all(**THREE)["deleted"]
    assert memory.get(uid) is None
    assert memory.verify()["ok"]


def test_a_fact_first_stated_outside_of_runs_outlives_the_runs(memory: Memory) -> None:
    uid = memory.add(SISTER, **ANN)["results"][0]["id"]
    memory.add(SISTER, **ONE)
    assert (collect_visibility(memory, uid, **ANN), collect_visibility(memory, uid, **ONE)) == ({True}, {True})
    shared_fact = memory.get(uid)
    assert shared_fact is not None
    assert (shared_fact["run_id"], shared_fact["further_runs"]) == (None, ["r1"])
    memory.delete_all(**ONE)
    assert (list_facts(memory, **ANN), list_facts(memory, **ONE)) == (["Has a sister Bea who sings"], [])


def test_a_fact_repeated_outside_of_runs_outlives_its_own_run(memory: Memory) -> None:
    (first,) = memory.add(SISTER, **ONE)["results"]
    memory.add(AGAIN, **ANN)
    shared_fact = memory.get(first["id"])
    assert shared_fact is not None
    assert (shared_fact["run_id"], shared_fact["further_runs"]) == (None, ["r1"])
    assert list_facts(memory, **ONE) == list_facts(memory, **ANN) == ["Has a sister Bea who sings"]
    memory.delete_all(**ONE)
    assert list_facts(memory, **ANN) == ["Has a sister Bea who sings"]
    assert list_facts(memory, **ONE) == []
    assert [one["memory"] for one in memory.get_all(**ANN, kinds="episode")["results"]] == [AGAIN]
    assert memory.verify()["ok"]


@pytest.mark.parametrize("scopes", [(ONE, ANN), (ONE, TWO, ANN), (ONE, TWO)])
def test_a_deleted_run_is_nobodys_session(make_with_model: Make, tmp_path: Any, scopes: Any) -> None:
    memory, other = make_with_model(), make_with_model()
    uid = [memory.add(SISTER, **scope)["results"][0]["id"] for scope in scopes][0]
    memory.delete_all(**ONE)
    remaining_fact = memory.get(uid)
    assert remaining_fact is not None
    messages = memory.get_all(**ANN, kinds="episode")["results"]
    assert remaining_fact["session"] in {
        one["session"] for one in messages if one["run_id"] == remaining_fact["run_id"]
    }
    assert memory.verify()["ok"]
    memory.export(str(tmp_path / "whole"))
    other.import_(str(tmp_path / "whole"))
    same(memory, other)


def test_a_fact_without_its_messages_gets_a_session_of_its_own_after_its_run(memory: Memory) -> None:
    uid = memory.add(SISTER, **ONE)["results"][0]["id"]
    memory.add(AGAIN, **ANN)
    memory.delete(memory.explain(uid)["messages"][1]["memory_id"])
    memory.delete_all(**ONE)
    remaining_fact = memory.get(uid)
    assert remaining_fact is not None
    assert remaining_fact["session"] not in {"r1", ""}


def test_deleting_a_user_deletes_the_facts_of_all_runs(memory: Memory) -> None:
    uid = memory.add(SISTER, **ONE)["results"][0]["id"]
    memory.add(SISTER, **TWO)
    assert uid in memory.delete_all(**ANN)["deleted"]
    assert memory.get_all(run_id="r2", kinds=["fact", "episode"])["total"] == 0
    assert memory.verify()["ok"]


# --- history ---------------------------------------------------------------------------------------------------------


def test_the_history_names_the_scope_of_a_repetition(memory: Memory) -> None:
    uid = memory.add(SISTER, **ANN)["results"][0]["id"]
    memory.add(SISTER, **ONE, agent_id="bot")
    memory.add(SISTER, **ONE, agent_id="bot")
    memory.add(NAMED, **TWO, agent_id="bot")
    memory.delete_all(**ONE)
    events = memory.explain(uid)["events"]
    assert [one["event"] for one in events] == ["ADD", "SCOPE", "SCOPE", "UPDATE", "SCOPE"]
    assert [one["reason"] for one in events if one["event"] == "SCOPE"] == [
        "said again in another scope", "said again in another scope", "a run that it was said in was deleted"
    ]  # fmt: skip
    assert all(one["old_memory"] == one["new_memory"] for one in events if one["event"] == "SCOPE")
    with pytest.raises(ValidationError, match="said in a run was said there; erasing all memories"):
        memory.undo(events[1]["id"])
    memory.undo(events[3]["id"])
    assert list_facts(memory, **TWO) == ["Has a sister Bea who sings"]


def test_history_distinguishes_a_retirement_from_an_erasure(memory: Memory) -> None:
    old = memory.add(PARIS, **ANN)["results"][0]["id"]
    new, retirement = memory.add(ROME, **ANN)["results"]
    assert (retirement["id"], retirement["event"]) == (old, "DELETE")
    memory.delete(new["id"])
    list_events = lambda uid: [(one["event"], one["is_deleted"], one["is_retired"]) for one in memory.history(uid)]  # noqa: E731
    assert list_events(old) == [("ADD", False, False), ("RETIRE", False, True)]
    assert list_events(new["id"]) == [("ADD", False, False), ("DELETE", True, False)]


# --- export and import -----------------------------------------------------------------------------------------------


def test_runs_survive_export_and_import(make_with_model: Make, tmp_path: Any) -> None:
    one, other = make_with_model(), make_with_model()
    uid = one.add(SISTER, **ONE)["results"][0]["id"]
    one.add(AGAIN, **THREE)
    one.add(SISTER, **TWO)
    one.export(str(tmp_path / "whole"))
    assert other.import_(str(tmp_path / "whole"))["added"] == 4
    same(one, other)
    assert collect_visibility(other, uid, **TWO) == {True}
    (record,) = [record for record in exported(one, **TWO) if record.get("kind") == "fact"]
    assert (record["run_id"], record["further_runs"]) == ("r1", ["r3", "r2"])
    assert [event["event"] for event in record["events"]] == ["ADD", "SCOPE", "SCOPE"]
