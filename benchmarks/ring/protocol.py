"""What the runner and a contestant's process say to each other, in files: a task and a stream there, an outcome back.

Both sides may run in different environments, so nothing here needs more than numpy. The stream holds no labels of test
examples: a contestant cannot look.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Inputs = NDArray[Any]
"""Images (n, channels, height, width) as bytes, or vectors (n, values) as float32."""

PROGRESS = "progress "
"""A line of a contestant's output that begins with this says which share of its work is done."""


@dataclass(frozen=True)
class Task:
    """One contestant with one seed."""

    contestant: str
    dataset: str
    seed: int
    classes: int
    sequence: tuple[tuple[int, ...], ...]
    """The classes of each episode; only for those who say that they must know them beforehand."""
    memory: int
    """Examples that those may keep who keep examples."""
    blurry: bool
    fraction: float
    """Share of the training set that the stream holds."""
    threads: int
    stream: str
    """Path of the stream."""
    outcome: str
    """Path to write the outcome to; the answers lie beside it."""
    pretrained: str = ""
    """Path of the weights of pretrained layers, for those who freeze layers; empty: there are none."""

    def write(self, path: Path) -> None:
        """As a file of JSON."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Task:
        """Of a file."""
        values = json.loads(path.read_text(encoding="utf-8"))
        return cls(**{**values, "sequence": tuple(tuple(episode) for episode in values["sequence"])})


@dataclass(frozen=True)
class Stream:
    """Examples in the order of learning, and those to answer for."""

    x: Inputs
    y: Ints
    ends: Ints
    """Where each episode ends."""
    test_x: Inputs

    def episodes(self) -> list[tuple[Inputs, Ints]]:
        """Inputs and classes, episode by episode."""
        starts = [0, *self.ends[:-1].tolist()]
        return [(self.x[a:b], self.y[a:b]) for a, b in zip(starts, self.ends.tolist(), strict=True)]

    def write(self, path: Path) -> None:
        """As one file."""
        np.savez(path, x=self.x, y=self.y, ends=self.ends, test_x=self.test_x)

    @classmethod
    def read(cls, path: Path) -> Stream:
        """Of a file."""
        with np.load(path, allow_pickle=False) as arrays:
            return cls(arrays["x"], arrays["y"], arrays["ends"], arrays["test_x"])


@dataclass(frozen=True)
class Outcome:
    """What a contestant did; its answers are in `answers`, after each episode that it was judged after."""

    contestant: str
    seed: int
    judged_after: tuple[int, ...]
    """Episodes, from 1, after which it answered."""
    learn_cpu_seconds: tuple[float, ...]
    """By call of `learn`; one for all where everything is learned at once."""
    learn_seconds: tuple[float, ...]
    answer_cpu_seconds: float
    """For all test examples once, after the last episode."""
    answered: int
    kept_bytes: int
    """Weights, statistics and memories, after the last episode."""
    raw_bytes: int
    """The part that holds examples as they came."""
    peak_bytes: int
    """Of the process, at most."""
    resumes_exactly: bool | None
    """Whether saving between two episodes and going on gave the same bits; absent where it could not be saved."""
    versions: dict[str, str]
    settings: dict[str, Any]
    """What the contestant was run with, for the reader."""

    def write(self, path: Path, answers: Ints) -> None:
        """As a file of JSON, written last, with the answers (times judged, test examples) beside it."""
        np.savez_compressed(answers_path(path), answers=answers)
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> tuple[Outcome, Ints]:
        """The outcome and the answers."""
        values = json.loads(path.read_text(encoding="utf-8"))
        lists = {name: tuple(values[name]) for name in ("judged_after", "learn_cpu_seconds", "learn_seconds")}
        with np.load(answers_path(path), allow_pickle=False) as arrays:
            return cls(**{**values, **lists}), arrays["answers"]


def answers_path(outcome: Path) -> Path:
    """Where the answers lie."""
    return outcome.with_suffix(".npz")
