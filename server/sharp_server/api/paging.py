"""Lists a page at a time. A token names the list it is from and the last item that was given; nothing is remembered."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from typing import TypeVar

from sharp_server.errors import RpcError

T = TypeVar("T")
Key = str | int

_DEFAULT, _MOST = 50, 1000
_LONGEST_TOKEN = 1024


def page(
    items: Sequence[T], key: Callable[[T], Key], kind: str, size: int, token: str, descending: bool = False
) -> tuple[list[T], str]:
    """The items after a token (all are sorted by `key`), and the token of the next page."""
    wanted = min(size or _DEFAULT, _MOST)
    rest = list(items)
    if token:
        after = _read(token, kind, type(key(items[0])) if items else None)
        rest = [item for item in items if (key(item) < after if descending else key(item) > after)]  # type: ignore[operator]
    chosen = rest[:wanted]
    more = len(rest) > wanted
    return chosen, _write(kind, key(chosen[-1])) if more else ""


def _write(kind: str, last: Key) -> str:
    return base64.urlsafe_b64encode(json.dumps([kind, last]).encode()).decode()


def _read(token: str, kind: str, of_type: type | None) -> Key:
    invalid = RpcError("PAGE_TOKEN_INVALID", "the page token is not one of this list", fields=("page_token",))
    if len(token) > _LONGEST_TOKEN:
        raise invalid
    try:
        found = json.loads(base64.urlsafe_b64decode(token.encode()))
    except (ValueError, RecursionError):
        raise invalid from None
    if not isinstance(found, list) or len(found) != 2 or found[0] != kind or type(found[1]) not in (str, int):
        raise invalid
    if of_type is not None and type(found[1]) is not of_type:
        raise invalid
    last: Key = found[1]
    return last
