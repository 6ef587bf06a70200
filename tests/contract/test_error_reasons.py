"""The table of reasons is complete and consistent, and readable by programs."""

from __future__ import annotations

import re

import grpc
import pytest
from google.protobuf.descriptor import EnumValueDescriptor

from sharp.v1 import errors_pb2

REASONS = [value for value in errors_pb2.ErrorReason.DESCRIPTOR.values if value.number != 0]


def canonical_code(reason: EnumValueDescriptor) -> str:
    """Read the name of the canonical code from the options of a reason."""
    code: str = reason.GetOptions().Extensions[errors_pb2.canonical_code]
    return code


def is_retryable(reason: EnumValueDescriptor) -> bool:
    """Read from the options of a reason whether the same call may succeed later."""
    retryable: bool = reason.GetOptions().Extensions[errors_pb2.retryable]
    return retryable


@pytest.mark.parametrize("reason", REASONS, ids=lambda reason: reason.name)
def test_every_reason_has_a_canonical_code_other_than_ok(reason: EnumValueDescriptor) -> None:
    assert canonical_code(reason) in {code.name for code in grpc.StatusCode} - {"OK", "UNKNOWN", "CANCELLED"}


def test_reasons_have_the_form_that_error_info_asks_for() -> None:
    form = re.compile(r"[A-Z][A-Z0-9_]+[A-Z0-9]")
    assert not [reason.name for reason in REASONS if not form.fullmatch(reason.name) or len(reason.name) > 63]


def test_no_reason_can_be_taken_for_a_code() -> None:
    assert not {reason.name for reason in REASONS} & {code.name for code in grpc.StatusCode}


def test_only_codes_that_allow_a_retry_have_retryable_reasons() -> None:
    codes = {canonical_code(reason) for reason in REASONS if is_retryable(reason)}
    assert codes == {"RESOURCE_EXHAUSTED", "UNAVAILABLE", "ABORTED", "DEADLINE_EXCEEDED"}
