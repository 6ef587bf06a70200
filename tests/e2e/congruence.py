"""One story told with a client, and what it saw: to compare the fake server of `sharp_client.testing` with the real."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from sharp_client import Client, SharpError

SETTINGS = {
    "training.phases": "2",
    "training.min_steps": "8",
    "architecture.kind": "mlp",
    "architecture.layers": '[{"kind": "linear", "units": 40}, {"kind": "linear", "units": 40}]',
}


def failed(call: Callable[[], Any]) -> tuple[Any, ...]:
    """How a call failed: all that a program can decide by."""
    try:
        call()
    except SharpError as error:
        return type(error).__name__, error.code, error.reason, error.retryable
    return ("nothing failed",)


def data(classes: str, seed: int = 0) -> tuple[np.ndarray[Any, Any], list[str]]:
    """Twenty examples of each class, far apart."""
    rng = np.random.default_rng(seed)
    labels = [label for label in classes for _ in range(20)]
    corners = np.stack([np.eye(12)[ord(label) - ord("a")] for label in labels])
    order = rng.permutation(len(labels))
    x = (0.8 * corners + 0.2 * rng.random((len(labels), 12))).astype(np.float32)
    return x[order], [labels[i] for i in order]


def story(sharp: Client, folder: Path) -> dict[str, Any]:
    """Do about everything that a client can do; what the two servers may differ in (weights, ids) is left out."""
    seen: dict[str, Any] = {}
    pets = sharp.learner("pets")
    x, y = data("ab")
    seen["nobody"] = failed(lambda: pets.predict(x))
    seen["bad name"] = failed(lambda: sharp.create_learner("-"))
    pets.create(overrides=SETTINGS, seed=3)
    seen["twice"] = failed(lambda: sharp.create_learner("pets"))
    seen["nothing learned"] = failed(lambda: pets.predict(x))
    seen["no snapshot"] = failed(lambda: pets.snapshot())

    with pets.learn(stream_id="one") as stream:
        opened = stream.opened
        seen["opened"] = (opened.last_durable_sequence, opened.open_examples, opened.model_version, opened.boundaries)
        stream.send(x[:30], y[:30])
        stream.send(x[30:], y[30:])
        report = stream.end_episode()
        report.wait(120)
        nothing = stream.end_episode()
        stream.send(*data("cd"))
        second = stream.end_episode()
        second.wait(120)
        stream.flush()
        seen["stream"] = (stream.acknowledged, stream.examples_sent, stream.examples_acknowledged, stream.resumptions)
    seen["empty"] = nothing.state
    for name, told in (("first", report), ("second", second)):
        assert told.closed is not None and told.statistics is not None
        closed, statistics = told.closed, told.statistics
        seen[name] = (told.state, told.episode, told.model_version, closed.examples, closed.classes, closed.closed_by,
                      closed.first_sequence, closed.last_sequence, statistics.examples,
                      sorted(statistics.new_classes.texts.values))  # fmt: skip
    seen["other boundaries"] = failed(lambda: pets.learn(stream_id="one", boundaries="automatic"))
    with pets.learn(stream_id="one") as stream:
        seen["taken up"] = (stream.acknowledged, stream.opened.open_examples)
        seen["wrong kind"] = failed(lambda: stream.send(x[:2], [1, 2]))
        seen["wrong shape"] = failed(lambda: stream.send(x[:2, :5], ["a", "b"]))
        seen["too few labels"] = failed(lambda: stream.send(x[:2], ["a"]))
    seen["no such learner"] = failed(lambda: sharp.learner("ghost").learn(create=False))

    answer = pets.predict(x, top_k=2, nearest_memories=1, novelty=True, min_model_version=2)
    assert answer.novelties is not None
    seen["predicted"] = (
        answer.labels.tolist() == y, answer.labels.dtype.kind, answer.vote_shares.dtype, answer.vote_shares.shape,
        answer.distances.shape, answer.novelties.shape, {len(best) for best in answer.top_classes or ()},
        {len(near) for near in answer.nearest_memories or ()}, answer.model_version, answer.episodes_learned,
    )  # fmt: skip
    seen["predicted wrong shape"] = failed(lambda: pets.predict(x[:, :5]))
    seen["too many results"] = failed(lambda: pets.predict(x, top_k=100_000))
    seen["version to come"] = failed(lambda: pets.predict(x, min_model_version=99, timeout=0.5))
    answers = list(pets.predict_stream([x[:3], x[:3, :5], x[:2]], return_failures=True))
    seen["stream of predictions"] = [type(one).__name__ if isinstance(one, SharpError) else len(one) for one in answers]
    evaluation = pets.evaluate(x, y)
    seen["evaluation"] = (evaluation.accuracy, list(evaluation.classes), evaluation.confusion.shape)

    kept = pets.snapshot("before")
    seen["snapshot"] = (kept.model_version, kept.episodes_learned, kept.origin, kept.note, len(kept.sha256))
    seen["snapshots"] = [(s.model_version, s.origin) for s in pets.snapshots()]
    seen["unknown snapshot"] = failed(lambda: pets.restore("00000000-nothing"))
    exported = pets.export_to(folder / "pets.file", snapshot_id=kept.id)
    seen["exported"] = (exported.id == kept.id, (folder / "pets.file").stat().st_size == kept.size_bytes)
    copy = sharp.learner("copy")
    taken = copy.import_from(folder / "pets.file")
    seen["imported"] = (taken.created, taken.model_version, taken.snapshot.origin, copy.predict(x).labels.tolist() == y)
    (folder / "hostile").write_bytes(b"\x80\x04cos\nsystem\n" * 20)
    seen["hostile"] = failed(lambda: copy.import_from(folder / "hostile"))[:3]

    forgotten = pets.forget("a")
    seen["forgotten"] = (forgotten.model_version, forgotten.ltm_entries > 0, len(forgotten.snapshots_holding),
                         "a" in pets.predict(x).labels, failed(lambda: pets.forget("z")))  # fmt: skip
    back = pets.restore(kept.id)
    seen["restored"] = (back.model_version, back.previous_model_version, list(back.classes_forgotten.texts.values))
    seen["in use"] = failed(lambda: pets.delete_snapshot(pets.snapshots()[0].id))
    pets.delete_snapshot(kept.id)
    seen["deleted twice"] = failed(lambda: pets.delete_snapshot(kept.id))

    with pets.learn() as stream:
        stream.send(np.eye(2, 12, dtype=np.float32), ["b", "c"])
        lonely = stream.end_episode()
        seen["parked"] = failed(lambda: lonely.wait(120))
    parked = pets.parked()
    seen["list of parked"] = [(p.parked.reason, p.examples, list(p.classes.texts.values)) for p in parked]
    pets.discard(parked[0].episode)
    seen["discarded"] = (len(pets.parked()), failed(lambda: pets.discard(parked[0].episode)),
                         failed(lambda: pets.retry(999)))  # fmt: skip

    learner = pets.get()
    seen["learner"] = (list(learner.input_shape), learner.label_kind, {c.label.text for c in learner.classes},
                       learner.status.model_version, learner.status.state, dict(learner.config.overrides),
                       learner.status.backlog.lag_examples, learner.status.backlog.episodes_parked)  # fmt: skip
    seen["listed"] = [one.name for one in sharp.list_learners() if one.name in ("copy", "pets")]
    watched = next(iter(pets.watch()))
    seen["watched"] = (watched.status.model_version, len(watched.status.layers) > 0)
    status = sharp.get_server_status()
    seen["status"] = (status.state, status.limits.message_bytes > 0, status.trainer.running)
    copy.delete()
    seen["gone"] = (failed(copy.get), failed(copy.delete))
    return seen
