"""SHARP, step by step as algorithm.md tells it: the whole masked network, loops instead of tricks, nothing reused.

It is slow and small, and meant to be compared with that page by eye. It draws the same random numbers in the same order
as the engine: where a draw has no place in the algorithm itself, a comment says what it is for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from sharp_engine import LearnerConfig

INPUT_RANK = 10**9


@dataclass
class Layer:
    """Weights, which connections exist, and a rank per unit."""

    kind: str
    pool: bool
    weight: Tensor
    bias: Tensor
    exists: list[list[bool]]
    """[unit][input]"""
    positions: int
    """Inputs that come from one source unit."""
    constant: int
    """Connections of the run."""
    ranks: list[int]
    owed: int = 0

    def std(self, unit: int, fan_in: str) -> float:
        """Of a unit's fresh weights, by Kaiming's rule."""
        connections = sum(self.exists[unit]) if fan_in == "existing" else len(self.exists[unit])
        return math.sqrt(2.0 / max(1, connections * self.weight[unit, 0].numel()))

    def existing(self) -> Tensor:
        """1 where a connection exists, in the shape of the weights."""
        one_or_zero = torch.tensor(self.exists, dtype=torch.float32)
        return one_or_zero[:, :, None, None].expand_as(self.weight) if self.kind == "conv" else one_or_zero


@dataclass
class Stored:
    """Short-term memory of one class."""

    label: int
    episode: int
    activations: list[Tensor]


@dataclass
class Remembered:
    """Long-term memory of one class."""

    label: int
    episode: int
    mask: list[bool]
    representations: list[Tensor]


class Reference:
    """A learner of integer classes."""

    def __init__(self, config: LearnerConfig, input_shape: tuple[int, ...]) -> None:
        self.config = config
        self.random = torch.Generator().manual_seed(config.seed)
        self.cut = config.architecture.cut or 0
        self.m = config.memory.replayed_episodes
        self.episode = 0
        self.stm: list[Stored] = []
        self.ltm: dict[int, Remembered] = {}
        self.layers: list[Layer] = []
        shape = input_shape
        for index, spec in enumerate(config.architecture.layers):
            positions = 1
            kernel: tuple[int, ...] = ()
            if spec.kind == "conv":
                inputs, kernel = shape[0], (3, 3)
                side = 2 if spec.pool else 1
                shape = (spec.units, shape[1] // side, shape[2] // side)
            else:
                for side in shape[1:]:
                    positions *= side
                inputs, shape = shape[0] * positions, (spec.units,)
            places = spec.units * inputs
            dense = index == 0 and spec.kind == "conv"
            constant = places if dense else round(config.architecture.density * places)
            exists = [[constant == places] * inputs for _ in range(spec.units)]
            if constant < places:
                for place in torch.randperm(places, generator=self.random)[:constant].tolist():
                    exists[place // inputs][place % inputs] = True
            layer = Layer(
                spec.kind, spec.pool, torch.zeros(spec.units, inputs, *kernel), torch.zeros(spec.units), exists,
                positions, constant, [0] * spec.units,
            )  # fmt: skip
            layer.weight = torch.empty_like(layer.weight).normal_(generator=self.random)
            for unit in range(spec.units):
                layer.weight[unit] *= layer.std(unit, config.architecture.fan_in)
            layer.weight = layer.weight * layer.existing()
            self.layers.append(layer)

    # ---- the network --------------------------------------------------------------------------------------------

    def responses(self, x: Tensor, first: int, last: int) -> tuple[list[Tensor], Tensor]:
        """ReLU outputs of every layer (before pooling), and what comes out at the end."""
        seen = []
        for layer in self.layers[first:last]:
            weight = layer.weight * layer.existing()
            if layer.kind == "conv":
                response = torch.relu(F.conv2d(x, weight, layer.bias, padding=1))
            else:
                response = torch.relu(F.linear(x.flatten(1), weight, layer.bias))
            seen.append(response)
            x = F.max_pool2d(response, 2) if layer.pool else response
        return seen, x

    def g(self, x: Tensor) -> Tensor:
        return self.responses(x, 0, self.cut)[1]

    def f(self, h: Tensor) -> Tensor:
        return self.responses(h, self.cut, len(self.layers))[1]

    def source_rank(self, index: int, place: int) -> int:
        """Rank of the unit that input `place` of a layer comes from."""
        if index == 0:
            return INPUT_RANK
        return self.layers[index - 1].ranks[place // self.layers[index].positions]

    def is_frozen(self, index: int, unit: int) -> bool:
        rank = self.layers[index].ranks[unit]
        return rank >= 2 if index < self.cut else rank > self.m + 1

    # ---- one episode --------------------------------------------------------------------------------------------

    def learn_episode(self, x: Tensor, y: list[int]) -> None:
        self.episode += 1
        training = self.config.training
        for phase in range(1, training.phases + 1):
            tau = max(training.tau_min, 0.5 * (1 + math.cos((phase + 1) / training.tau_period * math.pi)))
            sample = torch.randperm(len(y), generator=self.random)[: training.selection_examples]
            self.select(x[sample], tau)
            self.grow(self.drop())
            self.train(x, y)
        self.promote()
        self.fill_stm(x, y)
        self.write_ltm()
        for label in sorted(set(y)):
            torch.randperm(y.count(label), generator=self.random)  # examples on which novelty is calibrated
        self.purge()
        if not self.config.stream.blurry:
            self.reinitialise()

    def select(self, x: Tensor, tau: float) -> None:
        """Step 2."""
        with torch.no_grad():
            seen, _ = self.responses(x, 0, len(self.layers))
        for layer, response in zip(self.layers, seen, strict=True):
            activation = [response[:, unit].double().sum().item() for unit in range(len(layer.ranks))]
            total = sum(activation)
            units = sorted(range(len(layer.ranks)), key=lambda unit: -activation[unit])
            covered, chosen = 0.0, []
            if self.config.training.selection == "covered":
                covered = sum(activation[unit] for unit in units if layer.ranks[unit] >= 2)
                units = [unit for unit in units if layer.ranks[unit] < 2]
            for unit in units:
                if covered >= tau * total or activation[unit] == 0:
                    break
                covered += activation[unit]
                chosen.append(unit)
            for unit, rank in enumerate(layer.ranks):
                if rank < 2:
                    layer.ranks[unit] = 1 if unit in chosen else 0

    def drop(self) -> list[int]:
        """Step 3: how many connections went, per layer."""
        gone = [0] * len(self.layers)
        for index, layer in enumerate(self.layers):
            for unit, rank in enumerate(layer.ranks):
                for place in range(len(layer.exists[unit])):
                    if layer.exists[unit][place] and rank >= 1 and self.source_rank(index, place) == 0:
                        layer.exists[unit][place] = False
                        layer.weight[unit, place] = 0.0
                        gone[index] += 1
        return gone

    def grow(self, gone: list[int]) -> None:
        """Step 4."""
        for layer, lost in zip(self.layers, gone, strict=True):
            quota = lost + layer.owed
            if quota == 0:
                continue
            free = []
            for unit, rank in enumerate(layer.ranks):
                for place, exists in enumerate(layer.exists[unit]):
                    if rank == 0 and not exists:
                        free.append((unit, place))
            chosen = torch.randperm(len(free), generator=self.random)[:quota].tolist()
            for i in chosen:
                unit, place = free[i]
                layer.exists[unit][place] = True
                layer.weight[unit, place] = 0.0
            layer.owed = quota - len(chosen)

    def train(self, x: Tensor, y: list[int]) -> None:
        """Step 5."""
        training = self.config.training
        parameters, may_change = [], []
        for index, layer in enumerate(self.layers):
            free = torch.tensor([0.0 if self.is_frozen(index, unit) else 1.0 for unit in range(len(layer.ranks))])
            parameters += [layer.weight.requires_grad_(True), layer.bias.requires_grad_(True)]
            may_change += [layer.existing() * free.view(-1, *(1 for _ in layer.weight.shape[1:])), free]
        squares = [torch.zeros_like(p) for p in parameters]
        steps = [torch.zeros_like(p) for p in parameters]
        idle = [unit for unit, rank in enumerate(self.layers[-1].ranks) if rank == 0]
        for _ in range(training.epochs):
            for batch in torch.randperm(len(y), generator=self.random).split(training.batch_size):
                h = self.g(x[batch])
                labels = [y[i] for i in batch.tolist()]
                if self.stm:
                    replayed, replayed_labels = self.replay(len(batch))
                    h, labels = torch.cat((h, replayed)), labels + replayed_labels
                z = self.f(h)
                keep = torch.ones(z.shape[1])
                keep[idle] = 0.0
                loss = contrastive_loss(z * keep, labels, training.temperature)
                if training.anchor_losses == "sum":
                    loss = loss * sum(labels.count(label) > 1 for label in labels)
                gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
                with torch.no_grad():
                    for i, (parameter, gradient) in enumerate(zip(parameters, gradients, strict=True)):
                        if gradient is None:
                            continue
                        gradient = gradient * may_change[i]
                        # Adadelta, ρ = 0.9, ε = 1e-6
                        squares[i] = 0.9 * squares[i] + 0.1 * gradient**2
                        step = torch.sqrt(steps[i] + 1e-6) / torch.sqrt(squares[i] + 1e-6) * gradient
                        steps[i] = 0.9 * steps[i] + 0.1 * step**2
                        parameter -= training.learning_rate * step
        for layer in self.layers:
            layer.weight, layer.bias = layer.weight.detach(), layer.bias.detach()

    def replay(self, n: int) -> tuple[Tensor, list[int]]:
        """n activations: the classes in a random order, again and again; of each class any example."""
        order = torch.randperm(len(self.stm), generator=self.random).tolist()
        dice = torch.rand(n, generator=self.random)
        chosen, labels = [], []
        for i in range(n):
            stored = self.stm[order[i % len(order)]]
            chosen.append(stored.activations[int(dice[i] * len(stored.activations))])
            labels.append(stored.label)
        return torch.stack(chosen), labels

    # ---- the end of an episode ----------------------------------------------------------------------------------

    def promote(self) -> None:
        """Step 6."""
        for layer in self.layers:
            layer.ranks = [rank + 1 if rank > 0 else 0 for rank in layer.ranks]

    @torch.no_grad()
    def fill_stm(self, x: Tensor, y: list[int]) -> None:
        """Step 7: the episode's classes have the whole capacity until step 9."""
        chosen = {}
        for label in sorted(set(y)):
            members = [i for i in range(len(y)) if y[i] == label]
            order = torch.randperm(len(members), generator=self.random).tolist()
            chosen[label] = [members[i] for i in order]
        counts = even_shares([len(chosen[label]) for label in chosen], self.config.memory.stm_capacity)
        self.stm = [stored for stored in self.stm if stored.label not in chosen]
        for label, count in zip(chosen, counts, strict=True):
            activations = [quantised(self.g(x[i : i + 1])[0]) for i in chosen[label][:count]]
            self.stm.append(Stored(label, self.episode, activations))

    @torch.no_grad()
    def write_ltm(self) -> None:
        """Step 8."""
        for stored in self.stm:
            age = self.episode - stored.episode
            mask = [rank >= 2 + age for rank in self.layers[-1].ranks]
            representations = []
            for h in stored.activations[: self.config.memory.ltm_per_class]:
                representations.append(self.f(h[None])[0])
            self.ltm[stored.label] = Remembered(stored.label, stored.episode, mask, representations)

    def purge(self) -> None:
        """Step 9; a rest that cannot be shared evenly goes to the newest."""
        kept = [stored for stored in self.stm if stored.episode > self.episode - self.m]
        newest_first = sorted(kept, key=lambda stored: -stored.episode)
        counts = even_shares([len(stored.activations) for stored in newest_first], self.config.memory.stm_capacity)
        for stored, count in zip(newest_first, counts, strict=True):
            stored.activations = stored.activations[:count]
        self.stm = [stored for stored in kept if stored.activations]

    def reinitialise(self) -> None:
        """Step 10."""
        fan_in = self.config.architecture.fan_in
        for layer in self.layers:
            idle = [unit for unit, rank in enumerate(layer.ranks) if rank == 0]
            if not idle:
                continue
            fresh = torch.empty(layer.weight[idle].shape).normal_(generator=self.random)
            for row, unit in enumerate(idle):
                for place, exists in enumerate(layer.exists[unit]):
                    if exists:
                        layer.weight[unit, place] = fresh[row, place] * layer.std(unit, fan_in)
                layer.bias[unit] = 0.0

    # ---- prediction ---------------------------------------------------------------------------------------------

    @torch.no_grad()
    def predict(self, x: Tensor) -> list[int]:
        return [self.vote(self.f(self.g(example[None]))[0]) for example in x]

    def vote(self, z: Tensor) -> int:
        """The k nearest memories vote; a tie goes to the class with the nearest one."""
        distances = []
        for memory in self.ltm.values():
            mask = torch.tensor(memory.mask)
            for stored in memory.representations:
                difference = unit_length(stored * mask) - unit_length(z * mask)
                distances.append((float((difference**2).sum()), memory.label))
        nearest = sorted(distances)[: self.config.prediction.neighbours]
        votes: dict[int, int] = {}
        for _, label in nearest:
            votes[label] = votes.get(label, 0) + 1
        return next(label for _, label in nearest if votes[label] == max(votes.values()))


def contrastive_loss(z: Tensor, labels: list[int], temperature: float) -> Tensor:
    """Equation 3, anchor by anchor."""
    z = torch.stack([unit_length(row) for row in z])
    losses = []
    for i in range(len(labels)):
        positives = [p for p in range(len(labels)) if p != i and labels[p] == labels[i]]
        others = [a for a in range(len(labels)) if a != i]
        if not positives:
            continue
        similarity = torch.mv(z, z[i]) / temperature
        log_share = similarity[positives] - torch.log(torch.exp(similarity[others]).sum())
        losses.append(-log_share.sum() / len(positives))
    return torch.stack(losses).mean() if losses else 0.0 * z.sum()


def unit_length(vector: Tensor) -> Tensor:
    """φ: a zero vector stays zero."""
    length = torch.sqrt((vector**2).sum())
    return vector / length if length.item() > 0 else vector


def quantised(h: Tensor) -> Tensor:
    """To 256 levels between the least and the largest value, and back."""
    low, high = h.min(), h.max()
    if low == high:
        return h
    codes = torch.round((h - low) / (high - low) * 255)
    return low + codes * ((high - low) / 255)


def even_shares(wanted: list[int], capacity: int) -> list[int]:
    """Capacity given out one by one, in turn, to those that still want."""
    got = [0] * len(wanted)
    while sum(got) < capacity and got != wanted:
        for i in range(len(wanted)):
            if got[i] < wanted[i] and sum(got) < capacity:
                got[i] += 1
    return got
