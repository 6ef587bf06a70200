"""Every contestant on tiny streams of vectors, of images, and behind pretrained layers, in its own environment.

`make ring-check`; not part of `make test`, because the rivals' libraries live in an environment of their own.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
from rich.console import Console

from benchmarks.datasets import Dataset, Examples, synthetic
from benchmarks.ring.options import RingOptions
from benchmarks.ring.run import run
from benchmarks.ring.tables import ring_tables
from sharp_engine import preset, pretrain

LEAST = {"sgd": 0.2, "agem": 0.2, "fdr": 0.2, "sgd-classifier": 0.2, "der": 0.3, "er": 0.3}
"""Accuracy to reach by those that forget; others must know most."""


def main() -> int:
    """Run all three; 1 where anyone broke or knows nothing."""
    console = Console(width=200)
    wrong = []
    with tempfile.TemporaryDirectory(prefix="sharp-ring-check-") as folder:
        layers = _pretrained(Path(folder))
        for dataset, pretrained in ((_vectors(), None), (_images(), None), (_images(), layers)):
            options = RingOptions(dataset.name, Path(folder), classes_per_episode=2, memory=40, pretrained=pretrained)
            result = run(options, Path(folder) / options.slug, dataset=dataset)
            console.print(*ring_tables(result), sep="\n")
            wrong += [f"{name} broke: {reason}" for name, reason in result.failures.items()]
            for standing in result.standings:
                accuracy = standing.mean("accuracy") or 0.0
                if accuracy < LEAST.get(standing.entry.name, 0.5):
                    wrong.append(f"{standing.entry.name} on {options.slug}: {100 * accuracy:.1f} %")
    console.print(*wrong, sep="\n")
    return 1 if wrong else 0


def _vectors() -> Dataset:
    random = np.random.default_rng(0)
    centres = random.normal(size=(6, 16))

    def part(per_class: int) -> Examples:
        y = random.permutation(np.repeat(np.arange(6), per_class))
        return Examples((centres[y] + 0.5 * random.normal(size=(len(y), 16))).astype(np.float32), y)

    return Dataset("banking77", tuple("abcdef"), part(60), part(20), "made up")


def _images() -> Dataset:
    train, test = synthetic.images(4, 60, (1, 28, 28), seed=0), synthetic.images(4, 20, (1, 28, 28), seed=1)
    return Dataset("mnist", tuple("abcd"), train, test, "made up")


def _pretrained(folder: Path) -> str:
    """Layers that learned other patterns."""
    path, others = folder / "layers.safetensors", synthetic.images(6, 40, (1, 28, 28), first=4)
    pretrain(others.x, others.y, path, preset("mnist").with_options({"architecture.cut": 3}), epochs=5)
    return str(path)


if __name__ == "__main__":
    sys.exit(main())
