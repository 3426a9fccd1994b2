"""The frame of the page and its memories, in a browser, as people use them."""

from __future__ import annotations

import re

import pytest
from support.facts import fact, source_message
from support.page import HOSTILE, NARROW, REFUSED, Site

from graphmem.service.keys import Keys

pytestmark = pytest.mark.server


# --- signing in -------------------------------------------------------------------------------------------------------


def test_a_key_in_the_address_opens_the_page_and_leaves_the_address(site: Site) -> None:
    site.add("Clara lives in Lisbon.")
    site.enter()
    site.row("Clara lives").wait_for()
    assert site.page.url == f"{site.address}/ui/"
    assert site.page.locator("h1").text_content() == "What is remembered of you"
    site.page.reload()
    site.row("Clara lives").wait_for()
    assert site.page.evaluate("localStorage.length + document.cookie.length") == 0


def test_a_wrong_key_opens_nothing_and_a_right_one_does_until_sign_out(site: Site) -> None:
    site.expected.append(REFUSED.format(401))
    site.add("Clara lives in Lisbon.")
    page = site.page
    page.goto(f"{site.address}/ui/")
    page.get_by_label("Key").fill("gm_00000000_x")
    page.keyboard.press("Enter")
    page.get_by_text("This key opens nothing here.").wait_for()
    assert page.locator(".app").count() == 0
    page.get_by_label("Key").fill(f"{site.address}/ui/#key={site.key}")
    page.keyboard.press("Enter")
    site.row("Clara lives").wait_for()
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("Key").wait_for()
    assert page.get_by_text("Clara lives").count() == 0
    page.reload()
    page.get_by_label("Key").wait_for()


def test_text_that_was_typed_outlives_a_revoked_key(site: Site) -> None:
    site.expected.append(REFUSED.format(401))
    site.add("Clara lives in Lisbon.")
    site.enter()
    page = site.page
    site.open("Clara lives").get_by_role("button", name="Edit").click()
    page.get_by_label("Words of the memory").fill("Clara lives in Porto.")
    keys = Keys(site.memory)
    keys.revoke(keys.all()[0].id)
    page.get_by_role("button", name="Save").click()
    page.get_by_text("The key is not valid any more").wait_for()
    page.get_by_label("Key").fill(keys.create("user", user_id="ana").text)
    page.keyboard.press("Enter")
    page.locator(".over").wait_for(state="detached")
    assert page.get_by_label("Words of the memory").input_value() == "Clara lives in Porto."
    assert "Your text is still here." in page.locator(".hint.bad").text_content()
    page.get_by_role("button", name="Save").click()
    page.locator(".ev ins").wait_for()


def test_another_caller_finds_nothing_of_the_former(site: Site) -> None:
    site.add("Clara lives in Lisbon.")
    site.memory.add("Ben drinks tea.", user_id="ben")
    site.enter()
    site.open("Clara lives").get_by_role("button", name="Edit").click()
    site.page.get_by_label("Words of the memory").fill("A secret of Ana's.")
    site.page.keyboard.press("Escape")
    site.page.keyboard.press("Escape")
    site.page.evaluate(
        "key => { location.hash = `#key=${key}`; }", Keys(site.memory).create("user", user_id="ben").text
    )
    site.row("Ben drinks").wait_for()
    assert site.page.url == f"{site.address}/ui/"
    assert site.page.get_by_text("Clara lives").count() == 0
    site.enter()
    assert site.open("Clara lives").get_by_role("button", name="Edit").count() == 1


def test_a_list_that_fails_is_asked_for_again(site: Site) -> None:
    site.expected.append("Failed to load resource")
    site.add("Clara lives in Lisbon.")
    site.page.route("**/memories?*", lambda route: route.abort())
    site.enter()
    site.page.get_by_text("The service does not answer").wait_for()
    site.page.unroute("**/memories?*")
    site.page.get_by_role("button", name="Try again").click()
    site.row("Clara lives").wait_for()


def test_an_admin_chooses_whose_memory_is_shown(site: Site) -> None:
    site.add("Clara lives in Lisbon.")
    site.memory.add("Ben drinks tea.", user_id="ben")
    site.enter(Keys(site.memory).create("admin").text)
    site.row("Ben drinks").wait_for()
    assert site.row("Clara lives").count() == 1
    site.page.get_by_role("button", name="Memory of Everybody. Choose another").click()
    site.page.keyboard.type("an")
    site.page.get_by_role("option", name="ana").wait_for()
    site.page.keyboard.press("Enter")
    site.page.get_by_role("heading", name="What is remembered of ana").wait_for()
    site.row("Clara lives").wait_for()
    assert site.row("Ben drinks").count() == 0


def test_a_key_for_several_users_names_one_first(site: Site) -> None:
    site.add("Clara lives in Lisbon.")
    site.enter(Keys(site.memory).create("app").text)
    site.page.get_by_text("Choose whose memory to see.").wait_for()
    site.page.get_by_role("button", name="Memory of Choose a user. Choose another").click()
    site.page.keyboard.type("ana")
    site.page.keyboard.press("Enter")
    site.row("Clara lives").wait_for()


# --- memories ---------------------------------------------------------------------------------------------------------


def test_markup_in_memories_and_names_stays_text(site: Site) -> None:
    site.add(HOSTILE, name=HOSTILE[:40])
    site.enter()
    panel = site.open("javascript:alert(3)")
    assert panel.locator(".words").text_content() == HOSTILE
    assert site.row("javascript").locator(".read").text_content() == HOSTILE
    assert site.page.locator("main img, main script, main .read b, .panel a").count() == 0


def test_a_memory_that_is_added_meanwhile_is_seen(site: Site) -> None:
    site.enter()
    site.page.get_by_role("heading", name="Nothing is remembered yet").wait_for()
    text = site.page.locator(".first").text_content()
    assert site.address in text and site.key[:11] in text and site.key[11:] not in text
    site.add("Clara lives in Lisbon.", name="Ben")
    site.page.get_by_role("button", name="Look again").click()
    assert site.row("Clara lives").locator(".who").text_content() == "Ben"


def test_pages_follow_each_other_and_filters_look_through_all(site: Site) -> None:
    rows = [
        {"role": "user", "content": f"Number {n} of many.", "timestamp": 1_700_000_000 + n * 60} for n in range(230)
    ]
    rows[3] |= {"content": "A rare word: zeppelin."}
    site.memory.add(rows, user_id="ana", infer=False)
    site.enter()
    page = site.page
    site.row("Number 229 of").wait_for()
    assert page.locator(".row").count() == 100
    page.get_by_role("button", name="Show older").click()
    site.row("Number 50 of").wait_for()
    page.get_by_role("button", name="Show older").click()
    site.row("Number 0 of").wait_for()
    assert page.locator(".row").count() == 230
    assert page.get_by_role("button", name="Show older").count() == 0
    page.keyboard.press("/")
    page.keyboard.type("ZEPPELIN rare")
    site.row("Number 0 of").wait_for(state="detached")
    assert page.locator(".row").count() == 1
    page.keyboard.type(" nothing")
    page.get_by_text("Nothing is remembered with these filters.").wait_for()
    page.get_by_role("button", name="Take the filters off").click()
    site.row("Number 229 of").wait_for()
    page.get_by_label("Day").fill("2001-01-01")
    page.get_by_text("Nothing is remembered with these filters.").wait_for()
    page.get_by_role("button", name="Take the filters off").click()
    page.get_by_role("button", name="Kinds").click()
    page.get_by_role("option", name="Summaries").click()
    page.get_by_text("Nothing is remembered with these filters.").wait_for()


def test_an_edit_shows_its_difference_and_is_taken_back(site: Site) -> None:
    memory_id = site.add("Clara lives in Lisbon.")
    site.enter()
    page, panel = site.page, site.open("Clara lives")
    panel.get_by_role("button", name="Edit").click()
    page.get_by_label("Words of the memory").fill("Clara lives in Porto.")
    panel.get_by_role("button", name="Save").click()
    panel.locator("ins", has_text="Porto").wait_for()
    assert panel.locator("del").text_content() == "Lisbon"
    assert site.row("Clara lives in Porto.").get_by_label("changed").count() == 1
    panel.get_by_role("button", name=re.compile("Undo: Changed")).click()
    page.get_by_text("Taken back.").wait_for()
    assert panel.locator(".words").text_content() == "Clara lives in Lisbon."
    site.row("Clara lives in Lisbon.").wait_for()
    assert site.memory.get(memory_id, user_id="ana")["memory"] == "Clara lives in Lisbon."


def test_an_edit_that_fails_keeps_the_text(site: Site) -> None:
    site.expected.append(REFUSED.format(400))
    site.add("Clara lives in Lisbon.")
    site.enter()
    panel = site.open("Clara lives")
    panel.get_by_role("button", name="Edit").click()
    field = site.page.get_by_label("Words of the memory")
    field.fill("   ")
    panel.get_by_role("button", name="Save").click()
    panel.get_by_text("Your text is still here.").wait_for()
    field.fill("Clara lives in Porto.")
    site.page.keyboard.press("Escape")  # closes the field; the draft stays
    panel.get_by_role("button", name="Edit").click()
    assert field.input_value() == "Clara lives in Porto."
    panel.get_by_role("button", name="Keep as it was").click()
    assert panel.locator(".words").text_content() == "Clara lives in Lisbon."


def test_the_dialog_names_the_words_and_asks_twice(site: Site) -> None:
    memory_id = site.add("Clara lives in Lisbon.")
    site.add("Ben drinks tea.")
    site.enter()
    site.open("Clara lives").get_by_role("button", name="Delete…").click()
    dialog = site.page.get_by_role("dialog")
    assert dialog.locator("blockquote").text_content() == "Clara lives in Lisbon."
    assert "1change in its history" in dialog.locator(".gone").text_content()
    assert site.focused() == "Keep it"
    erase = dialog.get_by_role("button", name="Erase for good")
    assert erase.is_disabled()
    dialog.get_by_role("button", name="Keep it").click()
    assert site.memory.get(memory_id, user_id="ana") is not None
    site.page.keyboard.press("Delete")
    dialog.get_by_role("checkbox").check()
    erase.click()
    site.page.get_by_text("Erased.").wait_for()
    assert site.row("Clara lives").count() == 0
    assert site.memory.get(memory_id, user_id="ana") is None
    assert site.row("Ben drinks tea.").evaluate("row => row === document.activeElement")


def test_a_fact_shows_its_sources_and_takes_them_along(site: Site) -> None:
    said = source_message(site.memory, "The brewery has a wedding. We play on 28 June.", user_id="ana", actor_id="Maya")
    fact(site.memory, "The concert is on 28 June.", said, user_id="ana")
    site.add("Ben drinks tea.")
    site.enter()
    panel = site.open("The concert is on")
    assert panel.locator("header .tag").text_content() == "Fact"
    assert "Drawn from 1 message" in panel.text_content()
    quote = panel.locator(".quote")
    assert quote.locator(".who").text_content() == "Maya"
    assert quote.locator(".read").text_content() == "The brewery has a wedding. We play on 28 June."
    panel.get_by_role("button", name="Delete…").click()
    dialog = site.page.get_by_role("dialog")
    dialog.get_by_text("The brewery has a wedding.").wait_for()
    dialog.get_by_role("checkbox").check()
    dialog.get_by_role("button", name="Erase for good").click()
    site.page.get_by_text("Erased, with 1 other memory.").wait_for()
    assert site.memory.get(said, user_id="ana") is None


def test_an_undo_that_came_too_late_says_so(site: Site) -> None:
    site.expected.append(REFUSED.format(400))
    memory_id = site.add("Clara lives in Lisbon.")
    site.memory.update(memory_id, text="Clara lives in Porto.", user_id="ana")
    site.enter()
    panel = site.open("Clara lives")
    site.memory.update(memory_id, text="Clara lives in Faro.", user_id="ana")
    panel.get_by_role("button", name=re.compile("Undo: Changed")).click()
    site.page.get_by_text("Not undone: it was changed again since.").wait_for()
    assert site.memory.get(memory_id, user_id="ana")["memory"] == "Clara lives in Faro."


def test_another_users_memory_reads_as_an_unknown_one(site: Site) -> None:
    site.expected.append(REFUSED.format(404))
    foreign = site.memory.add("Ben drinks tea.", user_id="ben")["results"][0]["id"]
    site.add("Clara lives in Lisbon.")
    site.enter()
    site.row("Clara lives").wait_for()
    texts = []
    for memory_id in (foreign, "5d1a2d4e-0000-4000-8000-000000000000"):
        site.page.evaluate("id => { location.hash = `#memories/${id}`; }", memory_id)
        site.page.get_by_text("There is no such memory here.").wait_for()
        texts.append(site.page.locator(".panel").text_content())
        site.page.keyboard.press("Escape")
        site.page.locator(".panel").wait_for(state="detached")
    assert texts[0] == texts[1]


def test_the_keyboard_alone_is_enough(site: Site) -> None:
    site.add("Clara lives in Lisbon.")
    site.add("Ben drinks tea.")
    site.enter()
    page = site.page
    site.row("Ben drinks").wait_for()
    page.keyboard.press("Tab")
    assert site.focused() == "Skip to content"
    page.keyboard.press("j")
    assert "Ben drinks" in site.focused()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.locator(".panel .words").wait_for()
    assert site.focused() == "Clara lives in Lisbon."
    page.keyboard.press("k")
    page.locator(".panel .words", has_text="Ben drinks tea.").wait_for()
    page.keyboard.press("e")
    page.keyboard.press("Control+A")
    page.keyboard.type("Ben just drinks juice.")
    page.keyboard.press("Control+Enter")
    page.locator(".panel ins", has_text="juice").wait_for()
    page.keyboard.press("u")
    page.locator(".panel .words", has_text="Ben drinks tea.").wait_for()
    page.keyboard.press("Escape")
    page.locator(".panel").wait_for(state="detached")
    assert "Ben drinks tea." in site.focused()
    page.keyboard.press("?")
    page.get_by_role("dialog", name="Keyboard").get_by_label("Single letters are commands").uncheck()
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    assert page.get_by_role("dialog").count() == 0


def test_language_and_theme_stay(site: Site) -> None:
    site.add("Clara lives in Lisbon.")
    site.add("林晓对花生过敏。")
    site.enter()
    page = site.page
    site.row("林晓").wait_for()
    assert site.row("林晓").locator(".read").get_attribute("lang") == "zh-CN"
    page.get_by_role("button", name="中文").click()
    page.get_by_role("button", name="浅色或深色").click()
    assert page.locator("h1").text_content() == "关于你的记忆"
    page.reload()
    site.row("林晓").wait_for()
    assert page.locator("html").get_attribute("lang") == "zh-CN"
    assert page.locator("html").get_attribute("data-theme") == "dark"
    assert page.locator("[style]").count() == 0


@pytest.mark.parametrize("site", [NARROW], indirect=True)
def test_on_a_phone_the_panel_takes_the_place_of_the_list(site: Site) -> None:
    site.add(f"Clara lives in {'Llanfair' * 12}.")
    site.enter()
    page = site.page
    panel = site.open("Clara lives")
    assert not site.row("Clara lives").is_visible()
    width = "() => document.documentElement.scrollWidth"
    assert page.evaluate(width) == NARROW[0]
    panel.get_by_role("button", name="Delete…").click()
    page.get_by_role("dialog").get_by_role("button", name="Keep it").click()
    assert page.evaluate(width) == NARROW[0]
    page.go_back()
    site.row("Clara lives").wait_for()
    assert page.locator(".panel").count() == 0
    small = page.locator(".rail button, .tabs a, .row").evaluate_all(
        "all => all.map(one => one.getBoundingClientRect().height).filter(height => height < 36)"
    )
    assert small == []
