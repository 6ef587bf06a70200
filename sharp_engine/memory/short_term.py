"""Short-term memory: packed activations h = G(x) of the newest episodes, for replay.

It never holds an input (unless the cut is 0), never exceeds its byte budget between episodes, and holds a class under
its newest episode only. It is a value: every change gives a new memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sharp_engine.device import upload
from sharp_engine.memory.packing import Packed, unpack


@dataclass(frozen=True)
class StoredClass:
    """What is kept of one class, best examples first."""

    class_id: int
    episode: int
    packed: Packed


@dataclass(frozen=True)
class ShortTermMemory:
    """The classes held, oldest episode first."""

    shape: tuple[int, ...]
    """Shape of one activation h."""
    capacity: int
    """Most activations between two episodes; each takes a byte per value."""
    classes: tuple[StoredClass, ...] = ()

    @property
    def budget(self) -> int:
        """Bytes that the values may take between two episodes."""
        return self.capacity * math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes that the values take."""
        return sum(stored.packed.nbytes for stored in self.classes)

    @property
    def overhead(self) -> int:
        """Bytes of the scales."""
        return sum(stored.packed.overhead for stored in self.classes)

    @property
    def examples(self) -> int:
        """How many activations are held."""
        return sum(len(stored.packed) for stored in self.classes)

    def admit(self, arrivals: Sequence[StoredClass]) -> ShortTermMemory:
        """Add an episode's classes, which have the whole budget to themselves until `purge`; each keeps
        at least one example, so that long-term memory can be written. A class that comes back
        loses its older entry.
        """
        new = {stored.class_id for stored in arrivals}
        fitted = _fit(arrivals, self.capacity, least=1)
        return replace(self, classes=tuple(s for s in self.classes if s.class_id not in new) + fitted)

    def purge(self, episode: int, m: int) -> ShortTermMemory:
        """Keep the newest m episodes up to `episode`, within the budget."""
        recent = [stored for stored in self.classes if stored.episode > episode - m]
        return replace(self, classes=_fit(recent, self.capacity, least=0))

    def forget(self, class_id: int) -> ShortTermMemory:
        """Drop one class."""
        return replace(self, classes=tuple(s for s in self.classes if s.class_id != class_id))

    def merge(self, source: int, target: int) -> ShortTermMemory:
        """Give activations of one class to another, under the newer of their episodes; it takes no more room."""
        held = {stored.class_id: stored for stored in self.classes}
        if source not in held:
            return self
        given = replace(held.pop(source), class_id=target)
        if target in held:
            own = held[target]
            newest = max(given.episode, own.episode)
            given = replace(given, episode=newest, packed=own.packed.alternate(given.packed))
        held[target] = given
        return replace(self, classes=tuple(sorted(held.values(), key=lambda stored: stored.episode)))

    def activations(self, stored: StoredClass) -> Tensor:
        """h of one class's examples, on the CPU: (n, *shape)."""
        return unpack(stored.packed, self.shape)


class Replay:
    """Short-term memory unpacked for one episode: draws class-balanced batches."""

    def __init__(self, memory: ShortTermMemory, device: torch.device) -> None:
        counts = torch.tensor([len(stored.packed) for stored in memory.classes])
        self.h = upload(torch.cat([memory.activations(stored) for stored in memory.classes]), device)  # (N, *shape)
        ids = torch.tensor([stored.class_id for stored in memory.classes])
        self.y = upload(ids.repeat_interleave(counts), device)  # (N,)
        self._counts = counts
        self._starts = counts.cumsum(0) - counts

    def draw(self, n: int, generator: torch.Generator) -> Tensor:
        """Indices of n activations: every class equally often (but for a remainder), its examples at random."""
        order = torch.randperm(len(self._counts), generator=generator)
        classes = order[torch.arange(n) % len(order)]  # (n,)
        within = (torch.rand(n, generator=generator) * self._counts[classes]).long()
        return self._starts[classes] + torch.minimum(within, self._counts[classes] - 1)


def _fit(classes: Sequence[StoredClass], capacity: int, least: int) -> tuple[StoredClass, ...]:
    """Cut each class to its share: in turns each takes one more example, until all have theirs or the room is taken.

    So every class has its first before any has its second; `least` examples are kept even beyond the capacity.
    """
    taken = [min(least, len(stored.packed)) for stored in classes]
    room = capacity - sum(taken)
    # The newest come first: they have the most still to be learned.
    wanting = sorted(range(len(classes)), key=lambda i: -classes[i].episode)
    while room > 0 and wanting:
        wanting = [i for i in wanting if taken[i] < len(classes[i].packed)]
        for i in wanting[:room]:
            taken[i] += 1
        room -= len(wanting[:room])
    kept = ((stored, n) for stored, n in zip(classes, taken, strict=True) if n)
    return tuple(replace(stored, packed=stored.packed.take(torch.arange(n))) for stored, n in kept)
