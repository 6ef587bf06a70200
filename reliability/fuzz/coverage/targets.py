"""What is fuzzed: each target takes bytes, calls a reader with them, and lets pass only the reader's own refusals.

Checksums are mended or left out where a fuzzer could never guess them: what lies behind them is what is to be reached.
"""

from __future__ import annotations

import sqlite3
import struct
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import DecodeError

from reliability.fuzz import pictures, seeds
from sharp.v1 import label_pb2, tensor_pb2
from sharp_engine import Learner, LearnerConfig, SnapshotError, snapshot
from sharp_engine.config import ArchitectureConfig, LayerConfig, MetricConfig, TrainingConfig
from sharp_server.api.decode.images import image_examples
from sharp_server.api.decode.labels import labels_of
from sharp_server.api.decode.tensors import tensor_examples
from sharp_server.config.model import LimitsConfig
from sharp_server.errors import RpcError
from sharp_server.learners.inputs import InputSpec
from sharp_server.storage.interface import UnsupportedFormatError
from sharp_server.storage.records import Arrival, NewLearner
from sharp_server.storage.repair import wal
from sharp_server.storage.sqlite import learners, lessons, schema, streams

_LIMITS = LimitsConfig(image_pixels=1 << 16)
_SHAPES = (None, (seeds.FEATURES,), (1, 8, 8), (3, 8, 8))
_IMAGES = ("PNG", "JPEG", "WEBP", "BMP")


@dataclass(frozen=True)
class Target:
    """One reader."""

    seeds: Callable[[], list[bytes]]
    """Valid inputs, to begin with."""
    call: Callable[[bytes], None]


# ---- the decoders ---------------------------------------------------------------------------------------------------


def _decode(data: bytes) -> None:
    """The first byte says which decoder, and for a learner of which shape."""
    if not data:
        return
    choice, content = data[0], data[1:]
    shape, kind = _SHAPES[choice % 4], ("text", "integer", None)[choice // 16 % 3]
    try:
        if choice & 4:
            image_examples([content], bool(choice & 8), shape, _LIMITS)
        elif choice & 8:
            labels_of(label_pb2.Labels.FromString(content), kind, 16)
        else:
            tensor = tensor_pb2.Inputs.FromString(content).tensor
            tensor_examples(tensor, InputSpec(shape=shape), _LIMITS)
    except (RpcError, DecodeError):
        pass


def _decoder_seeds() -> list[bytes]:
    images = [bytes([4 | side]) + seeds.encoded(kind) for kind in _IMAGES for side in (0, 2)]
    images += [bytes([4]) + bomb for bomb in pictures.bombs() if len(bomb) < 1 << 14]
    messages = [b"\x01" + seeds.inputs().SerializeToString(), b"\x18" + seeds.labels().SerializeToString()]
    return images + messages


# ---- snapshots ------------------------------------------------------------------------------------------------------


def _load(data: bytes) -> None:
    path = _folder() / "fuzzed.safetensors"
    path.write_bytes(data)
    try:
        Learner.load(path, device="cpu")
    except SnapshotError:
        pass


def _snapshot_seeds() -> list[bytes]:
    """A learner with everything: two episodes, a lesson, one in progress."""
    found = []
    for metric in (False, True):
        layers = (LayerConfig("linear", 10), LayerConfig("linear", 8))
        config = LearnerConfig(
            architecture=ArchitectureConfig("mlp", layers=layers, cut=0 if metric else 1),
            training=TrainingConfig(phases=1, epochs=1),
            metric=MetricConfig(enabled=metric, random_features=2),
            device="cpu",
        )
        learner = Learner(config)
        learner.learn_episode(seeds.examples(8), [0, 1] * 4)
        if metric:
            learner.teach(seeds.examples(1), [2])
        learner.observe(seeds.examples(4), [2, 3] * 2)
        path = _folder() / "seed.safetensors"
        learner.save(path)
        found.append(path.read_bytes())
    return found


def without_digest() -> None:
    """Let every digest be the right one: a fuzzer can't compute SHA-256."""
    snapshot.digest = lambda description, tensors: _Whatever()


class _Whatever(str):
    """Equal to any text."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = str.__hash__


# ---- the journal ----------------------------------------------------------------------------------------------------


def _open_journal(data: bytes) -> None:
    """Main file, log and index one after the other, with their lengths in front; the log's own header is mended."""
    path = _folder() / "journal.db"
    sizes = struct.unpack("<II", data[:8]) if len(data) >= 8 else (0, 0)
    main, log, index = data[8 : 8 + sizes[0]], data[8 + sizes[0] : 8 + sum(sizes)], data[8 + sum(sizes) :]
    if len(log) >= 32:
        big = log[:4] == struct.pack(">I", 0x377F0683)
        log = log[:24] + struct.pack(">II", *wal._checksum(log[:24], big, (0, 0))) + log[32:]
    for suffix, content in (("", main), ("-wal", log), ("-shm", index)):
        file = path.with_name(path.name + suffix)
        file.unlink(missing_ok=True)
        file.write_bytes(content)
    wal.set_aside_if_stale(path, "damaged-")
    wal.expected(path)
    connection = None
    try:
        connection = schema.connect(path)
        if not schema.is_sound(connection):
            return
        schema.create(connection)
        for row in learners.learners(connection):
            learners.snapshots(connection, row.id)
            streams.unlearned_totals(connection, row.id)
            streams.episode_slices(connection, 1)
            lessons.before(connection, row.id, 100)
    except (sqlite3.Error, UnsupportedFormatError, ValueError, KeyError, TypeError):
        pass  # a damaged file, another format, or what start-up takes for a damaged record
    finally:
        if connection is not None:
            connection.close()


def _journal_seeds() -> list[bytes]:
    """One that was closed, one that was killed with all its work in the log, and a log without a main file."""
    path = _folder() / "seed.db"
    connection = schema.connect(path)
    schema.create(connection)
    row = learners.create(connection, NewLearner("a", "u", b"", "{}", "[4]", "integer"), 9)
    stream = streams.open_stream(connection, row.id, "s", "explicit")
    batch = Arrival(row.id, stream.id, 1, 2, "float32", bytes(32), bytes(8), ((0, "1"),), None)
    streams.append(connection, batch)
    streams.mark(connection, row.id, stream.id, 2)
    main, log, index = (path.with_name(path.name + suffix).read_bytes() for suffix in ("", "-wal", "-shm"))
    connection.close()
    closed = path.read_bytes()
    return [_packed(closed, b"", b""), _packed(main, log, index), _packed(b"", log[:40_000], index[:200])]


def _packed(main: bytes, log: bytes, index: bytes) -> bytes:
    return struct.pack("<II", len(main), len(log)) + main + log + index


_held: list[tempfile.TemporaryDirectory[str]] = []


def _folder() -> Path:
    """In memory where there is such a place: thousands of files a second."""
    if not _held:
        place = "/dev/shm" if Path("/dev/shm").is_dir() else None
        _held.append(tempfile.TemporaryDirectory(prefix="sharp-fuzz-", dir=place))
    return Path(_held[0].name)


TARGETS = {
    "decoders": Target(_decoder_seeds, _decode),
    "snapshots": Target(_snapshot_seeds, _load),
    "journal": Target(_journal_seeds, _open_journal),
}
