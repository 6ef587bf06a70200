"""What an example may be: its shape and size, and examples that were found to be so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sharp_server.config.model import LimitsConfig
from sharp_server.errors import RpcError

MOST_SIDES = 9
"""Of a shape that is looked at: more than any may have, so one that is cut here is refused like any other."""


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
