"""AUTOMATIC boundaries: the engine's segmenter on the server's side of a stream.

It decides from the stream alone, so what it knows can be rebuilt from the stream's open examples at any time: after a
crash, after a failed write, after a class was forgotten. Its work is torch's and never runs on the event loop.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sharp_engine import LearnerConfig, Segmenter
from sharp_server.storage.records import BatchSlice

Cut = tuple[int, str]


class StreamSegmenter:
    """Finds where the episodes of one stream end."""

    def __init__(self, config: LearnerConfig, shape: tuple[int, ...]) -> None:
        self._most = config.stream.max_examples
        self._segmenter = Segmenter(config.stream, int(np.prod(shape)), config.seed)
        self._shape = shape
        self._open = np.zeros(0, np.int32)
        """Classes of the open examples, those before thin cuts included."""
        self._thin = 0
        """Open examples before a cut at which there was nothing to learn from: they join the next episode."""

    def feed(self, x: NDArray[Any], y: NDArray[np.int32]) -> list[Cut]:
        """Take examples; returns length and cause of the episodes that are complete with them."""
        self._open = np.concatenate((self._open, y))
        with torch.inference_mode():
            values = torch.from_numpy(np.ascontiguousarray(x) if x.flags.writeable else x.copy())
            found = self._segmenter.feed(values, torch.from_numpy(y.astype(np.int64)))
        cuts: list[Cut] = []
        for length in found:
            whole = self._thin + length
            episode = self._open[:whole]
            if len(np.unique(episode)) == len(episode):  # no two of one class
                self._thin = whole
                continue
            cuts.append((whole, "size" if length == self._most else "cut"))
            self._open, self._thin = self._open[whole:], 0
        return cuts

    def rebuild(self, slices: list[BatchSlice]) -> list[Cut]:
        """Begin anew from a stream's open examples; cuts are found here only if their write was lost."""
        cuts = []
        for piece in slices:
            values = np.frombuffer(piece.x, np.uint8 if piece.dtype == "u1" else "<f4")
            cuts += self.feed(values.reshape(piece.count, *self._shape), np.frombuffer(piece.y, np.int32))
        return cuts

    def clear(self) -> None:
        """The producer ended the episode itself."""
        self._segmenter.clear()
        self._open, self._thin = np.zeros(0, np.int32), 0
