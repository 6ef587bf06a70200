"""What must be true after kills. Everything that isn't is collected, none is judged away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open

from reliability.crash.clients import Answer, App
from reliability.crash.journal import JournalReader, account, journal_of
from reliability.crash.options import LEARNER, CrashOptions
from reliability.crash.stream import NumberedStream
from sharp_engine import Learner
from sharp_server.storage.data_folder import SUFFIX, sha256_of

_CLOSE = 1e-5
"""Distances of one version may differ by this: requests that come together are computed together."""


class Violations:
    """What did not hold, by the promise that it breaks."""

    PROMISES = (
        "every acknowledged batch was learned exactly once",
        "no unacknowledged batch was counted as learned",
        "no raw example was left behind",
        "every prediction came from a published version",
        "the learner equals, bit for bit, one without a kill",
        "every lesson that was answered is durable, once",
        "no class was answered after it was forgotten",
    )

    def __init__(self) -> None:
        self.found: dict[str, list[str]] = {promise: [] for promise in self.PROMISES}

    def add(self, promise: int, text: str) -> None:
        """Note one."""
        self.found[self.PROMISES[promise]].append(text)

    @property
    def total(self) -> int:
        """How many there are."""
        return sum(map(len, self.found.values()))


def _learner(journal: JournalReader) -> int:
    return int(journal.rows("SELECT id FROM learners WHERE name = ?", LEARNER)[0][0])


def _durable(journal: JournalReader, learner: int) -> int:
    rows = journal.rows("SELECT durable FROM streams WHERE learner = ?", learner)
    return int(rows[0][0]) if rows else 0


def _examples(journal: JournalReader, learner: int) -> Iterator[tuple[int, str, int, int]]:
    """(episode, its state, sequence, number in its batch) of every example that is part of an episode."""
    for episode, state, sequence, first, count in account(journal, learner):
        for number in range(first, first + count):
            yield episode, state, sequence, number


def at_death(
    data: Path,
    stream: NumberedStream,
    acknowledged: int,
    options: CrashOptions,
    found: Violations,
    lessons: int = 0,
    store: str = "",
) -> None:
    """What a killed server left: everything acknowledged is there, nothing twice, nothing from nowhere."""
    with journal_of(data, store) as journal:
        learner = _learner(journal)
        _check_lessons(journal, learner, lessons, found)
        durable = _durable(journal, learner)
        if durable < acknowledged:
            found.add(0, f"{acknowledged} was acknowledged, the killed server's disk has {durable}")
        _check_account(journal, learner, stream, durable, found)
        kept = {
            (sequence, first + i)
            for sequence, first, count in journal.rows(
                "SELECT sequence, first, count FROM batch_slices WHERE learner = ?", learner
            )
            for i in range(count)
        }
    for sequence in range(1, durable + 1):
        numbers = () if stream.is_mark(sequence) else range(options.examples)
        missing = [number for number in numbers if (sequence, number) not in kept]
        if missing:
            found.add(0, f"batch {sequence} is durable, but its examples {missing} are not on disk")


def _check_lessons(journal: JournalReader, learner: int, answered: int, found: Violations) -> None:
    """Lessons that were answered are known by their ids; one more may have been on its way."""
    known = journal.rows("SELECT count(*) FROM lessons WHERE learner = ?", learner)[0][0]
    if not answered <= known <= answered + 1:
        found.add(5, f"{answered} lessons were answered, the disk knows {known}")


def _check_account(
    journal: JournalReader, learner: int, stream: NumberedStream, durable: int, found: Violations
) -> None:
    counts: Counter[tuple[int, int]] = Counter()
    for episode, _, sequence, number in _examples(journal, learner):
        counts[sequence, number] += 1
        if sequence > durable:
            found.add(1, f"batch {sequence} is part of episode {episode}, but only {durable} was acknowledged")
        if episode != stream.episode_of(sequence):
            found.add(0, f"batch {sequence} became part of episode {episode}")
    found.found[found.PROMISES[0]] += [
        f"example {key} is {n} times in the account" for key, n in counts.items() if n > 1
    ]


def in_the_end(
    data: Path,
    stream: NumberedStream,
    acknowledged: int,
    options: CrashOptions,
    app: App,
    found: Violations,
    lessons: int = 0,
    store: str = "",
) -> int:
    """Everything that was acknowledged is learned once, and every answer was a version's. Returns examples learned."""
    with journal_of(data, store) as journal:
        learner = _learner(journal)
        _check_account(journal, learner, stream, acknowledged, found)
        _check_lessons(journal, learner, lessons, found)
        learned = Counter(
            (sequence, number) for _, state, sequence, number in _examples(journal, learner) if state == "learned"
        )
        for sequence in range(1, acknowledged + 1):
            for number in () if stream.is_mark(sequence) else range(options.examples):
                if learned[sequence, number] != 1:
                    times = learned[sequence, number]
                    found.add(0, f"example {number} of acknowledged batch {sequence} was learned {times} times")
        beyond = journal.rows(
            "SELECT count(*) FROM batch_slices WHERE learner = ? AND sequence > ?", learner, acknowledged
        )[0][0]
        if beyond:
            found.add(1, f"{beyond} parts of batches beyond {acknowledged} are in the journal")
        raw = journal.raw_parts()
        if raw:
            found.add(2, f"{raw} raw parts are in the journal though everything is learned")
        uid = journal.rows("SELECT uid FROM learners WHERE id = ?", learner)[0][0]
        versions = journal.rows("SELECT version, created, snapshot, sha256 FROM versions WHERE learner = ?", learner)
    _check_answers(data / "snapshots" / uid, versions, stream, app, found)
    return learned.total()


def _check_answers(
    folder: Path, versions: list[tuple[Any, ...]], stream: NumberedStream, app: App, found: Violations
) -> None:
    """Each answer is, label by label, what the published version of that number says of the same examples.

    With examples known beyond a version, before a kill and after it, as many of them give the same answer.
    """
    published = {version: (created, folder / (name + SUFFIX), digest) for version, created, name, digest in versions}
    for newer, older in app.backwards:
        found.add(3, f"version {older} answered after version {newer}")
    if published and app.nothing_learned > min(created for created, _, _ in published.values()) + 1.0:
        found.add(3, "the server said that it knows nothing after it had published a version")
    _check_beyond(app, found)
    for version in sorted({answer.version for answer in app.answers}):
        if not version:  # everything was taught since
            continue
        if version not in published:
            found.add(3, f"version {version} answered and was never published")
            continue
        created, path, digest = published[version]
        if app.first[version] < created:
            found.add(3, f"version {version} answered before it was published")
        if sha256_of(path) != digest:
            found.add(3, f"the snapshot of version {version} is not what was published")
            continue
        learner = Learner.load(path, device="cpu")
        truth = learner.predict(stream.probes(), novelty=False)
        for answer in (a for a in app.answers if a.version == version and not a.beyond):
            near = np.allclose(np.asarray(truth.distance), np.asarray(answer.distances), atol=_CLOSE)
            if tuple(map(str, truth.labels)) != answer.labels or not near or answer.episodes != learner.episodes:
                found.add(3, f"an answer of version {version} is not what that version says")


def _check_beyond(app: App, found: Violations) -> None:
    first: dict[tuple[int, int], Answer] = {}
    for answer in app.answers:
        other = first.setdefault((answer.version, answer.beyond), answer)
        near = np.allclose(answer.distances, other.distances, atol=_CLOSE, rtol=_CLOSE)
        if answer.labels != other.labels or not near:
            found.add(3, f"version {answer.version} with {answer.beyond} examples beyond it answered in two ways")


def compare(ours: Path, calm: Path, found: Violations) -> int:
    """Two exported snapshots are the same, tensor for tensor and word for word; returns how many tensors there are."""
    with safe_open(ours, framework="np") as one, safe_open(calm, framework="np") as other:
        names = sorted(one.keys())
        if names != sorted(other.keys()):
            found.add(4, "the two learners do not have the same tensors")
            return 0
        if one.metadata()["learner"] != other.metadata()["learner"]:
            found.add(4, "the two learners' descriptions differ")
        for name in names:
            left, right = one.get_tensor(name), other.get_tensor(name)
            if left.dtype != right.dtype or left.shape != right.shape or left.tobytes() != right.tobytes():
                found.add(4, f"tensor {name} differs")
        return len(names)
