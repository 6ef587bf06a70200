"""The page's files: read once at the start, compressed once, and answered from memory.

There is no path from a request to the disk: what is not in the list is not there.
"""

from __future__ import annotations

import gzip
import hashlib
from importlib import resources
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from sharp_server.http.guard import Handler

_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "webmanifest": "application/manifest+json",
}
_PAGES = {"index.html": "/", "docs.html": "/docs"}


class Asset(NamedTuple):
    """One file."""

    content: bytes
    compressed: bytes
    media_type: str
    etag: str


def load_assets() -> dict[str, Asset]:
    """Every file of the page, by the path that it is answered at."""
    found = {}
    for file in resources.files("sharp_server.http").joinpath("page").iterdir():
        suffix = file.name.rpartition(".")[2]
        if suffix in _TYPES:
            content = file.read_bytes()
            etag = f'"{hashlib.sha256(content).hexdigest()[:24]}"'
            path = _PAGES.get(file.name, f"/assets/{file.name}")
            found[path] = Asset(content, gzip.compress(content, 9, mtime=0), _TYPES[suffix], etag)
    return found


def asset_routes() -> dict[str, Handler]:
    """Answers by path."""
    return {path: _answer(asset) for path, asset in load_assets().items()}


def _answer(asset: Asset) -> Handler:
    headers = {"ETag": asset.etag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}

    async def answer(request: Request) -> Response:
        if request.headers.get("if-none-match") == asset.etag:
            return Response(status_code=304, headers=headers)
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(
                asset.compressed, headers={**headers, "Content-Encoding": "gzip"}, media_type=asset.media_type
            )
        return Response(asset.content, headers=headers, media_type=asset.media_type)

    return answer
