"""Labels as the user gave them (all strings or all integers) and the class ids the engine computes with.

An id is given once and never again, so that a forgotten class cannot come back under another name.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from sharp_engine.errors import LabelError, UnknownClassError

Label: TypeAlias = str | int
LabelLike: TypeAlias = Sequence[Label] | np.ndarray[Any, Any] | Tensor
LabelKind: TypeAlias = Literal["text", "integer"]

LONGEST = 1024
"""Characters of the longest label."""


def as_labels(y: LabelLike) -> list[Label]:
    """Plain strings or integers from whatever the user has; anything else raises LabelError."""
    if isinstance(y, (str, bytes)):
        raise LabelError(f"labels must be a sequence, one per example, not {y!r}")
    values: Iterable[Any] = y.tolist() if isinstance(y, (Tensor, np.ndarray)) else y
    if not isinstance(values, Iterable):
        raise LabelError(f"labels must be a sequence, one per example, not {y!r}")
    labels: list[Label] = []
    for value in values:
        label = value.item() if isinstance(value, np.generic) else value
        if isinstance(label, bool) or not isinstance(label, (str, int)):
            raise LabelError(f"a label must be a string or an integer, not {value!r}")
        if isinstance(label, str) and len(label) > LONGEST:
            raise LabelError(f"a label has {len(label)} characters, more than {LONGEST}: {label[:40]!r}…")
        if isinstance(label, int) and not -(2**63) <= label < 2**63:
            raise LabelError(f"an integer label must fit 64 bits, not {label}")
        labels.append(label)
    return labels


def kind_of(label: Label) -> LabelKind:
    """Whether a label is a string or an integer."""
    return "text" if isinstance(label, str) else "integer"


class Labels:
    """The table of labels and ids of one learner."""

    def __init__(
        self, pairs: Iterable[tuple[int, Label]] = (), next_id: int = 0, kind: LabelKind | None = None
    ) -> None:
        self._label = dict(pairs)
        self._id = {label: class_id for class_id, label in self._label.items()}
        self.next_id = next_id
        self.kind = kind

    def check(self, labels: Sequence[Label]) -> None:
        """Raise LabelError unless all are of one kind, this table's where it is settled."""
        kind = self.kind
        for label in labels:
            kind = kind or kind_of(label)
            if kind_of(label) != kind:
                raise LabelError(f"labels of this learner are of the kind {kind}, and {label!r} is not")

    def ids(self, labels: Sequence[Label]) -> Tensor:
        """(n,) int64 ids; labels never seen get new ones."""
        self.check(labels)
        for label in labels:
            if label not in self._id:
                self.kind = kind_of(label)
                self._id[label], self._label[self.next_id] = self.next_id, label
                self.next_id += 1
        return torch.tensor([self._id[label] for label in labels], dtype=torch.int64)

    def label(self, class_id: int) -> Label:
        """The label of an id."""
        return self._label[class_id]

    def find(self, label: Label) -> int:
        """The id of a label, or UnknownClassError."""
        (label,) = as_labels([label])  # True and 1.0 are no labels, though they equal one
        if label not in self._id or kind_of(label) != self.kind:
            raise UnknownClassError(f"no class {label!r} is known")
        return self._id[label]

    def rename(self, label: Label, new: Label) -> None:
        """Give a class another label, which no other class has; its id stays."""
        class_id = self.find(label)
        (new,) = as_labels([new])
        self.check([new])
        if self._id.get(new, class_id) != class_id:
            raise LabelError(f"there is a class {new!r} already: merge the two instead")
        del self._id[self._label[class_id]]
        self._id[new], self._label[class_id] = class_id, new

    def remove(self, label: Label) -> None:
        """Forget a label; its id is not used again."""
        del self._label[self._id.pop(label)]

    def keep(self, class_ids: Container[int]) -> None:
        """Forget all labels but those of some ids; without any, labels of either kind may come."""
        self._label = {class_id: label for class_id, label in self._label.items() if class_id in class_ids}
        self._id = {label: class_id for class_id, label in self._label.items()}
        if not self._label:
            self.kind = None

    def pairs(self) -> list[tuple[int, Label]]:
        """All (id, label), by id."""
        return sorted(self._label.items())
