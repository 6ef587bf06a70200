"""A learner that knows a class by the mean of its examples."""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sharp.v1 import episode_pb2, label_pb2, learner_pb2, learning_pb2, parked_pb2, snapshot_pb2, statistics_pb2

from .._labels import Label, encode_label, encode_labels
from .._reasons import LearnerExistsError, NothingLearnedError, SnapshotMalformedError
from ._lessons import Lesson, Taught
from ._refusals import refuse

Array = np.ndarray[Any, np.dtype[Any]]
KEPT = 5
"""Automatic snapshots that are kept, as by a server of default settings."""

PHASES = 2
"""Phases of an episode that the fake pretends to train a network on."""

UNITS = 96
"""Units of the one layer that the fake pretends to have; each episode takes a twelfth of them."""


@dataclass
class KnownClass:
    """What is known of one class."""

    mean: list[float]
    count: int
    episode: int


@dataclass
class Episode:
    """Examples that wait to be learned."""

    x: list[Array]
    y: list[Label]
    stream_id: str
    first_sequence: int
    number: int = 0


@dataclass
class FakeStream:
    """What the server keeps of a learn stream."""

    boundaries: learning_pb2.Boundaries.ValueType
    last_sequence: int = 0
    open: Episode | None = None
    history: list[episode_pb2.EpisodeEvent] = field(default_factory=list)
    empty_marks: list[int] = field(default_factory=list)
    owner: object = None


def _add(classes: dict[Label, KnownClass], x: Array, y: list[Label], episode: int) -> None:
    """Move the means of classes by labelled examples."""
    rows = x.reshape(len(y), -1)
    for label in dict.fromkeys(y):
        own = rows[[one == label for one in y]]
        known = classes.get(label, KnownClass([0.0] * rows.shape[1], 0, 0))
        total = known.count + len(own)
        mean = (np.array(known.mean) * known.count + own.sum(axis=0)) / total
        classes[label] = KnownClass(mean.tolist(), total, episode)


def check_agrees(learner: FakeLearner, config: learner_pb2.LearnerConfig) -> None:
    """Refuse a configuration that asks for another learner than the one that is there."""
    other = {key for key, value in config.overrides.items() if learner.config.overrides.get(key) != value}
    if other or (config.input_shape and learner.input_shape and list(config.input_shape) != learner.input_shape):
        raise refuse(LearnerExistsError, f"the learner {learner.name!r} has other settings", learner=learner.name)


class FakeLearner:
    """One learner. Episodes are learned the moment they are closed."""

    def __init__(self, name: str, config: learner_pb2.LearnerConfig) -> None:
        self.name, self.config, self.uid = name, config, uuid.uuid4().hex
        self.input_shape = list(config.input_shape)
        self.label_kind: label_pb2.LabelKind.ValueType = config.label_kind
        self.classes: dict[Label, KnownClass] = {}
        self.forgotten: set[Label] = set()
        self.model_version = 0
        self.episodes_learned = 0
        self.episodes = 0
        self.streams: dict[str, FakeStream] = {}
        self.snapshots: dict[str, tuple[snapshot_pb2.Snapshot, bytes]] = {}
        self.parked: dict[int, tuple[parked_pb2.ParkedEpisode, Episode]] = {}
        self.events: list[episode_pb2.EpisodeEvent] = []
        self.created = time.time()
        self.lessons: list[Lesson] = []
        """No part of a version yet."""
        self.taught: dict[str, Taught] = {}
        """By request id."""
        self.met: set[Label] = set()
        self.examples_durable = 0

    @property
    def resize(self) -> bool:
        """Whether images of another size are resized without being asked to."""
        return self.config.overrides.get("architecture.resize") == "true"

    @property
    def untouched(self) -> bool:
        """Whether nothing ever came of it."""
        return not self.label_kind and not self.classes

    def close_episode(
        self, stream: FakeStream, last_sequence: int, closed_by: episode_pb2.ClosedBy.ValueType
    ) -> list[episode_pb2.EpisodeEvent]:
        """Close the open episode of a stream and learn it, or park it if it can't be learned."""
        episode = stream.open
        if episode is None:
            return []
        stream.open = None
        self.episodes += 1
        episode.number = self.episodes
        closed = episode_pb2.EpisodeClosed(
            closed_by=closed_by,
            first_sequence=episode.first_sequence,
            last_sequence=last_sequence,
            examples=len(episode.y),
            classes=len(set(episode.y)),
        )
        events = [episode_pb2.EpisodeEvent(episode=episode.number, closed=closed)]
        if not self.has_metric() and len(set(episode.y)) == len(episode.y):
            parked = episode_pb2.EpisodeParked(
                reason=episode_pb2.PARK_REASON_NO_POSITIVE_PAIR, detail="no two examples share a class", attempts=1
            )
            listed = parked_pb2.ParkedEpisode(
                episode=episode.number,
                stream_id=episode.stream_id,
                parked=parked,
                examples=len(episode.y),
                size_bytes=sum(x.nbytes for x in episode.x),
                classes=encode_labels(list(dict.fromkeys(episode.y))),
            )
            listed.park_time.GetCurrentTime()
            self.parked[episode.number] = (listed, episode)
            events += [self._started(episode, PHASES), episode_pb2.EpisodeEvent(episode=episode.number, parked=parked)]
        else:
            events += self.learn(episode)
        self.record(episode, events)
        return events

    def record(self, episode: Episode, events: list[episode_pb2.EpisodeEvent]) -> None:
        """Keep what happened to an episode, for watchers and for replays of its stream."""
        for event in events:
            event.time.GetCurrentTime()
        self.streams[episode.stream_id].history += events
        self.events += events

    def meet(self, labels: list[Label]) -> None:
        """Examples are durable."""
        self.met |= set(labels)
        self.examples_durable += len(labels)

    def known(self) -> dict[Label, KnownClass]:
        """Everything that answers know: the version, lessons since, and open episodes where they count."""
        classes = dict(self.classes)
        for lesson in self.lessons:
            _add(classes, lesson.x, lesson.y, self.episodes_learned)
        for episode in self._counted():
            _add(classes, np.concatenate(episode.x), episode.y, self.episodes_learned)
        return classes

    def _counted(self) -> list[Episode]:
        stable = self.has_metric() and (len(self.input_shape) == 1 or self.episodes_learned > 0)
        opened = [stream.open for stream in self.streams.values() if stream.open is not None]
        return opened if stable else []

    def examples_beyond_version(self) -> int:
        """Of lessons, and of open episodes where they count."""
        parts: list[Lesson | Episode] = [*self.lessons, *self._counted()]
        return sum(len(part.y) for part in parts)

    def forget_beyond(self, label: Label) -> int:
        """Take a class out of lessons and open episodes; returns how many examples went."""
        removed = 0
        for lesson in self.lessons:
            kept = [one != label for one in lesson.y]
            removed += len(lesson.y) - sum(kept)
            lesson.x, lesson.y = lesson.x[kept], [one for one in lesson.y if one != label]
        self.lessons = [lesson for lesson in self.lessons if lesson.y]
        for stream in self.streams.values():
            if stream.open is not None:
                kept = [one != label for one in stream.open.y]
                removed += len(kept) - sum(kept)
                left = [one for one in stream.open.y if one != label]
                stream.open.x, stream.open.y = [np.concatenate(stream.open.x)[kept]], left
                stream.open = stream.open if left else None
        self.met.discard(label)
        return removed

    def consolidate(self) -> None:
        """Make lessons part of the version."""
        for lesson in self.lessons:
            _add(self.classes, lesson.x, lesson.y, self.episodes_learned)
            self.forgotten -= set(lesson.y)
        self.lessons = []

    def learn(self, episode: Episode) -> list[episode_pb2.EpisodeEvent]:
        """Learn an episode; returns its events."""
        self.consolidate()
        new = [label for label in dict.fromkeys(episode.y) if label not in self.classes]
        self.episodes_learned += 1
        _add(self.classes, np.concatenate(episode.x), episode.y, self.episodes_learned)
        self.forgotten -= set(episode.y)
        self.model_version += 1
        self.save(snapshot_pb2.SNAPSHOT_ORIGIN_AUTOMATIC)
        phases = PHASES if self._trains(episode) else 0
        progress = episode_pb2.Progress(fraction=1.0)
        if phases:
            progress = episode_pb2.Progress(phase=phases, phases=phases, epoch=1, epochs=1, loss=0.25, fraction=0.5)
        statistics = episode_pb2.EpisodeStatistics(
            examples=len(episode.y),
            classes=encode_labels(list(dict.fromkeys(episode.y))),
            new_classes=encode_labels(new),
            phase_losses=[0.5, 0.25][:phases],
            layers=self.layers(),
            memories=self.memories(),
        )
        learned = episode_pb2.EpisodeLearned(
            model_version=self.model_version, statistics=statistics, episodes_learned=self.episodes_learned
        )
        return [
            self._started(episode, phases),
            episode_pb2.EpisodeEvent(episode=episode.number, progress=progress),
            episode_pb2.EpisodeEvent(episode=episode.number, learned=learned),
        ]

    def _started(self, episode: Episode, phases: int) -> episode_pb2.EpisodeEvent:
        started = episode_pb2.EpisodeStarted(
            attempt=1, attempts=3, phase=min(1, phases), phases=phases, examples=len(episode.y)
        )
        return episode_pb2.EpisodeEvent(episode=episode.number, started=started)

    def has_metric(self) -> bool:
        """Whether it pretends to have a learned metric, which learns any episode, as the default preset has."""
        enabled = self.config.overrides.get("metric.enabled")
        return enabled == "true" if enabled else self.config.preset in ("", "default")

    def _trains(self, episode: Episode) -> bool:
        """Whether it pretends to train a network: with a learned metric, on pairs of several classes only."""
        return not self.has_metric() or 1 < len(set(episode.y)) < len(episode.y)

    def require_classes(self) -> None:
        """Refuse to answer before anything was learned."""
        if not self.known():
            raise refuse(NothingLearnedError, f"{self.name} has learned nothing yet", learner=self.name)

    def distances(self, x: Array) -> tuple[list[Label], Array]:
        """All classes, and how far each example is from their means: 0 to 2, (n, classes)."""
        known = self.known()
        means = np.array([one.mean for one in known.values()])
        squared = ((x.reshape(len(x), 1, -1) - means[None]) ** 2).mean(axis=2)
        return list(known), 2 * squared / (1 + squared)

    # Snapshots.

    def save(self, origin: snapshot_pb2.SnapshotOrigin.ValueType, note: str = "") -> snapshot_pb2.Snapshot:
        """Keep the serving version as a file of JSON."""
        content = {
            "format": "sharp-fake",
            "model_version": self.model_version,
            "episodes_learned": self.episodes_learned,
            "input_shape": self.input_shape,
            "label_kind": self.label_kind,
            "classes": [[label, vars(known)] for label, known in self.classes.items()],
        }
        return self.store(json.dumps(content).encode(), origin, note)

    def store(
        self, data: bytes, origin: snapshot_pb2.SnapshotOrigin.ValueType, note: str = ""
    ) -> snapshot_pb2.Snapshot:
        """Keep a file."""
        content = self.read(data)
        snapshot = snapshot_pb2.Snapshot(
            id=f"{self.model_version:06d}-{uuid.uuid4().hex[:6]}",
            learner=self.name,
            model_version=content["model_version"],
            episodes_learned=content["episodes_learned"],
            classes=encode_labels([label for label, _ in content["classes"]]) if content["classes"] else None,
            origin=origin,
            size_bytes=len(data),
            sha256=hashlib.sha256(data).digest(),
            note=note,
        )
        snapshot.create_time.GetCurrentTime()
        self.snapshots[snapshot.id] = (snapshot, data)
        automatic = snapshot_pb2.SNAPSHOT_ORIGIN_AUTOMATIC
        for old in [one.id for one, _ in self.snapshots.values() if one.origin == automatic][:-KEPT]:
            del self.snapshots[old]
        return snapshot

    @staticmethod
    def read(data: bytes) -> dict[str, Any]:
        """Read the file of a snapshot."""
        try:
            content: dict[str, Any] = json.loads(data)
            if content["format"] == "sharp-fake":
                return content
        except (ValueError, KeyError, TypeError):
            pass
        raise refuse(SnapshotMalformedError, "not a snapshot", defect="format")

    def restore(self, data: bytes) -> None:
        """Load a file as the next version."""
        content = self.read(data)
        self.classes = {
            label: KnownClass(**known) for label, known in content["classes"] if label not in self.forgotten
        }
        self.input_shape, self.label_kind = content["input_shape"], content["label_kind"]
        self.episodes_learned = content["episodes_learned"]
        self.model_version += 1
        self.save(snapshot_pb2.SNAPSHOT_ORIGIN_AUTOMATIC)

    # Descriptions.

    def layers(self) -> list[statistics_pb2.LayerStatistics]:
        """Invent a layer that fills by a twelfth with each episode."""
        per_episode = UNITS // 12
        used = min(UNITS, per_episode * self.episodes_learned)
        ranks = [statistics_pb2.RankCount(rank=0, units=UNITS - used)] if used < UNITS else []
        ranks += [statistics_pb2.RankCount(rank=2 + ago, units=per_episode) for ago in range(used // per_episode)]
        return [
            statistics_pb2.LayerStatistics(
                name="hidden", units=UNITS, idle=UNITS - used, frozen=used, ranks=ranks, connections=960, density=0.1
            )
        ]

    def memories(self) -> statistics_pb2.MemoryStatistics:
        """Count the means."""
        size = 4 * sum(len(known.mean) for known in self.classes.values())
        return statistics_pb2.MemoryStatistics(
            ltm_bytes=size, ltm_entries=len(self.classes), classes=len(self.classes), stm_bytes_limit=2**20
        )

    def status(self) -> learner_pb2.LearnerStatus:
        """What it is doing: nothing, as everything is learned at once."""
        waiting = [stream.open for stream in self.streams.values() if stream.open is not None]
        status = learner_pb2.LearnerStatus(
            state=learner_pb2.LEARNER_STATE_IDLE,
            model_version=self.model_version,
            episodes_learned=self.episodes_learned,
            layers=self.layers() if self.input_shape else [],
            memories=self.memories() if self.model_version or self.known() else None,
            backlog=learner_pb2.Backlog(
                examples=sum(len(episode.y) for episode in waiting),
                bytes=sum(x.nbytes for episode in waiting for x in episode.x),
                bytes_limit=2**30,
                episodes_parked=len(self.parked),
                open_examples=sum(len(episode.y) for episode in waiting),
                uncounted_examples=0 if self._counted() else sum(len(episode.y) for episode in waiting),
                lessons=len(self.lessons),
            ),
            throughput=learner_pb2.Throughput(),
            examples_beyond_version=self.examples_beyond_version(),
            examples_known=self.examples_durable,
        )
        status.time.GetCurrentTime()
        return status

    def describe(self, *, short: bool = False) -> learner_pb2.Learner:
        """Everything about it."""
        learner = learner_pb2.Learner(
            name=self.name,
            uid=self.uid,
            config=self.config,
            input_shape=self.input_shape,
            label_kind=self.label_kind,
            status=self.status(),
            architecture="class means" if self.input_shape else "",
        )
        learner.create_time.FromNanoseconds(int(self.created * 1e9))
        if short:
            learner.status.ClearField("layers")
            return learner
        learner.settings["fake"] = "true"
        for label, known in self.known().items():
            learner.classes.add(label=encode_label(label), ltm_entries=1, last_episode=known.episode)
        return learner
