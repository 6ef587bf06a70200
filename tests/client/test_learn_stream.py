"""A learn stream survives everything that can happen to a connection, and each batch is learned once."""

from __future__ import annotations

import threading
import time
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sharp_client
from sharp.v1 import learning_pb2
from sharp_client import Limits, OpenEpisodeWarning, Retry, Timeout
from sharp_client.testing import FakeServer

Array = np.ndarray[Any, Any]
QUICK = Retry(initial_delay=0.001, largest_delay=0.002, resume_for=5)

pytestmark = pytest.mark.filterwarnings("ignore::sharp_client.OpenEpisodeWarning")


def two_classes(first: int = 0, n: int = 12) -> tuple[Array, list[int]]:
    y = [first + i % 2 for i in range(n)]
    return np.array([[label, -label, 1] for label in y], np.float32), y


def counts(server: FakeServer, learner: str = "digits") -> dict[Any, int]:
    return {label: known.count for label, known in server.learners[learner].classes.items()}


def test_the_example_of_the_readme_works() -> None:
    x, y = two_classes()
    with FakeServer().client() as sharp:
        digits = sharp.learner("digits")
        with digits.learn() as stream:
            for part in (slice(0, 6), slice(6, 12)):
                stream.send(x[part], y[part])
            report = stream.end_episode()
        report.wait(5)
        assert (report.state, report.model_version, report.episode) == ("learned", 1, 1)
        assert report.statistics is not None and report.statistics.examples == 12
        assert digits.predict(x, min_model_version=report.model_version).labels.tolist() == y


@settings(max_examples=40, deadline=None)
@given(
    breaks=st.lists(st.tuples(st.integers(0, 6), st.booleans()), max_size=8),
    batches=st.integers(1, 12),
    window=st.integers(1, 5),
)
def test_a_stream_broken_at_any_points_teaches_each_batch_once(
    breaks: list[tuple[int, bool]], batches: int, window: int
) -> None:
    server = FakeServer()
    for after, lose_answer in breaks:
        server.break_learn(after, lose_answer=lose_answer)
    x, y = two_classes()
    with server.client(retry=QUICK, limits=Limits(window_batches=window)) as sharp:
        with sharp.learner("digits").learn() as stream:
            for _ in range(batches):
                stream.send(x, y)
            report = stream.end_episode()
        report.wait(10)
    assert counts(server) == {0: 6 * batches, 1: 6 * batches}
    assert report.model_version == 1
    assert stream.acknowledged == batches + 1
    assert stream.examples_acknowledged == stream.examples_sent == 12 * batches
    assert server.learners["digits"].streams[stream.stream_id].last_sequence == batches + 1


def test_the_outcome_of_an_episode_is_known_though_the_connection_broke_before_it_came() -> None:
    server = FakeServer()
    x, y = two_classes()
    with server.client(retry=QUICK) as sharp, sharp.learner("digits").learn() as stream:
        stream.send(x, y)
        stream.flush()
        server.break_learn(lose_answer=True)  # of the mark: acknowledgement and events are lost
        report = stream.end_episode().wait(5)
        assert (report.state, stream.resumptions) == ("learned", 1)


def test_batches_over_the_limits_of_the_server_are_split() -> None:
    server = FakeServer(message_bytes_limit=4096 + 400, batch_examples_limit=7)
    x, y = two_classes(n=50)
    with server.client() as sharp, sharp.learner("digits").learn() as stream:
        stream.send(x, y)
        stream.end_episode().wait(5)
    assert counts(server) == {0: 25, 1: 25}
    sizes = [len(r.batch.labels.integers.values) for _, r in server.calls if r.HasField("batch")]
    assert max(sizes) == 7 and sum(sizes) == 50


def test_the_window_bounds_what_is_not_acknowledged() -> None:
    server = FakeServer()
    release = threading.Event()
    arrived = server._arrive

    def slow(method: str, request: Any) -> None:
        arrived(method, request)
        if method == "Learn" and request.HasField("batch"):
            release.wait(5)

    server._arrive = slow  # type: ignore[method-assign]
    x, y = two_classes()
    with server.client(limits=Limits(window_batches=3)) as sharp, sharp.learner("digits").learn() as stream:

        def send_all() -> None:
            for _ in range(6):
                stream.send(x, y)

        sender = threading.Thread(target=send_all)
        sender.start()
        sender.join(0.3)
        assert sender.is_alive() and stream.examples_sent == 3 * 12
        release.set()
        sender.join(5)
        stream.flush(5)
        assert stream.examples_acknowledged == 6 * 12


@pytest.mark.parametrize(
    ("x", "y", "error", "words"),
    [
        (np.zeros((2, 4), np.float32), [0, 1], sharp_client.ShapeMismatchError, r"\(3,\), not \(4,\)"),
        (np.zeros((2, 3), np.float32), ["a", "b"], sharp_client.LabelKindMismatchError, "'a'"),
        (np.zeros((2, 3), np.float32), [0], sharp_client.LabelCountMismatchError, "2 examples and 1 labels"),
        (np.full((2, 3), np.nan), [0, 1], sharp_client.NonFiniteValuesError, "example 0"),
    ],
)
def test_what_is_wrong_is_raised_before_anything_is_sent(
    x: Array, y: list[Any], error: type[Exception], words: str
) -> None:
    server = FakeServer()
    with server.client() as sharp:
        with sharp.learner("digits").learn() as stream:
            stream.send(*two_classes())
        with sharp.learner("digits").learn() as stream:
            before = len(server.calls)
            with pytest.raises(error, match=words):
                stream.send(x, y)
            assert len(server.calls) == before
            stream.send(*two_classes())  # the stream goes on


def test_a_batch_that_the_server_refuses_ends_the_stream_with_its_reason() -> None:
    server = FakeServer()
    with server.client() as sharp:
        stream = sharp.learner("digits").learn()
        server.fail_next("Learn", sharp_client.TooManyClassesError("too many", metadata={"limit": "2"}))
        with pytest.raises(sharp_client.TooManyClassesError) as refused:
            with stream:
                stream.send(*two_classes())
                stream.flush(5)
        assert refused.value.metadata == {"limit": "2"}
        with pytest.raises(sharp_client.TooManyClassesError):
            stream.send(*two_classes())


def test_a_stream_taken_over_by_another_call_is_not_taken_back() -> None:
    with FakeServer().client(retry=QUICK) as sharp:
        learner = sharp.learner("digits")
        first = learner.learn(stream_id="job")
        first.send(*two_classes())
        first.flush(5)
        with learner.learn(stream_id="job") as second:
            assert second.acknowledged == 1
            with pytest.raises(sharp_client.StreamTakenOverError):
                first.send(*two_classes())
                first.flush(5)
            second.send(*two_classes())
            second.flush(5)
            assert second.acknowledged == 2


def test_a_stream_can_be_resumed_by_its_id_later() -> None:
    server = FakeServer()
    with server.client() as sharp, sharp.learner("digits").learn(stream_id="night/2026-11-16") as stream:
        stream.send(*two_classes())
    with server.client() as sharp, sharp.learner("digits").learn(stream_id="night/2026-11-16") as stream:
        assert (stream.acknowledged, stream.opened.open_examples) == (1, 12)
        report = stream.end_episode()
    assert report.mark == 2 and counts(server) == {0: 6, 1: 6}


class Failing(FakeServer):
    """Has a fault at one message of a learn stream, after which the job that sent it ends."""

    messages_left: int | None = None

    def _arrive(self, method: str, request: Any) -> None:
        super()._arrive(method, request)
        if self.messages_left is not None:
            self.messages_left -= 1
            if self.messages_left < 0:
                self.messages_left = None
                raise sharp_client.InternalError("a fault", code="INTERNAL")


@pytest.mark.parametrize("messages", range(1, 7))
def test_a_job_run_again_from_the_start_sends_only_what_is_not_durable(messages: int) -> None:
    server = Failing(batch_examples_limit=8)  # each batch of 12 takes two messages

    def job() -> list[tuple[str, int]]:
        with server.client() as sharp:
            with sharp.learner("digits").learn(stream_id="job", from_start=True) as stream:
                for first in (0, 2):
                    stream.send(*two_classes(first))
                    stream.end_episode()
            reports = stream.wait(5)
            assert stream.examples_acknowledged == stream.examples_sent == 24
            return [(report.state, report.model_version) for report in reports]

    def batches_sent() -> int:
        return sum(request.HasField("batch") for _, request in server.calls)

    server.messages_left = messages
    with pytest.raises(sharp_client.InternalError):
        job()
    before = batches_sent()
    for _ in range(2):
        assert job() == [("learned", 1), ("learned", 2)]
        assert counts(server) == {0: 6, 1: 6, 2: 6, 3: 6}
    durable = messages - 1
    assert batches_sent() - before == 4 - (durable - durable // 3)


def test_a_learner_replaced_under_a_stream_is_noticed() -> None:
    server = FakeServer()
    with server.client(retry=QUICK) as sharp:
        learner = sharp.learner("digits")
        stream = learner.learn()
        stream.send(*two_classes())
        stream.flush(5)
        learner.delete()
        learner.create()
        server.break_learn()
        with pytest.raises(sharp_client.StreamLostError, match="created again"):
            stream.send(*two_classes())
            stream.flush(5)


def test_an_episode_without_examples_is_empty() -> None:
    with FakeServer().client() as sharp, sharp.learner("digits").learn() as stream:
        assert stream.end_episode().wait(5).state == "empty"
        stream.send(*two_classes())
        assert stream.end_episode().wait(5).state == "learned"
        assert stream.end_episode().wait(5).state == "empty"


def test_an_empty_mark_is_known_though_its_answer_was_lost() -> None:
    server = FakeServer()
    with server.client(retry=QUICK) as sharp, sharp.learner("digits").learn() as stream:
        stream.send(*two_classes())
        stream.end_episode().wait(5)
        server.break_learn(lose_answer=True)
        assert stream.end_episode().wait(5).state == "empty"
        assert stream.resumptions == 1


class SlowToReplay(FakeServer):
    """Opens a stream at once, and sends the rest only when allowed to."""

    def __init__(self) -> None:
        super().__init__()
        self.may_replay = threading.Event()

    def stream(self, method: str, requests: Any, cancelled: Any) -> Any:
        for answer in super().stream(method, requests, cancelled):
            if method == "Learn" and not answer.HasField("opened"):
                self.may_replay.wait(20)
            yield answer


@pytest.mark.parametrize(("examples", "state", "version"), [(12, "learned", 1), (0, "empty", 0)])
def test_after_a_slow_reconnection_the_server_says_what_became_of_a_mark_and_no_clock_does(
    examples: int, state: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = SlowToReplay()
    server.may_replay.set()
    clock = time.monotonic
    ahead = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock() + ahead[0])
    with server.client(retry=QUICK) as sharp, sharp.learner("digits").learn() as stream:
        if examples:
            stream.send(*two_classes(n=examples))
            stream.flush(5)
        server.may_replay.clear()
        server.break_learn(lose_answer=True)
        report = stream.end_episode()
        stream.flush(5)  # by the number in Opened: the mark is durable, its answer has not come again
        assert stream.resumptions == 1
        ahead[0] = 300.0  # minutes pass
        with pytest.raises(sharp_client.DeadlineError):
            report.wait(0.2)
        assert report.state == "sent"
        server.may_replay.set()
        assert (report.wait(5).state, report.model_version) == (state, version)


def test_a_job_run_again_from_the_start_knows_its_empty_marks() -> None:
    server = FakeServer()

    def job() -> list[str]:
        with server.client() as sharp:
            with sharp.learner("digits").learn(stream_id="job", from_start=True) as stream:
                stream.end_episode()
                stream.send(*two_classes())
                stream.end_episode()
                stream.end_episode()
            return sorted(report.state for report in stream.wait(5))

    assert job() == job() == ["empty", "empty", "learned"]


def test_a_parked_episode_raises_when_it_is_waited_for() -> None:
    with FakeServer().client() as sharp:
        sharp.create_learner("digits", preset="sharp")
        with sharp.learner("digits").learn() as stream:
            stream.send(np.eye(2, 3, dtype=np.float32), [0, 1])
            with pytest.raises(sharp_client.EpisodeParkedError, match="no positive pair") as parked:
                stream.end_episode().wait(5)
        assert parked.value.park_reason == "no_positive_pair"


def test_automatic_boundaries_give_reports_of_the_cuts() -> None:
    server = FakeServer()
    with server.client() as sharp:
        with sharp.learner("digits").learn(boundaries="automatic") as stream:
            stream.send(*two_classes(0))
            stream.send(*two_classes(2))
            stream.end_episode()
        reports = stream.wait(5)
    assert [report.closed.closed_by for report in reports if report.closed] == ["cut", "mark"]
    assert [report.model_version for report in reports] == [1, 2]


def test_an_unavailable_server_is_given_up_after_the_time_to_connect() -> None:
    server = FakeServer()
    server.fail_next("Learn", sharp_client.UnavailableError("gone", code="UNAVAILABLE"), times=10_000)
    with server.client(retry=QUICK, timeout=Timeout(connect=0.2)) as sharp:
        with pytest.raises(sharp_client.UnavailableError, match="gone"):
            sharp.learner("digits").learn()


def test_a_stream_that_stays_broken_fails_with_what_broke_it() -> None:
    server = FakeServer()
    retry = Retry(initial_delay=0.01, largest_delay=0.01, resume_for=0.1)
    with server.client(retry=retry) as sharp:
        stream = sharp.learner("digits").learn()
        server.fail_next("Learn", sharp_client.UnavailableError("gone", code="UNAVAILABLE"), times=10_000)
        with pytest.raises(sharp_client.UnavailableError, match="gone"):
            stream.send(*two_classes())
            stream.flush(5)


def test_a_silent_server_is_noticed() -> None:
    server = FakeServer()
    with server.client(timeout=Timeout(acknowledge=0.2)) as sharp:
        stream = sharp.learner("digits").learn()
        with server._lock:  # nothing is answered while this is held
            stream.send(*two_classes())
            with pytest.raises(sharp_client.DeadlineError, match="nothing came from the server"):
                stream.flush()
        stream.cancel()


def test_a_closed_stream_takes_nothing_more() -> None:
    with FakeServer().client() as sharp:
        stream = sharp.learner("digits").learn()
        stream.close()
        stream.close()
        with pytest.raises(sharp_client.ClosedError):
            stream.send(*two_classes())
        with pytest.raises(sharp_client.ClosedError):
            stream.end_episode()


def test_an_exception_in_the_block_leaves_at_once() -> None:
    server = FakeServer()
    with server.client() as sharp:
        with pytest.raises(ZeroDivisionError), sharp.learner("digits").learn() as stream:
            raise ZeroDivisionError
        with pytest.raises(sharp_client.ClosedError):
            stream.flush()


def test_several_threads_may_send_on_one_stream_and_use_one_client() -> None:
    server = FakeServer()
    x, y = two_classes()
    with server.client() as sharp:
        digits = sharp.learner("digits")
        with digits.learn() as stream:

            def work() -> None:
                for _ in range(10):
                    stream.send(x, y)
                    sharp.get_server_status()

            threads = [threading.Thread(target=work) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(20)
            stream.end_episode().wait(5)
    assert counts(server) == {0: 240, 1: 240}


@pytest.mark.parametrize("name", ["", "-digits", "a" * 64, "dig its", "ä"])
def test_a_name_that_no_learner_can_have_is_refused_at_once(name: str) -> None:
    with FakeServer().client() as sharp, pytest.raises(sharp_client.NameInvalidError):
        sharp.learner(name)


def test_a_stream_id_that_no_stream_can_have_is_refused_at_once() -> None:
    with FakeServer().client() as sharp, pytest.raises(sharp_client.NameInvalidError, match="no id for a stream"):
        sharp.learner("digits").learn(stream_id="a b")


def test_the_producer_chooses_what_happens_at_the_byte_limit() -> None:
    server = FakeServer()
    with server.client() as sharp, sharp.learner("digits").learn(backpressure="fail") as stream:
        stream.flush()
    assert server.calls[0][1].open.backpressure == learning_pb2.BACKPRESSURE_FAIL


def test_leaving_with_examples_that_no_episode_closed_warns_with_their_number() -> None:
    with FakeServer().client() as sharp:
        with pytest.warns(OpenEpisodeWarning, match="left with 3 examples in no episode") as warned:  # noqa: SIM117
            with sharp.learner("a").learn() as stream:
                stream.send(np.eye(3, 4), ["a", "b", "c"])
                stream.end_episode()
                stream.send(np.eye(3, 4), ["a", "b", "c"])
                assert stream.open_examples == 3
        assert warned[0].filename == __file__
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with sharp.learner("a").learn() as stream:
                stream.send(np.eye(3, 4), ["a", "b", "c"])
                stream.end_episode()
        assert sharp.learner("a").status().backlog.open_examples == 3
