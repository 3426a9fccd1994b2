"""Neo4j Browser, as a person uses it: logs in, drops the style, sets parameters, runs files, opens the guide."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from threading import Thread
from typing import Any

from support.exploring import EXPLORE, parameters
from support.neo4j_servers import Server

DROP = """([editor, name, text]) => {
    const data = new DataTransfer()
    data.items.add(new File([text], name, {type: 'text/plain'}))
    for (const kind of ['dragenter', 'dragover', 'drop'])
        document.querySelector(editor).dispatchEvent(new DragEvent(kind, {dataTransfer: data, bubbles: true}))
}"""


class Browser:
    """A page of Neo4j Browser, for the questions about one partition."""

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
        self.drop(EXPLORE / "style.grass")

    def drop(self, path: Path) -> None:
        """Drops a file on the editor."""
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
        return frame

    def set(self, **values: Any) -> None:
        """Sets parameters, and `user` to the partition."""
        params = json.dumps({**values, "user": self._partition})
        self.run(f":params {params}").get_by_text("Successfully set your parameters").wait_for()

    @contextmanager
    def guide(self) -> Iterator[Any]:
        """Opens the guide and runs its first question; yields the result frame with the drawing."""
        spec = spec_from_file_location("serve", EXPLORE / "serve.py")
        assert spec is not None and spec.loader is not None
        serve = module_from_spec(spec)
        spec.loader.exec_module(serve)
        serve.Handler.log_message = lambda *_: None
        page = self.page
        self.set()
        with serve.serving(0) as server:
            Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
            self.run(f":guide http://localhost:{server.server_port}/guide.html")
            page.get_by_text("graphmem: what a memory knows").first.wait_for()
            page.get_by_test_id("pagination-2").click()
            page.locator(".runnable", has_text="The whole picture").click()
            page.locator("[data-testid=activeEditor]", has_text="The whole picture").wait_for()
            page.get_by_test_id("editor-Run").click()
            frame = page.get_by_test_id("frame").filter(has_text="The whole picture").first
            frame.locator("g.node").first.wait_for()
            yield frame
            server.shutdown()
