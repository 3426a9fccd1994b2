"""The views of the system and of usage, and the lamp in the frame, in a browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from support.fakes import fake_models
from support.page import HOSTILE, NARROW, REFUSED, Site, cut_off
from support.waiting import TIMEOUT

from graphmem import Memory, Settings
from graphmem.errors import ModelError, StoreUnavailable
from graphmem.service.keys import Keys
from graphmem.stores.ledger import jobs
from graphmem.stores.ledger.jobs import JobKind
from graphmem.testing import ModelEndpoint
from graphmem.testing.numpy_index import NumpyIndex

pytestmark = pytest.mark.server

SINGS = json.dumps({"facts": [{"text": "Sings", "messages": [1]}]})
EVERY = 15_001  # milliseconds after which figures are read again


@pytest.fixture
def endpoint() -> Iterator[ModelEndpoint]:
    with ModelEndpoint(default=SINGS) as endpoint:
        yield endpoint


@pytest.fixture
def memory(tmp_path: Any, endpoint: ModelEndpoint, request: pytest.FixtureRequest) -> Iterator[Memory]:
    """With a vector index that has to be delivered to, and a language model, or with these settings:
    `@pytest.mark.parametrize("memory", [{…}], indirect=True)`.
    """
    prices = {"prompt": 800.0, "completion": 2400.0}
    config = {
        "openai_base_url": endpoint.url, "api_key": "any", "model": HOSTILE, "timeout": TIMEOUT, "prices": prices
    }  # fmt: skip
    llm = {"provider": "openai", "config": config}
    settings = getattr(request, "param", {"llm": llm})
    config = Settings.from_dict(fake_models(home=str(tmp_path), **settings))
    with Memory(settings=config, vector_index=NumpyIndex()) as memory:
        yield memory


def enter(site: Site, view: str = "system", role: str = "admin", **bound: Any) -> Any:
    """Opens a view with a new key of this role, with a clock that tests can set forward."""
    site.page.clock.install()
    site.enter(Keys(site.memory).create(role, **bound).text)
    site.page.locator("h1, main .read").first.wait_for()
    site.page.evaluate("view => { location.hash = `#${view}`; }", view)
    site.page.locator(".grid3").wait_for()
    return site.page


def figure(page: Any, label: str) -> str:
    return str(page.locator(".fig", has_text=label).locator("dd").text_content()).split()[0]


def cells(page: Any, row: str) -> list[str]:
    """The texts of a row of a table."""
    return [text.strip() for text in page.locator(".table tr", has_text=row).first.locator("td").all_text_contents()]


def refuse(*_: Any) -> None:
    raise StoreUnavailable("the disk is full")


def add_behind(site: Site, monkeypatch: pytest.MonkeyPatch, number: int = 2) -> int:
    """Adds memories of which the vectors are not delivered; returns the number of changes."""
    monkeypatch.setattr(site.memory.engine.backends.vector_index, "upsert", refuse)
    site.memory.add([f"Number {n} of many." for n in range(number)], user_id="ana", infer=False)
    return int(site.memory.stats()["stores"][1]["pending"])


# --- figures ----------------------------------------------------------------------------------------------------------


def test_figures_are_those_of_the_service_and_are_refreshed_in_place(site: Site) -> None:
    site.memory.add("I sing.", user_id="ana")
    page = enter(site)
    stats = site.memory.stats()
    (line,) = stats["usage"]
    assert figure(page, "Memories") == str(stats["listed"]) == "0"  # its words are a source message
    assert page.get_by_text(f"{stats['memories']} in all, with summaries").count() == 1
    assert figure(page, "Tokens") == str(line["prompt_tokens"] + line["completion_tokens"])
    assert figure(page, "Cost") == f"{line['cost']:.2f}"
    assert figure(page, "Search, 99 of 100 within") == "–"
    expected = [
        "Drawing facts",
        HOSTILE,
        *(str(line[name]) for name in ("calls", "prompt_tokens", "completion_tokens")),
    ]
    assert cells(page, HOSTILE[:20])[:-1] == [*expected, f"{line['cost']:.2f}"]
    assert page.locator("main img, main script, main b").count() == 0
    seq = f"at change {stats['stores'][0]['seq']}"
    assert page.locator(".track").all_text_contents() == [seq, seq]
    page.evaluate("() => { document.querySelector('.fig dd').dataset.same = 'yes'; }")
    site.memory.add("Ben drinks tea.", user_id="ben", infer=False)
    site.memory.search("tea", user_id="ben")
    page.clock.fast_forward(EVERY)
    page.locator(".fig dd", has_text=re.compile("^1 ")).wait_for()
    assert page.locator(".fig dd").first.get_attribute("data-same") == "yes"
    page.locator(".fig dd", has_text=re.compile(r"\d ms")).wait_for()
    assert int(cells(page, "Search")[-2]) >= int(cells(page, "Search")[2])
    assert cells(page, "GET /memories")[1:3] == ["admin", "200"]
    assert page.locator("[style]").count() == 0


def test_nothing_is_read_while_the_tab_is_hidden(site: Site) -> None:
    page = enter(site)
    asked: list[str] = []
    page.on("request", lambda one: asked.append(one.url))
    hide = "on => { Object.defineProperty(document, 'hidden', { get: () => on, configurable: true }); }"
    page.evaluate(hide, True)
    for _ in range(4):
        page.clock.fast_forward(EVERY)
    assert asked == []
    page.evaluate(hide, False)
    with page.expect_response("**/stats"):
        page.evaluate("() => document.dispatchEvent(new Event('visibilitychange'))")
    assert len([url for url in asked if url.endswith("/stats")]) == 1  # the lamp and the view share it


def test_old_figures_stay_when_the_service_fails(site: Site) -> None:
    site.expected.append("Failed to load resource")
    site.memory.add("I sing.", user_id="ana", infer=False)
    page = enter(site)
    cut_off(page, "**/stats")
    page.clock.fast_forward(EVERY)
    page.get_by_text("The figures below are older").wait_for()
    assert figure(page, "Memories") == "1"
    assert page.locator("a.state").text_content() == "No answer"
    page.unroute("**/stats")
    page.get_by_role("alert").get_by_role("button", name="Try again").click()
    page.locator("a.state", has_text="All in step").wait_for()
    assert page.get_by_text("The figures below are older").count() == 0


def test_a_view_that_failed_is_loaded_once_the_service_is_back(site: Site) -> None:
    site.expected.append("Failed to load resource")
    page = enter(site)
    routes = re.compile("/(stats|api-keys|metrics|requests)")
    page.route(routes, lambda route: route.abort())
    page.evaluate("() => { location.hash = '#keys'; }")
    page.get_by_text("The keys could not be loaded.").wait_for()
    page.clock.fast_forward(EVERY)
    page.locator("a.state", has_text="No answer").wait_for()
    page.unroute(routes)
    page.clock.fast_forward(EVERY)
    page.locator(".keyring").wait_for()
    assert page.get_by_role("alert").count() == 0


def test_what_metrics_tell_is_left_out_without_them(site: Site) -> None:
    site.expected.append(REFUSED.format(404))
    site.page.route("**/metrics", lambda route: route.fulfill(status=404, json={"detail": "There is no such path."}))
    page = enter(site)
    page.get_by_role("heading", name="Latest requests").wait_for()
    assert page.get_by_text("99 of 100").count() == page.get_by_text("How long things take").count() == 0
    asked: list[str] = []
    page.on("request", lambda one: asked.append(one.url))
    with page.expect_response("**/stats"):
        page.clock.fast_forward(EVERY)
    assert not [url for url in asked if url.endswith("/metrics")]


# --- stores and jobs --------------------------------------------------------------------------------------------------


def test_a_store_behind_is_shown_behind_until_it_is_not(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.memory.add("I sing.", user_id="ana", infer=False)
    behind = add_behind(site, monkeypatch)
    page = enter(site)
    page.evaluate("() => { location.hash = '#memories'; }")
    page.locator(".row").first.wait_for()
    lamp = page.locator("a.state")
    assert lamp.text_content() == f"Vectors {behind} behind"
    assert lamp.locator(".lamp.warn").count() == 1
    lamp.click()
    store = page.locator(".store", has_text="Vectors")
    store.locator(".warned", has_text=f"{behind} changes behind").wait_for()
    ledger, vectors = site.memory.stats()["stores"]
    assert vectors["seq"] < ledger["seq"]
    assert store.locator(".track").text_content() == f"at change {vectors['seq']}"
    since = store.locator("time").get_attribute("datetime")
    assert since.replace("Z", "+00:00") == vectors["oldest_pending_at"]
    assert float(store.locator("rect").get_attribute("x")) == pytest.approx(226 * (1 - behind / 50))
    assert page.locator(".store", has_text="Ledger").locator(".lamp.warn, .tr").count() == 0
    monkeypatch.undo()
    site.memory.flush()
    page.clock.fast_forward(EVERY)
    store.get_by_text("In step.").wait_for()
    assert lamp.text_content() == "All in step"
    assert store.locator("rect").get_attribute("x") == "226"


def test_differences_are_reported_and_repaired(site: Site) -> None:
    memory_id = site.memory.add("I sing.", user_id="ana", infer=False)["results"][0]["id"]
    page = enter(site)
    verify = page.get_by_role("button", name="Verify now")
    verify.click()
    page.get_by_text(re.compile(r"^Verified .*: 1 stored memory, all agree\.$")).wait_for()
    site.memory.engine.backends.vector_index.delete([memory_id])
    verify.click()
    page.get_by_text("Vectors: 1 missing").click()
    assert page.locator(".report details p").text_content() == memory_id
    page.get_by_role("button", name="Repair").click()
    page.get_by_text(re.compile(r"^Repaired .*: 1 stored memory, all agree\.$")).wait_for()
    assert site.focused() == "Verify now"
    assert page.locator(".report").count() == 0
    assert site.memory.verify()["ok"]


def test_failed_jobs_are_tried_again(site: Site, endpoint: ModelEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint._default = HOSTILE
    site.memory.add("I sing.", user_id="ana")
    page = enter(site)
    row = page.locator("tr", has_text="Drawing facts").first
    assert row.locator(".bad").text_content() == "1"
    lamp = page.locator("a.state")
    assert (lamp.text_content(), lamp.locator(".lamp.warn").count()) == ("1 job failed", 1)
    page.get_by_text("says why they fail").wait_for()
    page.get_by_role("button", name="Try again").click()
    page.get_by_text("1 failed again: the model's answer is not the JSON it was asked for; use a model").wait_for()
    assert site.focused() == "Try again"
    endpoint._default = SINGS
    page.get_by_role("button", name="Try again").click()
    page.get_by_text("Nothing is left to do.").wait_for()
    row.locator(".bad").wait_for(state="detached")
    assert page.get_by_role("button", name="Try again").count() == 0
    assert site.focused() == "Background jobs"
    assert lamp.text_content() == "All in step"

    def fail(*_: Any) -> None:
        raise ModelError("no memory left")

    monkeypatch.setattr(site.memory.engine.backends.embedder, "embed", fail)
    site.memory.add("Ben drinks tea.", user_id="ben", infer=False)
    page.clock.fast_forward(EVERY)
    page.locator("tr", has_text="Vectors and names").locator(".bad", has_text="1").wait_for()
    monkeypatch.undo()
    page.get_by_role("button", name="Try again").click()
    page.locator(".bad").wait_for(state="detached")
    assert site.memory.stats()["job_counts"] == []


@pytest.mark.parametrize(
    "memory", [{"lifecycle": {"enabled": True, "since": "2020-01-01", "daily_at": "never"}}], indirect=True
)
def test_a_cycle_that_changed_nothing_is_told_with_its_time(site: Site) -> None:
    site.said(9, "The weather is grey.", "The weather was bad.")
    page = enter(site)
    page.get_by_text("No cycle of the lifecycle has run yet.").wait_for()
    told = page.locator(".sect", has_text="Background jobs").locator(".hint")
    for did in (
        "The last cycles of all users changed 2 memories.",
        "The last cycle, of 1 user, changed nothing.",
    ):
        site.memory.tend(user_id="ana")
        page.clock.fast_forward(EVERY)
        page.get_by_text(did).wait_for()
        assert str(told.text_content()).startswith("The latest cycle of the lifecycle ended on ")
        ended_at = str(told.locator("time").get_attribute("datetime")).replace("Z", "+00:00")
        assert ended_at == site.memory.lifecycle_status(user_id="ana")["cycled_at"]


@pytest.mark.parametrize("memory", [{"lifecycle": {"enabled": True}}], indirect=True)
def test_a_failed_cycle_is_tried_again_without_a_language_model(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = site.memory.engine.job_worker
    monkeypatch.setattr(worker, "_run_cycle", refuse)
    site.said(2, "I sing.")
    site.memory.flush()
    with site.memory.engine.ledger.write() as connection:
        jobs.enqueue_cycles(connection, datetime.now(UTC), None)
    worker.drain()
    page = enter(site)
    row = page.locator("tr", has_text="Cycles of the lifecycle")
    row.locator(".bad", has_text="1").wait_for()
    monkeypatch.undo()
    page.get_by_role("button", name="Try again").click()
    page.get_by_text("Nothing is left to do.").wait_for()
    row.locator(".bad").wait_for(state="detached")


# --- who sees what ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["user", "app"])
def test_other_keys_see_the_usage_of_their_user_alone(site: Site, role: str) -> None:
    for user in ("ana", "ana", "brumalheim"):
        site.memory.add("I sing.", user_id=user, run_id=f"{user}{site.memory.stats()['memories']}")
    asked: list[str] = []
    site.page.on("request", lambda one: asked.append(one.url.removeprefix(site.address).partition("?")[0]))
    view, bound = ("usage", {"user_id": "ana"}) if role == "user" else ("usage?user=ana", {})
    page = enter(site, view, role, **bound)
    lines = site.memory.stats(user_id="ana")["usage"]
    assert page.locator("h1").text_content() == "Usage"
    # Two for facts, one for the summary of the first run, one to decide.
    assert figure(page, "Requests to language models") == str(sum(line["calls"] for line in lines)) == "4"
    assert cells(page, "Together")[2] == "4"
    assert not {"/metrics", "/requests", "/entities", "/api-keys"} & set(asked)
    assert not {"Usage and system", "Keys"} & set(
        page.locator(".nav a").evaluate_all("all => all.map(one => one.title)")
    )
    assert page.locator("a.state").count() == 0
    for view in ("system", "keys", "keys/new"):
        page.evaluate("view => { location.hash = `#${view}`; }", view)
        page.get_by_role("heading", name="What is remembered of").wait_for()
        page.evaluate("() => { location.hash = '#usage'; }")
        page.get_by_role("heading", name="Usage").wait_for()
    assert "brumalheim" not in page.content()


# --- everywhere -------------------------------------------------------------------------------------------------------


def test_the_keyboard_alone_is_enough(site: Site) -> None:
    page = enter(site)
    page.evaluate("() => { location.hash = '#memories'; }")
    page.locator(".first").wait_for()
    page.keyboard.press("g")
    page.keyboard.press("u")
    page.get_by_role("button", name="Verify now").wait_for()
    page.keyboard.press("Tab")
    assert site.focused() == "Skip to content"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert site.focused() == "Verify now"
    page.keyboard.press("Enter")
    page.get_by_text("all agree").wait_for()
    assert site.focused() == "Verify now"
    page.keyboard.press("?")
    assert page.get_by_role("dialog", name="Keyboard").get_by_text("g u").count() == 1


@pytest.mark.parametrize("site", [NARROW], indirect=True)
def test_on_a_phone_nothing_is_wider_and_keys_are_behind_a_link(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.memory.add("I sing.", user_id="ana")
    add_behind(site, monkeypatch, 60)
    page = enter(site)
    page.get_by_role("button", name="Verify now").click()
    page.locator(".report").wait_for()
    page.get_by_role("heading", name="How long things take").wait_for()
    assert page.evaluate("() => document.documentElement.scrollWidth") == NARROW[0]
    widths = page.locator(".scroll").evaluate_all("all => all.map(one => one.scrollWidth - one.clientWidth)")
    assert set(widths) == {0}
    assert page.locator(".store", has_text="Vectors").locator("rect").get_attribute("x") == "0"
    assert page.locator(".tabs a span").last.text_content() == "System"
    box = page.locator("a.state").bounding_box()
    assert (box["width"], box["height"]) == (44, 44)
    page.locator(".elsewhere").get_by_role("link", name="Keys").click()
    page.get_by_role("heading", name="Keys").wait_for()
    assert page.locator(".tabs [aria-current]").text_content().strip() == "System"


def test_all_of_it_is_there_in_chinese(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.memory.add("I sing.", user_id="ana")
    behind = add_behind(site, monkeypatch)
    page = enter(site)
    page.get_by_role("button", name="中文").click()
    assert page.locator("h1").text_content() == "用量与系统"
    assert page.locator("a.state").text_content() == f"向量落后 {behind} 条"
    page.get_by_role("button", name="立即校验").click()
    page.get_by_text("向量无法比对").wait_for()
    assert cells(page, "提取事实")[1:] == ["0", "0", "0", "–"]
    kinds = page.locator(".sect", has=page.get_by_role("heading", name="后台任务")).locator("tbody tr")
    assert kinds.count() == len(JobKind)
    text = page.locator("main").inner_text().replace(HOSTILE, "")
    words = set(re.findall(r"[A-Za-z]{3,}", text))
    assert words <= {"SQLite", "Qdrant", "Token", "the", "disk", "full", *"GET POST memories verify admin".split()}
