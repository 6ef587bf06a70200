"""From a config and an input shape to a network: what `auto` picks, what fits and what does not, frozen fronts."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from torchvision import models

from sharp_engine import (
    ArchitectureConfig,
    BackboneConfig,
    ConfigError,
    LabelError,
    Learner,
    LearnerConfig,
    NonFiniteError,
    ShapeError,
    SnapshotError,
    preset,
    pretrain,
)
from sharp_engine.checks import check_density, check_frozen, check_path_property, check_same, check_taught, copy_of
from sharp_engine.config import ArchitectureKind, FanIn
from sharp_engine.device import resolve_device
from sharp_engine.network.architecture import Architecture, Normaliser, resolve_architecture
from sharp_engine.network.rewiring import reinitialise_idle
from sharp_engine.network.state import HIGHEST_RANK, Layer, build
from tests.engine.fixtures import DEVICES, IMAGE, METRIC, VECTOR, change, conv, convnet, examples, linear, mlp, trained
from tests.engine.test_snapshot import forged

CPU = torch.device("cpu")


# ---- what is picked ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "description"),
    [
        ((6,), "mlp for 6: linear500 | linear500, linear500"),
        ((1, 28, 28), "conv-small for 1×28×28: conv16-pool, conv16-pool | linear500, linear500"),
        ((1, 64, 20), "conv-small for 1×64×20: conv16-pool, conv16-pool | linear500, linear500"),
        ((3, 4, 7), "conv-small for 3×4×7: conv16-pool, conv16-pool | linear500, linear500"),
        ((1, 3, 64), "mlp for 1×3×64: linear500 | linear500, linear500"),
        (
            (3, 32, 32),
            "vgg-small for 3×32×32: conv64, conv64-pool, conv64, conv64-pool | "
            "conv128, conv128, conv128-pool, linear1024, linear1024",
        ),
        (
            (2, 8, 8),
            "vgg-small for 2×8×8: conv64, conv64-pool, conv64, conv64-pool | "
            "conv128, conv128, conv128-pool, linear1024, linear1024",
        ),
    ],
    ids=str,
)
def test_auto_picks_by_the_shape_and_says_what(
    shape: tuple[int, ...], description: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="sharp_engine"):
        architecture = resolve_architecture(ArchitectureConfig(), shape)
    assert architecture.describe() == description
    assert description in caplog.text
    build(architecture, 0.4, "possible", 1, shape, torch.Generator(), CPU)  # and it can be built


def test_auto_asks_for_a_backbone_where_images_are_large() -> None:
    for shape in ((3, 65, 64), (1, 20, 224)):
        with pytest.raises(ConfigError, match=f"{shape[1]}×{shape[2]}.*backbone"):
            resolve_architecture(ArchitectureConfig(), shape)


def test_a_learner_says_what_it_is_made_of() -> None:
    learner = Learner(mlp(cut=0))
    learner.learn_episode(*examples((0, 1)))
    assert learner.inspect().architecture == "mlp for 6: replay of inputs | linear10, linear12, linear10"


def _settled(kind: ArchitectureKind, shape: tuple[int, ...]) -> Architecture:
    return resolve_architecture(ArchitectureConfig(kind), shape)


def test_the_papers_networks_have_the_papers_sizes() -> None:
    small = build(
        _settled("conv-small", (1, 28, 28)),
        0.4,
        "possible",
        1,
        (1, 28, 28),
        torch.Generator(),
        CPU,
    )
    assert [tuple(layer.weight.shape) for layer in small.layers] == [
        (16, 1, 3, 3), (16, 16, 3, 3), (500, 16 * 7 * 7), (500, 500)
    ]  # fmt: skip
    assert small.cut == 2 and small.cut_shape == (16, 7, 7)
    large = build(
        _settled("vgg-small", (3, 32, 32)),
        0.4,
        "possible",
        1,
        (3, 32, 32),
        torch.Generator(),
        CPU,
    )
    assert [layer.units for layer in large.layers] == [64, 64, 64, 64, 128, 128, 128, 1024, 1024]
    assert large.cut == 4 and large.cut_shape == (64, 8, 8) and large.layers[7].weight.shape[1] == 128 * 4 * 4


# ---- a fresh network --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("density", [0.01, 0.4, 0.77, 1.0])
def test_every_layer_but_a_first_convolution_keeps_its_share_of_connections(density: float) -> None:
    for config, shape in ((convnet(density=density), IMAGE), (mlp(density=density), VECTOR)):
        learner = Learner(config)
        learner.build(shape)
        for index, layer in enumerate(learner.network.layers):
            full = index == 0 and layer.kind == "conv"
            wanted = layer.mask.numel() if full else round(density * layer.mask.numel())
            assert int(layer.mask.sum()) == layer.connections == wanted and layer.shortfall == 0
            assert not bool(layer.bias.any()) and not bool(layer.ranks.any())
        check_density(learner.network)


def check_kaiming_normal(layer: Layer, units: Tensor, fan_in: FanIn) -> None:
    weight, mask = layer.weight[units], layer.mask[units]
    counted = mask.sum(1) if fan_in == "existing" else torch.full((len(mask),), mask.shape[1])
    drawn = (weight.flatten(1) * (counted * weight[0, 0].numel() / 2.0).sqrt()[:, None]).view_as(weight)[mask]
    assert float(drawn.std()) == pytest.approx(1.0, rel=0.05) and abs(float(drawn.mean())) < 0.05
    assert not bool(weight[~mask].any())


@pytest.mark.parametrize("fan_in", ["possible", "existing"])
def test_fresh_weights_are_kaiming_normal(fan_in: FanIn) -> None:
    shape = (3, 32, 32)
    network = build(_settled("vgg-small", shape), 0.4, fan_in, 1, shape, torch.Generator(), CPU)
    for layer in network.layers:
        check_kaiming_normal(layer, torch.ones(layer.units, dtype=torch.bool), fan_in)


@pytest.mark.parametrize("fan_in", ["possible", "existing"])
def test_idle_units_are_drawn_anew_like_fresh_ones_and_no_others(fan_in: FanIn) -> None:
    shape = (3, 32, 32)
    network = build(_settled("vgg-small", shape), 0.2, fan_in, 1, shape, torch.Generator(), CPU)
    for layer in network.layers:
        layer.ranks[::4] = 2
        layer.mask[1::4] = True
        layer.mask[2] = False
    kept = [layer.weight[::4].clone() for layer in network.layers]
    reinitialise_idle(network, fan_in, torch.Generator().manual_seed(1))
    for layer, weight in zip(network.layers, kept, strict=True):
        check_kaiming_normal(layer, layer.ranks == 0, fan_in)
        assert torch.equal(layer.weight[::4], weight)


def test_a_linear_layer_behind_a_convolution_is_connected_from_its_channels() -> None:
    learner = Learner(convnet())
    learner.build((1, 9, 13))
    layer = learner.network.layers[2]
    assert layer.positions == 2 * 3 and layer.weight.shape == (12, 5 * 6)
    learner.network.layers[1].ranks = torch.tensor([7, 0, 3, 0, 1], dtype=torch.int32)
    assert learner.network.connection_source_ranks(2).tolist() == [7] * 6 + [0] * 6 + [3] * 6 + [0] * 6 + [1] * 6


@pytest.mark.parametrize("shape", [(1, 4, 4), (2, 5, 9), (3, 17, 4), (1, 7, 7)], ids=str)
def test_odd_sizes_are_learned(shape: tuple[int, ...]) -> None:
    learner = trained(convnet(), ((0, 1), (2, 0)), shape, each=8)
    check_path_property(learner.network)
    assert learner.network.cut_shape == (5, shape[1] // 4, shape[2] // 4)


@pytest.mark.parametrize("shape", [(1, 3, 9), (3, 1, 1)], ids=str)
def test_images_of_which_nothing_is_left_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match=r"too small.*layer"):
        Learner(convnet()).build(shape)


@pytest.mark.parametrize("shape", [(1,), (1, 1, 1), (2, 3, 1)], ids=str)
def test_the_smallest_inputs_are_vectors_like_others(shape: tuple[int, ...]) -> None:
    learner = trained(mlp(density=1.0, layers=(linear(20), linear(20))), ((0, 1),), shape, each=8)
    assert learner.inspect().episodes == 1


def test_what_does_not_fit_together_is_refused() -> None:
    for config, shape, message in (
        (ArchitectureConfig("conv-small"), (6,), r"not \(6,\)"),
        (ArchitectureConfig("vgg-small"), (6,), r"not \(6,\)"),
        (ArchitectureConfig("mlp", layers=(linear(3), linear(3)), cut=2), (6,), "2 of 2 layers"),
        (ArchitectureConfig("mlp", layers=(linear(3),), cut=0, pretrained="x"), (6,), "not 0"),
    ):
        with pytest.raises(ConfigError, match=message):
            resolve_architecture(config, shape)
    with pytest.raises(ConfigError, match="layer 0 is a convolution"):
        Learner(change(mlp(), layers=(conv(3), linear(3)))).build((6,))


def test_representations_come_from_a_linear_layer() -> None:
    with pytest.raises(ConfigError, match="layers"):
        ArchitectureConfig("conv-small", layers=(conv(4), conv(4)))


def test_a_cut_follows_the_layers_where_none_is_given() -> None:
    assert resolve_architecture(ArchitectureConfig("conv-small", layers=(conv(3), linear(3))), IMAGE).cut == 1
    assert resolve_architecture(ArchitectureConfig("vgg-small"), (3, 32, 32)).cut == 4
    assert resolve_architecture(ArchitectureConfig("mlp"), (6,)).cut == 1


def test_an_input_shape_in_the_config_is_binding() -> None:
    learner = Learner(change(mlp(), input_shape=(6,)))
    assert learner.architecture is not None and len(learner.inspect().layers) == 3
    with pytest.raises(ShapeError, match=r"\(6,\), not \(5,\)"):
        learner.observe(torch.rand(3, 5), [0, 0, 0])


# ---- normalisation ----------------------------------------------------------------------------------------------


def test_inputs_are_scaled_shifted_and_divided_per_channel() -> None:
    config = ArchitectureConfig(mean=(0.5, 0.25), std=(0.5, 2.0))
    normalise = Normaliser(config, (2, 3, 3), CPU)
    raw = torch.full((4, 2, 3, 3), 255, dtype=torch.uint8)
    out = normalise(raw)
    assert out.dtype == torch.float32
    assert bool((out[:, 0] == 1.0).all()) and bool((out[:, 1] == 0.375).all())
    assert torch.equal(normalise(torch.ones(4, 2, 3, 3)), out)
    assert int(raw.min()) == 255  # the caller's own is left alone


def test_one_mean_and_deviation_serve_all_channels() -> None:
    x = torch.rand(4, 3, 2, 2)
    out = Normaliser(ArchitectureConfig(mean=(0.5,), std=(0.25,)), (3, 2, 2), CPU)(x)
    torch.testing.assert_close(out, (x - 0.5) / 0.25)
    vectors = torch.rand(4, 5)
    torch.testing.assert_close(Normaliser(ArchitectureConfig(mean=(0.5,)), (5,), CPU)(vectors), vectors - 0.5)
    assert torch.equal(Normaliser(ArchitectureConfig(), (5,), CPU)(vectors), vectors)


@pytest.mark.parametrize(("name", "values"), [("mean", (0.1, 0.2)), ("std", (1.0, 1.0, 1.0, 1.0))])
def test_means_and_deviations_must_be_one_or_one_per_channel(name: str, values: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError, match=f"{name} must have one value or 3, not {len(values)}"):
        Normaliser(ArchitectureConfig(**{name: values}), (3, 2, 2), CPU)  # type: ignore[arg-type]


def test_a_learner_normalises_what_it_learns_and_what_it_is_asked() -> None:
    x, y = examples((0, 1), IMAGE, each=8)
    plain, shifted = Learner(convnet()), Learner(convnet(mean=(0.5,), std=(0.5,)))
    plain.learn_episode((x - 0.5) / 0.5, y)
    shifted.learn_episode(x, y)
    for one, other in zip(plain.network.layers, shifted.network.layers, strict=True):
        assert torch.equal(one.weight, other.weight)
    assert shifted.predict(x).labels == plain.predict((x - 0.5) / 0.5).labels


# ---- a backbone -------------------------------------------------------------------------------------------------

PHOTO = (3, 32, 32)


def with_backbone(layer: str = "layer1", weights: str | None = None, **options: Any) -> LearnerConfig:
    backbone = BackboneConfig("resnet18", layer, weights, in_snapshots=options.pop("in_snapshots", True))
    layers = options.pop("layers", (linear(20), linear(16)))
    architecture = ArchitectureConfig("backbone", layers=layers, backbone=backbone, **options)
    return change(mlp(), architecture=architecture)


def weights_of(learner: Learner) -> dict[str, Tensor]:
    assert learner.preprocessor.backbone is not None
    return {name: value.clone() for name, value in learner.preprocessor.backbone.state_dict().items()}


@pytest.mark.parametrize(
    ("layer", "layers", "cut", "shapes"),
    [
        ("layer1", (linear(20), linear(16)), None, [(64, 8, 8), (20,), (16,)]),
        ("layer2", (conv(6, pool=True), linear(20)), 1, [(128, 4, 4), (6, 2, 2), (20,)]),
        ("avgpool", (), None, [(512, 1, 1), (1000,), (1000,)]),
        ("flatten", (linear(8),), 0, [(512,), (8,)]),
    ],
)
def test_a_backbone_is_cut_at_a_named_layer(layer: str, layers: Any, cut: int | None, shapes: Any) -> None:
    learner = Learner(with_backbone(layer, layers=layers, cut=cut))
    learner.build(PHOTO)
    assert learner.network.shapes == shapes
    assert learner.inspect().architecture.startswith("backbone for 3×32×32: ")


def test_a_backbone_is_frozen_and_stays_in_evaluation_mode() -> None:
    learner = trained(with_backbone(), ((0, 1),), PHOTO, each=8)
    before, network = weights_of(learner), learner.network.copy()
    learner.learn_episode(*examples((2, 3), PHOTO, each=8, seed=1))
    learner.learn_episode(*examples((0, 4), PHOTO, each=8, seed=2))
    after = weights_of(learner)
    assert before.keys() == after.keys() and len(before) > 10
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert learner.preprocessor.backbone is not None and not learner.preprocessor.backbone.training
    assert not any(parameter.requires_grad for parameter in learner.preprocessor.backbone.parameters())
    check_frozen(network, learner.network)
    x, _ = examples(range(5), PHOTO, each=1)
    assert len(learner.predict(x)) == 5


def test_a_backbone_without_weights_has_the_same_random_ones_every_time_and_leaves_global_ones_alone() -> None:
    state = torch.get_rng_state()
    one, other = Learner(with_backbone()), Learner(change(with_backbone(), seed=9))
    for learner in (one, other):
        learner.build(PHOTO)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(a, b) for a, b in zip(weights_of(one).values(), weights_of(other).values(), strict=True))


@pytest.mark.parametrize("suffix", [".safetensors", ".pth", ".pt"])
def test_weights_of_a_backbone_come_from_a_local_file(suffix: str, tmp_path: Path) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        model = models.resnet18(weights=None).eval()
    path = tmp_path / f"weights{suffix}"
    if suffix == ".safetensors":
        save_file(model.state_dict(), path)
    else:
        torch.save(model.state_dict(), path)
    learner = Learner(with_backbone(weights=str(path)))
    learner.build(PHOTO)
    x, _ = examples((0,), PHOTO, each=2)
    with torch.no_grad():
        stem = model.maxpool(model.relu(model.bn1(model.conv1(x))))
        wanted = model.layer1(stem)
    torch.testing.assert_close(learner.preprocessor(x), wanted)


def test_a_backbone_that_cannot_be_is_refused_by_name(tmp_path: Path) -> None:
    def backbone(model: str = "resnet18", layer: str = "layer1", weights: str | None = None) -> LearnerConfig:
        config = ArchitectureConfig("backbone", backbone=BackboneConfig(model, layer, weights))
        return change(mlp(), architecture=config)

    other = tmp_path / "other.safetensors"
    save_file({"conv1.weight": torch.zeros(3, 3)}, other)
    text = tmp_path / "text.pth"
    text.write_text("no weights")
    values = tmp_path / "values.pt"
    torch.save([1, 2], values)
    for config, message in (
        (backbone(model="resnet0"), "resnet0"),
        (backbone(model="fcn_resnet50"), "fcn_resnet50"),
        (backbone(layer="layer9"), "layer9"),
        (backbone(weights="IMAGENET9000"), "IMAGENET9000"),
        (backbone(weights=str(tmp_path / "absent.pth")), "absent.pth"),
        (backbone(weights=str(other)), "other.safetensors.*do not fit"),
        (backbone(weights=str(text)), "cannot read weights.*text.pth"),
        (backbone(weights=str(values)), "values.pt does not hold"),
    ):
        learner = Learner(config)
        with pytest.raises(ConfigError, match=message):
            learner.build(PHOTO)
        assert learner.architecture is None
    with pytest.raises(ConfigError, match=r"\(6,\)"):
        Learner(backbone()).build((6,))


def test_weights_are_never_unpickled_into_anything_but_tensors(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "sprung",))

    path = tmp_path / "trap.pth"
    torch.save({"weight": Trap()}, path)
    with pytest.raises(ConfigError, match="trap.pth"):
        Learner(with_backbone(weights=str(path))).build(PHOTO)
    assert not (tmp_path / "sprung").exists()


def test_a_snapshot_carries_the_backbone_or_its_checksum(tmp_path: Path) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(6)
        weights = models.resnet18(weights=None).state_dict()
    path = tmp_path / "weights.safetensors"
    save_file(weights, path)
    inside = trained(with_backbone(weights=str(path)), ((0, 1),), PHOTO, each=8)
    outside = trained(with_backbone(weights=str(path), in_snapshots=False), ((0, 1),), PHOTO, each=8)
    for learner, name in ((inside, "inside"), (outside, "outside")):
        learner.save(tmp_path / name)
        check_same(Learner.load(tmp_path / name), learner)
    assert (tmp_path / "inside").stat().st_size > 2 * (tmp_path / "outside").stat().st_size
    weights["conv1.weight"] += 1.0
    save_file(weights, path)
    with pytest.raises(SnapshotError, match="not the ones"):
        Learner.load(tmp_path / "outside")
    path.unlink()
    with pytest.raises(SnapshotError, match="weights.safetensors"):
        Learner.load(tmp_path / "outside")
    loaded = Learner.load(tmp_path / "inside")  # needs no file
    for learner in (loaded, inside):
        learner.learn_episode(*examples((2, 3), PHOTO, each=8, seed=3))
    check_same(loaded, inside)


# ---- a pretrained G ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("pretrained") / "g.safetensors"
    pretrain(*examples(range(20, 26), IMAGE, each=20), path, convnet(), epochs=2)
    return str(path)


def test_pretraining_learns_and_tells(tmp_path: Path) -> None:
    told: list[tuple[int, float]] = []
    report = pretrain(
        *examples(range(4), IMAGE, each=20),
        tmp_path / "g",
        convnet(),
        epochs=8,
        observer=lambda epoch, loss: told.append((epoch, loss)),
    )
    assert [epoch for epoch, _ in told] == list(range(1, 9)) and tuple(loss for _, loss in told) == report.losses
    assert report.losses[-1] < report.losses[0]


def test_pretraining_is_the_same_for_a_seed(tmp_path: Path) -> None:
    data = examples(range(4), IMAGE, each=10)
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        pretrain(*data, tmp_path / name, convnet(seed=seed), epochs=1)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() != (tmp_path / "c").read_bytes()


@pytest.mark.parametrize("m", [0, 1, 2])
@pytest.mark.parametrize("device", DEVICES)
def test_a_pretrained_g_never_changes(pretrained: str, m: int, device: str) -> None:
    from sharp_engine.network.backbone import read_weights

    learner = Learner(convnet(pretrained=pretrained, replayed_episodes=m, device=device))
    learner.build(IMAGE)
    weights = read_weights(Path(pretrained))
    for number, classes in enumerate(((0, 1), (2, 3), (4, 0))):
        learner.learn_episode(*examples(classes, IMAGE, seed=number))
        check_path_property(learner.network)
        check_density(learner.network)
        for index, layer in enumerate(learner.network.g):
            assert torch.equal(layer.weight.cpu(), weights[f"{index}.weight"])
            assert torch.equal(layer.bias.cpu(), weights[f"{index}.bias"])
            assert bool((layer.ranks == HIGHEST_RANK).all()) and bool(layer.mask.all()) and bool(layer.frozen.all())
    assert any(int(rank) >= 2 for rank in learner.network.layers[-1].ranks)
    seen = learner.inspect().layers
    assert all(layer.density == 1.0 and layer.states["frozen"] == layer.units for layer in seen[:2])


def test_a_pretrained_learner_goes_on_from_its_snapshot_without_the_file(pretrained: str, tmp_path: Path) -> None:
    path = tmp_path / "g.safetensors"
    path.write_bytes(Path(pretrained).read_bytes())
    learner = trained(convnet(pretrained=str(path)), ((0, 1), (2, 3)), IMAGE)
    learner.save(tmp_path / "learner")
    path.unlink()
    loaded = Learner.load(tmp_path / "learner")
    check_same(loaded, learner)
    for each in (loaded, learner):
        each.learn_episode(*examples((4, 5), IMAGE, seed=6))
    check_same(loaded, learner)
    check_same(copy_of(loaded), loaded)


def test_a_pretrained_file_that_does_not_fit_is_refused(pretrained: str, tmp_path: Path) -> None:
    wider = (conv(9, pool=True), conv(5, pool=True), linear(12), linear(10))
    for config, shape, message in (
        (convnet(pretrained=pretrained, layers=wider), IMAGE, r"layer 0 needs weight of shape \(9, 1, 3, 3\)"),
        (convnet(pretrained=pretrained), (3, 8, 8), r"\(4, 3, 3, 3\), found \(4, 1, 3, 3\)"),
        (convnet(cut=3, pretrained=pretrained), IMAGE, "layer 2 needs weight.*found nothing"),
        (convnet(pretrained=str(tmp_path / "absent.safetensors")), IMAGE, "absent.safetensors"),
    ):
        learner = Learner(config)
        with pytest.raises(ConfigError, match=message):
            learner.build(shape)
        assert learner.architecture is None


# ---- a pretrained G and a learned metric ------------------------------------------------------------------------


def in_front(pretrained: str, **options: Any) -> LearnerConfig:
    return convnet(pretrained=pretrained, metric=METRIC, holdout=0.2, **options)


@pytest.mark.parametrize("device", DEVICES)
def test_what_a_pretrained_g_answers_are_stable_features(pretrained: str, device: str) -> None:
    learner = Learner(in_front(pretrained, device=device))
    learner.build(IMAGE)
    network = Learner(convnet(pretrained=pretrained, device=device))
    network.build(IMAGE)
    x, _ = examples((0, 1), IMAGE, each=5)
    h = network.network.run(network.preprocessor(x), 0, network.network.cut).flatten(1)
    learner.learn_episode(x, [0] * 5 + [1] * 5)
    assert learner.preprocessor.scale is not None
    torch.testing.assert_close(learner.preprocessor(x), learner.preprocessor.scale(h))
    assert learner.architecture is not None and learner.architecture.cut == 0
    assert learner.inspect().architecture.endswith("pretrained conv4-pool, conv5-pool | linear12, linear10")


def test_with_a_pretrained_g_the_very_first_example_can_be_taught(pretrained: str) -> None:
    learner = Learner(in_front(pretrained))
    for label in range(3):
        x, y = examples((label,), IMAGE, each=1, noise=0.0)
        learner.teach(x, y)
        check_taught(learner, x, y)
    check_same(copy_of(learner), learner)
    for number, classes in enumerate(((0, 1), (2, 3), (4, 0))):
        learner.learn_episode(*examples(classes, IMAGE, seed=number))
    x, y = examples(range(5), IMAGE, each=10, seed=9)
    assert np.mean([a == b for a, b in zip(learner.predict(x).labels, y, strict=True)]) > 0.8


def test_a_pretrained_g_in_front_travels_with_the_snapshot(pretrained: str, tmp_path: Path) -> None:
    path = tmp_path / "g.safetensors"
    path.write_bytes(Path(pretrained).read_bytes())
    learner = trained(in_front(str(path)), ((0, 1), (2, 3)), IMAGE)
    learner.save(tmp_path / "learner")
    path.unlink()
    loaded = Learner.load(tmp_path / "learner")
    check_same(loaded, learner)
    for each in (loaded, learner):
        each.learn_episode(*examples((4, 5), IMAGE, seed=6))
    check_same(loaded, learner)
    x, _ = examples(range(6), IMAGE, each=3, seed=7)
    assert (loaded.predict(x).share == learner.predict(x).share).all()
    with pytest.raises(ConfigError, match="pretrained"):
        learner.reconfigure(learner.config.with_options({"architecture.pretrained": None}))


def test_a_snapshot_whose_pretrained_g_does_not_fit_is_refused(pretrained: str, tmp_path: Path) -> None:
    trained(in_front(pretrained), ((0, 1),), IMAGE).save(tmp_path / "learner")
    with safe_open(tmp_path / "learner", framework="pt") as file:
        tensors, description = {n: file.get_tensor(n) for n in file.keys()}, json.loads(file.metadata()["learner"])  # noqa: SIM118
    assert {"backbone.0.weight", "backbone.0.bias", "backbone.1.weight", "backbone.1.bias"} <= set(tensors)
    weight = tensors["backbone.1.weight"]
    for other in (None, weight[:, :2], weight + 1.0, weight * torch.nan):
        forged_tensors = {n: t for n, t in tensors.items() if n != "backbone.1.weight"}
        if other is not None:
            forged_tensors["backbone.1.weight"] = other.contiguous()
        with pytest.raises(SnapshotError):
            Learner.load(forged(tmp_path, forged_tensors, description))


def test_auto_picks_the_layers_that_were_pretrained_and_large_answers_are_pooled(tmp_path: Path) -> None:
    config = preset("default").with_options({"device": "cpu"})
    x, y = examples((0, 1), (3, 32, 32), each=2)
    pretrain(x, y, tmp_path / "g.safetensors", config, epochs=1)
    learner = Learner(config.with_options({"architecture.pretrained": str(tmp_path / "g.safetensors")}))
    learner.build((3, 32, 32))
    assert learner.architecture is not None and learner.architecture.kind == "vgg-small"
    assert [layer.units for layer in learner.architecture.layers] == [1024, 1024]
    assert learner.network.shapes[0] == (64 * 6 * 6,)


def test_pretraining_refuses_what_it_cannot_use(tmp_path: Path) -> None:
    x, y = examples((0, 1), IMAGE, each=4)
    with pytest.raises(ConfigError, match="cut"):
        pretrain(x, y, tmp_path / "g", convnet(cut=0))
    with pytest.raises(LabelError, match="8 examples but 7 labels"):
        pretrain(x, y[:7], tmp_path / "g", convnet())
    with pytest.raises(NonFiniteError):
        pretrain(x * torch.nan, y, tmp_path / "g", convnet())
    assert list(tmp_path.iterdir()) == []


# ---- devices ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
def test_a_learner_computes_where_it_is_told_to(device: str) -> None:
    learner = trained(convnet(device=device), ((0, 1),), IMAGE, each=8)
    assert learner.device.type == device
    for layer in learner.network.layers:
        assert {t.device.type for t in (layer.weight, layer.bias, layer.mask, layer.ranks)} == {device}


def test_auto_is_a_device_that_exists() -> None:
    assert resolve_device("auto").type == DEVICES[-1 if len(DEVICES) == 1 else 1]


@pytest.mark.parametrize("name", ["nowhere", "cuda:77", "", "cpu:x"])
def test_a_device_that_does_not_exist_is_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigError, match=repr(name)):
        Learner(mlp(device=name))
