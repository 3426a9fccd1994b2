"""Neo4j Browser, as a person uses it: logs in, drops the style, sets parameters, runs files and looks at the picture.

NEO4J_BROWSER is where the server of NEO4J_URI shows it, such as http://127.0.0.1:7474/browser/.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

import pytest
from support.chromium import find_chromium, open_page
from support.exploring import EXPLORE, demo_memory, partition
from support.neo4j_browser import Browser
from support.neo4j_servers import Server

pytestmark = pytest.mark.server
CAPTIONS = """all => all.map(
    g => [...g.querySelectorAll('text')].map(line => line.textContent.trim()).filter(line => line).join(' '))"""
FILLS = "all => all.map(g => g.querySelector('circle.b-outline').getAttribute('fill'))"


def captions(drawn: Any, kind: str) -> list[str]:
    return drawn.locator(f"g.{kind}").evaluate_all(CAPTIONS)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if not (url := os.environ.get("NEO4J_BROWSER")):
        pytest.skip("NEO4J_BROWSER names no Neo4j Browser")
    if not (chromium := find_chromium()):
        pytest.skip("there is no chromium")
    pytest.importorskip("playwright.sync_api", reason="there is no playwright")
    server = Server.at("NEO4J_URI")
    with demo_memory(server, tmp_path_factory.mktemp("home")) as memory, open_page(chromium, 1400, 900, url) as page:
        browser = Browser(page, partition(memory))
        browser.log_in(url, server)
        yield browser


def test_the_picture_of_a_conversation(browser: Browser) -> None:
    drawn = browser.ask("map")
    nodes, edges = captions(drawn, "node"), captions(drawn, "relationship")
    assert 20 <= len(nodes) <= 40
    assert len(nodes) <= len(edges) <= 60
    assert {"Ines", "Bela Moravec", "Marlow Clinic", "Ljubljana", "Greta Lindholm", "Kestrel Ferries"} <= set(nodes)
    assert any(words.startswith("My cello is healed! Bela Moravec") for words in nodes)
    fills = dict(zip(nodes, drawn.locator("g.node").evaluate_all(FILLS), strict=True))
    assert len({fills[name] for name in ("Ines", "Marlow Clinic", "Ljubljana", "Old Brewery")}) == 4
    assert fills["Ines"] == fills["Bela Moravec"] == "#C2410C"


def test_how_two_people_are_connected(browser: Browser) -> None:
    drawn = browser.ask("connection")
    nodes = captions(drawn, "node")
    assert (len(nodes), drawn.locator("g.relationship").count()) == (5, 4)
    assert {"Paulo Reyes", "Marlow Clinic", "Hannah Osei"} <= set(nodes)
    assert any(words.startswith("At the Marlow Clinic insist on Hannah Osei") for words in nodes)


def test_relations_are_called_by_their_predicates(browser: Browser) -> None:
    drawn = browser.ask("facts")
    assert {"Samir Haddad", "Tomas", "evening"} <= set(captions(drawn, "node"))
    assert {"run into", "will record"} <= set(captions(drawn, "relationship"))


def test_a_dropped_file_becomes_a_favourite_called_by_its_first_line(browser: Browser) -> None:
    browser.drop(EXPLORE / "hubs.cypher")
    page = browser.page
    page.get_by_role("button", name=re.compile("save to favorites", re.IGNORECASE)).click()
    page.get_by_test_id("navigationFavorites").click()
    page.get_by_text("What is mentioned most").first.wait_for()
    page.get_by_test_id("navigationFavorites").click()


def test_the_guide(browser: Browser) -> None:
    with browser.guide() as drawn:
        assert {"Ines", "Bela Moravec"} <= set(captions(drawn, "node"))
