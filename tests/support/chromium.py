"""Pages in a headless Chromium, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from support.waiting import TIMEOUT

FLAGS = """--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync""".split()


def find_chromium() -> str | None:
    """Returns the path of an installed Chromium or Chrome."""
    return shutil.which("chromium") or shutil.which("google-chrome")


@contextmanager
def open_page(chromium: str, width: int, height: int, url: str = "", zone: str | None = None) -> Iterator[Any]:
    """Opens a page in a new browser, in the time zone `zone` or the machine's.

    Requests to machines other than this one and that of `url` are aborted.
    """
    from playwright.sync_api import sync_playwright

    def stay_here(route: Any) -> None:
        target = urlsplit(route.request.url)
        is_local = target.scheme in {"file", "data", "blob"} or target.hostname in {urlsplit(url).hostname, "localhost"}
        route.continue_() if is_local else route.abort()

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport={"width": width, "height": height}, timezone_id=zone)
        page.set_default_timeout(TIMEOUT * 1000)
        page.route("**/*", stay_here)
        yield page
        browser.close()
