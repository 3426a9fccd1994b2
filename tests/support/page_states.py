"""The states of the page that its design names. Each function leads an open page to one, whatever the language.

`screenshots.py` takes pictures of them; a test goes through them.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from graphmem.commands.types import RetireMemory
from graphmem.service.keys import Keys
from support.page import Site
from support.page_story import CONCERT_NOW, QUESTION, TURNS, USER, VAGUE_QUESTION

State = Callable[[Site], None]
STATES: dict[str, State] = {}
UNKNOWN = "00000000-0000-4000-8000-000000000000"


def state(function: State) -> State:
    """Registers a state under the name of its function."""
    STATES[function.__name__] = function
    return function


def button(site: Site, icon: str, within: str = "main") -> Any:
    """The first button with an icon."""
    return site.page.locator(f'{within} button:has(use[href="#i-{icon}"])').first


def go(site: Site, view: str, shown: str, **query: str) -> None:
    """Signs in and opens a view by its address; waits until an element is shown."""
    site.enter(Keys(site.memory).create("user", user_id=USER).text)
    site.page.locator(".row").first.wait_for()
    address = f"{view}?{urlencode(query)}" if query else view
    site.page.evaluate("address => { location.hash = address; }", address)
    site.page.locator(shown).first.wait_for()


def go_as(site: Site, role: str, view: str, shown: str) -> None:
    """Signs in with a key of a role that is bound to nobody, and opens a view."""
    site.enter(Keys(site.memory).create(role).text)
    site.page.locator("h1, main .read").first.wait_for()
    site.page.evaluate("address => { location.hash = address; }", view)
    site.page.locator(shown).first.wait_for()


def fail(site: Site, path: str) -> None:
    """Lets requests of a path fail from now on."""
    site.expected.append("Failed to load resource")
    site.page.route(path, lambda route: route.abort())


# --- sign-in ----------------------------------------------------------------------------------------------------------


@state
def sign_in(site: Site) -> None:
    site.expected.append("Failed to load resource")
    site.page.goto(f"{site.address}/ui/")
    site.page.locator("#key").wait_for()


@state
def sign_in_refused(site: Site) -> None:
    sign_in(site)
    site.page.fill("#key", "gm_00000000_x")
    site.page.press("#key", "Enter")
    site.page.locator(".door .hint.bad").wait_for()


@state
def sign_in_above_the_page(site: Site) -> None:
    memories_edited(site)
    site.expected.append("Failed to load resource")
    keys = Keys(site.memory)
    for key in keys.all():
        keys.revoke(key.id)
    site.page.locator(".acts .btn.primary").click()
    site.page.locator(".over #key").wait_for()


@state
def user_not_chosen(site: Site) -> None:
    go_as(site, "app", "memories", "main .read")


@state
def sign_in_for_tabs(site: Site) -> None:
    sign_in(site)
    site.page.locator(".door .sure input").check()


# --- memories ---------------------------------------------------------------------------------------------------------


@state
def memories(site: Site) -> None:
    go(site, "memories", ".row")


@state
def memories_loading(site: Site) -> None:
    memories(site)
    site.page.route("**/memories?*", lambda route: None)
    site.page.reload()
    site.page.locator(".bone").first.wait_for()


@state
def memories_failed(site: Site) -> None:
    memories(site)
    fail(site, "**/memories?*")
    site.page.reload()
    site.page.locator(".say.bad").wait_for()


@state
def memories_none(site: Site) -> None:
    memories(site)
    site.page.locator(".find .field").fill("zeppelin")
    site.page.locator(".empty").wait_for()


@state
def memories_kinds(site: Site) -> None:
    memories(site)
    site.page.locator(".picks .pick").first.click()
    site.page.locator(".menu li").first.wait_for()


@state
def memories_users(site: Site) -> None:
    go_as(site, "admin", "memories", ".row")
    site.page.locator("button.whose").click()
    site.page.locator(".menu li").nth(1).wait_for()


@state
def memories_first_day(site: Site) -> None:
    site.enter(Keys(site.memory).create("user", user_id="nobody-yet").text)
    site.page.locator(".ways").wait_for()


@state
def memories_opened(site: Site) -> None:
    memories(site)
    site.open(CONCERT_NOW)


@state
def memories_unknown(site: Site) -> None:
    site.expected.append("Failed to load resource")
    go(site, f"memories/{UNKNOWN}", ".panel .soft")


@state
def memories_edited(site: Site) -> None:
    memories_opened(site)
    button(site, "edit", ".acts").click()
    site.page.locator(".panel textarea").fill(f"{CONCERT_NOW} Bring a torch.")


@state
def memories_not_saved(site: Site) -> None:
    memories_edited(site)
    fail(site, "**/memories/*")
    site.page.locator(".acts .btn.primary").click()
    site.page.locator(".hint.bad").wait_for()


@state
def memories_saved(site: Site) -> None:
    memories_edited(site)
    site.page.locator(".acts .btn.primary").click()
    site.page.locator(".toast").wait_for()
    site.page.locator(".ev ins").first.wait_for()


@state
def memories_erasing(site: Site) -> None:
    memories_opened(site)
    site.page.locator(".acts .warns").click()
    site.page.locator("dialog").wait_for()


@state
def memories_erasing_confirmed(site: Site) -> None:
    memories_erasing(site)
    site.page.locator("dialog input").check()


@state
def keyboard(site: Site) -> None:
    memories(site)
    site.page.keyboard.press("?")
    site.page.locator("dialog .shortcuts").wait_for()


@state
def memories_adding(site: Site) -> None:
    go(site, "memories/new", ".panel textarea")
    site.page.locator(".panel textarea").fill("I keep bees on the roof.")


@state
def memories_of_all(site: Site) -> None:
    go_as(site, "admin", "memories", ".row")
    site.row(CONCERT_NOW).click()
    site.page.locator(".panel .words").wait_for()


@state
def memories_failed_in_the_service(site: Site) -> None:
    memories(site)
    site.expected.append("Failed to load resource")
    site.page.route("**/readyz", lambda route: None)
    problem = {"status": 503, "json": {"detail": "The store does not answer."}, "headers": {"X-Request-ID": "9f2c4e"}}
    site.page.route("**/memories?*", lambda route: route.fulfill(**problem))
    site.page.reload()
    site.page.locator(".request code").wait_for()


def retire(site: Site) -> None:
    """Ends the newest fact, of which the state shows that it is no longer true."""
    facts = site.memory.get_all(user_id=USER, kinds="fact")["results"]
    site.memory.engine.commit([RetireMemory(facts[0]["id"], at=datetime.now(UTC), reason="it rained")])


@state
def memories_retired(site: Site) -> None:
    retire(site)
    go(site, "memories", ".row .tag", truth="both")


# --- search -----------------------------------------------------------------------------------------------------------


@state
def search_unasked(site: Site) -> None:
    go(site, "search", ".query")


@state
def search(site: Site) -> None:
    go(site, "search", ".hit .chain", q=QUESTION)


@state
def search_paths(site: Site) -> None:
    search(site)
    closed = site.page.locator('.why button[aria-expanded="false"]')
    closed.first.click()
    closed.first.click()


@state
def search_none(site: Site) -> None:
    go(site, "search", ".empty", q="zeppelin", day="2020-02-02")


@state
def search_past(site: Site) -> None:
    go(site, "search", ".say", q=QUESTION, as_of="2025-05-01")


@state
def search_failed(site: Site) -> None:
    memories(site)
    fail(site, "**/search")
    site.page.evaluate("() => { location.hash = 'search?q=concert'; }")
    site.page.locator(".say.bad").wait_for()


@state
def search_retired(site: Site) -> None:
    retire(site)
    go(site, "search", ".hit .tag.line", q="When is the summer concert?", truth="both")


@state
def search_none_retired(site: Site) -> None:
    retire(site)
    go(site, "search", ".unsearched", q="zeppelin", day="2020-02-02")


# --- chat memory ------------------------------------------------------------------------------------------------------


@state
def chat(site: Site) -> None:
    go(site, "chat", ".set")


@state
def chat_unsaved(site: Site) -> None:
    chat(site)
    site.page.locator("#c-max_chars").fill("1500")
    site.page.locator("#c-save").uncheck()


@state
def chat_invalid(site: Site) -> None:
    chat(site)
    site.page.locator("#c-top_k").fill("0")
    site.page.locator(".saved .btn.primary").click()
    site.page.locator("#c-top_k-problem").wait_for()


@state
def chat_tried(site: Site) -> None:
    chat(site)
    for role, words in zip(("user", "assistant"), TURNS, strict=True):
        site.page.locator(f"#c-turn-{role}").fill(words)
    site.page.locator(".try form .field").fill(VAGUE_QUESTION)
    site.page.keyboard.press("Enter")
    site.page.locator(".block").wait_for()


@state
def chat_of_all(site: Site) -> None:
    go_as(site, "admin", "chat", ".set")


@state
def chat_failed(site: Site) -> None:
    memories(site)
    fail(site, "**/settings*")
    site.page.evaluate("() => { location.hash = 'chat'; }")
    site.page.locator(".say.bad").wait_for()


# --- graph ------------------------------------------------------------------------------------------------------------


def graph_at(site: Site, **query: str) -> None:
    go(site, "graph", '.net[data-open="true"] canvas', **query)
    site.page.locator(".legend button").first.wait_for()


@state
def graph(site: Site) -> None:
    graph_at(site)


@state
def graph_around(site: Site) -> None:
    graph_at(site, around="Greta Lindholm")
    site.page.locator("h2.named").wait_for()


@state
def graph_path(site: Site) -> None:
    search(site)
    site.page.locator(".said a.btn").click()
    site.page.locator('.net[data-open="true"] canvas').wait_for()
    site.page.locator(".panel .chain").wait_for()


@state
def graph_past(site: Site) -> None:
    graph_at(site, around="Greta Lindholm", as_of="2025-05-01")


@state
def graph_renaming(site: Site) -> None:
    graph_around(site)
    button(site, "edit", ".panel .acts").click()
    site.page.locator(".panel .field").first.wait_for()


@state
def graph_same_as(site: Site) -> None:
    graph_around(site)
    button(site, "same", ".panel .acts").click()
    site.page.locator(".panel .field").first.wait_for()


@state
def graph_nobody(site: Site) -> None:
    go(site, "graph", ".empty", around="Zeppelin")


@state
def graph_retired(site: Site) -> None:
    retire(site)
    graph_at(site, truth="both")


@state
def graph_nobody_retired(site: Site) -> None:
    retire(site)
    go(site, "graph", ".notes .say", around="Zeppelin")


# --- lifecycle --------------------------------------------------------------------------------------------------------

FADED = "The bus was late again."


def age(site: Site) -> None:
    """Adds a memory that has faded, forgets one, pins one, and runs a cycle that is undone."""
    site.said(30, FADED, user_id=USER)
    first, second, *_ = (one["id"] for one in site.memory.get_all(user_id=USER)["results"] if one["memory"] != FADED)
    site.memory.forget(first, user_id=USER)
    site.memory.pin(second, user_id=USER)
    site.memory.undo_cycle(site.memory.tend(user_id=USER)["cycle"], user_id=USER)


@state
def lifecycle(site: Site) -> None:
    age(site)
    go(site, "lifecycle", ".cycles")


@state
def lifecycle_planned(site: Site) -> None:
    age(site)
    site.said(30, "The tram was early.", user_id=USER)  # what an undone cycle brought back does not fade again
    go(site, "lifecycle", ".sect h2 .btn")
    site.page.locator(".sect h2 .btn").click()
    site.page.locator(".plan .fading").first.wait_for()


@state
def lifecycle_running(site: Site) -> None:
    lifecycle_planned(site)
    site.page.locator(".plan .btn.primary").click()
    site.page.locator("dialog").wait_for()


@state
def lifecycle_purging(site: Site) -> None:
    lifecycle(site)
    site.page.locator(".fading .warns").first.click()
    site.page.locator("dialog").wait_for()


@state
def lifecycle_restored(site: Site) -> None:
    lifecycle(site)
    site.page.locator(".fading .btn").first.click()
    site.page.locator(".toast").wait_for()


@state
def lifecycle_off(site: Site) -> None:
    memories(site)
    answer = site.memory.lifecycle_status(user_id=USER)
    site.page.route("**/lifecycle?*", lambda route: route.fulfill(json={**answer, "enabled": False}))
    site.page.evaluate("() => { location.hash = 'lifecycle'; }")
    site.page.locator(".say").wait_for()


@state
def lifecycle_held(site: Site) -> None:
    memories(site)
    answer = site.memory.lifecycle_status(user_id=USER)
    held = {"forgotten": 60, "memories": 80, "reason": ""}
    told = {**answer, "cycled_at": "2026-01-01T03:00:00+00:00", "held": held, "purge_after_days": 30}
    site.page.route("**/lifecycle?*", lambda route: route.fulfill(json=told))
    site.page.evaluate("() => { location.hash = 'lifecycle'; }")
    site.page.locator(".say.warn").wait_for()


@state
def lifecycle_of_all(site: Site) -> None:
    go_as(site, "admin", "lifecycle", ".empty")


@state
def memories_forgotten(site: Site) -> None:
    lifecycle(site)
    site.page.locator(".fading a.read").first.click()
    site.page.locator(".panel .words").wait_for()


@state
def memories_forgotten_now(site: Site) -> None:
    memories_opened(site)
    button(site, "pin", ".acts").click()
    site.page.locator(".panel header .tag + .tag").wait_for()
    site.page.keyboard.press("f")
    site.page.locator(".row[aria-current]").wait_for(state="detached")
    site.page.locator(".toast").wait_for()


# --- usage, system, keys ----------------------------------------------------------------------------------------------


@state
def usage(site: Site) -> None:
    go(site, "usage", ".fig")


@state
def system(site: Site) -> None:
    go_as(site, "admin", "system", ".store")


@state
def system_verified(site: Site) -> None:
    system(site)
    site.page.locator(".sect h2 .btn").first.click()
    site.page.locator('.sect .hint[role="status"]').wait_for()


@state
def keys(site: Site) -> None:
    go_as(site, "admin", "keys", ".table")


@state
def keys_making(site: Site) -> None:
    go_as(site, "admin", "keys/new", "form.make")
    site.page.locator("#key-label").fill("phone")


@state
def keys_made(site: Site) -> None:
    keys_making(site)
    site.page.locator("#key-role").select_option("admin")
    site.page.locator(".make .btn.primary").click()
    site.page.locator(".secret").wait_for()
