"""A folder that fills with images, as from a webcam: labelled ones are learned, the others are named.

    incoming/cup/0001.png          learned as "cup" and moved to learned/cup/
    incoming/unlabelled/0002.png   named, and moved to named/<label>/

    python examples/folder_watcher.py incoming          # looks every second, until Ctrl-C
    python examples/folder_watcher.py incoming --once   # one look at what is there

Whatever was labelled since the last look makes an episode, as soon as it has a pair of images of one class; new labels
may come at any time. Files should arrive whole: written elsewhere, then renamed. A file is moved only when the server
has it on disk, so nothing is lost if this program or the server is stopped.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from sharp_client import Client, Learner, LearnerExistsError, NothingLearnedError

UNLABELLED = "unlabelled"
SUFFIXES = {".png", ".jpg", ".jpeg"}
LOOK_SECONDS = 1.0
NOVEL = 0.95
"""Novelty from which on we say that an image is unlike everything learned."""


def images(folder: Path) -> list[Path]:
    """The images in a folder, oldest name first."""
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES) if folder.is_dir() else []


def learn_new(learner: Learner, incoming: Path, wait: bool) -> None:
    """Teach what was labelled since the last look."""
    labels = [folder.name for folder in incoming.iterdir() if folder.is_dir() and folder.name != UNLABELLED]
    files = [(path, label) for label in sorted(labels) for path in images(incoming / label)]
    if max(Counter(label for _, label in files).values(), default=0) < 2:
        return
    with learner.learn() as stream:
        stream.send([path for path, _ in files], [label for _, label in files], resize=True)
        report = stream.end_episode()
        stream.flush()  # durable: from here on the server remembers
        for path, label in files:
            move(path, incoming.parent / "learned" / label)
        print(f"{len(files)} images to learn", flush=True)
        if wait:
            report.wait()


def name_new(learner: Learner, incoming: Path) -> None:
    """Name what is unlabelled."""
    files = images(incoming / UNLABELLED)
    if not files:
        return
    try:
        answer = learner.predict(files, resize=True, novelty=True)
    except NothingLearnedError:
        return  # the first episode is still being learned: at the next look
    assert answer.novelties is not None
    for path, label, share, novelty in zip(files, answer.labels, answer.vote_shares, answer.novelties, strict=True):
        note = ", unlike everything learned" if novelty >= NOVEL else ""
        print(f"{path.name}: {label} ({share:.0%} of the vote{note})", flush=True)
        move(path, incoming.parent / "named" / str(label))


def move(path: Path, folder: Path) -> None:
    """Put a file away."""
    folder.mkdir(parents=True, exist_ok=True)
    path.replace(folder / path.name)


def main(arguments: Sequence[str] | None = None) -> None:
    """Look, learn, name; again and again, or once."""
    parser = argparse.ArgumentParser(description="Learn and name images that arrive in a folder.")
    parser.add_argument("incoming", type=Path)
    parser.add_argument("--address", default="localhost:50051")
    parser.add_argument("--learner", default="camera")
    parser.add_argument("--side", type=int, default=32, help="pixels to which the server resizes images")
    parser.add_argument("--once", action="store_true", help="one look, and wait until it is learned")
    options = parser.parse_args(arguments)
    with Client(options.address) as client:
        learner = client.learner(options.learner)
        try:
            learner.create(input_shape=(3, options.side, options.side))
        except LearnerExistsError:
            pass  # it continues with what it knows already
        while True:
            learn_new(learner, options.incoming, wait=options.once)
            name_new(learner, options.incoming)
            if options.once:
                return
            time.sleep(LOOK_SECONDS)


if __name__ == "__main__":
    main()
