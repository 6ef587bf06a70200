"""How good versions are, the step back and names of classes over HTTP: the same as over gRPC."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.server.http.test_api import refused
from tests.server.running import Server, blobs


@pytest.fixture
def http(shared: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://127.0.0.1:{shared.http_port}", timeout=60) as client:
        yield client


def test_every_version_says_how_good_it_is(shared: Server, http: httpx.Client) -> None:
    shared.create("measured")
    shared.teach("measured", blobs(["a", "b"], 200))
    shared.teach("measured", blobs(["c", "d"], 200), stream_id="t")
    newest, *_ = http.get("/api/learners/measured/quality").json()["qualities"]
    assert newest["model_version"] == 2 and {entry["label"] for entry in newest["classes"]} == {"a", "b", "c", "d"}
    assert 0 < newest["right"] <= newest["examples"]
    learner = http.get("/api/learners/measured").json()
    report = learner["status"]["quality"]
    assert report["quality"]["model_version"] == 2 and report["fallen"] == []
    for entry in learner["classes"]:
        assert entry["examples"] == 200 and entry["quality"]["examples"] > 0
    page = http.get("/api/learners/measured/quality", params={"page_size": 1}).json()
    assert len(page["qualities"]) == 1


def test_a_version_is_undone_after_a_preview(shared: Server, http: httpx.Client) -> None:
    shared.create("undone")
    shared.teach("undone", blobs(["a", "b"]))
    shared.teach("undone", blobs(["c", "d"]), stream_id="t")
    preview = http.post("/api/learners/undone/undo", json={"model_version": 2, "preview": True}).json()
    assert (preview["model_version"], preview["restored_model_version"], preview["episodes_undone"]) == (2, 1, 1)
    assert len(http.get("/api/learners/undone/classes").json()["classes"]) == 4
    done = http.post("/api/learners/undone/undo", json={"model_version": 2}).json()
    assert (done["model_version"], done["undone_model_version"]) == (3, 2)
    assert len(http.get("/api/learners/undone/classes").json()["classes"]) == 2
    refused(http.post("/api/learners/undone/undo", json={"model_version": 2}), 404, "VERSION_NOT_FOUND")
    refused(http.post("/api/learners/undone/undo", json={}), 400, "NOTHING_TO_UNDO")


def test_classes_are_renamed_and_merged(shared: Server, http: httpx.Client) -> None:
    shared.create("named")
    x, y = blobs(["a", "b", "c"])
    shared.teach("named", (x, y))
    renamed = http.post("/api/learners/named/rename", json={"label": "a", "new_label": "z"}).json()
    assert renamed["model_version"] == 2 and renamed["snapshots_holding"]
    refused(http.post("/api/learners/named/rename", json={"label": "z", "new_label": "b"}), 409, "CLASS_EXISTS")
    assert http.post("/api/learners/named/merge", json={"source": "z", "target": "b"}).json()["model_version"] == 3
    labels = [entry["label"] for entry in http.get("/api/learners/named/classes").json()["classes"]]
    assert sorted(labels) == ["b", "c"]
    refused(http.post("/api/learners/named/merge", json={"source": "z", "target": "b"}), 404, "CLASS_NOT_FOUND")
