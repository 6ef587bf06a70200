"""What every version must be: the engine, called directly, with what the journal's history says, in its order.

It knows nothing of threads, crashes or half-learned episodes, and takes nothing from the server but the order of its
commits. A version is compared with it tensor by tensor, bit for bit.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors import safe_open

from reliability.simulation import plan as content
from reliability.simulation.world import Note
from sharp_engine import Learner, LearnerConfig, NothingLearnedError, SharpError
from sharp_server.learners.forgetting import forget_in

Examples = list[tuple[np.ndarray, str]]


class Oracle:
    """One learner's history, note by note."""

    def __init__(self, seed: int, name: str, config: LearnerConfig, folder: Path) -> None:
        self._seed, self._name, self._folder = seed, name, folder
        self._config = config.with_options({"device": "cpu"})
        self._learner = Learner(self._config)
        self._open: dict[str, Examples] = {}
        self._episodes: dict[int, tuple[int, Examples]] = {}
        """Number → place and examples."""
        self._lessons: dict[int, Examples] = {}
        """By place."""
        self._forgotten: list[tuple[int, str]] = []
        """The version that served when, and the label."""
        self.version = 0

    def follow(self, note: Note, snapshot: Path) -> list[str]:
        """Take up a note; gives what is wrong with the version that it records."""
        what = note.what
        if note.kind == "batch":
            given = content.batch(self._seed, self._name, what["stream"], what["sequence"])
            self._open.setdefault(what["stream"], []).extend(zip(given.x, given.labels, strict=True))
        elif note.kind == "mark":
            for number, place in what["episodes"]:
                self._episodes[number] = (place, self._open.pop(what["stream"]))
        elif note.kind == "lesson":
            given = content.lesson(self._seed, self._name, what["request_id"])
            self._lessons[what["place"]] = list(zip(given.x, given.labels, strict=True))
        elif note.kind == "forget":
            self._forget(json.loads(what["label"]))
        elif note.kind == "version":
            return self._publish(note, snapshot)
        return []

    def _publish(self, note: Note, snapshot: Path) -> list[str]:
        what, cause = note.what, note.what["cause"]
        if what["version"] != self.version + 1:
            return [f"{self._name}: version {what['version']} came after {self.version}"]
        self.version += 1
        if cause == "learned":
            self._learn(what["episode"])
        elif cause == "taught":
            self._take_in(what["lessons"])
        elif cause == "forgotten":
            label = json.loads(what["forget"])
            forget_in(self._learner, [label])
            self._forget(label)
        elif cause in ("restored", "undone"):
            self._restore(what["holds"], snapshot)
        else:
            return [f"{self._name}: version {self.version} came by {cause}"]
        ours = self._file(self.version)
        self._learner.save(ours, pending=False)
        return [f"{self._name}: version {self.version} ({cause}): {text}" for text in differences(ours, snapshot)]

    def _file(self, version: int) -> Path:
        return self._folder / f"oracle-{self._name}-{version}.safetensors"

    def _learn(self, episode: int) -> None:
        place, examples = self._episodes.pop(episode)
        self._take_in(place)
        self._learner.learn_episode(np.stack([x for x, _ in examples]), [label for _, label in examples])

    def _take_in(self, until: int) -> None:
        for place in sorted(place for place in self._lessons if place <= until):
            examples = self._lessons.pop(place)
            try:
                self._learner.teach(np.stack([x for x, _ in examples]), [label for _, label in examples])
            except SharpError:  # the server leaves it out too
                continue

    def _forget(self, label: str) -> None:
        """Out of everything that is no part of a version yet."""
        self._forgotten.append((self.version, label))
        self._open = {stream: _without(examples, label) for stream, examples in self._open.items()}
        self._lessons = {place: _without(examples, label) for place, examples in self._lessons.items()}
        self._lessons = {place: examples for place, examples in self._lessons.items() if examples}
        episodes = {number: (place, _without(left, label)) for number, (place, left) in self._episodes.items()}
        self._episodes = {number: (place, left) for number, (place, left) in episodes.items() if left}

    def _restore(self, holds: int | None, snapshot: Path) -> None:
        """As a version was, without what was forgotten since; which one the journal says only where it was undone."""
        for version in range(self.version - 1, 0, -1) if holds is None else (holds,):
            learner = Learner.load(self._file(version), device="cpu")
            forget_in(learner, [label for when, label in self._forgotten if when >= version])
            self._learner = learner
            draft = self._folder / f"draft-{self._name}.safetensors"
            learner.save(draft, pending=False)
            if not differences(draft, snapshot):
                return

    def classes(self) -> list[str]:
        """What the newest version knows."""
        try:
            return [str(label) for label in self._learner.predictor.classes]
        except NothingLearnedError:
            return []

    @property
    def holds(self) -> set[str]:
        """Labels of what is no part of a version yet."""
        pending = [*self._open.values(), *self._lessons.values(), *(left for _, left in self._episodes.values())]
        return {label for examples in pending for _, label in examples}


def _without(examples: Examples, label: str) -> Examples:
    return [(x, y) for x, y in examples if y != label]


def differences(ours: Path, theirs: Path) -> list[str]:
    """What two snapshots do not have in common, tensor for tensor and word for word."""
    if not theirs.exists():
        return ["its file is missing"]
    with safe_open(ours, framework="np") as one, safe_open(theirs, framework="np") as other:
        names = sorted(one.keys())
        if names != sorted(other.keys()):
            return ["it does not have the same tensors"]
        words = [json.loads(file.metadata()["learner"]) for file in (one, other)]
        keys = sorted(words[0].keys() | words[1].keys())
        found = [f"its {key} differs" for key in keys if words[0].get(key) != words[1].get(key)]
        return found + [
            f"tensor {name} differs"
            for name in names
            if one.get_tensor(name).tobytes() != other.get_tensor(name).tobytes()
        ]
