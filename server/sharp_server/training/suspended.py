"""Learners whose episode is between two slices of training, kept in the trainer's memory with all that was computed.

Bounded in number and in bytes: whoever finds no room goes on from the file of its last phase, and pays for features
once more. Must never hand out a learner for anything but the very episode, on top of the very version, it was left in.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import FunctionType, ModuleType

from torch import Tensor

from sharp_engine import Learner
from sharp_server.teaching.protocol import BaseVersion
from sharp_server.training.protocol import Job


class SliceOver(Exception):  # noqa: N818 (no fault, but the way out)
    """Raised at the end of a phase, to leave the episode for another learner's turn."""

    def __init__(self, in_memory: bool) -> None:
        super().__init__("the slice is over")
        self.in_memory = in_memory


@dataclass(frozen=True)
class _Suspended:
    stem: str
    base: BaseVersion | None
    learner: Learner
    bytes: int


class SuspendedLearners:
    """At most one per learner of the service, by its uid."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._held: dict[str, _Suspended] = {}

    def keep(self, job: Job, learner: Learner) -> bool:
        """Keep a learner that stands at the end of a phase, if there is room."""
        others = [held for uid, held in self._held.items() if uid != job.uid]
        size = tensor_bytes(learner)
        if len(others) >= self._most or sum(held.bytes for held in others) + size > self._most_bytes:
            return False
        self._held[job.uid] = _Suspended(job.stem, job.base, learner, size)
        return True

    def take(self, job: Job) -> Learner | None:
        """The learner as it was left in this very episode, if it is kept; whatever else is kept of it is dropped."""
        held = self._held.pop(job.uid, None)
        return held.learner if held is not None and (held.stem, held.base) == (job.stem, job.base) else None

    def drop(self, uid: str) -> None:
        """A learner is changed or deleted: what it had begun is worth nothing any more."""
        self._held.pop(uid, None)


def tensor_bytes(root: object) -> int:
    """Bytes of all tensors that an object holds, each storage counted once."""
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in _tensors(root)}
    return sum(storages.values())


def _tensors(root: object) -> Iterator[Tensor]:
    seen: set[int] = set()
    stack = [root]
    while stack:
        item = stack.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, type | ModuleType | FunctionType):
            continue
        if isinstance(item, Tensor):
            yield item
        elif isinstance(item, dict):
            stack += item.values()
        elif isinstance(item, list | tuple | set):
            stack += item
        elif hasattr(item, "__dict__"):
            stack += vars(item).values()
        stack += [getattr(item, name) for name in getattr(type(item), "__slots__", ()) if hasattr(item, name)]
