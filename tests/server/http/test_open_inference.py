"""The Open Inference Protocol over REST: JSON as in KServe's documents, and binary data as Triton's clients send."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest

from tests.server.http.test_api import png, refused
from tests.server.running import Server, answered, blobs

X, Y = blobs(["setosa", "virginica"], features=4)
HEADER = "Inference-Header-Content-Length"


@pytest.fixture(scope="module")
def iris(shared: Server) -> Server:
    shared.create("iris")
    shared.teach("iris", (X, Y))
    return shared


@pytest.fixture
def http(iris: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://127.0.0.1:{iris.http_port}", timeout=60) as client:
        yield client


def asked(x: Any = X[:2], **more: Any) -> dict[str, Any]:
    data = {"name": "input-0", "shape": list(np.shape(x)), "datatype": "FP32", "data": np.asarray(x).tolist()}
    return {"inputs": [{**data, **more}]}


def test_a_server_and_its_models_introduce_themselves(iris: Server, http: httpx.Client) -> None:
    assert http.get("/v2").json()["name"] == "sharp" and http.get("/v2").json()["extensions"] == ["binary_tensor_data"]
    assert http.get("/v2/health/live").json() == {"live": True}
    assert http.get("/v2/health/ready").json() == {"ready": True}
    model = http.get("/v2/models/iris").json()
    assert model["versions"] == ["1"] and model["inputs"] == [{"name": "input", "datatype": "FP32", "shape": [-1, 4]}]
    assert model == http.get("/v2/models/iris/versions/1").json()
    assert http.get("/v2/models/iris/ready").json() == {"name": "iris", "ready": True}
    assert http.get("/v2/models/iris/versions/1/ready").status_code == 200
    refused(http.get("/v2/models/iris/versions/2"), 404, "VERSION_NOT_FOUND")
    refused(http.get("/v2/models/iris/versions/2/ready"), 404, "VERSION_NOT_FOUND")
    refused(http.get("/v2/models/nobody/ready"), 404, "LEARNER_NOT_FOUND")
    iris.create("blank")
    refused(http.get("/v2/models/blank/ready"), 400, "NOTHING_LEARNED")


@pytest.mark.parametrize("path", ["/v2/models/iris/infer", "/v2/models/iris/versions/1/infer"])
def test_json_is_answered_in_json(iris: Server, http: httpx.Client, path: str) -> None:
    found = http.post(path, json={"id": "42", **asked()}).json()
    over_grpc = iris.predict("iris", X[:2])
    assert (found["model_name"], found["model_version"], found["id"]) == ("iris", "1", "42")
    outputs = {output["name"]: output for output in found["outputs"]}
    assert set(outputs) == {"label", "vote_share", "distance"}
    assert outputs["label"] == {
        "name": "label", "datatype": "BYTES", "shape": [2], "data": answered(over_grpc),
    }  # fmt: skip
    assert outputs["vote_share"]["data"] == list(over_grpc.vote_shares)


def test_data_may_be_flat_and_outputs_chosen(http: httpx.Client) -> None:
    body = asked(data=X[:2].ravel().tolist())
    body["outputs"] = [{"name": "novelty"}, {"name": "label"}]
    found = http.post("/v2/models/iris/infer", json=body).json()
    assert [output["name"] for output in found["outputs"]] == ["novelty", "label"]
    assert found["outputs"][1]["data"] == Y[:2]


def binary(http: httpx.Client, x: Any, **more: Any) -> tuple[dict[str, Any], bytes]:
    """A request with binary data both ways; JSON and bytes of the answer."""
    raw = np.asarray(x, "<f4").tobytes()
    tensor = {"name": "i", "shape": list(np.shape(x)), "datatype": "FP32", "parameters": {"binary_data_size": len(raw)}}
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}, **more}).encode()
    headers = {HEADER: str(len(head)), "content-type": "application/octet-stream"}
    answer = http.post("/v2/models/iris/infer", content=head + raw, headers=headers)
    assert answer.status_code == 200, answer.text
    length = int(answer.headers[HEADER])
    return json.loads(answer.content[:length]), answer.content[length:]


def test_binary_data_go_both_ways(http: httpx.Client) -> None:
    found, rest = binary(http, X[:40])
    plain = {output["name"]: output["data"] for output in
             http.post("/v2/models/iris/infer", json=asked(X[:40])).json()["outputs"]}  # fmt: skip
    place = 0
    for output in found["outputs"]:
        size = output["parameters"]["binary_data_size"]
        raw, place = rest[place : place + size], place + size
        assert "data" not in output
        if output["datatype"] == "FP32":
            assert np.frombuffer(raw, "<f4").tolist() == plain[output["name"]]
        else:
            texts = [text.encode() for text in plain["label"]]
            assert raw == b"".join(struct.pack("<I", len(text)) + text for text in texts)
    assert place == len(rest)


def test_each_output_says_for_itself_whether_it_is_binary(http: httpx.Client) -> None:
    wanted = [{"name": "label", "parameters": {"binary_data": False}}, {"name": "distance"}]
    found, rest = binary(http, X[:3], outputs=wanted)
    label, distance = found["outputs"]
    assert label["data"] == Y[:3] and distance["parameters"] == {"binary_data_size": 12} and len(rest) == 12


def test_images_are_base64_in_json(iris: Server, http: httpx.Client) -> None:
    http.post("/api/learners", json={"name": "tiny", "overrides": {"training.phases": "1"}})
    pixels = np.random.default_rng(0).integers(0, 255, (20, 1, 8, 8), dtype=np.uint8)
    iris.teach("tiny", (pixels, [1] * 10 + [2] * 10))
    data = [base64.b64encode(png(image[0])).decode() for image in pixels[:2]]
    found = http.post("/v2/models/tiny/infer", json=asked(shape=[2], datatype="BYTES", data=data)).json()
    assert found["outputs"][0]["datatype"] == "INT64" and len(found["outputs"][0]["data"]) == 2
    refused(
        http.post("/v2/models/tiny/infer", json=asked(shape=[1], datatype="BYTES", data=["*"])), 400, "FIELD_INVALID"
    )


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (asked(shape=[2, 5]), 400, "SHAPE_MISMATCH"),
        (asked(shape=[3, 4]), 400, "TENSOR_SIZE_MISMATCH"),
        (asked(datatype="FP64"), 400, "DTYPE_UNSUPPORTED"),
        (asked(datatype="UINT8"), 400, "FIELD_INVALID"),
        (asked(data=[[1, 2], [3]]), 400, "FIELD_INVALID"),
        (asked(data=["1"] * 8), 400, "FIELD_INVALID"),
        (asked(data=[None] * 8), 400, "FIELD_INVALID"),
        (asked(data=[10**400] * 8), 400, "FIELD_INVALID"),
        (asked(shape=[1 << 70]), 400, "FIELD_INVALID"),
        ({"inputs": []}, 400, "FIELD_INVALID"),
        ({"inputs": asked()["inputs"] * 2}, 400, "FIELD_INVALID"),
        ({**asked(), "outputs": [{"name": "logits"}]}, 400, "FIELD_INVALID"),
        ({**asked(), "parameters": {"sequence_id": 1}}, 501, "FEATURE_UNSUPPORTED"),
        (asked(parameters={"shared_memory_region": "x"}), 501, "FEATURE_UNSUPPORTED"),
        (asked(parameters={"binary_data_size": 5}), 400, "FIELD_INVALID"),
        ({"inputs": "all"}, 400, "FIELD_INVALID"),
    ],
)
def test_what_is_not_taken_is_refused_with_its_reason(http: httpx.Client, body: Any, status: int, reason: str) -> None:
    content = refused(http.post("/v2/models/iris/infer", json=body), status, reason)
    assert isinstance(content["error"], str)  # as the protocol wants it


@pytest.mark.parametrize("length", ["-1", "x", "99999999", "3", "٣"])
def test_a_length_that_is_not_true_is_refused(http: httpx.Client, length: str) -> None:
    headers = {HEADER.encode(): length.encode(), b"content-type": b"application/octet-stream"}
    body = json.dumps(asked()).encode()
    refused(http.post("/v2/models/iris/infer", content=body, headers=headers), 400, "FIELD_INVALID")
