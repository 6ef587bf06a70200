"""Every mark is answered before its acknowledgement: by a closed episode, or as one that closed nothing."""

from __future__ import annotations

from typing import Any

from sharp.v1 import label_pb2, learner_admin_pb2
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
