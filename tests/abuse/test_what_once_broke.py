"""Messages that once froze, ended or confused the server: each is answered with its reason, at once."""

from __future__ import annotations

from typing import Any

import pytest
from grpc_health.v1 import health_pb2  # type: ignore[import-untyped]

from reliability.fuzz import seeds
from reliability.fuzz.attack import Attacker
from reliability.fuzz.pictures import png
from sharp.inference import open_inference_pb2 as oip
from sharp.v1 import learner_admin_pb2, learner_pb2, learning_pb2, parked_pb2, prediction_pb2, tensor_pb2

LARGEST = 2**64 - 1
LONG = "x" * 3_000_000


def configured(**overrides: str) -> learner_admin_pb2.CreateLearnerRequest:
    settings = {key.replace("__", "."): value for key, value in overrides.items()}
    return learner_admin_pb2.CreateLearnerRequest(name="fresh", config=learner_pb2.LearnerConfig(overrides=settings))


def shown(image: bytes) -> prediction_pb2.PredictRequest:
    images = tensor_pb2.EncodedImages(images=[image], resize=True)
    return prediction_pb2.PredictRequest(learner="pictures", inputs=tensor_pb2.Inputs(images=images))


def of_sides(count: int) -> prediction_pb2.PredictRequest:
    tensor = tensor_pb2.Tensor(dtype=tensor_pb2.DTYPE_UINT8, shape=[1] * count, data=b"1")
    return prediction_pb2.PredictRequest(learner=seeds.PLANTED, inputs=tensor_pb2.Inputs(tensor=tensor))


def inferred(inputs: int = 1, outputs: int = 0, shape: int = 1, data: bytes = b"") -> oip.ModelInferRequest:
    request = oip.ModelInferRequest(model_name="pictures", raw_input_contents=[data])
    for _ in range(inputs):
        request.inputs.add(name="input", datatype="BYTES", shape=[shape])
    for _ in range(outputs):
        request.outputs.add(name="label")
    return request


ADMIN, OIP = "/sharp.v1.Admin/", "/inference.GRPCInferenceService/"
BROKE: dict[str, tuple[str, Any, str]] = {
    "an episode that no column can hold, retried": (
        ADMIN + "RetryParkedEpisode",
        parked_pb2.RetryParkedEpisodeRequest(learner=seeds.VICTIM, episode=LARGEST),
        "NOT_FOUND",
    ),
    "an episode that no column can hold, discarded": (
        ADMIN + "DiscardParkedEpisode",
        parked_pb2.DiscardParkedEpisodeRequest(learner=seeds.VICTIM, episode=LARGEST),
        "NOT_FOUND",
    ),
    "a sequence number that no column can hold": (
        "/sharp.v1.Learning/Learn",
        learning_pb2.LearnRequest(
            open=learning_pb2.Open(learner=seeds.VICTIM, stream_id="far", replay_after_sequence=LARGEST)
        ),
        "OK",
    ),
    "a method that health does not have": (
        "/grpc.health.v1.Health/List",
        health_pb2.HealthListRequest(),
        "UNIMPLEMENTED",
    ),
    "a name of megabytes": (ADMIN + "GetLearner", learner_admin_pb2.GetLearnerRequest(name=LONG), "NOT_FOUND"),
    "a page token of megabytes": (
        ADMIN + "ListLearners",
        learner_admin_pb2.ListLearnersRequest(page_token=LONG),
        "INVALID_ARGUMENT",
    ),
    "a setting of megabytes": (
        ADMIN + "CreateLearner",
        configured(architecture__layers="[" + "0," * 1_000_000 + "0]"),
        "INVALID_ARGUMENT",
    ),
    "a number of a thousand bits": (
        ADMIN + "CreateLearner",
        configured(training__temperature="1" + "0" * 400),
        "INVALID_ARGUMENT",
    ),
    "a shape of a million sides": ("/sharp.v1.Prediction/Predict", of_sides(1_000_000), "INVALID_ARGUMENT"),
    "a PNG without pixels": ("/sharp.v1.Prediction/Predict", shown(png(8, 8, b"")), "INVALID_ARGUMENT"),
    "a PNG with too few pixels of 16 bits": (
        "/sharp.v1.Prediction/Predict",
        shown(png(8, 8, b"\x00" * 72, depth=16, colour=6)),
        "INVALID_ARGUMENT",
    ),
    "many inputs": (OIP + "ModelInfer", inferred(inputs=100_000), "INVALID_ARGUMENT"),
    "many outputs": (OIP + "ModelInfer", inferred(outputs=100_000), "INVALID_ARGUMENT"),
    "millions of empty elements": (
        OIP + "ModelInfer",
        inferred(shape=1_500_000, data=b"\x00" * 6_000_000),
        "RESOURCE_EXHAUSTED",
    ),
}


@pytest.mark.parametrize("name", BROKE)
def test_it_is_answered(attacker: Attacker, name: str) -> None:
    path, message, code = BROKE[name]
    method = next(method for method in attacker.target.methods if method.path == path)
    assert attacker.send("what once broke", method, [message.SerializeToString()]) == code
    assert attacker.target.log_faults() == []


def test_bytes_that_are_no_message_are_refused_by_every_method(attacker: Attacker) -> None:
    for method in attacker.target.methods:
        code = attacker.send("no message", method, [b"\xff\xff\xff"])
        assert code == "INVALID_ARGUMENT", method.path
    assert attacker.target.log_faults() == []
