"""The engine on a stand-in accelerator: the whole story gives the CPU's answers, and no step is waited for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torchvision.models import resnet18

from sharp_engine import ArchitectureConfig, BackboneConfig, Cancelled, Learner, LearnerConfig, Predictions, pretrain
from sharp_engine.device import download, upload
from sharp_engine.training.loss import reduce_anchor_losses
from tests.engine.fixtures import (
    IMAGE,
    VECTOR,
    CancelAfter,
    Recorder,
    change,
    convnet,
    examples,
    linear,
    metric,
    mlp,
    pictures,
)
from tests.engine.standin import NAME, Traffic, accelerator

LEARNERS = {
    "mlp": (mlp(), VECTOR),
    "convnet": (convnet(), IMAGE),
    "sums of anchors": (convnet(anchor_losses="sum"), IMAGE),
    "metric": (metric(), VECTOR),
    "pictures": (pictures(), IMAGE),
}


@contextmanager
def _device(name: str) -> Iterator[Traffic | None]:
    with accelerator() if name == NAME else nullcontext() as traffic:
        yield traffic


def _answers(learner: Learner, shape: tuple[int, ...]) -> list[Any]:
    answers: Predictions = learner.predict(examples((0, 1, 2, 3), shape, 4, seed=9)[0], top=3, memories=3)
    arrays = [answers.share, answers.distance, answers.novelty, answers.top_share, answers.memory_distance]
    return [answers.labels, answers.top_labels, answers.memory_labels, answers.memory_episode.tolist(), *arrays]


def _story(config: LearnerConfig, shape: tuple[int, ...], device: str, path: Path) -> list[Any]:
    """Learn, save in the middle, load, resume, teach, rename, merge, forget, save and load: answers at every stage."""
    learner = Learner(change(config, device=device))
    learner.learn_episode(*examples((0, 1), shape, seed=0), observer=Recorder())
    answered = [_answers(learner, shape)]
    with pytest.raises(Cancelled):
        learner.learn_episode(*examples((2, 3), shape, seed=1), cancel=CancelAfter(4))
    learner.save(path)
    learner = Learner.load(path, device=device)
    learner.resume_episode()
    answered.append(_answers(learner, shape))
    if config.metric.enabled:
        learner.teach(*examples((0, 7), shape, 3, seed=2))
        learner.teach(*examples((8,), shape, 12, seed=3), correct=False)
        answered.append(_answers(learner, shape))
    learner.learn_episode(*examples((4, 5, 6), shape, seed=4))
    learner.rename_class(4, 40)
    learner.merge_classes(6, 5)
    learner.forget(1)
    answered.append(_answers(learner, shape))
    learner.inspect(), learner.quality()
    learner.save(path)
    answered.append(_answers(Learner.load(path, device=device), shape))
    return answered


def _assert_same_on_both(config: LearnerConfig, shape: tuple[int, ...], folder: Path) -> None:
    """The story's answers, and every tensor of the snapshot at its end."""
    answered, tensors = [], []
    for device in ("cpu", NAME):
        with _device(device):
            answered.append(_story(config, shape, device, folder / device))
        tensors.append(load_file(folder / device))
    assert tensors[0].keys() == tensors[1].keys()
    assert [name for name in tensors[0] if not torch.equal(tensors[0][name], tensors[1][name])] == []
    for stage, (mine, others) in enumerate(zip(*answered, strict=True)):
        for one, other in zip(mine, others, strict=True):
            assert np.array_equal(one, other) if isinstance(one, np.ndarray) else one == other, f"at stage {stage}"


@pytest.mark.parametrize("name", LEARNERS)
def test_the_whole_story_on_an_accelerator_ends_with_the_cpus_answers_and_snapshot(name: str, tmp_path: Path) -> None:
    config, shape = LEARNERS[name]
    _assert_same_on_both(config, shape, tmp_path)


def test_a_backbone_on_an_accelerator_gives_the_cpus_answers(tmp_path: Path) -> None:
    torch.manual_seed(0)
    torch.save(resnet18(weights=None).state_dict(), tmp_path / "resnet18.pth")
    backbone = BackboneConfig("resnet18", "layer1", str(tmp_path / "resnet18.pth"))
    architecture = ArchitectureConfig("backbone", backbone=backbone, layers=(linear(12), linear(10)), cut=1)
    shape = (3, 32, 32)
    _assert_same_on_both(change(mlp(), architecture=architecture), shape, tmp_path)


def test_pretraining_on_an_accelerator_writes_the_same_file_and_waits_once_per_epoch(tmp_path: Path) -> None:
    x, y = examples((0, 1, 2), IMAGE, 16)
    files = []
    for device in ("cpu", NAME):
        with _device(device) as traffic:
            report = pretrain(x, y, tmp_path / device, convnet(device=device), epochs=2)
        files.append((tmp_path / device).read_bytes())
    assert files[0] == files[1] and len(report.losses) == 2
    assert traffic is not None
    at_epochs = [wait for wait in traffic.waits if wait.operation == "copy to the host"]
    assert len(at_epochs) == 2 + 2 * 2  # losses, then weights and biases of the two layers before the cut
    assert not [wait for wait in traffic.blocking_uploads if "pretraining" in wait.place]


class _WaitsBetweenSteps:
    """A cancellation that never comes: it is asked for after every step, and looks what went on since the last one."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self.seen: list[tuple[str, ...]] = []

    def is_set(self) -> bool:
        self.seen.append(tuple(wait.place for wait in (*self._traffic.waits, *self._traffic.blocking_uploads)))
        self._traffic.clear()
        return False


@pytest.mark.parametrize("name", LEARNERS)
def test_training_waits_for_the_device_once_per_epoch_and_never_per_step(name: str) -> None:
    config, shape = LEARNERS[name]
    config = change(config, device=NAME, epochs=3, batch_size=8, holdout=0.0)
    with accelerator() as traffic:
        learner = Learner(config)
        learner.learn_episode(*examples((0, 1), shape, seed=0))
        between = _WaitsBetweenSteps(traffic)
        learner.learn_episode(*examples((2, 3), shape, seed=1), cancel=between)  # with replay
    found, phases, steps = Counter(between.seen), config.training.phases, 40 // 8
    assert found[()] >= phases * 3 * (steps - 1)
    assert found[("training/episode.py:train",)] == phases * 3  # after each epoch its loss is looked at
    assert found.total() <= phases * 3 * steps + phases + 3  # the rest is between phases and at the ends


@pytest.mark.parametrize("name", LEARNERS)
def test_a_prediction_is_one_pinned_copy_there_and_one_copy_back(name: str) -> None:
    config, shape = LEARNERS[name]
    with accelerator() as traffic:
        learner = Learner(change(config, device=NAME))
        learner.learn_episode(*examples((0, 1), shape, seed=0))
        x = examples((0, 1), shape, 4, seed=5)[0]
        learner.predict(x, top=2, memories=2)  # makes what answers
        traffic.clear()
        learner.predict(x, top=2, memories=2)
        assert [wait.place for wait in traffic.waits] == ["device.py:download"]
        assert not traffic.blocking_uploads and traffic.uploads <= 2  # examples, and references of novelty


def test_the_stand_in_refuses_what_a_gpu_refuses() -> None:
    with accelerator():
        there, here = torch.ones(3, device=NAME), torch.ones(3)
        assert there.device.type == NAME and (there * 2.0).sum().item() == 6.0
        with pytest.raises(RuntimeError, match="two devices"):
            there + here
        with pytest.raises(RuntimeError, match="two devices"):
            there[torch.tensor([0])]
        with pytest.raises((TypeError, RuntimeError), match="numpy"):
            there.numpy()


def test_the_stand_in_writes_down_every_kind_of_wait() -> None:
    with accelerator() as traffic:
        x = torch.tensor([1.0, 0.0, 2.0], device=NAME)
        assert [w.operation for w in traffic.blocking_uploads] == ["copy to the device"]
        bool((x > 0).any()), float(x[0]), x.tolist(), x.cpu(), x[x > 0], x.nonzero(), x.unique(), torch.equal(x, x)
        torch.bincount(x.long())
        assert len(traffic.waits) == 9


def test_copies_there_are_pinned_and_asynchronous_and_copies_back_come_together() -> None:
    values = {"a": torch.arange(3), "b": torch.rand(2, 2), "c": torch.tensor([True, False]), "d": torch.zeros(0, 4)}
    with accelerator() as traffic:
        there = {name: upload(value, torch.device(NAME)) for name, value in values.items()}
        assert not [wait for wait in traffic.blocking_uploads if wait.operation == "copy to the device"][1:]
        back = download(there)
        assert [wait.operation for wait in traffic.waits] == ["copy to the host"]
    assert list(back) == list(values) and all(torch.equal(back[name], values[name]) for name in values)
    assert download(values) == values


def test_the_sum_of_anchor_losses_is_as_many_means_as_there_are_anchors() -> None:
    y = torch.tensor([4, 1, 4, 2, 1, 4])
    assert float(reduce_anchor_losses(torch.tensor(0.25), y, "sum")) == 0.25 * 5
