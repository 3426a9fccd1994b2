"""Makes the pictures of the documentation from the demo's conversation: `python tests/screenshots.py`.

`python tests/screenshots.py FOLDER` takes pictures of the page at `/ui/` instead: each of its states, on a wide screen
and on a phone, dark and light, in English and Chinese. A second argument is the beginning of the states' names.

`docs/page.png` is a search on the page of the service, `docs/graph.png` the page of `graphmem graph` with one person
chosen; they need Chromium. `docs/browser-*.png` are of Neo4j Browser, with a server that NEO4J_URI, NEO4J_PASSWORD and
NEO4J_BROWSER name (see README.md beside this file); without one they stay as they are. Memories have random ids, by
which the graph is laid out: another run gives another layout.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

from support.chromium import find_chromium, open_page
from support.page import NARROW, WIDE, Site
from support.page_states import STATES
from support.page_story import story_memory, tell_story
from support.service import served
from support.waiting import TIMEOUT

from graphmem import Memory
from graphmem.cli.demo import USER, messages

DOCS = Path(__file__).parents[1] / "docs"
CHOSEN = "Greta Lindholm"
QUESTIONS = ("map", "connection", "facts")
# Milliseconds until what appears on the page has appeared.
REST = 600
# The size of the window, the theme and the language.
Look = tuple[tuple[int, int], str, str]


def take(page: Any, name: str) -> None:
    """Writes a picture once two of them, a second apart, are the same: when the nodes have come to rest."""
    path, previous, until = DOCS / f"{name}.png", b"", monotonic() + TIMEOUT
    while (picture := page.screenshot()) != previous and monotonic() < until:
        previous = picture
        page.wait_for_timeout(1000)
    path.write_bytes(picture)
    print(f"wrote {path.relative_to(DOCS.parent)}")


def picture_of_the_page(chromium: str, folder: Path) -> None:
    home, file = folder / "home", folder / "graph.html"
    with Memory(home) as memory:
        memory.add(list(messages()), user_id=USER)
    command = [sys.executable, "-m", "graphmem", "graph", "--user", USER, "--home", home, "--output", file]
    subprocess.run(command, check=True)
    with open_page(chromium, 1280, 780) as page:
        page.goto(file.as_uri())
        page.get_by_role("link", name=f"Person {CHOSEN}").click()
        page.get_by_role("heading", name=CHOSEN).wait_for()
        take(page, "graph")


def pictures_of_neo4j_browser(chromium: str, home: Path, url: str) -> None:
    from support.exploring import demo_memory, partition  # needs the driver
    from support.neo4j_browser import Browser
    from support.neo4j_servers import Server

    server = Server.at("NEO4J_URI")
    with demo_memory(server, home) as memory, open_page(chromium, 1400, 900, url) as page:
        browser = Browser(page, partition(memory))
        browser.log_in(url, server)

        def show_whole(frame: Any) -> None:
            frame.get_by_label("Collapse the node properties display").click()
            frame.get_by_label("zoom-to-fit").click()

        for name in QUESTIONS:
            frame = browser.ask(name)
            frame.get_by_title("Fullscreen").click()
            show_whole(frame)
            take(page, f"browser-{name}")
            page.get_by_title("Close fullscreen").click()
        with browser.guide() as frame:
            show_whole(frame)
            take(page, "browser-guide")


LOOKS = tuple(product((WIDE, NARROW), ("light", "dark"), ("en", "zh")))


def pictures_of_states(chromium: str, wanted: dict[Path, tuple[str, Look]]) -> None:
    """Takes pictures of states of the page: by the path of the picture the name of the state, and its look."""
    with TemporaryDirectory() as told:
        with story_memory(told) as memory:
            tell_story(memory)
        for path, (name, (size, theme, language)) in wanted.items():
            with (
                TemporaryDirectory() as home,
                story_memory(shutil.copytree(told, home, dirs_exist_ok=True)) as memory,
                served(memory) as address,
                open_page(chromium, *size, address) as page,
            ):
                page.add_init_script(
                    f"localStorage['graphmem.lang'] = '{language}'; localStorage['graphmem.theme'] = '{theme}'"
                )
                STATES[name](Site(page, memory, address, "", []))
                page.wait_for_timeout(REST)
                page.screenshot(path=path)
            print(f"wrote {path}")


def pictures_of_all_states(chromium: str, folder: Path, beginning: str) -> None:
    """Takes pictures of the states whose names begin so, in every look."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [name for name in STATES if name.startswith(beginning)]
    pictures_of_states(
        chromium,
        {
            folder / f"{name}-{language}-{theme}-{size[0]}.png": (name, (size, theme, language))
            for name, (size, theme, language) in product(names, LOOKS)
        },
    )


def main() -> None:
    if not (chromium := find_chromium()):
        sys.exit("there is no chromium")
    if len(sys.argv) > 1:
        folder, beginning = [*sys.argv[1:], ""][:2]
        pictures_of_all_states(chromium, Path(folder), beginning)
        return
    pictures_of_states(chromium, {DOCS / "page.png": ("search", (WIDE, "light", "en"))})
    with TemporaryDirectory() as folder:
        picture_of_the_page(chromium, Path(folder))
    if not (os.environ.get("NEO4J_URI") and (url := os.environ.get("NEO4J_BROWSER"))):
        print("NEO4J_URI and NEO4J_BROWSER name no server: docs/browser-*.png are as they were")
        return
    with TemporaryDirectory() as home:
        pictures_of_neo4j_browser(chromium, Path(home), url)


if __name__ == "__main__":
    main()
