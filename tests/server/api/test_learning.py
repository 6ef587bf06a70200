"""The Learn stream: acknowledgements, order, repetition, faults, boundaries, backpressure, parked episodes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sharp.v1 import episode_pb2, learning_pb2, parked_pb2
from sharp_engine import Learner, Segmenter, StreamConfig, preset
from tests.server.running import SMALL, Server, answered, blobs, refused, until


def test_a_learner_made_by_the_first_stream_takes_its_shape_from_the_first_batch(shared: Server) -> None:
    with shared.stream("auto", create_if_missing=True) as stream:
        assert (stream.opened.last_durable_sequence, list(stream.opened.input_shape)) == (0, [])
        assert stream.opened.boundaries == learning_pb2.BOUNDARIES_EXPLICIT
        x, y = blobs("ab", each=10)
        stream.send(x, y)
        stream.wait_ack()
    learner = shared.learner("auto")
    assert list(learner.input_shape) == [12]
    assert learner.architecture.startswith("mlp for 12")
    assert learner.status.backlog.examples == 20


@pytest.mark.parametrize(
    ("shape", "architecture"), [((3, 2, 2), "mlp"), ((1, 28, 28), "dictionary"), ((3, 32, 32), "dictionary")]
)
def test_a_learner_without_configuration_takes_a_fitting_architecture(
    shape: tuple[int, ...], architecture: str, shared: Server
) -> None:
    name = f"fits-{architecture}-{shape[-1]}"
    with shared.stream(name, create_if_missing=True) as stream:
        stream.send(np.zeros((2, *shape), np.uint8), [1, 1])
        stream.wait_ack()
    assert shared.learner(name).architecture.startswith(f"{architecture} for {'×'.join(map(str, shape))}")


def test_the_raw_examples_of_a_learned_episode_are_nowhere_on_disk(shared: Server) -> None:
    shared.create("cleaned")
    x, y = blobs("ab")

    def on_disk() -> bool:
        folder = shared.folder / "data"
        return any(x[7].tobytes() in path.read_bytes() for path in folder.rglob("*") if path.is_file())

    with shared.stream("cleaned") as stream:
        stream.send(x, y)
        stream.wait_ack()
        assert on_disk()
        stream.end()
        stream.wait_event("learned")
    assert not on_disk()


def test_what_is_durable_is_acknowledged_again_and_learned_once(shared: Server) -> None:
    shared.create("repeat")
    x, y = blobs("ab", each=20)
    with shared.stream("repeat") as stream:
        stream.send(x, y)
        stream.wait_ack(1)
    with shared.stream("repeat") as stream:
        assert (stream.opened.last_durable_sequence, stream.opened.open_examples) == (1, 40)
        stream.send(x, y, sequence=1)
        stream.send(x, y, sequence=2)
        stream.end()
        stream.close()
        learned = [event.learned for event in stream.events() if event.HasField("learned")]
    assert learned[0].statistics.examples == 80
    assert list(learned[0].statistics.classes.texts.values) == ["a", "b"]
    assert len(learned[0].statistics.phase_losses) == 2
    assert sum(learned[0].statistics.recruited.values()) > 0


def test_a_number_left_out_aborts_and_what_came_before_stays(shared: Server) -> None:
    shared.create("gap")
    x, y = blobs("ab", each=5)
    with refused("SEQUENCE_GAP") as failure, shared.stream("gap") as stream:
        stream.send(x, y)
        stream.send(x, y, sequence=3)
        stream.wait_ack(3)
    assert (failure[0].metadata["expected"], failure[0].metadata["found"]) == ("2", "3")
    assert stream.acked == 1
    with shared.stream("gap") as again:
        assert again.opened.last_durable_sequence == 1


@pytest.mark.parametrize(
    ("reason", "bad"),
    [
        ("SHAPE_MISMATCH", lambda s: s.send(np.zeros((2, 13), np.float32), ["a", "b"])),
        ("NON_FINITE_VALUES", lambda s: s.send(np.full((2, 12), np.nan, np.float32), ["a", "b"])),
        ("LABEL_COUNT_MISMATCH", lambda s: s.send(np.zeros((2, 12), np.float32), ["a"])),
        ("LABEL_KIND_MISMATCH", lambda s: s.send(np.zeros((2, 12), np.float32), [1, 2])),
        ("FIELD_INVALID", lambda s: s.send(np.zeros((2, 12), np.float32), ["a", "b"], sequence=0)),
        ("FIELD_INVALID", lambda s: s.put(learning_pb2.LearnRequest())),
        ("UNEXPECTED_MESSAGE", lambda s: s.put(learning_pb2.LearnRequest(open=learning_pb2.Open(learner="bad")))),
    ],
)
def test_a_fault_in_a_batch_ends_the_call_and_its_number_is_free_for_a_better_one(
    shared: Server, reason: str, bad: Callable[..., object]
) -> None:
    x, y = blobs("ab", each=5)
    with shared.stream("bad", f"{reason}-{id(bad)}", create_if_missing=True) as stream:
        stream.send(x, y)
        stream.wait_ack(1)
        with refused(reason) as failure:
            bad(stream)
            stream.wait_event("learned")
        assert failure[0].code.name == "INVALID_ARGUMENT"
    with shared.stream("bad", f"{reason}-{id(bad)}") as again:
        assert again.opened.last_durable_sequence == 1
        again.send(x, y)
        again.wait_ack(2)


def test_names_and_first_messages_are_checked(shared: Server) -> None:
    for name, stream_id in (
        ("", "s"),
        ("../x", "s"),
        ("a/b", "s"),
        (".a", "s"),
        ("x" * 64, "s"),
        ("a", ""),
        ("a", "ä"),
    ):
        with refused("NAME_INVALID"):
            shared.stream(name, stream_id, create_if_missing=True)
    with refused("LEARNER_NOT_FOUND"):
        shared.stream("nobody")
    with refused("UNEXPECTED_MESSAGE"):
        mark = learning_pb2.LearnRequest(end_episode=learning_pb2.EndEpisode(sequence=1))
        next(iter(shared.learning.Learn(iter([mark]))))


def test_a_second_call_takes_over_the_stream_of_the_first(shared: Server) -> None:
    shared.create("taken")
    x, y = blobs("ab", each=5)
    with shared.stream("taken") as first:
        first.send(x, y)
        first.wait_ack(1)
        with shared.stream("taken") as second:
            assert second.opened.last_durable_sequence == 1
            with refused("STREAM_TAKEN_OVER"):
                first.wait_event("learned")
            second.send(x, y)
            second.wait_ack(2)
        with refused("BOUNDARIES_MISMATCH"):
            shared.stream("taken", boundaries=learning_pb2.BOUNDARIES_AUTOMATIC)


def test_the_fate_of_earlier_episodes_is_told_again_on_request(shared: Server) -> None:
    shared.create("replayed")
    shared.teach("replayed", blobs("ab"), blobs("cd"))
    with shared.stream("replayed", replay_after_sequence=0) as stream:
        stream.close()
        replayed = [(event.episode, event.WhichOneof("event")) for event in stream.events()]
    assert replayed == [(1, "closed"), (1, "learned"), (2, "closed"), (2, "learned")]
    with shared.stream("replayed", replay_after_sequence=2) as stream:
        stream.close()
        assert {event.episode for event in stream.events()} == {2}


def test_events_of_an_episode_come_in_order_and_progress_in_between(shared: Server) -> None:
    shared.create("ordered", training__phases="3", training__min_steps="60")
    with shared.stream("ordered") as stream:
        x, y = blobs("abc", each=100)
        stream.send(x, y)
        stream.end()
        stream.close()
        events = list(stream.events())
    kinds = [event.WhichOneof("event") for event in events]
    assert kinds[0] == "closed" and kinds[1] == "started" and kinds[-1] == "learned"
    assert set(kinds[2:-1]) <= {"progress"}
    assert (events[0].closed.first_sequence, events[0].closed.last_sequence) == (1, 2)
    assert (events[0].closed.closed_by, events[0].closed.classes) == (episode_pb2.CLOSED_BY_MARK, 3)
    assert (events[1].started.attempt, events[1].started.phase, events[1].started.phases) == (1, 1, 3)
    for event in events[2:-1]:
        assert 0 <= event.progress.fraction <= 1


def test_automatic_boundaries_are_those_of_the_engines_segmenter_over_any_batches(shared: Server) -> None:
    settings: dict[str, Any] = {"stream__min_examples": "64", "stream__window": "32", "stream__max_examples": "200"}
    shared.create("blurry", seed=3, **settings)
    xs, ys = zip(*(blobs(pair, each=70, seed=i) for i, pair in enumerate(("ab", "cd", "ef"))), strict=True)
    x, y = np.concatenate(xs), [label for part in ys for label in part]
    segmenter = Segmenter(StreamConfig(min_examples=64, window=32, max_examples=200), 12, 3)
    ids = {label: i for i, label in enumerate(dict.fromkeys(y))}
    expected = segmenter.feed(torch.from_numpy(x), torch.tensor([ids[label] for label in y]))
    assert len(expected) >= 2
    assert preset("default").stream.min_examples != 64  # the learner's own settings are in force
    with shared.stream("blurry", boundaries=learning_pb2.BOUNDARIES_AUTOMATIC) as stream:
        for part in range(0, 230, 23):
            stream.send(x[part : part + 23], y[part : part + 23])
        stream.wait_ack()
        closed = [event.closed.examples for event in stream.seen if event.HasField("closed")]
    with shared.stream("blurry", boundaries=learning_pb2.BOUNDARIES_AUTOMATIC) as stream:  # begins from the journal
        assert stream.opened.open_examples == 230 - sum(closed)
        for part in range(230, len(y), 50):
            stream.send(x[part : part + 50], y[part : part + 50])
        stream.end()
        stream.close()
        events = list(stream.events())
    closed += [event.closed.examples for event in events if event.HasField("closed")]
    assert closed[:-1] == expected
    assert sum(closed) == len(y)
    assert answered(shared.predict("blurry", x[:1])) == [y[0]]


def test_idle_units_are_not_reinitialised_after_the_episodes_of_an_automatic_stream(
    shared: Server, tmp_path: Path
) -> None:
    episodes = [blobs("ab"), blobs("cd", seed=1)]
    config = preset("default").with_options({key: _value(text) for key, text in SMALL.items()} | {"seed": 5})
    saved = {}
    for name, boundaries in (
        ("blurred", learning_pb2.BOUNDARIES_AUTOMATIC),
        ("sharp", learning_pb2.BOUNDARIES_EXPLICIT),
    ):
        shared.create(name, seed=5)
        with shared.stream(name, boundaries=boundaries) as stream:
            for x, y in episodes:
                stream.send(x, y)
                stream.end()
            stream.close()
            assert sum(event.HasField("learned") for event in stream.events()) == len(episodes)
        path = tmp_path / f"{name}.safetensors"
        path.write_bytes(shared.exported(name)[1])
        saved[name] = Learner.load(path)
        direct = Learner(config.with_options({"stream.blurry": name == "blurred"}))
        for x, y in episodes:
            direct.learn_episode(x, y)
        for layer, expected in zip(saved[name].network.layers, direct.network.layers, strict=True):
            assert torch.equal(layer.weight, expected.weight)
    last = [learner.network.layers[-1] for learner in saved.values()]
    assert bool((last[0].ranks == 0).any()), "nothing is idle: the test shows nothing"
    assert not torch.equal(last[0].weight, last[1].weight)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def test_an_episode_that_cannot_be_learned_is_parked_and_an_operator_decides(shared: Server) -> None:
    shared.create("parked", metric__enabled="false")  # an episode needs a pair of one class then
    x, _ = blobs("abcdef", each=1)
    with shared.stream("parked") as stream:
        for _ in range(2):
            stream.send(x, list("abcdef"))
            stream.end()
        good = blobs("xy")
        stream.send(*good)
        stream.end()
        stream.close()
        events = list(stream.events())
    parked = [event for event in events if event.HasField("parked")]
    assert [event.episode for event in parked] == [1, 2]
    assert parked[0].parked.reason == episode_pb2.PARK_REASON_NO_POSITIVE_PAIR
    assert [event.episode for event in events if event.HasField("learned")] == [3]
    listed = shared.admin.ListParkedEpisodes(parked_pb2.ListParkedEpisodesRequest(learner="parked")).episodes
    assert [(e.episode, e.examples, e.stream_id) for e in listed] == [(1, 6, "s"), (2, 6, "s")]
    assert list(listed[0].classes.texts.values) == list("abcdef")

    shared.admin.RetryParkedEpisode(parked_pb2.RetryParkedEpisodeRequest(learner="parked", episode=1))
    until(lambda: shared.learner("parked").status.backlog.episodes_parked == 2)
    gone = shared.admin.DiscardParkedEpisode(parked_pb2.DiscardParkedEpisodeRequest(learner="parked", episode=1))
    assert gone.examples == 6
    for number, reason in ((1, "EPISODE_NOT_FOUND"), (3, "EPISODE_NOT_FOUND"), (99, "EPISODE_NOT_FOUND")):
        with refused(reason):
            shared.admin.RetryParkedEpisode(parked_pb2.RetryParkedEpisodeRequest(learner="parked", episode=number))
    assert answered(shared.predict("parked", good[0][:1])) == [good[1][0]]


def test_a_loss_that_is_not_finite_is_tried_again_and_then_parked(shared: Server) -> None:
    shared.create("explodes", training__learning_rate="1e30", metric__enabled="false")
    with shared.stream("explodes") as stream:
        stream.send(*blobs("ab"))
        stream.end()
        stream.close()
        events = list(stream.events())
    assert [event.WhichOneof("event") for event in events if not event.HasField("progress")][-1] == "parked"
    assert events[-1].parked.reason == episode_pb2.PARK_REASON_NON_FINITE_LOSS
    assert events[-1].parked.attempts == 3
    with refused("NOTHING_LEARNED"):
        shared.predict("explodes", blobs("a", each=1)[0])


def test_what_the_network_cannot_learn_or_never_sees_is_known_by_the_metric(shared: Server) -> None:
    shared.create("metric-alone", training__learning_rate="1e30")
    shared.teach("metric-alone", blobs("ab"))  # the loss is not finite
    with shared.stream("metric-alone", "thin") as stream:
        for x, y in (blobs("c"), blobs("def", each=1)):  # one class only, then no two examples of one class
            stream.send(x, y)
            stream.end()
        stream.close()
        events = list(stream.events())
    started = [event.started for event in events if event.HasField("started")]
    assert [(event.phase, event.phases) for event in started] == [(0, 0), (0, 0)]
    assert [event.learned.model_version for event in events if event.HasField("learned")] == [2, 3]
    assert {event.progress.fraction for event in events if event.HasField("progress")} <= {1.0}
    for x, y in (blobs("abc", seed=7, each=3), blobs("def", each=1)):
        assert answered(shared.predict("metric-alone", x)) == y


def test_at_the_byte_limit_a_producer_waits_or_is_refused(serve: Callable[..., Server]) -> None:
    server = serve(limits__unlearned_bytes=20_000)
    server.create("small", training__min_steps="100")
    x, y = blobs("ab", each=100)  # 200 × (48 + 4) bytes
    with server.stream("small", "open") as stream, refused("EPISODE_TOO_LARGE"):
        for _ in range(3):
            stream.send(x, y)
        stream.wait_ack()
    server.create("fails", training__min_steps="300")
    with refused("JOURNAL_FULL") as failure, server.stream("fails", backpressure=learning_pb2.BACKPRESSURE_FAIL) as s:
        for _ in range(20):
            s.send(x, y)
            s.end()
        s.wait_ack()
    assert failure[0].code.name == "RESOURCE_EXHAUSTED"
    assert failure[0].retry and failure[0].retry > 0
    assert int(failure[0].metadata["durable_sequence"]) == s.acked >= 2
    server.create("waits")
    assert server.teach("waits", *[(x, y)] * 5) == 5  # more than fits at once: reading stops and goes on


def test_limits_on_classes_streams_and_examples_are_kept(serve: Callable[..., Server]) -> None:
    server = serve(limits__classes=3, limits__streams=2, limits__batch_examples=1024, limits__learners=1)
    x, y = blobs("abcd", each=1)
    with refused("TOO_MANY_CLASSES"), server.stream("one", create_if_missing=True) as stream:
        stream.send(x, y)
        stream.wait_ack()
    with refused("TOO_MANY_EXAMPLES"), server.stream("one") as stream:
        stream.send(np.zeros((1025, 12), np.float32), ["a"] * 1025)
        stream.wait_ack()
    with refused("TOO_MANY_LEARNERS"):
        server.stream("two", create_if_missing=True)
    until(lambda: server.learner("one").status.backlog.streams == 0)
    with server.stream("one", "a"), server.stream("one", "b"), refused("TOO_MANY_STREAMS") as failure:
        server.stream("one", "c")
    assert failure[0].retry
    with refused("BACKBONE_NEEDED"), server.stream("one", "big") as stream:
        stream.send(np.zeros((1, 3, 100, 100), np.uint8), ["a"])
        stream.wait_ack()
