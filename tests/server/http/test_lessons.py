"""Teaching over HTTP: one labelled example, known at once, learned once however often it is sent."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import numpy as np
import pytest

from tests.server.http.test_api import png, refused
from tests.server.running import Server, blobs

X, Y = blobs(["cat", "dog"])


@pytest.fixture
def http(shared: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://127.0.0.1:{shared.http_port}", timeout=60) as client:
        yield client


def lesson(vectors: np.ndarray[tuple[int, int], np.dtype[np.float32]], labels: list[object], name: str) -> object:
    return {"vectors": vectors.tolist(), "labels": labels, "request_id": name}


def test_one_example_is_enough_and_a_correction_is_an_example(http: httpx.Client) -> None:
    http.post("/api/learners", json={"name": "quick"})
    first = http.post("/api/learners/quick/teach", json=lesson(X[:1], ["cat"], "1")).json()
    assert first["new_classes"] == ["cat"] and first["examples"] == 1 and not first["repetition"]
    other = np.ones((1, 12), np.float32) * 5
    asked = {"vectors": other.tolist(), "min_examples": first["examples_known"]}
    found = http.post("/api/learners/quick/predict", json=asked).json()
    assert found["predictions"][0]["label"] == "cat"
    corrected = http.post("/api/learners/quick/teach", json=lesson(other, ["owl"], "2")).json()
    assert corrected["corrections"] == 1
    found = http.post("/api/learners/quick/predict", json=asked).json()
    assert found["predictions"][0]["label"] == "owl"
    assert found["examples_beyond_version"] + found["model_version"] > 0


def test_a_lesson_that_is_sent_twice_is_learned_once(http: httpx.Client) -> None:
    http.post("/api/learners", json={"name": "twice"})
    first, second = (http.post("/api/learners/twice/teach", json=lesson(X[:3], Y[:3], "same")).json() for _ in range(2))
    assert not first["repetition"] and second["repetition"] and first["examples_known"] == second["examples_known"]
    refused(http.post("/api/learners/twice/teach", json=lesson(X[:3], ["owl"] * 3, "same")), 409, "REQUEST_ID_USED")


def test_images_are_taught_as_files(shared: Server, http: httpx.Client) -> None:
    rng = np.random.default_rng(0)
    dark, light = (rng.integers(low, low + 60, (30, 1, 8, 8), dtype=np.uint8) for low in (0, 190))
    http.post("/api/learners", json={"name": "taught-shades", "overrides": {"training.phases": "1"}})
    files = [("images", ("grey.png", png(np.full((20, 20), 128, np.uint8)), "image/png"))]
    form = {"labels": "grey", "request_id": "grey", "resize": "true"}
    refused(http.post("/api/learners/taught-shades/teach/images", files=files, data=form), 400, "EPISODE_NEEDED")
    shared.teach("taught-shades", (np.concatenate([dark, light]), ["dark"] * 30 + ["light"] * 30))
    taught = http.post("/api/learners/taught-shades/teach/images", files=files, data=form).json()
    assert taught["new_classes"] == ["grey"]
    found = http.post("/api/learners/taught-shades/predict/images", files=files, data={"resize": "true"}).json()
    assert found["predictions"][0]["label"] == "grey"


def test_integers_come_as_integers_from_forms_too(shared: Server, http: httpx.Client) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (20, 1, 8, 8), dtype=np.uint8)
    http.post("/api/learners", json={"name": "numbered", "overrides": {"training.phases": "1"}})
    shared.teach("numbered", (pixels, [1] * 10 + [2] * 10))
    files = [("images", ("x.png", png(np.zeros((8, 8), np.uint8)), "image/png"))]
    for labels, reason in (("three", "LABEL_KIND_MISMATCH"), (str(1 << 63), "LABEL_KIND_MISMATCH")):
        form = {"labels": labels, "request_id": "x"}
        refused(http.post("/api/learners/numbered/teach/images", files=files, data=form), 400, reason)
    form = {"labels": "-3", "request_id": "x"}
    taught = http.post("/api/learners/numbered/teach/images", files=files, data=form)
    assert taught.json()["new_classes"] == [-3]


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (lesson(X[:2], ["cat"], "a"), 400, "LABEL_COUNT_MISMATCH"),
        (lesson(X[:2], ["cat", 1], "a"), 400, "LABEL_KIND_MISMATCH"),
        (lesson(X[:1], [""], "a"), 400, "LABEL_INVALID"),
        (lesson(X[:1], ["cat"], ""), 400, "NAME_INVALID"),
        (lesson(X[:1], ["cat"], "white space"), 400, "NAME_INVALID"),
        (lesson(X[:1], [True], "a"), 400, "FIELD_INVALID"),
        ({"vectors": X[:1].tolist(), "labels": ["cat"]}, 400, "FIELD_INVALID"),
    ],
)
def test_what_can_not_be_taught_is_refused(http: httpx.Client, body: object, status: int, reason: str) -> None:
    http.post("/api/learners", json={"name": "strict"})
    refused(http.post("/api/learners/strict/teach", json=body), status, reason)
    refused(http.post("/api/learners/nobody/teach", json=lesson(X[:1], ["cat"], "a")), 404, "LEARNER_NOT_FOUND")
