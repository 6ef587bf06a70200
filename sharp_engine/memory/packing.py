"""How short-term memory packs activations into bytes.

Each activation is min-max quantised on its own to 2^bits levels: evenly spaced at 8 bits (the paper's supplement,
section C.2), quadratically below: finer near the least value, where most activations lie. With `sparse`, values that
quantise to zero cost one bit in a bitmap and nothing else, and channels that replay cannot use are not stored at all.
A constant activation survives the round trip exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

_FloatArray = np.ndarray[tuple[int, ...], np.dtype[np.float32]]
_ByteArray = np.ndarray[tuple[int, ...], np.dtype[np.uint8]]


@dataclass(frozen=True)
class Packed:
    """A few activations as bytes."""

    data: Tensor
    """(bytes,) uint8: the activations one after the other."""
    offsets: Tensor
    """(n + 1,) int64: where each one begins, and the end."""
    scales: Tensor
    """(n, 2) float32: least and largest value of each."""
    channels: Tensor
    """(channels,) bool: which channels are stored; the others come back as zeros."""
    bits: int
    sparse: bool

    def __len__(self) -> int:
        return len(self.scales)

    @property
    def sizes(self) -> Tensor:
        """(n,) bytes of each activation."""
        return self.offsets[1:] - self.offsets[:-1]

    @property
    def nbytes(self) -> int:
        """Bytes of the values. Scales and offsets come on top, as in the paper's account."""
        return int(self.data.numel())

    @property
    def overhead(self) -> int:
        """Bytes of what describes the values."""
        return int(sum(t.numel() * t.element_size() for t in (self.offsets, self.scales, self.channels)))

    def take(self, indices: Tensor) -> Packed:
        """Some of the activations."""
        pieces = [self.data[int(self.offsets[i]) : int(self.offsets[i + 1])] for i in indices.tolist()]
        sizes = torch.tensor([0] + [len(piece) for piece in pieces], dtype=torch.int64)
        data = torch.cat(pieces) if pieces else self.data[:0]
        return Packed(data, sizes.cumsum(0), self.scales[indices], self.channels, self.bits, self.sparse)

    def alternate(self, other: Packed) -> Packed:
        """One of these, one of the others, and so on; packed in the same way."""
        joined = Packed(
            torch.cat((self.data, other.data)),
            torch.cat((self.offsets, other.offsets[1:] + len(self.data))),
            torch.cat((self.scales, other.scales)),
            self.channels,
            self.bits,
            self.sparse,
        )
        return joined.take(torch.tensor(alternating(len(self), len(other)), dtype=torch.int64))


def alternating(first: int, second: int) -> list[int]:
    """Places of so many things and of so many that follow them, one of the first, one of the second, and so on.

    >>> alternating(3, 1)
    [0, 3, 1, 2]
    """
    places = sorted([(i, 0) for i in range(first)] + [(i, 1) for i in range(second)])
    return [i + first * which for i, which in places]


def pack(h: Tensor, bits: int, sparse: bool, useful: Tensor) -> Packed:
    """Quantise activations h: (n, channels, …). `useful`: (channels,) bool, the channels worth storing when sparse."""
    channels = useful.cpu() if sparse else torch.ones(h.shape[1], dtype=torch.bool)
    values: _FloatArray = h.detach().cpu()[:, channels].flatten(1).numpy().astype(np.float32, copy=False)  # (n, values)
    if values.shape[1] == 0:
        low = high = np.zeros(len(values), dtype=np.float32)
    else:
        low, high = values.min(1), values.max(1)  # (n,)
    if sparse:
        low = np.minimum(low, 0.0)  # so that zero is a level of its own
    levels = 2**bits - 1
    span = np.where(high > low, high - low, 1.0).astype(np.float32)
    height = (values - low[:, None]) / span[:, None]  # (n, values) in [0, 1]
    codes = np.rint((height if bits == 8 else np.sqrt(height)) * levels).astype(np.uint8)
    pieces = [_encode(row, bits, sparse) for row in codes]
    sizes = torch.tensor([0] + [len(piece) for piece in pieces], dtype=torch.int64)
    data = torch.from_numpy(np.concatenate(pieces)) if pieces else torch.zeros(0, dtype=torch.uint8)
    scales = torch.from_numpy(np.stack((low, high), axis=1))
    return Packed(data, sizes.cumsum(0), scales, channels, bits, sparse)


def unpack(packed: Packed, shape: tuple[int, ...]) -> Tensor:
    """Activations of the given shape, float32, on the CPU: (n, *shape)."""
    kept = int(packed.channels.sum())
    count = kept * int(np.prod(shape[1:], dtype=np.int64))
    data = packed.data.numpy()
    offsets = packed.offsets.tolist()
    codes = (
        np.stack(
            [_decode(data[a:b], count, packed.bits, packed.sparse) for a, b in zip(offsets, offsets[1:], strict=False)]
        )
        if len(packed)
        else np.zeros((0, count), dtype=np.uint8)
    )
    low, high = packed.scales[:, :1], packed.scales[:, 1:]  # (n, 1)
    height = torch.from_numpy(codes).float() / (2**packed.bits - 1)  # (n, values) in [0, 1]
    values = low + (high - low) * (height if packed.bits == 8 else height.square())
    h = torch.zeros(len(packed), *shape)
    h[:, packed.channels] = values.view(len(packed), kept, *shape[1:])
    return h


def is_sound(packed: Packed, values: int) -> bool:
    """Whether every activation has just the bytes that `pack` writes for so many values in its channels."""
    sizes = packed.sizes.numpy()  # (n,)
    if not packed.sparse:
        return bool((sizes == -(-values * packed.bits // 8)).all())
    bitmap = (values + 7) // 8
    if bool((sizes < bitmap).any()):
        return False
    data, starts = packed.data.numpy(), packed.offsets[:-1].tolist()
    present = [int.from_bytes(data[at : at + bitmap].tobytes()) >> (8 * bitmap - values) for at in starts]
    stored = np.array([bits.bit_count() for bits in present], dtype=np.int64)
    return bool((sizes == bitmap - (-stored * packed.bits // 8)).all())


def _encode(codes: _ByteArray, bits: int, sparse: bool) -> _ByteArray:
    if not sparse:
        return _squeeze(codes, bits)
    present = codes != 0
    return np.concatenate((np.packbits(present), _squeeze(codes[present], bits)))


def _decode(data: _ByteArray, count: int, bits: int, sparse: bool) -> _ByteArray:
    if not sparse:
        return _spread(data, count, bits)
    bitmap = (count + 7) // 8
    present = np.unpackbits(data[:bitmap], count=count).astype(bool)
    codes = np.zeros(count, dtype=np.uint8)
    codes[present] = _spread(data[bitmap:], int(present.sum()), bits)
    return codes


def _squeeze(codes: _ByteArray, bits: int) -> _ByteArray:
    """Several codes of fewer than 8 bits into each byte."""
    if bits == 8:
        return codes
    return np.packbits(np.unpackbits(codes[:, None], axis=1)[:, 8 - bits :].reshape(-1))


def _spread(data: _ByteArray, count: int, bits: int) -> _ByteArray:
    """Inverse of `_squeeze`."""
    if bits == 8:
        return data[:count]
    wide = np.zeros((count, 8), dtype=np.uint8)
    wide[:, 8 - bits :] = np.unpackbits(data, count=count * bits).reshape(count, bits)
    return np.packbits(wide, axis=1).reshape(-1)
