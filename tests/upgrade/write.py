"""Writes the data folder that a release leaves behind, to be kept for the next one: small, with a bit of everything.

    git worktree add /tmp/release v0.2.0
    PYTHONPATH=/tmp/release:/tmp/release/{client,cli,server,proto} python tests/upgrade/write.py 0.2.0

It uses nothing but what a release promises: a server process and the client. It must run with the release's own code.
"""

from __future__ import annotations

import sys
import tarfile
import tempfile
import warnings
from pathlib import Path

import numpy as np

from devtools.server_process import ONE_THREAD, ServerProcess
from sharp_client import Client

KEPT = Path(__file__).parent
OPTIONS = {
    "architecture.layers": [{"kind": "linear", "units": 8}] * 2,
    "metric.random_features": 4,
    "training.phases": 1,
    "training.epochs": 1,
    "training.min_steps": 0,
}
LEARNER = "kept"
VALUES = 4


def examples(first: int, classes: int = 2, each: int = 12) -> tuple[np.ndarray, list[str]]:
    """Vectors around a corner of their own for each class; the same whenever it is called."""
    generator = np.random.default_rng(first)
    labels = [f"class-{first + i % classes}" for i in range(each * classes)]
    corners = [np.unpackbits(np.array([int(label[6:]) + 1], dtype=np.uint8))[-VALUES:] for label in labels]
    return (np.stack(corners) + 0.1 * generator.standard_normal((len(labels), VALUES))).astype(np.float32), labels


def write(folder: Path) -> None:
    """Two episodes learned, one lesson, a snapshot by hand, a batch that waits for its boundary."""
    with ServerProcess(folder, {"trainer.device": "cpu", "predictor.device": "cpu"}, environment=ONE_THREAD) as server:
        server.start()
        with Client(server.address) as client:
            learner = client.learner(LEARNER)
            learner.create(preset="default", overrides=OPTIONS)
            for number, first in enumerate((0, 2), 1):
                with learner.learn(stream_id=f"stream-{number}") as stream:
                    stream.send(*examples(first))
                    stream.end_episode().wait()
            learner.teach(examples(5, classes=1, each=1)[0], ["class-5"])
            learner.snapshot("by hand")
            with warnings.catch_warnings(action="ignore"), learner.learn(stream_id="open") as stream:
                stream.send(*examples(0, each=2))
                stream.flush()
        server.stop()


def main() -> None:
    """Write the folder of the release that is named, and keep it packed."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        with tarfile.open(KEPT / f"release-{sys.argv[1]}.tar.xz", "w:xz") as archive:
            archive.add(Path(folder) / "data", "data")


if __name__ == "__main__":
    main()
