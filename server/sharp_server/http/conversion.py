"""From messages of the wire to what goes over HTTP: the wire's messages are made in one place, for both edges."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from sharp.v1 import (
    admin_pb2,
    episode_pb2,
    label_pb2,
    learner_pb2,
    parked_pb2,
    quality_pb2,
    server_pb2,
    snapshot_pb2,
    statistics_pb2,
)
from sharp_server.http import models
from sharp_server.prediction.batcher import Slice

_STATUS = ("model_version", "episodes_learned", "damaged_snapshots", "examples_beyond_version", "examples_known")
_KINDS: dict[int, models.LabelKind] = {label_pb2.LABEL_KIND_TEXT: "text", label_pb2.LABEL_KIND_INTEGER: "integer"}


def _plain(message: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(message, name) for name in names}


def _short(enum: Any, value: int, prefix: str) -> Any:
    """The name of an enum's value as JSON has it."""
    return enum.Name(value).removeprefix(prefix).lower()


def moment(value: Timestamp) -> datetime:
    """A moment."""
    return datetime.fromtimestamp(value.seconds + value.nanos / 1e9, UTC)


def seconds(value: Duration) -> float:
    """A span of time."""
    return value.seconds + value.nanos / 1e9


def label(message: label_pb2.Label) -> models.Label:
    """One label."""
    return message.text if message.WhichOneof("kind") == "text" else message.integer


def labels(message: label_pb2.Labels) -> list[models.Label]:
    """Labels of one kind."""
    return [*message.texts.values, *message.integers.values]


def layer(message: statistics_pb2.LayerStatistics) -> models.Layer:
    """A layer."""
    names = ("name", "before_cut", "pretrained", "units", "idle", "training", "fine_tuning", "frozen", "connections")
    return models.Layer(
        **_plain(message, *names),
        density=message.density,
        ranks=[models.RankCount(rank=entry.rank, units=entry.units) for entry in message.ranks],
    )


def _progress(message: episode_pb2.Progress) -> models.Progress:
    return models.Progress(
        **_plain(message, "phase", "phases", "epoch", "epochs", "examples_per_second", "fraction"),
        loss=message.loss if message.HasField("loss") else None,
        seconds_left=seconds(message.time_left) if message.HasField("time_left") else None,
    )


def class_quality(message: quality_pb2.ClassQuality) -> models.ClassQuality:
    """How good one class is."""
    return models.ClassQuality(label=label(message.label), examples=message.examples, right=message.right)


def quality(message: quality_pb2.Quality) -> models.Quality:
    """How good a version is."""
    return models.Quality(
        **_plain(message, "model_version", "examples", "right"),
        create_time=moment(message.create_time),
        classes=[class_quality(entry) for entry in message.classes],
        confusions=[
            models.Confusion(label=label(pair.label), answered=label(pair.answered), examples=pair.examples)
            for pair in message.confusions
        ],
    )


def _quality_report(message: quality_pb2.QualityReport) -> models.QualityReport:
    return models.QualityReport(
        quality=quality(message.quality) if message.HasField("quality") else None,
        before=quality(message.before) if message.HasField("before") else None,
        fallen=[
            models.ClassFall(before=class_quality(fall.before), now=class_quality(fall.now)) for fall in message.fallen
        ],
    )


def status(message: learner_pb2.LearnerStatus) -> models.Status:
    """A learner at one moment."""
    backlog, throughput = message.backlog, message.throughput
    return models.Status(
        **_plain(message, *_STATUS),
        time=moment(message.time),
        state=_short(learner_pb2.LearnerState, message.state, "LEARNER_STATE_"),
        layers=[layer(entry) for entry in message.layers],
        memories=models.Memories(**_plain(message.memories, *models.Memories.model_fields))
        if message.HasField("memories")
        else None,
        backlog=models.Backlog(
            **_plain(backlog, *(name for name in models.Backlog.model_fields if name != "lag_seconds")),
            lag_seconds=seconds(backlog.lag),
        ),
        training_episode=message.training_episode or None,
        progress=_progress(message.progress) if message.HasField("progress") else None,
        throughput=models.Throughput(**_plain(throughput, *models.Throughput.model_fields)),
        quality=_quality_report(message.quality) if message.HasField("quality") else None,
    )


def _summary(message: learner_pb2.Learner) -> dict[str, Any]:
    return {
        **_plain(message, "name", "uid", "architecture"),
        "input_shape": list(message.input_shape) or None,
        "label_kind": _KINDS.get(message.label_kind),
        "create_time": moment(message.create_time),
        "status": status(message.status),
    }


def learner_summary(message: learner_pb2.Learner) -> models.LearnerSummary:
    """A learner of a list."""
    return models.LearnerSummary(**_summary(message))


def learner(message: learner_pb2.Learner) -> models.Learner:
    """A learner."""
    return models.Learner(
        **_summary(message), settings=dict(message.settings), classes=[class_(entry) for entry in message.classes]
    )


def class_(message: learner_pb2.ClassSummary) -> models.Class:
    """A class."""
    return models.Class(
        **_plain(message, "ltm_entries", "stm_entries", "last_episode", "examples"),
        label=label(message.label),
        quality=class_quality(message.quality) if message.HasField("quality") else None,
        quality_before=class_quality(message.quality_before) if message.HasField("quality_before") else None,
    )


def snapshot(message: snapshot_pb2.Snapshot) -> models.Snapshot:
    """A snapshot."""
    return models.Snapshot(
        **_plain(message, "id", "model_version", "episodes_learned", "size_bytes", "note", "damaged"),
        classes=labels(message.classes),
        origin=_short(snapshot_pb2.SnapshotOrigin, message.origin, "SNAPSHOT_ORIGIN_"),
        create_time=moment(message.create_time),
        sha256=message.sha256.hex(),
    )


def parked_episode(message: parked_pb2.ParkedEpisode) -> models.ParkedEpisode:
    """A parked episode."""
    return models.ParkedEpisode(
        **_plain(message, "episode", "stream_id", "examples", "size_bytes"),
        **_plain(message.parked, "detail", "attempts"),
        reason=episode_pb2.ParkReason.Name(message.parked.reason).removeprefix("PARK_REASON_"),
        park_time=moment(message.park_time),
        classes=labels(message.classes),
    )


def event(number: int, message: episode_pb2.EpisodeEvent) -> models.Event:
    """Something that happened to an episode."""
    kind = message.WhichOneof("event")
    more: dict[str, Any] = {}
    if kind == "closed":
        more = {"examples": message.closed.examples}
    elif kind == "started":
        more = {"examples": message.started.examples, "phases": message.started.phases}
    elif kind == "learned":
        found = message.learned.statistics
        more = {
            "model_version": message.learned.model_version,
            "examples": found.examples,
            "classes": labels(found.classes),
            "new_classes": labels(found.new_classes),
            "seconds": seconds(found.training_time),
        }
    elif kind == "parked":
        reason = episode_pb2.ParkReason.Name(message.parked.reason).removeprefix("PARK_REASON_")
        more = {"reason": reason, "detail": message.parked.detail}
    elif kind == "discarded":
        more = {"reason": _short(episode_pb2.DiscardReason, message.discarded.reason, "DISCARD_REASON_").upper()}
    return models.Event.model_validate(
        {"id": number, "episode": message.episode, "time": moment(message.time), "kind": kind, **more}
    )


def predictions(part: Slice, top: int, memories: int, novelty: bool, waited: float) -> models.Predictions:
    """One request's share of a computed batch."""
    batch, found = part.batch, part.batch.predictions
    novelties = found.novelty if novelty else None
    return models.Predictions(
        predictions=[
            models.Prediction(
                label=found.labels[i],
                vote_share=batch.shares[i],
                distance=batch.distances[i],
                novelty=float(novelties[i]) if novelties is not None else None,
                top_classes=[
                    models.ClassScore(
                        label=name, vote_share=float(found.top_share[i, j]), distance=float(found.top_distance[i, j])
                    )
                    for j, name in enumerate(found.top_labels[i][:top] if top else ())
                ],
                nearest_memories=[
                    models.NearMemory(
                        label=name,
                        episode=int(found.memory_episode[i, j]),
                        distance=float(found.memory_distance[i, j]),
                    )
                    for j, name in enumerate(found.memory_labels[i][:memories] if memories else ())
                ],
            )
            for i in range(part.first, part.end)
        ],
        model_version=batch.model.version,
        examples_beyond_version=batch.model.examples_beyond_version,
        episodes_learned=batch.model.episodes,
        seconds_in_queue=waited + part.waited,
        seconds_in_compute=batch.seconds,
    )


def server_status(message: admin_pb2.GetServerStatusResponse) -> models.ServerStatus:
    """How the server is."""
    return models.ServerStatus(
        **_plain(message, "version", "learners", "data_bytes", "free_bytes", "device", "object_store_failure"),
        start_time=moment(message.start_time),
        state=_short(server_pb2.ServerState, message.state, "SERVER_STATE_"),
        trainer=models.Trainer(**_plain(message.trainer, *models.Trainer.model_fields)),
        teacher=models.Teacher(**_plain(message.teacher, *models.Teacher.model_fields)),
        corruption_events=len(message.corruption_events),
    )
