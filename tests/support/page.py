"""The page at `/ui/`, open in a browser."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import uuid4

from graphmem import Memory

HOSTILE = (
    '<img src=x onerror="alert(1)"> <script>alert(2)</script> <b>bold</b> javascript:alert(3) &amp; https://x.test'
)
# What Chromium writes to the console about each answer with this status.
REFUSED = "Failed to load resource: the server responded with a status of {}"
WIDE, NARROW = (1440, 900), (390, 844)


def cut_off(page: Any, path: str) -> None:
    """Lets requests of a path fail from now on, and the page's question whether the service is ready."""
    for one in (path, "**/readyz"):
        page.route(one, lambda route: route.abort())


class Site(NamedTuple):
    """An open page, and the service behind it. `expected` are beginnings of console messages that may come."""

    page: Any
    memory: Memory
    address: str
    key: str
    expected: list[str]

    def enter(self, key: str = "") -> None:
        """Opens the page by the address that `graphmem serve` prints."""
        self.page.goto(f"{self.address}/ui/#key={key or self.key}")

    def add(self, text: str, **more: Any) -> str:
        """Adds a memory of Ana's, and returns its id."""
        added = self.memory.add([{"role": "user", "content": text, **more}], user_id="ana")
        return str(added["results"][0]["id"])

    def said(self, age: int, *texts: str, user_id: str = "ana") -> None:
        """Stores memories that were said so many days ago."""
        at = (datetime.now(UTC) - timedelta(days=age)).isoformat()
        records = [{"text": text, "at": at, "created_at": at, "user_id": user_id} for text in texts]
        self.memory.import_([{"type": "memory", "id": str(uuid4()), **record} for record in records])

    def row(self, text: str) -> Any:
        return self.page.locator(".row", has_text=text)

    def open(self, text: str) -> Any:
        """Opens a memory by a click, and returns its panel."""
        self.row(text).click()
        self.page.locator(".panel .words").wait_for()
        return self.page.locator(".panel")

    def focused(self) -> str:
        """The text or the label of the focused element."""
        script = "() => document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent"
        return " ".join(self.page.evaluate(script).split())

    def tab_to(self, element: Any) -> None:
        """Presses Tab until the element has the focus."""
        for _ in range(60):
            self.page.keyboard.press("Tab")
            if element.evaluate("one => one === document.activeElement"):
                return
        raise AssertionError(f"Tab never comes to {element}")
