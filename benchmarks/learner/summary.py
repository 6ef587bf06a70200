"""Figures of several seeds put together: means, deviations and spreads of every number, wherever it is nested."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Figures = dict[str, Any]
"""What one seed came to, as plain JSON values, nested by name."""


def over_seeds(runs: Sequence[Figures], reduce: Callable[[list[float]], Any]) -> Figures:
    """Reduce every number that all runs have, under its own name; what is no number is left out.

    >>> over_seeds([{"seed": 0, "a": {"b": 1.0}}, {"seed": 1, "a": {"b": 2.0}}], sum)
    {'a': {'b': 3.0}}
    """
    reduced: Figures = {}
    for name, first in runs[0].items():
        values = [run.get(name) for run in runs]
        if isinstance(first, dict):
            nested = over_seeds([value for value in values if isinstance(value, dict)], reduce)
            if nested:
                reduced[name] = nested
        elif name != "seed" and all(type(value) in (int, float) for value in values):
            reduced[name] = float(reduce([float(value) for value in values]))  # type: ignore[arg-type] # just checked
    return reduced


def summarise(runs: Sequence[Figures]) -> Figures:
    """Over seeds: `mean`, `std` (of the population), `least`, `most`, and `spread`, the most less the least."""
    return {
        "mean": over_seeds(runs, np.mean),
        "std": over_seeds(runs, np.std),
        "least": over_seeds(runs, min),
        "most": over_seeds(runs, max),
        "spread": over_seeds(runs, lambda values: max(values) - min(values)),
    }
