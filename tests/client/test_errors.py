"""Every reason becomes an exception of its own, and nothing the server tells is lost on the way."""

from __future__ import annotations

import inspect

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

import sharp_client
from sharp.v1 import errors_pb2
from sharp_client import _errors, _failures, _reasons, _status

REASONS = [value.name for value in errors_pb2.ErrorReason.DESCRIPTOR.values if value.number != 0]


def test_every_reason_has_an_exception_and_every_exception_a_reason() -> None:
    assert set(_failures.BY_REASON) == set(REASONS)


@pytest.mark.parametrize("reason", REASONS)
def test_a_reason_becomes_its_exception_with_code_metadata_and_delay(reason: str) -> None:
    code = _failures.canonical_code(reason)
    error = _failures.make_error(code, "words", _status.StatusDetails(reason, {"learner": "digits"}, 1.5))
    assert type(error).__name__.lower() == reason.replace("_", "").lower().removesuffix("error") + "error"
    assert (error.reason, error.code, error.metadata, error.retry_delay) == (reason, code, {"learner": "digits"}, 1.5)
    assert error.retryable == _failures.is_retryable(reason)
    assert issubclass(type(error), _failures.BY_CODE[code]) or code == "RESOURCE_EXHAUSTED"


def test_every_canonical_code_has_an_exception() -> None:
    assert set(_failures.BY_CODE) == {code.name for code in grpc.StatusCode} - {"OK"}


def test_a_reason_newer_than_the_client_falls_back_to_its_code() -> None:
    details = _status.StatusDetails("SUN_TOO_HOT", {"degrees": "9"})
    assert type(_failures.make_error("RESOURCE_EXHAUSTED", "hot", details)) is sharp_client.ExhaustedError
    assert type(_failures.make_error("NOT_FOUND", "hot", details)) is sharp_client.NotFoundError


def test_resource_exhausted_without_details_is_a_message_too_large() -> None:
    error = _failures.make_error("RESOURCE_EXHAUSTED", "", _status.StatusDetails())
    assert type(error) is sharp_client.MessageTooLargeError


def test_the_tree_on_top_of_the_errors_module_names_every_exception() -> None:
    tree = _errors.__doc__ or ""
    own = [name for name, kind in vars(_errors).items() if inspect.isclass(kind) and issubclass(kind, Exception)]
    reasons = [kind.__name__.removesuffix("Error") for kind in _failures.BY_REASON.values()]
    assert not [name for name in own + reasons if name not in tree]


def test_all_exceptions_are_public() -> None:
    kinds = [kind for module in (_errors, _reasons) for kind in vars(module).values() if inspect.isclass(kind)]
    public = vars(sharp_client)
    assert not [k.__name__ for k in kinds if issubclass(k, Exception) and public.get(k.__name__) is not k]


def test_errors_are_also_the_builtin_errors_that_python_programs_expect() -> None:
    assert issubclass(sharp_client.ShapeMismatchError, ValueError)
    assert issubclass(sharp_client.VersionNotReachedError, TimeoutError)
    assert issubclass(sharp_client.ServerNotReadyError, ConnectionError)


def test_details_written_by_the_usual_package_are_read() -> None:
    status = status_pb2.Status(code=8, message="full")
    info = error_details_pb2.ErrorInfo(domain="sharp.v1", reason="QUEUE_FULL", metadata={"limit": "7", "learner": "d"})
    retry = error_details_pb2.RetryInfo()
    retry.retry_delay.FromMilliseconds(1250)
    bad = error_details_pb2.BadRequest()
    bad.field_violations.add(field="inputs.tensor", description="too many")
    for detail in (info, retry, bad):
        status.details.add().Pack(detail)
    details = _status.decode(status.SerializeToString())
    assert details == _status.StatusDetails(
        "QUEUE_FULL", {"limit": "7", "learner": "d"}, 1.25, (_status.FieldViolation("inputs.tensor", "too many"),)
    )


def test_details_written_by_the_fake_are_read_by_the_usual_package() -> None:
    details = _status.StatusDetails("QUEUE_FULL", {"limit": "7"}, 0.5, (_status.FieldViolation("x", "y"),))
    data = _status.encode(8, "full", details)
    status = status_pb2.Status.FromString(data)
    info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
    assert status.details[0].Unpack(info) and status.details[1].Unpack(retry)
    assert (info.reason, dict(info.metadata), retry.retry_delay.ToMilliseconds()) == ("QUEUE_FULL", {"limit": "7"}, 500)
    assert _status.decode(data) == details


def test_garbage_instead_of_details_is_no_crash() -> None:
    assert _status.decode(b"\xff\xff\xff") == _status.StatusDetails()


def test_details_of_another_domain_are_not_taken_for_ours() -> None:
    status = status_pb2.Status(code=5)
    status.details.add().Pack(error_details_pb2.ErrorInfo(domain="example.com", reason="LEARNER_NOT_FOUND"))
    assert _status.decode(status.SerializeToString()).reason == ""
