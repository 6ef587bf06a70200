"""The paper's presets make the same weights, bit for bit, as before there was a learned metric.

The fingerprints were computed by `python -m tests.engine.fingerprint` in commit bcd677a, the last one before it.
"""

from __future__ import annotations

import pytest

from sharp_engine import preset
from tests.engine.fingerprint import PAPER, arithmetic, fingerprint, sizes, tiny
from tests.engine.made import change
from tests.engine.test_reference import run_both

ARITHMETIC = "6ee02d0db32b7022"
"""How the machine rounds on which these were computed."""

BEFORE: dict[str, tuple[str, list[float]]] = {
    "mnist": (
        "25c34483ff55f98c7cc638338ea6a3e5495c6e254ec9d8495336bf0cf99f3d06",
        [3.3981, 3.1638, 5.2891, 4.7654],
    ),
    "fashion-mnist": (
        "e39c9ef80f00903e56830bc8bc7d3c8a7ad270b1963ceab5a4f674f784a2ac46",
        [3.3648, 2.5443, 5.5293, 5.0489],
    ),
    "emnist-letters": (
        "e4b642eab9727df89197b20a4eab931dd3f30403bd5f82452c20e6798a1b146d",
        [3.5038, 2.5511, 5.6377, 5.2666],
    ),
    "cifar10": (
        "6eb9f46945f9ab246eec3bfa100bab8424e13526d6ad0fa9825970d5032c3075",
        [3.8602, 3.4306, 3.3731, 5.4797, 4.6058],
    ),
    "cifar100": (
        "b189ac67303f0e4807b55f8d9b9d7da9e23f097f645c400461797bab9f14a99b",
        [3.4668, 3.624, 3.5626, 6.2118, 4.6465],
    ),
}
"""All tensors of the network as a fingerprint, and the length of each layer's weights."""


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_presets_make_the_same_weights_as_before(name: str) -> None:
    exact, lengths = BEFORE[name]
    if arithmetic() == ARITHMETIC:
        assert fingerprint(name) == exact
    else:  # another processor or torch rounds otherwise, and after hundreds of steps only so much is alike
        assert sizes(name) == pytest.approx(lengths, rel=0.02)


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_presets_learn_what_the_reference_learns(name: str) -> None:
    """The same on every machine: against the plain reference, with each preset's rules and fewer steps."""
    config = change(tiny(name), phases=2, epochs=1, mean=(), std=())
    assert config.architecture.input_shape is not None
    run_both(config, config.architecture.input_shape, each=6)


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_presets_have_no_learned_metric(name: str) -> None:
    config = preset(name)
    assert not config.metric.enabled and config.training.rest_after == 0 and config.architecture.kind != "dictionary"
