"""Every state that the design of the page names is reached by the functions from which the pictures are made.

Where axe-core is installed (`npm ci --prefix tests/clients --ignore-scripts`), it looks for what keeps people from
using a state by keyboard, screen reader or eye.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.page import NARROW, WIDE, Site
from support.page_states import STATES
from support.page_story import story_memory, tell_story

from graphmem import Memory

pytestmark = pytest.mark.server

AXE = Path(__file__).parents[1] / "clients/node_modules/axe-core/axe.min.js"
# The layouts of the page: with the rail, with its icons alone, and with a bar at the bottom.
SIZES = (WIDE, (1000, 800), NARROW)
# Colours are looked at once they have faded in; what turns or pulses goes on.
RUN_AXE = """async () => {
  await new Promise(requestAnimationFrame);
  const ends = document.getAnimations().filter((one) => Number.isFinite(one.effect.getComputedTiming().endTime));
  await Promise.allSettled(ends.map((one) => one.finished));
  const { violations } = await axe.run(document, { resultTypes: ["violations"] });
  const tell = ({ id, impact, nodes }) => nodes.map(({ target }) => `${impact} ${id} ${target.join(" ")}`);
  return violations.flatMap(tell);
}"""


@pytest.fixture
def memory(tmp_path: Any) -> Iterator[Memory]:
    with story_memory(str(tmp_path)) as memory:
        tell_story(memory)
        yield memory


@pytest.mark.parametrize("name", STATES)
def test_a_state_is_reached(site: Site, name: str) -> None:
    STATES[name](site)
    assert site.page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    if AXE.exists():
        site.page.evaluate(AXE.read_text("utf-8"))
        for width, height in SIZES:
            site.page.set_viewport_size({"width": width, "height": height})
            assert site.page.evaluate(RUN_AXE) == []
