"""Requests made up from the description of the HTTP routes; `python -m reliability.http` makes many more of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from devtools.server_process import ONE_THREAD, ServerProcess
from reliability import http
from sharp_client import Client


def test_no_answer_is_a_fault_or_one_that_the_description_does_not_allow(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, http.SETTINGS, environment=ONE_THREAD).start() as server:
        report = http.run(server, examples=3)
        assert not report.failures and report.planted_same
        assert "incident" not in server.log.read_text()
    asked = {name for name, _ in report.statuses}
    assert len(asked) >= 25 and any(status == 200 for _, status in report.statuses)
    assert {f"GET {path}" for path in http.PLAIN} <= asked
    found = report.to_dict()
    assert found["seconds"] > 0 and found["requests"] == sum(sum(codes.values()) for codes in found["routes"].values())
    assert all(found["memory"][name]["samples"] > 0 for name in ("front", "trainer", "teacher"))


def test_a_planted_learner_that_answers_otherwise_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def harm(server: ServerProcess, examples: int) -> http.SchemaReport:
        with Client(server.address) as client:
            client.teach(http.PLANTED, [[0.5, 0.5]], ["other"])
        return http.SchemaReport()

    monkeypatch.setattr(http, "attack", harm)
    with ServerProcess(tmp_path, http.SETTINGS, environment=ONE_THREAD).start() as server:
        assert http.run(server, examples=1).failures == ["the planted learner answers otherwise than before"]
