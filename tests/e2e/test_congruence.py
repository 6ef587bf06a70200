"""The fake server of `sharp_client.testing` answers as a real one does: whole transcripts, feature by feature."""

from __future__ import annotations

import difflib
import pprint
from pathlib import Path

import pytest

from sharp_client import Client, Limits
from sharp_client._options import Token
from sharp_client._transport import GrpcTransport
from sharp_client.testing import FakeServer
from sharp_client.testing._transports import FakeTransport
from tests.e2e.features import FEATURES, Feature
from tests.e2e.transcripts import Call, Recorder
from tests.server.running import Server

pytestmark = pytest.mark.filterwarnings("ignore::sharp_client.OpenEpisodeWarning")


def play(feature: Feature, recorder: Recorder, folder: Path) -> list[Call]:
    """Play a feature, and return its transcript."""
    folder.mkdir()
    with Client("recorded:0", transport=recorder) as sharp:
        feature(sharp, recorder, folder)
    return recorder.calls


def written(calls: list[Call]) -> list[str]:
    """Write a transcript for people."""
    return [line for call in calls for line in (call.method, *pprint.pformat(vars(call), width=110).splitlines())]


@pytest.mark.parametrize("feature", FEATURES, ids=lambda feature: feature.__name__)
def test_the_fake_server_answers_as_a_real_one(feature: Feature, shared: Server, tmp_path: Path) -> None:
    real = play(feature, Recorder(GrpcTransport(shared.address, Token(), None, Limits())), tmp_path / "real")
    fake = play(feature, Recorder(FakeTransport(FakeServer())), tmp_path / "fake")
    difference = difflib.unified_diff(written(real), written(fake), "real", "fake", lineterm="", n=4)
    assert real == fake, "\n".join(difference)
