"""Where a learner computes, settled once from its config, and the two ways between there and the host.

Whoever waits for an accelerator stops it from working ahead, so copies to it are pinned and run beside other work, and
what comes back comes in one piece. On a CPU nothing is copied.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from sharp_engine.errors import ConfigError

_SHARES_MEMORY = ("cpu", "mps")
"""Devices for which nothing need be pinned."""


def resolve_device(name: str) -> torch.device:
    """`auto` is cuda, else mps, else cpu; anything else is a torch device that must exist here."""
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ConfigError(f"device {name!r} cannot be used: {str(error).splitlines()[0]}") from None
    return device


def upload(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor on the device, without waiting for what runs there: from the CPU, by way of pinned memory."""
    if device.type in _SHARES_MEMORY or tensor.device.type != "cpu" or not tensor.numel():
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def download(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors of one device on the CPU, by name: waits for the device once, however many they are."""
    if all(tensor.device.type == "cpu" for tensor in tensors.values()):
        return dict(tensors)
    # The widest first, so that each begins at a multiple of its own width.
    names = sorted(tensors, key=lambda name: -tensors[name].element_size())
    flat = [tensors[name].contiguous().view(-1).view(torch.uint8) for name in names]
    parts = torch.cat(flat).cpu().split([len(part) for part in flat])
    found = {
        name: part.view(tensors[name].dtype).view(tensors[name].shape) for name, part in zip(names, parts, strict=True)
    }
    return {name: found[name] for name in tensors}
