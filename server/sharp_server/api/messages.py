"""Learners, their status, snapshots and parked episodes as messages of sharp.v1."""

from __future__ import annotations

import json
import time

from sharp.v1 import class_admin_pb2, learner_pb2, parked_pb2
from sharp.v1 import snapshot_pb2 as pb
from sharp_engine import ConfigError
from sharp_engine.network.architecture import resolve_architecture
from sharp_server.learners import events
from sharp_server.learners.messages import (
    class_messages,
    duration,
    labels_message,
    layer_messages,
    memory_message,
    timestamp,
)
from sharp_server.learners.quality_messages import add_quality, quality_report_message
from sharp_server.learners.served_learner import ServedLearner
from sharp_server.learners.settings import KIND_MESSAGES, shown
from sharp_server.storage.records import EpisodeRow, SnapshotRow


def status_message(
    served: ServedLearner, bytes_limit: int, layers: bool = True, quality: bool = True
) -> learner_pb2.LearnerStatus:
    """The learner at this moment."""
    waiting, backlog, model, now = served.backlog.waiting(), served.backlog, served.model, time.time()
    status = learner_pb2.LearnerStatus(
        time=timestamp(now),
        state=_state(served, bool(waiting)),
        model_version=model.version,
        episodes_learned=model.episodes,
        layers=layer_messages(served.layers) if layers else (),
        memories=memory_message(model.everything.memories) if model.everything is not None else None,
        backlog=learner_pb2.Backlog(
            examples=backlog.examples,
            bytes=backlog.bytes,
            bytes_limit=bytes_limit,
            episodes_waiting=len(waiting),
            episodes_parked=len(backlog.parked()),
            streams=served.streams,
            lag_examples=sum(episode.examples for episode in waiting),
            lag=duration(max(0.0, now - min(e.closed for e in waiting))) if waiting else None,
            open_examples=backlog.open_examples,
            uncounted_examples=served.uncounted_examples,
            lessons=backlog.lessons,
        ),
        throughput=learner_pb2.Throughput(
            examples_ingested_per_second=served.ingested.per_second(),
            examples_trained_per_second=served.trained.per_second(),
            examples_predicted_per_second=served.predicted.per_second(),
        ),
        damaged_snapshots=served.damaged_snapshots,
        examples_beyond_version=model.examples_beyond_version,
        examples_known=served.examples_known,
        quality=quality_report_message(model.quality) if quality and model.version else None,
    )
    if served.episode is not None:
        status.training_episode = served.episode.number
        if served.progress is not None:
            status.progress.CopyFrom(served.progress)
    return status


def _state(served: ServedLearner, waits: bool) -> learner_pb2.LearnerState.ValueType:
    if served.changing:
        return learner_pb2.LEARNER_STATE_CHANGING
    if served.episode is not None:
        return learner_pb2.LEARNER_STATE_TRAINING
    return learner_pb2.LEARNER_STATE_WAITING if waits else learner_pb2.LEARNER_STATE_IDLE


def learner_message(served: ServedLearner, bytes_limit: int, whole: bool = True) -> learner_pb2.Learner:
    """Everything about a learner; in a list without its settings, classes and layers."""
    summary = served.model.everything
    learner = learner_pb2.Learner(
        name=served.name,
        uid=served.uid,
        config=served.given,
        input_shape=served.input_shape or (),
        label_kind=KIND_MESSAGES[served.label_kind],
        create_time=timestamp(served.created),
        status=status_message(served, bytes_limit, layers=whole),
        architecture=(summary.architecture if summary is not None else "") or _architecture(served),
    )
    if whole:
        learner.settings.update(shown(served.config))
        learner.classes.extend(class_messages(summary.classes if summary is not None else ()))
        add_quality(learner.classes, served.model.quality)
    return learner


def _architecture(served: ServedLearner) -> str:
    """The architecture in one line, before anything was learned with it."""
    if served.input_shape is None:
        return ""
    try:
        config = served.config
        return resolve_architecture(config.architecture, served.input_shape, config.metric.enabled).describe()
    except ConfigError:
        return ""


_ORIGINS = {
    "automatic": pb.SNAPSHOT_ORIGIN_AUTOMATIC,
    "requested": pb.SNAPSHOT_ORIGIN_REQUESTED,
    "imported": pb.SNAPSHOT_ORIGIN_IMPORTED,
}


def snapshot_message(row: SnapshotRow, learner: str) -> pb.Snapshot:
    """A snapshot as a message."""
    return pb.Snapshot(
        id=row.name,
        learner=learner,
        model_version=row.version,
        episodes_learned=row.episodes,
        classes=labels_message(json.loads(row.classes)),
        origin=_ORIGINS[row.origin],
        create_time=timestamp(row.created),
        size_bytes=row.size,
        sha256=row.sha256,
        note=row.note,
        damaged=bool(row.damaged),
    )


def parked_episode_message(episode: EpisodeRow) -> parked_pb2.ParkedEpisode:
    """An episode that could not be learned."""
    return parked_pb2.ParkedEpisode(
        episode=episode.number,
        stream_id=episode.stream_name,
        parked=events.parked_message(episode),
        park_time=timestamp(episode.finished_at),
        examples=episode.examples,
        size_bytes=episode.bytes,
        classes=labels_message(events.labels_of(episode.classes)),
    )


def version_cause(cause: str) -> class_admin_pb2.VersionCause.ValueType:
    """What made a version, as the journal calls it."""
    name = f"VERSION_CAUSE_{cause.upper()}"
    known = name in class_admin_pb2.VersionCause.keys()
    return class_admin_pb2.VersionCause.Value(name) if known else class_admin_pb2.VERSION_CAUSE_UNSPECIFIED
