"""Short-term memory: packed activations h = G(x) of the newest episodes, for replay.

It never holds an input (unless the cut is 0), never exceeds its byte budget between episodes, and holds a class under
its newest episode only. It is a value: every change gives a new memory.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from sharp_engine.config import StmShare
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
    """Byte budget in activations of one byte per value."""
    share: StmShare = "even"
    classes: tuple[StoredClass, ...] = ()

    @property
    def budget(self) -> int:
        """Bytes that the values may take between two episodes."""
        size = 1
        for side in self.shape:
            size *= side
        return self.capacity * size

    @property
    def nbytes(self) -> int:
        """Bytes that the values take."""
        return sum(stored.packed.nbytes for stored in self.classes)

    @property
    def overhead(self) -> int:
        """Bytes of scales and offsets."""
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
        fitted = _fit(arrivals, self.budget, "even", least=1)
        return replace(self, classes=tuple(s for s in self.classes if s.class_id not in new) + fitted)

    def purge(self, episode: int, m: int) -> ShortTermMemory:
        """Keep the newest m episodes up to `episode`, within the budget; fading shares keep older ones too, thinly."""
        older = self.share == "fading" and m > 0  # m = 0 means no replay
        recent = [stored for stored in self.classes if stored.episode > episode - m or older]
        return replace(self, classes=_fit(recent, self.budget, self.share, least=0))

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
        self.h = torch.cat([memory.activations(stored) for stored in memory.classes]).to(device)  # (N, *shape)
        ids = torch.tensor([stored.class_id for stored in memory.classes])
        self.y = ids.repeat_interleave(counts).to(device)  # (N,)
        self._counts = counts
        self._starts = counts.cumsum(0) - counts

    def draw(self, n: int, generator: torch.Generator) -> Tensor:
        """Indices of n activations: every class equally often (but for a remainder), its examples at random."""
        order = torch.randperm(len(self._counts), generator=generator)
        classes = order[torch.arange(n) % len(order)]  # (n,)
        within = (torch.rand(n, generator=generator) * self._counts[classes]).long()
        return self._starts[classes] + torch.minimum(within, self._counts[classes] - 1)


def select_by_herding(z: Tensor, count: int) -> Tensor:
    """Indices of `count` examples, in order, whose running mean stays closest to the mean of all.

    z: (n, units) representations of one class.
    """
    z = F.normalize(z, dim=1)
    lengths = (z * z).sum(1)
    mean = z.mean(0)
    total = torch.zeros_like(mean)
    taken = torch.zeros(len(z), dtype=torch.bool, device=z.device)
    order = []
    for step in range(1, min(count, len(z)) + 1):
        # ‖mean − (total + z)/step‖² up to a constant: 2·z·(total − step·mean) + ‖z‖²
        cost = torch.addmv(lengths, z, total - step * mean, alpha=2.0)
        best = int(cost.masked_fill(taken, torch.inf).argmin())
        taken[best] = True
        total += z[best]
        order.append(best)
    return torch.tensor(order, dtype=torch.int64)


def _fit(classes: Sequence[StoredClass], budget: int, share: StmShare, least: int) -> tuple[StoredClass, ...]:
    """Cut each class to its share of the budget: the class that is furthest below its share takes its next example.

    So every class has its first before any has its second; `least` examples are kept even beyond the budget.
    """
    newest = max((stored.episode for stored in classes), default=0)
    weight = [1.0 if share == "even" else _FADING[min(newest - s.episode, len(_FADING) - 1)] for s in classes]
    sizes = [stored.packed.sizes.tolist() for stored in classes]
    taken = [min(least, len(size)) for size in sizes]
    used = [sum(size[:n]) for size, n in zip(sizes, taken, strict=True)]
    room = budget - sum(used)
    # The newest come first among equals: they have the most still to be learned.
    queue = [(used[i] / weight[i], -classes[i].episode, i) for i in range(len(classes))]
    heapq.heapify(queue)
    while queue:
        _, age, i = heapq.heappop(queue)
        if taken[i] == len(sizes[i]) or sizes[i][taken[i]] > room:
            continue  # nothing left, or its next example does not fit: it is full
        room -= sizes[i][taken[i]]
        used[i] += sizes[i][taken[i]]
        taken[i] += 1
        heapq.heappush(queue, (used[i] / weight[i], age, i))
    kept = ((s, n) for s, n in zip(classes, taken, strict=True) if n)
    return tuple(replace(s, packed=s.packed.take(torch.arange(n))) for s, n in kept)


_FADING = (16.0, 5.0, 2.0)
"""Relative shares of a class by the age of its episode; older ones have the last."""
