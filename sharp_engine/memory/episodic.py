"""Episodic memory: single memories, as stable features. Chosen representatives of every class, and corrections.

Representatives are what calibration is done on, and what "nearest memories" names; a correction is an example that was
answered wrong when it was taught, kept so that it is answered right from then on. It is a value: every change gives a
new memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Representatives:
    """Single memories of one class."""

    class_id: int
    features: Tensor
    """(n, features) float16"""
    episodes: Tensor
    """(n,) int64: the episode each came in, on the CPU"""
    held_out: Tensor
    """(n,) bool: whether the network never trained on it, on the CPU"""


@dataclass(frozen=True)
class EpisodicMemory:
    """Representatives by class, and corrections, oldest first."""

    classes: tuple[Representatives, ...] = ()
    correction_ids: tuple[int, ...] = ()
    """Class of each correction."""
    correction_episodes: tuple[int, ...] = ()
    """The episode that was newest when each was taught."""
    corrections: Tensor = torch.zeros(0, 0)
    """(corrections, features) float32"""

    @property
    def nbytes(self) -> int:
        """Bytes of all single memories."""
        return 4 * self.corrections.numel() + sum(2 * c.features.numel() + 9 * len(c.features) for c in self.classes)

    @property
    def entries(self) -> int:
        """How many single memories are held."""
        return len(self.correction_ids) + sum(len(c.features) for c in self.classes)

    def represent(
        self,
        class_id: int,
        s: Tensor,
        episode: int,
        held_out: Tensor,
        known: int,
        most: int,
        generator: torch.Generator,
    ) -> EpisodicMemory:
        """Take examples s (n, features) of a class in; of `known` earlier ones and these, a fair share stays.

        Of these, the first ones stay. `held_out`: (n,) which of them the network never trains on.
        """
        arrived = Representatives(
            class_id,
            s.to(torch.float16),
            torch.full((len(s),), episode, dtype=torch.int64),
            held_out,
        )
        old = next((c for c in self.classes if c.class_id == class_id), None)
        joined = arrived
        if old is not None:
            joined = _joined(old, arrived)
            if len(joined.features) > most:
                fresh = min(len(s), max(1, round(most * len(s) / max(len(s) + known, 1))))
                kept = torch.cat(
                    (
                        torch.randperm(len(old.features), generator=generator)[: most - fresh].sort().values,
                        len(old.features) + torch.arange(fresh),
                    )
                )
                joined = _take(joined, kept)
        elif len(joined.features) > most:
            joined = _take(joined, torch.arange(most))
        others = (c for c in self.classes if c.class_id != class_id)
        return replace(self, classes=tuple(sorted((*others, joined), key=lambda c: c.class_id)))

    def thinned(self, most: int) -> EpisodicMemory:
        """With at most so many representatives of every class."""
        return replace(self, classes=tuple(_thinned(memories, most) for memories in self.classes))

    def correct(self, s: Tensor, class_ids: tuple[int, ...], episode: int, most: int) -> EpisodicMemory:
        """Keep examples s (n, features) as corrections; one for the same place with another class is dropped."""
        kept = [
            row
            for row in range(len(self.correction_ids))
            if not any(torch.equal(self.corrections[row], new) for new in s)
        ]
        corrections = torch.cat((self.corrections[kept].view(-1, s.shape[1]), s))
        ids = (*(self.correction_ids[row] for row in kept), *class_ids)
        episodes = (*(self.correction_episodes[row] for row in kept), *([episode] * len(s)))
        return replace(
            self, corrections=corrections[-most:], correction_ids=ids[-most:], correction_episodes=episodes[-most:]
        )

    def forget(self, class_id: int) -> EpisodicMemory:
        """Drop all memories of a class."""
        kept = [row for row, known in enumerate(self.correction_ids) if known != class_id]
        return EpisodicMemory(
            tuple(c for c in self.classes if c.class_id != class_id),
            tuple(self.correction_ids[row] for row in kept),
            tuple(self.correction_episodes[row] for row in kept),
            self.corrections[kept],
        )

    def merge(self, source: int, target: int, shares: tuple[int, int], most: int) -> EpisodicMemory:
        """Give memories of one class to another, whose examples are as many as `shares` says, the source's first.

        Of representatives that are too many, each class gives as its share is, evenly from its oldest to its newest.
        """
        held = {memories.class_id: memories for memories in self.classes}
        given, own = held.pop(source, None), held.pop(target, None)
        if given is not None and own is not None and len(given.features) + len(own.features) > most:
            room = round(most * shares[0] / sum(shares))
            room = min(max(room, most - len(own.features), 1), len(given.features), most - 1)
            given, own = _thinned(given, room), _thinned(own, most - room)
        if given is not None:
            own = replace(given, class_id=target) if own is None else _joined(own, given)
        if own is not None:
            held[target] = own
        return replace(
            self,
            classes=tuple(held[class_id] for class_id in sorted(held)),
            correction_ids=tuple(target if known == source else known for known in self.correction_ids),
        )


def _joined(one: Representatives, other: Representatives) -> Representatives:
    """Memories of both, as the first one's class."""
    return Representatives(
        one.class_id,
        torch.cat((one.features, other.features)),
        torch.cat((one.episodes, other.episodes)),
        torch.cat((one.held_out, other.held_out)),
    )


def _thinned(memories: Representatives, count: int) -> Representatives:
    """So many of them, or all: evenly from the first to the last."""
    held = len(memories.features)
    return memories if count >= held else _take(memories, torch.linspace(0, held - 1, count).round().long())


def _take(memories: Representatives, rows: Tensor) -> Representatives:
    return replace(
        memories,
        features=memories.features[rows.to(memories.features.device)],
        episodes=memories.episodes[rows],
        held_out=memories.held_out[rows],
    )
