"""What came back from one call, and whether a server may answer so.

It may refuse in any way that says why. It may not fault (INTERNAL, UNKNOWN), break off (UNAVAILABLE), leave a caller
without an answer, or reveal its files and its code.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message_factory import GetMessageClass

from reliability.fuzz.methods import Method
from sharp.v1 import errors_pb2

SECONDS = 20.0
"""In which a single answer must be there."""
PATIENCE = 0.4
"""How long a stream is listened to; many never end by themselves."""
WAIT = 0.1
"""How long an answer is waited for that the caller asked to wait for what may never come."""
_MOST_ANSWERS = {"Watch": 1, "WatchLearner": 1}
"""Of streams that never end by themselves."""
_FAULTS = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.UNAVAILABLE)
_TELLTALES = (b"Traceback", b'File "', b"site-packages", b".py:", str(Path(__file__).parents[2]).encode(),
              sys.prefix.encode(), b"<class '")  # fmt: skip


class Violation(AssertionError):  # noqa: N818 (of a promise, not of a call)
    """An answer that no server may give."""


@dataclass
class Answer:
    """One call's end, and what came before it."""

    code: grpc.StatusCode = grpc.StatusCode.OK
    message: str = ""
    trailers: bytes = b""
    parts: list[bytes] = field(default_factory=list)
    gave_up: bool = False
    """Whether we ended the call."""


def call(method: Method, channel: grpc.Channel, sent: list[bytes], seconds: float, cancel: bool = False) -> Answer:
    """Call a method with these messages; `cancel`: leave without listening."""
    answer = Answer()
    made = method.on(channel)
    most = _MOST_ANSWERS.get(method.path.rpartition("/")[2], 40)
    request = iter(sent) if method.takes_stream else sent[0]
    try:
        if not method.gives_stream:
            answer.parts.append(made(request, timeout=seconds))
            return answer
        under_way = made(request, timeout=seconds)
        if cancel:
            under_way.cancel()
            answer.gave_up = True
            return answer
        for part in under_way:
            answer.parts.append(part)
            if len(answer.parts) >= most:
                under_way.cancel()
                answer.gave_up = True
                break
    except grpc.RpcError as error:
        failed: Any = error
        answer.code, answer.message = failed.code(), failed.details() or ""
        answer.trailers = b"".join(
            value if isinstance(value, bytes) else value.encode() for _, value in failed.trailing_metadata() or ()
        )
    return answer


def judge(method: Method, answer: Answer, secret: bytes, may_wait: bool = False) -> None:
    """Raise Violation, saying what is wrong.

    `secret` is part of every path of the server's data; `may_wait`: the call asked to wait for what may never come.
    """
    if answer.code in _FAULTS:
        raise Violation(f"{method.path} answered {answer.code.name}: {answer.message[:300]}")
    late = answer.code is grpc.StatusCode.DEADLINE_EXCEEDED
    if late and not method.gives_stream and not may_wait:
        raise Violation(f"{method.path} did not answer in time")
    for text in (answer.message.encode(), answer.trailers, *answer.parts):
        for telltale in (*_TELLTALES, secret):
            if telltale in text:
                raise Violation(f"{method.path} revealed {telltale!r} in {text[:300]!r}")
    for failure in _failures(method, answer):
        if failure.reason == errors_pb2.INTERNAL_ERROR or failure.reason == 0:
            raise Violation(f"{method.path} answered an item of a stream with INTERNAL: {failure.message[:300]}")


def _failures(method: Method, answer: Answer) -> Iterator[errors_pb2.Failure]:
    """Refusals of single items within a stream that went on."""
    if "failure" in method.response.fields_by_name:
        for part in answer.parts:
            item = GetMessageClass(method.response).FromString(part)
            if item.HasField("failure"):
                yield item.failure  # type: ignore[attr-defined]
