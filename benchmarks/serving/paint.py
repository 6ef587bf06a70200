"""How soon somebody who opens the page sees something, by the browser's own clock, and how soon a change is shown.

Each load is by a browser that has never been here: nothing comes from its cache.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field
from typing import Any

from playwright.sync_api import Browser, Page

from benchmarks.errors import BenchmarkError
from benchmarks.serving.bench import LEARNER, Bench
from devtools.browser import chromium

_MILLISECONDS = 60_000
_ENTRIES = """() => {
  const paint = performance.getEntriesByName("first-contentful-paint")[0];
  const shown = performance.getEntriesByName("learner shown")[0];
  const files = performance.getEntries().filter((e) => "encodedBodySize" in e && !e.name.includes("/api/"));
  const bytes = files.reduce((sum, file) => sum + file.encodedBodySize, 0);
  return {paint: paint.startTime, shown: shown.startTime, bytes};
}"""
_WATCH = """() => {
  const changed = new MutationObserver(() => { window.changed = Date.now(); });
  changed.observe(document.querySelector(".figures"), {subtree: true, childList: true, characterData: true});
}"""


@dataclass
class Paints:
    """Loads of a learner's page in one state of the server; milliseconds."""

    name: str
    first_paint: list[float] = field(default_factory=list)
    """Until something of the page is there, since the address was entered."""
    shown: list[float] = field(default_factory=list)
    """Until the learner's figures are."""
    updates: list[float] = field(default_factory=list)
    """From the answer to a Teach until the page shows that more is known."""
    bytes: int = 0
    """Of all files of the page, as they were sent."""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "name": self.name,
            "loads": len(self.first_paint),
            "first_paint_ms": statistics.median(self.first_paint),
            "shown_ms": statistics.median(self.shown),
            "update_ms": statistics.median(self.updates),
            "update_ms_most": max(self.updates),
            "page_bytes": self.bytes,
        }


def paint(bench: Bench, result: Paints, loads: int) -> None:
    """Open the page so often."""
    with chromium() as browser:
        for _ in range(loads):
            _load(bench, browser, result)


def _load(bench: Bench, browser: Browser, result: Paints) -> None:
    context = browser.new_context()
    context.set_default_timeout(_MILLISECONDS)
    try:
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{bench.server.http_port}/#/learners/{LEARNER}")
        _wait_until(page, "performance.getEntriesByName('learner shown').length > 0")
        _wait_until(page, "performance.getEntriesByName('first-contentful-paint').length > 0")
        found = page.evaluate(_ENTRIES)
        result.first_paint.append(found["paint"])
        result.shown.append(found["shown"])
        result.bytes = found["bytes"]
        result.updates.append(_update(bench, page))
    finally:
        context.close()


def _wait_until(page: Page, expression: str) -> None:
    """Ask from outside: the page's content-security policy forbids what `wait_for_function` evaluates within."""
    end = time.monotonic() + _MILLISECONDS / 1000
    while not page.evaluate(expression):
        if time.monotonic() > end:
            raise BenchmarkError(f"the page never came to {expression!r}")
        page.wait_for_timeout(5)


def _update(bench: Bench, page: Page) -> float:
    """Teach one example, and see when the page says so."""
    page.evaluate(_WATCH)
    bench.client.learner(LEARNER).teach(bench.images.x[:1], bench.images.y[:1])
    known = 1000 * time.time()
    _wait_until(page, "window.changed !== undefined")
    return max(0.0, float(page.evaluate("window.changed")) - known)
