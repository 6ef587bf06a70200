"""The paper's figures, to stand beside ours: average accuracy over all classes after all episodes, in %.

Copied from its tables 1 (full memory) and, for half and double memory, from its supplement. Never recomputed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Memory = Literal["half", "full", "double"]
MEMORIES: tuple[Memory, ...] = ("half", "full", "double")

_ORDER = ("mnist", "fashion-mnist", "emnist-letters", "cifar10", "cifar100")


@dataclass(frozen=True)
class Figure:
    """Mean and deviation over the paper's seeds, in %."""

    mean: float
    std: float


_Row = tuple[tuple[float, float], ...]

_JOINT: _Row = ((98.0, 0.0), (86.6, 1.0), (91.0, 0.3), (70.8, 0.4), (33.9, 0.8))
_SGD: _Row = ((19.8, 0.1), (16.6, 4.7), (3.9, 0.0), (16.0, 4.2), (6.6, 0.1))

_TABLES: dict[Memory, dict[str, _Row]] = {
    "full": {
        "Joint (upper bound)": _JOINT,
        "SHARP": ((88.0, 1.3), (72.5, 2.5), (55.9, 3.1), (46.3, 2.7), (23.1, 0.2)),
        "iCaRL": ((85.1, 0.5), (70.7, 0.7), (55.1, 0.6), (53.0, 0.8), (21.4, 0.5)),
        "DER": ((82.7, 2.7), (72.2, 0.4), (44.6, 4.1), (37.6, 0.9), (16.6, 0.3)),
        "ER": ((69.1, 2.7), (66.8, 1.6), (29.9, 0.9), (32.8, 1.0), (11.4, 0.1)),
        "FDR": ((76.5, 1.1), (65.0, 4.2), (32.5, 2.1), (30.1, 4.3), (8.7, 0.5)),
        "A-GEM": ((30.0, 5.5), (40.9, 1.9), (9.5, 0.3), (19.5, 0.7), (6.5, 0.2)),
        "SGD (lower bound)": _SGD,
    },
    "half": {
        "Joint (upper bound)": _JOINT,
        "SHARP": ((85.3, 0.8), (69.0, 2.5), (55.8, 1.3), (41.3, 1.0), (21.5, 1.5)),
        "iCaRL": ((73.4, 1.3), (63.7, 1.0), (55.1, 0.8), (52.6, 0.9), (19.6, 0.4)),
        "DER": ((73.2, 1.9), (64.5, 3.1), (34.5, 2.0), (32.6, 1.2), (11.4, 0.4)),
        "SGD (lower bound)": _SGD,
    },
    "double": {
        "Joint (upper bound)": _JOINT,
        "SHARP": ((91.7, 0.9), (72.8, 2.0), (61.1, 1.6), (49.3, 0.1), (23.0, 0.7)),
        "iCaRL": ((86.0, 0.5), (71.0, 0.7), (59.8, 1.2), (53.6, 1.0), (22.9, 0.6)),
        "DER": ((87.3, 1.4), (75.6, 0.5), (51.3, 2.7), (41.1, 0.9), (20.7, 0.6)),
        "SGD (lower bound)": _SGD,
    },
}

BUDGETS: dict[str, dict[Memory, int]] = {
    **{name: {"half": 26, "full": 50, "double": 100} for name in _ORDER[:3]},
    "cifar10": {"half": 200, "full": 400, "double": 800},
    "cifar100": {"half": 500, "full": 1000, "double": 2000},
}
"""Short-term memory in activations of one byte per value; the supplement's half budget of the MNIST family is 26."""

LTM_PER_CLASS = {**dict.fromkeys(_ORDER[:3], 25), "cifar10": 50, "cifar100": 50}
"""Representations per class in long-term memory, at any budget of short-term memory."""

TRAINING_EXAMPLES = {
    "mnist": 60_000,
    "fashion-mnist": 60_000,
    "emnist-letters": 124_800,
    "cifar10": 50_000,
    "cifar100": 50_000,
}
"""What the paper's figures were learned from."""


def figures(dataset: str, memory: Memory) -> dict[str, Figure]:
    """What the paper gives for a data set at a budget, by method; empty for other data.

    >>> figures("mnist", "full")["SHARP"]
    Figure(mean=88.0, std=1.3)
    """
    if dataset not in _ORDER:
        return {}
    column = _ORDER.index(dataset)
    return {method: Figure(*row[column]) for method, row in _TABLES[memory].items()}
