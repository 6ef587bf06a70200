"""Predictions: batching, versions, streams, images, the Open Inference Protocol, health, reflection, metrics."""

from __future__ import annotations

import io
import struct
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc  # type: ignore[import-untyped]
from PIL import Image

from sharp.inference import open_inference_pb2 as oip
from sharp.v1 import prediction_pb2, tensor_pb2
from tests.server.running import Server, answered, blobs, refused, tensor, until

X, Y = blobs(["cat", "dog", "eel"], each=30)


@pytest.fixture(scope="module")
def pets(shared: Server) -> Iterator[Server]:
    shared.create("pets")
    shared.teach("pets", (X, Y))
    shared.create("empty")
    yield shared


def request(x: Any, **options: Any) -> prediction_pb2.PredictRequest:
    return prediction_pb2.PredictRequest(learner="pets", inputs=tensor(x), **options)


def test_answers_come_by_columns_with_what_was_asked_for(pets: Server) -> None:
    plain = pets.predict("pets", X[:10])
    assert answered(plain) == Y[:10]
    assert len(plain.vote_shares) == len(plain.distances) == 10
    assert not plain.novelties and not plain.details
    assert (plain.model_version, plain.episodes_learned) == (1, 1)
    assert plain.time_in_compute.nanos > 0
    full = pets.predict("pets", X[:10], top_k=5, nearest_memories=2, novelty=True)
    assert len(full.novelties) == 10
    for label, details in zip(Y[:10], full.details, strict=True):
        assert len(details.top_classes) == 3 and len(details.nearest_memories) == 2
        assert details.top_classes[0].label.text == label
        assert abs(sum(score.vote_share for score in details.top_classes) - 1) < 1e-5


def test_the_same_numbers_as_bytes_and_as_floats_are_the_same_input(pets: Server) -> None:
    bytes_ = (X[:5] * 255).astype(np.uint8)
    floats = bytes_.astype(np.float32) / np.float32(255)
    one, other = pets.predict("pets", bytes_), pets.predict("pets", floats)
    assert list(one.distances) == list(other.distances)


def test_calls_that_come_together_are_computed_together_and_answered_each_its_own(pets: Server) -> None:
    def ask(i: int) -> tuple[int, list[Any]]:
        count = 1 + i % 3
        return i, answered(pets.predict("pets", X[i : i + count], top_k=i % 2, novelty=i % 5 == 0))

    before = _metric(pets, "sharp_batch_examples_count")
    with ThreadPoolExecutor(32) as pool:
        for i, found in pool.map(ask, [i % 80 for i in range(600)]):
            assert found == Y[i : i + 1 + i % 3]
    assert _metric(pets, "sharp_batch_examples_count") - before < 600


def test_a_call_that_waits_for_a_version_is_answered_by_it_or_told_why_not(pets: Server) -> None:
    pets.create("later")
    with refused("VERSION_NOT_REACHED") as failure:
        pets.prediction.Predict(
            prediction_pb2.PredictRequest(learner="later", inputs=tensor(X[:1]), min_model_version=1), timeout=0.5
        )
    assert failure[0].metadata == {"wanted": "1", "serving": "0", "learner": "later"}
    found: list[Any] = []
    waiting = threading.Thread(target=lambda: found.append(pets.predict("later", X[:1], min_model_version=1)))
    waiting.start()
    time.sleep(0.1)
    pets.teach("later", (X, Y))
    waiting.join(30)
    assert found[0].model_version == 1 and answered(found[0]) == Y[:1]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (prediction_pb2.PredictRequest(learner="nobody", inputs=tensor(X[:1])), "LEARNER_NOT_FOUND"),
        (prediction_pb2.PredictRequest(learner="../etc/passwd", inputs=tensor(X[:1])), "LEARNER_NOT_FOUND"),
        (prediction_pb2.PredictRequest(learner="empty", inputs=tensor(X[:1])), "NOTHING_LEARNED"),
        (prediction_pb2.PredictRequest(learner="pets"), "FIELD_INVALID"),
        (request(X[:1, :5]), "SHAPE_MISMATCH"),
        (request(X[:1] * np.nan), "NON_FINITE_VALUES"),
        (request(X[:1], top_k=10**6), "TOO_MANY_RESULTS"),
        (request(X[:1], nearest_memories=10**6), "TOO_MANY_RESULTS"),
        (request(np.zeros((9000, 12), np.uint8)), "TOO_MANY_EXAMPLES"),
    ],
)
def test_what_cannot_be_answered_is_refused(pets: Server, message: Any, reason: str) -> None:
    with refused(reason):
        pets.prediction.Predict(message, timeout=20)


def test_a_stream_of_questions_is_answered_in_order_and_outlives_a_bad_one(pets: Server) -> None:
    questions = [request(X[i : i + 1]) for i in range(len(X))]
    questions[7] = request(X[:1, :5])
    stream = pets.prediction.PredictStream(
        iter(prediction_pb2.PredictStreamRequest(id=1000 + i, request=q) for i, q in enumerate(questions)), timeout=60
    )
    answers = list(stream)
    assert [answer.id for answer in answers] == [1000 + i for i in range(len(X))]
    assert answers[7].failure.reason == 24 and answers[7].failure.code == 3
    assert [answered(a.response)[0] for i, a in enumerate(answers) if i != 7] == [y for i, y in enumerate(Y) if i != 7]


def test_image_files_are_decoded_on_the_server(pets: Server) -> None:
    rng = np.random.default_rng(0)

    def picture(dark: bool, kind: str = "PNG") -> bytes:
        pixels = rng.integers(0, 90, (8, 8)) + (0 if dark else 160)
        pixels[:, 4:] = 255 - pixels[:, 4:]
        out = io.BytesIO()
        Image.fromarray(pixels.astype(np.uint8)).save(out, kind, **({"quality": 95} if kind == "JPEG" else {}))
        return out.getvalue()

    from sharp.v1 import learner_admin_pb2, learner_pb2, learning_pb2

    config = learner_pb2.LearnerConfig(overrides={"training.phases": "2", "training.min_steps": "10"})
    pets.admin.CreateLearner(learner_admin_pb2.CreateLearnerRequest(name="pictures", config=config))
    files = [picture(i % 2 == 0) for i in range(40)]
    with pets.stream("pictures") as stream:
        images = tensor_pb2.Inputs(images=tensor_pb2.EncodedImages(images=files))
        from tests.server.running import labels

        batch = learning_pb2.Batch(sequence=1, inputs=images, labels=labels([i % 2 for i in range(40)]))
        stream.put(learning_pb2.LearnRequest(batch=batch))
        stream.sequence = 1
        stream.end()
        stream.close()
        assert [e for e in stream.events() if e.HasField("learned")]
    assert list(pets.learner("pictures").input_shape) == [1, 8, 8]
    ask = tensor_pb2.Inputs(images=tensor_pb2.EncodedImages(images=[picture(True, "JPEG"), picture(False)]))
    answer = pets.prediction.Predict(prediction_pb2.PredictRequest(learner="pictures", inputs=ask))
    assert answered(answer) == [0, 1]
    with refused("IMAGE_MALFORMED"):
        ask = tensor_pb2.Inputs(images=tensor_pb2.EncodedImages(images=[files[0][:40]]))
        pets.prediction.Predict(prediction_pb2.PredictRequest(learner="pictures", inputs=ask))
    raw = b"".join(struct.pack("<I", len(file)) + file for file in files[:2])
    infer = oip.ModelInferRequest(model_name="pictures", raw_input_contents=[raw])
    infer.inputs.add(name="input", datatype="BYTES", shape=[2])
    response = pets.inference.ModelInfer(infer)
    assert np.frombuffer(response.raw_output_contents[0], "<i8").tolist() == [0, 1]


# ---- the Open Inference Protocol -------------------------------------------------------------------------------------


def infer(x: Any, **options: Any) -> oip.ModelInferRequest:
    x = x.astype("<f4")
    made = oip.ModelInferRequest(model_name="pets", raw_input_contents=[x.tobytes()], **options)
    made.inputs.add(name="input", datatype="FP32", shape=x.shape)
    return made


def test_a_client_of_the_open_inference_protocol_gets_the_same_answers(pets: Server) -> None:
    assert pets.inference.ServerLive(oip.ServerLiveRequest()).live
    assert pets.inference.ServerReady(oip.ServerReadyRequest()).ready
    assert pets.inference.ServerMetadata(oip.ServerMetadataRequest()).name == "sharp"
    for name, version, ready in (("pets", "", True), ("pets", "1", True), ("pets", "2", False), ("x", "", False)):
        assert pets.inference.ModelReady(oip.ModelReadyRequest(name=name, version=version)).ready == ready
    metadata = pets.inference.ModelMetadata(oip.ModelMetadataRequest(name="pets"))
    assert list(metadata.versions) == ["1"] and list(metadata.inputs[0].shape) == [-1, 12]
    assert [(out.name, out.datatype) for out in metadata.outputs][0] == ("label", "BYTES")
    assert list(pets.inference.ModelMetadata(oip.ModelMetadataRequest(name="empty")).versions) == []

    outputs = [oip.ModelInferRequest.InferRequestedOutputTensor(name=n) for n in ("novelty", "label", "distance")]
    response = pets.inference.ModelInfer(infer(X[:4], id="q", outputs=outputs))
    assert (response.id, response.model_version, response.parameters["episodes_learned"].int64_param) == ("q", "1", 1)
    assert [out.name for out in response.outputs] == ["novelty", "label", "distance"]
    own = pets.predict("pets", X[:4], novelty=True)
    np.testing.assert_array_equal(
        np.frombuffer(response.raw_output_contents[0], "<f4"), np.array(own.novelties, np.float32)
    )
    np.testing.assert_array_equal(
        np.frombuffer(response.raw_output_contents[2], "<f4"), np.array(own.distances, np.float32)
    )
    texts = b"".join(struct.pack("<I", len(y)) + y.encode() for y in answered(own))
    assert response.raw_output_contents[1] == texts


def test_what_the_open_inference_protocol_may_ask_and_is_not_offered_is_refused(pets: Server) -> None:
    wrong = infer(X[:1])
    wrong.model_version = "7"
    with refused("VERSION_NOT_FOUND"):
        pets.inference.ModelInfer(wrong)
    typed = oip.ModelInferRequest(model_name="pets")
    typed.inputs.add(name="input", datatype="FP32", shape=[1, 12]).contents.fp32_contents.extend([0.0] * 12)
    with refused("FEATURE_UNSUPPORTED"):
        pets.inference.ModelInfer(typed)
    shared_memory = infer(X[:1])
    shared_memory.inputs[0].parameters["shared_memory_region"].string_param = "r"
    with refused("FEATURE_UNSUPPORTED"):
        pets.inference.ModelInfer(shared_memory)
    for broken, reason in (
        ("inputs", "FIELD_INVALID"),
        ("datatype", "DTYPE_UNSUPPORTED"),
        ("data", "TENSOR_SIZE_MISMATCH"),
    ):
        made = infer(X[:1])
        if broken == "inputs":
            del made.inputs[:]
        elif broken == "datatype":
            made.inputs[0].datatype = "INT8"
        else:
            made.raw_input_contents[0] = b"123"
        with refused(reason):
            pets.inference.ModelInfer(made)
    unknown = infer(X[:1], outputs=[oip.ModelInferRequest.InferRequestedOutputTensor(name="logits")])
    with refused("FIELD_INVALID"):
        pets.inference.ModelInfer(unknown)


# ---- health, reflection, metrics -------------------------------------------------------------------------------------


def test_health_tells_liveness_and_readiness_by_service(pets: Server) -> None:
    stub = health_pb2_grpc.HealthStub(pets.channel)
    for service in ("", "sharp.v1.Learning", "sharp.v1.Prediction", "sharp.v1.Admin", "inference.GRPCInferenceService"):
        assert stub.Check(health_pb2.HealthCheckRequest(service=service)).status == 1
    with pytest.raises(grpc.RpcError) as caught:
        stub.Check(health_pb2.HealthCheckRequest(service="nothing"))
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND


def test_reflection_lists_every_service(pets: Server) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(pets.channel)
    ask = reflection_pb2.ServerReflectionRequest(list_services="")
    names = {s.name for s in next(iter(stub.ServerReflectionInfo(iter([ask])))).list_services_response.service}
    assert names >= {"sharp.v1.Learning", "sharp.v1.Prediction", "sharp.v1.Admin", "inference.GRPCInferenceService",
                     "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}  # fmt: skip


def test_the_http_port_has_metrics_and_health_and_no_files(pets: Server) -> None:
    text = _http(pets, "/metrics")
    for name in ("sharp_requests_total", "sharp_prediction_queue_seconds_bucket", "sharp_compute_seconds_bucket",
                 "sharp_examples_learned_total", "sharp_episodes", "sharp_lag_seconds", "sharp_model_version",
                 "sharp_stm_bytes", "sharp_idle_units", "sharp_corruption_events_total",
                 "sharp_memory_bytes"):  # fmt: skip
        assert name in text, name
    assert _http(pets, "/healthz") == "ok\n"
    with pytest.raises(urllib.error.HTTPError, match="404"):
        _http(pets, "/etc/passwd")


def _http(server: Server, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}{path}", timeout=10) as answer:
        content: str = answer.read().decode()
        return content


def _metric(server: Server, name: str) -> float:
    lines = [line for line in _http(server, "/metrics").splitlines() if line.startswith(name + " ")]
    return float(lines[0].split()[-1])


def test_health_answers_while_large_batches_are_computed(pets: Server) -> None:
    stub = health_pb2_grpc.HealthStub(pets.channel)
    big = np.tile(X, (80, 1))[:8000].astype(np.float32)
    asking = threading.Thread(target=lambda: [pets.predict("pets", big) for _ in range(5)])
    asking.start()
    slowest = 0.0
    while asking.is_alive():
        begun = time.perf_counter()
        stub.Check(health_pb2.HealthCheckRequest(service=""))
        slowest = max(slowest, time.perf_counter() - begun)
    assert slowest < 1.0
    until(lambda: not asking.is_alive())
