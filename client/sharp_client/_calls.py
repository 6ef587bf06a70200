"""What the client knows of each method: its stub, whether it may be repeated, and how long to try."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import Message

from sharp.v1 import (
    admin_pb2_grpc,
    learner_admin_pb2,
    learning_pb2_grpc,
    parked_pb2,
    prediction_pb2_grpc,
    snapshot_pb2,
)

from ._errors import DeadlineError, SharpError
from ._options import Retry
from ._reasons import EpisodeNotFoundError, EpisodeNotParkedError, LearnerNotFoundError, SnapshotNotFoundError

STUBS: Final = (learning_pb2_grpc.LearningStub, prediction_pb2_grpc.PredictionStub, admin_pb2_grpc.AdminStub)
"""The generated stubs of the three services."""

NOT_REPEATABLE: Final = frozenset({"CreateLearner", "CreateSnapshot", "ImportSnapshot", "ImportWeights"})
"""Methods that have another effect when they are repeated, or whose messages are made once."""

DONE_BEFORE: Final[dict[str, tuple[type[SharpError], type[Message]]]] = {
    "DeleteLearner": (LearnerNotFoundError, learner_admin_pb2.DeleteLearnerResponse),
    "DeleteSnapshot": (SnapshotNotFoundError, snapshot_pb2.DeleteSnapshotResponse),
    "RetryParkedEpisode": (EpisodeNotParkedError, parked_pb2.RetryParkedEpisodeResponse),
    "DiscardParkedEpisode": (EpisodeNotFoundError, parked_pb2.DiscardParkedEpisodeResponse),
}
"""The error with which a second call fails if the first, whose answer was lost, had succeeded; and its empty answer."""


def methods(channel: Any) -> dict[str, Callable[..., Any]]:
    """Make the callables of all methods over a channel, by name."""
    return {name: call for stub in STUBS for name, call in vars(stub(channel)).items()}


@dataclass
class Attempts:
    """The attempts of one call: how much time is left, and whether to try again."""

    method: str
    """Name of the method."""
    retry: Retry
    """How often and how fast."""
    deadline: float
    """When to give up, by the monotonic clock."""
    failures: int = 0
    """How many attempts failed."""
    unsure: bool = False
    """Whether one of them may have had its effect nevertheless."""

    def time_left(self) -> float:
        """Seconds until the deadline, never 0."""
        return max(1e-3, self.deadline - time.monotonic())

    def done_before(self, error: SharpError) -> Any:
        """Return an empty answer if the error means that an earlier attempt succeeded. None otherwise."""
        kind, answer = DONE_BEFORE.get(self.method, (None, None))
        if self.unsure and kind is not None and answer is not None and isinstance(error, kind):
            return answer()
        return None

    def delay_after(self, error: SharpError) -> float:
        """Decide how long to wait before the next attempt, or raise the error if there is to be none."""
        self.failures += 1
        refused = bool(error.reason)  # by the server itself: nothing was done
        may_repeat = error.retryable and not isinstance(error, DeadlineError)
        if not may_repeat or self.failures >= self.retry.attempts or not (refused or self.method not in NOT_REPEATABLE):
            raise error
        self.unsure |= not refused
        delay = self.retry.delay(self.failures, error.retry_delay)
        if delay >= self.deadline - time.monotonic():
            raise error
        return delay
