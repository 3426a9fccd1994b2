"""The view of the lifecycle, and what it is of one memory: pinned, forgotten, kept for good. In a browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from support.facts import fact, source_message
from support.fakes import fake_models
from support.page import HOSTILE, NARROW, Site, cut_off

from graphmem import Memory, Settings
from graphmem.ingest.facts.compositions import compose_command, composed
from graphmem.lifecycle.decay import Operation
from graphmem.service.keys import Keys
from graphmem.stores.ledger import memories

pytestmark = pytest.mark.server

ANA = {"user_id": "ana"}
LIKES, TALK, PLAIN = "I like tea very much.", "The weather was grey at noon.", "We met Clara near the bridge."


@pytest.fixture
def settings() -> dict[str, Any]:
    """The settings of the lifecycle, beside that it is on: `@pytest.mark.parametrize("settings", [{…}])`."""
    return {}


@pytest.fixture
def memory(tmp_path: Any, settings: dict[str, Any]) -> Iterator[Memory]:
    lifecycle = {"enabled": True, "since": "2020-01-01", "daily_at": "never", **settings}
    with Memory(settings=Settings.from_dict(fake_models(home=str(tmp_path), lifecycle=lifecycle))) as memory:
        yield memory


def enter(site: Site, key: str = "") -> Any:
    """Opens the view."""
    site.enter(key)
    site.page.locator("h1").wait_for()
    site.page.evaluate("() => { location.hash = '#lifecycle'; }")
    site.page.get_by_role("heading", name="Cycles").wait_for()
    return site.page


def figures(page: Any) -> list[int]:
    return [int(text.split()[0]) for text in page.locator(".fig dd").all_text_contents()]


def wait_for_figures(page: Any, *numbers: int) -> None:
    script = "all => [...document.querySelectorAll('.fig dd')].map(one => parseInt(one.textContent)).join() === all"
    page.wait_for_function(script, arg=",".join(map(str, numbers)))


def pending(page: Any) -> Any:
    return page.locator(".sect", has_text="Pending deletion").locator(".fading")


def see(page: Any) -> Any:
    page.get_by_role("button", name="See what a cycle would do").click()
    page.locator(".plan").wait_for()
    return page.locator(".plan")


def words(page: Any) -> list[str]:
    return [one["memory"] for one in page.get_all(**ANA)["results"]]


# --- cycles -----------------------------------------------------------------------------------------------------------


def test_a_cycle_is_seen_before_it_runs_and_is_undone(site: Site) -> None:
    site.said(9, TALK, LIKES)
    site.said(1, PLAIN)
    page = enter(site)
    assert figures(page) == [3, 0, 0, 0]
    assert page.get_by_text("No cycle runs by itself. Nothing fades before 1 January 2020.").count() == 1
    assert page.get_by_text("no cycle yet").count() == page.get_by_text("Nothing is forgotten.").count() == 1
    plan = see(page)
    assert plan.locator("p").first.text_content() == ("Of 3 memories that take part: 1 forgotten and 1 kept for good.")
    lines = [" ".join(one.split()) for one in plan.locator(".fading").all_inner_texts()]
    assert lines == [
        f"Forget {TALK} It had faded: retention below 0.1.",
        f"Keep {LIKES} It matters: importance 0.9.",
    ]
    assert site.memory.pending_deletion(**ANA)["total"] == 0
    page.get_by_role("button", name="Run the cycle…").click()
    dialog = page.get_by_role("dialog", name="Run a cycle now?")
    assert site.focused() == "Not now"
    assert dialog.get_by_role("checkbox").count() == 0
    dialog.get_by_role("button", name="Run the cycle").click()
    page.get_by_text("The cycle has run: 1 forgotten and 1 kept for good.").wait_for()
    wait_for_figures(page, 1, 1, 0, 1)
    assert site.focused() == "See what a cycle would do"
    assert page.locator(".plan").count() == 0
    assert pending(page).locator("a.read").all_text_contents() == [TALK]
    assert "It had faded: retention below 0.1." in pending(page).text_content()
    assert set(words(site.memory)) == {LIKES, PLAIN}
    page.locator(".toast").get_by_role("button", name="Undo").click()
    wait_for_figures(page, 3, 0, 0, 0)
    assert page.locator(".cycles .tag").text_content() == "Taken back"
    assert page.get_by_role("button", name="Undo the cycle").count() == 0
    assert set(words(site.memory)) == {LIKES, PLAIN, TALK}


def test_a_cycle_that_changed_nothing_is_told_by_its_time(site: Site) -> None:
    site.said(9, TALK)
    told = ("changed 1 memory", "changed nothing")
    for did in told:
        site.memory.tend(**ANA)
        page = enter(site)
        head = page.locator("h2", has_text="Layers").locator("small")
        assert re.fullmatch(f"last cycle on .+, {did}", head.text_content())
        assert head.locator("time").get_attribute("datetime") == site.memory.lifecycle_status(**ANA)["cycled_at"]
        page.evaluate("() => { location.hash = '#memories'; }")
    assert page.locator(".cycles .ev").count() == 0  # the list has cycles that changed something


def test_a_cycle_of_before_is_undone_but_for_what_was_changed_since(site: Site) -> None:
    site.said(9, TALK, PLAIN, LIKES)
    site.memory.tend(**ANA)
    changed = next(one for one in site.memory.pending_deletion(**ANA)["results"] if one["memory"] == PLAIN)
    site.memory.update(changed["id"], "We met Clara below the bridge.", **ANA)
    page = enter(site)
    assert page.locator(".cycles b").text_content() == "2 forgotten and 1 kept for good"
    page.get_by_role("button", name=re.compile("^Undo: 2 forgotten and 1 kept for good")).click()
    page.get_by_text("Taken back for 2 memories. 1 change was made since and stays.").wait_for()
    wait_for_figures(page, 3, 0, 0, 0)
    assert site.focused() == "See what a cycle would do"
    assert page.locator(".cycles .tag").text_content() == "Taken back"


def test_a_merged_memory_names_the_one_that_stands_for_it(site: Site) -> None:
    site.said(9, "I like green tea with milk", TALK)
    site.said(8, "green tea with milk like I")
    page = enter(site)
    reason = see(page).get_by_role("link", name="A like memory")
    reason.click()
    page.locator(".panel .words", has_text="I like green tea with milk").wait_for()
    site.memory.tend(**ANA)
    page.go_back()
    page.get_by_text("1 of the forgotten has a like memory that stands for it.").wait_for()
    assert pending(page).get_by_role("link", name="A like memory").count() == 1


def test_what_was_made_of_several_memories_says_so_and_is_taken_back(site: Site) -> None:
    texts = ("Drinks tea each morning", "Drinks tea in the morning", "Each morning Ana drinks tea")
    site.said(1, *texts)
    engine = site.memory.engine
    with engine.ledger.read() as connection:
        sources = [memories.find(connection, one["id"]) for one in site.memory.get_all(**ANA)["results"]]
    record = composed(Operation.MERGE, 0, "Drinks tea in the mornings", sources)
    (outcome,) = engine.commit([compose_command(record, sources, str(uuid4()), hides=True)])
    engine.enrich_and_deliver([outcome.required_record], wait=True)
    page = enter(site)
    assert page.locator(".cycles b").text_content() == "3 forgotten and 1 made of others"
    pending(page).first.get_by_role("link", name="A like memory").click()
    panel = page.locator(".panel")
    panel.locator(".words", has_text="Drinks tea in the mornings").wait_for()
    told = " ".join(panel.inner_text().split())
    assert told.count("Stands for another memory") == 3
    assert "Made of several memories" in told and "It was made of 3 memories." in told
    assert "None of the messages" not in told
    panel.get_by_role("button", name=re.compile("^Undo: Made of several memories")).click()
    panel.locator(".ev b", has_text="Taken back").wait_for()
    assert set(words(site.memory)) == set(texts)


@pytest.mark.parametrize("settings", [{"brake_memories": 2}])
def test_a_cycle_that_forgets_too_many_at_once_has_to_be_confirmed(site: Site) -> None:
    site.said(9, *(f"Number {n} was nothing much." for n in range(25)))
    page = enter(site)
    plan = see(page)
    assert "25 memories would be forgotten at once. A cycle does not do that by itself." in plan.text_content()
    assert plan.locator(".fading").count() == 20
    plan.get_by_role("button", name="Show all 25").click()
    assert plan.locator(".fading").count() == 25
    page.get_by_role("button", name="Run the cycle…").click()
    dialog = page.get_by_role("dialog")
    run = dialog.get_by_role("button", name="Run the cycle")
    assert run.is_disabled() and site.focused() == "Not now"
    dialog.get_by_role("checkbox", name="Yes, forget 25 memories at once.").check()
    run.click()
    wait_for_figures(page, 0, 0, 0, 25)


@pytest.mark.parametrize("settings", [{"brake_memories": 2, "purge_after_days": 30}])
def test_a_cycle_that_the_brake_held_is_told_until_one_runs(site: Site) -> None:
    site.said(9, *(f"Number {n} was nothing much." for n in range(4)))
    site.memory.tend(**ANA)
    page = enter(site)
    told = page.locator(".sect .say.warn")
    assert "did nothing: it would have forgotten 4 memories of 4 at once." in told.text_content()
    assert told.locator("time").get_attribute("datetime") == site.memory.lifecycle_status(**ANA)["cycled_at"]
    assert page.get_by_text("A cycle erases for good what has been forgotten for more than 30 days.").count() == 1
    see(page)
    page.get_by_role("button", name="Run the cycle…").click()
    page.get_by_role("dialog").get_by_role("checkbox").check()
    page.get_by_role("dialog").get_by_role("button", name="Run the cycle").click()
    wait_for_figures(page, 0, 0, 0, 4)
    assert told.count() == 0


@pytest.mark.parametrize("settings", [{"purge_after_days": 30}])
def test_what_a_cycle_would_erase_for_good_is_shown_first_and_named_before_it_runs(site: Site) -> None:
    site.said(50, TALK)
    site.memory.tend(**ANA, now=datetime.now(UTC) - timedelta(days=31))
    site.said(9, PLAIN, LIKES)
    page = enter(site)
    plan = see(page)
    assert plan.locator("p").first.text_content() == (
        "Of 2 memories that take part: 1 forgotten, 1 kept for good and 1 erased."
    )
    lines = [" ".join(one.split()) for one in plan.locator(".fading").all_inner_texts()]
    assert lines == [
        f"Erase {TALK} It has been forgotten for long.",
        f"Forget {PLAIN} It had faded: retention below 0.1.",
        f"Keep {LIKES} It matters: importance 0.9.",
    ]
    page.get_by_role("button", name="Run the cycle…").click()
    dialog = page.get_by_role("dialog")
    assert "erased for good: 1 memory, which cannot be brought back." in dialog.text_content()
    dialog.get_by_role("button", name="Run the cycle").click()
    page.get_by_text("The cycle has run: 1 forgotten, 1 kept for good and 1 erased.").wait_for()
    wait_for_figures(page, 0, 1, 0, 1)
    page.locator(".toast").get_by_role("button", name="Undo").click()
    wait_for_figures(page, 2, 0, 0, 0)
    page.locator(".cycles b", has_text="1 forgotten").wait_for()
    assert site.memory.get_all(**ANA, show_forgotten=True)["total"] == 2


@pytest.mark.parametrize("settings", [{"enabled": False}])
def test_where_the_lifecycle_is_off_the_view_says_so_and_lists_what_is_forgotten(site: Site) -> None:
    site.said(9, TALK, LIKES)
    forgotten = next(one for one in site.memory.get_all(**ANA)["results"] if one["memory"] == TALK)
    site.memory.forget(forgotten["id"], **ANA)
    page = enter(site)
    notice = page.locator(".say").text_content()
    assert "The lifecycle is off" in notice and "lifecycle.enabled = true" in notice
    assert pending(page).locator("a.read").all_text_contents() == [TALK]
    assert "By request." in pending(page).text_content()
    plan = see(page)
    assert plan.locator(".fading").count() == 1
    assert page.get_by_role("button", name="Run the cycle").count() == 0


@pytest.mark.parametrize("settings", [{"daily_at": "03:00"}])
def test_the_next_cycle_is_told_where_one_runs_by_itself(site: Site) -> None:
    page = enter(site)
    next_cycle = site.memory.lifecycle_status(**ANA)["next_cycle"]
    line = page.get_by_text("The next cycle runs by itself on")
    assert line.locator("time").first.get_attribute("datetime") == next_cycle


# --- what is forgotten ------------------------------------------------------------------------------------------------


def forget_all(site: Site, *texts: str) -> None:
    for one in site.memory.get_all(**ANA)["results"]:
        if one["memory"] in texts:
            site.memory.forget(one["id"], **ANA)


def test_what_is_forgotten_is_restored(site: Site) -> None:
    site.said(1, TALK, LIKES, PLAIN)
    forget_all(site, TALK, LIKES)
    page = enter(site)
    assert figures(page)[-1] == 2
    page.get_by_role("button", name=f"Restore: “{TALK}”").click()
    page.get_by_text(f"Remembered again: “{TALK}”.").wait_for()
    wait_for_figures(page, 2, 0, 0, 1)
    assert site.focused() == f"Restore: “{LIKES}”"
    page.keyboard.press("Enter")
    wait_for_figures(page, 3, 0, 0, 0)
    assert site.focused().startswith("Pending deletion")
    assert set(words(site.memory)) == {TALK, LIKES, PLAIN}


def test_purging_names_what_goes_and_asks_twice(site: Site) -> None:
    source = source_message(site.memory, "Ana told that she sings.", **ANA)
    uid = fact(site.memory, "Sings.", source, **ANA)
    site.said(1, PLAIN)
    site.memory.forget(uid, **ANA)
    page = enter(site)
    page.get_by_role("button", name="Purge: “Sings.”").click()
    dialog = page.get_by_role("dialog", name="Delete this memory for good?")
    dialog.wait_for()
    assert site.focused() == "Keep it"
    text = dialog.text_content()
    assert "Sings." in text and "Ana told that she sings." in text and "1message that it was drawn from" in text
    assert dialog.get_by_role("button", name="Forget instead").count() == 0
    erase = dialog.get_by_role("button", name="Erase for good")
    assert erase.is_disabled()
    dialog.get_by_role("button", name="Keep it").click()
    dialog.wait_for(state="detached")
    assert site.focused() == "Purge: “Sings.”"
    assert site.memory.pending_deletion(**ANA)["total"] == 1
    page.keyboard.press("Enter")
    dialog.get_by_role("checkbox").check()
    erase.click()
    page.get_by_text("Erased, with 1 other memory.").wait_for()
    wait_for_figures(page, 1, 0, 0, 0)
    assert site.focused().startswith("Pending deletion")
    assert site.memory.get_all(**ANA, show_forgotten=True, kinds=["episode", "fact", "summary"])["total"] == 1


def test_more_than_the_first_hundred_are_shown_on_demand(site: Site) -> None:
    texts = [f"Number {n} was nothing much." for n in range(103)]
    site.said(9, *texts)
    site.memory.tend(**ANA, force=True)
    page = enter(site)
    assert pending(page).count() == 100
    assert page.get_by_text("1 to 100 of 103").count() == 1
    page.get_by_role("button", name="Show older").click()
    page.wait_for_function("() => document.querySelectorAll('.fading').length === 103")
    assert page.get_by_role("button", name="Show older").count() == 0


# --- one memory -------------------------------------------------------------------------------------------------------


def test_a_memory_is_pinned_and_unpinned(site: Site) -> None:
    site.said(1, PLAIN)
    site.enter()
    panel = site.open(PLAIN)
    panel.get_by_role("button", name="Pin", exact=True).click()
    panel.locator(".tag", has_text="Pinned").wait_for()
    assert site.row(PLAIN).locator(".tag").text_content() == "Pinned"
    assert site.memory.get_all(**ANA)["results"][0]["pinned"]
    site.page.locator(".toast").get_by_role("button", name="Undo").click()
    panel.get_by_role("button", name="Pin", exact=True).wait_for()
    assert site.row(PLAIN).locator(".tag").count() == panel.locator("header .tag").count() == 0
    panel.get_by_role("button", name="Pin", exact=True).click()
    panel.get_by_role("button", name="Unpin").click()
    site.page.get_by_text("Unpinned.").wait_for()
    assert "pinned" not in site.memory.get_all(**ANA)["results"][0]


def test_a_memory_is_forgotten_and_comes_back(site: Site) -> None:
    site.said(1, PLAIN, LIKES)
    site.enter()
    page = site.page
    site.open(PLAIN).get_by_role("button", name="Forget", exact=True).click()
    page.get_by_text(f"Forgotten: “{PLAIN}”.").wait_for()
    site.row(PLAIN).wait_for(state="detached")
    assert page.locator(".panel").count() == 0 and words(site.memory) == [LIKES]
    page.locator(".toast").get_by_role("button", name="Undo").click()
    site.row(PLAIN).wait_for()
    assert set(words(site.memory)) == {LIKES, PLAIN}
    site.open(PLAIN)
    page.keyboard.press("f")
    site.row(PLAIN).wait_for(state="detached")
    page.keyboard.press("u")
    site.row(PLAIN).wait_for()
    panel = site.open(PLAIN)
    assert panel.locator(".ev b").all_text_contents() == [
        "Taken back",
        "Forgotten",
        "Taken back",
        "Forgotten",
        "First remembered",
    ]
    page.keyboard.press("Delete")
    page.get_by_role("dialog").get_by_role("button", name="Forget instead, can be undone").click()
    site.row(PLAIN).wait_for(state="detached")
    assert words(site.memory) == [LIKES]


def test_a_forgotten_memory_says_so_and_is_restored_where_it_is_opened(site: Site) -> None:
    site.said(9, TALK, LIKES)
    site.memory.tend(**ANA)
    page = enter(site)
    pending(page).locator("a.read").click()
    panel = page.locator(".panel")
    panel.locator(".words").wait_for()
    assert panel.locator("header .tag").all_text_contents() == ["Forgotten"]
    assert panel.locator(".ev b").first.text_content() == "Forgotten"
    assert panel.get_by_role("button", name="Pin").count() == panel.get_by_role("button", name="Forget").count() == 0
    panel.get_by_role("button", name="Restore").click()
    site.row(TALK).wait_for()
    panel.get_by_role("button", name="Forget", exact=True).wait_for()
    assert panel.locator("header .tag").count() == 0
    panel = site.open(LIKES)
    panel.locator(".ev b", has_text="Kept for good").wait_for()
    assert panel.locator("header .tag").all_text_contents() == ["Long-term"]
    assert site.row(LIKES).locator(".tag").all_text_contents() == ["Long-term"]
    panel.get_by_role("button", name=re.compile("^Undo: Kept for good")).click()
    site.row(LIKES).locator(".tag").wait_for(state="detached")


def test_what_is_not_done_says_why(site: Site) -> None:
    site.expected.append("Failed to load resource")
    site.said(1, PLAIN, TALK)
    forget_all(site, TALK)
    page = enter(site)
    cut_off(page, "**/events/**")
    page.get_by_role("button", name=f"Restore: “{TALK}”").click()
    page.get_by_text("Not restored: The service does not answer; check that it runs.").wait_for()
    assert pending(page).count() == 1
    page.evaluate("() => { location.hash = '#memories'; }")
    cut_off(page, "**/memories/*/forget")
    site.open(PLAIN).get_by_role("button", name="Forget", exact=True).click()
    page.get_by_text("Not forgotten: The service does not answer; check that it runs.").wait_for()
    assert site.row(PLAIN).count() == 1
    cut_off(page, "**/lifecycle*")
    page.evaluate("() => { location.hash = '#lifecycle'; }")
    page.get_by_text("The lifecycle could not be loaded.").wait_for()
    page.unroute("**/lifecycle*")
    page.get_by_role("button", name="Try again").click()
    page.get_by_role("heading", name="Cycles").wait_for()


# --- who sees what ----------------------------------------------------------------------------------------------------


def test_an_admin_chooses_one_user_first(site: Site) -> None:
    site.said(1, PLAIN)
    site.memory.add("I sing.", user_id="ben")
    asked: list[str] = []
    site.page.on("request", lambda one: asked.append(one.url))
    site.enter(Keys(site.memory).create("admin").text)
    page = site.page
    page.locator(".row").first.wait_for()
    page.keyboard.press("g")
    page.keyboard.press("l")
    page.get_by_text("Each user has a lifecycle of their own.").wait_for()
    assert not [url for url in asked if url.endswith("/lifecycle")]
    page.evaluate("() => { location.hash = '#lifecycle?user=ben'; }")
    page.get_by_role("heading", name="Cycles").wait_for()
    assert figures(page) == [1, 0, 0, 0]
    assert "of ben" in page.locator(".head p").text_content()


def test_a_key_of_one_agent_runs_no_cycle(site: Site) -> None:
    site.memory.add("I sing.", **ANA, agent_id="tutor")
    page = enter(site, Keys(site.memory).create("user", user_id="ana", agent_id="tutor").text)
    assert figures(page) == [1, 0, 0, 0]
    assert page.get_by_role("button", name="See what a cycle would do").count() == 0
    assert "this key reaches only those with one agent" in page.locator("main").text_content()


# --- everywhere -------------------------------------------------------------------------------------------------------


def test_the_keyboard_alone_is_enough(site: Site) -> None:
    site.said(9, TALK, "Nothing much was said.")
    site.said(1, PLAIN)
    forget_all(site, PLAIN)
    site.memory.tend(**ANA)
    page = enter(site)
    page.keyboard.press("j")
    first = site.focused()
    page.keyboard.press("j")
    assert site.focused() != first
    page.keyboard.press("k")
    assert site.focused() == first
    page.keyboard.press("Tab")
    assert site.focused() == f"Restore: “{first}”"
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.get_by_role("dialog").wait_for()
    page.keyboard.press("Escape")
    page.locator("dialog").wait_for(state="detached")
    assert site.focused() == f"Purge: “{first}”"
    site.tab_to(page.get_by_role("button", name="See what a cycle would do"))
    page.keyboard.press("Enter")
    page.locator(".plan").wait_for()
    assert site.focused() == "See what a cycle would do"


@pytest.mark.parametrize("site", [NARROW], indirect=True)
def test_on_a_phone_nothing_is_wider_and_the_view_is_behind_a_link(site: Site) -> None:
    site.said(9, TALK, LIKES, "Llanfair" * 30, HOSTILE)
    site.memory.tend(**ANA)
    site.said(9, "Nothing much was said.")
    site.enter()
    page = site.page
    page.locator(".tabs a").last.click()
    page.locator(".elsewhere").get_by_role("link", name="Lifecycle").click()
    page.get_by_role("heading", name="Cycles").wait_for()
    assert page.locator(".tabs [aria-current]").text_content().strip() == "Usage"
    see(page)
    width = "() => document.documentElement.scrollWidth"
    assert page.evaluate(width) == NARROW[0]
    assert page.locator("main img, main script, .fading b").count() == 0
    heights = page.locator(".fading button, .cycles button").evaluate_all(
        "all => all.map(one => one.getBoundingClientRect().height).filter(height => height < 36)"
    )
    assert heights == []
    page.get_by_role("button", name="Run the cycle…").click()
    assert page.evaluate(width) == NARROW[0]


def test_all_of_it_is_there_in_chinese(site: Site) -> None:
    site.said(9, "今天天气很好。", "我喜欢喝茶。", "我在桥边见到了她。")
    page = enter(site)
    page.get_by_role("button", name="中文").click()
    page.get_by_role("button", name="查看一次运行会做什么").click()
    page.locator(".plan").wait_for()
    page.get_by_role("button", name="运行…").click()
    texts = [page.locator("main").inner_text(), page.get_by_role("dialog").inner_text()]
    page.get_by_role("dialog").get_by_role("button", name="运行").click()
    page.locator(".cycles").wait_for()
    texts.append(page.locator("main").inner_text())
    pending_row = page.locator(".fading").first
    pending_row.locator("a.read").click()
    page.locator(".panel .words").wait_for()
    texts.append(page.locator(".panel .leaf").inner_text())
    assert set(re.findall(r"[A-Za-z]{3,}", " ".join(texts))) <= {"ana"}
