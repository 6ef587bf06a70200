"""Learners from their snapshots alone: for a journal that is lost, or damaged beyond repair.

What was learned comes back as the newest sound snapshot holds it, under the versions that were told before; classes
that were forgotten stay so. What had not been learned yet was in the journal only, and is lost with it.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sharp.v1 import learner_pb2
from sharp_engine import Learner, SharpError
from sharp_engine.config import to_dict
from sharp_server.learners import settings
from sharp_server.storage.data_folder import SUFFIX, DataFolder, origin_and_version, sha256_of
from sharp_server.storage.manifest import Manifest, read_manifest

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FoundSnapshot:
    """A file of a snapshot, and the learner in it if it is sound."""

    name: str
    origin: str
    version: int
    created: float
    size: int
    sha256: bytes
    episodes: int = 0
    held: tuple[Any, ...] = ()
    """Classes that its memories hold."""
    sound: bool = False


@dataclass(frozen=True)
class FoundLearner:
    """A folder of snapshots that is a learner."""

    uid: str
    manifest: Manifest
    snapshots: tuple[FoundSnapshot, ...]
    """In the order in which they were made."""
    input_shape: str | None
    """JSON."""
    label_kind: str | None
    labels: tuple[Any, ...]

    @property
    def head(self) -> FoundSnapshot | None:
        """The snapshot of the newest version; None: nothing was learned yet."""
        own = [snapshot for snapshot in self.snapshots if snapshot.origin != "imported"]
        return max(own, key=lambda s: (s.version, s.origin == "automatic", s.created), default=None)


def never_used(connection: sqlite3.Connection) -> bool:
    """Whether the journal has never had a learner: it is new, however full the folder beside it is."""
    return connection.execute("SELECT 1 FROM sqlite_sequence WHERE name = 'learners'").fetchone() is None


def find(folder: DataFolder) -> tuple[list[FoundLearner], list[Path]]:
    """The learners in the folder of snapshots, and folders that are none. Loads every snapshot: not on the loop."""
    found: list[FoundLearner] = []
    unknown_folders: list[Path] = []
    names: set[str] = set()
    for path in sorted(path for path in folder.snapshots.iterdir() if path.is_dir()):
        learner = _look(path, names)
        if learner is None:
            unknown_folders.append(path)
            continue
        names.add(learner.manifest.name)
        found.append(learner)
    return found, unknown_folders


def _look(path: Path, taken: set[str]) -> FoundLearner | None:
    snapshots: list[FoundSnapshot] = []
    newest: tuple[int, Learner] | None = None
    for file in path.glob(f"*{SUFFIX}"):
        # A name that is not ours was put here by someone: kept, and restored only on request.
        named = origin_and_version(file.name.removesuffix(SUFFIX)) or ("imported", 0)
        snapshot, learner = _open(file, *named)
        snapshots.append(snapshot)
        if learner is not None and snapshot.origin != "imported" and (not newest or snapshot.version >= newest[0]):
            newest = (snapshot.version, learner)
    inside = newest[1] if newest is not None else None
    manifest = read_manifest(path)
    if manifest is None or manifest.name in taken:
        if inside is None:
            return None
        words = json.dumps({**to_dict(inside.config), "device": "cpu"})
        manifest = Manifest(f"recovered-{path.name[:12]}", "", words, path.stat().st_mtime)
        log.warning("a learner without a name came back as %s", manifest.name)
    given = learner_pb2.LearnerConfig.FromString(bytes.fromhex(manifest.config))
    shape = json.loads(manifest.settings)["architecture"]["input_shape"]
    if inside is not None and inside.architecture is not None:
        shape = list(inside.architecture.input_shape)
    return FoundLearner(
        path.name,
        manifest,
        tuple(sorted(snapshots, key=lambda snapshot: (snapshot.created, snapshot.name))),
        json.dumps(shape) if shape is not None else None,
        (inside.labels.kind if inside is not None else None) or settings.label_kind(given),
        tuple(label for _, label in inside.labels.pairs()) if inside is not None else (),
    )


def _open(file: Path, origin: str, version: int) -> tuple[FoundSnapshot, Learner | None]:
    stat = file.stat()
    facts = (file.name.removesuffix(SUFFIX), origin, version, stat.st_mtime, stat.st_size, sha256_of(file))
    try:
        learner = Learner.load(file, device="cpu")
    except SharpError:
        return FoundSnapshot(*facts), None  # whoever takes it up finds it damaged, and says so
    held = tuple(learner.labels.label(memory.class_id) for memory in learner.ltm.classes)
    return FoundSnapshot(*facts, learner.episodes, held, True), learner


def enter(connection: sqlite3.Connection, found: list[FoundLearner]) -> None:
    """Write learners into a new journal. In the writer's transaction."""
    for learner in found:
        _enter(connection, learner)


def _enter(connection: sqlite3.Connection, learner: FoundLearner) -> None:
    manifest, head = learner.manifest, learner.head
    version = head.version if head is not None else 0
    learned = max((s.episodes for s in learner.snapshots if s.origin != "imported"), default=0)
    next_episode = max(version, learned) + 1
    row = connection.execute(
        "INSERT INTO learners (name, uid, config, settings, input_shape, label_kind, created, version, next_episode, "
        "next_class) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(manifest.name, learner.uid, bytes.fromhex(manifest.config), manifest.settings, learner.input_shape),
            *(learner.label_kind, manifest.created, version, next_episode, len(learner.labels)),
        ),
    ).lastrowid
    pairs = [(row, ordinal, json.dumps(label)) for ordinal, label in enumerate(learner.labels)]
    connection.executemany("INSERT INTO classes VALUES (?, ?, ?)", pairs)
    ids: dict[str, int] = {}
    for snapshot in learner.snapshots:
        # Counted from what the newest has learned: the versions before it are not in this journal.
        before = snapshot.episodes - learned
        ids[snapshot.name] = connection.execute(
            "INSERT INTO snapshots (learner, name, version, episodes, classes, origin, created, size, sha256, note, "
            "learned_before) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, '', ?)",
            (
                *(row, snapshot.name, snapshot.version, snapshot.episodes, json.dumps(snapshot.held)),
                *(snapshot.origin, snapshot.created, snapshot.size, snapshot.sha256, before),
            ),
        ).lastrowid or 0  # fmt: skip
    if head is not None:
        connection.execute("UPDATE learners SET head = ? WHERE id = ?", (ids[head.name], row))
    for label, names in manifest.forgotten.items():
        newest = max((ids[name] for name in names if name in ids), default=0)
        connection.execute("INSERT INTO forgotten VALUES (?, ?, ?)", (row, label, newest))
