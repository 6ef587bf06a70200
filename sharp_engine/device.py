"""Where a learner computes: settled once, from its config."""

from __future__ import annotations

import torch

from sharp_engine.errors import ConfigError


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
