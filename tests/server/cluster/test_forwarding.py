"""Any server takes any call: Learn, Teach, Admin and HTTP go to the owner, errors come back whole, clients are told."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from sharp.inference import open_inference_pb2
from sharp.v1 import learner_admin_pb2, prediction_pb2
from sharp_client import AsyncClient, Client, LabelKindMismatchError
from tests.server.cluster.fronts import Cluster
from tests.server.running import SECONDS, Server, answered, blobs, refused, tensor, until

NAMES = learner_admin_pb2.ListLearnersRequest()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    """A server that owns what it is asked to make, and one that owns and follows nothing."""
    cluster = Cluster(tmp_path_factory.mktemp("pair"))
    try:
        owner, other = cluster.start("owner", "other")
        yield owner, other
    finally:
        cluster.close()


def test_learn_teach_and_admin_calls_to_another_server_reach_the_owner(pair: tuple[Server, Server]) -> None:
    owner, other = pair
    owner.create("reached")
    x, y = blobs(["a", "b", "c"])
    assert other.teach("reached", (x, y)) == 1
    taught = other.lesson("reached", x[:1], ["z"], "once")
    again = other.lesson("reached", x[:1], ["z"], "once")
    assert (taught.repetition, again.repetition) == (False, True)
    assert other.learner("reached").uid == owner.learner("reached").uid
    assert other.exported("reached")[0].sha256 == owner.exported("reached")[0].sha256


def test_a_learner_that_a_call_makes_belongs_to_the_server_that_was_asked(pair: tuple[Server, Server]) -> None:
    owner, other = pair
    x, y = blobs(["a", "b"])
    other.lesson("made-by-other", x, y, create_if_missing=True)
    assert "made-by-other" in {learner.name for learner in owner.admin.ListLearners(NAMES).learners}
    assert answered(owner.predict("made-by-other", x[:3])) == y[:3]


def test_every_server_lists_the_learners_of_all(pair: tuple[Server, Server]) -> None:
    owner, other = pair
    owner.create("listed-1")
    other.create("listed-2")
    for server in pair:
        until(lambda server=server: {"listed-1", "listed-2"} <= _names(server), what="both learners in the list")
        page = server.admin.ListLearners(learner_admin_pb2.ListLearnersRequest(page_size=1))
        assert len(page.learners) == 1
        assert page.next_page_token
        listed = {learner["name"] for learner in _get(server, "/api/learners")["learners"]}
        assert {"listed-1", "listed-2"} <= listed


def test_an_error_of_the_owner_comes_back_with_its_reason_and_details(pair: tuple[Server, Server]) -> None:
    owner, other = pair
    owner.create("particular", shape=(12,))
    x, _ = blobs(["a", "b"])
    owner.lesson("particular", x[:1], ["a"])
    with refused("LABEL_KIND_MISMATCH") as here:
        owner.lesson("particular", x[:1], [1])
    with refused("LABEL_KIND_MISMATCH") as there:
        other.lesson("particular", x[:1], [1])
    assert (there[0].code, there[0].message) == (here[0].code, here[0].message)
    assert (there[0].metadata, there[0].fields) == (here[0].metadata, here[0].fields)
    with refused("LEARNER_NOT_FOUND"):
        other.learner("nobody")


def test_a_call_is_passed_on_once(pair: tuple[Server, Server]) -> None:
    owner, other = pair
    owner.create("once")
    request = learner_admin_pb2.GetLearnerRequest(name="once")
    until(lambda: other.admin.GetLearner(request, timeout=SECONDS), what="the owner to be known")
    with refused("NOT_OWNER") as failure:
        other.admin.GetLearner(request, timeout=SECONDS, metadata=(("sharp-passed-on", "1"),))
    assert failure[0].metadata["owner"] == owner.address


def test_an_answer_that_was_passed_on_names_the_owner(pair: tuple[Server, Server]) -> None:
    owner, other = pair
    owner.create("named")
    request = learner_admin_pb2.GetLearnerRequest(name="named")
    _, call = other.admin.GetLearner.with_call(request, timeout=SECONDS)
    assert dict(call.initial_metadata())["sharp-owner"] == owner.address
    _, call = owner.admin.GetLearner.with_call(request, timeout=SECONDS)
    assert "sharp-owner" not in dict(call.initial_metadata())


def test_a_deadline_is_passed_on(pair: tuple[Server, Server]) -> None:
    owner, other = pair
    owner.create("late", shape=(12,))
    owner.lesson("late", *_two())
    request = prediction_pb2.PredictRequest(learner="late", inputs=tensor(_two()[0]), min_model_version=9)
    with refused("VERSION_NOT_REACHED"):
        other.prediction.Predict(request, timeout=1.0)


def test_predictions_of_a_learner_that_is_not_followed_are_passed_on(pair: tuple[Server, Server]) -> None:
    owner, other = pair
    owner.create("asked", shape=(12,))
    x, y = _two()
    owner.lesson("asked", x, y)
    assert answered(other.predict("asked", x)) == y
    questions = [
        prediction_pb2.PredictStreamRequest(
            id=1, request=prediction_pb2.PredictRequest(learner="asked", inputs=tensor(x))
        ),
        prediction_pb2.PredictStreamRequest(
            id=2, request=prediction_pb2.PredictRequest(learner="none", inputs=tensor(x))
        ),
    ]
    answers = list(other.prediction.PredictStream(iter(questions), timeout=SECONDS))
    assert answered(answers[0].response) == y
    assert answers[1].failure.message
    ready = other.inference.ModelReady(open_inference_pb2.ModelReadyRequest(name="asked"), timeout=SECONDS)
    assert ready.ready


def test_http_requests_are_passed_on_with_body_query_and_errors(pair: tuple[Server, Server]) -> None:
    owner, other = pair
    owner.create("page", shape=(12,))
    x, y = _two()
    owner.lesson("page", x, y)
    assert _get(other, "/api/learners/page")["name"] == "page"
    answer = _post(other, "/api/learners/page/predict", {"vectors": x.tolist(), "top_k": 1})
    assert [prediction["label"] for prediction in answer["predictions"]] == y
    assert _get(other, "/v2/models/page/ready") is not None
    with pytest.raises(urllib.error.HTTPError) as failed:
        _post(other, "/api/learners/page/predict", {"vectors": [[1.0]]})
    assert failed.value.code == 400
    assert json.load(failed.value)["reason"] == "SHAPE_MISMATCH"


def test_the_client_goes_to_the_owner_directly_and_needs_the_other_server_no_more(tmp_path: Any) -> None:
    cluster = Cluster(tmp_path)
    try:
        owner, other = cluster.start("owner", "other")
        owner.create("direct", shape=(12,))
        x, y = _two()
        with Client(other.address) as client:
            client.teach("direct", x, y)
            until(lambda: client._transport._server("direct") is not client._transport._configured)  # type: ignore[attr-defined]
            other.kill()
            assert client.teach("direct", x, y).examples_known == 4
            with pytest.raises(LabelKindMismatchError):
                client.teach("direct", x, [1, 2])
    finally:
        cluster.close()


async def _async_teach(address: str, x: Any, y: Any) -> tuple[int, int]:
    async with AsyncClient(address) as client:
        first = await client.teach("async", x, y)
        second = await client.teach("async", x, y)
        return first.examples_known, second.examples_known


def test_the_asyncio_client_follows_the_owner_too(pair: tuple[Server, Server]) -> None:
    import asyncio

    owner, other = pair
    owner.create("async", shape=(12,))
    assert asyncio.run(_async_teach(other.address, *_two())) == (2, 4)


def _two() -> tuple[np.ndarray[Any, Any], list[str]]:
    x, y = blobs(["a", "b"], each=1)
    return x, y


def _names(server: Server) -> set[str]:
    return {learner.name for learner in server.admin.ListLearners(NAMES, timeout=SECONDS).learners}


def _get(server: Server, path: str) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}{path}", timeout=SECONDS) as answer:
        body = answer.read()
        return json.loads(body) if body else body


def _post(server: Server, path: str, body: Any) -> Any:
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.http_port}{path}", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        return json.load(answer)
