"""Slices change nothing: however they fall, in memory or from files, versions are the same bits."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from sharp_engine import Learner, LearnerConfig, preset
from sharp_engine.learning import running
from sharp_server.config.model import LogConfig, TrainerConfig
from sharp_server.storage.records import BatchSlice, Beyond, BeyondKey
from sharp_server.teaching.protocol import BaseVersion
from sharp_server.training import episode_run, suspended
from sharp_server.training.episode_run import Trainer
from sharp_server.training.preparation import prepare
from sharp_server.training.protocol import Job, Learned, LessonsBefore, PhaseDone, Started, Yielded
from sharp_server.training.suspended import SuspendedLearners, tensor_bytes

PHASES = 3


def config(**options: Any) -> LearnerConfig:
    return preset("default").with_options(
        {
            "training.phases": PHASES,
            "training.min_steps": 4,
            "architecture.kind": "mlp",
            "architecture.layers": [{"kind": "linear", "units": 24}] * 3,
            "device": "cpu",
            **options,
        }
    )


class Examples:
    """The examples of episodes, as the journal gives them."""

    def __init__(self) -> None:
        self.reads = self.taught = 0

    def read(self, episode: int) -> list[BatchSlice]:
        self.reads += 1
        rng = np.random.default_rng(episode)
        y = np.repeat(np.arange(2, dtype=np.int32), 30)
        x = (y[:, None] + 0.3 * rng.random((60, 8))).astype("<f4")
        return [BatchSlice("f4", 60, y.tobytes(), x.tobytes())]

    def lessons(self, learner: int, before: int) -> list[Beyond]:
        """One example each: of a class that no episode has, and a correction of one that it has."""
        self.taught += 1
        found = []
        for place, ordinal in enumerate((2, 0, 2, 2), start=1):
            x = (ordinal + 0.3 * np.random.default_rng(1000 + place).random(8)).astype("<f4")
            piece = BatchSlice("f4", 1, np.array([ordinal], np.int32).tobytes(), x.tobytes())
            found.append(Beyond(BeyondKey(0, place), place, True, (piece,)))
        return found


class Pipe:
    """Hears what the trainer says; asks it to yield before the turns for which `asks` says so."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def send(self, report: Any) -> None:
        self.heard.append(report)


def job(
    folder: Path, uid: str, episode: int, learner_config: LearnerConfig, base: Path | None = None, taught: bool = False
) -> Job:
    digest = BaseVersion(base, hashlib.sha256(base.read_bytes()).digest()) if base is not None else None
    (folder / "work").mkdir(exist_ok=True)
    out = folder / f"{uid}-{episode}.safetensors"
    labels: dict[int, Any] = {0: "low", 1: "high", 2: "higher"}
    stem = f"{uid}-{episode}-{int(base is not None)}"
    lessons = LessonsBefore(1, 9, threads=1) if taught else None
    return Job(
        uid, uid, episode, episode, digest, learner_config, False, (8,), labels, folder / "work", stem, out, lessons
    )


def learn(trainer: Trainer, pipe: Pipe, task: Job, gives_way: bool) -> Any:
    """One turn; gives what came of it."""
    trainer._give_way.set() if gives_way else trainer._give_way.clear()
    trainer._train(task)
    return pipe.heard[-1]


def contents(task: Job) -> dict[str, Any]:
    """Every value in a version's file; the order in which they lie there is chance."""
    with safe_open(task.out, "np") as file:
        return {"": file.metadata(), **{key: file.get_tensor(key).tobytes() for key in sorted(file.keys())}}


def learned_at_once(tasks: list[Job]) -> list[dict[str, Any]]:
    trainer = Trainer(pipe := Pipe(), Examples(), TrainerConfig(device="cpu"), LogConfig())  # type: ignore[arg-type]
    for task in tasks:
        assert isinstance(learn(trainer, pipe, task, False), Learned)
        for phase in task.work.iterdir():  # as the front does
            phase.unlink()
    return [contents(task) for task in tasks]


@pytest.mark.parametrize("options", [{}, {"metric.enabled": False}], ids=["metric", "paper"])
@pytest.mark.parametrize("room", [8, 1, 0], ids=["both in memory", "one in memory", "from files"])
def test_learners_that_take_turns_after_every_phase_are_the_same_as_ones_that_do_not(
    room: int, options: dict[str, Any], tmp_path: Path
) -> None:
    for name in ("whole", "slices"):
        (tmp_path / name).mkdir()
    whole = learned_at_once([job(tmp_path / "whole", uid, 1, config(**options)) for uid in "ab"])
    settings = TrainerConfig(device="cpu", suspended_learners=room)
    trainer = Trainer(pipe := Pipe(), examples := Examples(), settings, LogConfig())  # type: ignore[arg-type]
    left = [job(tmp_path / "slices", uid, 1, config(**options)) for uid in "ab"]
    tasks, slices = list(left), 0
    while left:
        task = left.pop(0)
        slices += 1
        if isinstance(outcome := learn(trainer, pipe, task, True), Yielded):
            assert outcome.in_memory == (room == 8 or room == 1 and task.uid == "a")
            left.append(task)
        else:
            assert isinstance(outcome, Learned)
    assert [contents(task) for task in tasks] == whole
    boundaries = PHASES - 1 + bool(not options)
    in_memory = 2 if room == 8 else room
    assert slices == 2 + in_memory * boundaries + (2 - in_memory) * (PHASES - 1), "the metric alone is no durable slice"
    assert examples.reads == in_memory + (2 - in_memory) * PHASES, "what is in memory is read once"


@pytest.mark.parametrize("room", [8, 0], ids=["in memory", "from files"])
def test_an_episode_after_lessons_that_is_left_for_another_learner_is_the_same(room: int, tmp_path: Path) -> None:
    for name in ("whole", "slices", "untaught"):
        (tmp_path / name).mkdir()
    [whole] = learned_at_once([job(tmp_path / "whole", "a", 1, config(), taught=True)])
    settings = TrainerConfig(device="cpu", suspended_learners=room)
    trainer = Trainer(pipe := Pipe(), examples := Examples(), settings, LogConfig())  # type: ignore[arg-type]
    large, small = job(tmp_path / "slices", "a", 1, config(), taught=True), job(tmp_path / "slices", "b", 1, config())
    assert isinstance(learn(trainer, pipe, large, True), Yielded)
    assert isinstance(learn(trainer, pipe, small, False), Learned)
    while isinstance(learn(trainer, pipe, large, True), Yielded):
        pass
    assert isinstance(pipe.heard[-1], Learned) and contents(large) == whole
    assert examples.taught == 1, "they are taught once, and are kept with the learner or in the file of its phase"
    learner = Learner.load(large.out)
    assert learner.predict(np.full((1, 8), 2.15, np.float32)).labels == ["higher"]
    [untaught] = learned_at_once([job(tmp_path / "untaught", "a", 1, config())])
    assert untaught != whole, "or the lessons would prove nothing"


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    taught=st.booleans(),
    asks=st.lists(st.booleans(), max_size=12),
    drops=st.lists(st.booleans(), max_size=12),
    room=st.integers(0, 2),
)
def test_however_slices_fall_and_whatever_is_lost_from_memory_an_episode_on_a_version_is_the_same(
    taught: bool, asks: list[bool], drops: list[bool], room: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("slices")
    first = job(folder, "a", 1, config())
    learned_at_once([first])
    second = job(folder, "a", 2, config(), first.out, taught)
    [whole] = learned_at_once([second])
    trainer = Trainer(pipe := Pipe(), Examples(), TrainerConfig(device="cpu", suspended_learners=room), LogConfig())  # type: ignore[arg-type]
    asks, drops = list(asks), list(drops)
    for _ in range(40):
        if isinstance(learn(trainer, pipe, second, bool(asks) and asks.pop(0)), Learned):
            break
        if drops and drops.pop(0):
            trainer._suspended.drop("a")  # as if the trainer had died
    assert contents(second) == whole
    assert sum(isinstance(report, Started) for report in pipe.heard) >= 1


def test_what_was_computed_once_per_episode_is_not_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    real = running._prepare

    def counted(learner: Any, episode: Any) -> None:
        made.append(episode.features is None)
        real(learner, episode)

    monkeypatch.setattr(running, "_prepare", counted)
    trainer = Trainer(pipe := Pipe(), Examples(), TrainerConfig(device="cpu"), LogConfig())  # type: ignore[arg-type]
    task = job(tmp_path, "a", 1, config())
    trainers = set()
    while isinstance(learn(trainer, pipe, task, True), Yielded):
        kept = trainer._suspended._held["a"].learner.running
        assert kept is not None and kept.features is not None
        trainers.add(id(kept.trainer))
    assert made.count(True) == 1 and len(made) == PHASES + 1 and len(trainers) == 1


def test_the_last_phase_and_an_episode_that_only_the_metric_learns_are_not_left(tmp_path: Path) -> None:
    trainer = Trainer(pipe := Pipe(), Examples(), TrainerConfig(device="cpu"), LogConfig())  # type: ignore[arg-type]
    assert isinstance(learn(trainer, pipe, job(tmp_path, "a", 1, config(**{"training.phases": 1})), True), Yielded)
    assert isinstance(learn(trainer, pipe, job(tmp_path, "a", 1, config(**{"training.phases": 1})), True), Learned)


def test_a_phase_that_is_neither_in_memory_nor_on_disk_is_not_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(episode_run, "_keep", lambda *_: None)
    trainer = Trainer(pipe := Pipe(), Examples(), TrainerConfig(device="cpu", suspended_learners=0), LogConfig())  # type: ignore[arg-type]
    assert isinstance(learn(trainer, pipe, job(tmp_path, "a", 1, config()), True), Learned)
    assert sum(isinstance(report, PhaseDone) for report in pipe.heard) == PHASES


def test_a_learner_is_not_taken_up_for_another_episode_or_on_another_version(tmp_path: Path) -> None:
    trainer = Trainer(pipe := Pipe(), Examples(), TrainerConfig(device="cpu"), LogConfig())  # type: ignore[arg-type]
    first = job(tmp_path, "a", 1, config())
    learned_at_once([first])
    for other in (job(tmp_path, "a", 2, config()), job(tmp_path, "a", 1, config(), first.out)):
        assert isinstance(learn(trainer, pipe, first, True), Yielded)
        assert trainer._suspended.take(other) is None
        assert trainer._suspended.take(first) is None, "nothing else is kept of it then"


def test_learners_in_memory_are_bounded_in_number_and_bytes(tmp_path: Path) -> None:
    task = job(tmp_path, "a", 1, config())
    learner = prepare(task, Examples(), "cpu")
    learner.learn_episode(np.random.default_rng(0).random((60, 8), dtype=np.float32), ["a", "b"] * 30)
    size = tensor_bytes(learner)
    network = sum(layer.weight.nbytes for layer in learner.network.layers)
    assert size > network
    by_bytes = SuspendedLearners(10, 2 * size)
    assert [by_bytes.keep(job(tmp_path, uid, 1, config()), learner) for uid in "abca"] == [True, True, False, True]
    by_bytes.drop("b")
    assert by_bytes.keep(job(tmp_path, "c", 1, config()), learner)
    by_number = SuspendedLearners(1, 1 << 40)
    assert [by_number.keep(job(tmp_path, uid, 1, config()), learner) for uid in "ab"] == [True, False]
    assert suspended.tensor_bytes([learner.network, learner.network]) == tensor_bytes(learner.network)
