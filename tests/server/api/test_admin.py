"""Learners, snapshots, forgetting and watching, over the wire."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from sharp.v1 import label_pb2, learner_pb2
from sharp.v1 import learner_admin_pb2 as pb
from sharp.v1 import snapshot_pb2 as snap
from sharp_engine import Learner
from tests.server.running import SMALL, Server, answered, blobs, refused, until


def forget(server: Server, learner: str, label: str, delete: bool = False) -> pb.ForgetClassResponse:
    older = pb.OLDER_SNAPSHOTS_DELETE if delete else pb.OLDER_SNAPSHOTS_LIST
    ask = pb.ForgetClassRequest(learner=learner, label=label_pb2.Label(text=label), older_snapshots=older)
    return server.admin.ForgetClass(ask, timeout=60)


def snapshots(server: Server, learner: str) -> list[snap.Snapshot]:
    return list(server.admin.ListSnapshots(snap.ListSnapshotsRequest(learner=learner)).snapshots)


def export(server: Server, learner: str, snapshot_id: str = "") -> tuple[snap.Snapshot, bytes]:
    return server.exported(learner, snapshot_id)


def bring(server: Server, learner: str, content: bytes, **header: Any) -> snap.ImportSnapshotResponse:
    made = snap.ImportHeader(**{"learner": learner, "size_bytes": len(content), **header})

    def parts() -> Iterator[snap.ImportSnapshotRequest]:
        yield snap.ImportSnapshotRequest(header=made)
        for place in range(0, len(content), 100_000):
            yield snap.ImportSnapshotRequest(chunk=content[place : place + 100_000])

    return server.admin.ImportSnapshot(parts(), timeout=60)


def content_of(server: Server) -> bytes:
    return b"".join(path.read_bytes() for path in (server.folder / "data").rglob("*") if path.is_file())


# ---- learners --------------------------------------------------------------------------------------------------------


def test_learners_are_made_told_listed_by_pages_and_deleted(shared: Server) -> None:
    config = learner_pb2.LearnerConfig(
        preset="mnist", seed=5, overrides={"training.phases": "4", "training.selection": "covered"}
    )
    made = shared.admin.CreateLearner(pb.CreateLearnerRequest(name="listed-0", config=config)).learner
    assert made.config == config
    assert (made.settings["training.phases"], made.settings["training.selection"]) == ("4", '"covered"')
    assert list(made.input_shape) == [1, 28, 28] and made.architecture.startswith("conv-small")
    assert made.status.state == learner_pb2.LEARNER_STATE_IDLE and made.status.model_version == 0
    with refused("LEARNER_EXISTS"):
        shared.admin.CreateLearner(pb.CreateLearnerRequest(name="listed-0"))
    for i in range(1, 5):
        shared.create(f"listed-{i}")
    names, token = [], ""
    while True:
        page = shared.admin.ListLearners(pb.ListLearnersRequest(page_size=2, page_token=token))
        names += [learner.name for learner in page.learners]
        token = page.next_page_token
        if not token:
            break
    assert [name for name in names if name.startswith("listed-")] == [f"listed-{i}" for i in range(5)]
    assert names == sorted(names)
    for bad in ("x", "AAAA", "W10="):
        with refused("PAGE_TOKEN_INVALID"):
            shared.admin.ListLearners(pb.ListLearnersRequest(page_token=bad))
    with refused("LEARNER_NOT_FOUND"):
        shared.admin.DeleteLearner(pb.DeleteLearnerRequest(name="listed-0", uid="another"))
    shared.admin.DeleteLearner(pb.DeleteLearnerRequest(name="listed-0", uid=made.uid))
    with refused("LEARNER_NOT_FOUND"):
        shared.learner("listed-0")


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (learner_pb2.LearnerConfig(preset="nothing"), "CONFIG_INVALID"),
        (learner_pb2.LearnerConfig(overrides={"training.nothing": "1"}), "CONFIG_INVALID"),
        (learner_pb2.LearnerConfig(overrides={"training.phases": "-1"}), "CONFIG_INVALID"),
        (learner_pb2.LearnerConfig(overrides={"training.phases": '"x"'}), "CONFIG_INVALID"),
        (learner_pb2.LearnerConfig(overrides={"device": "cuda"}), "CONFIG_INVALID"),
        (learner_pb2.LearnerConfig(overrides={"architecture.pretrained": "/etc/passwd"}), "CONFIG_INVALID"),
        (learner_pb2.LearnerConfig(overrides={"architecture.pretrained": "../x.safetensors"}), "CONFIG_INVALID"),
        (learner_pb2.LearnerConfig(seed=2**63), "CONFIG_INVALID"),
        (learner_pb2.LearnerConfig(input_shape=[3, 200, 200]), "BACKBONE_NEEDED"),
        (learner_pb2.LearnerConfig(input_shape=[1, 2]), "CONFIG_INVALID"),
    ],
)
def test_a_configuration_that_cannot_be_is_refused(shared: Server, config: Any, reason: str) -> None:
    with refused(reason):
        shared.admin.CreateLearner(pb.CreateLearnerRequest(name="refused", config=config))
    with refused("LEARNER_NOT_FOUND"):
        shared.learner("refused")


def test_deleting_ends_streams_and_leaves_nothing_on_disk(shared: Server) -> None:
    shared.create("doomed")
    shared.teach("doomed", blobs("ab"))
    uid = shared.learner("doomed").uid
    with shared.stream("doomed", "left") as stream:
        stream.send(*blobs("cd", each=5))
        stream.wait_ack()
        gone = shared.admin.DeleteLearner(pb.DeleteLearnerRequest(name="doomed"))
        assert (gone.unlearned_examples, gone.snapshots) == (10, 1)
        with refused("LEARNER_NOT_FOUND"):
            stream.wait_event("learned")
    assert not list((shared.folder / "data").rglob(f"*{uid}*"))
    shared.create("doomed")
    assert shared.learner("doomed").uid != uid


def test_watching_shows_every_change_until_the_learner_is_deleted(shared: Server) -> None:
    shared.create("watched")
    watch = shared.admin.WatchLearner(pb.WatchLearnerRequest(name="watched", min_interval=Duration(nanos=100_000_000)))
    first = next(watch)
    assert first.status.model_version == 0 and first.status.backlog.bytes_limit > 0
    shared.teach("watched", blobs("ab"))
    kinds: list[str | None] = []
    status = first.status
    while "learned" not in kinds or status.model_version < 1:
        message = next(watch)
        kinds += [event.WhichOneof("event") for event in message.events]
        status = message.status
    assert [kind for kind in kinds if kind != "progress"] == ["closed", "started", "learned"]
    layer = status.layers[-1]
    assert layer.idle + layer.training + layer.fine_tuning + layer.frozen == layer.units
    assert sum(rank.units for rank in layer.ranks) == layer.units
    assert status.memories.classes == 2 and status.memories.ltm_entries > 0
    shared.admin.DeleteLearner(pb.DeleteLearnerRequest(name="watched"))
    with refused("LEARNER_NOT_FOUND"):
        for _ in watch:
            pass


# ---- snapshots -------------------------------------------------------------------------------------------------------


def test_automatic_snapshots_are_kept_up_to_a_number_and_the_head_cannot_be_deleted(
    serve: Callable[..., Server],
) -> None:
    server = serve(data__automatic_snapshots=2)
    server.create("a")
    server.teach("a", blobs("ab"), blobs("cd"), blobs("ef"))
    kept = snapshots(server, "a")
    assert [(s.model_version, s.episodes_learned, s.origin) for s in kept] == [(3, 3, 1), (2, 2, 1)]
    assert sorted(kept[0].classes.texts.values) == list("abcdef")
    files = list((server.folder / "data" / "snapshots").rglob("*.safetensors"))
    assert {hashlib.sha256(f.read_bytes()).digest() for f in files} == {s.sha256 for s in kept}
    with refused("SNAPSHOT_IN_USE"):
        server.admin.DeleteSnapshot(snap.DeleteSnapshotRequest(learner="a", snapshot_id=kept[0].id))
    freed = server.admin.DeleteSnapshot(snap.DeleteSnapshotRequest(learner="a", snapshot_id=kept[1].id))
    assert freed.size_bytes == kept[1].size_bytes
    for bad in (kept[1].id, "../../journal", "x"):
        with refused("SNAPSHOT_NOT_FOUND"):
            server.admin.DeleteSnapshot(snap.DeleteSnapshotRequest(learner="a", snapshot_id=bad))


def test_a_snapshot_is_restored_under_a_new_version_and_learning_goes_on_from_it(shared: Server) -> None:
    shared.create("restored")
    x, y = blobs("ab")
    shared.teach("restored", (x, y))
    kept = shared.admin.CreateSnapshot(snap.CreateSnapshotRequest(learner="restored", note="good")).snapshot
    before = shared.predict("restored", x[:20])
    shared.teach("restored", blobs("cd"))
    done = shared.admin.RestoreSnapshot(snap.RestoreSnapshotRequest(learner="restored", snapshot_id=kept.id))
    assert (done.model_version, done.previous_model_version, done.episodes_undone) == (3, 2, 1)
    after = shared.predict("restored", x[:20], min_model_version=3)
    assert list(after.distances) == list(before.distances) and after.episodes_learned == 1
    assert shared.teach("restored", blobs("ef")) == 4
    assert {s.label.text for s in shared.learner("restored").classes} == set("abef")
    first = next(s for s in snapshots(shared, "restored") if s.origin == snap.SNAPSHOT_ORIGIN_AUTOMATIC
                 and s.model_version == 1)  # fmt: skip
    again = shared.admin.RestoreSnapshot(snap.RestoreSnapshotRequest(learner="restored", snapshot_id=first.id))
    assert again.episodes_undone == 2
    for ask, reason in (("", "FIELD_INVALID"), ("nothing", "SNAPSHOT_NOT_FOUND")):
        with refused(reason):
            shared.admin.RestoreSnapshot(snap.RestoreSnapshotRequest(learner="restored", snapshot_id=ask))


def test_a_snapshot_travels_as_one_file_to_another_learner(shared: Server) -> None:
    shared.create("source")
    x, y = blobs("ab")
    shared.teach("source", (x, y))
    told, content = export(shared, "source")
    assert (len(content), hashlib.sha256(content).digest()) == (told.size_bytes, told.sha256)
    brought = bring(shared, "copy", content, sha256=told.sha256, note="moved")
    assert brought.created and brought.model_version == 1
    assert brought.snapshot.origin == snap.SNAPSHOT_ORIGIN_IMPORTED and brought.snapshot.note == "moved"
    assert list(shared.predict("copy", x[:9]).distances) == list(shared.predict("source", x[:9]).distances)
    assert shared.teach("copy", blobs("cd")) == 2
    kept = bring(shared, "source", content)
    assert not kept.created and kept.model_version == 0
    assert bring(shared, "source", content, restore=True).model_version == 2


def test_a_hostile_file_offered_as_a_snapshot_changes_nothing(shared: Server) -> None:
    shared.create("victim")
    x, y = blobs("ab")
    shared.teach("victim", (x, y))
    _, content = export(shared, "victim")
    for bad, header, reason in (
        (b"not a snapshot", {}, "SNAPSHOT_MALFORMED"),
        (content[:-10], {}, "SNAPSHOT_MALFORMED"),
        (b"\xff" * 8 + content[8:], {}, "SNAPSHOT_MALFORMED"),
        ((100_000_000).to_bytes(8, "little") + content[8:], {}, "SNAPSHOT_MALFORMED"),
        (content, {"sha256": b"\0" * 32}, "CHECKSUM_MISMATCH"),
        (content, {"sha256": b"\0"}, "FIELD_INVALID"),
        (content, {"size_bytes": len(content) + 1}, "SNAPSHOT_MALFORMED"),
        (content, {"size_bytes": len(content) - 1}, "SNAPSHOT_MALFORMED"),
        (content, {"size_bytes": 0}, "FIELD_INVALID"),
        (content, {"size_bytes": 1 << 60}, "SNAPSHOT_TOO_LARGE"),
        (content, {"note": "n" * 1025}, "FIELD_INVALID"),
        (content, {"learner": "../x"}, "NAME_INVALID"),
    ):
        with refused(reason):
            bring(shared, header.pop("learner", "victim"), bad, **header)  # type: ignore[arg-type]
    with refused("UNEXPECTED_MESSAGE"):
        shared.admin.ImportSnapshot(iter([snap.ImportSnapshotRequest(chunk=b"x")]))
    assert shared.predict("victim", x[:1]).model_version == 1
    assert len(snapshots(shared, "victim")) == 1
    assert not list((shared.folder / "data" / "work").glob(".import*"))
    shared.create("other", shape=[5])
    with refused("SNAPSHOT_INCOMPATIBLE"):
        bring(shared, "other", content)


# ---- forgetting ------------------------------------------------------------------------------------------------------


def test_a_forgotten_class_is_in_no_memory_no_journal_and_no_answer(serve: Callable[..., Server]) -> None:
    server = serve()
    server.create("f")
    x, y = blobs("abc")
    server.teach("f", (x, y))
    kept = server.admin.CreateSnapshot(snap.CreateSnapshotRequest(learner="f")).snapshot
    waiting_x, waiting_y = blobs("bcd", seed=9)
    planted = {label: waiting_x[waiting_y.index(label)].tobytes() for label in "bcd"}
    with server.stream("f", "open") as stream:
        stream.send(waiting_x, waiting_y)
        stream.wait_ack()
        assert planted["b"] in content_of(server)
        done = forget(server, "f", "b")
        assert (done.model_version, done.journal_examples) == (2, 40)
        assert done.ltm_entries > 0 and done.stm_entries > 0
        assert {s.id for s in done.snapshots_holding} >= {kept.id} and not done.snapshots_deleted
        assert planted["b"] not in content_of(server)
        assert planted["c"] in content_of(server)
        assert "b" not in answered(server.predict("f", x))
        known = {c.label.text for c in server.learner("f").classes}
        assert {"a", "c"} <= known <= {"a", "c", "d"}  # what is open may count already
        again = forget(server, "f", "b")
        assert (again.model_version, again.journal_examples, again.ltm_entries) == (2, 0, 0)
        assert {s.id for s in again.snapshots_holding} == {s.id for s in done.snapshots_holding}
        stream.end()
        stream.close()
        learned = [e.learned for e in stream.events() if e.HasField("learned")]
    assert sorted(learned[0].statistics.classes.texts.values) == ["c", "d"]
    with refused("CLASS_NOT_FOUND"):
        forget(server, "f", "zebra")
    with refused("LABEL_KIND_MISMATCH"):
        server.admin.ForgetClass(pb.ForgetClassRequest(learner="f", label=label_pb2.Label(integer=1)))

    server.stop()
    server.start()
    assert "b" not in answered(server.predict("f", x))
    done2 = server.admin.RestoreSnapshot(snap.RestoreSnapshotRequest(learner="f", snapshot_id=kept.id))
    assert list(done2.classes_forgotten.texts.values) == ["b"]
    assert "b" not in answered(server.predict("f", x))
    assert forget(server, "f", "b", delete=True).snapshots_deleted
    assert not [s for s in snapshots(server, "f") if "b" in s.classes.texts.values]

    server.teach("f", blobs("be", seed=4))  # taught again, it is a new class, and snapshots of it may be restored
    newest = snapshots(server, "f")[0]
    server.admin.RestoreSnapshot(snap.RestoreSnapshotRequest(learner="f", snapshot_id=newest.id))
    assert "b" in {c.label.text for c in server.learner("f").classes}


def test_an_episode_under_way_goes_on_without_the_forgotten_class(shared: Server) -> None:
    shared.create("under-way", training__phases="4", training__min_steps="150")
    with shared.stream("under-way") as stream:
        stream.send(*blobs("abc", each=60))
        stream.end()
        stream.send(*blobs("b", each=10))
        stream.end()
        stream.wait_event("progress")
        done = forget(shared, "under-way", "b")
        assert done.journal_examples == 70 and list(done.discarded_episodes) == [2]
        stream.close()
        events = list(stream.events())
    assert [e.episode for e in events if e.HasField("discarded")] == [2]
    learned = [e.learned for e in events if e.HasField("learned")]
    assert sorted(learned[0].statistics.classes.texts.values) == ["a", "c"]
    assert not list((shared.folder / "data" / "work").glob("*.safetensors"))


def test_a_class_that_only_the_metric_knows_is_forgotten_like_any_other(shared: Server) -> None:
    shared.create("metric-knows")
    shared.teach("metric-knows", blobs("ab"), blobs("c"))  # the network does not train on a single class
    x, _ = blobs("c", seed=5, each=3)
    assert answered(shared.predict("metric-knows", x)) == ["c"] * 3
    kept = shared.admin.CreateSnapshot(snap.CreateSnapshotRequest(learner="metric-knows")).snapshot
    _, content = export(shared, "metric-knows")
    brought = bring(shared, "metric-knows-copy", content)
    for learner, holds in (("metric-knows", kept), ("metric-knows-copy", brought.snapshot)):
        assert sorted(holds.classes.texts.values) == list("abc")
        done = forget(shared, learner, "c")
        assert done.ltm_entries > 0 and done.stm_entries == 0
        assert holds.id in {s.id for s in done.snapshots_holding}
        assert "c" not in answered(shared.predict(learner, x))
        assert {c.label.text for c in shared.learner(learner).classes} == {"a", "b"}
        back = shared.admin.RestoreSnapshot(snap.RestoreSnapshotRequest(learner=learner, snapshot_id=holds.id))
        assert list(back.classes_forgotten.texts.values) == ["c"]
        assert "c" not in answered(shared.predict(learner, x))
        assert forget(shared, learner, "c", delete=True).snapshots_deleted
        assert not [s for s in snapshots(shared, learner) if "c" in s.classes.texts.values]


def test_forgetting_the_last_class_leaves_nothing_to_answer_with(shared: Server) -> None:
    shared.create("last")
    shared.teach("last", blobs("a"))
    assert forget(shared, "last", "a").model_version == 2
    with refused("NOTHING_LEARNED"):
        shared.predict("last", blobs("a", each=1)[0])
    assert shared.teach("last", blobs("xy")) == 3


def test_an_exported_file_is_one_that_the_engine_reads_by_itself(shared: Server, tmp_path: Any) -> None:
    shared.create("plain")
    x, y = blobs("ab")
    shared.teach("plain", (x, y))
    _, content = export(shared, "plain")
    (tmp_path / "s.safetensors").write_bytes(content)
    learner = Learner.load(tmp_path / "s.safetensors")
    assert learner.predict(x[:5]).labels == y[:5]
    assert learner.config.training.phases == int(SMALL["training.phases"])


def test_the_status_of_the_server_tells_limits_disk_and_trainer(shared: Server) -> None:
    until(lambda: shared.status().trainer.running)
    status = shared.status()
    assert status.state == 2 and status.limits.message_bytes >= 4 << 20 and status.free_bytes > 0
    assert all(value for _, value in status.limits.ListFields()) and len(status.limits.ListFields()) == 14
    assert status.device == "cpu" and not status.corruption_events
