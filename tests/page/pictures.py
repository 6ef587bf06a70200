"""The pictures of the page in docs/images: `python -m tests.page.pictures`, or `make pictures`.

A server learns digits, and the browser of the tests looks at it: in the light, in the dark, and on a phone.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Page

from devtools.browser import CHROMIUM, chromium
from sharp_cli.data import Part, load
from tests.page.browser import NARROW, THREE, draw, opened
from tests.server.running import Server

IMAGES = Path(__file__).parents[2] / "docs" / "images"
LOOKS: dict[str, dict[str, Any]] = {
    "page-light": {"color_scheme": "light", "viewport": {"width": 1280, "height": 1100}},
    "page-dark": {"color_scheme": "dark", "viewport": {"width": 1280, "height": 1100}},
    "page-phone": {"color_scheme": "light", "viewport": NARROW, "has_touch": True},
}


def main() -> int:
    """Draw them; 1 where there is no browser."""
    if CHROMIUM is None:
        sys.stderr.write("there is no browser: `make browser` installs chromium\n")
        return 1
    with tempfile.TemporaryDirectory() as folder, Server(Path(folder)).start() as server:
        httpx.post(f"http://127.0.0.1:{server.http_port}/api/learners", json={"name": "digits"}, timeout=60)
        for episode in load("digits").part(Part.TRAIN).episodes(2, 0):
            server.teach("digits", (episode.x, list(episode.y)), stream_id=f"digits-{episode.y[0]}")
        with chromium() as browser:
            for name, options in LOOKS.items():
                address = f"http://127.0.0.1:{server.http_port}/#/learners/digits"
                with opened(browser, address, **options) as page:
                    look(page)
                    page.screenshot(path=IMAGES / f"{name}.png", animations="disabled")
    return 0


def look(page: Page) -> None:
    """Wait until everything is there, and try something."""
    page.locator(".classes tbody tr").nth(9).wait_for()
    draw(page, THREE)
    page.locator(".answer").wait_for()
    page.wait_for_timeout(1000)
    page.evaluate("scrollTo(0, 0)")


if __name__ == "__main__":
    sys.exit(main())
