"""The paper's presets make the same weights, bit for bit, as before there was a learned metric.

The fingerprints were computed by `python -m tests.engine.fingerprint` in commit bcd677a, the last one before it.
"""

from __future__ import annotations

import pytest

from sharp_engine import preset
from tests.engine.fingerprint import PAPER, arithmetic, fingerprint, first_sizes, tiny
from tests.engine.fixtures import change
from tests.engine.test_reference import run_both

BEFORE: dict[str, dict[str, str]] = {
    "6ee02d0db32b7022": {
        "mnist": "25c34483ff55f98c7cc638338ea6a3e5495c6e254ec9d8495336bf0cf99f3d06",
        "fashion-mnist": "e39c9ef80f00903e56830bc8bc7d3c8a7ad270b1963ceab5a4f674f784a2ac46",
        "emnist-letters": "e4b642eab9727df89197b20a4eab931dd3f30403bd5f82452c20e6798a1b146d",
        "cifar10": "6eb9f46945f9ab246eec3bfa100bab8424e13526d6ad0fa9825970d5032c3075",
        "cifar100": "b189ac67303f0e4807b55f8d9b9d7da9e23f097f645c400461797bab9f14a99b",
    },
    "a047983423c5b23b": {
        "mnist": "d06c2b7c90d4218e9e65c7676a75cc72e0fce31548af41f33851e135874c2d15",
        "fashion-mnist": "ae6e4b7560ad90e473fc514fe559701b042f5d360b7213abbe3598b7ec72d8c3",
        "emnist-letters": "cf2426cf0aeef822e0f61fcf7701e31b1922c85e6759701abc26acbaf7a5b118",
        "cifar10": "384b90fb1864080ce3f37ec6030066d183b5f1e607606178d267da9b20850a61",
        "cifar100": "b32950b5df3688a25f4ac3505e5e9b7737046d11bf2f3c2a474765cac0d391e7",
    },
}
"""All tensors of the network as a fingerprint, by how the machine rounds (`arithmetic`): an AMD EPYC, an Intel Xeon."""

FIRST_STEPS: dict[str, list[float]] = {
    "mnist": [3.1607, 3.0219, 6.6048, 3.7967],
    "fashion-mnist": [3.1614, 3.0230, 6.6054, 3.7944],
    "emnist-letters": [3.1607, 3.0219, 6.6048, 3.7967],
    "cifar10": [3.3975, 3.6992, 4.0576, 6.5370, 5.0694],
    "cifar100": [3.3983, 3.6989, 4.0533, 6.5601, 5.1551],
}
"""Lengths of every layer's weights after one phase of one epoch: no choice of units depends on rounding by then."""


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_presets_make_the_same_weights_as_before(name: str) -> None:
    assert first_sizes(name) == pytest.approx(FIRST_STEPS[name], rel=1e-3)
    exact = BEFORE.get(arithmetic())  # another processor or torch rounds otherwise, and in the end units are chosen so
    assert exact is None or fingerprint(name) == exact[name]


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
