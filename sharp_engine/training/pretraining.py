"""Pretraining G on other data with the contrastive loss, as the paper does MNIST → EMNIST and CIFAR-10 → CIFAR-100.

The network is trained dense, without ranks or memories; only G's weights are kept. A learner made with
`architecture.pretrained` set to the file starts with that G, frozen, at the highest rank.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from sharp_engine.config import LearnerConfig
from sharp_engine.device import resolve_device, upload
from sharp_engine.errors import ConfigError, LabelError, NonFiniteLossError
from sharp_engine.inputs import as_examples
from sharp_engine.labels import LabelLike, Labels, as_labels
from sharp_engine.network.architecture import Normaliser, resolve_architecture
from sharp_engine.network.backbone import read_weights
from sharp_engine.network.compact import CompactNetwork
from sharp_engine.network.pretrained import fitting
from sharp_engine.network.state import HIGHEST_RANK, Network, build
from sharp_engine.training.loss import reduce_anchor_losses, supervised_contrastive_loss
from sharp_engine.training.optimiser import Adadelta


@dataclass(frozen=True)
class PretrainReport:
    """What pretraining came to."""

    losses: tuple[float, ...]
    """Mean loss of each epoch."""


def pretrain(
    x: object,
    y: LabelLike,
    path: str | Path,
    config: LearnerConfig,
    *,
    epochs: int = 10,
    observer: Callable[[int, float], None] | None = None,
) -> PretrainReport:
    """Train a dense network of the config's architecture on x, y and write its G to `path` (safetensors).

    `observer` gets (epoch, mean loss) after each epoch.
    """
    device = resolve_device(config.device)
    examples = as_examples(x, None)
    targets = Labels().ids(as_labels(y))
    if len(targets) != len(examples):
        raise LabelError(f"{len(examples)} examples but {len(targets)} labels")
    architecture = resolve_architecture(config.architecture, tuple(examples.shape[1:]))
    if architecture.cut == 0:
        raise ConfigError("there is no G to pretrain: cut must be at least 1, not 0")
    normalise = Normaliser(config.architecture, architecture.input_shape, device)
    generator = torch.Generator().manual_seed(config.seed)
    network = build(
        architecture, 1.0, "possible", config.memory.replayed_episodes, architecture.input_shape, generator, device
    )
    dense = CompactNetwork(
        network, [torch.ones(layer.units, dtype=torch.bool, device=device) for layer in network.layers]
    )
    parameters = [p.requires_grad_(True) for layer in dense.layers for p in (layer.weight, layer.bias)]
    optimiser = Adadelta(((parameter, None) for parameter in parameters), config.training.learning_rate)
    losses = []
    for epoch in range(1, epochs + 1):
        each: list[Tensor] = []
        for index in torch.randperm(len(examples), generator=generator).split(config.training.batch_size):
            if len(index) < 2:
                continue
            z = dense.f(dense.g(normalise(upload(examples[index], device))))
            y = upload(targets[index], device)
            loss = supervised_contrastive_loss(z, y, config.training.temperature)
            reduce_anchor_losses(loss, y, config.training.anchor_losses).backward()
            optimiser.step()
            each.append(loss.detach())
        losses.append(sum(torch.stack(each).tolist()) / len(each) if each else 0.0)
        if not torch.isfinite(torch.tensor(losses[-1])):
            raise NonFiniteLossError(f"the loss became {losses[-1]} in epoch {epoch}")
        if observer is not None:
            observer(epoch, losses[-1])
    tensors: dict[str, Tensor] = {}
    for index, layer in enumerate(dense.layers[: network.cut]):
        tensors[f"{index}.weight"] = layer.weight.detach().cpu().contiguous()
        tensors[f"{index}.bias"] = layer.bias.detach().cpu().contiguous()
    save_file(tensors, path)
    return PretrainReport(tuple(losses))


def freeze_pretrained(network: Network) -> None:
    """Make G what a pretrained one is: unpruned, frozen, at the highest rank."""
    for layer in network.g:
        layer.mask = torch.ones_like(layer.mask)
        layer.ranks = torch.full_like(layer.ranks, HIGHEST_RANK)
        layer.connections, layer.shortfall, layer.pretrained = layer.mask.numel(), 0, True


def load_pretrained(network: Network, path: str) -> None:
    """Put pretrained weights into G."""
    state = read_weights(Path(path))
    for index, layer in enumerate(network.g):
        for name in ("weight", "bias"):
            wanted = getattr(layer, name)
            setattr(layer, name, fitting(state, index, name, tuple(wanted.shape), path).to(wanted))
