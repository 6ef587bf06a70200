"""One run of all speed measurements: what is learned from, in which order, with which sizes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from benchmarks import datasets
from benchmarks.datasets import Examples, synthetic
from benchmarks.errors import DataError, require
from benchmarks.paper import published, scenario
from benchmarks.reporting.machine import machine, versions
from benchmarks.reporting.runner import ReportProgress, silently
from benchmarks.speed import answers, growth, prediction, sequence, snapshots, teaching, training
from benchmarks.speed.answers import AnswerTimes
from benchmarks.speed.growth import Growth
from benchmarks.speed.prediction import PredictionTimes
from benchmarks.speed.sequence import SequenceTimes
from benchmarks.speed.teaching import TeachingTimes
from benchmarks.speed.timing import Comparison
from sharp_engine import Learner, LearnerConfig, preset

Part = Literal["sequence", "answers", "teaching", "growth", "training", "prediction", "snapshot"]
PARTS: tuple[Part, ...] = ("sequence", "answers", "teaching", "growth", "training", "prediction", "snapshot")
"""The first four are about the default learner; training and prediction about the network alone, as in the paper."""

MNIST_SHAPE, CIFAR_SHAPE = (1, 28, 28), (3, 32, 32)


@dataclass(frozen=True)
class Sizes:
    """How much of everything: figures are for the full sizes, smaller ones are for trying out."""

    mnist_per_class: int = 6000
    """Of made-up images; a real data set is taken whole, or its `fraction`."""
    vgg_per_class: int = 512
    vgg_episodes: int = 2
    settings: tuple[tuple[str, Any], ...] = ()
    """Engine settings that shorten the schedule; none at full size."""
    batches: tuple[int, ...] = (1, 64, 1024)
    memories: tuple[tuple[int, int], ...] = ((10, 25), (100, 50), (1000, 50))
    small_per_class: int = 200
    """Of the learner whose predictions and snapshots are measured: its speed does not depend on how much it saw."""
    most_epochs: int = 30
    """Of the dense classifier that learns everything at once."""
    vector_values: int = 384
    vector_classes: int = 77
    taught_classes: int = 100
    taught_examples: int = 50
    growth_episodes: int = 100
    growth_per_class: int = 100
    rounds: int = 7
    least_seconds: float = 0.2


TINY = Sizes(
    mnist_per_class=20,
    vgg_per_class=4,
    settings=(
        *(("training.phases", 1), ("training.min_steps", 0), ("training.epochs", 1)),
        *(("architecture.dictionary.atoms", 6), ("architecture.dictionary.patches", 300)),
        ("metric.random_features", 30),
    ),
    batches=(1, 8),
    memories=((12, 3),),
    small_per_class=10,
    most_epochs=2,
    vector_values=16,
    vector_classes=6,
    taught_classes=6,
    taught_examples=4,
    growth_episodes=4,
    growth_per_class=6,
    rounds=1,
    least_seconds=0.0,
)
"""To see that everything runs; no figure of it means anything."""


@dataclass(frozen=True)
class SpeedOptions:
    """What to measure."""

    parts: tuple[Part, ...] = PARTS
    data_root: Path | None = None
    """Where MNIST lies; made-up images of its size stand in where it is absent."""
    preset: Literal["paper", "sharp"] = "sharp"
    """Whose schedule the network alone is trained by."""
    fraction: float = 1.0
    """Share of MNIST to learn from."""
    validation: bool = False
    """Judge accuracies by images split off from the training set; the test set is not read."""
    device: str = "cpu"
    """Where both sides compute: a torch device."""
    sizes: Sizes = field(default_factory=Sizes)

    def __post_init__(self) -> None:
        for part in self.parts:
            require(part in PARTS, "only", part, "one of " + ", ".join(PARTS))
        require(self.preset in ("paper", "sharp"), "preset", self.preset, "paper or sharp")
        require(0.0 < self.fraction <= 1.0, "fraction", self.fraction, "in (0, 1]")

    def config(self, dataset: Literal["mnist", "cifar10"]) -> LearnerConfig:
        """The network alone: the preset with the paper's memory budget."""
        config = preset(dataset if self.preset == "paper" else "sharp")
        budget = published.BUDGETS[dataset]["full"]
        ltm = published.LTM_PER_CLASS[dataset]
        memory = {"memory.stm_capacity": budget, "memory.ltm_per_class": ltm}
        return config.with_options({**memory, **dict(self.sizes.settings), "device": self.device})

    @property
    def learner_config(self) -> LearnerConfig:
        """The default learner."""
        return preset("default").with_options({**dict(self.sizes.settings), "device": self.device})


@dataclass
class SpeedResult:
    """What was measured; a part that was not asked for is empty."""

    options: SpeedOptions
    data: str = ""
    sequence: SequenceTimes | None = None
    answers: list[AnswerTimes] = field(default_factory=list)
    teaching: list[TeachingTimes] = field(default_factory=list)
    training: list[Comparison] = field(default_factory=list)
    training_details: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    prediction: list[PredictionTimes] = field(default_factory=list)
    growth: Growth | None = None
    snapshot: list[Comparison] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "version": versions()["engine"],
            "versions": versions(),
            "machine": machine(),
            "settings": {
                "preset": self.options.preset,
                "device": self.options.device,
                "fraction": self.options.fraction,
                "validation": self.options.validation,
                "data": self.data,
                "full_sizes": self.options.sizes == Sizes(),
            },
            "sequence": None if self.sequence is None else self.sequence.to_dict(),
            "answers": [a.to_dict() for a in self.answers],
            "teaching": [t.to_dict() for t in self.teaching],
            "training": [c.to_dict() for c in self.training],
            "training_by_episode": self.training_details,
            "prediction": [p.to_dict() for p in self.prediction],
            "growth": None if self.growth is None else self.growth.to_dict(),
            "snapshot": [c.to_dict() for c in self.snapshot],
        }


def run(options: SpeedOptions, progress: ReportProgress = silently) -> SpeedResult:
    """Measure; `progress` hears what is being measured now."""
    result = SpeedResult(options)
    sizes = options.sizes
    mnist, judge, result.data = _mnist(options)
    if "sequence" in options.parts:
        progress("sequence: the default learner on MNIST")
        result.sequence = sequence.measure(
            options.learner_config, _episodes(mnist), judge, most_epochs=sizes.most_epochs
        )
    if "answers" in options.parts or "teaching" in options.parts:
        _measure_default_learners(options, mnist, result, progress)
    if "training" in options.parts:
        progress("training: the MNIST sequence")
        _, times = training.learn_in_turns(options.config("mnist"), _episodes(mnist))
        result.training += training.compare("MNIST", times, training.MNIST_TARGET)
        result.training_details["mnist"] = training.details(times)
        progress("training: vgg-small")
        cifar = synthetic.images(2 * sizes.vgg_episodes, sizes.vgg_per_class, CIFAR_SHAPE)
        # Small episodes would get more epochs from the preset; the cost of a step is the same, so one is enough.
        config = options.config("cifar10").with_options({"training.min_steps": 0, "training.epochs": 1})
        _, times = training.learn_in_turns(config, _episodes(cifar))
        result.training += training.compare("vgg-small", times, None, epoch_target=training.VGG_TARGET)
        result.training_details["vgg-small"] = training.details(times)
    if "prediction" in options.parts or "snapshot" in options.parts:
        progress("a learner to predict with and to save")
        small = _small_learner(options.config("mnist"), _first_of_each(mnist, sizes.small_per_class))
    if "prediction" in options.parts:
        steps = prediction.measure(
            small, mnist, sizes.batches, sizes.memories, rounds=sizes.rounds, least_seconds=sizes.least_seconds
        )
        for times_of_size in steps:
            progress(f"prediction: {times_of_size.kind}, {times_of_size.full.name}")
            result.prediction.append(times_of_size)
    if "snapshot" in options.parts:
        progress("snapshot: save and load")
        images = synthetic.images(2, sizes.vgg_per_class, CIFAR_SHAPE)
        short = {"training.phases": 1, "training.epochs": 1, "training.min_steps": 0}
        vgg = _small_learner(options.config("cifar10").with_options(short), images)
        result.snapshot += snapshots.measure("MNIST learner", small, rounds=sizes.rounds)
        result.snapshot += snapshots.measure("vgg-small learner", vgg, rounds=sizes.rounds)
    if "growth" in options.parts:
        result.growth = growth.measure(
            options.learner_config,
            sizes.growth_episodes,
            sizes.growth_per_class,
            lambda n: progress(f"growth: episode {n} of {sizes.growth_episodes}"),
        )
    return result


def _measure_default_learners(
    options: SpeedOptions, mnist: Examples, result: SpeedResult, progress: ReportProgress
) -> None:
    """Answers and teaching, for images and for vectors."""
    sizes, config = options.sizes, options.learner_config
    per_class, values = sizes.small_per_class, sizes.vector_values
    if "answers" in options.parts:
        for kind, known in (
            ("28×28 images", _first_of_each(mnist, per_class)),
            (f"vectors of {values} values", synthetic.vectors(sizes.vector_classes, per_class, values)),
        ):
            progress(f"answers: {kind}")
            learner = teaching.learner_of(config, known, per_episode=2 if known.x.ndim > 2 else 7)
            result.answers += answers.measure(
                learner, kind, known, sizes.batches, rounds=sizes.rounds, least_seconds=sizes.least_seconds
            )
    if "teaching" in options.parts:
        count, most = sizes.taught_classes, sizes.taught_examples
        images = [synthetic.images(count, n, MNIST_SHAPE, seed=n) for n in (per_class, 2)]
        vectors = [synthetic.vectors(count, n, values, seed=n) for n in (per_class, 2)]
        for kind, (known, unseen) in (("28×28 images", images), (f"vectors of {values} values", vectors)):
            progress(f"teaching: {kind}")
            learner = teaching.learner_of(config, known, per_episode=10)
            result.teaching.append(teaching.measure(learner, kind, unseen.take(np.arange(most + 1))))


def _mnist(options: SpeedOptions) -> tuple[Examples, Examples, str]:
    """What to learn from, what to judge by, and what it is called."""
    if options.data_root is not None:
        found = datasets.load("mnist", options.data_root, test=not options.validation)
        train, judge = datasets.prepare(found, fraction=options.fraction, validate=options.validation, seed=0)
        return train, judge, "MNIST"
    per_class = max(2, round(options.sizes.mnist_per_class * options.fraction))
    train, judge = (synthetic.images(10, n, MNIST_SHAPE, seed=seed) for seed, n in enumerate((per_class, 20)))
    return train, judge, "made-up images"


def _episodes(images: Examples) -> list[Examples]:
    """Two adjacent classes each."""
    sequence = scenario.class_incremental(int(images.y.max()) + 1, 2)
    return [images.take(episode.index) for episode in scenario.deal(images.y, sequence, seed=0)]


def _first_of_each(images: Examples, per_class: int) -> Examples:
    members = [np.flatnonzero(images.y == class_id)[:per_class] for class_id in np.unique(images.y)]
    if min(len(part) for part in members) < 2:
        raise DataError(f"{len(images)} images are too few: every class needs two")
    return images.take(np.concatenate(members))


def _small_learner(config: LearnerConfig, images: Examples) -> Learner:
    """A learner that has learned all the episodes of some images."""
    learner = Learner(config)
    for episode in _episodes(images):
        learner.learn_episode(episode.x, episode.y)
    return learner
