"""Neo4j Browser, as a person uses it: logs in, drops the style, sets parameters, runs files and looks at the picture.

NEO4J_BROWSER is its address on the server of NEO4J_URI, such as http://127.0.0.1:7474/browser/. Screenshots are written
to the folder that BROWSER_PICTURES names, if it is set.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import pytest
from exploring import EXPLORE, demo_memory, parameters, partition
from neo4j_servers import Server
from support.waiting import PATIENCE

pytestmark = pytest.mark.server
FLAGS = """--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync""".split()
PICTURES = os.environ.get("BROWSER_PICTURES")
DROP = """([editor, name, text]) => {
    const data = new DataTransfer()
    data.items.add(new File([text], name, {type: 'text/plain'}))
    for (const kind of ['dragenter', 'dragover', 'drop'])
        document.querySelector(editor).dispatchEvent(new DragEvent(kind, {dataTransfer: data, bubbles: true}))
}"""
CAPTIONS = """all => all.map(
    g => [...g.querySelectorAll('text')].map(line => line.textContent.trim()).filter(line => line).join(' '))"""
FILLS = "all => all.map(g => g.querySelector('circle.b-outline').getAttribute('fill'))"


class Browser:
    """A page of Neo4j Browser."""

    def __init__(self, page: Any, partition: str) -> None:
        self.page, self._partition = page, partition

    def log_in(self, url: str, server: Server) -> None:
        page = self.page
        page.goto(url, wait_until="domcontentloaded")
        page.get_by_test_id("bolt-scheme-select").select_option("bolt://")
        page.get_by_test_id("boltaddress").fill(server.uri.removeprefix("bolt://"))
        page.get_by_test_id("username").fill(server.username)
        page.get_by_test_id("password").fill(server.password)
        page.get_by_test_id("connect").click()
        page.get_by_test_id("disconnectedBanner").wait_for(state="detached")
        page.get_by_test_id("frame").filter(has_text=":server connect").wait_for()
        with suppress(Exception):  # on a server of version 5 the prompt soon names its database
            page.locator("[data-testid=activeEditor]", has_text="neo4j$").wait_for(timeout=4000)

    def drop(self, path: Path) -> None:
        self.page.evaluate(DROP, ["[data-testid=activeEditor]", path.name, path.read_text("utf-8")])

    def run(self, text: str) -> Any:
        """Runs a statement in the editor; returns its result frame, after clearing earlier frames."""
        page = self.page
        if text != ":clear":
            self.run(":clear")
        page.locator("[data-testid=activeEditor] .monaco-editor").first.click()
        page.keyboard.press("Control+A")
        page.keyboard.press("Delete")
        page.keyboard.insert_text(text)
        page.get_by_test_id("editor-Run").click()
        return page.get_by_test_id("frame").filter(has_text=text.splitlines()[0]).first

    def ask(self, name: str) -> Any:
        """Runs a file with the parameters its head names; returns the result frame with the drawing."""
        path = EXPLORE / f"{name}.cypher"
        self.set(**parameters(path))
        frame = self.run(path.read_text("utf-8"))
        frame.locator("g.node").first.wait_for()
        if PICTURES:
            frame.get_by_title("Fullscreen").click()
            self.picture(frame, name)
            self.page.get_by_title("Close fullscreen").click()
        return frame

    def set(self, **values: Any) -> None:
        params = json.dumps({**values, "user": self._partition})
        self.run(f":params {params}").get_by_text("Successfully set your parameters").wait_for()

    def picture(self, frame: Any, name: str) -> None:
        if PICTURES:
            frame.get_by_label("Collapse the node properties display").click()
            frame.get_by_label("zoom-to-fit").click()
            self.page.wait_for_timeout(4000)  # until it has come to rest
            self.page.screenshot(path=Path(PICTURES) / f"browser-{name}.png")


def captions(drawn: Any, kind: str) -> list[str]:
    return drawn.locator(f"g.{kind}").evaluate_all(CAPTIONS)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if not (url := os.environ.get("NEO4J_BROWSER")):
        pytest.skip("NEO4J_BROWSER names no Neo4j Browser")
    if not (chromium := shutil.which("chromium")):
        pytest.skip("there is no chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="there is no playwright")
    server = Server.at("NEO4J_URI")

    def local(route: Any) -> None:  # it asks for fonts and reports to its makers
        here = urlsplit(route.request.url).hostname in {urlsplit(url).hostname, "localhost"}
        route.continue_() if here else route.abort()

    with demo_memory(server, tmp_path_factory.mktemp("home")) as memory, playwright.sync_playwright() as running:
        page = running.chromium.launch(executable_path=chromium, args=FLAGS).new_page(
            viewport={"width": 1400, "height": 900}
        )
        page.set_default_timeout(PATIENCE * 1000)
        page.route("**/*", local)
        browser = Browser(page, partition(memory))
        browser.log_in(url, server)
        browser.drop(EXPLORE / "style.grass")
        yield browser
        page.context.browser.close()


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
    spec = spec_from_file_location("serve", EXPLORE / "serve.py")
    assert spec is not None and spec.loader is not None
    serve = module_from_spec(spec)
    spec.loader.exec_module(serve)
    serve.Handler.log_message = lambda *_: None
    page = browser.page
    browser.set()
    with serve.serving(0) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        browser.run(f":guide http://localhost:{server.server_port}/guide.html")
        page.get_by_text("graphmem: what a memory knows").first.wait_for()
        page.get_by_test_id("pagination-2").click()
        page.locator(".runnable", has_text="The whole picture").click()
        page.locator("[data-testid=activeEditor]", has_text="The whole picture").wait_for()
        page.get_by_test_id("editor-Run").click()
        frame = page.get_by_test_id("frame").filter(has_text="The whole picture").first
        frame.locator("g.node").first.wait_for()
        browser.picture(frame, "guide")
        server.shutdown()
