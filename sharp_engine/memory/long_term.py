"""The network's long-term memory: a few masked representations per class, and what novelty is measured against.

An entry is a unit vector over the output units of its class's mask. Once a class has left short-term memory its units
are frozen, so its entries stay true for ever. It is a value: every change gives a new memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from sharp_engine.memory.packing import alternating


@dataclass(frozen=True)
class ClassMemory:
    """What is known of one class."""

    class_id: int
    episode: int
    """The newest episode that had this class."""
    mask: Tensor
    """(output units,) bool: the units this class's representations live on."""
    vectors: Tensor
    """(n, units of the mask) float32: representations, L2-normalised (a zero vector stays zero)."""
    reference: Tensor
    """(r,) float32: novelty ratios of examples of this class, for calibration (see `novelty.py`)."""
    closeness: float = 1.0
    """Usual similarity of this class's memories to one another, against which novelty is measured."""


@dataclass(frozen=True)
class LongTermMemory:
    """The classes known, oldest episode first."""

    classes: tuple[ClassMemory, ...] = ()

    @property
    def entries(self) -> int:
        """How many representations are held."""
        return sum(len(memory.vectors) for memory in self.classes)

    @property
    def nbytes(self) -> int:
        """Bytes of representations, masks and references."""
        parts = (t for c in self.classes for t in (c.mask, c.vectors, c.reference))
        return sum(t.numel() * t.element_size() for t in parts)

    def put(self, memories: Iterable[ClassMemory]) -> LongTermMemory:
        """Replace what is held of these classes."""
        new = {memory.class_id: memory for memory in memories}
        kept = [memory for memory in self.classes if memory.class_id not in new]
        merged = sorted((*kept, *new.values()), key=lambda memory: (memory.episode, memory.class_id))
        return replace(self, classes=tuple(merged))

    def forget(self, class_id: int) -> LongTermMemory:
        """Drop one class."""
        return replace(self, classes=tuple(c for c in self.classes if c.class_id != class_id))

    def merge(self, source: int, target: int, most: int) -> LongTermMemory:
        """Give memories of one class to another: at most so many of both, alternately.

        They are compared on the units that both classes live on, of which there must be some.
        """
        held = {memory.class_id: memory for memory in self.classes}
        if source not in held:
            return self
        given = replace(held[source], class_id=target)
        if target in held:
            given = _merged(held[target], given, most)
        return self.forget(source).put([given])


def _merged(own: ClassMemory, given: ClassMemory, most: int) -> ClassMemory:
    common = own.mask & given.mask
    # A unit vector on fewer units is the same example as those units see it.
    vectors = torch.cat([F.normalize(memory.vectors[:, common[memory.mask]], dim=1) for memory in (own, given)])
    order = alternating(len(own.vectors), len(given.vectors))[:most]
    references = alternating(len(own.reference), len(given.reference))
    references = references[: max(len(own.reference), len(given.reference))]
    return replace(
        own,
        episode=max(own.episode, given.episode),
        mask=common,
        vectors=vectors[order],
        reference=torch.cat((own.reference, given.reference))[references],
    )


def remember(class_id: int, episode: int, z: Tensor, mask: Tensor) -> ClassMemory:
    """A class's memory from its representations z: (n, output units) of the full network."""
    vectors = F.normalize(z[:, mask], dim=1)  # (n, units of the mask)
    nothing = torch.zeros(0, device=z.device)
    return ClassMemory(class_id, episode, mask.clone(), vectors, nothing)
