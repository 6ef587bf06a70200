"""How long idle units last: classes that come when none are left share units in use and are learned less well."""

from __future__ import annotations

from collections.abc import Sequence

from sharp_engine.network.state import Layer, Network

_FEW_EPISODES = 2
"""Where idle units last for fewer episodes than this, it is worth a warning."""


def episodes_left(layers: Sequence[Layer], learned: int) -> dict[str, int]:
    """By layer, for how many more episodes it has idle units, if each recruits as those so far did on average.

    Layers that are pretrained, or of which nothing is recruited yet, are left out.
    """
    left = {}
    for layer in layers:
        idle = int((layer.ranks == 0).sum())
        recruited = layer.units - idle
        if not layer.pretrained and learned and recruited:
            left[layer.name] = idle * learned // recruited
    return left


def scarce_units(before: Network, after: Network, learned: int) -> str | None:
    """What to say of a network after so many episodes, while there is still time, and only if it has become worse."""
    now = episodes_left(after.layers, learned)
    least = min(now.values(), default=_FEW_EPISODES)
    last = min(episodes_left(before.layers, learned - 1).values(), default=_FEW_EPISODES)
    if least >= min(last, _FEW_EPISODES):
        return None
    names = ", ".join(name for name, left in now.items() if left == least)
    rest = "one more episode" if least else "no other episode"
    return (
        f"the idle units of {names} last for {rest} at the present rate: classes that come later share units in use "
        "and are learned less well"
    )
