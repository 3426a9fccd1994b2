"""Names that mean one entity, through the door: said by the user, found by rules, taken back, forgotten."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.databases import SQLITE_ONLY
from support.fakes import fake_models

from graphmem import AsyncMemory, Memory, Settings
from graphmem.errors import NotFoundError, ValidationError

Make = Callable[..., Memory]
SPACY = {"extractor": {"provider": "spacy"}}


@pytest.fixture(params=["memory", pytest.param("folder", marks=pytest.mark.thorough)])
def memory(request: pytest.FixtureRequest, make_memory: Make, tmp_path: Path) -> Memory:
    """One that finds names, on no disk and in a folder."""
    return make_memory(None if request.param == "memory" else tmp_path / "home", **SPACY)


def tell(memory: Memory, words: str, name: str | None = None, **scope: Any) -> str:
    message = {"role": "user", "content": words} | ({} if name is None else {"name": name})
    (one,) = memory.add(message, **(scope or {"user_id": "u1"}))["results"]
    return str(one["id"])


def aliases(found: Any) -> dict[str, str]:
    return {one["key"]: one["origin"] for one in found["aliases"]}


def links(memory: Memory, **scope: Any) -> set[tuple[str, ...]]:
    """Pairs that the graph joins."""
    drawn = memory.graph(**(scope or {"user_id": "u1"}))
    same = [(s, t) for s, t, data in drawn.edges(data=True) if data["relationship"] == "SAME_AS"]
    return {tuple(sorted(end.removeprefix("entity:") for end in pair)) for pair in same}


def rows(memory: Memory) -> str:
    """All that is written of names, as one text."""
    with memory._engine.ledger.read() as connection:
        return str([connection.exec_driver_sql(f"SELECT * FROM {table}").all() for table in ("aliases", "names")])


# --- said by the user -------------------------------------------------------------------------------------------------


def test_two_names_become_one_entity_and_two_again(memory: Memory) -> None:
    first = tell(memory, "Nordlicht is building a lab in Bergen.")
    second = tell(memory, "Acme bought a ship. Acme works with Nordlicht.")
    found = memory.alias("Nordlicht", "the Acme", user_id="u1")
    assert {one["id"] for one in found["memories"]} == {first, second}
    assert len(found["memories"]) == 2
    assert (found["key"], found["name"]) == ("nordlicht", "Nordlicht")
    assert found["aliases"] == [{"key": "acme", "name": "Acme", "origin": "user"}]
    assert {one["source"] for one in found["relations"]} >= {"Nordlicht", "Acme"}
    assert memory.entity("acme", user_id="u1") == memory.entity("Nordlicht", user_id="u1") == found
    listed = [one for one in memory.entities(user_id="u1") if one["key"] in {"acme", "nordlicht"}]
    assert [(one["key"], one["memories"], aliases(one)) for one in listed] == [("nordlicht", 2, {"acme": "user"})]
    assert links(memory) == {("acme", "nordlicht")}

    alone = memory.unalias("acme", "nordlicht", user_id="u1")
    assert (alone["key"], alone["aliases"], [one["id"] for one in alone["memories"]]) == ("acme", [], [second])
    assert {one["key"] for one in memory.entities(user_id="u1")} >= {"acme", "nordlicht"}
    assert links(memory) == set()
    assert aliases(memory.alias("acme", "nordlicht", user_id="u1")) == {"acme": "user"}
    assert memory.verify()["ok"]


def test_links_make_groups(memory: Memory) -> None:
    tell(memory, "Alpha met Beta. Beta met Gamma. Delta slept.")
    memory.alias("alpha", "beta", user_id="u1")
    assert set(aliases(memory.alias("beta", "gamma", user_id="u1"))) == {"alpha", "beta"}
    with pytest.raises(NotFoundError, match="'alpha' and 'gamma' are not linked to each other.*'beta'"):
        memory.unalias("alpha", "gamma", user_id="u1")
    memory.unalias("alpha", "beta", user_id="u1")
    assert memory.entity("alpha", user_id="u1")["aliases"] == []
    assert set(aliases(memory.entity("gamma", user_id="u1"))) == {"beta"}


def test_an_entity_is_called_what_its_users_choose(memory: Memory) -> None:
    tell(memory, "Nordlicht is building a lab in Bergen.")
    found = memory.rename_entity("Nordlicht", " Project Falcon ", user_id="u1")
    assert (found["key"], found["name"], found["aliases"]) == ("nordlicht", "Project Falcon", [])
    assert "Project Falcon" in {one["source"] for one in found["relations"]}
    assert memory.entity("project falcon", user_id="u1") == memory.entity("nordlicht", user_id="u1") == found
    assert [one["key"] for one in memory.entities(user_id="u1", query="falcon")] == ["nordlicht"]
    assert memory.graph(user_id="u1").nodes["entity:nordlicht"]["name"] == "Project Falcon"
    assert "entity:nordlicht" in memory.graph(user_id="u1", around="Project Falcon", hops=0)
    assert memory.rename_entity("project falcon", "Nord", user_id="u1")["name"] == "Nord"
    assert memory.get_all(user_id="u1")["results"][0]["memory"].startswith("Nordlicht")


def test_a_group_has_the_name_chosen_last(memory: Memory) -> None:
    tell(memory, "Alpha met Beta.")
    memory.rename_entity("alpha", "One", user_id="u1")
    memory.rename_entity("beta", "Two", user_id="u1")
    assert memory.alias("alpha", "beta", user_id="u1")["name"] == "Two"
    assert memory.rename_entity("alpha", "Three", user_id="u1")["name"] == "Three"
    assert memory.unalias("alpha", "beta", user_id="u1")["name"] == "Three"
    assert memory.entity("beta", user_id="u1")["name"] == "Two"


def test_what_cannot_be_done_says_what_can(memory: Memory) -> None:
    tell(memory, "Nordlicht is building a lab in Bergen.")
    with pytest.raises(NotFoundError, match="user_id='u1' mentions 'nordlich'.*'nordlicht'"):
        memory.alias("nordlich", "bergen", user_id="u1")
    with pytest.raises(NotFoundError, match="entities"):
        memory.rename_entity("qqq", "Q", user_id="u1")
    with pytest.raises(NotFoundError, match="not linked"):
        memory.unalias("nordlicht", "bergen", user_id="u1")
    with pytest.raises(ValidationError, match="b='the Bergen'.*same"):
        memory.alias("bergen", "the Bergen", user_id="u1")
    for bad in ("", "  ", "a\nb", "x" * 300, None, 3):
        with pytest.raises(ValidationError, match="name"):
            memory.rename_entity("bergen", bad, user_id="u1")
    for bad in ("", None, 3):
        with pytest.raises(ValidationError, match="a="):
            memory.alias(bad, "bergen", user_id="u1")
    with pytest.raises(ValidationError, match="user_id"):
        memory.alias("a", "b")
    assert rows(memory) == "[[], []]"


# --- found by rules ---------------------------------------------------------------------------------------------------


def test_a_first_name_belongs_to_the_only_full_name(memory: Memory) -> None:
    tell(memory, "My sister Anna likes tea.", "Tom")
    assert memory.entity("anna", user_id="u1")["aliases"] == []
    tell(memory, "Anna Berg moved to Bergen.", "Tom")
    found = memory.entity("anna", user_id="u1")
    assert (found["name"], aliases(found), len(found["memories"])) == ("Anna Berg", {"anna": "first name"}, 2)
    tell(memory, "Anna Roth moved to Lisbon.", "Tom")
    assert memory.entity("anna", user_id="u1")["aliases"] == []
    assert links(memory) == set()


def test_the_full_name_may_come_first(memory: Memory) -> None:
    tell(memory, "Anna Berg moved to Bergen.", "Tom")
    tell(memory, "My sister Anna likes tea.", "Tom")
    assert links(memory) == {("anna", "anna berg")}


def test_a_users_link_outlives_a_second_full_name(memory: Memory) -> None:
    tell(memory, "Anna Berg moved to Bergen. My sister Anna likes tea.", "Tom")
    memory.alias("anna", "anna berg", user_id="u1")
    tell(memory, "Anna Roth moved to Lisbon.", "Tom")
    assert links(memory) == {("anna", "anna berg")}


def test_a_nickname_that_is_said(memory: Memory) -> None:
    said = tell(memory, "Call me Bo.", "Robert")
    tell(memory, "Bo plays chess.", "Tom")
    assert links(memory) == {("bo", "robert")}
    assert aliases(memory.entity("bo", user_id="u1")) == {"bo": "said"}
    tell(memory, "I like tea.", "Robert")
    memory.delete(said, user_id="u1")
    assert links(memory) == set()  # what bore it is forgotten, though both are mentioned elsewhere
    assert memory.entity("bo", user_id="u1") is not None


def test_a_name_in_two_spellings(memory: Memory) -> None:
    tell(memory, "Katherine Berg lives in Lisbon.", "Tom")
    tell(memory, "My colleague Kathrine Berg likes tea.", "Tom")
    assert links(memory) == {("katherine berg", "kathrine berg")}


def test_what_was_taken_back_is_not_found_again(memory: Memory) -> None:
    tell(memory, "Call me Bo.", "Robert")
    memory.unalias("Robert", "Bo", user_id="u1")
    tell(memory, "As I said, call me Bo.", "Robert")
    assert links(memory) == set()
    memory.alias("Robert", "Bo", user_id="u1")
    memory.unalias("Robert", "Bo", user_id="u1")
    tell(memory, "Everybody calls me Bo.", "Robert")
    assert links(memory) == set()


def test_an_update_takes_found_links_along_and_leaves_those_of_users(memory: Memory) -> None:
    uid = tell(memory, "Call me Bo.", "Robert")
    tell(memory, "Bo met Zoe.", "Tom")
    memory.alias("robert", "zoe", user_id="u1")
    memory.update(uid, "Everybody calls me Rob.", user_id="u1")
    assert links(memory) == {("rob", "robert"), ("robert", "zoe")}
    memory.rebuild()
    assert links(memory) == {("rob", "robert"), ("robert", "zoe")}


# --- whose ------------------------------------------------------------------------------------------------------------


def test_a_link_is_one_users(memory: Memory) -> None:
    for user in ("u1", "u2"):
        tell(memory, "Alpha met Beta.", user_id=user)
    memory.alias("alpha", "beta", user_id="u1")
    memory.rename_entity("beta", "Secret", user_id="u1")
    assert memory.entity("alpha", user_id="u2")["aliases"] == []
    assert "Secret" not in str([memory.entities(user_id="u2"), memory.graph(user_id="u2").nodes(data=True)])
    assert links(memory, user_id="u2") == set()


def test_a_view_without_a_mention_learns_nothing_of_it(memory: Memory) -> None:
    tell(memory, "Alpha met Tom.", user_id="u1", agent_id="a")
    tell(memory, "Beta met Alphabet.", user_id="u1", agent_id="b")
    memory.alias("alpha", "beta", user_id="u1")
    memory.rename_entity("beta", "Secret", user_id="u1")
    mine = {"user_id": "u1", "agent_id": "a"}
    seen = [memory.entities(**mine), memory.entity("alpha", **mine), list(memory.graph(**mine).nodes(data=True))]
    seen += [memory.search("Whom did Alpha meet?", explain=True, **mine), memory.context("Alpha", **mine)]
    assert "beta" not in str(seen).casefold()
    assert "Secret" not in str(seen)
    assert memory.entity("alpha", **mine)["aliases"] == []
    assert memory.entity("beta", **mine) is None
    assert memory.entity("secret", **mine) is None
    for call in (memory.alias, memory.unalias):
        with pytest.raises(NotFoundError) as told:
            call("alpha", "beta", **mine)
        assert "alphabet" not in str(told.value)
    with pytest.raises(NotFoundError):
        memory.rename_entity("beta", "B", **mine)


def test_what_one_user_says_joins_nothing_of_anothers_for_their_agent(memory: Memory) -> None:
    tell(memory, "Alpha met Beta.", user_id="u1", agent_id="a")
    tell(memory, "Alpha met Beta.", user_id="u2", agent_id="a")
    memory.alias("alpha", "beta", user_id="u1")
    assert memory.entity("alpha", agent_id="a")["aliases"] == []
    with pytest.raises(NotFoundError, match="under agent_id='a'"):
        memory.alias("alpha", "beta", agent_id="a")
    tell(memory, "Alpha met Beta.", agent_id="a")
    assert aliases(memory.alias("alpha", "beta", agent_id="a")) == {"beta": "user"}
    assert len(memory.entity("beta", agent_id="a")["memories"]) == 3


# --- forgetting -------------------------------------------------------------------------------------------------------


def test_an_erased_name_is_in_no_link_and_no_choice(memory: Memory, tmp_path: Path) -> None:
    tell(memory, "Alpha slept.")
    uid = tell(memory, "Betavulgaris slept.")
    memory.alias("alpha", "betavulgaris", user_id="u1")
    memory.rename_entity("betavulgaris", "Gammastrahl", user_id="u1")
    memory.delete(uid, user_id="u1")
    assert rows(memory) == "[[], []]"
    memory.close()
    for path in (tmp_path / "home").rglob("*"):
        if path.is_file():
            assert b"etavulgaris" not in path.read_bytes(), path
            assert b"ammastrahl" not in path.read_bytes(), path


def test_a_name_taken_out_by_an_update_goes_with_the_next_erasure(memory: Memory) -> None:
    uid = tell(memory, "Betavulgaris met Alpha.")
    tell(memory, "Alpha slept.")
    memory.alias("alpha", "betavulgaris", user_id="u1")
    memory.update(uid, "Someone met Alpha.", user_id="u1")
    memory.delete(uid, user_id="u1")
    assert rows(memory) == "[[], []]"


def test_what_others_mention_keeps_its_names(memory: Memory) -> None:
    uid = tell(memory, "Alpha met Beta.")
    tell(memory, "Alpha likes Beta.")
    memory.alias("alpha", "beta", user_id="u1")
    memory.rename_entity("beta", "Bee", user_id="u1")
    memory.delete(uid, user_id="u1")
    assert memory.entity("alpha", user_id="u1")["name"] == "Bee"


def test_delete_all_and_reset_leave_no_names(memory: Memory) -> None:
    for user in ("u1", "u2"):
        tell(memory, "Call me Bo. Alpha met Beta.", "Robert", user_id=user)
        memory.alias("alpha", "beta", user_id=user)
        memory.rename_entity("beta", "Bee", user_id=user)
    memory.delete_all(user_id="u1")
    assert memory.entity("alpha", user_id="u2")["name"] == "Bee"
    assert rows(memory).count("'Bee'") == 1
    assert rows(memory).count("alpha") == 2
    memory.reset()
    assert rows(memory) == "[[], []]"


# --- searching, waiting, showing --------------------------------------------------------------------------------------


@pytest.fixture
def ship(make_memory: Make) -> Iterator[Memory]:
    """What Acme built is two steps from a question about Nordlicht, if the two are one; the rest is noise."""
    memory = make_memory(**SPACY)
    tell(memory, "Acme built a ship in Bergen.")
    tell(memory, "Nordlicht has an office.")
    for place in ("Lisbon", "Malmö", "Oslo", "Turin", "Porto", "Genoa", "Kiel", "Nantes", "Riga", "Bari"):
        tell(memory, f"Somebody saw a train near {place} yesterday evening.")
    yield memory


def test_a_question_is_answered_from_all_names(ship: Memory) -> None:
    def path() -> list[dict[str, Any]]:
        found = ship.search("What does Nordlicht own?", user_id="u1", explain=True, top_k=1000)["results"]
        return next(hit["explain"]["path"] for hit in found if "Acme" in hit["memory"])

    assert not any(step["type"] == "entity" for step in path())
    ship.alias("nordlicht", "acme", user_id="u1")
    assert [step["name"] for step in path() if step["type"] == "entity"] == ["Acme"]
    ship.unalias("nordlicht", "acme", user_id="u1")
    assert not any(step["type"] == "entity" for step in path())


def test_the_async_door_awaits_the_same() -> None:
    async def journey() -> None:
        async with AsyncMemory(":memory:", settings=Settings.from_dict({**fake_models(), **SPACY})) as memory:
            await memory.add("Alpha met Beta.", user_id="u1")
            assert aliases(await memory.alias("alpha", "beta", user_id="u1")) == {"beta": "user"}
            assert (await memory.rename_entity("beta", "Bee", user_id="u1"))["name"] == "Bee"
            assert (await memory.unalias("alpha", "beta", user_id="u1"))["aliases"] == []

    asyncio.run(journey())


@SQLITE_ONLY
def test_names_are_kept_in_the_folder(make_memory: Make, tmp_path: Path) -> None:
    memory = make_memory(tmp_path / "home", **SPACY)
    tell(memory, "Alpha met Beta.")
    memory.alias("alpha", "beta", user_id="u1")
    memory.rename_entity("alpha", "First", user_id="u1")
    memory.close()
    again = make_memory(tmp_path / "home", **SPACY)
    assert again.entity("beta", user_id="u1")["name"] == "First"
    again.close()
    with closing(sqlite3.connect(tmp_path / "home" / "ledger.sqlite")) as connection:
        assert connection.execute("SELECT count(*) FROM aliases").fetchone() == (2,)  # from either end


def test_what_a_user_says_of_names_is_nothing_for_a_view_by_agent() -> None:
    with Memory(":memory:") as memory:
        for words in ("Quinny works at Nordlicht.", "The Skipper owns a red boat.", "Tom paid the rent."):
            told = {"role": "user", "name": "Al", "content": words}
            memory.add(told, user_id="a", agent_id="bot", timestamp="2024-01-01")
        memory.add({"role": "user", "name": "Bo", "content": "Quinny sold a car."}, user_id="b", agent_id="bot")
        asked = "What does Quinny own?"
        before = memory.search(asked, agent_id="bot", explain=True)
        memory.rename_entity("Quinny", "Secret Xylophant", user_id="a")
        memory.alias("Quinny", "Skipper", user_id="a")
        after = memory.search(asked, agent_id="bot", explain=True)
        assert after == before
        one = next(each for each in memory.get_all(agent_id="bot")["results"] if "Nordlicht" in each["memory"])
        graph = memory.graph(agent_id="bot")
        seen = [
            memory.entity("Quinny", agent_id="bot"), memory.get_all(agent_id="bot"), memory.entities(agent_id="bot"),
            memory.explain(one["id"], agent_id="bot"), list(graph.nodes(data=True)), list(graph.edges(data=True)),
        ]  # fmt: skip
        assert "Xylophant" not in repr(seen)
        assert "SAME_AS" not in repr(seen)
        assert "Xylophant" in repr(memory.explain(one["id"], user_id="a"))
