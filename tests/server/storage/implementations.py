"""The implementations of `interface.Storage`: another one joins the contract tests by a line here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sharp_server.storage.interface import Storage
from sharp_server.storage.sqlite.storage import SqliteStorage

IMPLEMENTATIONS: dict[str, Callable[[Path], Storage]] = {
    "sqlite": lambda folder: SqliteStorage(folder / "journal.db"),
}
