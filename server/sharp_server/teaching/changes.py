"""A predictor on its way to the front, as what has changed since the last one: kilobytes for a lesson.

The sender remembers what the receiver holds, and the receiver holds just that, by number. Whatever lasts from one
predictor to the next (`LASTING`) is sent once; a large tensor of which some rows are new is sent as those rows. Values
of tensors travel beside the pickled rest, so that nobody copies them on the way.

What is read here is unpickled, and unpickling runs whatever is written there. So the front reads only what its own
child process sends, over a socket that nobody else has an end of. Snapshots, which strangers may bring, are never
pickled.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sharp_engine.prediction.lasting import LASTING
from sharp_server.prediction.summary import Summary

_LARGE = 64 << 10
"""Bytes of a tensor from which on it is worth a look which of its rows are new."""

_LEAST_KEPT = 0.5
"""… and the share of old rows from which on only the others are sent."""

_CANDIDATES = 2
"""Tensors of the last predictor that one is compared with, at most."""

_SAMPLED = 4
"""Values of a row by which it is found among others, before it is compared."""

_PROTOCOL = 5

Values = NDArray[np.uint8]
"""Bytes of a tensor."""


@dataclass(frozen=True)
class NewTensor:
    """A tensor whose values travel beside."""

    number: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    device: torch.device
    parameter: bool


@dataclass(frozen=True)
class NewRows:
    """A tensor of which only some rows are new; those travel beside, in order."""

    number: int
    of: int
    """The tensor that the other rows are from."""
    rows: bytes
    """int64: for each row which one of that tensor it is, or −1 for a new one"""
    fresh: int
    """How many are new."""


@dataclass(frozen=True)
class SameTensor:
    """A tensor with the very values of another."""

    number: int
    of: int


@dataclass(frozen=True)
class NewValue:
    """Something else that lasts."""

    number: int
    pickled: bytes


@dataclass(frozen=True)
class Changes:
    """Everything that the receiver lacks, in an order in which it can be put together."""

    new: tuple[NewTensor | NewRows | SameTensor | NewValue, ...]
    root: bytes
    """What is sent itself, pickled."""
    gone: tuple[int, ...]
    """What the sender will not refer to any more."""


@dataclass
class _Sent:
    """What the receiver holds."""

    number: int
    value: object
    """Kept, so that no other object comes to have its identity."""
    uses: list[int] = field(default_factory=list)
    """What it refers to, by identity."""


@dataclass(frozen=True)
class _SentTensor:
    number: int
    value: Tensor


class Sender:
    """Remembers what a receiver holds. Everything that is written must arrive, in order."""

    def __init__(self) -> None:
        self._held: dict[int, _Sent] = {}
        """By identity."""
        self._alike: dict[tuple[torch.dtype, torch.Size], list[_SentTensor]] = {}
        """Large tensors of the last message, by type and shape of a row."""
        self._next = 0
        self._new: list[NewTensor | NewRows | SameTensor | NewValue] = []
        self._values: list[Values] = []

    def write(self, root: object) -> tuple[Changes, list[Values]]:
        """A value as changes, and the bytes that travel beside them."""
        self._new, self._values = [], []
        body, uses = self._pickled(root)
        used, left = set[int](), list(uses)
        while left:
            identity = left.pop()
            if identity not in used:
                used.add(identity)
                left += self._held[identity].uses
        gone = [identity for identity in self._held if identity not in used]
        numbers = tuple(self._held.pop(identity).number for identity in gone)
        self._alike = {}
        for sent in self._held.values():
            if isinstance(sent.value, Tensor) and _has_large_rows(sent.value):
                self._alike.setdefault(_kind(sent.value), []).append(_SentTensor(sent.number, sent.value))
        return Changes(tuple(self._new), body, numbers), self._values

    def _pickled(self, value: object) -> tuple[bytes, list[int]]:
        buffer = io.BytesIO()
        pickler = _Pickler(buffer, self, value)
        pickler.dump(value)
        return buffer.getvalue(), pickler.uses

    def refer(self, value: object) -> int:
        """The number of something that lasts; whatever the receiver lacks of it is sent first."""
        sent = self._held.get(id(value))
        if sent is None:
            uses: list[int] = []
            new: NewTensor | NewRows | SameTensor | NewValue
            if isinstance(value, Tensor):
                new = self._tensor(value)
            else:
                body, uses = self._pickled(value)
                new = NewValue(self._number(), body)
            self._new.append(new)
            sent = self._held[id(value)] = _Sent(new.number, value, uses)
        return sent.number

    def _number(self) -> int:
        self._next += 1
        return self._next

    def _tensor(self, value: Tensor) -> NewTensor | NewRows | SameTensor:
        number = self._number()
        if _has_large_rows(value):
            for sent in self._like(value):
                rows = _old_rows(value, sent.value)
                if rows is None:
                    return SameTensor(number, sent.number)
                fresh = np.flatnonzero(rows < 0)
                if len(fresh) <= (1 - _LEAST_KEPT) * len(rows):
                    if len(fresh):
                        self._values.append(_bytes_of(value[torch.from_numpy(fresh)]))
                    return NewRows(number, sent.number, rows.tobytes(), len(fresh))
        dense = value.detach()
        if not _is_dense(dense):
            dense = dense.contiguous()
        dense = dense.cpu()
        if dense.numel():
            self._values.append(_bytes_of(dense))
        shape, stride = tuple(dense.shape), tuple(dense.stride())
        return NewTensor(number, value.dtype, shape, stride, value.device, isinstance(value, nn.Parameter))

    def _like(self, value: Tensor) -> list[_SentTensor]:
        """What the receiver holds that may have the same rows."""
        alike = self._alike.get(_kind(value), [])
        return sorted(alike, key=lambda sent: abs(len(sent.value) - len(value)))[:_CANDIDATES]


class _Pickler(pickle.Pickler):
    """Leaves out what lasts."""

    def __init__(self, buffer: io.BytesIO, sender: Sender, root: object) -> None:
        super().__init__(buffer, protocol=_PROTOCOL)
        self._sender, self._root = sender, root
        self.uses: list[int] = []

    def persistent_id(self, value: object) -> int | None:
        if not isinstance(value, _LASTING) or value is self._root:
            return None
        number = self._sender.refer(value)
        self.uses.append(id(value))
        return number


class Receiver:
    """Holds what was received and may be referred to."""

    def __init__(self) -> None:
        self._held: dict[int, object] = {}

    def room_for(self, changes: Changes) -> list[Tensor]:
        """Memory for the bytes that travel beside, to be filled before `read`."""
        room = []
        for new in changes.new:
            if isinstance(new, NewTensor) and 0 not in new.shape:
                room.append(torch.empty_strided(new.shape, new.stride, dtype=new.dtype))
            elif isinstance(new, NewRows) and new.fresh:
                old = self._tensor(new.of)
                room.append(torch.empty(new.fresh, *old.shape[1:], dtype=old.dtype))
        return room

    def read(self, changes: Changes, filled: Sequence[Tensor]) -> Any:
        """What was written."""
        values = iter(filled)
        for new in changes.new:
            self._held[new.number] = self._value(new, values)
        root = self._unpickled(changes.root)
        for number in changes.gone:
            del self._held[number]
        return root

    def _value(self, new: NewTensor | NewRows | SameTensor | NewValue, values: Any) -> object:
        if isinstance(new, NewValue):
            return self._unpickled(new.pickled)
        if isinstance(new, SameTensor):
            return self._held[new.of]
        if isinstance(new, NewTensor):
            empty = 0 in new.shape
            tensor = torch.empty_strided(new.shape, new.stride, dtype=new.dtype) if empty else next(values)
            tensor = tensor.to(new.device)
            return nn.Parameter(tensor, requires_grad=False) if new.parameter else tensor
        old, rows = self._tensor(new.of), torch.frombuffer(bytearray(new.rows), dtype=torch.int64)
        joined = old.index_select(0, rows.clamp(min=0))
        if new.fresh:
            joined.index_copy_(0, torch.nonzero(rows < 0).squeeze(1), next(values))
        return joined

    def _tensor(self, number: int) -> Tensor:
        found = self._held[number]
        assert isinstance(found, Tensor)
        return found

    def _unpickled(self, body: bytes) -> Any:
        unpickler = _Unpickler(io.BytesIO(body))
        unpickler.held = self._held
        return unpickler.load()


class _Unpickler(pickle.Unpickler):
    """Puts in what lasts."""

    held: dict[int, object]

    def persistent_load(self, number: int) -> object:
        return self.held[number]


_LASTING = (*LASTING, Summary)


def memory_of(tensor: Tensor) -> memoryview:
    """The bytes of a tensor without gaps, to be read or written in place."""
    return memoryview(_bytes_of(tensor).data)


def _bytes_of(tensor: Tensor) -> Values:
    flat = tensor.detach().as_strided((tensor.numel(),), (1,))
    found: Values = flat.view(torch.uint8).numpy()
    return found


def _is_dense(tensor: Tensor) -> bool:
    """Whether its values lie in memory without gaps, in whatever order."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


def _kind(tensor: Tensor) -> tuple[torch.dtype, torch.Size]:
    return tensor.dtype, tensor.shape[1:]


def _has_large_rows(tensor: Tensor) -> bool:
    large = tensor.ndim >= 2 and tensor.numel() * tensor.element_size() >= _LARGE
    return large and tensor.device.type == "cpu" and tensor.is_contiguous() and type(tensor) is Tensor


def _old_rows(new: Tensor, old: Tensor) -> NDArray[np.int64] | None:
    """For each row of one tensor which row of the other it is, −1 for none; None: they are the same, bit by bit."""
    one, other = (_rows_of(tensor) for tensor in (new, old))
    common = min(len(one), len(other))
    found = np.full(len(one), -1, dtype=np.int64)
    found[:common] = np.where((one[:common] == other[:common]).all(axis=1), np.arange(common), -1)
    missing = np.flatnonzero(found < 0)
    if not len(missing):
        return None if len(one) == len(other) else found
    if len(missing) <= (1 - _LEAST_KEPT) * len(one):
        return found
    # Rows that came or went in the middle have moved all others: each is looked for by some of its values.
    places = np.linspace(0, one.shape[1] - 1, _SAMPLED).astype(int)
    known = {sample.tobytes(): row for row, sample in enumerate(other[:, places])}
    likely = np.array([known.get(sample.tobytes(), -1) for sample in one[:, places]], dtype=np.int64)
    at = np.flatnonzero(likely >= 0)
    same = (one[at] == other[likely[at]]).all(axis=1)
    found[at[same]] = likely[at[same]]
    return found


def _rows_of(tensor: Tensor) -> NDArray[Any]:
    """The bits of its rows, in as few numbers as they fit in: (rows, numbers)."""
    flat = _bytes_of(tensor).reshape(len(tensor), -1)
    width = next(width for width in (8, 4, 2, 1) if flat.shape[1] % width == 0)
    return flat.view(f"u{width}")
