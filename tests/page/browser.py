"""What every page that is opened in a real browser must keep to."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

PICTURES = Path(__file__).parents[2] / "build" / "pictures"
"""Where a picture of each state is kept, to be looked at."""
WIDE, NARROW = {"width": 1360, "height": 900}, {"width": 390, "height": 844}
SECONDS = 60.0


@contextlib.contextmanager
def opened(browser: Browser, address: str, *, breaks: bool = False, **options: Any) -> Iterator[Page]:
    """A page in a tab of its own. It may ask nobody but its server, and must not fail; `breaks`: the server may."""
    context = browser.new_context(**{"viewport": WIDE, "color_scheme": "light", **options})
    context.set_default_timeout(1000 * SECONDS)
    try:
        yield watched(context.new_page(), address, breaks=breaks)
        problems = context.pages[0].problems  # type: ignore[attr-defined]
        assert not problems, problems
    finally:
        context.close()


def watched(page: Page, address: str, *, breaks: bool = False) -> Page:
    """The page at an address; what goes wrong is gathered in `problems`."""
    problems: list[str] = []
    home = urlsplit(address).netloc
    page.problems = problems  # type: ignore[attr-defined]
    page.on("pageerror", lambda error: problems.append(f"error: {error}"))
    page.on("console", lambda said: _note(problems, said.type, said.text, breaks))
    page.on("request", lambda asked: _note_request(problems, asked.url, home))
    page.goto(address)
    return page


def _note(problems: list[str], kind: str, text: str, breaks: bool) -> None:
    network = "Failed to load resource" in text or "net::ERR" in text
    if kind in ("error", "warning") and not (breaks and network):
        problems.append(f"console: {text}")


def _note_request(problems: list[str], address: str, home: str) -> None:
    parts = urlsplit(address)
    if parts.scheme in ("http", "https", "ws", "wss") and parts.netloc != home:
        problems.append(f"asked elsewhere: {address}")


def picture(page: Page, name: str, *, whole: bool = False) -> None:
    """Keep a picture of a state."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=PICTURES / f"{name}.png", full_page=whole, animations="disabled")


def check_accessible(page: Page) -> None:
    """axe-core has nothing to say."""
    found = Axe().run(page).response["violations"]
    assert not found, [(entry["id"], [node["html"][:120] for node in entry["nodes"][:3]]) for entry in found]


def draw(page: Page, points: list[tuple[float, float]]) -> None:
    """Draw on the pad; sides go from 0 to 1."""
    page.locator(".pad").scroll_into_view_if_needed()
    box = page.locator(".pad").bounding_box()
    assert box is not None
    places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in points]
    page.mouse.move(*places[0])
    page.mouse.down()
    for x, y in places:
        page.mouse.move(x, y, steps=4)
    page.mouse.up()


THREE = [(0.35, 0.25), (0.6, 0.2), (0.65, 0.35), (0.45, 0.48), (0.65, 0.6), (0.6, 0.8), (0.35, 0.8)]
ONE = [(0.5, 0.15), (0.5, 0.85)]
CROSS = [(0.2, 0.2), (0.8, 0.8), (0.5, 0.5), (0.8, 0.2), (0.2, 0.8)]
