"""/api over real HTTP: the same operations as over gRPC, with the same answers and the same refusals."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from tests.server.running import Server, answered, blobs, until

X, Y = blobs(["cat", "dog", "horse"])


@pytest.fixture(scope="module")
def pets(shared: Server) -> Server:
    shared.create("pets")
    shared.teach("pets", (X, Y))
    return shared


@pytest.fixture
def http(pets: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://127.0.0.1:{pets.http_port}", timeout=60) as client:
        yield client


def refused(response: httpx.Response, status: int, reason: str) -> dict[str, Any]:
    content: dict[str, Any] = response.json()
    assert (response.status_code, content["reason"]) == (status, reason), content
    assert set(content) == {"error", "reason", "code", "metadata", "fields", "retry_seconds"}
    assert not any(word in response.text for word in ("Traceback", ".py", "/tmp", "/work"))
    return content


# ---- learners ---------------------------------------------------------------------------------------------------


def test_a_learner_is_made_listed_looked_at_and_deleted(http: httpx.Client) -> None:
    made = http.post("/api/learners", json={"name": "made", "label_kind": "text", "input_shape": [3], "seed": 5})
    assert made.status_code == 201 and made.json()["input_shape"] == [3] and made.json()["label_kind"] == "text"
    assert made.json()["settings"]["seed"] == "5"
    names = [learner["name"] for learner in http.get("/api/learners").json()["learners"]]
    assert "made" in names and names == sorted(names)
    refused(http.post("/api/learners", json={"name": "made"}), 409, "LEARNER_EXISTS")
    refused(http.post("/api/learners", json={"name": "../made"}), 400, "NAME_INVALID")
    assert http.delete("/api/learners/made").json() == {"unlearned_examples": 0, "snapshots": 0}
    refused(http.get("/api/learners/made"), 404, "LEARNER_NOT_FOUND")


def test_a_learner_says_over_http_what_it_says_over_grpc(pets: Server, http: httpx.Client) -> None:
    found, message = http.get("/api/learners/pets").json(), pets.learner("pets")
    assert found["uid"] == message.uid and found["architecture"] == message.architecture
    assert found["settings"] == dict(message.settings)
    assert [entry["label"] for entry in found["classes"]] == [entry.label.text for entry in message.classes]
    assert found["classes"] == http.get("/api/learners/pets/classes").json()["classes"]
    status = found["status"]
    assert (status["state"], status["model_version"]) == ("idle", message.status.model_version)
    assert [layer["name"] for layer in status["layers"]] == [layer.name for layer in message.status.layers]
    ranks = [(entry["rank"], entry["units"]) for entry in status["layers"][0]["ranks"]]
    assert ranks == [(entry.rank, entry.units) for entry in message.status.layers[0].ranks]


def test_lists_come_a_page_at_a_time(http: httpx.Client) -> None:
    for name in ("page-a", "page-b"):
        http.post("/api/learners", json={"name": name})
    first = http.get("/api/learners", params={"page_size": 1}).json()
    assert len(first["learners"]) == 1 and first["next_page_token"]
    second = http.get("/api/learners", params={"page_size": 1, "page_token": first["next_page_token"]}).json()
    assert second["learners"][0]["name"] > first["learners"][0]["name"]
    refused(http.get("/api/learners", params={"page_token": "made up"}), 400, "PAGE_TOKEN_INVALID")


# ---- predictions ------------------------------------------------------------------------------------------------


def test_vectors_get_the_same_answer_as_over_grpc(pets: Server, http: httpx.Client) -> None:
    asked = {"vectors": X[:9].tolist(), "top_k": 2, "nearest_memories": 3, "novelty": True}
    found = http.post("/api/learners/pets/predict", json=asked).json()
    over_grpc = pets.predict("pets", X[:9], top_k=2, nearest_memories=3, novelty=True)
    answers = found["predictions"]
    assert [answer["label"] for answer in answers] == answered(over_grpc)
    assert [answer["vote_share"] for answer in answers] == list(over_grpc.vote_shares)
    assert [answer["novelty"] for answer in answers] == list(over_grpc.novelties)
    for answer, details in zip(answers, over_grpc.details, strict=True):
        assert [score["label"] for score in answer["top_classes"]] == [s.label.text for s in details.top_classes]
        assert [near["distance"] for near in answer["nearest_memories"]] == [
            near.distance for near in details.nearest_memories
        ]
    assert found["model_version"] == over_grpc.model_version
    plain = http.post("/api/learners/pets/predict", json={"vectors": X[:1].tolist()}).json()["predictions"][0]
    assert plain["novelty"] is None and plain["top_classes"] == plain["nearest_memories"] == []


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        ({"vectors": [[1.0]]}, 400, "SHAPE_MISMATCH"),
        ({"vectors": [[1.0] * 12, [1.0]]}, 400, "SHAPE_MISMATCH"),
        ({"vectors": []}, 400, "FIELD_INVALID"),
        ({"vectors": [["1"] * 12]}, 400, "FIELD_INVALID"),
        ({}, 400, "FIELD_INVALID"),
        ({"vectors": [[0.0] * 12], "top": 3}, 400, "FIELD_INVALID"),
        ({"vectors": [[0.0] * 12], "top_k": 101}, 429, "TOO_MANY_RESULTS"),
        ({"vectors": [[0.0] * 12], "top_k": -1}, 400, "FIELD_INVALID"),
        ({"vectors": [[1e300] * 12]}, 400, "NON_FINITE_VALUES"),
    ],
)
def test_what_can_not_be_predicted_is_refused_with_its_reason(
    http: httpx.Client, body: Any, status: int, reason: str
) -> None:
    refused(http.post("/api/learners/pets/predict", json=body), status, reason)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xff", b"[" * 100_000, b'{"vectors": [[NaN]]}', b"1" * 5000])
def test_what_is_no_json_is_refused(http: httpx.Client, content: bytes) -> None:
    headers = {"content-type": "application/json"}
    answer = http.post("/api/learners/pets/predict", content=content, headers=headers)
    assert answer.status_code == 400 and answer.json()["reason"] in ("FIELD_INVALID", "SHAPE_MISMATCH")


def test_before_anything_is_learned_there_is_a_reason_and_no_answer(http: httpx.Client) -> None:
    http.post("/api/learners", json={"name": "empty"})
    refused(http.post("/api/learners/empty/predict", json={"vectors": [[1.0]]}), 400, "NOTHING_LEARNED")
    refused(http.post("/api/learners/nobody/predict", json={"vectors": [[1.0]]}), 404, "LEARNER_NOT_FOUND")


def png(pixels: np.ndarray[Any, Any]) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def test_images_come_as_files(pets: Server, http: httpx.Client) -> None:
    rng = np.random.default_rng(0)
    dark, light = (rng.integers(low, low + 60, (30, 1, 8, 8), dtype=np.uint8) for low in (0, 190))
    made = {"name": "shades", "overrides": {"training.phases": "1", "training.min_steps": "4"}}
    assert http.post("/api/learners", json=made).status_code == 201
    pets.teach("shades", (np.concatenate([dark, light]), ["dark"] * 30 + ["light"] * 30))
    files = [("images", (f"{i}.png", png(image[0]), "image/png")) for i, image in enumerate([dark[0], light[0]])]
    found = http.post("/api/learners/shades/predict/images", files=files, data={"top_k": 2}).json()
    assert [answer["label"] for answer in found["predictions"]] == ["dark", "light"]
    assert len(found["predictions"][0]["top_classes"]) == 2
    large = [("images", ("large.png", png(np.full((40, 40), 230, np.uint8)), "image/png"))]
    refused(http.post("/api/learners/shades/predict/images", files=large), 400, "SHAPE_MISMATCH")
    resized = http.post("/api/learners/shades/predict/images", files=large, data={"resize": "true"})
    assert resized.json()["predictions"][0]["label"] == "light"
    broken = [("images", ("broken.png", b"no image", "image/png"))]
    refused(http.post("/api/learners/shades/predict/images", files=broken), 400, "IMAGE_MALFORMED")
    refused(http.post("/api/learners/shades/predict/images", data={"top_k": 1}), 400, "FIELD_INVALID")


# ---- snapshots, forgetting, parked episodes -----------------------------------------------------------------------


def test_a_snapshot_is_made_downloaded_restored_and_deleted(pets: Server, http: httpx.Client) -> None:
    pets.create("kept")
    pets.teach("kept", blobs(["a", "b"]))
    made = http.post("/api/learners/kept/snapshots", json={"note": "before c"})
    assert made.status_code == 201 and made.json()["note"] == "before c" and made.json()["origin"] == "requested"
    name = made.json()["id"]
    file = http.get(f"/api/learners/kept/snapshots/{name}/file")
    assert hashlib.sha256(file.content).hexdigest() == made.json()["sha256"]
    assert file.headers["content-disposition"].startswith("attachment") and file.content == pets.exported("kept")[1]
    pets.teach("kept", blobs(["c", "d"]), stream_id="t")
    restored = http.post(f"/api/learners/kept/snapshots/{name}/restore", json={}).json()
    assert restored == {
        "model_version": 3, "previous_model_version": 2, "episodes_undone": 1, "classes_forgotten": [],
    }  # fmt: skip
    listed = http.get("/api/learners/kept/snapshots").json()["snapshots"]
    assert name in [snapshot["id"] for snapshot in listed]
    assert http.delete(f"/api/learners/kept/snapshots/{name}").json()["size_bytes"] == len(file.content)
    refused(http.get(f"/api/learners/kept/snapshots/{name}/file"), 404, "SNAPSHOT_NOT_FOUND")
    newest = http.get("/api/learners/kept/snapshots").json()["snapshots"][0]["id"]
    refused(http.delete(f"/api/learners/kept/snapshots/{newest}"), 400, "SNAPSHOT_IN_USE")


def test_a_forgotten_class_is_named_by_nothing_any_more(pets: Server, http: httpx.Client) -> None:
    pets.create("wise")
    x, y = blobs(["a", "b"])
    pets.teach("wise", (x, y))
    done = http.post("/api/learners/wise/forget", json={"label": "a", "older_snapshots": "delete"}).json()
    assert done["model_version"] == 2 and done["snapshots_deleted"] and not done["snapshots_holding"]
    answers = http.post("/api/learners/wise/predict", json={"vectors": x.tolist(), "top_k": 5}).text
    assert '"a"' not in answers
    with http.stream("GET", "/api/learners/wise/events") as stream:
        assert '"a"' not in next(chunk for chunk in stream.iter_text() if "state" in chunk)
    refused(http.post("/api/learners/wise/forget", json={"label": "never met"}), 404, "CLASS_NOT_FOUND")
    refused(http.post("/api/learners/wise/forget", json={"label": 1}), 400, "LABEL_KIND_MISMATCH")


def test_a_parked_episode_is_looked_at_tried_again_and_given_up(pets: Server, http: httpx.Client) -> None:
    pets.create("stuck", metric__enabled="false")
    with pets.stream("stuck") as stream:
        stream.send(np.zeros((1, 4), np.float32), ["alone"])
        stream.end()
        stream.wait_event("parked")
    (parked,) = http.get("/api/learners/stuck/parked").json()["episodes"]
    assert parked["reason"] == "NO_POSITIVE_PAIR" and parked["classes"] == ["alone"] and parked["examples"] == 1
    assert http.post(f"/api/learners/stuck/parked/{parked['episode']}/retry").json() == {"episodes_ahead": 0}
    until(lambda: http.get("/api/learners/stuck/parked").json()["episodes"], what="it is parked again")
    assert http.post(f"/api/learners/stuck/parked/{parked['episode']}/discard").json() == {"examples": 1}
    refused(http.post(f"/api/learners/stuck/parked/{parked['episode']}/retry"), 404, "EPISODE_NOT_FOUND")


# ---- the server itself ------------------------------------------------------------------------------------------


def test_the_server_says_how_it_is_and_counts_requests_by_route(http: httpx.Client) -> None:
    assert http.get("/api/server").json()["state"] == "serving"
    assert http.get("/api/access").json()["roles"] == ["predict", "learn", "admin"]
    refused(http.get("/api/nothing"), 404, "ROUTE_NOT_FOUND")
    wrong = http.put("/api/learners")
    refused(wrong, 405, "METHOD_NOT_ALLOWED")
    assert "GET" in wrong.headers["allow"]
    refused(http.get("/api/learners/absent"), 404, "LEARNER_NOT_FOUND")
    metrics = http.get("/metrics").text
    assert 'sharp_requests_total{code="OK",method="GET /api/server"}' in metrics
    assert 'sharp_requests_total{code="NOT_FOUND",method="GET /api/learners/{name}"}' in metrics
    assert 'sharp_requests_total{code="NOT_FOUND",method="HTTP"}' in metrics
    assert http.head("/healthz").status_code == http.head("/metrics").status_code == 200


def test_the_description_names_every_route_with_its_role_and_loads_nothing_from_elsewhere(http: httpx.Client) -> None:
    document = http.get("/openapi.json").json()
    operations = {(method, path): o for path, methods in document["paths"].items() for method, o in methods.items()}
    assert len(operations) >= 28 and len({o["operationId"] for o in operations.values()}) == len(operations)
    assert all(o["x-role"] in (None, "predict", "learn", "admin") and o["description"] for o in operations.values())
    assert "4XX" in operations["get", "/api/learners"]["responses"]
    references = set(_references(document))
    assert references <= {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        for part in value.values():
            yield from _references(part)
    elif isinstance(value, list):
        for part in value:
            yield from _references(part)


# ---- events -----------------------------------------------------------------------------------------------------


class Events:
    """Reads server-sent events."""

    def __init__(self, response: httpx.Response) -> None:
        self._lines = response.iter_lines()

    def next(self, kind: str) -> tuple[str, Any]:
        """Id and data of the next event of a kind."""
        fields: dict[str, str] = {}
        for line in self._lines:
            name, _, value = line.partition(": ")
            if line:
                fields[name] = value
            else:
                if fields.get("event") == kind:
                    return fields.get("id", ""), json.loads(fields["data"])
                fields = {}
        raise AssertionError("the stream ended")


def test_events_tell_the_state_at_once_and_what_was_missed(pets: Server, http: httpx.Client) -> None:
    pets.create("watched")
    with http.stream("GET", "/api/learners/watched/events") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        events = Events(response)
        assert events.next("state")[1]["status"]["model_version"] == 0
        pets.teach("watched", blobs(["a", "b"]))
        first, closed = events.next("event")
        assert closed["kind"] == "closed" and closed["examples"] == 80
        while (found := events.next("event"))[1]["kind"] != "learned":
            pass
        assert sorted(found[1]["new_classes"]) == ["a", "b"]
        assert events.next("state")[1]["status"]["model_version"] == 1
    with http.stream("GET", "/api/learners/watched/events", headers={"Last-Event-ID": first}) as response:
        missed = Events(response)
        assert [missed.next("event")[1]["kind"] for _ in range(2)] == ["started", "learned"]
    with http.stream("GET", "/api/learners/watched/events", headers={"Last-Event-ID": "another-1"}) as response:
        assert Events(response).next("event")[0] == first
    with http.stream("GET", "/api/events") as response:
        listed = Events(response).next("state")[1]["learners"]
        assert "watched" in [learner["name"] for learner in listed]


def test_a_stream_of_events_ends_with_its_learner_and_with_the_server(lend: Callable[..., Server]) -> None:
    server = lend()
    server.create("short")
    address = f"http://127.0.0.1:{server.http_port}"
    with httpx.Client(base_url=address, timeout=60) as http, httpx.stream("GET", f"{address}/api/events") as overview:
        with http.stream("GET", "/api/learners/short/events") as response:
            events = Events(response)
            events.next("state")
            http.delete("/api/learners/short")
            assert events.next("gone")[1] == {}
        assert server.stop() == 0
        with pytest.raises(AssertionError, match="ended"):
            Events(overview).next("never")
