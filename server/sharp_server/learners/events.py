"""What happens to episodes, as messages, and the queue in which they wait for one reader.

Progress is thinned out for slow readers: only the newest is kept. Nothing else is dropped from a producer's queue.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from sharp.v1 import episode_pb2 as pb
from sharp_engine import Label
from sharp_server.prediction.summary import labels_message, layer_messages, memory_message
from sharp_server.storage.sqlite.streams import EpisodeRow

CLOSED_BY = {"mark": pb.CLOSED_BY_MARK, "cut": pb.CLOSED_BY_CUT, "size": pb.CLOSED_BY_SIZE}
DISCARDED = {
    "operator": pb.DISCARD_REASON_OPERATOR,
    "forgotten": pb.DISCARD_REASON_FORGOTTEN,
    "deleted": pb.DISCARD_REASON_LEARNER_DELETED,
}


def timestamp(seconds: float) -> Timestamp:
    """A moment by the server's clock."""
    whole = int(seconds)
    return Timestamp(seconds=whole, nanos=int((seconds - whole) * 1e9))


def duration(seconds: float) -> Duration:
    """A span of time."""
    whole = int(seconds)
    return Duration(seconds=whole, nanos=int((seconds - whole) * 1e9))


def labels_of(texts: tuple[str, ...] | list[str]) -> list[Label]:
    """Labels from their JSON."""
    return [json.loads(text) for text in texts]


def _event(episode: EpisodeRow, when: float | None = None, **event: Any) -> pb.EpisodeEvent:
    return pb.EpisodeEvent(episode=episode.number, time=timestamp(when or time.time()), **event)


def closed(episode: EpisodeRow, ahead: int) -> pb.EpisodeEvent:
    """The episode is complete and waits."""
    return _event(
        episode,
        episode.closed,
        closed=pb.EpisodeClosed(
            closed_by=CLOSED_BY[episode.closed_by],
            first_sequence=episode.first_sequence,
            last_sequence=episode.last_sequence,
            examples_of_last_batch=episode.last_batch_examples,
            examples=episode.examples,
            classes=len(episode.classes),
            episodes_ahead=ahead,
        ),
    )


def started(episode: EpisodeRow, attempts: int, phase: int, phases: int) -> pb.EpisodeEvent:
    """The trainer took it up."""
    return _event(
        episode,
        started=pb.EpisodeStarted(
            attempt=min(episode.attempts + 1, attempts),
            attempts=attempts,
            phase=phase,
            phases=phases,
            examples=episode.examples,
        ),
    )


def progress_message(message: dict[str, Any]) -> pb.Progress:
    """How far the trainer is, from its own words."""
    progress = pb.Progress(
        phase=message["phase"],
        phases=message["phases"],
        epoch=message["epoch"],
        epochs=message["epochs"],
        loss=message["loss"],
        examples_per_second=message["examples_per_second"] or 0.0,
        fraction=message["fraction"],
    )
    if message["seconds_left"] is not None:
        progress.time_left.CopyFrom(duration(max(0.0, message["seconds_left"])))
    return progress


def progressed(episode: EpisodeRow, progress: pb.Progress) -> pb.EpisodeEvent:
    """The trainer got on with it."""
    return _event(episode, progress=progress)


def statistics(report: dict[str, Any], figures: dict[str, Any], rate: float) -> pb.EpisodeStatistics:
    """What learning an episode did."""
    return pb.EpisodeStatistics(
        examples=report["examples"],
        classes=labels_message(report["classes"]),
        new_classes=labels_message(report["new_classes"]),
        phase_losses=report["losses"],
        training_time=duration(report["seconds"]),
        examples_per_second=rate,
        layers=layer_messages(figures["layers"]),
        memories=memory_message(figures["memories"]),
        recruited={name: max(0, units) for name, units in report["recruited"].items()},
    )


def settled(episode: EpisodeRow) -> pb.EpisodeEvent | None:
    """Its latest fate, from the journal; none while it waits."""
    when = episode.settled
    if episode.state == "learned":
        what = pb.EpisodeLearned(model_version=episode.version, episodes_learned=episode.episodes_learned)
        if episode.statistics:
            what.statistics.ParseFromString(episode.statistics)
        return _event(episode, when, learned=what)
    if episode.state == "parked":
        return _event(episode, when, parked=parked_message(episode))
    if episode.state == "discarded":
        reason = DISCARDED.get(episode.reason, pb.DISCARD_REASON_UNSPECIFIED)
        return _event(episode, when, discarded=pb.EpisodeDiscarded(reason=reason))
    return None


def discarded(episode: EpisodeRow, reason: str) -> pb.EpisodeEvent:
    """It will not be learned."""
    return _event(episode, discarded=pb.EpisodeDiscarded(reason=DISCARDED[reason]))


def parked_message(episode: EpisodeRow) -> pb.EpisodeParked:
    """Why an episode is parked."""
    return pb.EpisodeParked(
        reason=pb.ParkReason.Value(f"PARK_REASON_{episode.reason or 'UNSPECIFIED'}"),
        detail=episode.detail,
        attempts=episode.attempts,
    )


class Mailbox:
    """Events that wait for one reader."""

    def __init__(self, bound: int | None = None) -> None:
        self._events: deque[pb.EpisodeEvent] = deque(maxlen=bound)
        self._progress: pb.EpisodeEvent | None = None
        self._full = asyncio.Event()

    def __len__(self) -> int:
        return len(self._events)

    def put(self, event: pb.EpisodeEvent) -> None:
        """Add an event."""
        if event.HasField("progress"):
            self._progress = event
        else:
            if self._progress is not None and self._progress.episode == event.episode:
                self._progress = None  # it would come after the event that it precedes
            self._events.append(event)
        self._full.set()

    def wake(self) -> None:
        """Let the reader look, though there may be nothing."""
        self._full.set()

    def take(self) -> list[pb.EpisodeEvent]:
        """Everything that waits, in order."""
        events = list(self._events)
        self._events.clear()
        if self._progress is not None:
            events.append(self._progress)
            self._progress = None
        self._full.clear()
        return events

    async def wait(self) -> None:
        """Until there is something, or someone called `wake`."""
        await self._full.wait()
