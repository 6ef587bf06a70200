"""What happens to the bytes of examples when a class goes, changes its name, or a cut divides a batch.

Pure functions, the same for every implementation of the journal. Ordinals are int32, indices uint32, examples of one
slice lie one after the other. Nothing here knows of SQL.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from sharp_server.storage.records import Blob, Ordinals


def ordinals_of(y: bytes) -> Ordinals:
    """The ordinals of a slice."""
    return np.frombuffer(y, np.int32)


def joined(slices: Iterable[bytes]) -> Ordinals:
    """The ordinals of several slices."""
    parts = [ordinals_of(y) for y in slices]
    return np.concatenate(parts) if parts else np.zeros(0, np.int32)


def relabelled(y: bytes, old: int, new: int | None) -> tuple[int, bytes]:
    """How many examples are of a class, and all ordinals with another for it where one is given."""
    ordinals = ordinals_of(y)
    found = ordinals == old
    values = ordinals if new is None else np.where(found, np.int32(new), ordinals)
    return int(found.sum()), values.tobytes()


@dataclass(frozen=True)
class Remainder:
    """What is left of a slice or a lesson without a class."""

    gone: int
    kept: int
    y: bytes
    x: bytes
    mask: np.ndarray[tuple[int], np.dtype[np.bool_]]
    """Which of the examples stayed."""

    @property
    def bytes(self) -> int:
        """What it counts towards the learner's limit."""
        return len(self.x) + len(self.y)

    def indices(self, first: int, before: Blob | None) -> Blob:
        """Which examples of their batch stayed, given those that were there before; None: all from `first` on."""
        if before is None:
            places = np.arange(first, first + self.gone + self.kept, dtype=np.uint32)
        else:
            places = np.frombuffer(before, np.uint32)
        return places[self.mask].tobytes()


def without_class(y: bytes, x: bytes, ordinal: int) -> Remainder | None:
    """What is left without a class; None: it is not there."""
    labels = ordinals_of(y)
    mask = labels != ordinal
    gone = int(len(labels) - mask.sum())
    if not gone:
        return None
    rows = np.frombuffer(x, np.uint8).reshape(len(labels), -1)[mask].tobytes()
    return Remainder(gone, len(labels) - gone, labels[mask].tobytes(), rows, mask)


@dataclass(frozen=True)
class Half:
    """A part of a slice that a cut divides."""

    first: int
    count: int
    """Of the batch, forgotten ones included."""
    kept: int
    indices: bytes | None
    y: bytes
    x: bytes

    @property
    def bytes(self) -> int:
        """What it counts towards the learner's limit."""
        return len(self.x) + len(self.y)


def split(whole: Half, head: int) -> tuple[Half, Half]:
    """A slice in two, after its first `head` examples."""
    each = len(whole.x) // whole.kept
    if whole.indices is None:
        count, head_indices, tail_indices = head, None, None
    else:
        places = np.frombuffer(whole.indices, np.uint32)
        count = int(places[head]) - whole.first
        head_indices, tail_indices = places[:head].tobytes(), places[head:].tobytes()
    y, x = whole.y, whole.x
    return (
        Half(whole.first, count, head, head_indices, y[: head * 4], x[: head * each]),
        Half(
            whole.first + count,
            whole.count - count,
            whole.kept - head,
            tail_indices,
            y[head * 4 :],
            x[head * each :],
        ),
    )


def unused_numbers(durable: int, used: Iterable[tuple[int, int]], after: int, most: int) -> list[int]:
    """The newest `most` numbers after one that lie in no used range, in rising order; `used` comes falling."""
    found: list[int] = []
    top = durable
    for first, last in (*used, (0, after)):
        found += range(top, max(last, top - most + len(found)), -1)
        top = min(top, first - 1)
        if len(found) >= most:
            break
    return found[::-1]


def older_names(renamed: Sequence[tuple[str, str, int]], label: str) -> dict[str, int]:
    """What a class was called before, each with the newest snapshot that may hold it under that name."""
    names: dict[str, dict[str, int]] = {}
    for old, new, newest in renamed:
        names.setdefault(new, {}).update({**names.pop(old, {}), old: newest})
    return names.get(label, {})
