"""Answers have the fields of their messages, in Python's own types, and read well."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import Any

import pytest

import sharp_client
from sharp.v1 import admin_pb2, learner_admin_pb2, learner_pb2, snapshot_pb2
from sharp_client._answers import Answer
from sharp_client._answers.decoding import ANSWERS

MADE_BY_HAND = {
    "PredictResponse", "PredictStreamResponse", "ExportSnapshotResponse",  # arrays, and a file
    "CreateLearnerResponse", "GetLearnerResponse", "CreateSnapshotResponse",  # hold one message, which is the answer
    "ListLearnersResponse", "ListSnapshotsResponse", "ListParkedEpisodesResponse",  # pages: lists of answers
    "ListQualityResponse",
}  # fmt: skip


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=lambda answer: answer.__name__)
def test_an_answer_has_every_field_of_its_message_in_the_same_order(answer: type[Any]) -> None:
    assert [field.name for field in dataclasses.fields(answer)] == list(answer.message.DESCRIPTOR.fields_by_name)


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=lambda answer: answer.__name__)
def test_an_answer_is_frozen_public_and_can_be_made_without_a_server(answer: type[Any]) -> None:
    assert getattr(sharp_client, answer.__name__) is answer
    made = answer()
    assert made == answer.decode(answer.message())
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(made, dataclasses.fields(answer)[0].name, 1)


def test_every_answer_of_admin_has_its_dataclass() -> None:
    methods = admin_pb2.DESCRIPTOR.services_by_name["Admin"].methods
    missing = {method.output_type.name for method in methods if method.output_type.full_name not in ANSWERS}
    assert missing <= MADE_BY_HAND


def test_values_come_in_pythons_own_types() -> None:
    message = snapshot_pb2.Snapshot(id="7", origin=snapshot_pb2.SNAPSHOT_ORIGIN_REQUESTED, sha256=b"\x01\xff")
    message.classes.integers.values.extend([3, -1])
    message.create_time.FromDatetime(datetime(2026, 11, 18, 1, 2, 3))
    snapshot = sharp_client.Snapshot.decode(message)
    assert (snapshot.origin, snapshot.sha256, snapshot.classes) == ("requested", "01ff", (3, -1))
    assert snapshot.create_time == datetime(2026, 11, 18, 1, 2, 3, tzinfo=UTC)
    status = learner_pb2.LearnerStatus(state=learner_pb2.LEARNER_STATE_TRAINING)
    status.progress.phase = 2
    status.backlog.lag.FromMilliseconds(1500)
    decoded = sharp_client.LearnerStatus.decode(status)
    assert decoded.progress is not None and decoded.progress.loss is None and decoded.progress.time_left is None
    assert (decoded.state, decoded.backlog.lag, decoded.progress.phase) == ("training", 1.5, 2)


def test_a_value_newer_than_the_client_is_shown_as_its_number() -> None:
    message = learner_pb2.LearnerStatus()
    message.state = 99  # type: ignore[assignment]
    assert sharp_client.LearnerStatus.decode(message).state == "99"


def test_a_repr_leaves_out_what_is_empty() -> None:
    message = learner_admin_pb2.ForgetClassResponse(model_version=3, ltm_entries=12)
    message.snapshots_holding.add(id="000002-ab", model_version=2).create_time.FromSeconds(0)
    assert repr(sharp_client.ForgottenClass.decode(message)) == (
        "ForgottenClass(model_version=3, ltm_entries=12, stm_entries=0, journal_examples=0, "
        "snapshots_holding=(Snapshot(id='000002-ab', model_version=2, episodes_learned=0, "
        "create_time='1970-01-01 00:00:00', size_bytes=0, damaged=False),))"
    )


def test_the_base_class_is_no_answer_itself() -> None:
    assert Answer not in ANSWERS.values()
