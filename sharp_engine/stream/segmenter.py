"""Cuts a stream without boundary signals into episodes.

Two things end an episode: the mix of labels drifts (a two-sample G-test between the newest examples and the rest of the
episode so far, with a least effect), or what is seen of the same classes is novel (their mean moves, in a small fixed
random projection of the inputs). Both look only at the stream, so the cuts are the same however the stream was batched
and however far learning has come. It needs to know neither how many classes nor how many episodes will come.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from sharp_engine.config import StreamConfig

_DIMENSIONS = 16
"""Of the random projection in which novelty is measured."""

_SCAN = 4
"""The exact place of a change is sought among this many windows."""

_LEAST_OF_CLASS = 8
"""Examples of a class, before and within the window, from which its movement is measured."""


class Segmenter:
    """Watches one stream. `feed` it examples; it answers where episodes end."""

    def __init__(self, config: StreamConfig, inputs: int, seed: int) -> None:
        self._config = config
        generator = torch.Generator().manual_seed(seed)
        self._projection = torch.randn(inputs, _DIMENSIONS, generator=generator) / inputs**0.5
        self.labels = torch.zeros(0, dtype=torch.int64)
        """(n,) class ids of the episode so far."""
        self.features = torch.zeros(0, _DIMENSIONS)
        """(n, 16) projections of the episode so far."""
        self._next = self._first_look

    @property
    def _first_look(self) -> int:
        return self._config.min_examples + self._config.window

    def feed(self, x: Tensor, y: Tensor) -> list[int]:
        """Take examples x: (n, …) with class ids y; return the lengths of the episodes that are now complete."""
        values = x.float().flatten(1)
        if x.dtype == torch.uint8:
            values = values / 255.0
        self.labels = torch.cat((self.labels, y))
        self.features = torch.cat((self.features, values @ self._projection))
        return self._cuts()

    def restore(self, labels: Tensor, features: Tensor) -> None:
        """Go on from saved labels and features of an unfinished episode."""
        self.labels, self.features = labels, features
        stride = self._config.window // 2
        looks = max(0, (len(labels) - self._first_look) // stride + 1)
        self._next = self._first_look + looks * stride

    def clear(self) -> None:
        """Begin a new episode here: the caller ended this one itself."""
        self._drop(len(self.labels))

    def forget(self, class_id: int) -> None:
        """Leave out one class's examples."""
        kept = self.labels != class_id
        self.restore(self.labels[kept], self.features[kept])

    def merge(self, source: int, target: int) -> None:
        """Take examples of one class for another's from now on."""
        self.labels = torch.where(self.labels == source, target, self.labels)

    def _cuts(self) -> list[int]:
        cuts: list[int] = []
        while True:
            cut = self._look()
            if cut is None:
                return cuts
            cuts.append(cut)
            self._drop(cut)

    def _look(self) -> int | None:
        """Length of the episode if it is complete by now."""
        while (end := min(self._next, self._config.max_examples)) <= len(self.labels):
            if self._labels_drift(end):
                return self._where_labels_change(end)
            if self._inputs_are_novel(end):
                return self._where_inputs_move(end)
            if end == self._config.max_examples:
                return end
            self._next += self._config.window // 2
        return None

    def _drop(self, count: int) -> None:
        self.labels, self.features = self.labels[count:], self.features[count:]
        self._next = self._first_look

    def _counts(self, end: int) -> tuple[Tensor, Tensor]:
        """Label counts before the window and within it, over the labels that occur: (classes,) each."""
        _, dense = self.labels[:end].unique(return_inverse=True)
        classes = int(dense.max()) + 1
        split = end - self._config.window
        return dense[:split].bincount(minlength=classes).double(), dense[split:].bincount(minlength=classes).double()

    def _labels_drift(self, end: int) -> bool:
        before, within = self._counts(end)
        if len(before) < 2:
            return False
        change = 0.5 * (before / before.sum() - within / within.sum()).abs().sum()  # total variation
        if change < self._config.drift:
            return False
        freedom = (len(before) - 1) / 2.0
        chance = torch.special.gammaincc(torch.tensor(freedom, dtype=torch.float64), _g(before, within) / 2.0)
        return bool(chance < self._config.significance)

    def _where_labels_change(self, end: int) -> int:
        """The split that makes the two label mixes most unlike."""
        _, dense = self.labels[:end].unique(return_inverse=True)
        first = max(self._config.min_examples, end - _SCAN * self._config.window)
        classes = int(dense.max()) + 1
        head = dense[:first].bincount(minlength=classes).double()
        steps = F.one_hot(dense[first:], classes).double().cumsum(0)  # (candidates, classes)
        before = torch.cat((head[None], head + steps[:-1]))
        within = head + steps[-1] - before
        return first + int(_g(before, within).argmax())

    def _inputs_are_novel(self, end: int) -> bool:
        """Whether the classes' means moved further than the threshold, beyond what chance moves them."""
        split = end - self._config.window
        labels = self.labels[:end]
        moved = total = 0.0
        for class_id in labels[split:].unique():
            before = self.features[:split][labels[:split] == class_id]
            within = self.features[split:end][labels[split:] == class_id]
            if min(len(before), len(within)) < _LEAST_OF_CLASS:
                continue
            variance = before.var(0).clamp(min=1e-12)
            squared = (((before.mean(0) - within.mean(0)).square() / variance).mean()).item()
            moved += len(within) * (squared - 1.0 / len(before) - 1.0 / len(within))
            total += len(within)
        return total > 0 and moved / total > self._config.input_shift**2

    def _where_inputs_move(self, end: int) -> int:
        """The split with the largest cumulative sum of features centred per class."""
        labels, centred = self.labels[:end], self.features[:end].clone()
        for class_id in labels.unique():
            centred[labels == class_id] -= centred[labels == class_id].mean(0)
        first = max(self._config.min_examples, end - _SCAN * self._config.window)
        place = torch.arange(first, end)
        sums = centred.cumsum(0)[place - 1].square().sum(1)
        return int(place[(sums * end / (place * (end - place))).argmax()])


def _g(before: Tensor, within: Tensor) -> Tensor:
    """G statistic of two label counts: how unlikely it is that both come from one mix. (…, classes) → (…)."""
    both = before + within
    n, n_before, n_within = (t.sum(-1, keepdim=True) for t in (both, before, within))
    expected_before, expected_within = both * n_before / n, both * n_within / n
    terms = torch.xlogy(before, before / expected_before.clamp(min=1e-300)) + torch.xlogy(
        within, within / expected_within.clamp(min=1e-300)
    )
    return 2.0 * terms.nan_to_num(0.0).sum(-1)
