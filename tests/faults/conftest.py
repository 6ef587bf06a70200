"""What the tests of faults share: servers that end with their test."""

from __future__ import annotations

from tests.server.conftest import serve

__all__ = ["serve"]
