"""Known at once: lessons and batches count before their episode is learned, and are made again to the last bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from sharp.v1 import label_pb2, learner_admin_pb2, prediction_pb2, snapshot_pb2
from tests.server.running import Server, answered, blobs, in_thread, refused, tensor, until

CLASSES = ["ash", "birch", "cedar"]


def bits(server: Server, name: str, x: Any, **options: Any) -> tuple[Any, ...]:
    """Everything that an answer says of the examples."""
    found = server.predict(name, x, top_k=3, nearest_memories=2, novelty=True, **options)
    return (found.labels.SerializeToString(), *map(tuple, (found.vote_shares, found.distances, found.novelties)),
            b"".join(details.SerializeToString() for details in found.details))  # fmt: skip


@pytest.fixture
def server(lend: Callable[..., Server]) -> Server:
    """Makes no version of lessons by itself."""
    return lend(teaching__version_seconds=3600)


def test_what_is_taught_is_known_when_the_call_returns_and_after_a_kill_to_the_last_bit(server: Server) -> None:
    x, y = blobs(CLASSES, each=5)
    probes, truth = blobs(CLASSES, each=20, seed=1)
    with refused("LEARNER_NOT_FOUND"):
        server.lesson("trees", x, y)
    first = server.lesson("trees", x[:4], y[:4], create_if_missing=True)
    assert (first.model_version, first.examples_beyond_version, first.examples, first.corrections) == (0, 4, 4, 4)
    assert set(first.new_classes.texts.values) == set(y[:4])
    for i in range(4, len(x)):
        taught = server.lesson("trees", x[i : i + 1], y[i : i + 1])
        assert taught.examples_known == taught.examples_beyond_version == i + 1
    found = server.predict("trees", probes)
    assert answered(found) == truth
    assert (found.model_version, found.examples_beyond_version) == (0, len(x))
    before = bits(server, "trees", probes)
    server.kill()
    server.restart()
    assert bits(server, "trees", probes, min_examples=len(x)) == before
    status = server.learner("trees").status
    assert (status.examples_beyond_version, status.examples_known, status.backlog.lessons) == (15, 15, 12)


def test_a_correction_changes_the_answer_at_once(server: Server) -> None:
    x, y = blobs(CLASSES, each=5)
    server.create("trees")
    server.lesson("trees", x, y)
    probe = blobs(["ash"], each=1, seed=7)[0]
    assert answered(server.predict("trees", probe)) == ["ash"]
    taught = server.lesson("trees", probe, ["dogwood"])
    assert (taught.corrections, list(taught.new_classes.texts.values)) == (1, ["dogwood"])
    assert answered(server.predict("trees", probe)) == ["dogwood"]
    assert [entry.label.text for entry in server.learner("trees").classes][-1] == "dogwood"


def test_a_repetition_is_learned_once_and_the_same_id_with_other_content_is_refused(server: Server) -> None:
    x, y = blobs(CLASSES, each=2)
    server.create("trees")
    server.lesson("trees", x, y)
    first = server.lesson("trees", x[:1], ["elm"], "one")
    again = server.lesson("trees", x[:1], ["elm"], "one")
    assert not first.repetition and again.repetition
    assert (again.examples_known, again.corrections, again.new_classes) == (
        first.examples_known,
        first.corrections,
        first.new_classes,
    )
    with refused("REQUEST_ID_USED"):
        server.lesson("trees", x[1:2], ["elm"], "one")
    with refused("REQUEST_ID_USED"):
        server.lesson("trees", x[:1], ["fir"], "one")
    server.kill()
    server.restart()
    assert server.lesson("trees", x[:1], ["elm"], "one").repetition
    snapshot = snapshot_pb2.CreateSnapshotRequest(learner="trees")
    assert server.admin.CreateSnapshot(snapshot, timeout=60).snapshot.model_version == 1
    assert server.lesson("trees", x[:1], ["elm"], "one").repetition  # though its examples are gone
    assert server.learner("trees").status.examples_known == 7


@pytest.mark.parametrize("bad", ["shape", "label", "count", "nan", "kind", "id", "many", "nothing"])
def test_a_bad_example_refuses_the_whole_lesson_and_changes_nothing(server: Server, bad: str) -> None:
    x, y = blobs(CLASSES, each=3)
    server.create("trees")
    server.lesson("trees", x, y)
    before, status = bits(server, "trees", x), server.learner("trees").status
    wrong: dict[str, tuple[str, Any, list[Any], str]] = {
        "shape": ("SHAPE_MISMATCH", x[:, :5], y, ""),
        "label": ("LABEL_INVALID", x[:2], ["elm", ""], ""),
        "count": ("LABEL_COUNT_MISMATCH", x[:2], ["elm"], ""),
        "nan": ("NON_FINITE_VALUES", np.where(np.arange(len(x))[:, None] == 4, np.nan, x), ["elm"] * len(x), ""),
        "kind": ("LABEL_KIND_MISMATCH", x[:2], [1, 2], ""),
        "id": ("NAME_INVALID", x[:1], ["elm"], "no spaces please"),
        "many": ("TOO_MANY_EXAMPLES", np.zeros((1025, 12)), ["elm"] * 1025, ""),
        "nothing": ("FIELD_INVALID", x[:0], [], ""),
    }
    reason, examples, given, request_id = wrong[bad]
    with refused(reason):
        server.lesson("trees", examples, given, request_id)
    after = server.learner("trees").status
    assert bits(server, "trees", x) == before
    assert (after.examples_known, after.backlog.lessons) == (status.examples_known, status.backlog.lessons)
    assert {entry.label.text for entry in server.learner("trees").classes} == set(CLASSES)


def test_learners_without_stable_features_say_what_they_need(server: Server) -> None:
    images = np.zeros((2, 1, 28, 28), np.uint8)
    server.admin.CreateLearner(learner_admin_pb2.CreateLearnerRequest(name="images"), timeout=60)
    with refused("EPISODE_NEEDED"):
        server.lesson("images", images, ["a", "b"])
    assert server.learner("images").input_shape == []  # it may still become anything
    server.create("plain", metric__enabled="false")
    with refused("METRIC_NEEDED"):
        server.lesson("plain", *blobs(CLASSES, each=2))
    with refused("EPISODE_NEEDED"):
        server.lesson("new", images, ["a", "b"], create_if_missing=True)
    with refused("LEARNER_NOT_FOUND"):  # what was made for a lesson that came to nothing is gone
        server.learner("new")


def test_batches_count_before_their_episode_ends_and_predictions_can_wait_for_them(server: Server) -> None:
    server.create("trees")
    x, y = blobs(CLASSES, each=10)
    probes, truth = blobs(CLASSES, each=10, seed=1)
    with server.stream("trees") as stream:
        for at in range(0, 30, 10):
            stream.send(x[at : at + 10], y[at : at + 10])
        stream.wait_ack()
        found = server.predict("trees", probes, min_examples=30)
        assert answered(found) == truth
        assert (found.model_version, found.examples_beyond_version) == (0, 30)
        status = server.learner("trees").status
        assert (status.backlog.open_examples, status.backlog.uncounted_examples, status.examples_known) == (30, 0, 30)
        server.lesson("trees", probes[:1], ["elm"])
        before = bits(server, "trees", probes)
    server.kill()
    server.restart()
    assert bits(server, "trees", probes, min_examples=31) == before


def test_predictions_that_wait_for_examples_that_never_come_say_so(server: Server) -> None:
    server.create("trees")
    server.lesson("trees", *blobs(CLASSES, each=2))
    with refused("EXAMPLES_NOT_REACHED") as failed:
        server.prediction.Predict(_request(server, 7), timeout=0.5)
    assert (failed[0].metadata["wanted"], failed[0].metadata["known"]) == ("7", "6")
    answers: list[Any] = []
    thread = in_thread(lambda: answers.append(server.prediction.Predict(_request(server, 7), timeout=60)))
    server.lesson("trees", blobs(["elm"], each=1)[0], ["elm"])
    thread.join(60)
    assert answers[0].examples_beyond_version == 7


def _request(server: Server, wanted: int) -> Any:
    x = blobs(CLASSES, each=1)[0]
    return prediction_pb2.PredictRequest(learner="trees", inputs=tensor(x), min_examples=wanted)


def test_lessons_become_a_version_that_answers_the_same_to_the_last_bit(serve: Callable[..., Server]) -> None:
    server = serve(teaching__version_seconds=3600)
    server.create("trees")
    x, y = blobs(CLASSES, each=6)
    probes, _ = blobs(CLASSES, each=10, seed=1)
    for i in range(len(x)):
        server.lesson("trees", x[i : i + 1], y[i : i + 1])
    before = bits(server, "trees", probes)
    made = server.admin.CreateSnapshot(snapshot_pb2.CreateSnapshotRequest(learner="trees"), timeout=60).snapshot
    assert made.model_version == 1
    found = server.predict("trees", probes)
    assert (found.model_version, found.examples_beyond_version) == (1, 0)
    assert bits(server, "trees", probes) == before
    assert server.learner("trees").status.examples_known == len(x)
    for path in server.data.glob("journal.db*"):
        assert x[0].tobytes() not in path.read_bytes()  # their raw examples are gone
    server.lesson("trees", probes[:1], ["elm"])
    beyond = bits(server, "trees", probes)
    server.kill()
    server.restart()
    assert bits(server, "trees", probes) == beyond


def test_lessons_become_a_version_by_themselves_after_a_while(lend: Callable[..., Server]) -> None:
    server = lend(teaching__version_seconds=0.2)
    server.create("trees")
    server.lesson("trees", *blobs(CLASSES, each=4))
    until(lambda: server.learner("trees").status.model_version == 1, what="a version of the lesson")
    status = server.learner("trees").status
    assert (status.backlog.lessons, status.backlog.bytes, status.examples_beyond_version) == (0, 0, 0)


def test_lessons_become_a_version_when_the_server_stops(server: Server) -> None:
    server.create("trees")
    x, y = blobs(CLASSES, each=4)
    server.lesson("trees", x, y)
    before = bits(server, "trees", x)
    server.stop()
    server.restart()
    assert server.learner("trees").status.model_version == 1
    assert bits(server, "trees", x) == before


def test_an_episode_is_learned_after_the_lessons_before_it_and_those_after_it_stay_beyond(server: Server) -> None:
    server.create("trees")
    x, y = blobs(CLASSES, each=10)
    probes, truth = blobs([*CLASSES, "elm", "fir"], each=10, seed=1)
    elms, firs = blobs(["elm"], each=5)[0], blobs(["fir"], each=5)[0]
    server.lesson("trees", elms, ["elm"] * 5)
    with server.stream("trees") as stream:
        stream.send(x, y)
        stream.end()
        stream.wait_ack()
        server.lesson("trees", firs, ["fir"] * 5)
        stream.close()
        list(stream.events())
    found = server.predict("trees", probes)
    assert (found.model_version, found.examples_beyond_version) == (1, 5)
    assert answered(found) == truth
    status = server.learner("trees").status
    assert (status.backlog.lessons, status.examples_known) == (1, 40)
    before = bits(server, "trees", probes)
    server.kill()
    server.restart()
    assert bits(server, "trees", probes) == before


def test_a_thin_episode_is_taught_and_never_parked(server: Server) -> None:
    server.create("trees")
    x, y = blobs(CLASSES, each=1)
    assert server.teach("trees", (x, y), (x[:1], y[:1]), (blobs(["elm"], each=1)[0], ["elm"])) == 3
    status = server.learner("trees").status
    assert (status.backlog.episodes_parked, status.episodes_learned) == (0, 3)
    assert answered(server.predict("trees", x)) == y


def test_a_forgotten_class_is_gone_from_lessons_and_counted_batches_before_the_call_returns(server: Server) -> None:
    server.create("trees")
    x, y = blobs([*CLASSES, "elm"], each=5)
    server.lesson("trees", x, y)
    with server.stream("trees") as stream:
        stream.send(*blobs(["elm", "fir"], each=5, seed=3))
        stream.wait_ack()
        server.predict("trees", x, min_examples=30)
        request = learner_admin_pb2.ForgetClassRequest(learner="trees", label=label_pb2.Label(text="elm"))
        gone = server.admin.ForgetClass(request, timeout=60)
        assert gone.journal_examples == 10
        found = server.predict("trees", x, min_examples=30)
        assert "elm" not in answered(found)
        assert found.examples_beyond_version == 20
        before = bits(server, "trees", x)
    server.kill()
    server.restart()
    assert bits(server, "trees", x, min_examples=30) == before
    again = server.lesson("trees", x[:1], ["elm"])
    assert list(again.new_classes.texts.values) == ["elm"]
    assert answered(server.predict("trees", x[:1])) == ["elm"]


def test_a_restored_version_keeps_lessons_that_no_version_has_and_loses_those_of_undone_ones(server: Server) -> None:
    server.create("trees")
    x, y = blobs(CLASSES, each=5)
    server.lesson("trees", x, y)
    snapshot = snapshot_pb2.CreateSnapshotRequest(learner="trees")
    old = server.admin.CreateSnapshot(snapshot, timeout=60).snapshot
    undone, kept = blobs(["elm"], each=1)[0], blobs(["fir"], each=1)[0]
    server.lesson("trees", undone, ["elm"])
    assert server.admin.CreateSnapshot(snapshot, timeout=60).snapshot.model_version == 2
    server.lesson("trees", kept, ["fir"])
    restore = snapshot_pb2.RestoreSnapshotRequest(learner="trees", snapshot_id=old.id)
    server.admin.RestoreSnapshot(restore, timeout=60)
    found = server.predict("trees", np.concatenate((undone, kept)))
    assert answered(found)[1] == "fir" and answered(found)[0] != "elm"
    assert (found.model_version, found.examples_beyond_version) == (3, 1)


def test_many_lessons_at_once_are_all_known_in_an_order_that_a_restart_repeats(server: Server) -> None:
    server.create("trees")
    x, y = blobs([*CLASSES, "elm"], each=10)
    probes, _ = blobs([*CLASSES, "elm"], each=5, seed=1)
    with server.stream("trees") as stream:
        threads = []
        for i in range(len(x)):
            threads.append(in_thread(lambda i=i: server.lesson("trees", x[i : i + 1], y[i : i + 1])))
            if i % 4 == 0:
                stream.send(probes[i % 20 : i % 20 + 1], ["fir"])
        for thread in threads:
            thread.join(60)
        stream.wait_ack()
        found = server.predict("trees", x, min_examples=50)
        assert found.examples_beyond_version == 50
        before = bits(server, "trees", probes)
    server.kill()
    server.restart()
    assert bits(server, "trees", probes, min_examples=50) == before


def test_versions_do_not_depend_on_when_lessons_were_consolidated(lend: Callable[..., Server]) -> None:
    found = []
    for seconds in (0.2, 3600):
        server = lend(teaching__version_seconds=seconds)
        server.create("trees")
        x, y = blobs(CLASSES, each=8)
        for i in range(6):
            server.lesson("trees", x[i : i + 1], y[i : i + 1])
            if seconds < 1:
                until(lambda: server.learner("trees").status.backlog.lessons == 0)  # noqa: B023
        server.teach("trees", (x[6:], y[6:]))
        server.lesson("trees", x[:1], ["elm"])
        found.append(bits(server, "trees", x))
    assert found[0] == found[1]


def test_lessons_in_the_middle_of_a_flood_overtake_it_in_an_order_that_a_restart_repeats(server: Server) -> None:
    server.create("trees")
    probes, _ = blobs([*CLASSES, "elm"], each=5, seed=1)
    with server.stream("trees") as stream:
        for i in range(60):
            stream.send(*blobs(CLASSES, each=20, seed=i))
            if i % 20 == 10:
                stream.wait_ack()
                taught = server.lesson("trees", probes[i % 20 : i % 20 + 1], ["elm"])
                assert answered(server.predict("trees", probes[i % 20 : i % 20 + 1])) == ["elm"]
                assert taught.examples_known <= 60 * (i + 1) + taught.examples
        stream.wait_ack()
        assert server.predict("trees", probes, min_examples=3603).examples_beyond_version == 3603
        before = bits(server, "trees", probes)
    server.kill()
    server.restart()
    assert bits(server, "trees", probes, min_examples=3603) == before
