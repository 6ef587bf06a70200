"""What can go wrong with a benchmark that the caller can fix.

BenchmarkError
├── OptionError    an option that cannot be: the message names the offending value
├── DataError      examples that are not where they were looked for, or not as they should be
└── BudgetError    a learner that took more memory than it was given: a defect of the engine
"""

from __future__ import annotations


class BenchmarkError(Exception):
    """Base of all errors of this package."""


class OptionError(BenchmarkError):
    """An option has a value that cannot be."""


class DataError(BenchmarkError):
    """Examples are missing or not as they should be."""


class BudgetError(BenchmarkError):
    """A learner took more memory than it was given."""


def require(holds: bool, name: str, value: object, wanted: str) -> None:
    """Raise OptionError naming the offending value unless `holds`.

    >>> require(1 > 2, "fraction", -0.5, "in (0, 1]")
    Traceback (most recent call last):
    benchmarks.errors.OptionError: fraction must be in (0, 1], not -0.5
    """
    if not holds:
        raise OptionError(f"{name} must be {wanted}, not {value!r}")
