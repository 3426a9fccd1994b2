"""The page in Chromium. Each test ends with a check of what was requested, and that the console is empty."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from support.chromium import find_chromium, open_page
from support.fake_llm import Scripted
from support.fakes import fake_models
from support.page import WIDE, Site
from support.service import served

from graphmem import Memory, Settings
from graphmem.service.keys import Keys
from graphmem.testing import ModelEndpoint


@pytest.fixture(scope="module")
def chromium() -> str:
    if not (found := find_chromium()):
        pytest.skip("there is no chromium")
    pytest.importorskip("playwright.sync_api", reason="there is no playwright")
    return found


@pytest.fixture
def facts(request: pytest.FixtureRequest) -> Scripted | None:
    """A language model that draws these facts, or none: `@pytest.mark.parametrize("facts", [{…}], indirect=True)`."""
    return Scripted(request.param) if hasattr(request, "param") else None


@pytest.fixture
def memory(tmp_path: Any, facts: Scripted | None) -> Iterator[Memory]:
    with ExitStack() as stack:
        config: dict[str, Any] = {"home": str(tmp_path)}
        if facts is not None:
            endpoint = stack.enter_context(ModelEndpoint(default=facts))
            model = {"openai_base_url": endpoint.url, "api_key": "any", "model": "test-model"}
            config["llm"] = {"provider": "openai", "config": model}
        yield stack.enter_context(Memory(settings=Settings.from_dict(fake_models(**config))))


@pytest.fixture
def zone(request: pytest.FixtureRequest) -> str | None:
    """The browser's time zone: `@pytest.mark.parametrize("zone", ["Asia/Shanghai"], indirect=True)`."""
    return getattr(request, "param", None)


@pytest.fixture(params=[WIDE])
def site(request: pytest.FixtureRequest, memory: Memory, chromium: str, zone: str | None) -> Iterator[Site]:
    key = Keys(memory).create("user", user_id="ana").text
    with served(memory) as address, open_page(chromium, *request.param, address, zone) as page:
        site = Site(page, memory, address, key, [])
        problems: list[str] = []
        requested: list[str] = []
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda dialog: (problems.append(f"{dialog.type} {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda one: requested.append(one.url))
        yield site
        assert [one for one in problems if not one.startswith(tuple(site.expected))] == []
        assert [url for url in requested if not url.startswith((f"{address}/", "data:"))] == []
        assert not [url for url in requested if "gm_" in url.partition("#")[0]]
