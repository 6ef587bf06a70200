"""Name and version of the software, from the installed distribution."""

from __future__ import annotations

from functools import cache
from importlib import metadata


@cache
def version() -> str:
    """The version, as in 1.4.0."""
    try:
        return metadata.version("sharp-serve")
    except metadata.PackageNotFoundError:
        return "0.0.0"
