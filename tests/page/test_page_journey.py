"""The page as a whole: what is told, found, followed, corrected, taken back, switched off and erased in one sitting."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import httpx2
import pytest
from support.fake_llm import Scripted, fact
from support.fakes import fake_models
from support.page import REFUSED, Site

from graphmem import Memory, Settings, wiring
from graphmem.testing import ModelEndpoint, WordExtractor

pytestmark = pytest.mark.server

QUESTION = "Who owns the venue for the concert of the town?"
FERRIES = "Kestrel Ferries carries every cello of the town for nothing."
TOLD = "By the way, they carry every cello for nothing."
NAMED = ["Kestrel Ferries (Organisation)"]
MOVED = "Imagine, Greta Lindholm directs Kestrel Ferries since May."


def _answer(body: Mapping[str, Any]) -> str:
    """Draws the fact of what is told; any other request is a chat."""
    try:
        return Scripted({TOLD: [fact(FERRIES, entities=NAMED)]})(body)
    except json.JSONDecodeError:
        return "Ask Kestrel Ferries."


@pytest.fixture
def endpoint() -> Iterator[ModelEndpoint]:
    with ModelEndpoint(default=_answer) as endpoint:
        yield endpoint


@pytest.fixture
def memory(tmp_path: Any, endpoint: ModelEndpoint, monkeypatch: pytest.MonkeyPatch) -> Iterator[Memory]:
    """A memory with two messages, in which runs of capitalised words are names."""
    monkeypatch.setattr(wiring, "_extractor", lambda _: WordExtractor())
    model = {"openai_base_url": endpoint.url, "api_key": "any", "model": "test-model"}
    config = fake_models(home=str(tmp_path), llm={"provider": "openai", "config": model})
    said = [
        ("Ravi", "2025-03-03T08:10:00Z", "Here is a venue for the concert: Greta Lindholm owns it."),
        ("Tomas", "2025-04-14T20:15:00Z", "Imagine, Greta Lindholm directs Kestrel Ferries."),
    ]
    messages = [{"role": "user", "name": who, "content": text, "timestamp": at} for who, at, text in said]
    with Memory(settings=Settings.from_dict(config)) as memory:
        memory.add(messages, user_id="ana", infer=False)
        yield memory


def _messages_forwarded(site: Site, endpoint: ModelEndpoint) -> str:
    """Sends a chat through the proxy; returns the messages that the endpoint got for it."""
    body = {"model": "m", "messages": [{"role": "user", "content": "Who carries a cello?"}]}
    answer = httpx2.post(f"{site.address}/v1/chat/completions", json=body, headers={"X-API-Key": site.key})
    assert answer.status_code == 200
    return next(str(one.body["messages"]) for one in reversed(endpoint.requests) if one.body.get("model") == "m")


def _texts(site: Site) -> set[str]:
    """The memories as the library has them, with the messages that facts were drawn from."""
    found = site.memory.get_all(user_id="ana", kinds=["fact", "episode"])["results"]
    return {one["memory"] for one in found}


def test_the_journey_by_mouse(site: Site, endpoint: ModelEndpoint) -> None:
    page = site.page
    site.expected.append(REFUSED.format(401))  # the page asks first whether a key is needed
    page.goto(f"{site.address}/ui/")
    page.get_by_label("Key").fill(site.key)
    page.get_by_role("button", name="Open").click()
    site.row("Imagine").wait_for()

    page.get_by_role("link", name="Add").click()
    page.get_by_label("Words of the memory").fill(TOLD)
    page.get_by_role("button", name="Save").click()
    page.get_by_text("Kept as 1 fact.").wait_for()
    page.locator(".panel .quote .read", has_text=TOLD).wait_for()
    site.memory.flush()  # links what was added

    page.get_by_role("link", name="Search").click()
    page.get_by_label("Question").fill(QUESTION)
    page.get_by_role("button", name="Search").click()
    found = page.locator(".hit", has=page.locator(".words", has_text=FERRIES))
    page.locator(".hit").first.wait_for()
    found.get_by_role("button", name="Show the path, 3 memories, 2 names").click(timeout=3000)
    assert found.locator(".chip").all_text_contents() == ["Greta Lindholm", "Kestrel Ferries"]
    found.locator(".chip", has_text="Kestrel").click()
    page.locator("h2.named", has_text="Kestrel Ferries").wait_for()
    page.go_back()
    page.get_by_role("link", name="Show in the graph").click()
    page.locator("aside.panel .chain").wait_for()
    page.locator('.net[aria-label*="4 memories"]').wait_for()
    page.locator("aside.panel .stop a", has_text="Imagine").click()
    page.locator(".panel .words", has_text="Imagine").wait_for()

    page.get_by_role("button", name="Edit").click()
    page.get_by_label("Words of the memory").fill(MOVED)
    page.get_by_role("button", name="Save").click()
    page.locator(".ev ins", has_text="since May").wait_for()
    assert MOVED in _texts(site)
    page.locator(".ev").first.get_by_role("button").click()
    page.get_by_text("Taken back.").wait_for()
    assert MOVED not in _texts(site)

    assert FERRIES in _messages_forwarded(site, endpoint)
    page.get_by_role("link", name="Chat memory").click()
    page.get_by_role("switch", name="Use memory in chats").uncheck()
    page.get_by_role("switch", name="Remember what is said").uncheck()
    page.get_by_role("button", name="Save").click()
    page.get_by_text("Everything is saved.").wait_for()
    assert FERRIES not in _messages_forwarded(site, endpoint)

    page.get_by_role("link", name="Memories").click()
    site.open(FERRIES).get_by_role("button", name="Delete…").click()
    page.get_by_role("checkbox").check()
    page.get_by_role("button", name="Erase for good").click()
    page.get_by_text("Erased, with 1 other memory.").wait_for()
    assert not {FERRIES, TOLD} & _texts(site)
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("Key").wait_for()


def test_the_journey_by_keyboard(site: Site, endpoint: ModelEndpoint) -> None:
    page = site.page

    def press(*keys: str) -> None:
        for key in keys:
            page.keyboard.press(key)

    def open_row(text: str) -> None:
        site.row(text).wait_for()
        while not page.locator(".row:focus", has_text=text).count():
            press("j")
        press("Enter")
        page.locator(".panel .words", has_text=text).wait_for()

    site.expected.append(REFUSED.format(401))
    page.goto(f"{site.address}/ui/")
    page.get_by_label("Key").wait_for()
    page.keyboard.type(site.key)
    press("Enter")
    site.row("Imagine").wait_for()

    site.tab_to(page.get_by_role("link", name="Add"))
    press("Enter")
    page.locator("textarea:focus").wait_for()
    page.keyboard.type(TOLD)
    press("Control+Enter")
    page.get_by_text("Kept as 1 fact.").wait_for()
    page.locator(".panel .words").wait_for()
    site.memory.flush()

    press("g", "s")
    page.get_by_text("What would you like to find?").wait_for()
    press("/")
    page.keyboard.type(QUESTION)
    press("Enter")
    page.locator(".hit .chain").wait_for()
    site.tab_to(page.get_by_role("link", name="Show in the graph"))
    press("Enter")
    page.locator("aside.panel .chain").wait_for()

    press("g", "m")
    open_row("Imagine")
    press("e", "Control+a")
    page.keyboard.type(MOVED)
    press("Control+Enter")
    page.locator(".ev ins", has_text="since May").wait_for()
    assert MOVED in _texts(site)
    press("u")
    page.get_by_text("Taken back.").wait_for()
    assert MOVED not in _texts(site)

    assert FERRIES in _messages_forwarded(site, endpoint)
    press("g", "c")
    page.get_by_role("switch", name="Use memory in chats").wait_for()
    for label in ("Use memory in chats", "Remember what is said"):
        site.tab_to(page.get_by_role("switch", name=label))
        press("Space")
    press("Control+Enter")
    page.get_by_text("Everything is saved.").wait_for()
    assert FERRIES not in _messages_forwarded(site, endpoint)

    press("g", "m")
    open_row(FERRIES)
    press("Delete")
    page.get_by_role("dialog").locator(".quote, .gone").first.wait_for()
    site.tab_to(page.get_by_role("checkbox"))
    press("Space")
    site.tab_to(page.get_by_role("button", name="Erase for good"))
    press("Enter")
    page.get_by_text("Erased, with 1 other memory.").wait_for()
    assert not {FERRIES, TOLD} & _texts(site)
    site.tab_to(page.get_by_role("button", name="Sign out"))
    press("Enter")
    page.get_by_label("Key").wait_for()
