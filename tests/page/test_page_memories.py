"""The frame of the page and its memories, in a browser, as people use them."""

from __future__ import annotations

import re
from typing import Any
from uuid import uuid4

import pytest
from support.facts import fact, source_message, store
from support.fake_llm import Scripted
from support.fake_llm import fact as fact_of
from support.page import HOSTILE, NARROW, REFUSED, Site, cut_off

from graphmem.errors import StoreUnavailable
from graphmem.service import listing
from graphmem.service.keys import Keys

pytestmark = pytest.mark.server

HEBREW = "קלרה גרה בליסבון!"


def save_with_revoked_key(site: Site) -> None:
    """Revokes the key in use, presses Save, and signs in with a new key of the same user."""
    page, keys = site.page, Keys(site.memory)
    keys.revoke(keys.all()[0].id)
    page.get_by_role("button", name="Save").click()
    page.get_by_text("The key is not valid any more").wait_for()
    page.get_by_label("Key").fill(keys.create("user", user_id="ana").text)
    page.keyboard.press("Enter")
    page.locator(".over").wait_for(state="detached")


def refuse(*_: Any, **__: Any) -> None:
    raise StoreUnavailable("the disk is full")


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
    page.get_by_label("Key").wait_for()
    assert page.locator("#key-hint.bad").count() == 0 and page.get_by_label("Key").get_attribute("aria-invalid") is None
    for key, problem in (
        (site.key[:-3], f"keys have {len(site.key)} characters, this one {len(site.key) - 3}."),
        (f"{site.key}{site.key}", f"keys have {len(site.key)} characters, this has {2 * len(site.key)}."),
        (f"{site.key[:11]}…", "“…” is in no key."),
        (f"{site.key[:20]} {site.key[21:]}", "There is a space in this key."),
        (f"{site.key[:-4]}AAAA", "This key opens nothing here: it was revoked"),
        ("sk-of-something-else", "Keys begin with “gm_”"),
    ):
        page.get_by_label("Key").fill(key)
        page.keyboard.press("Enter")
        page.locator("#key-hint.bad", has_text=problem).wait_for()
        # What no header can carry was not sent.
        assert page.locator("#key-hint .request code").count() == (0 if "…" in key else 1)
    page.get_by_role("button", name="中文").click()
    page.locator("#key-hint.bad", has_text="密钥以“gm_”开头").wait_for()
    page.get_by_role("button", name="English").click()
    assert page.locator(".app").count() == 0
    page.get_by_label("Key").fill(f"{site.address}/ui/#key={site.key}")
    page.keyboard.press("Enter")
    site.row("Clara lives").wait_for()
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("Key").wait_for()
    assert page.get_by_text("Clara lives").count() == 0
    page.reload()
    page.get_by_label("Key").wait_for()


def test_a_new_tab_asks_for_the_key_unless_tabs_may_share_it_and_all_are_signed_out_at_once(site: Site) -> None:
    site.expected.append(REFUSED.format(401))
    address = f"{site.address}/ui/#memories/{site.add('Clara lives in Lisbon.')}"
    page = site.page
    site.enter()
    site.row("Clara lives").wait_for()

    def open_tab() -> Any:
        with page.context.expect_page() as opened:
            page.evaluate("address => void open(address, '_blank', 'noopener')", address)
        return opened.value

    first = open_tab()
    first.get_by_label("Also in new tabs of this browser").check()
    first.get_by_text("Kept in the open tabs of this page").wait_for()
    first.get_by_label("Key").fill(site.key)
    first.keyboard.press("Enter")
    first.locator(".panel .words", has_text="Clara lives").wait_for()
    second = open_tab()
    second.locator(".panel .words", has_text="Clara lives").wait_for()
    assert second.evaluate("localStorage.length + document.cookie.length") == 0
    for tab in (first, second):
        tab.close()
    third = open_tab()  # from the tab that had the same key before
    third.locator(".panel .words", has_text="Clara lives").wait_for()
    third.get_by_role("button", name="Sign out").click()
    page.get_by_label("Key").wait_for()
    assert page.get_by_text("Clara lives").count() == 0
    open_tab().get_by_label("Key").wait_for()


def test_text_that_was_typed_outlives_a_revoked_key(site: Site) -> None:
    site.expected.append(REFUSED.format(401))
    site.add("Clara lives in Lisbon.")
    site.enter()
    page = site.page
    site.open("Clara lives").get_by_role("button", name="Edit").click()
    page.get_by_label("Words of the memory").fill("Clara lives in Porto.")
    save_with_revoked_key(site)
    assert page.get_by_label("Words of the memory").input_value() == "Clara lives in Porto."
    assert "Your text is still here." in page.locator(".hint.bad").text_content()
    page.get_by_role("button", name="Save").click()
    page.locator(".ev ins").wait_for()


def test_a_mistyped_key_in_the_address_is_told_what_is_wrong_with_it(site: Site) -> None:
    site.expected.append(REFUSED.format(401))
    site.enter(site.key[:-3])
    problem = site.page.locator("#key-hint.bad")
    problem.wait_for()
    assert problem.text_content().startswith("This key is not whole")
    # Over an open page as well, also where the page's own key was lost before.
    site.add("Clara lives in Lisbon.")
    site.enter()
    site.open("Clara lives").get_by_role("button", name="Edit").click()
    site.page.get_by_label("Words of the memory").fill("Clara lives in Porto.")
    keys = Keys(site.memory)
    keys.revoke(keys.all()[0].id)
    site.page.get_by_role("button", name="Save").click()
    site.page.get_by_text("what you wrote is still here").wait_for()
    site.page.evaluate("() => { location.hash = '#key=gm_'; }")
    site.page.get_by_text("This key is not whole").wait_for()


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
    cut_off(site.page, "**/memories?*")
    site.enter()
    site.page.get_by_text("The service does not answer").wait_for()
    site.page.unroute("**/memories?*")
    site.page.get_by_role("button", name="Try again").click()
    site.row("Clara lives").wait_for()


def test_a_users_page_goes_on_when_the_network_is_back(site: Site) -> None:
    site.expected.append("Failed to load resource")
    site.add("Clara lives in Lisbon.")
    site.add("Ben drinks tea.")
    site.enter()
    site.row("Clara lives").wait_for()
    site.page.context.set_offline(True)
    site.page.get_by_label("Filter these memories").fill("tea")
    site.page.get_by_text("The service does not answer").wait_for()
    site.page.context.set_offline(False)
    site.row("Ben drinks").wait_for()
    assert site.page.get_by_role("alert").count() == site.row("Clara lives").count() == 0


def test_a_page_that_was_opened_without_the_service_opens_when_it_is_back(site: Site) -> None:
    site.expected.append("Failed to load resource")
    site.add("Clara lives in Lisbon.")
    cut_off(site.page, "**/caller")
    site.enter()
    site.page.get_by_text("The service does not answer").wait_for()
    site.page.unroute("**/caller")
    site.page.unroute("**/readyz")
    site.page.evaluate("() => dispatchEvent(new Event('online'))")
    site.row("Clara lives").wait_for()
    assert site.page.get_by_label("Key").count() == 0


def test_a_failed_request_is_shown_with_its_id_which_is_copied(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.expected.append(REFUSED.format(503))
    site.add("Clara lives in Lisbon.")
    page = site.page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.route("**/readyz", lambda route: None)  # it is not ready yet
    monkeypatch.setattr(listing, "memories_after", refuse)
    with page.expect_response("**/memories?*") as answer:
        site.enter()
    notice = page.get_by_role("alert")
    notice.wait_for()
    request_id = answer.value.json()["request_id"]
    assert notice.locator("code").text_content() == request_id
    notice.get_by_role("button", name="Copy the request’s id").click()
    notice.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("() => navigator.clipboard.readText()") == request_id
    monkeypatch.undo()
    page.get_by_role("button", name="Try again").click()
    panel = site.open("Clara lives")
    monkeypatch.setattr(site.memory.engine, "commit", refuse)
    panel.get_by_role("button", name="Delete…").click()
    page.get_by_role("checkbox").check()
    with page.expect_response("**/memories/*") as answer:
        page.get_by_role("button", name="Erase for good").click()
    page.locator("dialog .hint.bad code", has_text=answer.value.json()["request_id"]).wait_for()


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


def test_links_of_an_admin_carry_the_user_and_rows_of_everybody_name_theirs(site: Site) -> None:
    store(site.memory, "Clara lives in Lisbon.", user_id="ana", mentions=[CLARA], actor_id="Tom")
    site.memory.add("Ben drinks tea.", user_id="ben")
    site.enter(Keys(site.memory).create("admin").text)
    page = site.page
    site.row("Ben drinks").wait_for()
    assert "Memory of ana" in site.row("Clara lives").text_content()
    assert "Memory of ana" in site.row("Clara lives").get_attribute("aria-label")
    assert "Memory of ben" in site.row("Ben drinks").text_content()
    assert "user=" not in site.row("Clara lives").get_attribute("href")
    panel = site.open("Clara lives")
    assert panel.locator(".chip").get_attribute("href") == "#graph?around=Clara&user=ana"
    panel.get_by_role("link", name="Memory of ana").click()
    page.get_by_role("heading", name="What is remembered of ana").wait_for()
    panel.locator(".words", has_text="Clara lives").wait_for()
    page.reload()
    page.get_by_role("heading", name="What is remembered of ana").wait_for()
    site.row("Clara lives").wait_for()
    panel.locator(".chip").wait_for()
    links = page.locator(".nav a, .mark, a.row, .panel .chip").evaluate_all("all => all.map(one => one.hash)")
    assert len(links) > 8 and [one for one in links if not one.endswith("user=ana")] == []
    assert page.locator("main").get_by_text("Memory of ana").count() == 0  # all rows are
    page.get_by_role("button", name="Memory of ana. Choose another").click()
    page.get_by_role("option", name="Everybody").click()
    site.row("Ben drinks").wait_for()
    assert "user=" not in page.url


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


def test_the_field_of_the_filters_has_room_for_its_hint_beside_long_filters(site: Site) -> None:
    site.add("Clara lives in Lisbon.")
    site.enter()
    site.row("Clara lives").wait_for()
    site.page.evaluate("() => { location.hash = 'memories?truth=both'; }")
    site.page.get_by_role("button", name="True now or before").wait_for()
    room = site.page.locator(".find").evaluate(
        """one => {
          const [field, key] = [one.querySelector('input'), one.querySelector('kbd')];
          const style = getComputedStyle(field);
          const context = document.createElement('canvas').getContext('2d');
          context.font = `${style.fontSize} ${style.fontFamily}`;
          const hint = parseFloat(style.paddingLeft) + context.measureText(field.placeholder).width;
          return key.getBoundingClientRect().left - field.getBoundingClientRect().left - hint;
        }"""
    )
    assert room > 0


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
    page.get_by_text("1 to 1 of 1").wait_for()
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


def test_a_change_is_taken_back_while_it_is_the_last_one(site: Site) -> None:
    memory_id = site.add("Clara lives in Lisbon.")
    for text in ("Clara lives in Porto.", "Clara lives in Faro."):
        site.memory.update(memory_id, text=text, user_id="ana")
    site.enter()
    panel = site.open("Clara lives")
    assert panel.locator(".ev").count() == 3
    panel.get_by_role("button", name=re.compile("Undo: Changed")).click()
    panel.locator(".ev b", has_text="Taken back").wait_for()
    assert panel.locator(".ev button").count() == 1 and "undo of" not in panel.text_content()
    panel.get_by_role("button", name=re.compile("Undo: Taken back")).click()
    panel.locator(".words", has_text="Faro").wait_for()


def test_a_change_from_elsewhere_is_not_overwritten_unseen(site: Site) -> None:
    memory_id = site.add("Clara lives in Lisbon.")
    site.enter()
    page, panel = site.page, site.open("Clara lives")
    panel.get_by_role("button", name="Edit").click()
    page.get_by_label("Words of the memory").fill("Clara lives in Faro.")
    site.memory.update(memory_id, text="Clara lives in Porto.", user_id="ana")
    panel.get_by_role("button", name="Save").click()
    panel.get_by_text("it was changed meanwhile").wait_for()
    panel.locator(".ev ins", has_text="Porto").wait_for()
    assert site.memory.get(memory_id, user_id="ana")["memory"] == "Clara lives in Porto."
    panel.get_by_role("button", name="Save").click()
    panel.locator(".ev ins", has_text="Faro").wait_for()
    assert panel.locator(".ev del").first.text_content() == "Porto"


def test_the_browser_asks_before_it_drops_what_was_typed(site: Site) -> None:
    site.expected.append("beforeunload")
    site.add("Clara lives in Lisbon.")
    site.enter()
    page, panel = site.page, site.open("Clara lives")
    panel.get_by_role("button", name="Edit").click()
    field = page.get_by_label("Words of the memory")
    field.press("End")
    field.press_sequentially(" She sings.")
    page.keyboard.press("Escape")  # a draft in a field that is closed
    with page.expect_event("dialog"):
        page.evaluate("() => void location.reload()")
    panel.get_by_role("button", name="Edit").click()
    assert field.input_value() == "Clara lives in Lisbon. She sings."
    field.fill("Clara lives in Lisbon.")  # as it was: nothing to lose
    page.reload()
    page.locator(".panel .words").wait_for()


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
    site.row("Clara lives").wait_for(state="detached")
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


def test_lines_and_the_direction_of_a_script_are_kept(site: Site) -> None:
    poem, hebrew = "Roses are red,\nviolets are blue.", "קלרה גרה בליסבון."
    site.add(poem)
    site.add(hebrew)
    site.enter()
    words = site.row("Roses").locator(".read")
    # A row is drawn once it is known to be in view; before that it has no rendered text.
    site.page.wait_for_function("one => one.innerText !== ''", arg=words.element_handle())
    assert words.inner_text() == poem
    assert site.open("Roses").locator(".words").inner_text() == poem
    box = site.page.evaluate(
        """text => {
          const words = [...document.querySelectorAll(".row .read")].find((one) => one.textContent === text);
          const range = document.createRange();
          range.setStart(words.firstChild, text.length - 1);
          range.setEnd(words.firstChild, text.length);
          const [stop, all] = [range.getBoundingClientRect(), words.getBoundingClientRect()];
          return { stop: stop.left, left: all.left, right: all.right };
        }""",
        hebrew,
    )
    assert box["stop"] - box["left"] < box["right"] - box["stop"], (
        "the full stop of a Hebrew sentence is at its left end"
    )


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
    assert site.row("林晓").get_attribute("lang") == "zh-CN"
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


# --- adding -----------------------------------------------------------------------------------------------------------


def test_a_memory_is_added_and_opened(site: Site) -> None:
    site.add("Ben drinks tea.")
    site.enter()
    page = site.page
    page.get_by_role("link", name="Add").click()
    field = page.get_by_label("Words of the memory")
    field.wait_for()
    assert page.url.endswith("#memories/new")
    save = page.get_by_role("button", name="Save")
    assert save.is_disabled() and save.get_attribute("title") == "Write some words first"
    page.keyboard.type("Clara lives in Lisbon.")
    page.keyboard.press("Escape")  # the draft stays
    page.locator(".panel").wait_for(state="detached")
    assert "Add" in site.focused()
    page.keyboard.press("Enter")
    page.get_by_role("button", name="中文").click()
    page.get_by_role("button", name="English").click()
    assert field.input_value() == "Clara lives in Lisbon."
    field.press("Control+Enter")
    page.locator(".panel .words", has_text="Clara lives in Lisbon.").wait_for()
    page.locator(".toast", has_text="Kept.").wait_for()
    assert page.locator(".toast").get_by_role("button", name="Undo").count() == 0
    assert site.focused() == "Clara lives in Lisbon."
    assert site.row("Clara lives").get_attribute("aria-current") == "true"
    assert page.locator(".nav .count").text_content() == "2"
    page.go_back()  # not to the empty field
    page.locator(".panel").wait_for(state="detached")
    assert page.url.endswith(("/ui/", "#memories"))
    page.get_by_role("link", name="Add").click()
    assert field.input_value() == ""


def test_what_could_not_be_added_stays_in_the_field(site: Site) -> None:
    site.expected.append("Failed to load resource")
    site.enter()
    page = site.page
    page.get_by_role("link", name="Add").click()
    field = page.get_by_label("Words of the memory")
    field.fill("Clara lives in Lisbon.")
    page.route("**/memories", lambda route: route.abort())
    page.get_by_role("button", name="Save").click()
    page.get_by_text("Not saved: The service does not answer; check that it runs. Your text is still here.").wait_for()
    page.unroute("**/memories")
    page.get_by_role("button", name="中文").click()
    page.get_by_text("没能保存").wait_for()
    page.get_by_role("button", name="English").click()
    save_with_revoked_key(site)
    assert field.input_value() == "Clara lives in Lisbon."
    page.get_by_role("button", name="Save").click()
    site.row("Clara lives").wait_for()
    assert site.memory.get_all(user_id="ana")["total"] == 1


def test_a_memory_that_is_not_linked_yet_says_so(site: Site) -> None:
    def add(route: Any) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json={**answer.json(), "pending": ["graph"]})

    site.enter()
    page = site.page
    page.route("**/memories", lambda route: add(route) if route.request.method == "POST" else route.fallback())
    page.get_by_role("link", name="Add").click()
    page.get_by_label("Words of the memory").fill("Clara lives in Lisbon.")
    page.get_by_role("button", name="Save").click()
    page.get_by_text("kept; still being linked").wait_for()
    page.reload()
    page.locator(".panel .words").wait_for()
    assert page.get_by_text("kept; still being linked").count() == 0


def test_an_admin_of_all_users_chooses_one_before_adding(site: Site) -> None:
    site.add("Ben drinks tea.")
    site.enter(Keys(site.memory).create("admin").text)
    page = site.page
    page.get_by_role("link", name="Add").click()
    page.get_by_text("Whose memory is it to be?").wait_for()
    assert site.focused() == "Whose memory is it to be?"
    assert page.get_by_role("button", name="Save").count() == 0
    page.get_by_role("button", name="Memory of Everybody. Choose another").click()
    page.get_by_role("option", name="ana").click()
    page.get_by_role("heading", name="What is remembered of ana").wait_for()
    page.get_by_role("link", name="Add").click()
    page.get_by_label("Words of the memory").fill("Clara lives in Lisbon.")
    page.get_by_role("button", name="Save").click()
    page.locator(".panel .words").wait_for()
    assert {one["user_id"] for one in site.memory.get_all(user_id="ana")["results"]} == {"ana"}


SINGS, LOVES = fact_of("Sings in a choir"), fact_of("Loves rehearsals")
DRAWN = {"I sing in a choir and love rehearsals.": [SINGS, LOVES], "I moved to Rome.": ["Moved to Rome"]}


@pytest.mark.parametrize("facts", [DRAWN], indirect=True)
def test_facts_that_a_model_draws_are_shown_and_so_is_that_there_are_none(site: Site, facts: Scripted) -> None:
    site.enter()
    page = site.page

    def add(text: str) -> None:
        page.get_by_role("link", name="Add").click()
        page.get_by_label("Words of the memory").fill(text)
        page.get_by_label("Words of the memory").press("Control+Enter")

    add("I sing in a choir and love rehearsals.")
    page.locator(".toast", has_text="Kept as 2 facts.").wait_for()
    assert site.row("Sings in a choir").get_attribute("aria-current") == "true"
    assert site.row("Loves rehearsals").count() == 1
    page.get_by_role("button", name="中文").click()
    page.locator(".toast", has_text="已记下 2 条事实。").wait_for()  # a message follows the language
    page.get_by_role("button", name="English").click()
    for _ in range(2):  # saved again, it is still one memory
        add("Well, well.")
        page.locator(".panel .words", has_text="Well, well.").wait_for()
    assert site.memory.get_all(user_id="ana", kinds="episode", filters={"role": "user"})["total"] == 2
    facts.broken = True
    add("I moved to Rome.")
    page.locator(".toast", has_text="Kept; facts will be drawn from it later.").wait_for()
    page.locator(".panel").wait_for(state="detached")


# --- names, filters, what belongs to a memory -------------------------------------------------------------------------

LISBON = {"key": "lisbon", "name": "Lisbon", "type": "Place"}
CLARA = {"key": "clara", "name": "Clara", "type": "Person"}


def test_names_lead_to_the_graph_and_their_types_filter(site: Site) -> None:
    store(site.memory, "Clara lives in Lisbon.", user_id="ana", mentions=[CLARA, LISBON])
    store(site.memory, "Clara sings.", user_id="ana", mentions=[CLARA])
    store(site.memory, "It rains.", user_id="ana", mentions=[])
    site.enter()
    page = site.page
    assert site.open("lives in Lisbon").locator(".words a").evaluate_all("all => all.map(one => one.hash)") == [
        "#graph?around=Clara",
        "#graph?around=Lisbon",
    ]
    assert page.locator(".chip").evaluate_all("all => all.map(one => one.hash)").count("#graph?around=Lisbon") == 1
    page.get_by_role("button", name="Type of a name").click()
    page.keyboard.type("Plac")
    page.keyboard.press("Enter")
    site.row("Clara sings.").wait_for(state="detached")
    assert page.locator(".row").count() == 1
    page.get_by_text("1 to 1 of 1").wait_for()
    assert page.locator(".nav .count").text_content() == "3"
    assert page.locator(".panel .words").count() == 1
    page.reload()  # filters are in the address
    site.row("lives in Lisbon").wait_for()
    assert page.locator(".row").count() == 1
    page.get_by_label("Day").fill("2024-05-02")
    page.get_by_text("Nothing is remembered with these filters.").wait_for()
    page.get_by_label("Day").fill("2024-05-01")
    site.row("lives in Lisbon").wait_for()
    page.get_by_role("button", name="Take the filters off").click()
    site.row("It rains.").wait_for()


def test_words_without_facts_are_not_called_nothing(site: Site) -> None:
    source_message(site.memory, "I sing in a choir.", user_id="ana")
    site.enter()
    site.page.get_by_text("No fact was drawn from what was said yet.").wait_for()
    site.page.get_by_role("button", name="Every kind").click()
    site.row("I sing in a choir.").wait_for()


def test_attachments_are_lines_of_text(site: Site) -> None:
    picture = {"type": "image_url", "image_url": {"url": "https://x.test/cat.png", "caption": "My cat"}}
    text = {"type": "text", "text": "Look at her."}
    site.memory.add([{"role": "user", "content": [text, picture]}], user_id="ana")
    site.enter()
    attached = site.open("Look at her.").locator(".attached")
    assert attached.locator("li > *").all_inner_texts() == ["Image", "My cat\n\nhttps://x.test/cat.png"]
    assert attached.locator("img, a").count() == 0
    site.page.get_by_role("button", name="中文").click()
    assert attached.locator(".faint").text_content() == "图片"


def test_hostile_captions_and_references_of_attachments_stay_text(site: Site) -> None:
    references = ["javascript:alert(4)", "data:text/html,<script>alert(5)</script>", "https://x.test/?<img src=x>"]
    spoken = [{"kind": "audio", "ref": ref, "caption": HOSTILE, "transcript": HEBREW} for ref in references]
    record = {"type": "memory", "id": str(uuid4()), "text": "Listen.", "user_id": "ana", "at": "2025-06-02T20:41:00Z"}
    site.memory.import_([{**record, "attachments": spoken}])
    site.enter()
    attached = site.open("Listen.").locator(".attached")
    assert attached.locator("code").all_text_contents() == references
    assert attached.locator(".read").all_text_contents() == [HOSTILE, HEBREW] * 3
    # A reference does not decide where the words beside it begin.
    assert attached.locator(".read").nth(1).evaluate("one => one.matches(':dir(rtl)')")
    assert attached.locator("a, img, script, b, [href], [src]").count() == 0


def test_a_memory_that_was_replaced_leads_to_the_later_one(site: Site) -> None:
    old = fact(site.memory, "Clara lives in Porto.", user_id="ana", valid_to="2024-06-01T00:00:00Z")
    later = [{"kind": "replaces", "memory": old}]
    store(site.memory, "Clara lives in Lisbon.", user_id="ana", kind="fact", links=later)
    site.enter()
    panel = site.open("Clara lives in Lisbon.")
    panel.get_by_role("link", name="another memory").click()
    panel.locator(".words", has_text="Porto").wait_for()
    assert "No longer true since" in panel.text_content()
    panel.get_by_role("link", name="another memory").click()
    panel.locator(".words", has_text="Lisbon").wait_for()


def test_what_is_no_longer_true_is_counted_found_and_erased(site: Site) -> None:
    ended = {"user_id": "ana", "valid_to": "2024-06-01T00:00:00Z"}
    message = source_message(site.memory, "I live in Porto.", **ended)
    fact(site.memory, "Clara lives in Porto.", message, **ended)
    fact(site.memory, "Clara lives in Lisbon.", user_id="ana")
    site.enter()
    page = site.page
    page.get_by_text("1 memory, and 2 kept from before").wait_for()
    assert page.locator(".nav .count").text_content() == "1"
    page.keyboard.press("/")
    page.keyboard.type("porto")
    page.get_by_text("Nothing of this is true now.").wait_for()
    page.get_by_role("button", name="Show 2 that are no longer true").click()
    site.row("Clara lives in Porto.").wait_for()
    assert (page.locator(".row").count(), site.row("I live in Porto.").count()) == (2, 1)
    page.get_by_text("2 memories that are no longer true").wait_for()
    assert page.locator(".row .tag", has_text="No longer true").count() == 2
    page.reload()  # the filter is in the address
    site.open("Clara lives in Porto.").get_by_role("button", name="Delete").click()
    page.get_by_label("Yes, erase").check()
    page.get_by_role("button", name="Erase for good").click()
    site.row("Clara lives in Porto.").wait_for(state="detached")
    page.get_by_role("button", name="Take the filters off").click()
    page.get_by_text("1 memory", exact=True).wait_for()
    assert "retired" not in site.memory.get_all(user_id="ana", kinds=["fact", "episode"])


def test_former_words_and_messages_behind_facts_are_found_and_erased(site: Site) -> None:
    edited = site.add("My post goes to Harbour Street.")
    site.memory.update(edited, "My post goes to Mill Lane.")
    message = source_message(site.memory, "I live in Harbour Street, and Clara in Porto.", user_id="ana")
    fact(site.memory, "Clara lives in Porto.", message, user_id="ana")
    site.enter()
    page = site.page
    site.row("Mill Lane").wait_for()
    page.keyboard.press("/")
    page.keyboard.type("harbour street")
    page.get_by_text("Nothing is remembered with these filters.").wait_for()
    page.get_by_role("button", name="Look in sources and former words too").click()
    site.row("I live in Harbour Street").wait_for()
    assert page.locator(".row").count() == 2
    for words in ("Mill Lane", "I live in Harbour Street"):
        site.open(words).get_by_role("button", name="Delete").click()
        page.get_by_label("Yes, erase").check()
        page.get_by_role("button", name="Erase for good").click()
        site.row(words).wait_for(state="detached")
    page.get_by_text("Nothing is remembered with these filters.").wait_for()
    assert page.get_by_role("button", name="Look in sources").count() == 0
    assert [one["memory"] for one in site.memory.get_all(user_id="ana")["results"]] == ["Clara lives in Porto."]


# --- keys, motion, many rows ------------------------------------------------------------------------------------------


def test_esc_closes_the_nearest_first(site: Site) -> None:
    site.add("Clara lives in Lisbon.")
    site.enter()
    page, panel = site.page, site.open("Clara lives")
    page.keyboard.press("Delete")
    page.get_by_role("dialog").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="detached")
    assert panel.count() == 1
    page.keyboard.press("Delete")
    page.evaluate("() => document.activeElement.blur()")
    page.keyboard.press("j")
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="detached")
    assert panel.locator(".words", has_text="Clara lives").count() == 1
    page.get_by_role("button", name="Kinds").click()
    page.keyboard.press("Escape")
    page.get_by_role("listbox").wait_for(state="detached")
    assert site.focused() == "Kinds: Facts and episodes" and panel.count() == 1
    page.keyboard.press("Escape")
    panel.wait_for(state="detached")
    assert "Clara lives" in site.focused()


@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_an_erased_row_collapses_after_the_message_unless_motion_is_unwanted(site: Site, motion: str) -> None:
    for text in ("Clara lives in Lisbon.", "Ben drinks tea."):
        site.add(text)
    site.page.emulate_media(reduced_motion=motion)
    site.enter()
    page = site.page
    site.open("Clara lives").get_by_role("button", name="Delete…").click()
    watch = """() => new Promise((done) => new MutationObserver(() => {
        if (!document.querySelector(".toast")) return;
        const count = (what) => document.querySelectorAll(what).length;
        done({ leaving: count(".leaving"), rows: count(".row") });
    }).observe(document.body, { childList: true, subtree: true }))"""
    page.evaluate(f"() => {{ window.seen = ({watch})(); }}")
    page.get_by_role("checkbox").check()
    page.get_by_role("button", name="Erase for good").click()
    seen = page.evaluate("() => window.seen")
    assert seen == ({"leaving": 1, "rows": 2} if motion == "no-preference" else {"leaving": 0, "rows": 1})
    site.row("Clara lives").wait_for(state="detached")
    assert page.locator(".row").count() == 1 and page.locator(".nav .count").text_content() == "1"


@pytest.mark.parametrize("site", [NARROW], indirect=True)
def test_on_a_phone_a_memory_and_another_view_begin_at_their_top(site: Site) -> None:
    rows = [
        {"role": "user", "content": f"Number {n} of many. " * 5, "timestamp": 1_700_000_000 + n * 60} for n in range(40)
    ]
    site.memory.add(rows, user_id="ana", infer=False)
    site.enter()
    page = site.page
    site.open("Number 0 of")
    page.locator(".panel").evaluate("panel => Promise.all(panel.getAnimations().map(one => one.finished))")
    rail = page.locator(".rail").bounding_box()
    assert page.locator(".panel header button").first.bounding_box()["y"] >= rail["y"] + rail["height"]
    page.keyboard.press("Escape")
    assert "Number 0 of" in site.focused()
    low = page.evaluate("scrollY")
    assert low > 500
    page.get_by_role("navigation").get_by_role("link", name="Search", exact=True).click()
    page.get_by_text("What would you like to find?").wait_for()
    assert page.evaluate("scrollY") == 0


def test_two_thousand_memories_are_scrolled_through_and_opened(site: Site) -> None:
    rows = [
        {"role": "user", "content": f"Number {n} of many.", "timestamp": 1_700_000_000 + n * 60} for n in range(2000)
    ]
    site.memory.add(rows, user_id="ana", infer=False)
    site.enter()
    page = site.page
    site.row("Number 1999 of").wait_for()
    for shown in range(200, 2001, 100):
        page.get_by_role("button", name="Show older").click()
        page.wait_for_function(f"() => document.querySelectorAll('.row').length === {shown}")
    drawn = """() => new Promise((done) => {
      let rows = 0;
      new MutationObserver((changes) => { rows += changes.length; }).observe(document.querySelector(".list"),
        { attributes: true, childList: true, characterData: true, subtree: true });
      scrollTo(0, document.documentElement.scrollHeight);
      setTimeout(() => done(rows), 300);
    })"""
    assert page.evaluate(drawn) == 0, "scrolling draws no row again"
    # Rows outside of the window are not laid out, but found, read aloud, and reached by keys.
    laid_out = "all => all.filter(one => one.checkVisibility({ contentVisibilityAuto: true })).length"
    assert 0 < page.locator(".row .cell").evaluate_all(laid_out) < 200
    browser = page.context.new_cdp_session(page)
    root = browser.send("DOM.getDocument")["root"]["nodeId"]
    assert site.row("Number 1500 of").locator(".cell").evaluate_all(laid_out) == 0
    links = browser.send("Accessibility.queryAXTree", {"nodeId": root, "role": "link"})["nodes"]
    assert len([one for one in links if "Number 1500 of many." in one["name"]["value"]]) == 1
    assert page.evaluate("() => window.find('Number 1500 of many')")
    assert site.row("Number 1500 of").locator(".cell").evaluate_all(laid_out) == 1
    site.row("Number 1000 of").focus()
    page.keyboard.press("j")
    assert "Number 999 of many." in site.focused()
    site.open("Number 0 of")
    assert page.locator(".row[aria-current=true]").count() == 1
    page.keyboard.press("k")
    page.locator(".panel .words", has_text="Number 1 of").wait_for()
    assert page.locator(".row[aria-current=true]").text_content().count("Number 1 of") == 1
