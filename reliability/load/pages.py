"""Browsers that open the page, follow what happens on it for a while and leave, as people do all day."""

from __future__ import annotations

import time

import httpx

from reliability.load.result import CallCounts

_FILES = ("/", "/assets/app.js", "/assets/app.css", "/api/server", "/api/learners")
_SECONDS = 60.0
"""In which an answer must begin."""
_STAY = 2.0
"""Seconds that a page is looked at."""


def visit(address: str, learner: str, calls: CallCounts) -> bool:
    """Open the page of a learner with all it loads, read its events for a while, leave; whether all was answered."""
    with httpx.Client(base_url=address, timeout=_SECONDS, verify=False) as browser:
        for path in (*_FILES, f"/api/learners/{learner}"):
            if not _get(browser, path, calls):
                return False
        return _follow(browser, f"/api/learners/{learner}/events", calls)


def _get(browser: httpx.Client, path: str, calls: CallCounts) -> bool:
    try:
        response = browser.get(path)
    except httpx.HTTPError as error:
        calls.add(f"GET {path}", type(error).__name__, str(error))
        return False
    return _count(response, path, calls)


def _follow(browser: httpx.Client, path: str, calls: CallCounts) -> bool:
    """At least until the state is there."""
    ends = time.monotonic() + _STAY
    try:
        with browser.stream("GET", path) as response:
            if response.is_error:
                response.read()
                return _count(response, path, calls)
            for line in response.iter_lines():
                if line.startswith("data:") and time.monotonic() > ends:
                    return _count(response, path, calls)
        calls.add(f"GET {path}", "ended", "the server ended the events")
    except httpx.HTTPError as error:
        calls.add(f"GET {path}", type(error).__name__, str(error))
    return False


def _count(response: httpx.Response, path: str, calls: CallCounts) -> bool:
    """One answer, by the code that gRPC would have for it where that is no failure."""
    code = {200: "OK", 429: "RESOURCE_EXHAUSTED"}.get(response.status_code, f"status {response.status_code}")
    calls.add(f"GET {path}", code, "" if code == "OK" else response.text)
    return code == "OK"
