"""The search of the page and the chain that a path is drawn as, in a browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import expect
from support.facts import fact, source_message
from support.fakes import fake_models
from support.page import HOSTILE, NARROW, Site, cut_off

from graphmem import Memory, Settings, wiring
from graphmem.errors import StoreUnavailable
from graphmem.service.keys import Keys
from graphmem.stores.ledger.embedded_graph import EmbeddedGraph
from graphmem.testing import WordExtractor

pytestmark = pytest.mark.server

QUESTION = "Who owns the venue for the concert of the town?"
LINES = [
    ("2025-03-03T08:10:00Z", "Ravi", "Here is a venue for the concert: Greta Lindholm owns it."),
    ("2025-04-14T20:15:00Z", "Tomas", "Imagine, Greta Lindholm directs Kestrel Ferries."),
    ("2025-06-02T20:45:00Z", "Maya", "Kestrel Ferries carries every cello of the town for nothing."),
    ("2025-06-09T10:00:00Z", "Ines", "It snowed this morning."),
]


@pytest.fixture
def memory(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Memory]:
    """A memory in which runs of capitalised words are names."""
    monkeypatch.setattr(wiring, "_extractor", lambda _: WordExtractor())
    with Memory(settings=Settings.from_dict(fake_models(home=str(tmp_path)))) as memory:
        yield memory


def add_lines(memory: Memory, *lines: tuple[str, str, str]) -> list[str]:
    """Stores lines (time, speaker, words) for Ana; returns their ids."""
    messages = [{"role": "user", "name": name, "content": text, "timestamp": at} for at, name, text in lines]
    return [item["id"] for item in memory.add(messages, user_id="ana")["results"]]


def ask(site: Site, question: str = QUESTION) -> None:
    """Asks by mouse and waits for the answer."""
    site.enter()
    site.page.get_by_role("link", name="Search").click()
    site.page.get_by_label("Question").fill(question)
    site.page.get_by_role("button", name="Search").click()
    site.page.locator(".said, .empty .read").first.wait_for()


def hit(site: Site, text: str) -> Any:
    return site.page.locator(".hit", has=site.page.locator(".words", has_text=text))


def text_of(locator: Any) -> str:
    return " ".join(locator.inner_text().split())


def test_a_path_over_two_names_is_drawn_as_a_chain(site: Site) -> None:
    first, second, third, _ = add_lines(site.memory, *LINES)
    ask(site)
    page = site.page
    end = f"#search?q={QUESTION.replace(' ', '+').replace('?', '%3F')}"
    page.wait_for_url(lambda url: url.endswith(end))
    answer = hit(site, "Kestrel Ferries carries")
    assert answer.locator(".place").inner_text() == "2"
    chain = answer.locator(".chain")
    assert chain.is_visible()
    assert [text_of(one) for one in chain.locator(".at").all()] == [
        "Starts here · Ravi 3 March 2025",
        "Tomas 14 April 2025",
        "Found · Maya 2 June 2025",
    ]
    assert chain.locator(".stop .read").all_inner_texts() == [text for _, _, text in LINES[:3]]
    assert chain.locator(".chip").all_inner_texts() == ["Greta Lindholm", "Kestrel Ferries"]
    assert chain.locator(".chip").first.get_attribute("href") == "#graph?around=Greta+Lindholm"
    assert chain.locator(".asked").all_inner_texts() == ["venue", "concert", "owns"]
    assert chain.locator("mark").all_inner_texts() == [
        "Greta Lindholm",
        "Greta Lindholm",
        "Kestrel Ferries",
        "Kestrel Ferries",
    ]
    tops = chain.locator(".stop").evaluate_all("all => all.map(one => one.getBoundingClientRect().top)")
    assert len(set(tops)) == 1  # one beside the other
    assert text_of(answer.locator(".why span").first).startswith("2 names lead here from hit 1.")
    names = answer.locator(".score").inner_text().split()
    found = site.memory.search(QUESTION, user_id="ana")["results"][1]
    shown = {name: f"{found[name]:.2f}" for name in ("score", "relevance", "similarity")}
    assert dict(zip(names[::2], names[1::2], strict=True)) == shown
    assert 0 < float(names[3]) < 1
    assert text_of(answer.locator(".why span").first).endswith(" For its relevance: meaning.")
    snow = text_of(hit(site, "It snowed").locator(".why span").first)
    assert snow == "Next to what matches the question. Against its relevance: meaning."
    graph = page.locator(".said").get_by_role("link", name="Show in the graph").get_attribute("href")
    assert f"path={first}%2C{second}%2C{third}&around=Greta+Lindholm" in graph
    folded = hit(site, "Imagine").get_by_role("button", name="Show the path, 2 memories, 1 name")
    folded.click()
    assert hit(site, "Imagine").locator(".stop").count() == 2
    to_graph = hit(site, "Imagine").get_by_role("link", name="Show in the graph").get_attribute("href")
    assert f"path={first}%2C{second}&around=Greta+Lindholm" in to_graph
    hit(site, "Imagine").get_by_role("button", name="Hide the path").click()
    assert hit(site, "Imagine").locator(".stop").count() == 0
    chain.locator(".stop a").nth(1).click()
    page.locator(".panel .words", has_text="Imagine").wait_for()
    page.go_back()
    hit(site, "Kestrel Ferries carries").wait_for()


def test_the_graph_gets_the_first_path_wherever_it_is(site: Site) -> None:
    first = add_lines(site.memory, *LINES)[0]
    for place, text in enumerate(("A concert in the town.", "The town has a concert.", "The venue of the town."), 1):
        add_lines(site.memory, (f"2024-0{place}-01T08:00:00Z", "Ines", text))
    ask(site)
    page = site.page
    folded = page.locator(".hit", has=page.get_by_role("button", name="Show the path"))
    folded.first.wait_for()
    assert int(folded.first.locator(".place").inner_text()) > 3 and page.locator(".chain").count() == 0
    opened = hit(site, folded.first.locator(".words").inner_text())
    opened.get_by_role("button", name="Show the path").click()
    own = opened.get_by_role("link", name="Show in the graph").get_attribute("href")
    link = page.locator(".said").get_by_role("link", name="Show in the graph")
    assert link.get_attribute("href") == own and f"path={first}%2C" in own
    page.get_by_label("Day", exact=True).fill("2025-06-09")  # one hit, to which no other memory leads
    page.locator(".hit:first-child .words", has_text="It snowed").wait_for()
    assert "path=" not in link.get_attribute("href")
    link.click()
    page.locator("aside.panel p.named", has_text="It snowed").wait_for()


def test_what_is_no_longer_true_is_searched_on_request_and_erased(site: Site) -> None:
    ended = {"user_id": "ana", "valid_to": "2024-06-01T00:00:00Z"}
    message = source_message(site.memory, "I live in Porto.", **ended)
    fact(site.memory, "Clara lives in Porto.", message, **ended)
    site.memory.flush()
    ask(site, "Porto")
    page = site.page
    page.get_by_text("Nothing is remembered about “Porto” that is true now.").wait_for()
    page.get_by_text("2 memories that are no longer true were not searched.").wait_for()
    page.get_by_role("button", name="Search them too").click()
    old = hit(site, "Clara lives in Porto.")
    old.locator(".tag", has_text="No longer true").wait_for()
    assert page.url.endswith("truth=both") and page.get_by_text("were not searched").count() == 0
    assert "truth=both" in page.locator(".said").get_by_role("link", name="Show in the graph").get_attribute("href")
    page.reload()  # it is in the address
    old.locator(".words a").click()
    page.locator(".panel .words", has_text="Clara lives in Porto.").wait_for()
    site.row("Clara lives in Porto.").wait_for()
    page.get_by_role("button", name="Delete…").click()
    page.get_by_role("checkbox").check()
    page.get_by_role("button", name="Erase for good").click()
    page.get_by_text("Erased, with 1 other memory.").wait_for()
    assert site.memory.get(message, user_id="ana") is None


def test_the_message_before_is_said_to_come_before(site: Site) -> None:
    said = ["I moved into the flat on Alder Street.", "A plumber came about the sink.", "It rained."]
    messages = [{"role": "user", "content": text, "timestamp": "2025-03-03T08:10:00Z"} for text in said]
    site.memory.add(messages, user_id="ana")
    ask(site, "plumber sink")
    before, after = hit(site, "Alder Street"), hit(site, "It rained")
    assert text_of(before.locator(".why span").first).startswith("Comes just before hit 1.")
    assert text_of(after.locator(".why span").first).startswith("Follows hit 1.")
    for one, words in ((before, "just before in the conversation"), (after, "next in the conversation")):
        if not one.locator(".chain").count():
            one.get_by_role("button", name="Show the path").click()
        assert one.locator(".pred").inner_text() == words


def test_markup_in_memories_stays_text_in_a_chain(site: Site) -> None:
    add_lines(
        site.memory,
        ("2025-03-03T08:10:00Z", HOSTILE[:40], f"A venue for the concert {HOSTILE}"),
        ("2025-03-03T08:11:00Z", "<b>Ben</b>", f"It is dull. {HOSTILE}"),
    )
    ask(site, "venue <concert>")
    chain = site.page.locator(".chain").first
    chain.wait_for()
    assert chain.locator(".read").all_inner_texts() == [f"A venue for the concert {HOSTILE}", f"It is dull. {HOSTILE}"]
    assert site.page.locator("main img, main script, main .read b:not(.asked)").count() == 0
    addresses = site.page.locator("main a").evaluate_all("all => all.map(one => one.getAttribute('href'))")
    assert [one for one in addresses if not re.match(r"#(memories/|graph\?)", one)] == []


def test_filters_are_in_the_address_and_outlive_a_reload(site: Site) -> None:
    add_lines(site.memory, *LINES)
    ask(site)
    page = site.page
    page.get_by_label("As of").fill("2025-05-01")
    page.get_by_text("What held on 1 May 2025, in today’s words. Read-only.").wait_for()
    assert hit(site, "Kestrel Ferries carries").count() == 0
    page.get_by_role("button", name="Kinds").click()
    page.get_by_role("option", name="Episodes", exact=True).click()
    page.get_by_role("button", name="Number of hits").click()
    page.get_by_role("option", name="5 hits").click()
    page.wait_for_url("**top_k=5**")
    assert re.search(r"#search\?q=Who.*&kinds=episode&top_k=5&as_of=2025-05-01$", page.url)
    page.reload()
    page.get_by_text("What held on 1 May 2025").wait_for()
    assert page.get_by_label("Question").input_value() == QUESTION
    assert hit(site, "Imagine").count() == 1
    assert "as_of=2025-05-01" in page.get_by_role("link", name="Show in the graph").get_attribute("href")
    page.get_by_role("button", name="Back to today").click()
    hit(site, "Kestrel Ferries carries").wait_for()
    page.go_back()
    page.get_by_text("What held on 1 May 2025").wait_for()
    page.get_by_role("button", name="Take the filters off").click()
    hit(site, "Kestrel Ferries carries").wait_for()
    page.get_by_label("Day", exact=True).fill("2025-04-14")
    hit(site, "Kestrel Ferries carries").wait_for(state="detached")
    assert page.locator(".hit .words").all_inner_texts() == [LINES[1][2]]
    page.get_by_label("Day", exact=True).fill("2024-01-01")
    page.get_by_text(f"Nothing is remembered about “{QUESTION}”.").wait_for()


def test_the_keyboard_alone_asks_and_opens(site: Site) -> None:
    add_lines(site.memory, *LINES)
    site.enter()
    page = site.page
    site.row("It snowed").wait_for()
    page.keyboard.press("g")
    page.keyboard.press("s")
    page.get_by_text("What would you like to find?").wait_for()
    page.keyboard.press("/")
    assert site.focused() == "Question"
    page.keyboard.type(QUESTION)
    page.keyboard.press("Enter")
    hit(site, "Kestrel Ferries carries").wait_for()
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("j")
    assert site.focused() == LINES[2][2]
    page.keyboard.press("Tab")
    assert site.focused() == "Hide the path"
    page.keyboard.press("Enter")
    assert site.focused() == "Show the path, 3 memories, 2 names"
    page.keyboard.press("k")
    assert site.focused() == LINES[0][2]
    page.keyboard.press("Enter")
    page.locator(".panel .words", has_text="Here is a venue").wait_for()


def test_an_answer_without_the_graph_says_so(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    add_lines(site.memory, *LINES)

    def fail(*_: Any) -> Any:
        raise StoreUnavailable("away")

    monkeypatch.setattr(EmbeddedGraph, "neighbourhood", fail)
    ask(site)
    site.page.get_by_text("Answered without the graph; paths may be missing.").wait_for()
    assert site.page.locator(".chain").count() == 0
    assert "links" not in text_of(site.page.locator(".said"))


def test_a_hit_is_said_to_answer_or_not_and_that_is_taken_back(site: Site) -> None:
    ids = add_lines(site.memory, *LINES)
    site.memory.judge(QUESTION, ids[1], "right", user_id="ana")
    site.memory.judge("Another question?", ids[0], "wrong", user_id="ana")
    ask(site)

    def button(name: str, text: str = "Greta Lindholm owns it") -> Any:
        return hit(site, text).get_by_role("button", name=name, exact=True)

    def said() -> dict[str, str | None]:
        found = site.memory.judgements(user_id="ana", query=QUESTION)["results"]
        return {one["memory_id"]: one["verdict"] for one in found}

    pressed, loose = re.compile("true"), re.compile("false")
    right, wrong = "It answers", "It does not answer"
    expect(button(right, "directs Kestrel")).to_have_attribute("aria-pressed", pressed)
    button(right).click()
    expect(button(right)).to_have_attribute("aria-pressed", pressed)
    assert said() == {ids[0]: "right", ids[1]: "right"}
    button(wrong).click()
    expect(button(wrong)).to_have_attribute("aria-pressed", pressed)
    expect(button(right)).to_have_attribute("aria-pressed", loose)
    assert said() == {ids[0]: "wrong", ids[1]: "right"}
    button(wrong).click()
    expect(button(wrong)).to_have_attribute("aria-pressed", loose)
    assert said() == {ids[1]: "right"}
    site.expected.append("Failed to load resource")
    cut_off(site.page, "**/judgement")
    button(wrong).click()
    site.page.get_by_text("Not noted: The service does not answer").wait_for()
    expect(button(wrong)).to_have_attribute("aria-pressed", loose)
    site.page.evaluate("location.hash += '&kinds=episode'")
    site.page.locator(".hit").first.wait_for()
    expect(site.page.get_by_role("button", name=right)).to_have_count(0)  # no question that is asked again alike


def test_a_search_that_fails_keeps_the_hits_and_is_asked_again(site: Site) -> None:
    site.expected.append("Failed to load resource")
    add_lines(site.memory, *LINES)
    ask(site)
    page = site.page
    cut_off(page, "**/search")
    page.get_by_label("Question").fill("snowed")
    page.keyboard.press("Enter")
    page.get_by_text("The search failed. The service does not answer").wait_for()
    assert hit(site, "Kestrel Ferries carries").count() == 1
    assert page.get_by_label("Question").input_value() == "snowed"
    page.unroute("**/search")
    page.get_by_role("button", name="Try again").click()
    page.locator(".hit:first-child .words", has_text="It snowed").wait_for()
    assert page.locator(".say.bad").count() == 0


def test_former_hits_stay_until_the_new_ones_are_there(site: Site) -> None:
    add_lines(site.memory, *LINES)
    ask(site)
    page = site.page
    held: list[Any] = []
    page.route("**/search", lambda route: held.append(route))
    page.get_by_label("Question").fill("snowed")
    page.keyboard.press("Enter")
    page.locator(".answer.stale").wait_for()
    assert hit(site, "Kestrel Ferries carries").count() == 1
    page.locator("form button[aria-busy]", has_text="Searching").wait_for()
    held[0].continue_()
    page.locator(".hit:first-child .words", has_text="It snowed").wait_for()
    assert page.locator(".stale, form [aria-busy]").count() == 0


def test_a_question_typed_before_the_first_paint_stays(site: Site) -> None:
    site.enter()
    type_at_once = """() => new Promise((done) => {
      const watch = new MutationObserver(() => {
        const field = document.querySelector("form.query input");
        if (!field) return;
        watch.disconnect();
        field.value = "ferries";
        field.dispatchEvent(new Event("input", { bubbles: true }));
        setTimeout(() => done(field.value), 500);
      });
      watch.observe(document.body, { childList: true, subtree: true });
      location.hash = "search";
    })"""
    assert site.page.evaluate(type_at_once) == "ferries"


def test_an_admin_chooses_whose_memory_is_searched(site: Site) -> None:
    add_lines(site.memory, *LINES)
    site.enter(Keys(site.memory).create("admin").text)
    site.page.get_by_role("link", name="Search").click()
    site.page.get_by_text("Choose whose memory to search.").wait_for()
    site.page.get_by_role("button", name="Memory of Everybody. Choose another").click()
    site.page.keyboard.type("ana")
    site.page.keyboard.press("Enter")
    site.page.get_by_label("Question").fill(QUESTION)
    site.page.keyboard.press("Enter")
    hit(site, "Kestrel Ferries carries").locator(".chain").wait_for()


@pytest.mark.parametrize("site", [NARROW], indirect=True)
def test_on_a_phone_the_chain_stands_upright_and_in_chinese(site: Site) -> None:
    add_lines(
        site.memory,
        ("2025-03-03T08:10:00Z", "拉维", f"夏季音乐会的场地有了，是老酿酒厂。{'很长' * 60}"),
        ("2025-03-03T08:11:00Z", "玛雅", "那就这么定了。"),
    )
    site.enter()
    page = site.page
    page.get_by_role("button", name="中文").click()
    page.get_by_role("link", name="搜索").click()
    page.get_by_label("问题").fill("音乐会的场地在哪里？")
    page.keyboard.press("Enter")
    chain = page.locator(".chain")
    chain.wait_for()
    assert chain.locator(".pred").inner_text() == "对话中的下一句"
    assert chain.locator(".role").all_inner_texts() == ["起点 · ", "找到 · "]
    assert chain.locator(".read").first.get_attribute("lang") == "zh-CN"
    assert "音乐会" in chain.locator(".asked").all_inner_texts()
    assert text_of(hit(site, "那就这么定了").locator(".why span").first).startswith("紧接在第 1 条之后。")
    assert "支持相关：" in text_of(page.locator(".hit .why span").first)
    tops = chain.locator(".stop").evaluate_all("all => all.map(one => one.getBoundingClientRect().top)")
    assert tops == sorted(set(tops))
    assert page.evaluate("() => document.documentElement.scrollWidth") == NARROW[0]
    assert not page.locator(".score small").first.is_visible()
    small = page.locator("form button, .pick, .hit .btn, .chip").evaluate_all(
        "all => all.map(one => one.getBoundingClientRect().height).filter(height => height < 36)"
    )
    assert small == []
    assert page.locator("main [style]").count() == 0
