"""Learners from their snapshots alone: for a journal that is lost, or damaged beyond repair.

What was learned comes back as the newest sound snapshot holds it, under the versions of before; classes
that were forgotten stay so. What had not been learned yet was in the journal only, and is lost with it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path

from sharp_engine import Learner, SharpError
from sharp_engine.config import to_dict
from sharp_server.storage.data_folder import SUFFIX, DataFolder, origin_and_version, sha256_of
from sharp_server.storage.manifest import read_manifest
from sharp_server.storage.records import FoundLearner, FoundSnapshot, Manifest

log = logging.getLogger(__name__)


LabelKindOf = Callable[[bytes], str | None]
"""The kind of labels that a stored configuration (sharp.v1.LearnerConfig) asks for."""


def find(folder: DataFolder, label_kind_of: LabelKindOf) -> tuple[list[FoundLearner], list[Path]]:
    """The learners in the folder of snapshots, and folders that are none. Loads every snapshot: not on the loop."""
    found: list[FoundLearner] = []
    unknown_folders: list[Path] = []
    names: set[str] = set()
    for path in sorted(path for path in folder.snapshots.iterdir() if path.is_dir()):
        learner = _look(path, names, label_kind_of)
        if learner is None:
            unknown_folders.append(path)
            continue
        names.add(learner.manifest.name)
        found.append(learner)
    return found, unknown_folders


def _look(path: Path, taken: set[str], label_kind_of: LabelKindOf) -> FoundLearner | None:
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
        settings = json.dumps({**to_dict(inside.config), "device": "cpu"})
        manifest = Manifest(f"recovered-{path.name[:12]}", "", settings, path.stat().st_mtime)
        log.warning("a learner without a name came back as %s", manifest.name)
    shape = json.loads(manifest.settings)["architecture"]["input_shape"]
    if inside is not None and inside.architecture is not None:
        shape = list(inside.architecture.input_shape)
    return FoundLearner(
        path.name,
        manifest,
        tuple(sorted(snapshots, key=lambda snapshot: (snapshot.created, snapshot.name))),
        json.dumps(shape) if shape is not None else None,
        (inside.labels.kind if inside is not None else None) or label_kind_of(bytes.fromhex(manifest.config)),
        tuple(label for _, label in inside.labels.pairs()) if inside is not None else (),
    )


def _open(file: Path, origin: str, version: int) -> tuple[FoundSnapshot, Learner | None]:
    stat = file.stat()
    facts = (file.name.removesuffix(SUFFIX), origin, version, stat.st_mtime, stat.st_size, sha256_of(file))
    try:
        learner = Learner.load(file, device="cpu")
    except SharpError:
        return FoundSnapshot(*facts), None  # whoever takes it up finds it damaged, and says so
    return FoundSnapshot(*facts, learner.episodes, learner.inspect().classes, True), learner
