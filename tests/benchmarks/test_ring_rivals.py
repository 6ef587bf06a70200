"""Rivals that no library has, on tiny cases whose answer is known; and the simple ones."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file

from benchmarks.datasets import synthetic
from benchmarks.ring.rivals.brain_replay import BrainInspiredReplay, ReplayModel
from benchmarks.ring.rivals.contestant import Contestant, Setup
from benchmarks.ring.rivals.fdr import FunctionDistance
from benchmarks.ring.rivals.networks import (
    Part,
    Scale,
    build,
    load_pretrained,
    pretrained_count,
    pretrained_fit,
    weights,
)
from benchmarks.ring.rivals.projected_ridge import ProjectedRidge
from benchmarks.ring.rivals.remind import Quantizer, Remind
from benchmarks.ring.rivals.scikit import ClassMeans, LinearInParts, Neighbours
from benchmarks.ring.worker import resumes_exactly, seed_everything
from sharp_engine import preset, pretrain

Episodes = list[tuple[NDArray[Any], NDArray[np.int64]]]


def vectors(classes: int = 4, per_class: int = 40, wide: float = 0.3) -> tuple[Episodes, Setup]:
    """Clouds far from each other, two classes per episode."""
    random = np.random.default_rng(0)
    centres = 2.0 * np.random.default_rng(7).normal(size=(classes, 16))
    episodes: Episodes = []
    for first in range(0, classes, 2):
        y = random.permutation(np.repeat([first, first + 1], per_class))
        episodes.append(((centres[y] + wide * random.normal(size=(len(y), 16))).astype(np.float32), y))
    sequence = tuple((first, first + 1) for first in range(0, classes, 2))
    return episodes, Setup("banking77", (16,), classes, sequence, memory=20, seed=0, fraction=0.2)


def images() -> tuple[Episodes, Setup]:
    found = synthetic.images(4, 30, (1, 28, 28), seed=0)
    episodes = [(found.x[found.y // 2 == e], found.y[found.y // 2 == e]) for e in (0, 1)]
    return episodes, Setup("mnist", (1, 28, 28), 4, ((0, 1), (2, 3)), memory=12, seed=0, fraction=0.05)


def accuracy(contestant: Contestant, episodes: Episodes) -> float:
    right = [contestant.predict(x) == y for x, y in episodes]
    return float(np.concatenate(right).mean())


def learned(make: Any, episodes: Episodes, setup: Setup) -> Any:
    seed_everything(0)
    contestant = make(setup)
    for x, y in episodes:
        contestant.learn(x, y)
    return contestant


@pytest.mark.parametrize("make", [ClassMeans, Neighbours, ProjectedRidge, Remind, BrainInspiredReplay])
def test_who_should_not_forget_knows_both_episodes_of_easy_vectors(make: Any) -> None:
    episodes, setup = vectors()
    make = (lambda s: ProjectedRidge(s, 200)) if make is ProjectedRidge else make
    assert accuracy(learned(make, episodes, replace(setup, fraction=0.05)), episodes) > 0.9


@pytest.mark.parametrize("make", [FunctionDistance, LinearInParts])
def test_who_forgets_knows_the_newest_episode(make: Any) -> None:
    episodes, setup = vectors()
    assert accuracy(learned(make, episodes, setup), episodes[-1:]) > 0.9


def test_brain_inspired_replay_learns_images_from_their_pixels() -> None:
    episodes, setup = images()
    assert accuracy(learned(BrainInspiredReplay, episodes, setup), episodes) > 0.5


@pytest.mark.parametrize("make", [FunctionDistance, Remind, BrainInspiredReplay, ClassMeans, LinearInParts])
def test_a_pickled_contestant_goes_on_bit_by_bit(make: Any) -> None:
    episodes, setup = vectors(per_class=20)
    setup = replace(setup, fraction=0.01)  # what was learned does not matter
    assert resumes_exactly(lambda: make(setup), episodes, 0)


def test_fdr_holds_what_the_network_said_and_keeps_equal_shares() -> None:
    episodes, setup = vectors()
    contestant = learned(FunctionDistance, episodes, setup)
    assert {len(x) for x, _ in contestant.memory.values()} == {5} and set(contestant.memory) == {0, 1, 2, 3}
    assert contestant.kept().raw_bytes == 20 * 16 * 4
    said = torch.cat([said for _, said in contestant.memory.values()])
    assert torch.allclose(said.sum(1), torch.ones(20))


def test_fdr_with_its_regulariser_forgets_less_than_without(monkeypatch: pytest.MonkeyPatch) -> None:
    episodes, setup = vectors()
    held = accuracy(learned(FunctionDistance, episodes, setup), episodes[:1])
    monkeypatch.setattr("benchmarks.ring.rivals.fdr.function_distance", lambda logits, said: 0.0 * logits.sum())
    assert held > 0.9 > 0.5 > accuracy(learned(FunctionDistance, episodes, setup), episodes[:1])


def test_fdr_takes_a_step_for_the_distance_after_each_one_for_new_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[float] = []
    monkeypatch.setattr(FunctionDistance, "_step", lambda self, loss: steps.append(float(loss.detach())))
    episodes, setup = vectors()
    contestant = learned(FunctionDistance, episodes, setup)
    batches = contestant.trained.epochs * math.ceil(len(episodes[0][1]) / contestant.trained.batch)
    assert len(steps) == batches + 2 * batches
    assert steps[batches + 1 :: 2] == pytest.approx([0.0] * batches, abs=1e-6), "nothing moved, so no distance"


def test_product_quantisation_gives_back_what_has_few_values() -> None:
    random = np.random.default_rng(0)
    rows = random.integers(0, 3, size=(500, 8)).astype(np.float32)
    quantizer = Quantizer.fit(rows, piece=4, seed=0)
    codes = quantizer.encode(rows)
    assert codes.shape == (500, 2) and codes.dtype == np.uint8
    assert np.allclose(quantizer.decode(codes), rows, atol=1e-5)


def test_remind_freezes_g_after_the_first_episode_and_stays_within_its_bytes() -> None:
    episodes, setup = images()
    seed_everything(0)
    contestant = Remind(setup)
    contestant.learn(*episodes[0])
    frozen = [parameter.clone() for parameter in contestant.frozen.parameters()]
    contestant.learn(*episodes[1])
    assert all(torch.equal(a, b) for a, b in zip(frozen, contestant.frozen.parameters(), strict=True))
    assert contestant.codes.nbytes <= setup.memory * 28 * 28
    assert contestant.capacity == 4 * setup.memory, "a code for four values"
    assert set(contestant.labels.tolist()) == {0, 1, 2, 3} and contestant.kept().raw_bytes == 0


def test_a_full_memory_of_remind_drops_of_the_class_that_has_most() -> None:
    episodes, setup = vectors(per_class=200)
    contestant = learned(Remind, episodes, Setup(**{**setup.__dict__, "memory": 5}))
    assert np.bincount(contestant.labels).tolist() == [20, 20, 20, 20], "80 codes fit into 5 vectors' bytes"


def test_each_class_silences_its_own_part_of_the_decoder_and_has_its_own_mode() -> None:
    seed_everything(0)
    model = ReplayModel(inputs=10, classes=3, units=1000, gated=0.8, binary=False)
    assert model.gates.mean(2).allclose(torch.full((2, 3), 0.2), atol=0.05)
    assert not torch.equal(model.gates[0, 0], model.gates[0, 1])
    assert model.generate(torch.tensor([0, 2])).shape == (2, 10)


def test_brain_inspired_replay_keeps_no_examples() -> None:
    episodes, setup = vectors()
    assert learned(BrainInspiredReplay, episodes, replace(setup, fraction=0.01)).kept().raw_bytes == 0


def test_ridge_sums_do_not_depend_on_where_episodes_end() -> None:
    episodes, setup = images()
    apart = learned(lambda s: ProjectedRidge(s, 100), episodes, setup)
    x, y = (np.concatenate(parts) for parts in zip(*episodes, strict=True))
    together = learned(lambda s: ProjectedRidge(s, 100), [(x, y)], setup)
    assert np.allclose(apart.gram, together.gram, rtol=1e-4)
    assert np.allclose(apart.sums, together.sums, rtol=1e-4)


@pytest.mark.parametrize(("shape", "features"), [((1, 28, 28), 500), ((3, 32, 32), 1024), ((384,), 500)])
def test_networks_have_the_papers_shape(shape: tuple[int, ...], features: int) -> None:
    network = build(Setup("folder", shape, 7, (), 0, 0))
    assert network(torch.zeros(2, *shape)).shape == (2, 7) and network.features == features
    if shape == (1, 28, 28):
        assert network.front(torch.zeros(1, *shape)).numel() == 16 * 7 * 7
    if shape == (3, 32, 32):
        assert network.front(torch.zeros(1, *shape)).numel() == 64 * 8 * 8


def test_vectors_are_scaled_by_the_first_episode_alone() -> None:
    scale = Scale("banking77")
    assert scale(np.full((3, 2), 4.0, dtype=np.float32)).square().mean() == pytest.approx(1.0)
    assert scale(np.full((1, 2), 8.0, dtype=np.float32)).mean() == pytest.approx(2.0)


# ---- pretrained layers ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> str:
    """All layers but the output, as a ring makes them."""
    path, found = tmp_path_factory.mktemp("pretrained") / "g.safetensors", synthetic.images(4, 20, (1, 28, 28), first=4)
    pretrain(found.x, found.y, path, preset("mnist").with_options({"architecture.cut": 3}), epochs=2)
    return str(path)


def frozen_weights(contestant: Any) -> dict[str, torch.Tensor]:
    layers = [layer for layer in (*contestant.network.front, *contestant.network.back) if hasattr(layer, "weight")]
    return {f"{i}.{name}": p.detach().clone() for i, layer in enumerate(layers) for name, p in layer.named_parameters()}


@pytest.mark.parametrize(
    ("make", "layers"), [(Remind, 2), (BrainInspiredReplay, 2), (lambda s: ProjectedRidge(s, 200), 3)]
)
def test_pretrained_layers_are_those_of_the_file_and_never_change(make: Any, layers: int, pretrained: str) -> None:
    episodes, setup = images()
    contestant = learned(make, episodes, replace(setup, fraction=0.2, pretrained=pretrained))
    file, now = load_file(pretrained), frozen_weights(contestant)
    same = [name for name in file if torch.equal(file[name], now[name])]
    assert sorted(same) == sorted(f"{i}.{part}" for i in range(layers) for part in ("weight", "bias"))
    assert accuracy(contestant, episodes) > 0.4


def test_behind_pretrained_layers_bir_generates_features_by_the_papers_row(pretrained: str) -> None:
    _, setup = images()
    contestant = BrainInspiredReplay(replace(setup, fraction=1.0, pretrained=pretrained))
    assert contestant.model.output.out_features == 16 * 7 * 7 and not contestant.model.binary
    assert (contestant.paper.rate, contestant.paper.batch, contestant.updates) == (0.0001, 1024, 250)
    assert contestant.network is not None
    sizes = [array.nbytes for array in weights(contestant.model, contestant.network.front)]
    assert contestant.kept().bytes == sum(sizes)


def test_remind_trains_few_images_as_many_steps_as_the_data_set_they_stand_for(pretrained: str) -> None:
    _, setup = images()
    letters = Remind(replace(setup, dataset="letters", pretrained=pretrained))
    assert [letters._epochs(count) for count in (200, 1000, 100_000)] == [57, 29, 3]
    assert Remind(replace(setup, dataset="letters"))._epochs(200) == 3


def test_pretrained_weights_of_another_shape_are_not_taken(pretrained: str) -> None:
    network = build(Setup("folder", (1, 20, 20), 4, (), 0, 0))
    assert pretrained_fit(network, pretrained) == 2, "the convolutions alone"
    with pytest.raises(ValueError, match="has not the 3 layers"):
        load_pretrained(network, pretrained, "hidden")
    assert [pretrained_count(build(Setup("", (3, 32, 32), 4, (), 0, 0)), part) for part in get_args(Part)] == [4, 7, 8]
