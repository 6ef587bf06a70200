"""What reading data came upon: items that can't be used, and what was left out on purpose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

NAMED = 8
"""Names in one line; the rest is a number."""


@dataclass(frozen=True)
class BadItem:
    """A file or a row that can't be used."""

    place: str
    """Where it is: a path, or a file and a line."""
    problem: str
    """What is wrong with it."""

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}"


@dataclass
class Findings:
    """Collected while data are read."""

    bad: list[BadItem] = field(default_factory=list)
    passed_over: list[str] = field(default_factory=list)
    """A line each, for people."""

    def refuse_unless(self, skip_bad: bool) -> None:
        """Raise what is bad, unless it may be skipped."""
        if self.bad and not skip_bad:
            raise BadDataError(self.bad)


class BadDataError(ValueError):
    """Some of the data can't be used, and nobody said to go on without it."""

    def __init__(self, bad: Sequence[BadItem]) -> None:
        count = "1 item" if len(bad) == 1 else f"{len(bad):,} items"
        named = some([str(item) for item in bad], "; ")
        super().__init__(f"{count} can't be used: {named} (--skip-bad goes on without)")
        self.bad = tuple(bad)


def some(names: Sequence[str], separator: str = ", ") -> str:
    """Write the first names, and how many more there are.

    >>> some(["a", "b"])
    'a, b'
    """
    rest = len(names) - NAMED
    return separator.join(names[:NAMED]) + (f"{separator}and {rest:,} more" if rest > 0 else "")
