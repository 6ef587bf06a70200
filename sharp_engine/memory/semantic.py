"""Semantic memory: what is known of classes as a whole, as sums that no later class can disturb.

Per class the count and the mean of φ over all its examples; over all classes one pooled within-class scatter. They do
not depend (but for rounding) on the order of examples, on where episodes end or on whether a class comes back, and a
class's mean changes only by its own examples. Examples that were taught count at once in `current`; the sums themselves
wait for them until the next `folded`, because a metric is made anew only then.

It is a value: every change gives a new memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from sharp_engine.device import upload

_BLOCK = 256
"""Columns of the scatter per product: it is symmetric, so blocks below the diagonal are never computed."""


@dataclass(frozen=True)
class ClassMeans:
    """How many examples of each class there were, and their mean."""

    class_ids: tuple[int, ...]
    counts: Tensor
    """(classes,) int64, on the CPU"""
    means: Tensor
    """(classes, dimensions) float32"""

    def moved(self, phi: Tensor, class_ids: Sequence[int]) -> ClassMeans:
        """With examples φ (n, dimensions) of classes, one after the other: in whatever parts they come, the same."""
        place = {class_id: row for row, class_id in enumerate(self.class_ids)}
        counts, moved = self.counts.tolist(), dict[int, Tensor]()
        for example, class_id in zip(phi, class_ids, strict=True):
            row = place.setdefault(class_id, len(place))
            if row == len(counts):
                counts.append(1)
                moved[row] = example
                continue
            counts[row] += 1
            mean = moved[row] if row in moved else self.means[row]
            moved[row] = mean + (example - mean) / counts[row]
        means = torch.cat((self.means, phi.new_empty(len(place) - len(self.means), phi.shape[1])))
        for row, mean in moved.items():
            means[row] = mean
        return ClassMeans(tuple(place), torch.tensor(counts, dtype=torch.int64), means)


@dataclass(frozen=True)
class SemanticMemory:
    """Counts, means and scatter, and what was taught since they were last summed."""

    class_ids: tuple[int, ...]
    counts: Tensor
    """(classes,) int64, on the CPU"""
    means: Tensor
    """(classes, dimensions) float32"""
    scatter: Tensor
    """(dimensions, dimensions) float32: Σ (φ − μ)(φ − μ)ᵀ over all examples ever summed, each about its class's mean"""
    freedom: int
    """Degrees of freedom of the scatter: examples less classes, forgotten ones included."""
    taught_ids: tuple[int, ...] = ()
    """Class of every example taught since the last `folded`."""
    taught_parts: tuple[Tensor, ...] = ()
    """φ of those examples, in the parts in which they came: (n, dimensions) float32 each"""

    @property
    def taught(self) -> Tensor:
        """φ of every example taught since the last `folded`: (examples, dimensions)."""
        return torch.cat((self.means[:0], *self.taught_parts))

    @cached_property
    def current(self) -> ClassMeans:
        """Counts and means with everything that was taught."""
        summed = ClassMeans(self.class_ids, self.counts, self.means)
        return summed.moved(self.taught, self.taught_ids) if self.taught_ids else summed

    @property
    def nbytes(self) -> int:
        """Bytes of all sums; the scatter counts once per pair of dimensions."""
        dimensions = len(self.scatter)
        pairs = dimensions * (dimensions + 1) // 2
        waiting = sum(part.numel() for part in self.taught_parts)
        return 4 * (self.means.numel() + pairs + waiting) + 8 * len(self.class_ids)

    @property
    def examples(self) -> dict[int, int]:
        """How many examples of each class are known, taught ones included."""
        return dict(zip(self.current.class_ids, self.current.counts.tolist(), strict=True))

    def has_sums_of(self, other: SemanticMemory) -> bool:
        """Whether the very same sums are held, whatever was taught since."""
        return self.scatter is other.scatter and self.means is other.means

    def teach(self, phi: Tensor, class_ids: Sequence[int]) -> SemanticMemory:
        """Take some examples φ (n, dimensions) in as they are."""
        later = replace(self, taught_ids=(*self.taught_ids, *class_ids), taught_parts=(*self.taught_parts, phi))
        vars(later)["current"] = self.current.moved(phi, class_ids)  # as it would be found, from all that wait
        return later

    def folded(self) -> SemanticMemory:
        """With everything that was taught summed up."""
        if not self.taught_ids:
            return self
        ids = torch.tensor(self.taught_ids)
        return replace(self, taught_ids=(), taught_parts=()).learn([(self.taught, ids)])

    def learn(self, batches: Iterable[tuple[Tensor, Tensor]]) -> SemanticMemory:
        """Sum up examples: batches of φ (n, dimensions) and class ids (n,)."""
        sums = _Sums(self)
        for phi, ids in batches:
            sums.add(phi, ids)
        return sums.memory()

    def forget(self, class_id: int) -> SemanticMemory:
        """Drop a class's count, mean and taught examples; the pooled scatter holds no example of it."""
        kept = [row for row, known in enumerate(self.class_ids) if known != class_id]
        waiting = [row for row, known in enumerate(self.taught_ids) if known != class_id]
        left = replace(
            self,
            class_ids=tuple(self.class_ids[row] for row in kept),
            counts=self.counts[kept],
            means=self.means[kept],
            taught_ids=tuple(self.taught_ids[row] for row in waiting),
            taught_parts=(self.taught[waiting],) if waiting else (),
        )
        return left if kept else left.folded()  # something must be summed up to compare the others with

    def merge(self, source: int, target: int) -> SemanticMemory:
        """As if all examples of one class had been of another from the start; nothing may wait to be summed up."""
        assert not self.taught_ids
        if source not in self.class_ids:
            return self
        if target not in self.class_ids:
            ids = tuple(target if known == source else known for known in self.class_ids)
            return replace(self, class_ids=ids, means=self.means.clone())
        a, b = self.class_ids.index(source), self.class_ids.index(target)
        counts, means = self.counts.clone(), self.means.clone()
        n, m = int(counts[a]), int(counts[b])
        apart = (means[a].to(_double(means.device)) - means[b]).to(means.dtype)
        counts[b] = n + m
        means[b] += apart * (n / (n + m))
        scatter = self.scatter + (n * m / (n + m)) * torch.outer(apart, apart)
        kept = [row for row in range(len(counts)) if row != a]
        ids = tuple(self.class_ids[row] for row in kept)
        return replace(
            self, class_ids=ids, counts=counts[kept], means=means[kept], scatter=scatter, freedom=self.freedom + 1
        )


def empty_semantic_memory(dimensions: int, device: torch.device) -> SemanticMemory:
    """Knows nothing yet."""
    nothing = torch.zeros(0, dimensions, device=device)
    scatter = torch.zeros(dimensions, dimensions, device=device)
    return SemanticMemory((), torch.zeros(0, dtype=torch.int64), nothing, scatter, 0)


class _Sums:
    """Sums in progress: every class about a provisional centre near its mean, so that nothing cancels."""

    def __init__(self, memory: SemanticMemory) -> None:
        self._memory = memory
        self._row = {class_id: row for row, class_id in enumerate(memory.class_ids)}
        self._centre = list(memory.means.unbind(0))
        self._count = [0] * len(self._centre)
        self._shift = [torch.zeros_like(mean, dtype=_double(mean.device)) for mean in self._centre]
        self._scatter = memory.scatter.clone()

    def add(self, phi: Tensor, ids: Tensor) -> None:
        centred = torch.empty_like(phi)
        ids = ids.cpu()
        for class_id in ids.unique().tolist():
            members = upload(torch.nonzero(ids == class_id).squeeze(1), phi.device)
            own = phi[members]
            row = self._row.setdefault(class_id, len(self._row))
            if row == len(self._centre):
                self._centre.append(own.mean(0))
                self._count.append(0)
                self._shift.append(torch.zeros_like(own[0], dtype=_double(own.device)))
            about = own - self._centre[row]
            centred[members] = about
            self._count[row] += len(own)
            self._shift[row] = self._shift[row] + about.sum(0)
        _add_products(self._scatter, centred)

    def memory(self) -> SemanticMemory:
        """Sums about the centres become sums about the means: n·δδᵀ less, δ from centre to mean."""
        before = self._memory
        known = len(before.class_ids)
        counts = before.counts.tolist() + [0] * (len(self._row) - known)
        means, corrections, freedom = [], [], before.freedom
        for row, (old, new) in enumerate(zip(counts, self._count, strict=True)):
            total = old + new
            shift = (self._shift[row] / max(total, 1)).to(self._scatter.dtype)
            means.append(self._centre[row] + shift)
            corrections.append(shift * float(total) ** 0.5)
            freedom += new - (1 if old == 0 and new else 0)
            counts[row] = total
        _add_products(self._scatter, torch.stack(corrections), -1.0)
        _mirror(self._scatter)
        return replace(
            before,
            class_ids=tuple(self._row),
            counts=torch.tensor(counts, dtype=torch.int64),
            means=torch.stack(means),
            scatter=self._scatter,
            freedom=freedom,
        )


def _add_products(scatter: Tensor, rows: Tensor, factor: float = 1.0) -> None:
    """Add factor · rowsᵀ·rows to the blocks on and above the diagonal."""
    for start in range(0, len(scatter), _BLOCK):
        stop = min(start + _BLOCK, len(scatter))
        scatter[start:stop, start:].addmm_(rows[:, start:stop].T, rows[:, start:], alpha=factor)


def _mirror(scatter: Tensor) -> None:
    """Write what lies above the diagonal below it."""
    for start in range(0, len(scatter), _BLOCK):
        stop = min(start + _BLOCK, len(scatter))
        block = scatter[start:stop, start:stop]
        block.copy_(block.triu() + block.triu(1).T)
        scatter[stop:, start:stop] = scatter[start:stop, stop:].T


def _double(device: torch.device) -> torch.dtype:
    return torch.float32 if device.type == "mps" else torch.float64
