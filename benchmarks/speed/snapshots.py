"""Saving and loading a learner against writing (flushed to disk) and reading the same bytes."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from benchmarks.speed.timing import Comparison, in_turns
from sharp_engine import Learner


def measure(name: str, learner: Learner, *, rounds: int) -> list[Comparison]:
    """Save and load of one learner."""
    with tempfile.TemporaryDirectory() as folder:
        path, plain = Path(folder) / "learner.safetensors", Path(folder) / "bytes"
        learner.save(path)
        content = path.read_bytes()

        def write() -> None:
            with plain.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())

        write()
        size = f"{len(content) / 1e6:.1f} MB"
        saved = in_turns(lambda: learner.save(path), write, rounds=rounds, least_seconds=0.0)
        loaded = in_turns(
            lambda: Learner.load(path, device=str(learner.device)), plain.read_bytes, rounds=rounds, least_seconds=0.0
        )
    return [
        Comparison(f"{name}, {size}: save", "call", *saved),
        Comparison(f"{name}, {size}: load", "call", *loaded),
    ]
