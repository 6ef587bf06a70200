"""Every mark is answered before its acknowledgement: by a closed episode, or as one that closed nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sharp.v1 import label_pb2, learner_admin_pb2
from sharp_server.storage.sqlite import learners, schema, streams
from sharp_server.storage.sqlite.streams import Arrival
from tests.server.running import Server, blobs


def answers(stream: Any, sequence: int) -> list[tuple[str, Any]]:
    """What comes up to the acknowledgement of a number."""
    seen: list[tuple[str, Any]] = []
    while True:
        answer = stream._next()
        if answer.HasField("ack"):
            seen.append(("ack", (answer.ack.sequence, list(answer.ack.empty_marks))))
            if answer.ack.sequence >= sequence:
                return seen
        else:
            seen.append((answer.event.WhichOneof("event"), answer.event.episode))


def test_a_mark_that_closes_nothing_is_listed_in_its_acknowledgement_and_in_replays(shared: Server) -> None:
    shared.create("marks")
    with shared.stream("marks") as stream:
        assert answers(stream, stream.end()) == [("ack", (1, [1]))]
        stream.send(*blobs("ab"))
        stream.wait_ack()
        assert answers(stream, stream.end()) == [("closed", 1), ("ack", (3, []))]
        stream.wait_event("learned")
        assert answers(stream, stream.end()) == [("ack", (4, [4]))]
    for after, expected in ((0, [1, 4]), (1, [4]), (4, [])):
        with shared.stream("marks", replay_after_sequence=after) as stream:
            closed = [("closed", 1), ("learned", 1)] if after < 3 else []
            assert answers(stream, 4) == [*closed, ("ack", (4, expected))]


def test_a_mark_after_examples_that_were_all_forgotten_closes_nothing(shared: Server) -> None:
    shared.create("marks-forgotten")
    with shared.stream("marks-forgotten") as stream:
        stream.send(*blobs("a"))
        stream.wait_ack()
        label = label_pb2.Label(text="a")
        shared.admin.ForgetClass(learner_admin_pb2.ForgetClassRequest(learner="marks-forgotten", label=label))
        assert answers(stream, stream.end()) == [("ack", (2, [2]))]
    with shared.stream("marks-forgotten", replay_after_sequence=0) as stream:
        assert answers(stream, 2) == [("ack", (2, [2]))]


STEPS = st.lists(st.one_of(st.just("mark"), st.lists(st.integers(1, 9), max_size=2)), max_size=25)
"""A mark, or a batch of four examples with the lengths, at most, of the episodes that are cut with it."""


@settings(max_examples=150, deadline=None)
@given(steps=STEPS, after=st.integers(0, 25), most=st.integers(1, 6))
def test_empty_marks_are_found_among_any_batches_cuts_and_marks(steps: list[Any], after: int, most: int) -> None:
    connection = schema.connect(Path(":memory:"))
    schema.create(connection)
    learner = learners.create(connection, "a", "uid", b"", "{}", None, None, 10).id
    stream = streams.open_stream(connection, learner, "s", "AUTOMATIC").id
    empty, waiting = [], 0
    for sequence, step in enumerate(steps, 1):
        if step == "mark":
            closed = streams.mark(connection, learner, stream, sequence)
            assert (closed is None) == (waiting == 0)
            empty += [sequence] if closed is None else []
            waiting = 0
        else:
            waiting += 4
            cuts = []
            for wanted in step:
                length = min(wanted, waiting)
                cuts += [(length, "cut")] if length else []
                waiting -= length
            streams.append(connection, arrival(learner, stream, sequence, tuple(cuts)))
    assert streams.empty_marks(connection, stream, after, most) == [mark for mark in empty if mark > after][-most:]


def arrival(learner: int, stream: int, sequence: int, cuts: tuple[tuple[int, str], ...]) -> Arrival:
    y = np.zeros(4, np.int32).tobytes()
    classes = ((0, json.dumps("a")),)
    return Arrival(learner, stream, sequence, 4, "u1", b"abcd", y, classes, ("[1]", "text"), cuts=cuts)
