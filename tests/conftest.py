"""What every test shares: one thread per process, the same hypothesis examples on every run."""

from __future__ import annotations

import torch
from hypothesis import HealthCheck, settings

# One thread each: results do not depend on the machine's cores, and parallel tests do not fight for them.
torch.set_num_threads(1)

settings.register_profile(
    "repeatable",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=20,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("repeatable")
