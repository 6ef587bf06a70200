"""Good messages for every method: what mutation starts from, so that hostile ones get past the first check."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2  # type: ignore[import-untyped]
from grpc_reflection.v1alpha import reflection_pb2  # type: ignore[import-untyped]
from PIL import Image

from reliability.fuzz.methods import Method
from sharp.inference import open_inference_pb2 as oip
from sharp.v1 import (
    class_admin_pb2,
    label_pb2,
    learner_admin_pb2,
    learner_pb2,
    learning_pb2,
    parked_pb2,
    prediction_pb2,
    quality_pb2,
    tensor_pb2,
    weights_pb2,
)
from sharp.v1 import snapshot_pb2 as snap

VICTIM = "victim"
PLANTED = "planted"
FEATURES = 12
_AUTOMATIC, _FAIL = learning_pb2.BOUNDARIES_AUTOMATIC, learning_pb2.BACKPRESSURE_FAIL
SMALL = {
    "training.phases": "2",
    "training.min_steps": "4",
    "architecture.kind": '"mlp"',
    "architecture.layers": '[{"kind": "linear", "units": 24}, {"kind": "linear", "units": 24}]',
}
"""A learner that learns in a moment."""


def examples(count: int = 16, seed: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Vectors of two classes that are easy to tell apart, one after the other."""
    rng = np.random.default_rng(seed)
    x = 0.1 * rng.random((count, FEATURES))
    x[::2, : FEATURES // 2] += 0.8
    x[1::2, FEATURES // 2 :] += 0.8
    return x.astype(np.float32)


def inputs(count: int = 16) -> tensor_pb2.Inputs:
    """The same as a message."""
    data = examples(count).astype("<f4").tobytes()
    return tensor_pb2.Inputs(
        tensor=tensor_pb2.Tensor(dtype=tensor_pb2.DTYPE_FLOAT32, shape=(count, FEATURES), data=data)
    )


def encoded(kind: str, side: int = 8) -> bytes:
    """A small image as a file."""
    file = io.BytesIO()
    Image.fromarray(np.arange(side * side, dtype=np.uint8).reshape(side, side)).save(file, kind)
    return file.getvalue()


def labels(count: int = 16) -> label_pb2.Labels:
    """Labels of `examples`."""
    return label_pb2.Labels(integers=label_pb2.IntegerLabels(values=[i % 2 for i in range(count)]))


def batch(sequence: int, count: int = 16) -> learning_pb2.LearnRequest:
    """A good batch."""
    return learning_pb2.LearnRequest(
        batch=learning_pb2.Batch(sequence=sequence, inputs=inputs(count), labels=labels(count))
    )


def _prediction(learner: str) -> tuple[prediction_pb2.PredictRequest, ...]:
    files = [encoded(kind) for kind in ("PNG", "JPEG", "WEBP", "BMP")]
    images = tensor_pb2.Inputs(images=tensor_pb2.EncodedImages(images=files, resize=True))
    return (
        prediction_pb2.PredictRequest(learner=learner, inputs=inputs(3)),
        prediction_pb2.PredictRequest(learner=learner, inputs=inputs(2), top_k=3, nearest_memories=3, novelty=True),
        prediction_pb2.PredictRequest(learner="pictures", inputs=images),
        prediction_pb2.PredictRequest(inputs=inputs(1)),
    )


def _infer() -> oip.ModelInferRequest:
    request = oip.ModelInferRequest(model_name=PLANTED, id="1")
    request.inputs.add(name="input", datatype="FP32", shape=[2, FEATURES])
    request.raw_input_contents.append(examples(2).astype("<f4").tobytes())
    return request


def _seeds(snapshot: str) -> tuple[Message, ...]:
    """All good messages; those of one type serve every method that takes it."""
    config = learner_pb2.LearnerConfig(overrides=SMALL, input_shape=[FEATURES], seed=1)
    open_, end = learning_pb2.Open, learning_pb2.EndEpisode
    label = label_pb2.Label(integer=1)
    pictures = oip.ModelInferRequest(model_name="pictures")
    pictures.inputs.add(name="input", datatype="BYTES", shape=[1])
    png = encoded("PNG")
    pictures.raw_input_contents.append(len(png).to_bytes(4, "little") + png)
    return (
        *_prediction(PLANTED),
        *(prediction_pb2.PredictStreamRequest(id=i, request=r) for i, r in enumerate(_prediction(PLANTED))),
        learning_pb2.TeachRequest(learner=VICTIM, request_id="l1", inputs=inputs(2), labels=labels(2)),
        learning_pb2.TeachRequest(
            learner="fresh", request_id="l2", inputs=inputs(1), labels=labels(1), create_if_missing=True
        ),
        learning_pb2.LearnRequest(open=open_(learner=VICTIM, stream_id="s1")),
        learning_pb2.LearnRequest(
            open=open_(
                learner=VICTIM, stream_id="s2", boundaries=learning_pb2.BOUNDARIES_AUTOMATIC, replay_after_sequence=0
            )
        ),
        learning_pb2.LearnRequest(
            open=open_(
                learner="fresh",
                stream_id="s3",
                create_if_missing=True,
                backpressure=learning_pb2.BACKPRESSURE_FAIL,
                config=config,
            )
        ),
        *(batch(i) for i in (1, 2, 3)),
        *(learning_pb2.LearnRequest(end_episode=end(sequence=i)) for i in (2, 3)),
        learner_admin_pb2.CreateLearnerRequest(name="fresh", config=config),
        learner_admin_pb2.CreateLearnerRequest(name="fresh2"),
        learner_admin_pb2.GetLearnerRequest(name=VICTIM),
        learner_admin_pb2.ListLearnersRequest(page_size=2),
        learner_admin_pb2.DeleteLearnerRequest(name="fresh"),
        learner_admin_pb2.WatchLearnerRequest(name=VICTIM),
        learner_admin_pb2.ForgetClassRequest(learner=VICTIM, label=label),
        class_admin_pb2.RenameClassRequest(learner=VICTIM, label=label, new_label=label_pb2.Label(integer=7)),
        class_admin_pb2.MergeClassesRequest(learner=VICTIM, source=label, target=label_pb2.Label(integer=0)),
        class_admin_pb2.UndoVersionRequest(learner=VICTIM, model_version=1, preview=True),
        quality_pb2.ListQualityRequest(learner=VICTIM, page_size=2),
        snap.CreateSnapshotRequest(learner=VICTIM, note="n"),
        snap.ListSnapshotsRequest(learner=VICTIM),
        snap.RestoreSnapshotRequest(learner=VICTIM, snapshot_id=snapshot),
        snap.DeleteSnapshotRequest(learner=VICTIM, snapshot_id=snapshot),
        snap.ExportSnapshotRequest(learner=VICTIM, snapshot_id=snapshot),
        snap.ImportSnapshotRequest(header=snap.ImportHeader(learner="taken-in", size_bytes=48)),
        snap.ImportSnapshotRequest(chunk=b"\x00" * 48),
        weights_pb2.ImportWeightsRequest(header=weights_pb2.WeightsHeader(size_bytes=48, sha256=b"\x01" * 32)),
        weights_pb2.ImportWeightsRequest(chunk=b"\x00" * 48),
        parked_pb2.ListParkedEpisodesRequest(learner=VICTIM),
        parked_pb2.RetryParkedEpisodeRequest(learner=VICTIM, episode=1),
        parked_pb2.DiscardParkedEpisodeRequest(learner=VICTIM, episode=1),
        oip.ModelReadyRequest(name=PLANTED, version="1"),
        oip.ModelMetadataRequest(name=PLANTED),
        _infer(),
        pictures,
        health_pb2.HealthCheckRequest(service="sharp.v1.Prediction"),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol="sharp.v1.Learning"),
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_by_filename="sharp/v1/learning.proto"),
    )


def seeds_of(method: Method, snapshot: str) -> tuple[Message, ...]:
    """Good messages of one method; an empty one where its type has nothing in it."""
    found = tuple(seed for seed in _seeds(snapshot) if seed.DESCRIPTOR.full_name == method.request.full_name)
    return found or (GetMessageClass(method.request)(),)
