"""Every state that the design of the page names is reached by the functions from which the pictures are made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.page import Site
from support.page_states import STATES
from support.page_story import story_memory, tell_story

from graphmem import Memory

pytestmark = pytest.mark.server


@pytest.fixture
def memory(tmp_path: Any) -> Iterator[Memory]:
    with story_memory(str(tmp_path)) as memory:
        tell_story(memory)
        yield memory


@pytest.mark.parametrize("name", STATES)
def test_a_state_is_reached(site: Site, name: str) -> None:
    STATES[name](site)
    assert site.page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
