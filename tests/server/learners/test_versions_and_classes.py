"""Quality with every version, the step back, and other names for classes: on a real server."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sharp_engine as engine
from sharp.v1 import class_admin_pb2 as pb
from sharp.v1 import label_pb2, learner_admin_pb2, quality_pb2, snapshot_pb2
from sharp_engine.prediction.left_out import leave_out
from sharp_engine.prediction.metric import Metric, fit_whitening, whitened_means
from tests.server.learners.test_several_learners import figures
from tests.server.running import SECONDS, Server, answered, blobs, refused, until


def label(text: str) -> label_pb2.Label:
    return label_pb2.Label(text=text)


def rename(server: Server, learner: str, old: str, new: str) -> pb.RenameClassResponse:
    return server.admin.RenameClass(
        pb.RenameClassRequest(learner=learner, label=label(old), new_label=label(new)), timeout=SECONDS
    )


def merge(server: Server, learner: str, source: str, target: str) -> pb.MergeClassesResponse:
    return server.admin.MergeClasses(
        pb.MergeClassesRequest(learner=learner, source=label(source), target=label(target)), timeout=SECONDS
    )


def undo(server: Server, learner: str, **options: Any) -> pb.UndoVersionResponse:
    return server.admin.UndoVersion(pb.UndoVersionRequest(learner=learner, **options), timeout=SECONDS)


def forget(server: Server, learner: str, text: str) -> learner_admin_pb2.ForgetClassResponse:
    request = learner_admin_pb2.ForgetClassRequest(learner=learner, label=label(text))
    return server.admin.ForgetClass(request, timeout=SECONDS)


def qualities(server: Server, learner: str) -> list[quality_pb2.Quality]:
    return list(server.admin.ListQuality(quality_pb2.ListQualityRequest(learner=learner), timeout=SECONDS).qualities)


def classes(server: Server, learner: str) -> dict[str, Any]:
    return {entry.label.text: entry for entry in server.learner(learner).classes}


def close_blobs(texts: str, seed: int = 0) -> tuple[Any, list[Any]]:
    """Classes that overlap, so that some answers are wrong."""
    x, y = blobs(texts, each=200, seed=seed)
    noise = np.random.default_rng(seed + 1).normal(0.0, 0.6, x.shape)
    return (x + noise).astype(np.float32), y


# ---- quality --------------------------------------------------------------------------------------------------------


def by_hand(content: bytes, folder: Path) -> tuple[dict[str, list[int]], Counter[tuple[str, str]]]:
    """Answer every held-out example as if it had never been learned, and count: class → examples, right."""
    (folder / "version.safetensors").write_bytes(content)
    learner = engine.Learner.load(folder / "version.safetensors")
    known = learner.knowledge
    assert known is not None
    whitening = fit_whitening(known.semantic, learner.feature_map.stable, learner.config.metric)
    config, fitted = learner.config.metric, known.calibration
    means = whitened_means(known.semantic, whitening)
    metric = Metric.of(means, config.floor, fitted.noise)  # every class is well known: none gains a bonus
    counts: dict[str, list[int]] = {}
    wrong: Counter[tuple[str, str]] = Counter()
    every = [(kept.class_id, example) for kept in known.episodic.classes for example in kept.features.float()]
    for class_id, example in every:
        at = metric.coordinates(whitening(learner.feature_map(example[None])))
        row = torch.tensor([metric.class_ids.index(class_id)])
        answer = int(leave_out(metric, at, row, whitening.leverage).scores.argmax())
        truth, said = (str(learner.labels.label(metric.class_ids[i])) for i in (int(row), answer))
        entry = counts.setdefault(truth, [0, 0])
        entry[0] += 1
        entry[1] += truth == said
        wrong[truth, said] += truth != said
    return counts, +wrong


def test_the_quality_of_a_version_is_what_one_finds_by_hand_from_the_same_held_out_examples(
    shared: Server, tmp_path: Path
) -> None:
    shared.create("measured")
    shared.teach("measured", close_blobs("abcd"))
    _, content = shared.exported("measured")
    counts, wrong = by_hand(content, tmp_path)
    quality = shared.learner("measured").status.quality.quality
    assert {entry.label.text: [entry.examples, entry.right] for entry in quality.classes} == counts
    assert (quality.examples, quality.right) == tuple(map(sum, zip(*counts.values(), strict=True)))
    assert 0 < quality.right < quality.examples, "the data is made so that some are wrong"
    assert {(pair.label.text, pair.answered.text): pair.examples for pair in quality.confusions} == dict(wrong)
    shares = [entry.right / entry.examples for entry in quality.classes]
    assert shares == sorted(shares), "worst first"
    found = figures(shared)
    assert found['sharp_heldout_accuracy{learner="measured"}'] == pytest.approx(quality.right / quality.examples)
    assert found['sharp_heldout_examples{learner="measured"}'] == quality.examples
    worst = quality.classes[0]
    name = f'sharp_heldout_class_accuracy{{class="{worst.label.text}",learner="measured"}}'
    assert found[name] == pytest.approx(worst.right / worst.examples)


def test_every_version_stands_beside_the_one_before_in_status_events_and_lists_also_after_a_restart(
    lend: Callable[..., Server],
) -> None:
    server = lend()
    server.create("a")
    with server.stream("a") as stream:
        learned = []
        for texts in ("ab", "cd"):
            stream.send(*close_blobs(texts))
            stream.end()
            learned.append(stream.wait_event("learned").learned)
    first, second = (one.statistics.quality for one in learned)
    assert not first.HasField("before") and first.quality.model_version == 1
    assert (second.before.model_version, second.before.right) == (1, first.quality.right)
    status = server.learner("a").status.quality
    assert (status.quality.right, status.before.right) == (second.quality.right, first.quality.right)
    listed = qualities(server, "a")
    assert [(one.model_version, one.right) for one in listed] == [(2, second.quality.right), (1, first.quality.right)]
    for text, entry in classes(server, "a").items():
        assert entry.quality.examples > 0 and entry.HasField("quality_before") == (text in "ab")
        assert entry.examples == 200
    server.kill()
    server.restart()
    again = server.learner("a").status.quality
    assert (again.quality.right, again.before.right) == (status.quality.right, status.before.right)
    assert [one.model_version for one in qualities(server, "a")] == [2, 1]


def test_a_class_that_got_worse_is_named_in_the_log_the_status_and_the_metrics(lend: Callable[..., Server]) -> None:
    server = lend()
    server.create("a")
    logged = len(server.log.read_text())
    server.teach("a", blobs("ab", each=600))
    x, _ = blobs("a", each=600, seed=3)
    server.teach("a", (x, ["c"] * 600), stream_id="wrong")  # another class in the very same place
    fallen = server.learner("a").status.quality.fallen
    assert [fall.now.label.text for fall in fallen] == ["a"]
    assert fallen[0].before.right > fallen[0].now.right
    assert "version 2 answers 'a' worse" in server.log.read_text()[logged:]
    assert figures(server)['sharp_fallen_classes{learner="a"}'] == 1


def test_how_sure_answers_are_and_how_novel_examples_is_counted_per_learner(shared: Server) -> None:
    shared.create("sure")
    x, y = blobs("ab")
    shared.teach("sure", (x, y))
    shared.predict("sure", x)
    shared.predict("sure", x[:10], novelty=True)
    found = figures(shared)
    assert found['sharp_vote_share_count{learner="sure"}'] == len(x) + 10
    assert found['sharp_novelty_count{learner="sure"}'] == 10
    vote_shares = shared.predict("sure", x).vote_shares
    upper = sum(share > 0.9 for share in vote_shares)
    now = figures(shared)
    above = {
        key: now[key] - found[key]
        for key in (
            'sharp_vote_share_bucket{le="0.9",learner="sure"}',
            'sharp_vote_share_bucket{le="+Inf",learner="sure"}',
        )
    }
    assert list(above.values()) == [len(x) - upper, len(x)]


# ---- the step back --------------------------------------------------------------------------------------------------


def test_undoing_goes_back_one_version_and_undoing_again_one_more(shared: Server) -> None:
    shared.create("undone")
    with refused("NOTHING_TO_UNDO"):
        undo(shared, "undone")
    x, _ = blobs("ab")
    for number, texts in enumerate(("ab", "cd", "ef")):
        shared.teach("undone", blobs(texts), stream_id=str(number))
    before = list(shared.predict("undone", x).distances)
    plan = undo(shared, "undone", preview=True)
    assert (plan.model_version, plan.undone_model_version, plan.restored_model_version) == (3, 3, 2)
    assert (plan.cause, plan.episodes_undone) == (pb.VERSION_CAUSE_LEARNED, 1)
    assert list(shared.predict("undone", x).distances) == before, "nothing has changed"
    with refused("VERSION_NOT_FOUND"):
        undo(shared, "undone", model_version=2)
    done = undo(shared, "undone", model_version=3)
    assert (done.model_version, done.restored_model_version, done.episodes_undone) == (4, 2, 1)
    assert set(classes(shared, "undone")) == set("abcd")
    with refused("VERSION_NOT_FOUND"):
        undo(shared, "undone", model_version=3)  # repeated by a client that lost the answer
    assert undo(shared, "undone").restored_model_version == 1
    assert set(classes(shared, "undone")) == set("ab")
    with refused("NOTHING_TO_UNDO"):
        undo(shared, "undone")
    assert shared.teach("undone", blobs("gh"), stream_id="after") == 6
    assert undo(shared, "undone").restored_model_version == 5
    assert set(classes(shared, "undone")) == set("ab")


def test_undoing_a_restored_snapshot_brings_back_what_was_there_and_a_forgotten_class_stays_forgotten(
    shared: Server,
) -> None:
    shared.create("back")
    for number, texts in enumerate(("ab", "cd")):
        shared.teach("back", blobs(texts), stream_id=str(number))
    snapshots = shared.admin.ListSnapshots(snapshot_pb2.ListSnapshotsRequest(learner="back")).snapshots
    shared.admin.RestoreSnapshot(
        snapshot_pb2.RestoreSnapshotRequest(learner="back", snapshot_id=snapshots[-1].id), timeout=SECONDS
    )
    assert set(classes(shared, "back")) == set("ab")
    assert undo(shared, "back").restored_model_version == 2
    assert set(classes(shared, "back")) == set("abcd")
    forget(shared, "back", "a")
    done = undo(shared, "back")
    assert (done.cause, list(done.classes_forgotten.texts.values)) == (pb.VERSION_CAUSE_FORGOTTEN, ["a"])
    assert set(classes(shared, "back")) == set("bcd")


def test_a_version_whose_snapshot_is_no_longer_kept_cannot_be_gone_back_to(serve: Callable[..., Server]) -> None:
    server = serve(data__automatic_snapshots=1)
    server.create("a")
    for number, texts in enumerate(("ab", "cd")):
        server.teach("a", blobs(texts), stream_id=str(number))
    with refused("NOTHING_TO_UNDO") as failed:
        undo(server, "a")
    assert "no longer kept" in failed[0].message


# ---- names ----------------------------------------------------------------------------------------------------------


def test_a_renamed_class_is_answered_learned_and_counted_under_its_new_name(shared: Server) -> None:
    shared.create("names")
    x, y = blobs("ab")
    shared.teach("names", (x, y))
    with shared.stream("names", "t") as stream:
        stream.send(*blobs("ab", seed=5))
        stream.wait_ack()
        done = rename(shared, "names", "a", "apple")
        assert (done.model_version, done.journal_examples, len(done.snapshots_holding)) == (2, 40, 1)
        assert set(answered(shared.predict("names", x))) == {"apple", "b"}
        stream.end()
        learned = stream.wait_event("learned").learned
    assert sorted(learned.statistics.classes.texts.values) == ["apple", "b"]
    assert not learned.statistics.new_classes.texts.values
    assert {text: entry.examples for text, entry in classes(shared, "names").items()} == {"apple": 80, "b": 80}
    with refused("CLASS_NOT_FOUND"):
        rename(shared, "names", "a", "apple")
    with refused("CLASS_EXISTS"):
        rename(shared, "names", "apple", "b")
    with refused("LABEL_INVALID"):
        rename(shared, "names", "apple", "")
    shared.teach("names", blobs("a", seed=9), stream_id="old-name")
    assert classes(shared, "names").keys() == {"apple", "b", "a"}, "whoever sends the old name brings a new class"


def test_a_class_that_only_waits_is_renamed_without_a_new_version(shared: Server) -> None:
    shared.create("waiting")
    with shared.stream("waiting") as stream:
        stream.send(*blobs("ab"))
        stream.wait_ack()
        done = rename(shared, "waiting", "a", "z")
        assert (done.model_version, done.journal_examples) == (0, 40)
        stream.end()
        assert sorted(stream.wait_event("learned").learned.statistics.classes.texts.values) == ["b", "z"]


def test_merged_classes_are_one_in_answers_and_in_what_waits(shared: Server) -> None:
    shared.create("merged")
    x, y = blobs("abc")
    shared.teach("merged", (x, y))
    with shared.stream("merged", "t") as stream:
        stream.send(*blobs("ac", seed=5))
        stream.wait_ack()
        done = merge(shared, "merged", "a", "b")
        assert (done.model_version, done.examples, done.journal_examples) == (2, 80, 40)
        assert Counter(answered(shared.predict("merged", x))) == {"b": 80, "c": 40}
        stream.end()
        assert sorted(stream.wait_event("learned").learned.statistics.classes.texts.values) == ["b", "c"]
    assert {text: entry.examples for text, entry in classes(shared, "merged").items()} == {"b": 120, "c": 80}
    with refused("CLASS_NOT_FOUND"):
        merge(shared, "merged", "a", "b")
    with refused("FIELD_INVALID"):
        merge(shared, "merged", "b", "b")
    assert undo(shared, "merged").restored_model_version == 2
    assert undo(shared, "merged").restored_model_version == 1
    assert set(classes(shared, "merged")) == set("abc"), "a snapshot from before brings the source back"


def test_forgetting_a_renamed_class_reaches_the_snapshots_that_hold_its_old_name(shared: Server) -> None:
    shared.create("traces")
    x, y = blobs("abc")
    shared.teach("traces", (x, y))
    rename(shared, "traces", "a", "b2")
    merge(shared, "traces", "b", "b2")
    done = forget(shared, "traces", "b2")
    assert {snapshot.model_version for snapshot in done.snapshots_holding} == {1, 2, 3}
    oldest = done.snapshots_holding[-1].id
    request = snapshot_pb2.RestoreSnapshotRequest(learner="traces", snapshot_id=oldest)
    restored = shared.admin.RestoreSnapshot(request, timeout=SECONDS)
    assert sorted(restored.classes_forgotten.texts.values) == ["a", "b"]
    assert set(classes(shared, "traces")) == {"c"}


def test_old_names_are_forgotten_in_snapshots_also_when_the_journal_was_lost(serve: Callable[..., Server]) -> None:
    server = serve()
    server.create("a")
    server.teach("a", blobs("ab"))
    rename(server, "a", "a", "apple")
    server.kill()
    for file in server.data.glob("journal.db*"):
        file.unlink()
    server.restart()
    assert set(classes(server, "a")) == {"apple", "b"}
    done = forget(server, "a", "apple")
    restored = server.admin.RestoreSnapshot(
        snapshot_pb2.RestoreSnapshotRequest(learner="a", snapshot_id=done.snapshots_holding[-1].id), timeout=SECONDS
    )
    assert list(restored.classes_forgotten.texts.values) == ["a"] and set(classes(server, "a")) == {"b"}


@pytest.mark.parametrize("mark", ["before", "after"])
def test_names_survive_a_kill_and_batches_that_waited_come_out_right(mark: str, lend: Callable[..., Server]) -> None:
    server = lend()
    server.create("a", training__min_steps="400")
    server.teach("a", blobs("ab"))
    with server.stream("a", "t") as stream:
        stream.send(*blobs("ab", seed=5))
        if mark == "before":
            stream.end()
            stream.wait_event("started")  # renamed under the trainer's hands
        stream.wait_ack()
        rename(server, "a", "a", "apple")
        merge(server, "a", "b", "apple")
    server.kill()
    server.restart()
    assert set(classes(server, "a")) == {"apple"}
    if mark == "after":
        with server.stream("a", "t") as stream:
            stream.end()
            stream.wait_ack()
    until(lambda: server.learner("a").status.episodes_learned == 2, SECONDS)
    assert {text: entry.examples for text, entry in classes(server, "a").items()} == {"apple": 160}
    assert json.dumps(sorted(classes(server, "a"))) == '["apple"]'


def test_lessons_beyond_the_version_follow_names_and_survive_the_step_back_and_a_kill(
    lend: Callable[..., Server],
) -> None:
    server = lend(teaching__version_seconds=3600)
    server.create("trees")
    for number, texts in enumerate(("ab", "cd")):
        server.teach("trees", blobs(texts), stream_id=str(number))
    x, y = blobs("ae", each=5, seed=3)
    server.lesson("trees", x, y)
    probes = blobs("e", each=8, seed=4)[0]
    assert set(answered(server.predict("trees", probes))) == {"e"}
    rename(server, "trees", "e", "elm")
    assert set(answered(server.predict("trees", probes))) == {"elm"}
    undo(server, "trees")
    found = server.predict("trees", probes)
    assert set(answered(found)) == {"elm"} and found.examples_beyond_version == len(x)
    before = list(found.distances)
    server.kill()
    server.restart()
    assert list(server.predict("trees", probes, min_examples=len(x)).distances) == before
    merge(server, "trees", "elm", "a")
    assert set(answered(server.predict("trees", probes))) == {"a"}
