"""The view of the keys, in a browser."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from support.page import HOSTILE, NARROW, REFUSED, Site, cut_off
from support.service import expired_key

from graphmem.service.keys import PREFIX, Keys

pytestmark = pytest.mark.server


def enter(site: Site, view: str = "keys", label: str = "Mine") -> Any:
    """Opens the view with a new admin's key of this label."""
    site.enter(Keys(site.memory).create("admin", label=label).text)
    site.page.locator("h1").wait_for()
    site.page.evaluate("view => { location.hash = `#${view}`; }", view)
    site.page.get_by_role("heading", name="Keys", exact=True).wait_for()
    site.page.locator(".keyring").wait_for()
    return site.page


def row(page: Any, label: str) -> Any:
    return page.locator(".keyring tbody tr", has_text=label)


def secret_of(page: Any) -> str:
    """The whole key that the page shows after it was made."""
    return str(page.get_by_label("The whole key").text_content())


def make(page: Any, label: str, **fields: str) -> str:
    """Makes a key by the form; returns its text."""
    page.get_by_role("link", name="Make a key").click()
    for name, text in {"Name": label, **fields}.items():
        page.get_by_label(name, exact=True).fill(text)
    page.get_by_role("button", name="Make it").click()
    return secret_of(page)


def test_a_key_opens_the_page_until_it_is_revoked(site: Site) -> None:
    page = enter(site)
    key = make(page, "Ben's phone", User="ben", Agent="tutor", **{"Requests at most": "6000/minute"})
    (made,) = [one for one in Keys(site.memory).all() if one.label == "Ben's phone"]
    assert (made.role, made.user_id, made.agent_id, made.rate) == ("user", "ben", "tutor", "6000/minute")
    page.get_by_role("button", name="I have it").click()
    assert row(page, "Ben's phone").locator("td").all_text_contents()[1:4] == ["User", "ben / tutor", key[:11]]
    assert "not yet" in row(page, "Ben's phone").text_content()
    ask = "key => fetch('/caller', { headers: { 'X-API-Key': key } }).then((answer) => answer.status)"
    assert page.evaluate(ask, key) == 200
    row(page, "Ben's phone").get_by_role("button", name="Revoke").click()
    dialog = page.get_by_role("dialog", name="Revoke the key “Ben's phone”?")
    assert site.focused() == "Keep it valid"
    assert key[:11] in dialog.text_content() and "signed in" not in dialog.text_content()
    dialog.get_by_role("button", name="Keep it valid").click()
    assert page.evaluate(ask, key) == 200
    row(page, "Ben's phone").get_by_role("button", name="Revoke").click()
    dialog.get_by_role("button", name="Revoke", exact=True).click()
    page.get_by_text("Revoked: “Ben's phone”.").wait_for()
    row(page, "Ben's phone").get_by_text("revoked").wait_for()
    assert row(page, "Ben's phone").get_by_role("button").count() == 0
    assert page.locator(".keyring tbody tr").last.text_content().startswith("Ben's phone")
    assert site.focused() == "Revoke “Mine”"
    site.expected.append(REFUSED.format(401))
    page.evaluate("key => { location.hash = `#key=${key}`; }", key)
    page.get_by_text("This key opens nothing here: it was revoked").wait_for()
    assert page.locator(".app").get_attribute("inert") is not None


def test_a_secret_stays_until_it_is_confirmed_and_is_nowhere_else(site: Site) -> None:
    page = enter(site)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    key = make(page, "Ben's phone", User="ben")
    assert key.startswith(f"{PREFIX}_") and "cannot be read again" in page.locator(".make").text_content()
    assert site.focused() == "The key “Ben's phone” is made"
    page.get_by_role("button", name="Copy").click()
    page.get_by_text("Copied.").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == key
    secret = key[12:]
    page.get_by_role("button", name="中文").click()
    page.get_by_role("button", name="English").click()
    page.keyboard.press("Escape")
    assert secret_of(page) == key
    stored = "JSON.stringify([{ ...sessionStorage }, { ...localStorage }, document.cookie, location.href])"
    page.go_back()
    for view in ("memories", "keys/new", "system"):
        page.evaluate("view => { location.hash = `#${view}`; }", view)
        page.locator("h1").wait_for()
        page.locator(".nav [aria-current]").wait_for()
    page.locator(".store").first.wait_for()
    assert secret not in page.content() and secret not in page.evaluate(stored)
    page.evaluate("() => { location.hash = '#keys'; }")
    assert secret_of(page) == key and secret not in page.evaluate(stored)
    page.get_by_role("button", name="I have it").click()
    page.locator(".make").wait_for(state="detached")
    assert site.focused() == "Make a key"
    make(page, "Ben's tablet", User="ben")
    page.get_by_role("button", name="Sign out").click()
    enter(site)
    assert page.get_by_label("The whole key").count() == page.locator(".make").count() == 0


@pytest.mark.parametrize("zone", ["Asia/Shanghai", "America/Los_Angeles"], indirect=True)
def test_a_key_is_valid_to_the_end_of_the_day_where_the_reader_is(site: Site, zone: str) -> None:
    other = Keys(site.memory)
    other.create("app", label="Elsewhere", expires_at="2099-12-31T12:30:00Z")
    page = enter(site)
    make(page, "Ben's phone", User="ben", **{"Valid until": "2099-12-31"})
    page.get_by_role("button", name="I have it").click()
    (made,) = [one for one in other.all() if one.label == "Ben's phone"]
    end = datetime(2100, 1, 1, tzinfo=ZoneInfo(zone))
    assert made.expires_at == end - timedelta(milliseconds=1)
    until = row(page, "Ben's phone").locator("td").nth(6)
    assert until.text_content() == "31 December 2099"
    assert until.locator("time").get_attribute("title") == f"{made.expires_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    local = datetime(2099, 12, 31, 12, 30, tzinfo=UTC).astimezone(ZoneInfo(zone))
    assert row(page, "Elsewhere").locator("td").nth(6).text_content() == f"31 December 2099, {local:%H:%M}"


def test_the_list_is_loaded_whenever_it_is_shown(site: Site) -> None:
    page = enter(site)
    page.get_by_role("link", name="Make a key").click()
    Keys(site.memory).create("app", label="Made elsewhere")
    page.get_by_role("link", name="Make none").click()
    row(page, "Made elsewhere").wait_for()
    assert site.focused() == "Make a key"


def test_what_is_wrong_is_said_at_its_field_and_nothing_is_lost(site: Site) -> None:
    site.expected.append(REFUSED.format(400))
    page = enter(site, "keys/new")
    do = page.get_by_role("button", name="Make it")
    do.click()
    name = page.get_by_label("Name", exact=True)
    assert name.get_attribute("aria-invalid") == "true"
    assert name.evaluate("field => field === document.activeElement")
    assert page.locator("#key-user_id-note").text_content() == "Name the user whose memories it reaches."
    name.fill("Ben's phone")
    page.get_by_label("User", exact=True).fill("ben")
    page.get_by_label("Valid until").fill("2020-01-01")
    page.get_by_label("Requests at most").fill("many")
    do.click()
    assert page.locator(".hint.bad").all_text_contents() == [
        "This day is over; choose a later one.",
        "Write it as 600/minute (second, minute, hour or day).",
    ]
    page.get_by_label("Valid until").fill("2099-12-31")
    page.get_by_label("Requests at most").fill("")
    page.get_by_label("User", exact=True).fill("x" * 2000)
    do.click()
    assert page.locator("#key-user_id-note").text_content().startswith("Not made: user_id")
    assert name.input_value() == "Ben's phone"
    page.get_by_label("Role").select_option("app")
    assert page.get_by_label("User", exact=True).count() == 0
    do.click()
    secret_of(page)
    (made,) = [one for one in Keys(site.memory).all() if one.label == "Ben's phone"]
    assert (made.role, made.user_id) == ("app", None)
    assert made.expires_at is not None and made.expires_at.year in {2099, 2100}


def test_revoking_the_key_one_is_signed_in_with_says_so_first(site: Site) -> None:
    site.expected.append(REFUSED.format(401))
    page = enter(site)
    assert row(page, "Mine").locator(".tag").text_content() == "this one"
    assert page.locator(".keyring .tag").count() == 1
    row(page, "Mine").get_by_role("button", name="Revoke").click()
    dialog = page.get_by_role("dialog")
    assert "You are signed in with this key." in dialog.text_content()
    dialog.get_by_role("button", name="Revoke", exact=True).click()
    page.get_by_text("The key is not valid any more").wait_for()
    page.get_by_label("Key", exact=True).fill(Keys(site.memory).create("admin", label="Next").text)
    page.keyboard.press("Enter")
    page.locator(".over").wait_for(state="detached")
    page.reload()
    row(page, "Mine").get_by_text("revoked").wait_for()


def test_keys_that_are_over_come_last_and_labels_stay_text(site: Site) -> None:
    expired_key(site.memory)
    Keys(site.memory).create("user", user_id=HOSTILE, label=HOSTILE)
    page = enter(site)
    assert row(page, HOSTILE[:20]).locator("td").first.text_content() == HOSTILE
    assert page.locator("main img, main script, main .keyring b, .keyring a").count() == 0
    assert "expired" in page.locator(".keyring tbody tr").last.text_content()
    row(page, HOSTILE[:20]).get_by_role("button").click()
    assert page.get_by_role("dialog").locator("h2").text_content() == f"Revoke the key “{HOSTILE}”?"
    assert page.locator("dialog img, dialog script, dialog b").count() == 0


def test_a_table_that_fails_is_asked_for_again(site: Site) -> None:
    site.expected.append("Failed to load resource")
    page = site.page
    cut_off(page, "**/api-keys")
    site.enter(Keys(site.memory).create("admin", label="Mine").text)
    page.locator("h1").wait_for()
    page.evaluate("() => { location.hash = '#keys'; }")
    page.get_by_text("The keys could not be loaded.").wait_for()
    page.unroute("**/api-keys")
    page.get_by_role("button", name="Try again").click()
    row(page, "Mine").wait_for()


def test_the_keyboard_alone_is_enough(site: Site) -> None:
    page = enter(site)
    page.locator("main").focus()
    page.keyboard.press("Tab")
    assert site.focused() == "Make a key"
    page.keyboard.press("Enter")
    page.locator(".make").wait_for()
    page.keyboard.type("Ben's phone")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.type("ben")
    page.keyboard.press("Enter")
    key = secret_of(page)
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    assert site.focused() == "Copy"
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.locator(".make").wait_for(state="detached")
    assert key not in page.content()
    page.get_by_role("button", name="Revoke “Ben's phone”").focus()
    page.keyboard.press("Enter")
    page.get_by_role("dialog").wait_for()
    page.keyboard.press("Escape")
    page.locator("dialog").wait_for(state="detached")
    assert site.focused() == "Revoke “Ben's phone”"
    page.keyboard.press("Enter")
    page.get_by_role("dialog").wait_for()
    page.keyboard.press("Tab")
    assert site.focused() == "Revoke"
    page.keyboard.press("Enter")
    row(page, "Ben's phone").get_by_text("revoked").wait_for()
    page.get_by_role("link", name="Make a key").focus()
    page.keyboard.press("Enter")
    page.locator(".make").wait_for()
    page.keyboard.press("Escape")
    page.locator(".make").wait_for(state="detached")


@pytest.mark.parametrize("site", [NARROW], indirect=True)
def test_on_a_phone_nothing_is_wider(site: Site) -> None:
    Keys(site.memory).create("user", user_id="Llanfair" * 12, label="Llanfair" * 12)
    page = enter(site)
    width = "() => document.documentElement.scrollWidth"
    assert page.evaluate(width) == NARROW[0]
    assert page.locator(".scroll").evaluate("one => one.scrollWidth - one.clientWidth") == 0
    assert page.locator(".keyring th:visible").all_text_contents() == ["Name", "Role", "User", "Valid until"]
    row(page, "Llanfair").get_by_role("button").click()
    assert page.evaluate(width) == NARROW[0]
    page.keyboard.press("Escape")
    make(page, "Ben's phone", User="ben")
    assert page.evaluate(width) == NARROW[0]
    fields = page.locator(".make input, .make button, .keyring button").evaluate_all(
        "all => all.map(one => one.getBoundingClientRect().height).filter(height => height < 36)"
    )
    assert fields == []


def test_all_of_it_is_there_in_chinese(site: Site) -> None:
    expired_key(site.memory)
    page = enter(site, "keys/new", label="主密钥")
    page.get_by_role("button", name="中文").click()
    page.get_by_role("button", name="新建", exact=True).click()
    assert page.locator(".hint.bad").first.text_content() == "请填写名称。"
    for role in ("app", "admin", "metrics", "user"):
        page.get_by_label("角色").select_option(role)
    words = set(re.findall(r"[A-Za-z]{3,}", re.sub(r"gm_\w+", "", page.locator("main").inner_text())))
    assert words <= {"minute", "second", "hour", "day", "ana"}
    row(page, "主密钥").get_by_role("button", name="吊销").click()
    assert page.get_by_role("dialog").locator("h2").text_content() == "吊销密钥“主密钥”？"
