"""Texts of people and of the service as the page shows them: their direction, their length, their language."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from support.facts import fact, source_message
from support.page import NARROW, REFUSED, WIDE, Site

from graphmem import Memory
from graphmem.commands.types import RetireMemory
from graphmem.service import problems
from graphmem.service.keys import Keys

pytestmark = pytest.mark.server

ARABIC, HEBREW = "تعيش كلارا في لشبونة (2024).", "קלרה גרה בליסבון!"
LONG_NAME = "Committee for the Preservation of the Old Brewery and its Gardens"


def begins_at(element: Any) -> str:
    """The side at which the text of an element begins, by the places of its first two letters."""
    return str(
        element.evaluate(
            """one => {
              const text = [...function* walk(node) {
                if (node.nodeType === 3 && node.data.trim()) yield node;
                else for (const child of node.childNodes) yield* walk(child);
              }(one)][0];
              const place = (from) => {
                const range = document.createRange();
                range.setStart(text, from);
                range.setEnd(text, from + 1);
                return range.getBoundingClientRect();
              };
              const [first, last] = [place(0), place(1)];
              const box = one.getBoundingClientRect();
              const side = first.left > last.left ? 'right' : 'left';
              const gap = side === 'right' ? box.right - first.right : first.left - box.left;
              return gap < 12 ? side : `${gap} from ${side}`;
            }"""
        )
    )


@pytest.mark.parametrize("site", [WIDE, NARROW], indirect=True, ids=["wide", "narrow"])
def test_what_is_written_from_right_to_left_begins_at_the_right(site: Site) -> None:
    for text in (ARABIC, HEBREW, "Clara lives in Lisbon."):
        site.add(text)
    site.enter()
    page = site.page
    for text, side in ((ARABIC, "right"), (HEBREW, "right"), ("Clara lives in Lisbon.", "left")):
        assert begins_at(site.row(text).locator(".cell")) == side
        panel = site.open(text)
        assert begins_at(panel.locator(".words")) == begins_at(panel.locator(".ev .read")) == side
        page.keyboard.press("Escape")
    site.open(HEBREW).get_by_role("button", name="Edit").click()
    assert begins_at_field(page.get_by_label("Words of the memory")) == "rtl"
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    page.evaluate("text => { location.hash = `search?${new URLSearchParams({q: text})}`; }", HEBREW)
    words = page.locator(".hit > .words", has_text=HEBREW)
    words.wait_for()
    assert begins_at(words) == "right"
    assert begins_at_field(page.get_by_label("Question")) == "rtl"
    page.get_by_label("Question").fill("Lisbon")
    assert begins_at_field(page.get_by_label("Question")) == "ltr"
    page.evaluate("() => { location.hash = 'graph'; }")
    quote = page.locator(".panel .quote", has_text=ARABIC)
    quote.wait_for()
    assert begins_at(quote.locator(".read a")) == "right"


def begins_at_field(field: Any) -> str:
    return str(field.evaluate("one => getComputedStyle(one).direction"))


def test_a_name_from_right_to_left_leaves_the_words_around_it_in_their_order(site: Site, memory: Memory) -> None:
    memory.add([{"role": "user", "content": "Tea.", "name": "קלרה"}], user_id="קלרה 1")
    site.enter(Keys(memory).create("admin").text)
    page = site.page
    owner = site.row("Tea.").locator(".tag bdi")
    assert owner.evaluate("one => getComputedStyle(one).direction") == "rtl"
    assert owner.locator("..").text_content() == "Memory of קלרה 1"
    page.evaluate("user => { location.hash = `memories?${new URLSearchParams({ user })}`; }", "קלרה 1")
    page.locator("h1", has_text="What is remembered of").wait_for()
    # The user's name is one piece in the sentence, whatever follows it.
    assert page.locator("h1").text_content() == "What is remembered of \u2068קלרה 1\u2069"
    assert page.locator("button.whose b").evaluate("one => getComputedStyle(one).direction") == "rtl"


@pytest.mark.parametrize("site", [WIDE, NARROW], indirect=True, ids=["wide", "narrow"])
def test_a_long_speaker_takes_one_line_and_is_read_in_full(site: Site) -> None:
    site.memory.add([{"role": "user", "name": LONG_NAME, "content": "The brewery opens."}], user_id="ana")
    site.memory.add([{"role": "user", "name": "Ben", "content": "The brewery closes."}], user_id="ana")
    site.enter()
    heights = [site.row(text).bounding_box()["height"] for text in ("opens", "closes")]
    assert heights[0] == heights[1]
    assert site.row("opens").locator(".who").get_attribute("title") == LONG_NAME
    panel = site.open("opens")
    assert panel.locator(".byline b").text_content() == LONG_NAME
    assert site.page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")


def test_reasons_and_errors_of_the_service_are_in_the_language_of_the_page(site: Site) -> None:
    source = source_message(site.memory, "I moved to Rome.", user_id="ana")
    old = fact(site.memory, "Lives in Paris.", source, user_id="ana")
    site.memory.engine.commit([RetireMemory(old, datetime.now(UTC), "another value of 'lives in'", None, [])])
    page = site.page
    site.expected.append(REFUSED.format(429))
    site.enter(Keys(site.memory).create("user", user_id="ana", rate="12/day").text)
    page.get_by_role("button", name="中文").click()
    page.evaluate("id => { location.hash = `memories/${id}`; }", old)
    reason = page.locator(".ev .faint")
    reason.first.wait_for()
    assert reason.all_text_contents() == ["“lives in”有了新的值。", "两条相互矛盾，以较晚说的为准。"]
    failed = page.locator(".say.bad, #key-hint.bad").first
    while not failed.count():
        page.reload()
        page.locator(".list .empty, .say.bad, #key-hint.bad").first.wait_for()
    assert "请求过于频繁：At most 12 per 1 day; wait." in failed.text_content()


def test_each_problem_of_the_service_has_words_of_the_page(site: Site) -> None:
    site.enter()
    site.page.locator("h1").wait_for()
    kinds = [
        (400, "invalid_argument"), (401, "unauthorized"), (403, "other_role"), (404, "not_found"),
        (408, "request_timeout"), (409, "not_configured"), (409, "idempotency_key_reused"), (413, "content_too_large"),
        (415, "unsupported_media_type"), (422, "invalid_request"), (429, "too_many_requests"),
        (500, "internal_server_error"), (502, "provider_error"), (503, "overloaded"), (503, "store_unavailable"),
    ]  # fmt: skip
    detailed = {"invalid_argument", "other_role", "not_configured", "invalid_request", "too_many_requests"}
    assert {status for status, _ in kinds} >= set(problems.documented()) - {421}
    told = site.page.evaluate(
        """async (kinds) => {
          const { reasonOf } = await import('/ui/i18n.js');
          const { ApiError } = await import('/ui/api.js');
          const { switchLanguage } = await import('/ui/preferences.js');
          const tell = () => kinds.map(([status, code]) => reasonOf(new ApiError(status, 'The detail.', { code })));
          const english = tell();
          switchLanguage();
          return [english, tell()];
        }""",
        kinds,
    )
    english, chinese = told
    assert not [text for text in english if not text.isascii() and "“" not in text]
    assert not [text for text in chinese if not any("\u4e00" <= letter <= "\u9fff" for letter in text)]
    # Where the kind alone does not say what is wrong, the service's sentence stands beside it.
    for (_, code), *texts in zip(kinds, english, chinese, strict=True):
        assert code not in detailed or all("The detail." in text for text in texts), code
