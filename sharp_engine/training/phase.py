"""What one phase computes: the live units, fed by one another and by frozen units.

Within an episode neither a frozen unit nor any of its ancestors changes (the path property), so its output for an
example is computed once per episode and then only looked up. Only live units, of rank ≥ 1 and not frozen, are computed
and trained in every step. A live unit never feeds a frozen one, so once a layer has none, those before it are idle too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from sharp_engine.memory.short_term import Replay
from sharp_engine.network.compact import CompactLayer, indices, take
from sharp_engine.network.state import Layer, Network

_CHUNK = 128
"""Examples per forward while frozen outputs are computed: small ones stay near the processor."""


class FrozenOutputs:
    """Outputs of the frozen units for an episode's examples and for replay, layer by layer.

    Level i is what layer i sees: level 0 are features, level i the outputs of the frozen units of layer i − 1. Deep
    levels are kept first, within a number of bytes, once they are asked for; what does not fit is computed every time.
    """

    def __init__(
        self,
        network: Network,
        features: Callable[[Tensor], Tensor],
        examples: int,
        replay: Replay | None,
        most_bytes: int,
    ) -> None:
        self._features = features
        self._examples = examples
        self._replay = replay
        self._cut = network.cut
        device = network.device
        self.units = [torch.arange(network.shapes[0][0], device=device)]
        self._layers: list[CompactLayer] = []
        for layer in network.layers:
            self._layers.append(take(layer, indices(layer.frozen), self.units[-1]))
            self.units.append(self._layers[-1].units)
        self._kept: dict[int, Tensor] = {}
        self._replayed: dict[int, Tensor] = {}
        self._worth_keeping: set[int] = set()
        for level in range(len(self._layers), 0, -1):
            shape = network.shapes[level]
            size = 4 * examples * len(self.units[level]) * (shape[1] * shape[2] if len(shape) == 3 else 1)
            if size <= most_bytes:
                self._worth_keeping.add(level)
                most_bytes -= size

    def stream(self, level: int, index: Tensor) -> Tensor:
        """Of some of the episode's examples: (n, frozen units, …)."""
        if level in self._worth_keeping and level not in self._kept:
            every = torch.arange(self._examples, device=index.device)
            self._kept[level] = self._all(_channels_last(self._looked_up(level, part)) for part in every.split(_CHUNK))
        return self._looked_up(level, index)

    def _looked_up(self, level: int, index: Tensor) -> Tensor:
        """From what is kept, or computed from the deepest level below that is."""
        if level == 0:
            return self._features(index)
        if level in self._kept:
            return _channels_first(self._kept[level][index])
        return self._compute(level, self._looked_up(level - 1, index))

    def _all(self, parts: Iterator[Tensor]) -> Tensor:
        """Outputs for all examples, joined without holding them twice."""
        first = next(parts)
        every = first.new_empty(self._examples, *first.shape[1:])
        every[: len(first)] = first
        at = len(first)
        for part in parts:
            every[at : at + len(part)] = part
            at += len(part)
        return every

    def replayed(self, level: int, drawn: Tensor) -> Tensor:
        """Of some activations in short-term memory, from the cut on: (n, frozen units, …)."""
        return self._all_replayed(level)[drawn]

    def _all_replayed(self, level: int) -> Tensor:
        assert self._replay is not None
        if level not in self._replayed:
            if level == self._cut:
                self._replayed[level] = self._replay.h[:, self.units[level]]
            else:
                self._replayed[level] = self._compute(level, self._all_replayed(level - 1))
        return self._replayed[level]

    @torch.no_grad()
    def _compute(self, level: int, x: Tensor) -> Tensor:
        return self._layers[level - 1](x)


class LiveLayer:
    """The live units of one layer, fed by frozen units and by live ones.

    The two have weights of their own, so that no gradient is computed for the outputs of frozen units.
    """

    def __init__(self, layer: Layer, units: Tensor, frozen: Tensor, live: Tensor) -> None:
        """`frozen` and `live`: indices of the source units."""
        self._compact = take(layer, units, torch.cat((frozen, live)))
        sizes = [len(frozen) * layer.positions, len(live) * layer.positions]
        self._weights = [part.clone().requires_grad_(True) for part in self._compact.weight.split(sizes, dim=1)]
        self._existing = self._compact.connections().split(sizes, dim=1)
        self._bias = self._compact.bias.requires_grad_(True)

    @property
    def parameters(self) -> list[tuple[Tensor, Tensor | None]]:
        """Each with what its gradient is multiplied with, to keep absent connections at zero."""
        return [*zip(self._weights, self._existing, strict=True), (self._bias, None)]

    def __call__(self, frozen: Tensor | None, live: Tensor | None) -> Tensor:
        """Outputs, from those of the frozen and of the live units before; either may be missing, but not both."""
        total, bias = None, self._bias
        for x, weight in zip((frozen, live), self._weights, strict=True):
            if x is not None:
                part = self._compact.preactivation(x, weight, bias if total is None else None)
                total = part if total is None else total.add_(part)
        assert total is not None
        return self._compact.respond(total)

    def write_back(self) -> None:
        """Copy what was learned into the full network."""
        self._compact.weight = torch.cat(self._weights, dim=1)
        self._compact.write_back()


class LiveNetwork:
    """The units that a phase trains, as dense weights with gradient masks."""

    def __init__(self, network: Network, frozen: FrozenOutputs, replay: Replay | None) -> None:
        self._frozen = frozen
        self._cut = network.cut
        live = [indices((layer.ranks >= 1) & ~layer.frozen) for layer in network.layers]
        first = len(live)
        while first > 0 and len(live[first - 1]):
            first -= 1
        self._first = first
        """The first layer from which on every layer has live units."""
        self.layers: list[LiveLayer] = []
        sources = live[0][:0]
        self._replayed = None
        for index in range(first, len(live)):
            if index == self._cut and replay is not None:
                self._replayed = replay.h[:, sources]  # (N, live units before the cut, …)
            self.layers.append(LiveLayer(network.layers[index], live[index], frozen.units[index], sources))
            sources = live[index]
        self.parameters = [pair for layer in self.layers for pair in layer.parameters]

    def represent(self, index: Tensor, drawn: Tensor | None) -> Tensor:
        """z of stream examples, and of replayed activations behind them: (n + replayed, active output units)."""
        frozen, x = self._outputs(self._first, index, drawn), None
        for level, layer in enumerate(self.layers, self._first):
            if level == self._cut and drawn is not None and x is not None and self._replayed is not None:
                x = torch.cat((x, self._replayed[drawn]))
            x = layer(frozen, x)
            frozen = self._outputs(level + 1, index, drawn)
        outputs = [part for part in (frozen, x) if part is not None]
        return torch.cat(outputs, dim=1)

    def _outputs(self, level: int, index: Tensor, drawn: Tensor | None) -> Tensor | None:
        """Frozen outputs at a level, from the cut on of replay too; none where no unit is frozen, but for the first."""
        if level > self._first and not len(self._frozen.units[level]):
            return None
        stream = self._frozen.stream(level, index)
        if drawn is None or level < self._cut:
            return stream
        return torch.cat((stream, self._frozen.replayed(level, drawn)))

    def write_back(self) -> None:
        """Copy what was learned into the full network."""
        for layer in self.layers:
            layer.write_back()


def _channels_last(x: Tensor) -> Tensor:
    return x.permute(0, 2, 3, 1).contiguous() if x.ndim == 4 else x


def _channels_first(x: Tensor) -> Tensor:
    return x.permute(0, 3, 1, 2) if x.ndim == 4 else x
