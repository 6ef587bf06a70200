"""Snapshots of learners with a learned metric: the same learner back, and anything else refused before it costs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from sharp_engine import Cancelled, Learner, SnapshotError
from sharp_engine.checks import check_same
from tests.engine.fixtures import DEVICES, IMAGE, VECTOR, CancelAfter, examples, metric, pictures, trained
from tests.engine.test_snapshot import GARBAGE, Description, Tensors, forged, places, replaced

# ---- there and back ---------------------------------------------------------------------------------------------


def built() -> Learner:
    return Learner(metric(input_shape=VECTOR))


def taught_once() -> Learner:
    learner = Learner(metric())
    learner.teach(*examples((3,), each=1))
    return learner


def between_episodes() -> Learner:
    return trained(metric(), ((0, 1), (2, 3)), each=24)


def with_lessons_waiting() -> Learner:
    learner = between_episodes()
    learner.teach(*examples((0, 7), each=3, seed=5, noise=0.9))
    assert learner.knowledge is not None
    assert learner.knowledge.semantic.taught_ids and learner.knowledge.episodic.correction_ids
    return learner


def in_an_episode() -> Learner:
    learner = with_lessons_waiting()
    with pytest.raises(Cancelled):
        learner.learn_episode(*examples((4, 0), each=24, seed=4), cancel=CancelAfter(5))
    return learner


def in_the_first_episode() -> Learner:
    learner = Learner(pictures())
    with pytest.raises(Cancelled):
        learner.learn_episode(*examples((4, 0), IMAGE, each=24, seed=4), cancel=CancelAfter(4))
    return learner


def taught_in_an_episode() -> Learner:
    learner = in_an_episode()
    learner.teach(*examples((1, 8), each=2, seed=6, noise=0.9))
    return learner


def after_a_thin_episode() -> Learner:
    learner = between_episodes()
    learner.learn_episode(*examples((5,), each=3))
    return learner


def of_images() -> Learner:
    learner = trained(pictures(), ((0, 1), (2, 3)), IMAGE)
    learner.teach(*examples((1, 5), IMAGE, each=3, seed=5, noise=0.9))
    return learner


def observing() -> Learner:
    learner = with_lessons_waiting()
    learner.observe(*examples((2, 9), each=5))
    return learner


def forgetful() -> Learner:
    learner = with_lessons_waiting()
    learner.forget(0)
    return learner


STATES = [
    built,
    taught_once,
    between_episodes,
    with_lessons_waiting,
    in_an_episode,
    in_the_first_episode,
    taught_in_an_episode,
    after_a_thin_episode,
    of_images,
    observing,
    forgetful,
]


@pytest.mark.parametrize("state", STATES)
def test_every_state_comes_back_answers_and_goes_on_as_it_was(state: Callable[[], Learner], tmp_path: Path) -> None:
    learner = state()
    learner.save(tmp_path / "learner")
    loaded = Learner.load(tmp_path / "learner")
    check_same(loaded, learner)
    assert loaded.inspect() == learner.inspect()
    assert learner.architecture is not None
    shape = learner.architecture.input_shape
    x, _ = examples(range(6), shape, each=2, seed=5)
    if learner.running is None and learner.inspect().classes:
        one, other = (each.predict(x, top=2, memories=5) for each in (learner, loaded))
        assert one.labels == other.labels
        for name in ("share", "distance", "novelty", "memory_distance", "memory_episode"):
            assert (getattr(one, name) == getattr(other, name)).all(), name
    for each in (learner, loaded):
        if each.running is not None:
            each.resume_episode()
        elif each.pending:
            each.end_episode()
        each.teach(*examples((0, 6), shape, each=2, seed=8)) if each.preprocessor.ready else None
        each.learn_episode(*examples((10, 11), shape, seed=9))
    check_same(loaded, learner)
    assert learner.predict(x).labels == loaded.predict(x).labels


@pytest.mark.parametrize("device", DEVICES)
def test_a_snapshot_with_a_metric_may_be_loaded_onto_another_device(device: str, tmp_path: Path) -> None:
    learner = with_lessons_waiting()
    learner.save(tmp_path / "learner")
    loaded = Learner.load(tmp_path / "learner", device=device)
    x, _ = examples(range(4), each=5, seed=3)
    assert loaded.predict(x).labels == learner.predict(x).labels


def test_an_episode_saved_without_its_examples_goes_on_when_they_are_given_again(tmp_path: Path) -> None:
    learner = taught_in_an_episode()
    learner.save(tmp_path / "learner", pending=False)
    loaded = Learner.load(tmp_path / "learner")
    loaded.resume_episode(*examples((4, 0), each=24, seed=4))
    learner.resume_episode()
    check_same(loaded, learner)


def test_the_scatter_is_stored_once_per_pair_of_dimensions(tmp_path: Path) -> None:
    learner = between_episodes()
    learner.save(tmp_path / "learner")
    with safe_open(tmp_path / "learner", framework="pt") as file:
        stored = file.get_tensor("semantic.scatter")
    assert learner.knowledge is not None
    dimensions = len(learner.knowledge.semantic.scatter)
    assert stored.shape == (dimensions * (dimensions + 1) // 2,)


# ---- forged files -----------------------------------------------------------------------------------------------


def opened(learner: Learner, folder: Path) -> tuple[Tensors, Description]:
    learner.save(folder / "learner")
    with safe_open(folder / "learner", framework="pt") as file:
        return {n: file.get_tensor(n) for n in file.keys()}, json.loads(file.metadata()["learner"])  # noqa: SIM118


@pytest.fixture(scope="module", params=[taught_in_an_episode, of_images], ids=["mlp", "images"])
def genuine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Tensors, Description]:
    return opened(request.param(), tmp_path_factory.mktemp("genuine"))


OWN = ("semantic.", "episodic.", "corrections.", "calibration.", "features.", "dictionary.")


def own(tensors: Tensors) -> list[str]:
    names = [name for name in tensors if name.startswith(OWN)]
    assert len(names) >= 12
    return names


def test_every_tensor_is_needed(genuine: tuple[Tensors, Description], tmp_path: Path) -> None:
    tensors, description = genuine
    for name in own(tensors):
        without = {other: tensor for other, tensor in tensors.items() if other != name}
        with pytest.raises(SnapshotError):
            Learner.load(forged(tmp_path, without, description))
    without = {name: tensor for name, tensor in tensors.items() if not name.startswith(("features.", "dictionary."))}
    with pytest.raises(SnapshotError, match="features.mean"):
        Learner.load(forged(tmp_path, without, description))


def test_no_tensor_is_one_too_many(genuine: tuple[Tensors, Description], tmp_path: Path) -> None:
    tensors, description = genuine
    for name in ("semantic.extra", "episodic.99.features", "dictionary.bias", "corrections.episodes"):
        with pytest.raises(SnapshotError, match=name.replace(".", r"\.")):
            Learner.load(forged(tmp_path, {**tensors, name: torch.zeros(2)}, description))


def test_every_tensor_must_have_its_shape_and_type(genuine: tuple[Tensors, Description], tmp_path: Path) -> None:
    tensors, description = genuine
    for name in own(tensors):
        tensor = tensors[name]
        wrong = [tensor[None], tensor.to(torch.int16), tensor.to(torch.float64)]
        if name != "calibration.references":  # of these any number may be
            wrong.append(torch.cat((tensor, tensor[:1])) if len(tensor) else torch.zeros(1, *tensor.shape[1:]))
        for other in wrong:
            with pytest.raises(SnapshotError):
                Learner.load(forged(tmp_path, {**tensors, name: other}, description))


def test_no_value_may_be_other_than_finite(genuine: tuple[Tensors, Description], tmp_path: Path) -> None:
    tensors, description = genuine
    for name in own(tensors):
        if tensors[name].is_floating_point() and tensors[name].numel():
            damaged = tensors[name].clone()
            damaged.view(-1)[-1] = float("inf")
            with pytest.raises(SnapshotError, match="not finite"):
                Learner.load(forged(tmp_path, {**tensors, name: damaged}, description))


def test_values_that_cannot_be_are_refused(genuine: tuple[Tensors, Description], tmp_path: Path) -> None:
    tensors, description = genuine
    references = tensors["calibration.references"]
    changes: dict[str, torch.Tensor] = {
        "semantic.counts": torch.zeros_like(tensors["semantic.counts"]),
        "semantic.scatter": -tensors["semantic.scatter"] - 1.0,
        "features.deviation": torch.zeros_like(tensors["features.deviation"]),
        "calibration.references": torch.cat((references, torch.tensor([3.0, 2.0]))),
    }
    for name, tensor in changes.items():
        with pytest.raises(SnapshotError):
            Learner.load(forged(tmp_path, {**tensors, name: tensor}, description))
    known = description["metric"]
    words: dict[tuple[Any, ...], Any] = {
        ("metric",): None,
        ("metric", "class_ids"): [known["class_ids"][0]] * len(known["class_ids"]),
        ("metric", "class_ids", 0): 777,
        ("metric", "taught_ids", 0): 777,
        ("metric", "representatives", 0): 777,
        ("metric", "correction_ids", 0): 777,
        ("metric", "correction_episodes"): [],
        ("metric", "freedom"): -1,
        ("metric", "calibration", "noise"): 0.0,
        ("metric", "calibration", "temperature"): -1.0,
        ("metric", "calibration", "weight"): -0.5,
        ("metric", "calibration", "fruitless"): -1,
        ("network_episodes",): 10**6,
    }
    for place, value in words.items():
        with pytest.raises(SnapshotError):
            Learner.load(forged(tmp_path, tensors, replaced(description, place, value)))


def test_every_key_is_needed(genuine: tuple[Tensors, Description], tmp_path: Path) -> None:
    tensors, description = genuine
    known = description["metric"]
    for key in known:
        with pytest.raises(SnapshotError):
            without = {other: value for other, value in known.items() if other != key}
            Learner.load(forged(tmp_path, tensors, {**description, "metric": without}))
    for key in known["calibration"]:
        without = {other: value for other, value in known["calibration"].items() if other != key}
        with pytest.raises(SnapshotError):
            Learner.load(forged(tmp_path, tensors, replaced(description, ("metric", "calibration"), without)))


def test_garbage_anywhere_is_refused_or_harmless(genuine: tuple[Tensors, Description], tmp_path: Path) -> None:
    tensors, description = genuine
    paths = [path for path in places(description) if path[0] == "metric" or path[:2] == ("config", "metric")]
    refused = 0
    for i, path in enumerate(paths):
        for garbage in (GARBAGE[(5 * i) % len(GARBAGE)], GARBAGE[(5 * i + 3) % len(GARBAGE)]):
            try:
                loaded = Learner.load(forged(tmp_path, tensors, replaced(description, path, garbage)))
            except SnapshotError:
                refused += 1
            else:
                loaded.save(tmp_path / "again")
    assert refused > len(paths) / 2


DICTIONARY_ATOMS = ("config", "architecture", "dictionary", "atoms")


@pytest.mark.parametrize(
    "claims",
    [
        {("config", "metric", "random_features"): 10**6},
        {("config", "metric", "random_features"): 9},
        {("config", "metric", "random_features"): 0},
        {("config", "metric", "random_features"): None},
        {("config", "architecture", "dictionary", "patches"): 10**7, DICTIONARY_ATOMS: 10**6},
        {("config", "architecture", "dictionary", "grid"): 10**4},
        {("input_shape",): [10**7]},
        {("input_shape",): [1, 4000, 4000]},
        {("config", "metric", "enabled"): False},
    ],
    ids=str,
)
def test_dimensions_that_the_file_does_not_hold_are_refused_before_memory_is_taken(
    claims: dict[Any, Any], genuine: tuple[Tensors, Description], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors, description = genuine
    kind = description["config"]["architecture"]["kind"]
    if kind == "mlp" and any("dictionary" in place for place in claims):
        description = replaced(description, ("config", "architecture", "kind"), "dictionary")
    if kind == "dictionary" and ("input_shape",) in claims and len(claims[("input_shape",)]) == 3:
        claims = {("input_shape",): [3, 4000, 4000], ("config", "architecture", "dictionary", "atoms"): None}
    for place, value in claims.items():
        description = replaced(description, place, value)
    unbroken = Learner.build

    def build(learner: Learner, *arguments: Any, **options: Any) -> None:
        if learner.config.metric.enabled:
            pytest.fail("it was built")
        unbroken(learner, *arguments, **options)

    monkeypatch.setattr(Learner, "build", build)
    with pytest.raises(SnapshotError):
        Learner.load(forged(tmp_path, tensors, description))


def test_a_scatter_that_no_examples_can_have_answers_all_the_same(tmp_path: Path) -> None:
    tensors, description = opened(between_episodes(), tmp_path)
    scatter = tensors["semantic.scatter"].clone()
    scatter[1] = 1e6  # a covariance larger than the variances allow
    loaded = Learner.load(forged(tmp_path, {**tensors, "semantic.scatter": scatter}, description))
    answer = loaded.predict(examples(range(4), each=3)[0])
    assert torch.isfinite(torch.from_numpy(answer.share)).all()
