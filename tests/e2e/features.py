"""What a client can do, feature by feature: each is played against the fake server and against a real one.

A feature uses learners of its own names, and waits for each answer where the order of answers would depend on timing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from sharp.v1 import label_pb2, learning_pb2, tensor_pb2
from sharp_client import Client, Learner, SharpError
from tests.e2e.transcripts import Recorder, WireStream

SETTINGS = {
    "metric.random_features": "24",
    "training.phases": "2",
    "training.min_steps": "8",
    "architecture.kind": "mlp",
    "architecture.layers": '[{"kind": "linear", "units": 40}, {"kind": "linear", "units": 40}]',
}
WAIT = 120.0

Feature = Callable[[Client, Recorder, Path], None]


def data(classes: str, seed: int = 0) -> tuple[np.ndarray[Any, Any], list[str]]:
    """Twenty examples of each class, far apart."""
    rng = np.random.default_rng(seed)
    labels = [label for label in classes for _ in range(20)]
    corners = np.stack([np.eye(12)[ord(label) - ord("a")] for label in labels])
    order = rng.permutation(len(labels))
    x = (0.8 * corners + 0.2 * rng.random((len(labels), 12))).astype(np.float32)
    return x[order], [labels[i] for i in order]


def attempt(call: Callable[[], Any]) -> None:
    """Do something that fails on purpose; how it fails is in the transcript."""
    with contextlib.suppress(SharpError):
        call()


def teach(learner: Learner, classes: str = "ab", **overrides: str) -> None:
    """Create a learner and teach it one episode."""
    learner.create(overrides={**SETTINGS, **overrides}, seed=3)
    with learner.learn() as stream:
        stream.send(*data(classes))
        stream.flush(WAIT)
        stream.end_episode().wait(WAIT)


def learners(sharp: Client, wire: Recorder, folder: Path) -> None:
    """Create, describe, list and delete learners."""
    one = sharp.learner("learners-one")
    attempt(one.get)
    one.create(overrides=SETTINGS, seed=3)
    attempt(one.create)
    one.get()
    sharp.create_learner("learners-two", input_shape=(12,), label_kind="text")
    sharp.get_learner("learners-two")
    assert [found.name for found in sharp.list_learners() if found.name.startswith("learners-")] == [
        "learners-one",
        "learners-two",
    ]
    del wire.calls[-1]  # the list holds learners of other features too
    attempt(lambda: sharp.delete_learner("learners-two", uid="another"))
    sharp.delete_learner("learners-two")
    attempt(lambda: sharp.delete_learner("learners-two"))
    attempt(lambda: one.predict(data("a")[0]))
    attempt(one.snapshot)
    attempt(lambda: sharp.learner("learners-ghost").learn(create=False))


def learning(sharp: Client, wire: Recorder, folder: Path) -> None:
    """Teach two episodes, with an empty mark between them, and resume the stream."""
    pets = sharp.learner("learning")
    pets.create(overrides=SETTINGS, seed=3)
    x, y = data("ab")
    with pets.learn(stream_id="one") as stream:
        for part in (slice(0, 30), slice(30, 40)):
            stream.send(x[part], y[part])
            stream.flush(WAIT)
        stream.end_episode().wait(WAIT)
        assert stream.end_episode().wait(WAIT).state == "empty"
        stream.send(*data("cd"))
        stream.flush(WAIT)
        stream.end_episode().wait(WAIT)
    attempt(lambda: pets.learn(stream_id="one", boundaries="automatic"))
    with pets.learn(stream_id="one") as stream:
        stream.send(*data("e"))
        stream.flush(WAIT)
    pets.predict(x[:1], min_examples=100, timeout=WAIT)  # what is open counts a moment after it is durable
    pets.get()


def thin_episodes(sharp: Client, wire: Recorder, folder: Path) -> None:
    """Teach an episode of one class, and one without two examples of any class."""
    pets = sharp.learner("thin")
    teach(pets, "a")
    with pets.learn(stream_id="one") as stream:
        stream.send(np.eye(2, 12, dtype=np.float32), ["b", "c"])
        stream.flush(WAIT)
        stream.end_episode().wait(WAIT)
    pets.get()


def automatic_boundaries(sharp: Client, wire: Recorder, folder: Path) -> None:
    """End a stream with automatic boundaries, twice."""
    pets = sharp.learner("automatic")
    pets.create(overrides=SETTINGS, seed=3)
    with pets.learn(boundaries="automatic", stream_id="one") as stream:
        stream.send(*data("ab"))
        stream.flush(WAIT)
        assert stream.end_episode().wait(WAIT).state == "learned"
        assert stream.end_episode().wait(WAIT).state == "empty"


def order_of_answers(sharp: Client, wire: Recorder, folder: Path) -> None:
    """Drive Learn by hand: marks, repeats, replays, gaps and messages that do not belong."""
    sharp.learner("order").create(overrides=SETTINGS, seed=3)
    x, y = data("ab")

    def open_stream(**options: Any) -> WireStream:
        call = WireStream(wire, learning_pb2.Open(learner="order", stream_id="wire", **options))
        call.read_until("opened")
        return call

    def batch(sequence: int) -> learning_pb2.Batch:
        tensor = tensor_pb2.Tensor(dtype=tensor_pb2.DTYPE_FLOAT32, shape=x.shape, data=x.tobytes())
        labels = label_pb2.Labels(texts=label_pb2.TextLabels(values=y))
        return learning_pb2.Batch(sequence=sequence, inputs=tensor_pb2.Inputs(tensor=tensor), labels=labels)

    call = open_stream()
    for message in (
        {"end_episode": learning_pb2.EndEpisode(sequence=1)},
        {"batch": batch(2)},
        {"batch": batch(2)},
        {"end_episode": learning_pb2.EndEpisode(sequence=3)},
    ):
        call.send(**message)
        call.read_until("ack")
    call.read_until("learned")
    for message in (
        {"end_episode": learning_pb2.EndEpisode(sequence=4)},
        {"end_episode": learning_pb2.EndEpisode(sequence=4)},
        {"batch": batch(5)},
    ):
        call.send(**message)
        call.read_until("ack")
    call.send(batch=batch(7))
    call.read_failure()
    for after in (0, 3, 4, 5):
        call = open_stream(replay_after_sequence=after)
        call.read_until("ack")
        call.close()
    call = open_stream()
    call.send(end_episode=learning_pb2.EndEpisode(sequence=6))
    call.read_until("learned")
    call.send(open=learning_pb2.Open(learner="order", stream_id="wire"))
    call.read_failure()
    call = open_stream(replay_after_sequence=0)
    call.read_until("ack")
    other = open_stream()
    call.send(batch=batch(7))
    call.read_failure()
    other.close()


def bad_batches(sharp: Client, wire: Recorder, folder: Path) -> None:
    """Send what the server refuses; the client's own checks are passed by."""
    sharp.learner("bad").create(overrides=SETTINGS, seed=3)
    good = np.zeros((2, 12), np.float32)

    def refused(x: np.ndarray[Any, Any], labels: label_pb2.Labels, size: int | None = None) -> None:
        call = WireStream(wire, learning_pb2.Open(learner="bad", stream_id="wire"))
        call.read_until("opened")
        tensor = tensor_pb2.Tensor(dtype=tensor_pb2.DTYPE_FLOAT32, shape=x.shape, data=x.tobytes()[:size])
        inputs = tensor_pb2.Inputs(tensor=tensor)
        call.send(batch=learning_pb2.Batch(sequence=2, inputs=inputs, labels=labels))
        call.read_failure()

    texts = label_pb2.Labels(texts=label_pb2.TextLabels(values=["a", "b"]))
    with sharp.learner("bad").learn(stream_id="wire") as stream:
        stream.send(good, ["a", "b"])
        stream.flush(WAIT)
    refused(good[:, :5], texts)
    refused(good, label_pb2.Labels(integers=label_pb2.IntegerLabels(values=[1, 2])))
    refused(good, label_pb2.Labels(texts=label_pb2.TextLabels(values=["a"])))
    refused(good, texts, size=-4)
    refused(np.full((2, 12), np.nan, np.float32), texts)


def prediction(sharp: Client, wire: Recorder, folder: Path) -> None:
    """Predict with everything there is to ask for, and what can't be answered."""
    pets, (x, y) = sharp.learner("prediction"), data("ab")
    teach(pets)
    answer = pets.predict(x, top_k=2, nearest_memories=1, novelty=True, min_model_version=1)
    assert answer.labels.tolist() == y
    attempt(lambda: pets.predict(x[:, :5]))
    attempt(lambda: pets.predict(x, top_k=100_000))
    attempt(lambda: pets.predict(x, min_model_version=99, timeout=0.5))
    answers = list(pets.predict_stream([x[:3], x[:3, :5], x[:2]], return_failures=True))
    assert [type(one).__name__ if isinstance(one, SharpError) else len(one) for one in answers] == [
        3,
        "ShapeMismatchError",
        2,
    ]
    assert pets.evaluate(x, y).accuracy == 1.0


def snapshots(sharp: Client, wire: Recorder, folder: Path) -> None:
    """Create, list, export, import, restore and delete snapshots."""
    pets, (x, _) = sharp.learner("snapshots"), data("ab")
    teach(pets)
    kept = pets.snapshot("before")
    pets.snapshots()
    attempt(lambda: pets.restore("00000000-nothing"))
    del wire.calls[-1].answers[:]
    exported = pets.export_to(folder / "pets.file", snapshot_id=kept.id)
    assert (folder / "pets.file").stat().st_size == exported.size_bytes == kept.size_bytes
    del wire.calls[-1].answers[2:]  # the fake's file fits one chunk
    copy = sharp.learner("snapshots-copy")
    copy.import_from(folder / "pets.file")
    copy.predict(x)
    (folder / "hostile").write_bytes(b"\x80\x04cos\nsystem\n" * 20)
    attempt(lambda: copy.import_from(folder / "hostile"))
    pets.restore(kept.id)
    attempt(lambda: pets.delete_snapshot(pets.snapshots()[0].id))
    pets.delete_snapshot(kept.id)
    attempt(lambda: pets.delete_snapshot(kept.id))
    copy.delete()
    attempt(copy.get)


def forgetting(sharp: Client, wire: Recorder, folder: Path) -> None:
    """Forget a class, and restore a snapshot that still holds it."""
    pets, (x, _) = sharp.learner("forgetting"), data("ab")
    teach(pets)
    kept = pets.snapshot("before")
    assert len(pets.forget("a").snapshots_holding) == 2
    assert set(pets.predict(x).labels) == {"b"}
    attempt(lambda: pets.forget("z"))
    assert pets.restore(kept.id).classes_forgotten == ("a",)
    pets.restore(kept.id, with_forgotten=True)
    assert set(pets.predict(x).labels) == {"a", "b"}
    assert pets.forget("b", older_snapshots="delete").snapshots_deleted
    pets.get()


def names_of_classes(sharp: Client, wire: Recorder, folder: Path) -> None:
    """Rename and merge classes, learned ones and ones that wait; snapshots bring the old names back."""
    pets, (x, y) = sharp.learner("names"), data("abc")
    teach(pets)
    with pets.learn(stream_id="later") as stream:
        stream.send(x, y)
        stream.flush(WAIT)
        pets.rename_class("a", "A")
        assert set(pets.predict(data("ab")[0]).labels) == {"A", "b"}
        attempt(lambda: pets.rename_class("a", "A"))
        attempt(lambda: pets.rename_class("A", "b"))
        pets.rename_class("c", "C")
        pets.merge_classes("C", "b")
        attempt(lambda: pets.merge_classes("C", "b"))
        attempt(lambda: pets.merge_classes("b", "b"))
        attempt(lambda: pets.rename_class("A", 3))
        stream.end_episode().wait(WAIT)
    assert {entry.label for entry in pets.get().classes} == {"A", "b"}
    pets.merge_classes("A", "b")
    pets.get()
    pets.undo()
    pets.undo()
    pets.get()


def undoing(sharp: Client, wire: Recorder, folder: Path) -> None:
    """Go back one version, and one more, and look at how good they were."""
    pets, (x, y) = sharp.learner("undoing"), data("cd")
    attempt(pets.undo)
    teach(pets)
    attempt(pets.undo)
    with pets.learn(stream_id="later") as stream:
        stream.send(x, y)
        stream.end_episode().wait(WAIT)
    pets.undo(preview=True)
    attempt(lambda: pets.undo(model_version=7))
    assert pets.undo(model_version=2).restored_model_version == 1
    attempt(pets.undo)
    pets.quality()
    pets.forget("a")
    pets.undo()
    pets.get()


def parked_episodes(sharp: Client, wire: Recorder, folder: Path) -> None:
    """An episode that can't be learned is parked, and discarded: here, one without a pair and without a metric."""
    pets = sharp.learner("parked")
    teach(pets, **{"metric.enabled": "false"})
    with pets.learn(stream_id="one") as stream:
        stream.send(np.eye(2, 12, dtype=np.float32), ["b", "c"])
        stream.flush(WAIT)
        attempt(lambda: stream.end_episode().wait(WAIT))
    parked = pets.parked()
    pets.discard(parked[0].episode)
    assert pets.parked() == []
    attempt(lambda: pets.discard(parked[0].episode))
    attempt(lambda: pets.retry(999))
    call = WireStream(wire, learning_pb2.Open(learner="parked", stream_id="one", replay_after_sequence=0))
    call.read_until("ack")
    call.close()


def lessons(sharp: Client, wire: Recorder, folder: Path) -> None:
    """Teach single examples, correct answers, repeat a lesson, and make versions of them."""
    one = sharp.learner("lessons-one")
    x, y = data("abc")
    attempt(lambda: one.teach(x, y, create=False))
    one.create(overrides=SETTINGS, seed=3)
    one.teach(x, y)
    one.predict(x, min_examples=60)
    taught = one.teach(x[:1], "d", request_id="correction")
    one.teach(x[:1], ["d"], request_id="correction")
    attempt(lambda: one.teach(x[:1], "e", request_id="correction"))
    attempt(lambda: one.teach(x[:2], ["a"]))
    attempt(lambda: one.teach(x[:1, :3], ["a"]))
    attempt(lambda: one.teach(x[:1], [3]))
    attempt(lambda: one.teach(x[:1], "a", request_id="no id"))
    one.predict(x[:1], min_examples=taught.examples_known)
    attempt(lambda: one.predict(x[:1], min_examples=1000, timeout=0.3))
    one.get()
    one.snapshot("with lessons")
    one.predict(x[:1])
    one.teach(x[:1], ["d"], request_id="correction")
    with one.learn() as stream:
        stream.send(*data("ef"))
        stream.flush(WAIT)
        one.predict(data("e")[0], min_examples=101)
        one.forget("e")
        stream.end_episode().wait(WAIT)
    one.predict(data("f")[0])
    one.forget("d")
    plain = sharp.learner("lessons-plain")
    plain.create(preset="sharp")
    attempt(lambda: plain.teach(x, y))
    attempt(lambda: sharp.learner("lessons-images").teach(np.zeros((1, 1, 8, 8), np.uint8), "a"))


def status(sharp: Client, wire: Recorder, folder: Path) -> None:
    """Look at a server and at a learner."""
    pets = sharp.learner("status")
    teach(pets)
    updates = pets.watch()
    next(iter(updates))
    sharp.get_server_status()
    pets.status()


FEATURES: tuple[Feature, ...] = (
    learners,
    learning,
    thin_episodes,
    automatic_boundaries,
    order_of_answers,
    bad_batches,
    prediction,
    snapshots,
    forgetting,
    names_of_classes,
    undoing,
    parked_episodes,
    lessons,
    status,
)
"""All of them."""
