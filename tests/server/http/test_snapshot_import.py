"""Files of snapshots taken in over HTTP: from anyone, part by part, with the checks and reasons of gRPC."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.server.http.test_api import refused
from tests.server.http.test_bounds import connected, everything, head
from tests.server.running import Server, answered, blobs

X, Y = blobs(["cat", "dog"])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Bodies without a type are smaller here than any snapshot."""
    folder = tmp_path_factory.mktemp("importing")
    limits = {"http__json_bytes": 1024, "limits__snapshot_bytes": 40 << 20}
    with Server(folder, **limits).start() as found:
        found.create("pets")
        found.teach("pets", (X[:20], Y[:20]))
        found.teach("pets", (X[20:], Y[20:]), stream_id="t")
        yield found


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://127.0.0.1:{server.http_port}", timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def file(server: Server) -> bytes:
    return server.exported("pets")[1]


def test_a_learner_is_made_from_a_file_and_answers_as_the_one_it_came_from(
    server: Server, http: httpx.Client, file: bytes
) -> None:
    digest = hashlib.sha256(file).hexdigest()
    path = f"/api/learners/copy/snapshots/import?note=from%20afar&sha256={digest}"
    made = http.post(path, content=file)
    assert made.status_code == 201, made.text
    found = made.json()
    assert found["created"] and found["model_version"] == 1
    assert (found["snapshot"]["origin"], found["snapshot"]["note"]) == ("imported", "from afar")
    assert found["snapshot"]["sha256"] == digest and found["snapshot"]["size_bytes"] == len(file)
    assert answered(server.predict("copy", X)) == answered(server.predict("pets", X))


def test_a_file_is_kept_or_restored_as_one_wants(server: Server, http: httpx.Client, file: bytes) -> None:
    kept = http.post("/api/learners/pets/snapshots/import", content=file).json()
    assert kept["model_version"] == 0 and not kept["created"]
    assert kept["snapshot"]["id"] in [
        entry["id"] for entry in http.get("/api/learners/pets/snapshots").json()["snapshots"]
    ]
    before = http.get("/api/learners/pets").json()["status"]["model_version"]
    restored = http.post("/api/learners/pets/snapshots/import?restore=true", content=file).json()
    assert restored["model_version"] == before + 1 == http.get("/api/learners/pets").json()["status"]["model_version"]


def test_what_is_no_sound_snapshot_is_refused_and_leaves_nothing(
    server: Server, http: httpx.Client, file: bytes
) -> None:
    path = "/api/learners/nobody/snapshots/import"
    refused(http.post(path, content=b"GIF89a"), 400, "SNAPSHOT_MALFORMED")
    refused(http.post(path, content=file[:-1]), 400, "SNAPSHOT_MALFORMED")
    refused(http.post(f"{path}?sha256={'0' * 64}", content=file), 400, "CHECKSUM_MISMATCH")
    for query in ("sha256=xyz", "sha256=00", f"note={'n' * 5000}", "restore=perhaps"):
        refused(http.post(f"{path}?{query}", content=file), 400, "FIELD_INVALID")
    refused(http.post(path, content=b""), 400, "FIELD_INVALID")
    refused(http.post(path, content=iter([file])), 400, "FIELD_INVALID")  # its size is not announced
    refused(http.post("/api/learners/a%20b/snapshots/import", content=file), 400, "NAME_INVALID")
    refused(http.get("/api/learners/nobody"), 404, "LEARNER_NOT_FOUND")
    assert not list(Path(server.folder).rglob(".import-*"))


def test_a_file_that_is_too_large_is_refused_before_it_is_sent(server: Server) -> None:
    sent = head("/api/learners/huge/snapshots/import", f"Content-Length: {1 << 40}", "Connection: close")
    with connected(server, sent) as connection:
        answer = everything(connection)
    assert answer.startswith(b"HTTP/1.1 429") and b"SNAPSHOT_TOO_LARGE" in answer
