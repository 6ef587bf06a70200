"""What an example may be: its shape and size, and examples that were found to be so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from sharp_engine.config import ArchitectureConfig
from sharp_server.config.model import LimitsConfig
from sharp_server.errors import RpcError

MOST_SIDES = 9
"""Of a shape that is looked at: more than any may have, so one that is cut here is refused like any other."""


_LARGEST_VALUE = 20.0
"""Of a float image, once it is normalised: no picture reaches it, unless it was scaled to 0 to 255."""


@dataclass(frozen=True, slots=True)
class InputSpec:
    """What one learner takes."""

    shape: tuple[int, ...] | None = None
    """Of one example; absent until it is fixed."""
    resize: bool = False
    """Whether image files of another size are resized, whether or not the request asks for it."""
    lowest: float = -_LARGEST_VALUE
    """Least value of a float image."""
    highest: float = _LARGEST_VALUE
    """Greatest value of a float image."""

    @classmethod
    def of(cls, config: ArchitectureConfig, shape: tuple[int, ...] | None) -> Self:
        """By the learner's settings; what its normalisation makes of values decides which of them can be meant."""
        mean, deviation = config.mean or (0.0,), _LARGEST_VALUE * max(config.std or (1.0,))
        return cls(shape, config.resize, min(mean) - deviation, max(mean) + deviation)


@dataclass(frozen=True, slots=True)
class Examples:
    """Examples that passed every check: the array is a view of `data`."""

    x: NDArray[Any]
    data: bytes

    @property
    def dtype(self) -> str:
        """As the journal writes it."""
        return "u1" if self.x.dtype == np.uint8 else "f4"


def check_shape(shape: tuple[int, ...], limits: LimitsConfig, at: str) -> None:
    """Whether an example of this shape can be taken at all."""
    if len(shape) not in (1, 3):
        raise RpcError(
            "SHAPE_MISMATCH",
            "examples are [features] or [channels, height, width]",
            fields=(at,),
            expected="[features] or [channels, height, width]",
            found=shape_text(shape),
        )
    size = 1
    for side in shape:
        size *= side
    if size > limits.example_values:
        message = f"one example has {size} numbers, more than {limits.example_values}"
        raise RpcError("FIELD_INVALID", message, fields=(at,), field=at, limit=limits.example_values)


def shape_text(shape: object) -> str:
    """A shape as people write it; a text stays as it is."""
    if isinstance(shape, str):
        return shape
    return "[" + ", ".join(map(str, list(shape)[:8])) + "]"  # type: ignore[call-overload]
