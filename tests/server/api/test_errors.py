"""The table of errors is complete: every exception of the engine and every reason of the wire has its answer."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import grpc
import pytest

import sharp_engine
import sharp_server
from sharp.v1 import errors_pb2
from sharp_engine.errors import SharpError
from sharp_server.api.errors import CODES, REASONS, TABLE, answer_for
from sharp_server.errors import JournalUnavailable, RpcError, StoreUnavailable, redact

INTERNAL_BY_NATURE = {
    "SharpError",
    "EpisodeStateError",
    "EpisodeFailedError",
    "NonFiniteLossError",
    "SilentNetworkError",
    "ShardingError",
}
"""Errors of the engine that no request can bring about at the edge: there they are faults of ours."""


def tree(cls: type[BaseException]) -> list[type[BaseException]]:
    return [cls, *(below for child in cls.__subclasses__() for below in tree(child))]


@pytest.mark.parametrize("error", tree(SharpError), ids=lambda cls: cls.__name__)
def test_every_error_of_the_engine_is_in_the_table(error: type[BaseException]) -> None:
    if error.__module__.startswith("sharp_engine"):
        assert error in TABLE
    answer = answer_for(error("something was wrong"))
    assert (answer.reason == "INTERNAL_ERROR") == (error.__name__ in INTERNAL_BY_NATURE)


def test_every_public_error_of_the_engine_is_one_of_the_tree() -> None:
    public = [
        value for value in vars(sharp_engine).values() if isinstance(value, type) and issubclass(value, Exception)
    ]
    assert set(public) <= set(tree(SharpError))


@pytest.mark.parametrize("reason", sorted(REASONS))
def test_every_reason_can_be_told_with_its_code_and_details(reason: str) -> None:
    answer = answer_for(RpcError(reason, "a sentence", fields=("a.b",), key="value"), "digits")
    status = answer.status()
    assert status.code == CODES[reason].value[0]
    assert answer.metadata == {"key": "value", "learner": "digits"}
    kinds = [detail.type_url.rsplit(".", 1)[-1] for detail in status.details]
    assert kinds[:2] == ["ErrorInfo", "BadRequest"]
    assert ("RetryInfo" in kinds) == (answer.code in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE))
    assert answer.failure().reason == errors_pb2.ErrorReason.Value(reason)


def test_every_reason_that_the_server_gives_is_one_of_the_wire_and_every_one_of_the_wire_is_given() -> None:
    folder = Path(sharp_server.__file__).parent
    text = "\n".join(path.read_text() for path in folder.rglob("*.py"))
    given = set(re.findall(r'(?:RpcError|_details|Answer|__init__)\(\s*"([A-Z_]+)"', text))
    assert given <= set(REASONS)
    assert set(REASONS) - given == set()


def test_a_full_disk_is_told_as_such_and_a_bug_with_an_incident_only(caplog: pytest.LogCaptureFixture) -> None:
    assert answer_for(JournalUnavailable("database or disk is full")).reason == "DISK_FULL"
    assert answer_for(StoreUnavailable("connection refused")).reason == "STORE_UNAVAILABLE"
    assert answer_for(OSError(28, "No space left on device", "/data/secret")).reason == "DISK_FULL"
    answer = answer_for(sqlite3.ProgrammingError("near x: /data/secret"))
    assert answer.reason == "INTERNAL_ERROR"
    assert answer.metadata["incident"] in caplog.text
    assert "secret" not in answer.message + str(answer.metadata)


def test_no_path_leaves_with_an_error_of_a_library() -> None:
    answer = answer_for(sharp_engine.ConfigError("cannot read weights from /srv/weights/a.pt: no"))
    assert "srv" not in answer.message and "srv" not in str(answer.metadata)


def test_what_is_told_is_short_and_has_no_path_however_long_the_value_was() -> None:
    long = "x" * 50_000_000  # a search that begins at every letter would not come back
    refusal = RpcError("LEARNER_NOT_FOUND", f"there is no {long}", learner=long, path="cannot read /srv/data/secret.db")
    answer = answer_for(refusal, long)
    assert len(answer.message) <= 1000 and all(len(value) <= 200 for value in answer.metadata.values())
    assert answer.metadata["path"] == "cannot read …"
    assert redact("a/b and ../../up and C:/x/y and one/two/three.py") == "a/b and … and C:… and …"


def test_a_method_that_is_not_offered_is_no_fault_of_the_server() -> None:
    assert answer_for(NotImplementedError()).code is grpc.StatusCode.UNIMPLEMENTED
