"""The documentation site as Zensical builds it: what its strict build does not check."""

from __future__ import annotations

import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from support.chromium import find_chromium, open_page
from support.documentation import ROOT

pytestmark = pytest.mark.thorough  # building it takes seconds, and reads every docstring

# How many pixels of each table of the page are outside the part that is seen.
CUT = """() => [...document.querySelectorAll("article table")].map((table) => {
  const seen = table.closest(".md-typeset__scrollwrap");
  return seen.scrollWidth - seen.clientWidth;
})"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The pages of the site, built in a folder of its own."""
    program = Path(sys.executable).with_name("zensical")
    if not program.exists():
        pytest.skip("Zensical is not installed")
    folder = tmp_path_factory.mktemp("documentation")
    shutil.copy(ROOT / "zensical.toml", folder)
    for name in ("docs", "graphmem"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    build = subprocess.run([program, "build", "--strict"], cwd=folder, capture_output=True, text=True, check=False)
    assert build.returncode == 0, build.stdout + build.stderr
    found = sorted((folder / "site").rglob("index.html"))
    assert len(found) > 50
    return found


class Links(HTMLParser):
    """Collects the links and buttons of a page that have no name: neither a text, nor a label, nor a title."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.nameless: list[str] = []
        self.count = 0
        self._open: list[tuple[str, bool]] = []
        self.feed(page.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "img" and self._open:
            self._name(bool(values.get("alt")))
        if tag == "button" or (tag == "a" and "href" in values):
            self.count += 1
            self._open.append((str(values), any(values.get(name) for name in ("aria-label", "title"))))

    def handle_data(self, data: str) -> None:
        if self._open:
            self._name(bool(data.strip()))

    def handle_endtag(self, tag: str) -> None:
        if tag in {"a", "button"} and self._open:
            written, has_name = self._open.pop()
            if not has_name:
                self.nameless.append(written)

    def _name(self, has_name: bool) -> None:  # noqa: FBT001
        written, named = self._open[-1]
        self._open[-1] = written, named or has_name


def test_every_link_has_a_name(pages: list[Path]) -> None:
    for page in pages:
        links = Links(page)
        assert links.count > 10
        assert links.nameless == [], page


def test_the_home_page_leads_to_the_page_of_the_service(pages: list[Path]) -> None:
    (home,) = (page for page in pages if page.parent.name == "site")
    article = home.read_text("utf-8").partition("<article")[2]
    assert "/ui/" in article
    assert 'href="how-to/service/"' in article.replace('href="./', 'href="')


@pytest.fixture(scope="module")
def chromium() -> str:
    if not (found := find_chromium()):
        pytest.skip("there is no chromium")
    return found


@pytest.mark.server
def test_no_table_is_cut_at_the_width_of_a_desktop(pages: list[Path], chromium: str) -> None:
    measured = 0
    with open_page(chromium, 1440, 900) as tab:
        for page in pages:
            tab.goto(page.as_uri())
            pixels = tab.evaluate(CUT)
            measured += len(pixels)
            assert all(one <= 0 for one in pixels), (page, pixels)
    assert measured > 50


@pytest.mark.server
def test_a_page_is_dark_where_the_browser_asks_for_it_and_can_be_switched(pages: list[Path], chromium: str) -> None:
    def brightness() -> int:
        colour: str = tab.evaluate("() => getComputedStyle(document.body).backgroundColor")
        return sum(int(part) for part in colour.strip("rgba()").split(",")[:3])

    with open_page(chromium, 1440, 900) as tab:
        for scheme, is_dark in (("dark", True), ("light", False)):
            tab.emulate_media(color_scheme=scheme)
            tab.goto(pages[0].as_uri())
            assert (brightness() < 200) is is_dark
            tab.get_by_title("Switch to").locator("visible=true").click()
            tab.wait_for_function(
                "dark => document.body.dataset.mdColorScheme === (dark ? 'default' : 'slate')", arg=is_dark
            )
            tab.evaluate("() => localStorage.clear()")
