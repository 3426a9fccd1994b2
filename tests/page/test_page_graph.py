"""The view of the graph, in a browser, as people use it."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from support.page import HOSTILE, NARROW, REFUSED, Site, cut_off

from graphmem import Memory
from graphmem.commands.types import RetireMemory
from graphmem.service.keys import Keys

pytestmark = pytest.mark.server

# The canvas and its pixels, read from a copy: a canvas that is read often becomes a slow one, and Chromium says so.
PIXELS = """
  const canvas = document.querySelector(".net canvas");
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  const pixels = copy.getImageData(0, 0, canvas.width, canvas.height).data;
"""
# How many pixels are not empty; how many have the colour of a class, and where the middle one of them is on the screen.
INK = f"""() => {{ {PIXELS}
  return pixels.filter((value, place) => place % 4 === 3 && value > 0).length;
}}"""
FILLED = f"""(name) => {{ {PIXELS}
  const colour = getComputedStyle(document.querySelector(".inks > ." + name)).color.match(/\\d+/g).map(Number);
  const found = [];
  for (let place = 0; place < pixels.length; place += 4) {{
    const isNear = (value, part) => Math.abs(value - pixels[place + part]) < 3;
    if (pixels[place + 3] === 255 && colour.every(isNear)) found.push(place / 4);
  }}
  const {{ left, top, width }} = canvas.getBoundingClientRect();
  const at = found[Math.floor(found.length / 2)];
  const scale = width / canvas.width;
  const [x, y] = [left + (at % canvas.width) * scale, top + Math.floor(at / canvas.width) * scale];
  return {{ count: found.length, x, y }};
}}"""
# Where the uppermost pixel is that is not empty.
TOP = f"""() => {{ {PIXELS}
  const place = pixels.findIndex((value, place) => place % 4 === 3 && value > 0);
  const {{ top, width }} = canvas.getBoundingClientRect();
  return top + Math.floor(place / 4 / canvas.width) * (width / canvas.width);
}}"""


@pytest.fixture
def memory(make: Callable[..., Memory]) -> Memory:
    """A Memory that finds names: words with a capital."""
    return make()


def add_story(site: Site) -> list[str]:
    """Adds three memories of March to May 2025; returns their ids."""
    texts = ["Clara met Dora in Bergen.", "Dora visited Ben in Oslo.", "Ben hired Klara."]
    days = ["2025-03-03", "2025-04-14", "2025-05-02"]
    return [site.add(text, timestamp=f"{day}T12:00:00+00:00") for text, day in zip(texts, days, strict=True)]


def show(site: Site, address: str = "#graph") -> Any:
    """Opens the view, and returns its panel."""
    if "/ui/" not in site.page.url:
        site.enter()
        site.page.locator(".row").first.wait_for()
    site.page.evaluate("address => { location.hash = address; }", address)
    site.page.locator(".net[data-open]").wait_for()
    return site.page.locator("aside.panel")


def picture(site: Site, part: str) -> Any:
    """Waits for a picture whose label has this part."""
    return site.page.locator(f'.net[aria-label*="{part}"]').wait_for()


def wait_for_ink(site: Site) -> None:
    site.page.wait_for_function(f"() => document.querySelector('.net canvas') && ({INK})() > 0")


def test_the_graph_is_drawn_and_counted_and_types_are_hidden(site: Site) -> None:
    add_story(site)
    scripts: list[str] = []
    site.page.on("request", lambda one: scripts.append(one.url))
    site.enter()
    site.page.locator(".row").first.wait_for()
    assert not [url for url in scripts if "force-graph" in url]
    site.page.get_by_role("link", name="Graph", exact=True).first.click()
    picture(site, "3 memories")
    wait_for_ink(site)
    before = site.page.evaluate(INK)
    site.page.get_by_role("button", name=re.compile("^Memory")).click()
    picture(site, "0 memories")
    site.page.wait_for_function(f"before => ({INK})() < before", arg=before)
    assert site.page.locator(".legend [aria-pressed=false]").count() == 1
    site.page.get_by_role("button", name=re.compile("^Memory")).click()
    picture(site, "3 memories")


def test_a_graph_of_the_newest_says_so_and_draws_all(site: Site) -> None:
    site.memory.add([f"It rained on day {n}." for n in range(320)], user_id="ana", infer=False)
    site.enter()
    page = site.page
    page.locator(".row").first.wait_for()
    page.get_by_role("link", name="Graph", exact=True).first.click()
    page.get_by_text("The newest 300 memories of 320 are drawn.").wait_for()
    page.get_by_role("button", name="Draw all").click()
    page.get_by_text("The newest 300 memories of 320 are drawn.").wait_for(state="detached")
    page.wait_for_function("() => document.querySelector('.legend .memory .count')?.textContent === '320'")


def test_a_name_and_hops_choose_what_is_drawn(site: Site) -> None:
    add_story(site)
    show(site)
    field = site.page.get_by_label("Around whom or what")
    field.fill("clara")
    field.press("Enter")
    picture(site, "around Clara")
    assert "around=clara" in site.page.url
    site.page.locator("h2.named", has_text="Clara").wait_for()
    site.page.get_by_role("button", name="1 hop").click()
    picture(site, "1 memory around Clara")
    site.page.get_by_role("button", name="3", exact=True).click()
    picture(site, "3 memories around Clara")
    field.fill("Nobody")
    field.press("Enter")
    site.page.get_by_text("No memory names “Nobody”.").wait_for()
    site.page.go_back()
    picture(site, "3 memories around Clara")


def test_a_click_on_a_slip_shows_its_words_and_leads_to_it(site: Site) -> None:
    memory_id = site.add("It rained.", timestamp="2025-03-03T12:00:00+00:00")
    panel = show(site, f"#graph?path={memory_id}")
    site.page.wait_for_function(f"() => document.querySelector('.net canvas') && ({FILLED})('ink-accent').count > 20")
    spot = site.page.evaluate(FILLED, "ink-accent")
    site.page.mouse.move(spot["x"], spot["y"])
    site.page.locator(".net.points").wait_for()
    site.page.mouse.click(spot["x"], spot["y"])
    panel.locator("p.named", has_text="It rained.").wait_for()
    panel.get_by_role("link", name="Open this memory").click()
    site.page.locator(".panel .words", has_text="It rained.").wait_for()


def test_a_path_is_drawn_and_told_as_a_chain(site: Site) -> None:
    ids = add_story(site)
    panel = show(site, f"#graph?path={','.join(ids)}&q=Who+met+Dora")
    chain = panel.locator(".chain")
    chain.wait_for()
    assert chain.locator(".stop").count() == 3
    assert [" ".join(one.split()) for one in chain.locator(".link").all_text_contents()] == ["Dora", "Ben"]
    site.page.wait_for_function(f"() => ({FILLED})('ink-accent').count > 200")
    panel.get_by_role("button", name="Clear").click()
    chain.wait_for(state="detached")
    assert "path" not in site.page.url
    picture(site, "3 memories")


def test_a_path_says_which_message_came_before(site: Site) -> None:
    said = {"Ravi": "it rained.", "Tomas": "it snowed."}
    rows = [{"role": "user", "name": who, "content": text, "timestamp": 1_741_000_000} for who, text in said.items()]
    first, second = (one["id"] for one in site.memory.add(rows, user_id="ana")["results"])
    panel = show(site, f"#graph?path={second},{first}")
    panel.locator(".chain .pred", has_text="just before in the conversation").wait_for()
    show(site, f"#graph?path={first},{second}")
    panel.locator(".chain .pred", has_text="next in the conversation").wait_for()


def test_a_name_is_changed_and_the_change_taken_back(site: Site) -> None:
    add_story(site)
    panel = show(site, "#graph?around=Bergen")
    panel.get_by_role("button", name="Rename").click()
    field = panel.get_by_label("Name to show")
    field.fill(" ")
    field.press("Enter")
    assert panel.get_by_role("button", name="Save").is_disabled()
    field.fill("Bjørgvin")
    field.press("Enter")
    panel.locator("h2.named", has_text="Bjørgvin").wait_for()
    picture(site, "around Bjørgvin")
    site.page.locator(".toast").get_by_role("button", name="Undo").click()
    panel.locator("h2.named", has_text="Bergen").wait_for()
    assert site.memory.entity("bergen", user_id="ana")["name"] == "Bergen"


def test_two_names_are_joined_and_separated_again(site: Site) -> None:
    add_story(site)
    panel = show(site, "#graph?around=Clara&hops=3")
    panel.get_by_role("button", name="Same as…").click()
    site.page.keyboard.type("Klar")
    site.page.get_by_role("option", name="Klara").wait_for()
    site.page.keyboard.press("Enter")
    panel.get_by_role("heading", name="Also called").wait_for()
    picture(site, "3 memories")
    panel.get_by_role("button", name=re.compile("Separate")).click()
    panel.get_by_role("heading", name="Also called").wait_for(state="detached")
    assert site.memory.entity("Clara", user_id="ana")["aliases"] == []
    site.page.keyboard.press("u")
    panel.get_by_role("heading", name="Also called").wait_for()
    assert len(site.memory.entity("Clara", user_id="ana")["aliases"]) == 1
    site.expected.append(REFUSED.format(404))
    panel.get_by_role("button", name="Same as…").click()
    site.page.keyboard.type("Zelda")
    site.page.keyboard.press("Enter")
    panel.locator(".hint.bad", has_text="Not done").wait_for()


def test_another_day_is_shown_and_nothing_can_be_changed_there(site: Site) -> None:
    add_story(site)
    panel = show(site, "#graph?around=Dora")
    panel.get_by_role("button", name="Rename").wait_for()
    assert site.page.locator(".ruler rect").count() == 3
    slider = site.page.get_by_label("As of which day")
    slider.focus()
    site.page.keyboard.press("Home")
    site.page.get_by_text("What held on 3 March 2025, in today’s words. Read-only.").wait_for()
    assert "as_of=2025-03-03" in site.page.url
    picture(site, "1 memory around Dora")
    panel.get_by_text("Named in 1 memory since").wait_for()
    assert panel.get_by_role("button", name=re.compile("Rename|Same as|Separate")).count() == 0
    site.page.get_by_role("button", name="Back to today").click()
    panel.get_by_role("button", name="Rename").wait_for()
    assert "as_of" not in site.page.url


def test_a_name_of_what_is_no_longer_true_is_drawn_on_request_and_erased(site: Site) -> None:
    old = add_story(site)[0]  # the only one that names Clara
    site.memory.engine.commit([RetireMemory(old, at=datetime.now(UTC), reason="moved")])
    panel = show(site)
    panel.get_by_text("2 memories, and 1 kept from before").wait_for()
    page = site.page
    assert page.locator(".ruler").get_attribute("title").startswith("Bars: 2 memories that are true now")
    assert page.locator("#graph-names option[value=Clara]").count() == 0
    show(site, "#graph?around=Clara")
    page.get_by_text("No memory that is true now names “Clara”.").wait_for()
    page.get_by_role("button", name="Draw them too").click()
    picture(site, "around Clara")
    panel.get_by_text("(1 no longer true)").wait_for()
    assert page.locator(".ruler").get_attribute("title").startswith("Bars: 3 memories, true now or before")
    assert page.locator("#graph-names option[value=Clara]").count() == 1
    quote = panel.locator(".quote", has_text="Clara met Dora")
    assert quote.locator(".tag").text_content() == "No longer true"
    show(site, f"#graph/{old}?around=Clara&truth=both")
    panel.get_by_text("No longer true since").wait_for()
    panel.get_by_role("link", name="Open this memory").click()
    page.locator(".panel .words", has_text="Clara met Dora").wait_for()
    page.get_by_role("button", name="Delete…").click()
    page.get_by_role("checkbox").check()
    page.get_by_role("button", name="Erase for good").click()
    site.row("Clara met Dora").wait_for(state="detached")
    assert site.memory.entity("Clara", user_id="ana", show_retired=True) is None


def test_many_steps_of_the_slider_load_one_graph_and_are_one_entry_of_the_history(site: Site) -> None:
    add_story(site)
    show(site)
    picture(site, "3 memories")
    page = site.page
    loaded: list[str] = []
    page.on("request", lambda one: loaded.append(one.url) if "/graph?" in one.url else None)
    # As a key that is held down.
    steps = """(slider) => { for (let step = 0; step < 10; step += 1) {
      slider.stepDown();
      for (const name of ["input", "change"]) slider.dispatchEvent(new Event(name, { bubbles: true }));
    } }"""
    slider = page.get_by_label("As of which day")
    before = page.evaluate("history.length")
    for _ in range(2):
        day = slider.input_value()
        with page.expect_response("**/graph?*"):
            slider.evaluate(steps)
            assert slider.input_value() != day
        page.locator(".stage.stale").wait_for(state="detached")
    page.get_by_text("What held on").wait_for()
    assert len(loaded) == 2
    assert page.evaluate("history.length") == before + 1
    page.go_back()
    page.get_by_text("What held on").wait_for(state="detached")
    assert "as_of" not in page.url


def test_any_address_gives_a_graph(site: Site) -> None:
    add_story(site)
    for query in ("as_of=garbage", "as_of=2025-02-30", "as_of=2999-01-01", "path=%20,,%zz", "hops=x&q=%", "around=%20"):
        show(site, f"#graph?{query}")
        site.page.reload()
        site.page.locator(".net[data-open]").wait_for()
        assert site.page.locator(".say").count() == 0, query
        assert site.page.locator(".clock output small").text_content() == "now", query


def test_a_name_and_a_speaker_are_the_same_everywhere(site: Site) -> None:
    site.add("Clara Berg met Dora.", timestamp="2025-03-03T12:00:00+00:00")
    for text in ("Clara sings.", "Clara paints."):
        site.add(text, timestamp="2025-04-14T12:00:00+00:00")
    said = "Then Clara may rest."
    site.memory.add([{"role": "assistant", "content": said}], user_id="ana")
    site.memory.alias("Clara", "Clara Berg", user_id="ana")
    panel = show(site)
    line = panel.locator(".quote", has_text=said).locator(".who")
    assert line.text_content() == "Assistant"
    assert panel.locator(".chips .chip", has_text="Clara").all_inner_texts() == ["Clara Berg"]
    panel.locator(".chip", has_text="Clara Berg").click()
    panel.locator("h2.named", has_text="Clara Berg").wait_for()
    panel.get_by_role("heading", name="Also called").wait_for()
    assert line.text_content() == "Assistant"


def test_notices_the_slider_and_the_menu_cover_and_move_nothing(site: Site) -> None:
    add_story(site)
    site.page.set_viewport_size({"width": 1440, "height": 460})
    panel = show(site, "#graph?around=Dora")
    panel.get_by_role("button", name="Same as…").click()
    menu, edge = (one.bounding_box() for one in (panel.locator(".menu"), panel))
    assert edge["x"] <= menu["x"] and menu["x"] + menu["width"] <= edge["x"] + edge["width"]
    ruler = site.page.locator(".ruler")
    before = ruler.bounding_box()
    for day in ("2025-05-01", "2025-09-30"):
        show(site, f"#graph?around=Dora&as_of={day}")
        site.page.get_by_text("What held on").wait_for()
        assert ruler.bounding_box() == before
    picture(site, "3 memories around Dora")
    notice = site.page.locator(".notes .say").bounding_box()
    # The picture comes to rest below the notice.
    site.page.wait_for_function(
        f"end => ({FILLED})('other').count > 0 && ({TOP})() > end", arg=notice["y"] + notice["height"]
    )


def test_the_keyboard_alone_is_enough(site: Site) -> None:
    add_story(site)
    site.enter()
    page = site.page
    page.locator(".row").first.wait_for()
    page.keyboard.press("g")
    page.keyboard.press("g")
    picture(site, "3 memories")
    wait_for_ink(site)
    page.keyboard.press("ArrowRight")
    page.wait_for_function("() => document.querySelector('.heard').textContent !== ''")
    name = page.locator(".heard").text_content().split(",")[0]
    page.keyboard.press("Enter")
    page.locator("h2.named", has_text=name).wait_for()
    assert name in site.focused()
    before = page.evaluate(INK)
    page.keyboard.press("+")
    page.wait_for_function(f"before => ({INK})() !== before", arg=before)
    page.keyboard.press("0")
    page.keyboard.press("Escape")
    page.get_by_role("heading", name="In this graph").wait_for()
    page.keyboard.press("/")
    page.keyboard.type("Ben")
    page.keyboard.press("Enter")
    picture(site, "around Ben")


def test_markup_in_memories_and_names_stays_text(site: Site) -> None:
    memory_id = site.add(HOSTILE)
    add_story(site)
    site.memory.rename_entity("Clara", HOSTILE[:60], user_id="ana")
    panel = show(site, "#graph?around=Clara")
    panel.locator("h2.named", has_text=HOSTILE[:20]).wait_for()
    assert panel.locator("h2.named").text_content() == HOSTILE[:60]
    show(site, f"#graph/{memory_id}")
    panel.locator("p.named").wait_for()
    assert panel.locator("p.named").text_content() == HOSTILE
    assert site.page.locator("main img, main script, main .leaf b > b").count() == 0


@pytest.mark.parametrize("site", [NARROW], indirect=True)
def test_on_a_phone_in_chinese(site: Site) -> None:
    add_story(site)
    show(site, "#graph?around=Dora")
    site.page.get_by_role("button", name="中文").click()
    picture(site, "以Dora为中心")
    assert site.page.locator("h1").text_content() == "图谱"
    boxes = {name: site.page.locator(name).bounding_box() for name in (".canvas", ".clock", "aside.panel")}
    assert boxes[".canvas"]["height"] == 420
    assert boxes[".canvas"]["y"] < boxes[".clock"]["y"] < boxes["aside.panel"]["y"]
    assert site.page.evaluate("() => document.documentElement.scrollWidth") == NARROW[0]
    wait_for_ink(site)


def test_a_graph_that_fails_is_asked_for_again(site: Site) -> None:
    site.expected.append("Failed to load resource")
    add_story(site)
    cut_off(site.page, "**/graph?*")
    site.enter()
    site.page.locator(".row").first.wait_for()
    site.page.keyboard.press("g")
    site.page.keyboard.press("g")
    site.page.get_by_text("The service does not answer").wait_for()
    site.page.unroute("**/graph?*")
    site.page.get_by_role("button", name="Try again").click()
    picture(site, "3 memories")


def test_a_name_that_is_not_loaded_tells_what_the_log_calls_the_request(site: Site) -> None:
    site.expected.append(REFUSED.format(503))
    add_story(site)
    panel = show(site)
    problem = {"status": 503, "json": {"detail": "No."}, "headers": {"X-Request-ID": "9f2c4e"}}
    site.page.route("**/graph/entities/*", lambda route: route.fulfill(**problem))
    panel.get_by_role("link", name="Clara").first.click()
    panel.locator(".say.bad code", has_text="9f2c4e").wait_for()


def test_an_admin_of_all_users_chooses_one_first(site: Site) -> None:
    add_story(site)
    site.enter(Keys(site.memory).create("admin").text)
    site.page.get_by_role("link", name="Graph", exact=True).first.click()
    site.page.get_by_text("Choose one user under “Memory of”.").wait_for()
    site.page.get_by_role("button", name="Memory of Everybody. Choose another").click()
    site.page.get_by_role("option", name="ana").click()
    picture(site, "3 memories")
