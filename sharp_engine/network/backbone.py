"""A torchvision classification model, cut at a named layer and frozen, as the pretrained front of G."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from sharp_engine.config import BackboneConfig
from sharp_engine.errors import ConfigError


def build_backbone(
    config: BackboneConfig, device: torch.device, state: Mapping[str, Tensor] | None = None
) -> nn.Module:
    """The model up to the named layer, in evaluation mode, without gradients. `state` replaces its weights."""
    from torchvision import models

    if config.model not in models.list_models(module=models):
        raise ConfigError(f"torchvision has no classification model {config.model!r}")
    if state is not None:
        return _frozen(_from_state(config, state), device)
    local = _local_file(config.weights)
    named = config.weights if local is None else None
    try:
        # A fixed seed: random weights must be the same ones whenever the learner is built.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = models.get_model(config.model, weights=named)
    except (ValueError, KeyError) as error:
        raise ConfigError(f"weights {config.weights!r} are neither a file nor known to torchvision: {error}") from None
    if local is not None:
        _load(model, read_weights(local), str(local))
    return _frozen(_cut(model, config), device)


def _from_state(config: BackboneConfig, state: Mapping[str, Tensor]) -> nn.Module:
    """The model with the weights of a snapshot. It takes no memory before they are seen to be its own."""
    from torchvision import models

    with torch.device("meta"):
        extractor = _cut(models.get_model(config.model, weights=None), config)
    _load(extractor, state, "the snapshot", assign=True)
    if any(tensor.is_meta for tensor in (*extractor.parameters(), *extractor.buffers())):
        # Some models compute tables that no state holds: those are made with the model, which is known to fit by now.
        extractor = _cut(models.get_model(config.model, weights=None), config)
        _load(extractor, state, "the snapshot")
    return extractor


def _cut(model: nn.Module, config: BackboneConfig) -> nn.Module:
    from torchvision.models.feature_extraction import create_feature_extractor

    try:
        extractor: nn.Module = create_feature_extractor(model, {config.layer: "features"})
    except ValueError as error:
        raise ConfigError(f"{config.model} has no layer {config.layer!r}: {error}") from None
    return extractor


def _frozen(extractor: nn.Module, device: torch.device) -> Backbone:
    backbone = Backbone(extractor).to(device).eval()
    for parameter in backbone.parameters():
        parameter.requires_grad_(False)
    return backbone


class Backbone(nn.Module):
    """Gives the features of the named layer, and stays in evaluation mode."""

    def __init__(self, extractor: nn.Module) -> None:
        super().__init__()
        self.extractor = extractor

    def forward(self, x: Tensor) -> Tensor:
        """Features: (n, …)."""
        features: Tensor = self.extractor(x)["features"]
        return features if features.ndim in (2, 4) else features.flatten(1)


def feature_shape(backbone: nn.Module, input_shape: tuple[int, ...], device: torch.device) -> tuple[int, ...]:
    """Shape of one example behind the backbone."""
    try:
        with torch.no_grad():
            return tuple(backbone(torch.zeros(1, *input_shape, device=device)).shape[1:])
    except (RuntimeError, AssertionError, ValueError) as error:
        raise ConfigError(f"the backbone does not take inputs of shape {input_shape}: {error}") from None


def checksum(state: Mapping[str, Tensor]) -> str:
    """SHA-256 over names and values of a model's state."""
    digest = hashlib.sha256()
    for name in sorted(state):
        digest.update(name.encode())
        digest.update(state[name].cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def read_weights(path: Path) -> dict[str, Tensor]:
    """Weights from a .safetensors file, or a .pt/.pth file of plain tensors (nothing else is ever unpickled)."""
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, SafetensorError, RuntimeError, ValueError, EOFError) as error:
        raise ConfigError(f"cannot read weights from {path}: {error}") from None
    except Exception as error:  # torch.load raises pickle's own errors, of many types
        raise ConfigError(f"cannot read weights from {path}: {type(error).__name__}: {error}") from None
    if not isinstance(loaded, dict) or not all(isinstance(value, Tensor) for value in loaded.values()):
        raise ConfigError(f"{path} does not hold a plain table of tensors")
    return loaded


def _local_file(weights: str | None) -> Path | None:
    if weights is None:
        return None
    path = Path(weights)
    if path.suffix in (".safetensors", ".pt", ".pth") and not path.is_file():
        raise ConfigError(f"no such file of weights: {weights}")
    return path if path.is_file() else None


def _load(model: nn.Module, state: Mapping[str, Tensor], source: str, assign: bool = False) -> None:
    try:
        model.load_state_dict(dict(state), assign=assign)
    except RuntimeError as error:
        raise ConfigError(f"the weights of {source} do not fit the backbone: {error}") from None
