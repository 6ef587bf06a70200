"""A forgotten class is in no file of the data folder and in no answer, whatever happens afterwards.

Every example carries bytes of its own, drawn by chance: where they are found, the example is.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sharp.v1 import label_pb2, learner_admin_pb2, learning_pb2
from sharp.v1 import snapshot_pb2 as snap
from sharp_engine import Learner
from sharp_engine.memory.packing import pack
from tests.server.running import Server, answered, until

FEATURES = 96
INPUTS: dict[str, Any] = {
    "architecture__cut": "0",
    "memory__stm_capacity": "60",
    "metric__random_features": "64",
}
"""Short-term memory of a learner that replays inputs holds them byte for byte, in the learner's own scale."""


def planted(label: str, count: int, seed: int) -> np.ndarray[Any, Any]:
    """Bytes by chance, with a least and a largest value in each example: quantised, they are the same bytes."""
    rng = np.random.default_rng([seed, ord(label)])
    x = rng.integers(0, 256, (count, FEATURES), np.uint8)
    half = slice(0, FEATURES // 2) if label in "ac" else slice(FEATURES // 2, FEATURES)
    x[:, half] //= 8  # what tells the classes apart
    x[:, 0], x[:, -1] = 0, 255
    return x


def files_with(data: Path, examples: np.ndarray[Any, Any], *learners: Learner) -> set[str]:
    """The files in which any sixteen bytes of these examples are found, as bytes, as numbers or as memories."""
    needles = [row.tobytes()[i : i + 16] for row in examples for i in (8, 24, 40, 56, 72)]
    floats = (examples.astype(np.float32) / np.float32(255)).astype("<f4")
    needles += [row.tobytes()[i : i + 16] for row in floats for i in (32, 160)]
    for learner in learners:
        stored = [row.tobytes() for rows in as_memories(learner, examples) for row in rows]
        needles += [row[i : i + 16] for row in stored for i in (8, 40)]
    found = set()
    for path in data.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            if any(needle in content for needle in needles):
                found.add(path.relative_to(data).as_posix())
    return found


def as_memories(learner: Learner, examples: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    """Examples as episodic memory and as short-term memory hold them."""
    features = learner.preprocessor(torch.from_numpy(examples))
    return [features.half().numpy(), pack(features).codes.numpy()]


def forget(server: Server, learner: str, label: str, delete: bool) -> learner_admin_pb2.ForgetClassResponse:
    older = learner_admin_pb2.OLDER_SNAPSHOTS_DELETE if delete else learner_admin_pb2.OLDER_SNAPSHOTS_LIST
    request = learner_admin_pb2.ForgetClassRequest(
        learner=learner, label=label_pb2.Label(text=label), older_snapshots=older
    )
    return server.admin.ForgetClass(request)


def two(first: str, second: str, seed: int, count: int = 20) -> tuple[Any, list[str]]:
    x = np.concatenate([planted(first, count, seed), planted(second, count, seed)])
    return x, [first] * count + [second] * count


def restore(server: Server, name: str, **options: bool) -> snap.RestoreSnapshotResponse:
    rows = server.admin.ListSnapshots(snap.ListSnapshotsRequest(learner="f")).snapshots
    oldest = min(rows, key=lambda row: row.model_version)
    return server.admin.RestoreSnapshot(snap.RestoreSnapshotRequest(learner=name, snapshot_id=oldest.id, **options))


def test_no_file_holds_a_forgotten_class_and_no_answer_names_it(serve: Callable[..., Server]) -> None:
    server = serve(trainer__attempts=1)
    data = server.folder / "data"
    server.create("f", **INPUTS)
    server.teach("f", two("a", "b", 0))
    everything = [planted("b", 20, seed) for seed in range(6)]
    b = np.concatenate(everything)
    [snapshot] = (data / "snapshots").rglob("*.safetensors")
    f = Learner.load(snapshot)
    for memories in as_memories(f, planted("b", 20, 0)):
        assert any(row.tobytes() in snapshot.read_bytes() for row in memories), "or this test can't fail"
    questions = planted("b", 20, 0)
    assert answered(server.predict("f", questions)) == ["b"] * 20

    # Wherever a class can be: parked, waiting, being learned with a phase kept, open, and left behind by a crash.
    server.create("thin", **INPUTS, metric__enabled="false")  # an episode without a pair is parked then
    with server.stream("thin", "parked") as stream:
        stream.send(planted("b", 1, 1), ["b"])
        stream.end()
        stream.wait_event("parked")
    server.create("long", **{**INPUTS, "training__phases": "6", "training__min_steps": "200"})
    with server.stream("long", "under-way") as stream:
        stream.send(*two("a", "b", 2))
        stream.end()
        stream.send(*two("c", "b", 3))
        stream.end()
        stream.send(planted("b", 20, 4), ["b"] * 20)
        stream.wait_ack()
        until(lambda: list((data / "work").glob("*.safetensors")), 120, "a phase of the episode is kept")
        os.kill(server.trainer_pid(), signal.SIGKILL)
        long = Learner.load(next((data / "work").glob("*.safetensors")))
        uid = server.learner("long").uid
        for folder, name in (("work", f".{uid}-draft.safetensors"), (f"snapshots/{uid}", ".1.tmp")):
            (data / folder / name).write_bytes(planted("b", 20, 5).tobytes())
        (data / "damaged-1-journal.db").write_bytes(planted("b", 20, 5).tobytes())
        assert files_with(data, planted("b", 20, 4)) and files_with(data, planted("b", 1, 1))
        done = forget(server, "long", "b", delete=False)
        assert done.journal_examples == 60 and not done.snapshots_holding
    gone = forget(server, "thin", "b", delete=False)
    assert gone.journal_examples == 1 and list(gone.discarded_episodes) == [1]
    kept = forget(server, "f", "b", delete=False)
    assert kept.ltm_entries and kept.stm_entries
    listed = {f"snapshots/{server.learner('f').uid}/{row.id}.safetensors" for row in kept.snapshots_holding}
    assert files_with(data, b, f, long) == listed and len(listed) == 1
    assert "b" not in answered(server.predict("f", questions))

    # Restoring what still holds it forgets it again, before and after a restart, unless asked otherwise.
    assert list(restore(server, "f").classes_forgotten.texts.values) == ["b"]
    assert "b" not in answered(server.predict("f", questions))
    server.kill()
    server.start()
    assert "b" not in answered(server.predict("f", questions))
    assert list(restore(server, "f").classes_forgotten.texts.values) == ["b"]
    assert "b" not in answered(server.predict("f", questions))
    assert not restore(server, "f", with_forgotten=True).classes_forgotten.texts.values
    assert answered(server.predict("f", questions)) == ["b"] * 20

    # With the snapshots that hold it deleted, nothing does, and what was under way is learned without it.
    gone = forget(server, "f", "b", delete=True)
    assert gone.snapshots_deleted and not gone.snapshots_holding
    assert files_with(data, b, f, long) == set()
    assert "b" not in answered(server.predict("f", questions))
    with server.stream("long", "under-way", boundaries=learning_pb2.BOUNDARIES_EXPLICIT) as stream:
        assert stream.opened.open_examples == 0
    until(lambda: server.learner("long").status.model_version or server.learner("long").status.backlog.episodes_parked)
    assert files_with(data, b, f, long) == set()
    assert "Traceback" not in server.log.read_text()
