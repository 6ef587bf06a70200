"""One table for both edges: every reason and every code has a status, and every error one form."""

from __future__ import annotations

import grpc
import pytest

from sharp_server.api.errors import CODES, TABLE
from sharp_server.errors import RpcError
from sharp_server.http.errors import HTTP_REASONS, STATUSES, ErrorAnswer, HttpError, error_response


def test_every_canonical_code_has_a_status() -> None:
    assert set(STATUSES) == set(grpc.StatusCode)
    assert all(400 <= status < 600 for code, status in STATUSES.items() if code is not grpc.StatusCode.OK)


@pytest.mark.parametrize("reason", sorted(CODES))
def test_every_reason_of_the_wire_is_answered_with_the_status_of_its_code(reason: str) -> None:
    response, code = error_response(RpcError(reason, "why", value=3))
    content = ErrorAnswer.model_validate_json(bytes(response.body))
    assert content.reason == reason and code == content.code == CODES[reason].name
    assert response.status_code == STATUSES[CODES[reason]]
    assert ("retry-after" in response.headers) == (content.retry_seconds is not None)


@pytest.mark.parametrize("reason", sorted(HTTP_REASONS))
def test_reasons_of_http_are_not_those_of_the_wire(reason: str) -> None:
    assert reason not in CODES
    response, code = error_response(HttpError(reason, "why"))
    assert (response.status_code, code) == (HTTP_REASONS[reason][0], HTTP_REASONS[reason][1].name)


@pytest.mark.parametrize("kind", [kind for kind in TABLE if kind not in (RpcError, Exception)])
def test_every_exception_of_the_table_has_an_answer(kind: type[Exception]) -> None:
    error = kind.__new__(kind)  # whatever its constructor takes
    error.args = ("/secret/path/file.py broke",)
    response, _ = error_response(error)
    assert response.status_code >= 400 and b"secret" not in bytes(response.body)
