"""Predictions, evaluation and the operator's calls, with and without asyncio, in memory and over a port."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sharp_client
from sharp_client import AsyncClient, Client, Limits, Retry
from sharp_client.testing import FakeServer

X = np.array([[i % 3, 1.0, -(i % 3)] for i in range(30)], np.float32)
Y = ["zero one two".split()[i % 3] for i in range(30)]


class Blocking:
    """An AsyncClient or an AsyncLearner that is driven like its plain twin, so that one test runs both."""

    def __init__(self, inner: Any, loop: asyncio.Runner) -> None:
        self._inner, self._loop = inner, loop

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if not callable(value):
            return value

        def call(*arguments: Any, **options: Any) -> Any:
            result = value(*arguments, **options)
            if inspect.isawaitable(result):

                async def wait() -> Any:
                    return await result

                return self._wrap(self._loop.run(wait()))
            if hasattr(result, "__anext__"):
                return self._iterate(result)
            return self._wrap(result)

        return call

    def __enter__(self) -> Any:
        async def enter() -> Any:
            return await self._inner.__aenter__()

        return self._wrap(self._loop.run(enter()))

    def __exit__(self, *error: Any) -> None:
        async def leave() -> None:
            await self._inner.__aexit__(*error)

        self._loop.run(leave())

    def _wrap(self, result: Any) -> Any:
        return Blocking(result, self._loop) if type(result).__name__.startswith("Async") else result

    def _iterate(self, result: Any) -> Iterator[Any]:
        async def step() -> Any:
            return await anext(result, None)

        async def end() -> None:
            await result.aclose()

        try:
            while (item := self._loop.run(step())) is not None:
                yield item
        finally:
            self._loop.run(end())


@contextmanager
def open_client(server: FakeServer, way: str, **options: Any) -> Iterator[Any]:
    if way == "memory":
        with server.client(**options) as client:
            yield client
    elif way == "port":
        with server.serve() as address, Client(address, **options) as client:
            yield client
    else:
        with asyncio.Runner() as loop, server.serve() as address:
            make: Callable[[], Any] = (
                (lambda: server.async_client(**options))
                if way == "async memory"
                else (lambda: AsyncClient(address, **options))
            )
            with Blocking(make(), loop) as client:
                yield client


WAYS = pytest.mark.parametrize("way", ["memory", "port", "async memory", "async port"])


def teach(client: Any, name: str = "words") -> Any:
    learner = client.learner(name)
    with learner.learn() as stream:
        stream.send(X, Y)
        report = stream.end_episode()
        report.wait(10)
    return learner


@WAYS
def test_predictions_come_as_arrays_with_everything_that_was_asked_for(way: str) -> None:
    with open_client(FakeServer(), way) as client:
        learner = teach(client)
        answer = learner.predict(X, top_k=2, nearest_memories=1, novelty=True, min_model_version=1)
    assert answer.labels.tolist() == Y and len(answer) == 30
    assert answer.vote_shares.dtype == answer.distances.dtype == np.float32
    assert answer.vote_shares.shape == answer.distances.shape == answer.novelties.shape == (30,)
    assert all(len(best) == 2 and best[0].label == label for best, label in zip(answer.top_classes, Y, strict=True))
    assert answer.nearest_memories[0][0].episode == 1
    assert (answer.model_version, answer.episodes_learned) == (1, 1)


@WAYS
def test_all_ways_to_a_server_give_the_same_answers(way: str) -> None:
    def answers(way: str) -> list[Any]:
        with open_client(FakeServer(), way) as client:
            answer = teach(client).predict(X + 0.2)
        return [answer.labels.tolist(), answer.vote_shares.tolist(), answer.distances.tolist()]

    assert answers(way) == answers("memory")


@WAYS
def test_a_large_array_is_predicted_in_parts_under_the_limits(way: str) -> None:
    server = FakeServer()
    with open_client(server, way, limits=Limits(batch_examples=7)) as client:
        answer = teach(client).predict(X)
    assert answer.labels.tolist() == Y
    assert sum(method == "Predict" for method, _ in server.calls) == 5


@WAYS
def test_evaluation_compares_predictions_with_the_truth(way: str) -> None:
    with open_client(FakeServer(), way) as client:
        learner = teach(client)
        wrong = ["zero" if label == "two" else label for label in Y]
        result = learner.evaluate(X, wrong)
        with pytest.raises(sharp_client.LabelCountMismatchError, match="30 examples and 2 labels"):
            learner.evaluate(X, ["zero", "one"])
    assert result.accuracy == pytest.approx(2 / 3)
    assert result.per_class == {"one": 1.0, "zero": 0.5}
    assert list(result.classes) == ["one", "two", "zero"]
    assert result.confusion.tolist() == [[10, 0, 0], [0, 0, 0], [0, 10, 10]]


@WAYS
def test_a_stream_of_predictions_answers_in_order_and_continues_after_a_failure(way: str) -> None:
    with open_client(FakeServer(), way, limits=Limits(batch_examples=4)) as client:
        learner = teach(client)
        batches = [X[:10], np.zeros((2, 5), np.float32), X[10:]]
        answers = list(learner.predict_stream(batches, return_failures=True))
        assert [len(answers[0]), type(answers[1]), len(answers[2])] == [10, sharp_client.ShapeMismatchError, 20]
        assert answers[2].labels.tolist() == Y[10:]
        with pytest.raises(sharp_client.ShapeMismatchError):
            list(learner.predict_stream(batches))
        with pytest.raises(sharp_client.DtypeUnsupportedError):
            list(learner.predict_stream([X, np.zeros((2, 3), int)]))


@WAYS
def test_learners_are_created_listed_described_and_deleted(way: str) -> None:
    with open_client(FakeServer(), way) as client:
        made = client.create_learner("words", preset="default", overrides={"training.phases": 12}, seed=7)
        assert dict(made.config.overrides) == {"training.phases": "12"} and made.config.seed == 7
        with pytest.raises(sharp_client.LearnerExistsError):
            client.create_learner("words")
        teach(client, "other")
        assert [learner.name for learner in client.list_learners()] == ["other", "words"]
        described = client.get_learner("other")
        assert [known.label for known in described.classes] == ["zero", "one", "two"]
        assert client.learner("other").status().model_version == 1
        with pytest.raises(sharp_client.LearnerNotFoundError):
            client.delete_learner("other", uid="another")
        client.delete_learner("other")
        with pytest.raises(sharp_client.LearnerNotFoundError) as refused:
            client.get_learner("other")
        assert refused.value.metadata["learner"] == "other"


@WAYS
def test_a_forgotten_class_is_never_predicted_again(way: str) -> None:
    with open_client(FakeServer(), way) as client:
        learner = teach(client)
        forgotten = learner.forget("two")
        assert (forgotten.model_version, forgotten.ltm_entries, len(forgotten.snapshots_holding)) == (2, 1, 1)
        assert set(learner.predict(X).labels) == {"zero", "one"}
        restored = learner.restore(learner.snapshots()[-1].id)
        assert restored.classes_forgotten == ("two",)
        with pytest.raises(sharp_client.ClassNotFoundError):
            learner.forget("seven")


@WAYS
def test_snapshots_travel_as_files_whole_and_checked(way: str, tmp_path: Path) -> None:
    file = tmp_path / "words.safetensors"
    with open_client(FakeServer(), way) as client:
        learner = teach(client)
        kept = learner.snapshot("before the move")
        exported = learner.export_to(file, snapshot_id=kept.id)
        assert exported.note == "before the move" and file.stat().st_size == exported.size_bytes
        copied = client.learner("copy").import_from(file, note="moved")
        assert copied.created and copied.snapshot.origin == "imported"
        assert client.learner("copy").predict(X).labels.tolist() == Y
        again = learner.import_from(file, restore=True)
        assert (again.created, again.model_version) == (False, 2)
        learner.delete_snapshot(kept.id)
        with pytest.raises(sharp_client.SnapshotNotFoundError):
            learner.delete_snapshot(kept.id)
        with pytest.raises(sharp_client.SnapshotMalformedError):
            (tmp_path / "bad").write_bytes(b"not a snapshot")
            learner.import_from(tmp_path / "bad")
        with pytest.raises(FileNotFoundError):
            learner.import_from(tmp_path / "missing")
        with pytest.raises(sharp_client.SnapshotMalformedError, match="empty"):
            (tmp_path / "empty").touch()
            learner.import_from(tmp_path / "empty")


@pytest.mark.parametrize("harm", ["bytes", "size"])
def test_a_snapshot_damaged_on_its_way_leaves_no_file(harm: str, tmp_path: Path) -> None:
    class Harmful(FakeServer):
        def do_ExportSnapshot(self, request: Any) -> Iterator[Any]:  # noqa: N802
            for part in super().do_ExportSnapshot(request):
                if part.HasField("chunk"):
                    part.chunk = part.chunk[:-1] + (b"?" if harm == "bytes" else b"")
                yield part

    with Harmful().client() as client:
        learner = teach(client)
        kind = sharp_client.ChecksumMismatchError if harm == "bytes" else sharp_client.SnapshotMalformedError
        with pytest.raises(kind):
            learner.export_to(tmp_path / "words.safetensors")
    assert list(tmp_path.iterdir()) == []


@WAYS
def test_parked_episodes_are_listed_retried_and_discarded(way: str) -> None:
    with open_client(FakeServer(), way) as client:
        learner = client.learner("words")
        learner.create(preset="sharp")
        for _ in range(2):
            with learner.learn() as stream:
                stream.send(X[:2], Y[:2])
                stream.end_episode()
        assert [parked.episode for parked in learner.parked()] == [1, 2]
        learner.retry(1)
        assert learner.discard(2).examples == 2
        assert learner.parked() == [] and learner.status().model_version == 1
        with pytest.raises(sharp_client.EpisodeNotFoundError):
            learner.discard(2)


@WAYS
def test_watching_shows_the_state_at_once_and_after_changes_until_the_learner_is_gone(way: str) -> None:
    server = FakeServer()
    with open_client(server, way) as client:
        learner = teach(client)
        messages = learner.watch()
        assert next(messages).status.model_version == 1
        with server.client() as other:
            other.learner("words").forget("two")
            assert next(messages).status.model_version == 2
            other.learner("words").delete()
            with pytest.raises(sharp_client.LearnerNotFoundError):
                while True:
                    next(messages)


def test_watching_continues_after_a_broken_connection() -> None:
    server = FakeServer()
    with server.client(retry=Retry(initial_delay=0.01)) as client:
        learner = teach(client)
        server.fail_next("WatchLearner", sharp_client.UnavailableError("gone", code="UNAVAILABLE"), times=2)
        messages = learner.watch()
        assert next(messages).status.model_version == 1
        messages.close()


def test_a_call_refused_for_now_is_repeated_and_one_that_must_not_be_is_not() -> None:
    server = FakeServer()
    with server.client(retry=Retry(initial_delay=0.001)) as client:
        teach(client)
        server.fail_next("ListSnapshots", sharp_client.ServerNotReadyError("starting"), times=2)
        assert len(client.list_snapshots("words")) == 1
        lost = sharp_client.UnavailableError("lost", code="UNAVAILABLE", retryable=True)
        server.fail_next("CreateSnapshot", lost)
        with pytest.raises(sharp_client.UnavailableError):
            client.create_snapshot("words")
        server.fail_next("CreateSnapshot", sharp_client.ServerNotReadyError("starting"))
        client.create_snapshot("words")
        assert len(client.list_snapshots("words")) == 2


def test_a_deletion_whose_answer_was_lost_counts_as_done() -> None:
    class Forgetful(FakeServer):
        def unary(self, method: str, request: Any) -> Any:
            answer = super().unary(method, request)
            if method == "DeleteLearner":
                raise sharp_client.UnavailableError("lost", code="UNAVAILABLE", retryable=True)
            return answer

    with Forgetful().client(retry=Retry(initial_delay=0.001)) as client:
        teach(client)
        client.delete_learner("words")
        with pytest.raises(sharp_client.LearnerNotFoundError):
            client.delete_learner("words")


def test_a_prediction_before_anything_was_learned_is_refused_with_the_reason() -> None:
    with FakeServer().client() as client:
        client.create_learner("words")
        with pytest.raises(sharp_client.NothingLearnedError):
            client.predict("words", X)


def test_a_closed_client_says_so() -> None:
    client = FakeServer().client()
    client.close()
    for call in (client.get_server_status, lambda: client.learn("words"), lambda: client.predict("words", X)):
        with pytest.raises(sharp_client.ClosedError):
            call()


def test_images_are_taught_and_predicted_from_files_and_pil(tmp_path: Path) -> None:
    from PIL import Image

    files = []
    for index in range(8):
        files.append(tmp_path / f"{index}.png")
        Image.new("L", (5, 4), 255 * (index % 2)).save(files[-1])
    labels = ["dark" if index % 2 == 0 else "light" for index in range(8)]
    with FakeServer().client() as client:
        learner = client.learner("shades")
        with learner.learn() as stream:
            stream.send(files, labels)
            stream.end_episode().wait(5)
        assert learner.predict(files).labels.tolist() == labels
        assert learner.predict(Image.new("L", (5, 4), 250)).labels.tolist() == ["light"]
        assert learner.predict(Image.new("L", (9, 9), 5), resize=True).labels.tolist() == ["dark"]
        with pytest.raises(sharp_client.ShapeMismatchError):
            learner.predict(Image.new("L", (9, 9), 5))
