"""The dead letters of webhooks, and working memory, in the view of the system in a browser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.fakes import fake_models
from support.page import HOSTILE, NARROW, Site
from support.service import free_port
from support.waiting import wait_until
from support.webhook_receiver import SECRET, Receiver

from graphmem import Memory, Settings
from graphmem.service.keys import Keys

pytestmark = pytest.mark.server

TOLD = "Retry: memory.added to orders"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver that refuses each event for good, until a test gives it another `answer`."""
    with Receiver(lambda _: 400) as receiver:
        yield receiver


@pytest.fixture
def memory(tmp_path: Any, receiver: Receiver, request: pytest.FixtureRequest) -> Iterator[Memory]:
    """A memory with a webhook; further settings as `@pytest.mark.parametrize("memory", [{…}], indirect=True)`."""
    hook = {"name": "orders", "url": receiver.url, "events": ["memory.added"], "secret": SECRET}
    config = fake_models(home=str(tmp_path), webhooks=[hook], **getattr(request, "param", {}))
    with Memory(settings=Settings.from_dict(config)) as memory:
        yield memory


def refuse(memory: Memory, number: int, user_id: str = "ana") -> list[str]:
    """Adds memories of which the webhook takes no event; returns their ids, in the order of the letters."""
    added = [f"Number {n} of many." for n in range(number)]
    ids = [str(one["id"]) for one in memory.add(added, user_id=user_id, infer=False)["results"]]
    wait_until(lambda: memory.stats()["dead_letters"] == {"orders": number})
    return ids


def enter(site: Site, role: str = "admin", **bound: Any) -> Any:
    site.enter(Keys(site.memory).create(role, **bound).text)
    site.page.locator("h1, main .read").first.wait_for()
    site.page.evaluate("() => { location.hash = '#system'; }")
    return site.page


# --- dead letters -----------------------------------------------------------------------------------------------------


def test_a_dead_letter_is_posted_again_until_the_webhook_takes_it(site: Site, receiver: Receiver) -> None:
    refuse(site.memory, 2, user_id=HOSTILE)
    page = enter(site)
    letters = page.locator(".letter")
    letters.first.wait_for()
    lamp = page.locator("a.state")
    assert (lamp.text_content(), lamp.locator(".lamp.warn").count()) == ("2 dead letters", 1)
    assert letters.first.locator("bdi").text_content() == HOSTILE
    assert page.locator("main img, main script").count() == 0
    first, second = site.memory.dead_letters()["results"]
    assert letters.first.locator("time").get_attribute("datetime") == first["timestamp"]
    page.get_by_role("button", name=TOLD).first.click()
    page.locator(".toast", has_text="orders did not take it. It answered HTTP 400.").wait_for()
    wait_until(lambda: site.focused() == TOLD)  # once the list is read again
    assert letters.count() == 2
    receiver.answer = lambda _: 204
    page.get_by_role("button", name=TOLD).first.click()
    page.locator(".toast", has_text="Delivered to orders: memory.added.").wait_for()
    page.locator("a.state", has_text="1 dead letter").wait_for()
    assert receiver.ids[-1] == first["id"]
    wait_until(lambda: letters.count() == 1 and site.focused() == TOLD)
    assert letters.get_attribute("data-key") == f"orders memory.added {second['id']}"
    page.keyboard.press("Enter")
    page.get_by_text("None is left.").wait_for()
    page.locator("a.state", has_text="All in step").wait_for()
    wait_until(lambda: site.focused().startswith("Dead letters"))
    assert site.memory.dead_letters()["total"] == 0


def test_a_dead_letter_is_dropped_once_that_is_confirmed(site: Site) -> None:
    erased, _ = refuse(site.memory, 2)
    site.memory.delete(erased)
    page = enter(site)
    gone = page.locator(".letter", has_text="It can only be dropped")
    gone.wait_for()
    assert gone.get_by_role("button").all_text_contents() == ["Drop…"]
    assert page.get_by_role("button", name=TOLD).count() == 1
    gone.get_by_role("button").click()
    dialog = page.get_by_role("dialog", name="Drop the event memory.added for orders?")
    dialog.wait_for()
    assert site.focused() == "Keep it"
    page.keyboard.press("Enter")
    dialog.wait_for(state="detached")
    assert site.focused() == "Drop: memory.added to orders"
    assert site.memory.dead_letters()["total"] == 2
    page.keyboard.press("Enter")
    dialog.get_by_role("button", name="Drop").click()
    page.locator(".toast", has_text="Dropped: memory.added for orders.").wait_for()
    gone.wait_for(state="detached")
    (left,) = site.memory.dead_letters()["results"]
    assert left["timestamp"] is not None
    assert page.locator(".letter").count() == 1


def test_what_another_admin_dropped_meanwhile_leaves_the_list(site: Site) -> None:
    site.expected.append("Failed to load resource")
    refuse(site.memory, 1)
    page = enter(site)
    page.locator(".letter").wait_for()
    site.memory.drop_dead_letter(site.memory.dead_letters()["results"][0]["id"], webhook="orders")
    page.get_by_role("button", name=TOLD).click()
    page.locator(".toast", has_text="Not posted: ").wait_for()
    page.get_by_text("None is left.").wait_for()


@pytest.mark.parametrize("site", [NARROW], indirect=True)
def test_many_are_shown_in_steps_on_a_phone_in_chinese_too(site: Site) -> None:
    refuse(site.memory, 23)
    page = enter(site)
    page.get_by_text("1 to 20 of 23").wait_for()
    page.get_by_role("button", name="中文").click()
    page.get_by_role("button", name="显示更多").click()
    page.wait_for_function("() => document.querySelectorAll('.letter').length === 23")
    text = page.locator(".letter").first.inner_text()
    assert "应答为 HTTP 400。" in text and "重试" in text and "丢弃…" in text
    assert page.locator(".pager").count() == 0
    assert page.evaluate("() => document.documentElement.scrollWidth") == NARROW[0]


def test_without_dead_letters_they_are_neither_shown_nor_asked_for(site: Site) -> None:
    asked: list[str] = []
    site.page.on("request", lambda one: asked.append(one.url))
    page = enter(site)
    page.get_by_role("heading", name="Background jobs").wait_for()
    assert page.get_by_text("Dead letters").count() == 0
    assert not [url for url in asked if "dead-letters" in url]


# --- working memory ---------------------------------------------------------------------------------------------------


def test_without_working_memory_it_has_no_row(site: Site) -> None:
    page = enter(site)
    page.locator(".store").first.wait_for()
    names = [one["name"].title() for one in site.memory.stats()["stores"]]
    assert page.locator(".store h3").all_text_contents() == names


@pytest.mark.parametrize("memory", [{"working": {"provider": "memory"}}], indirect=True)
def test_working_memory_is_one_of_the_stores(site: Site) -> None:
    page = enter(site)
    row = page.locator(".store", has_text="Working memory")
    row.get_by_text("Checked against the ledger at each read.").wait_for()
    assert row.locator(".where").text_content() == "in the memory of the process"
    assert page.locator("a.state").text_content() == "All in step"


AWAY = {"working": {"provider": "redis", "config": {"url": f"redis://127.0.0.1:{free_port()}/0"}}}


@pytest.mark.parametrize("memory", [AWAY], indirect=True)
def test_a_redis_that_is_away_is_shown_as_late_not_as_failed(site: Site) -> None:
    pytest.importorskip("redis")
    site.memory.add("I sing.", user_id="ana", infer=False)
    assert site.memory.stats()["working_available"] is False
    page = enter(site)
    row = page.locator(".store", has_text="Working memory")
    row.get_by_text("The ledger answers in its place").wait_for()
    assert row.locator(".where").text_content() == "Redis"
    assert page.locator("a.state").text_content() == "Working memory out of reach"
    assert page.locator(".lamp.bad").count() == 0
    assert page.locator(".rail").evaluate("one => one.scrollWidth <= one.clientWidth")
    page.get_by_role("button", name="中文").click()
    page.locator(".store", has_text="工作记忆").get_by_text("由账本代为回答").wait_for()
