"""Errors over HTTP: the table of `api.errors` with a status for every code, and what only HTTP can refuse.

One form of body for all of them. `error` is a text, as the Open Inference Protocol wants it; programs go by `reason`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import grpc
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.responses import Response

from sharp_server.api.errors import RETRY_SECONDS, Answer, answer_for
from sharp_server.errors import RpcError, redact

STATUSES: dict[grpc.StatusCode, int] = {
    grpc.StatusCode.OK: 200,
    grpc.StatusCode.CANCELLED: 499,
    grpc.StatusCode.UNKNOWN: 500,
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.ALREADY_EXISTS: 409,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.FAILED_PRECONDITION: 400,
    grpc.StatusCode.ABORTED: 409,
    grpc.StatusCode.OUT_OF_RANGE: 400,
    grpc.StatusCode.UNIMPLEMENTED: 501,
    grpc.StatusCode.INTERNAL: 500,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.DATA_LOSS: 500,
    grpc.StatusCode.UNAUTHENTICATED: 401,
}
"""The status of every canonical code, as `google.rpc.Code` maps them."""

HTTP_REASONS: dict[str, tuple[int, grpc.StatusCode]] = {
    "ROUTE_NOT_FOUND": (404, grpc.StatusCode.NOT_FOUND),
    "METHOD_NOT_ALLOWED": (405, grpc.StatusCode.UNIMPLEMENTED),
    "BODY_TOO_LARGE": (413, grpc.StatusCode.RESOURCE_EXHAUSTED),
    "BODY_TOO_SLOW": (408, grpc.StatusCode.DEADLINE_EXCEEDED),
    "ORIGIN_REFUSED": (403, grpc.StatusCode.PERMISSION_DENIED),
}
"""Reasons that gRPC has no use for: its transport, or its lack of browsers, takes care of them."""


class ErrorAnswer(BaseModel):
    """Why a request failed."""

    error: str = Field(description="One sentence for people.")
    reason: str = Field(description="Why, for programs: a name of `sharp.v1.ErrorReason`, or one of HTTP's own.")
    code: str = Field(description="The canonical code of the reason.")
    metadata: dict[str, str] = Field(description="The offending values.")
    fields: list[str] = Field(description="The fields of the request that are wrong.")
    retry_seconds: float | None = Field(description="Repeat the request after so long; null: something must change.")


class HttpError(Exception):
    """A request that is refused for a reason of HTTP's own."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason, self.message = reason, message


def error_response(error: Exception, learner: str = "") -> tuple[Response, str]:
    """What a client reads of an exception, and the name of its canonical code."""
    headers: dict[str, str] = {}
    if isinstance(error, HTTPException):
        headers.update(error.headers or {})
        error = _of_framework(error)
    if isinstance(error, HttpError):
        status, code = HTTP_REASONS[error.reason]
        content = ErrorAnswer(
            error=error.message, reason=error.reason, code=code.name, metadata={}, fields=[], retry_seconds=None
        )
        if status in (408, 413):
            headers["Connection"] = "close"  # the rest of the body is not read
    else:
        answer = _answer(error, learner)
        status, code, retry = STATUSES[answer.code], answer.code, answer.retry
        if retry is None and code in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE):
            retry = RETRY_SECONDS
        content = ErrorAnswer(
            error=answer.message, reason=answer.reason, code=code.name, metadata=answer.metadata,
            fields=list(answer.fields), retry_seconds=retry,
        )  # fmt: skip
        if retry is not None:
            headers["Retry-After"] = str(max(1, math.ceil(retry)))
        if status == 401:
            headers["WWW-Authenticate"] = "Bearer"
    return Response(content.model_dump_json(), status, headers, "application/json"), code.name


def _answer(error: Exception, learner: str) -> Answer:
    if isinstance(error, RequestValidationError):
        found = error.errors()
        places = ("body",) if found and found[0]["type"] == "json_invalid" else None
        fields = tuple(dict.fromkeys(_field(places or entry["loc"]) for entry in found))[:20]
        message = f"{fields[0]}: {found[0]['msg']}" if found else "the request is malformed"
        error = RpcError("FIELD_INVALID", message, fields=fields, field=fields[0] if fields else "body")
    return answer_for(error, learner)


def _field(place: Sequence[Any]) -> str:
    """Where in a request, as a path; the first part says only that it is the body or the query."""
    parts = list(place[1:]) or list(place)
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
    return redact(text.removeprefix("."))


def _of_framework(error: HTTPException) -> Exception:
    """What the framework refuses by itself: unknown routes, methods, and bodies that it can't read."""
    if isinstance(error.__cause__, HttpError):  # ours, met while it read the body
        return error.__cause__
    if error.status_code == 404:
        return HttpError("ROUTE_NOT_FOUND", "there is nothing at this address; /docs lists what there is")
    if error.status_code == 405:
        return HttpError("METHOD_NOT_ALLOWED", "this address does not take that method; /docs lists what it takes")
    return RpcError("FIELD_INVALID", redact(error.detail), fields=("body",), field="body")
