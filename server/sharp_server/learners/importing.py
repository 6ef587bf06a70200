"""Taking in the file of a snapshot from anyone: arrival, checks, then one change of the learner.

Its size, checksum, header and configuration are looked at before the engine builds anything from it, and every file
gets a name of ours.
"""

from __future__ import annotations

import json
import math
import os
import re
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open

from sharp.v1 import learner_pb2
from sharp_engine import Learner, SharpError, SnapshotVersionError
from sharp_engine.config import from_dict, to_dict
from sharp_engine.snapshot import read_description
from sharp_server.config.model import ServerConfig
from sharp_server.errors import RpcError, redact
from sharp_server.learners.arrival import Chunks, receive
from sharp_server.learners.lifecycle import Lifecycle
from sharp_server.learners.names import learner_name
from sharp_server.learners.registry import Registry
from sharp_server.learners.restoring import Restoring, check_fit
from sharp_server.learners.served_learner import ServedLearner
from sharp_server.learners.snapshots import Snapshots, check_note
from sharp_server.learners.weights import folders_of_weights
from sharp_server.prediction.portable_config import without_paths
from sharp_server.runtime.server_state import ServerState
from sharp_server.runtime.threads import BackgroundThread
from sharp_server.storage.data_folder import DataFolder, new_name, place
from sharp_server.storage.records import NewSnapshot, SnapshotRow

_LARGEST_HEADER = 16 << 20


@dataclass(frozen=True)
class Offer:
    """A file that somebody offers."""

    learner: str
    size_bytes: int
    sha256: bytes
    """Empty: not given."""
    note: str
    restore: bool


@dataclass(frozen=True)
class Imported:
    """What taking it in came to."""

    served: ServedLearner
    snapshot: SnapshotRow
    version: int
    """Under which it serves; 0: it does not."""
    created: bool


class Importing:
    """Takes in snapshots."""

    def __init__(
        self,
        config: ServerConfig,
        folder: DataFolder,
        state: ServerState,
        registry: Registry,
        lifecycle: Lifecycle,
        restoring: Restoring,
        snapshots: Snapshots,
        thread: BackgroundThread,
    ) -> None:
        self._config, self._folder, self._state, self._registry = config, folder, state, registry
        self._lifecycle, self._restoring, self._snapshots, self._thread = lifecycle, restoring, snapshots, thread

    async def take_in(self, offer: Offer, chunks: Chunks) -> Imported:
        """Take in the file of a snapshot."""
        self._check(offer)
        arrival = self._folder.work / f".import-{os.urandom(8).hex()}.tmp"
        try:
            digest = await receive(chunks, arrival, offer.size_bytes, offer.sha256, _malformed, self._thread)
            learner = await self._thread.run_in_thread(self._checked, arrival)
            return await self._state.finish(self._adopt(offer, arrival, digest, learner))
        finally:
            await self._thread.run_in_thread(arrival.unlink, missing_ok=True)

    def _check(self, offer: Offer) -> None:
        limit = self._config.limits.snapshot_bytes
        learner_name(offer.learner, "header.learner")
        check_note(offer.note, "header.note")
        if offer.sha256 and len(offer.sha256) != 32:
            raise _invalid("header.sha256", "a SHA-256 has 32 bytes")
        if not offer.size_bytes:
            raise _invalid("header.size_bytes", "the size of the file is required")
        if offer.size_bytes > limit:
            message = f"the file has {offer.size_bytes} bytes, more than {limit}"
            raise RpcError("SNAPSHOT_TOO_LARGE", message, bytes=offer.size_bytes, limit=limit)

    def _checked(self, path: Path) -> Learner:
        """The learner in a stranger's file, or the refusal."""
        _check_whole(path)
        try:
            self._look_inside(path)
            learner = Learner.load(path, device=self._config.predictor.device)
        except SnapshotVersionError as error:
            message = _without_names(error, path)
            raise RpcError("SNAPSHOT_FORMAT_UNSUPPORTED", message, format=message) from None
        except (SharpError, SafetensorError, OSError, ValueError, MemoryError, RecursionError) as error:
            if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
                raise
            raise _malformed(_without_names(error, path)) from None
        if learner.running is not None:
            learner.abandon_episode()
        if learner.pending:
            raise _malformed("it holds raw examples")
        classes = len(learner.labels.pairs())
        if classes > self._config.limits.classes:
            limit = self._config.limits.classes
            raise RpcError("TOO_MANY_CLASSES", f"the snapshot has {classes} classes", limit=limit)
        return learner

    def _look_inside(self, path: Path) -> None:
        """What the engine can't know: which files it may name here, and how large examples may be."""
        with safe_open(path, framework="np") as file:
            entry = read_description(file.metadata() or {})
            carried = any(name.startswith("backbone.") for name in file.keys())  # noqa: SIM118 (not a dict)
        backbone = from_dict(entry.get("config")).architecture.backbone  # type: ignore[arg-type] # whatever it is
        if backbone is not None and not (carried and backbone.in_snapshots):
            self._check_file(backbone.weights)
        sides = entry.get("input_shape")
        if isinstance(sides, list) and all(isinstance(side, int) for side in sides):
            if math.prod(sides) > self._config.limits.example_values * 4:
                raise _malformed("its examples are larger than this server takes")

    def _check_file(self, name: str | None) -> None:
        if name is None:
            return
        # A name alone is one of torchvision's: were it a file, it would be read from wherever the server was started.
        known = re.fullmatch(r"[A-Za-z0-9_]+", name) and not Path(name).exists()
        if not known and not (Path(name).parent in folders_of_weights(self._config) and ".." not in name):
            message = "the snapshot needs a file of weights that this server does not have"
            raise RpcError("SNAPSHOT_INCOMPATIBLE", message, expected="weights of this server", found="other weights")

    async def _adopt(self, offer: Offer, arrival: Path, digest: bytes, learner: Learner) -> Imported:
        served, created = self._registry.find(offer.learner), False
        if served is None:
            served, created = await self._create(offer.learner, learner), True
        try:
            with served.change():
                check_fit(served, learner, "")
                row = await self._keep(served, offer, arrival, digest, learner)
                version = 0
                if created or offer.restore:
                    version = (await self._restoring.restore_row(served, row)).version
        except BaseException:
            if created:
                await self._lifecycle.delete(served)
            raise
        return Imported(served, row, version, created)

    async def _create(self, name: str, learner: Learner) -> ServedLearner:
        shape = learner.architecture.input_shape if learner.architecture is not None else None
        return await self._lifecycle.create_from(
            name,
            learner_pb2.LearnerConfig(preset="default", seed=learner.config.seed),
            json.dumps({**to_dict(without_paths(learner.config)), "device": "cpu"}),
            json.dumps(shape) if shape is not None else None,
            learner.labels.kind,
        )

    async def _keep(
        self, served: ServedLearner, offer: Offer, arrival: Path, digest: bytes, learner: Learner
    ) -> SnapshotRow:
        name = new_name(learner.episodes, "imported")
        target = self._folder.snapshot(served.uid, name)
        await self._thread.run_in_thread(place, arrival, target)
        new = NewSnapshot(
            learner=served.id,
            name=name,
            version=learner.episodes,
            episodes=learner.episodes,
            classes=json.dumps(learner.inspect().classes),
            origin="imported",
            size=offer.size_bytes,
            sha256=digest,
            note=offer.note,
        )
        return await self._snapshots.record(served, new, target)


def _check_whole(path: Path) -> None:
    """Whether the file begins as a safetensors file does, and is as long as its header says."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        head = file.read(min(length, _LARGEST_HEADER))
    if not head.startswith(b"{"):
        raise _malformed("it is no safetensors file at all")
    if length > _LARGEST_HEADER:
        raise _malformed("its header is longer than it may be")
    if len(head) < length:
        raise _malformed(f"it breaks off within its header, after {size} bytes")
    try:
        entries = json.loads(head)
        content = max((entry["data_offsets"][1] for key, entry in entries.items() if key != "__metadata__"), default=0)
        whole = 8 + length + int(content)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        raise _malformed("its header can't be read") from None
    if size < whole:
        raise _malformed(f"it breaks off: it has {size} bytes of {whole}")
    if size > whole:
        raise _malformed(f"it has {size - whole} bytes too many at its end")


def _invalid(field: str, message: str) -> RpcError:
    return RpcError("FIELD_INVALID", message, fields=(field,), field=field)


def _malformed(defect: str) -> RpcError:
    return RpcError("SNAPSHOT_MALFORMED", f"not a sound snapshot: {defect}", defect=defect)


def _without_names(error: BaseException, path: Path) -> str:
    text = redact(error).replace(path.name, "the file")
    return text if isinstance(error, SharpError) else f"it can't be read: {text}"
