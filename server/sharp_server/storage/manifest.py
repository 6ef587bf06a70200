"""What a learner's folder says of itself: name, configuration, and the classes that were forgotten or renamed.

The journal is what counts; this is a copy of what snapshots don't hold, written beside them whenever it changes and
read only if the journal is lost (see `recovery.py`). It never holds an example.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict
from pathlib import Path

from sharp_server.errors import disk_is_full
from sharp_server.storage.data_folder import MANIFEST, place
from sharp_server.storage.interface import Storage
from sharp_server.storage.records import LearnerRow, Manifest

log = logging.getLogger(__name__)


_KINDS = {"name": str, "created": float, "forgotten": dict, "renamed": list}


async def manifest_of(storage: Storage, row: LearnerRow) -> Manifest:
    """A learner's manifest from the journal."""
    snapshots = await storage.snapshots(row.id)
    forgotten = {
        label: [snapshot.name for snapshot in snapshots if snapshot.id <= newest]
        for label, newest in (await storage.forgotten(row.id)).items()
    }
    renamed = [
        (old, new, [snapshot.name for snapshot in snapshots if snapshot.id <= newest])
        for old, new, newest in await storage.renamed(row.id)
    ]
    return Manifest(row.name, row.config.hex(), row.settings, row.created, forgotten, renamed)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write it, whole or not at all; on a full disk it stays as it was, and the next start writes it."""
    path, text = folder / MANIFEST, json.dumps(asdict(manifest)) + "\n"
    temporary = path.with_name(f".{MANIFEST}.tmp")
    try:
        if path.exists() and path.read_text() == text:
            return
        temporary.write_text(text)
        place(temporary, path)
    except (OSError, UnicodeDecodeError) as error:
        if not disk_is_full(error):
            raise
        temporary.unlink(missing_ok=True)
        log.warning("%s: what the folder says of the learner could not be written: %s", manifest.name, error)


def read_manifest(folder: Path) -> Manifest | None:
    """Read it; None if there is none that can be used."""
    try:
        content = json.loads((folder / MANIFEST).read_text())
        found = Manifest(**content)
        bytes.fromhex(found.config)
        json.loads(found.settings)
    except (OSError, ValueError, TypeError):
        return None
    return found if all(isinstance(getattr(found, key), kind) for key, kind in _KINDS.items()) else None
