"""The patch dictionary: what a convolution and box filters give is what unfolded patches give, for any image."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sharp_engine import ConfigError, DictionaryConfig, Learner, MetricConfig
from sharp_engine.network.dictionary import (
    CONTRAST_FLOOR,
    THRESHOLD,
    PatchDictionary,
    feature_count,
    learn_dictionary,
    patch_side,
)
from tests.engine.fixtures import DEVICES, DICTIONARY, IMAGE, change, examples, pictures, trained

SHAPES = [(1, 8, 8), (3, 9, 7), (2, 6, 12), (1, 3, 3), (1, 1, 1), (1, 1, 9), (4, 2, 5), (1, 28, 28)]


def images(shape: tuple[int, ...], count: int = 20, seed: int = 0) -> Tensor:
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(seed))


def dictionary_of(x: Tensor, **options: Any) -> PatchDictionary:
    import dataclasses

    return learn_dictionary(x, dataclasses.replace(DICTIONARY, **options), torch.Generator().manual_seed(1))


def unfolded(dictionary: PatchDictionary, x: Tensor) -> Tensor:
    """Features by unfolding every patch, normalising it and comparing it with every direction."""
    config, side = dictionary.config, dictionary.weight.shape[-1]
    assert config.grid is not None
    patches = F.unfold(x.double(), side)  # (n, values, positions)
    centred = patches - patches.mean(1, keepdim=True)
    normal = centred / (centred.square().mean(1, keepdim=True) + CONTRAST_FLOOR).sqrt()
    response = dictionary.weight.double().flatten(1) @ normal - dictionary.offset.double()[:, None]
    response = response.view(len(x), -1, x.shape[2] - side + 1, x.shape[3] - side + 1)
    both = torch.cat((F.relu(response - THRESHOLD), F.relu(-response - THRESHOLD)), dim=1)
    return F.adaptive_avg_pool2d(both, config.grid).flatten(1).sqrt()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_convolution_and_box_filters_are_the_unfolding_of_patches(shape: tuple[int, ...], device: str) -> None:
    x = images(shape)
    dictionary = dictionary_of(x.to(device))
    features = dictionary(x.to(device)).cpu()
    assert features.shape == (20, feature_count(DICTIONARY, shape[0])) == (20, 2 * 6 * 2 * 2)
    on_cpu = PatchDictionary(dictionary.weight.cpu(), dictionary.offset.cpu(), dictionary.config)
    torch.testing.assert_close(features.double(), unfolded(on_cpu, x), rtol=1e-3, atol=5e-3)


def test_images_are_described_alike_whatever_else_is_in_the_batch() -> None:
    x = images((1, 8, 8), 70)
    dictionary = dictionary_of(x)
    one_by_one = torch.cat([dictionary(row[None]) for row in x])
    torch.testing.assert_close(dictionary(x), one_by_one, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "x",
    [
        images((1, 8, 8), 1),
        torch.zeros(5, 1, 8, 8),
        torch.full((1, 3, 8, 8), 0.7),
        torch.linspace(0, 1, 4)[:, None, None, None].expand(4, 2, 6, 6),
        images((3, 6, 6)) * 1e4,
        images((1, 6, 6)) * 1e-4,
    ],
    ids=["one image", "black", "one gray", "constant ones", "loud", "faint"],
)
def test_whatever_the_images_features_are_finite(x: Tensor) -> None:
    dictionary = dictionary_of(x.contiguous())
    for probe in (x, torch.zeros_like(x), torch.rand(x.shape, generator=torch.Generator().manual_seed(2))):
        assert bool(torch.isfinite(dictionary(probe)).all())
    assert bool((dictionary.weight.flatten(1).norm(dim=1) > 0).all())


def test_brightness_and_contrast_of_an_image_hardly_matter() -> None:
    x = 100 * images((1, 8, 8))  # far above the floor that keeps flat patches flat
    dictionary = dictionary_of(x)
    torch.testing.assert_close(dictionary(x), dictionary(0.5 * x + 30), rtol=0.0, atol=0.02)


def test_a_dictionary_is_the_same_for_the_same_seed_and_knows_no_labels() -> None:
    x = images((1, 8, 8))
    assert torch.equal(dictionary_of(x).weight, dictionary_of(x).weight)


def test_patches_are_no_larger_than_images_and_sizes_follow_the_channels() -> None:
    config = DictionaryConfig(patch=6)
    assert patch_side(config, (1, 28, 28)) == 6 and patch_side(config, (3, 4, 9)) == 4
    gray, colour = config.for_channels(1), config.for_channels(3)
    assert (gray.atoms, gray.grid) != (None, None) and (colour.atoms, colour.grid) != (None, None)
    assert DictionaryConfig(atoms=7, grid=4).for_channels(3).atoms == 7
    assert feature_count(DictionaryConfig(atoms=7, grid=4), 3) == 2 * 7 * 16
    assert DictionaryConfig(patches=10).for_channels(1).atoms == 10


# ---- in a learner -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 9, 7), (1, 5, 12), (3, 2, 2)], ids=str)
def test_images_of_any_size_are_learned_gray_or_coloured(shape: tuple[int, ...]) -> None:
    config = pictures(metric=MetricConfig(enabled=True, random_features=30))
    learner = trained(config, ((0, 1), (2, 3)), shape, each=30)
    x, y = examples(range(4), shape, each=10, seed=99)
    answers = learner.predict(x).labels
    assert sum(a == b for a, b in zip(answers, y, strict=True)) >= 0.75 * len(y)
    assert learner.inspect().architecture.startswith("dictionary")
    assert learner.inspect().features_bytes > 0


def test_bytes_and_floats_of_the_same_images_are_the_same_features() -> None:
    learner = trained(pictures(), ((0, 1),), IMAGE)
    x = (images(IMAGE) * 255).to(torch.uint8)
    torch.testing.assert_close(learner.preprocessor(x), learner.preprocessor(x.float() / 255.0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("each", [1, 2, 25])
def test_the_first_episode_may_have_any_number_of_images_and_classes(each: int) -> None:
    for classes in ((0,), (0, 1, 2)):
        learner = Learner(pictures())
        learner.learn_episode(*examples(classes, IMAGE, each=each))
        weight = learner.preprocessor.dictionary
        learner.learn_episode(*examples((3, 4), IMAGE, each=10, seed=2))
        assert learner.preprocessor.dictionary is weight  # it never changes again
        assert set(learner.inspect().classes) == {*classes, 3, 4}


def test_constant_images_are_learned_without_a_fault() -> None:
    learner = Learner(pictures())
    learner.learn_episode(torch.zeros(30, *IMAGE), [0] * 15 + [1] * 15)
    answer = learner.predict(torch.zeros(3, *IMAGE))
    assert set(answer.labels) <= {0, 1} and bool(torch.isfinite(torch.from_numpy(answer.share)).all())


def test_a_dictionary_needs_images_and_a_learned_metric() -> None:
    with pytest.raises(ConfigError, match="images"):
        Learner(pictures()).learn_episode(*examples((0, 1)))
    with pytest.raises(ConfigError, match="metric.enabled"):
        Learner(change(pictures(), metric=MetricConfig())).learn_episode(*examples((0, 1), IMAGE))
