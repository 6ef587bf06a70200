"""Files of learners that are another server's leave the cache, but for what serves here."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from sharp_server.cluster.cached_files import CachedFiles
from sharp_server.runtime.threads import BackgroundThread
from sharp_server.storage.data_folder import DataFolder
from sharp_server.storage.version_files import VersionFiles


def test_only_what_serves_here_stays_of_learners_that_are_another_servers(tmp_path: Path) -> None:
    folder, thread = DataFolder(tmp_path / "data"), BackgroundThread()
    folder.acquire()
    files = VersionFiles(folder, cast("Any", None), None, thread)
    old = time.time() - 100
    written = [folder.snapshot(uid, name) for uid in ("own", "taken", "followed", "lost") for name in ("v1", "v2")]
    written += [folder.work / f"{uid}-1-0001-ab.safetensors" for uid in ("own", "lost")]
    written.append(folder.snapshot("new", "v1"))
    for path in written:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
        if "new" not in path.parts:
            os.utime(path, (old, old))
    manifest = folder.of_learner("lost") / "learner.json"
    manifest.write_text("{}")
    os.utime(manifest, (old, old))

    parts = SimpleNamespace(thread=thread, files=files, registry=[SimpleNamespace(uid="own")])
    owned = SimpleNamespace(is_untaken=lambda uid: uid == "taken")
    followed = SimpleNamespace(file_of=lambda uid: folder.snapshot(uid, "v2") if uid == "followed" else None)
    cached = CachedFiles(cast("Any", parts), cast("Any", owned), cast("Any", followed))
    assert asyncio.run(cached.sweep(seconds_kept=50.0)) == 4
    gone = [path for path in written if not path.exists()]
    assert gone == [
        folder.snapshot("followed", "v1"),
        folder.snapshot("lost", "v1"),
        folder.snapshot("lost", "v2"),
        folder.work / "lost-1-0001-ab.safetensors",
    ]
    assert manifest.exists()
    thread.close()
    folder.release()
