"""From what users have (torch tensors, numpy arrays, anything with `__array__`) to examples, or a typed error."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from sharp_engine.errors import DtypeError, InputError, NonFiniteError, ShapeError

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def as_examples(x: object, input_shape: tuple[int, ...] | None) -> Tensor:
    """A batch on the CPU, uint8 or float32: (n, *input shape); without a shape, (n, features) or (n, c, h, w)."""
    if isinstance(x, Tensor):
        batch = x.detach()
    else:
        try:
            array = np.ascontiguousarray(x)
            batch = torch.from_numpy(array if array.flags.writeable else array.copy())
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(
                f"examples must be an array or a tensor of numbers, not {type(x).__name__}: {error}"
            ) from None
    if batch.dtype not in (torch.uint8, *_FLOATS):
        raise DtypeError(f"examples must be uint8 or floating point, not {str(batch.dtype).removeprefix('torch.')}")
    shape = tuple(batch.shape[1:])
    if input_shape is None and len(shape) not in (1, 3):
        raise ShapeError(f"a batch must be (n, features) or (n, channels, height, width), not {tuple(batch.shape)}")
    if input_shape is not None and (batch.ndim == 0 or shape != input_shape):
        raise ShapeError(f"examples of this learner have shape {input_shape}, not {shape or tuple(batch.shape)}")
    if min(shape, default=1) < 1:
        raise ShapeError(f"examples have no values: shape {shape}")
    if batch.dtype == torch.uint8:
        return batch.cpu().contiguous()
    batch = batch.to("cpu", torch.float32).contiguous()
    finite = torch.isfinite(batch.flatten(1)).all(1)
    if not bool(finite.all()):
        row = int((~finite).nonzero()[0])
        bad = batch[row][~torch.isfinite(batch[row])][0]
        raise NonFiniteError(f"example {row} has the value {float(bad)}")
    return batch
