"""The clients have one method per RPC, and are the same with and without asyncio."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

from sharp.v1 import admin_pb2, learning_pb2, prediction_pb2
from sharp_client import AsyncClient, AsyncLearner, AsyncLearnStream, Client, Learner, LearnStream
from sharp_client import _calls as calls

RPCS = [
    method.name
    for file in (learning_pb2, prediction_pb2, admin_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]


def snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def public(kind: type) -> dict[str, Any]:
    return {name: value for name, value in inspect.getmembers(kind) if not name.startswith("_")}


class RecordingChannel:
    """Stands in for a channel, to see which methods the stubs make."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    def _note(self, path: str, *_: Any, **__: Any) -> str:
        self.paths.append(path)
        return path

    unary_unary = unary_stream = stream_unary = stream_stream = _note


@pytest.mark.parametrize("rpc", RPCS)
@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_every_rpc_has_a_method_on_both_clients(rpc: str, client: type) -> None:
    assert callable(getattr(client, snake(rpc)))


def test_the_clients_have_nothing_else_but_comfort() -> None:
    assert set(public(Client)) - {snake(rpc) for rpc in RPCS} == {"learner", "close"}


def test_every_method_of_the_stubs_is_known_to_the_transport() -> None:
    channel = RecordingChannel()
    assert set(calls.methods(channel)) == set(RPCS)
    assert len(channel.paths) == len(RPCS)


@pytest.mark.parametrize(
    ("plain", "other"), [(Client, AsyncClient), (Learner, AsyncLearner), (LearnStream, AsyncLearnStream)]
)
def test_the_asyncio_classes_have_the_same_methods_and_parameters(plain: type, other: type) -> None:
    assert set(public(plain)) == set(public(other)) - {"open"}
    for name, method in public(plain).items():
        if inspect.isfunction(method):
            mine = {p.name: (p.kind, p.default) for p in inspect.signature(method).parameters.values()}
            theirs = {p.name: (p.kind, p.default) for p in inspect.signature(public(other)[name]).parameters.values()}
            assert mine == theirs, name


def test_methods_that_may_not_be_repeated_exist() -> None:
    assert set(RPCS) >= calls.NOT_REPEATABLE
    assert set(RPCS) >= set(calls.DONE_BEFORE)
