"""The settings of chats on the page, the question to try them with, and the proxy that follows them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from support.fakes import fake_models
from support.page import HOSTILE, NARROW, REFUSED, Site

from graphmem import Memory, Settings
from graphmem.service.keys import Keys
from graphmem.testing import ModelEndpoint

pytestmark = pytest.mark.server

MILK = "Warm milk helps me with insomnia"
VAGUE = "And what about it?"
REWRITTEN = "Does warm milk help against insomnia?"


@pytest.fixture
def endpoint() -> Iterator[ModelEndpoint]:
    """A language model, to which the proxy sends chats as well."""
    with ModelEndpoint(default=REWRITTEN) as endpoint:
        yield endpoint


@pytest.fixture(params=["model"])
def memory(request: pytest.FixtureRequest, tmp_path: Any, endpoint: ModelEndpoint) -> Iterator[Memory]:
    """A memory with the endpoint as language model, or (parameter "none") without one."""
    config = {"openai_base_url": endpoint.url, "api_key": "any", "model": "test-model"}
    models = {"llm": {"provider": "openai", "config": config}} if request.param == "model" else {}
    with Memory(settings=Settings.from_dict(fake_models(home=str(tmp_path), **models))) as memory:
        memory.add(MILK, user_id="ana", infer=False)
        yield memory


def enter(site: Site, key: str = "") -> Any:
    """Opens the view, and returns the page."""
    site.enter(key)
    site.page.get_by_role("link", name="Chat memory").click()
    site.page.locator(".set, .say.bad").first.wait_for()
    return site.page


def save(site: Site) -> None:
    site.page.get_by_role("button", name="Save").click()
    site.page.get_by_text("Everything is saved.").wait_for()


def settings(site: Site, **query: str) -> dict[str, Any]:
    """The settings in force for the user of the key."""
    answer = httpx2.get(f"{site.address}/settings", params=query, headers={"X-API-Key": site.key})
    found: dict[str, Any] = answer.json()["settings"]
    return found


def ask(site: Site, text: str, endpoint: ModelEndpoint) -> tuple[str, list[dict[str, Any]]]:
    """Sends a chat through the proxy; returns what became of its memory, and the messages that the endpoint got."""
    body = {"model": "m", "messages": [{"role": "user", "content": text}]}
    answer = httpx2.post(f"{site.address}/v1/chat/completions", json=body, headers={"X-API-Key": site.key})
    sent = [
        one.body["messages"] for one in endpoint.requests if text == one.body["messages"][-1]["content"][-len(text) :]
    ]
    return answer.headers["x-graphmem"], sent[-1]


def try_question(site: Site, question: str = VAGUE, said: str = "", answered: str = "") -> Any:
    """Tries a question, and returns the steps."""
    page = site.page
    page.get_by_label("ana", exact=True).fill(said)
    page.get_by_label("AI", exact=True).fill(answered)
    page.get_by_role("textbox", name="Question").fill(question)
    with page.expect_response("**/recall"):
        page.get_by_role("button", name="Try", exact=True).click()
    page.locator(".steps li").first.wait_for()
    return page.locator(".steps li")


# --- settings ---------------------------------------------------------------------------------------------------------


def test_saved_settings_are_in_force_at_the_next_request_of_the_proxy(site: Site, endpoint: ModelEndpoint) -> None:
    page = enter(site)
    page.get_by_role("switch", name="Remember what is said").uncheck()
    page.get_by_role("switch", name="Rewrite weak questions").uncheck()
    page.get_by_role("textbox", name="Memories at most").fill("1")
    page.get_by_role("button", name="Last question").click()
    page.get_by_text("4 changes not saved", exact=True).wait_for()
    assert settings(site)["top_k"] == 5
    save(site)
    outcome, messages = ask(site, "Does warm milk help with insomnia?", endpoint)
    assert outcome == "on; memories=1"
    assert [one["role"] for one in messages][-1] == "user" and MILK in str(messages)
    assert messages[0]["role"] == "user", "the memories stand in front of the last user message"
    ask(site, VAGUE, endpoint)
    assert len(endpoint.requests) == 2, "nothing was rewritten"
    page.get_by_role("switch", name="Rewrite weak questions").check()
    page.get_by_label("Prompt for it").fill("Say it in full.")
    save(site)
    outcome, _ = ask(site, VAGUE, endpoint)
    assert outcome == "on; memories=1"
    assert endpoint.requests[2].body["messages"][0]["content"].startswith("Say it in full.")
    page.get_by_role("switch", name="Use memory in chats").uncheck()
    save(site)
    assert ask(site, VAGUE, endpoint)[0] == "on; recall=off"


def test_changes_are_counted_discarded_and_survive_the_view_the_language_and_the_theme(site: Site) -> None:
    page = enter(site)
    button = page.get_by_role("button", name="Save")
    assert button.is_disabled()
    page.get_by_role("textbox", name="Memories at most").fill("7")
    page.get_by_label("Prompt for it").fill("Say it in full.")
    page.get_by_role("textbox", name="Question").fill("Who?")
    page.get_by_role("switch", name="Use memory in chats").uncheck()
    page.get_by_role("switch", name="Use memory in chats").check()  # as it was: no change
    page.get_by_text("2 changes not saved", exact=True).wait_for()
    page.get_by_role("button", name="Light or dark").click()
    page.get_by_role("button", name="中文").click()
    page.get_by_role("button", name="English").click()
    page.get_by_role("link", name="Memories").click()
    page.locator(".row").first.wait_for()
    page.get_by_role("link", name="Chat memory").click()
    page.get_by_text("2 changes not saved", exact=True).wait_for()
    assert page.get_by_role("textbox", name="Question").input_value() == "Who?"
    assert page.get_by_label("Prompt for it").input_value() == "Say it in full."
    page.get_by_role("button", name="Discard").click()
    assert page.get_by_role("textbox", name="Memories at most").input_value() == "5"
    assert page.get_by_label("Prompt for it").input_value() == ""
    assert button.is_disabled()
    assert site.focused() == "Everything is saved."


def test_an_unusable_number_is_marked_and_not_saved(site: Site) -> None:
    page = enter(site)
    field = page.get_by_role("textbox", name="Memories at most")
    for text in ("0", "1001", "five", "", "2.5", "-1"):
        field.fill(text)
        assert field.get_attribute("aria-invalid") == "true"
        described = field.get_attribute("aria-describedby").split()[-1]
        assert page.locator(f"#{described}").text_content() == "A whole number from 1 to 1,000."
    page.get_by_role("button", name="Save").click()
    page.get_by_text("Set right what is marked first.").wait_for()
    assert field.evaluate("one => one === document.activeElement")
    field.fill("6")
    assert field.get_attribute("aria-invalid") is None
    save(site)
    assert settings(site)["top_k"] == 6


def test_the_prompt_has_ours_as_placeholder_and_is_reset(site: Site) -> None:
    page = enter(site)
    field, reset = page.get_by_label("Prompt for it"), page.get_by_role("button", name="Reset")
    assert "one search query" in field.get_attribute("placeholder")
    assert (field.input_value(), reset.is_disabled()) == ("", True)
    field.fill("x" * 20_001)
    page.get_by_text("At most 20,000 characters; these are 20,001.").wait_for()
    field.fill("Say it in full.")
    save(site)
    assert settings(site)["rewrite_prompt"] == "Say it in full."
    reset.click()
    assert field.input_value() == ""
    assert field.evaluate("one => one === document.activeElement")
    save(site)
    assert settings(site)["rewrite_prompt"] is None


def test_a_setting_goes_back_to_that_of_all_users(site: Site) -> None:
    admin = Keys(site.memory).create("admin").text
    page = enter(site, admin)
    page.get_by_text("These are the settings of all users.").wait_for()
    page.get_by_text("Choose a user to try a question").wait_for()
    page.get_by_role("textbox", name="Memories at most").fill("9")
    save(site)
    page.get_by_role("button", name="Memories at most. Back to the configuration: 5").wait_for()
    page.get_by_role("button", name="Memory of Everybody. Choose another").click()
    page.get_by_role("option", name="ana").click()
    field = page.locator("#c-top_k")
    page.get_by_role("textbox", name="Question").wait_for()
    assert field.input_value() == "9"
    assert page.locator(".set > .under").all_text_contents() == ["Set for all users."]
    field.fill("2")
    save(site)
    assert settings(site)["top_k"] == 2
    page.get_by_role("button", name="Memories at most. Back to that of all users: 9").click()
    assert field.input_value() == "9"
    assert field.evaluate("one => one === document.activeElement")
    save(site)
    assert settings(site)["top_k"] == 9
    assert page.get_by_text("Back to").count() == 0


def test_a_save_is_taken_back_unless_it_was_changed_since(site: Site) -> None:
    site.expected.append(REFUSED.format(401))
    page = enter(site)
    page.get_by_role("textbox", name="Characters at most").fill("800")
    save(site)
    page.get_by_role("textbox", name="Characters at most").fill("900")
    save(site)
    toast, bar = page.locator(".toast").bounding_box(), page.locator(".saved").bounding_box()
    assert bar["x"] + bar["width"] <= toast["x"]
    page.get_by_role("status").get_by_role("button", name="Undo").click()
    page.get_by_text("Taken back.").wait_for()
    assert page.get_by_role("textbox", name="Characters at most").input_value() == "800"
    assert settings(site)["max_chars"] == 800
    page.get_by_role("switch", name="Use memory in chats").uncheck()
    save(site)
    httpx2.put(f"{site.address}/settings", json={"recall": True}, headers={"X-API-Key": site.key})
    assert site.focused() == "Everything is saved."
    page.keyboard.press("u")
    page.get_by_text("Not undone: it was changed again since.").wait_for()
    assert settings(site)["recall"] is True


def test_a_save_that_fails_keeps_what_was_typed(site: Site) -> None:
    site.expected.append("Failed to load resource")
    page = enter(site)
    page.get_by_label("Prompt for it").fill("Say it in full.")
    page.route("**/settings", lambda route: route.abort())
    page.get_by_role("button", name="Save").click()
    page.get_by_text("Your text is still here.").wait_for()
    page.unroute("**/settings")
    Keys(site.memory).revoke(site.key.split("_")[1])
    page.get_by_role("button", name="Save").click()
    page.get_by_text("what you wrote is still here").wait_for()
    page.locator("#key").fill(Keys(site.memory).create("user", user_id="ana").text)
    page.keyboard.press("Enter")
    page.locator(".door").wait_for(state="detached")
    assert page.get_by_label("Prompt for it").input_value() == "Say it in full."
    save(site)


def test_a_key_of_an_agent_looks_and_does_not_change(site: Site) -> None:
    page = enter(site, Keys(site.memory).create("user", user_id="ana", agent_id="Max").text)
    page.get_by_text("Read-only: this key is for one agent").wait_for()
    assert page.locator(".set input, .set textarea, .set button, .saved").count() == 0
    assert page.locator(".set b").all_text_contents() == ["On", "On", "On", "5", "1,200", "System message", "2"]
    try_question(site)
    assert page.locator(".whose b").text_content() == "Max with ana"
    page.evaluate("() => { location.hash = '#usage'; }")
    page.get_by_text("What the memory of Max with ana took of language models.").wait_for()
    page.evaluate("() => { location.hash = '#memories'; }")
    page.get_by_text("Put the whole key in place of its beginning.").nth(2).wait_for()
    pre, copy = page.locator(".snip pre").nth(1), page.locator(".snip .btn").nth(1).bounding_box()
    assert pre.evaluate("one => one.scrollWidth - one.clientWidth") == 0
    assert pre.bounding_box()["x"] + pre.bounding_box()["width"] <= copy["x"]
    site.memory.add(MILK, user_id="ana", agent_id="Max", infer=False)
    page.get_by_role("button", name="Look again").click()
    page.get_by_role("heading", name="What Max remembers of you").wait_for()


# --- trying a question ------------------------------------------------------------------------------------------------


def test_a_question_takes_three_steps_with_the_settings_as_shown(site: Site, endpoint: ModelEndpoint) -> None:
    page = enter(site)
    page.get_by_label("Prompt for it").fill("Say it in full.")
    page.get_by_role("textbox", name="Characters at most").fill("900")
    steps = try_question(site, said="I was awake until dawn", answered="Oh dear.")
    assert steps.locator(".read").all_text_contents() == [
        VAGUE,
        f"I was awake until dawn\nOh dear.\n{VAGUE}",
        REWRITTEN,
    ]
    first, second, third = steps.locator(".res").all_text_contents()
    assert "needed 0.55" in first and "needed 0.55" in second
    assert third.startswith("1 found, highest relevance ") and third.endswith(": enough")
    assert steps.nth(2).get_attribute("class") == "hit-it"
    assert all(" ms" in text for text in steps.locator("small").all_text_contents())
    page.get_by_text("With the settings as shown, 2 changes not saved.").wait_for()
    block = page.locator(".block pre").text_content()
    assert MILK in block
    assert f"{len(block)} of 900 characters" in page.locator(".block h3").text_content()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy").click()
    page.get_by_text("Copied.").wait_for()
    assert page.evaluate("() => navigator.clipboard.readText()") == block
    (request,) = endpoint.requests
    assert request.body["messages"][0]["content"].startswith("Say it in full.")
    page.get_by_role("switch", name="Use memory in chats").uncheck()
    page.get_by_role("button", name="Try", exact=True).click()
    page.get_by_text("Memory is not used in chats: nothing is looked up.").wait_for()
    assert settings(site)["rewrite_prompt"] is None, "trying saves nothing"


def test_steps_that_were_not_made_say_why(site: Site) -> None:
    page = enter(site)
    steps = try_question(site, "Does warm milk help me with insomnia?")
    assert steps.locator(".res").all_text_contents()[1:] == ["not needed", "not needed"]
    assert steps.nth(0).get_attribute("class") == "hit-it"
    page.get_by_role("switch", name="Rewrite weak questions").uncheck()
    steps = try_question(site)
    page.get_by_text("not tried: rewriting is off").wait_for()
    assert "not needed: there are no last turns" in steps.nth(1).text_content()
    try_question(site, said="I was awake until dawn")
    page.get_by_text(re.compile(r"nothing relevant: highest relevance 0\.[0-4]\d, needed 0\.55")).first.wait_for()
    assert page.get_by_text("Nothing: the request goes on as it is.").count() == 1


@pytest.mark.parametrize("memory", ["none"], indirect=True)
def test_without_a_language_model_it_says_that_nothing_is_rewritten(site: Site) -> None:
    page = enter(site)
    page.get_by_text("No language model is configured: nothing is rewritten").wait_for()
    steps = try_question(site)
    assert steps.nth(2).locator(".res").text_content() == "not tried: no language model is configured"


def test_markup_in_memories_and_questions_stays_text(site: Site) -> None:
    site.memory.add(HOSTILE, user_id="ana", infer=False)
    page = enter(site)
    page.get_by_label("Prompt for it").fill(HOSTILE)
    steps = try_question(site, HOSTILE + " bold x.test?")
    assert steps.nth(0).locator(".read").text_content() == HOSTILE + " bold x.test?"
    # The library writes ‹ and › for < and >.
    assert "‹script›alert(2)‹/script›" in page.locator(".block pre").text_content()
    assert page.locator("main img, main script, main b, main a").count() == 0


def test_a_question_that_cannot_be_tried_stays(site: Site) -> None:
    site.expected.append("Failed to load resource")
    page = enter(site)
    page.route("**/recall", lambda route: route.abort())
    page.get_by_role("textbox", name="Question").fill(VAGUE)
    page.keyboard.press("Enter")
    page.get_by_text("Not tried: The service does not answer").wait_for()
    assert page.get_by_role("textbox", name="Question").input_value() == VAGUE
    page.unroute("**/recall")
    page.get_by_role("textbox", name="Characters at most").fill("none")
    page.get_by_role("button", name="Try", exact=True).click()
    page.locator("#c-try-problem", has_text="Set right what is marked first.").wait_for()


def test_the_keyboard_alone_is_enough(site: Site) -> None:
    site.enter()
    page = site.page
    site.row("Warm milk").wait_for()
    page.keyboard.press("g")
    page.keyboard.press("c")
    page.get_by_role("switch", name="Use memory in chats").wait_for()
    switch = page.get_by_role("switch", name="Use memory in chats")
    site.tab_to(switch)
    page.keyboard.press("Space")
    page.get_by_text("1 change not saved", exact=True).wait_for()
    page.keyboard.press("Control+Enter")
    page.get_by_text("Everything is saved.").wait_for()
    assert settings(site)["recall"] is False
    page.keyboard.press("u")
    page.get_by_text("Taken back.").wait_for()
    assert settings(site)["recall"] is True and switch.is_checked()
    page.keyboard.press("/")
    page.keyboard.type("Does warm milk help me with insomnia?")
    page.keyboard.press("Enter")
    page.locator(".steps .hit-it").wait_for()


@pytest.mark.parametrize("site", [NARROW], indirect=True)
def test_on_a_phone_all_of_it_fits_in_chinese(site: Site) -> None:
    site.memory.add("热牛奶对我的失眠有帮助" * 20, user_id="ana", infer=False)
    site.enter()
    page = site.page
    page.get_by_role("button", name="中文").click()
    page.get_by_role("navigation").get_by_role("link", name="对话", exact=True).click()
    page.get_by_role("heading", name="对话记忆").wait_for()
    page.get_by_role("textbox", name="最多条数").fill("0")
    page.get_by_text("请填写 1 到 1,000 之间的整数。").wait_for()
    page.get_by_role("textbox", name="最多条数").fill("3")
    page.get_by_text("有 1 处未保存的改动").wait_for()
    page.get_by_role("textbox", name="问题", exact=True).fill("热牛奶对失眠有帮助吗？")
    page.get_by_role("button", name="试一试").click()
    page.locator(".steps .hit-it").wait_for()
    assert page.locator(".steps .read").first.get_attribute("lang") == "zh-CN"
    assert page.get_by_text("不需要", exact=True).count() == 2
    assert page.evaluate("() => document.documentElement.scrollWidth") == NARROW[0]
    small = page.locator(".set .field, .try .field, .set .seg button, .saved .btn, .try form .btn").evaluate_all(
        "all => all.map(one => one.getBoundingClientRect().height).filter(height => height < 36)"
    )
    assert small == []
    assert page.locator("[style]").count() == 0
