"""What happens to episodes, as messages of the wire: the one vocabulary of producers, watchers and the journal."""

from __future__ import annotations

import json
import time
from typing import Any

from sharp.v1 import episode_pb2 as pb
from sharp_engine import EpisodeReport, Label
from sharp_server.learners.messages import duration, labels_message, layer_messages, memory_message, timestamp
from sharp_server.learners.quality_messages import quality_report_message
from sharp_server.prediction.quality import QualityReport
from sharp_server.prediction.summary import Summary
from sharp_server.storage.records import EpisodeRow
from sharp_server.training.protocol import Progressed

CLOSED_BY = {"mark": pb.CLOSED_BY_MARK, "cut": pb.CLOSED_BY_CUT, "size": pb.CLOSED_BY_SIZE}
DISCARDED = {
    "operator": pb.DISCARD_REASON_OPERATOR,
    "forgotten": pb.DISCARD_REASON_FORGOTTEN,
    "deleted": pb.DISCARD_REASON_LEARNER_DELETED,
}


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
            last_batch_examples=episode.last_batch_examples,
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


def progress_message(report: Progressed) -> pb.Progress:
    """How far the trainer is."""
    progress = pb.Progress(
        phase=report.phase,
        phases=report.phases,
        epoch=report.epoch,
        epochs=report.epochs,
        loss=report.loss,
        examples_per_second=report.examples_per_second,
        fraction=report.fraction,
    )
    if report.seconds_left is not None:
        progress.time_left.CopyFrom(duration(max(0.0, report.seconds_left)))
    return progress


def progressed(episode: EpisodeRow, progress: pb.Progress) -> pb.EpisodeEvent:
    """The trainer got on with it."""
    return _event(episode, progress=progress)


def statistics(report: EpisodeReport, summary: Summary, quality: QualityReport) -> pb.EpisodeStatistics:
    """What learning an episode did."""
    return pb.EpisodeStatistics(
        examples=report.examples,
        classes=labels_message(report.classes),
        new_classes=labels_message(report.new_classes),
        phase_losses=report.losses,
        training_time=duration(report.seconds),
        examples_per_second=report.examples / report.seconds if report.seconds > 0 else 0.0,
        layers=layer_messages(summary.layers),
        memories=memory_message(summary.memories),
        quality=quality_report_message(quality),
        recruited={name: max(0, units) for name, units in report.recruited.items()},
    )


def outcome(episode: EpisodeRow) -> pb.EpisodeEvent | None:
    """Its latest fate, from the journal; none while it waits."""
    when = episode.finished_at
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
