"""`sharp teach` and `sharp correct`: what they say to people and to programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sharp_client import OpenEpisodeWarning
from sharp_client.testing import FakeServer

Sharp = Any


@pytest.fixture
def vectors(tmp_path: Path) -> tuple[str, str]:
    """Some examples of one class, and one more."""
    np.savez(tmp_path / "some.npz", x=np.full((3, 4), 0.9, np.float32))
    np.save(tmp_path / "one.npy", np.full((1, 4), 0.1, np.float32))
    return str(tmp_path / "some.npz"), str(tmp_path / "one.npy")


def test_examples_that_are_taught_are_known_when_the_command_ends(sharp: Sharp, vectors: tuple[str, str]) -> None:
    done = sharp("teach", "high", *vectors[:1], "--learner", "heights")
    assert done.code == 0, done.err
    assert "heights knows 3 more examples of 'high' (a new class); answered wrong before" in done.out
    assert sharp("predict", vectors[1], "--json").json()["predictions"][0]["label"] == "high"
    again = sharp("teach", "high", vectors[0], "--json").json()
    assert again["lessons"][0]["corrections"] == 0 and again["lessons"][0]["examples_known"] == 6


def test_what_is_known_beyond_the_version_and_what_waits_for_a_boundary_is_shown(
    sharp: Sharp, server: FakeServer
) -> None:
    with server.client() as client:
        heights = client.learner("heights")
        heights.teach(np.eye(2, 4), ["high", "low"])
        with pytest.warns(OpenEpisodeWarning), heights.learn() as stream:
            stream.send(np.eye(3, 4), ["a", "b", "c"])
    for words in (("watch", "--once"), ("learner", "show", "heights")):
        shown = sharp(*words).out
        assert "5 examples" in shown and "3 examples in no episode yet" in shown
    assert sharp("status").out.splitlines()[-1].split()[-1] == "3"


def test_a_correction_shows_the_answer_before_and_after(sharp: Sharp, vectors: tuple[str, str]) -> None:
    sharp("teach", "high", vectors[0], "--learner", "heights")
    done = sharp("correct", vectors[1], "low")
    assert done.code == 0, done.err
    assert [line.split()[:2] for line in done.out.splitlines()[1:]] == [["before", "high"], ["after", "low"]]
    shown = sharp("correct", vectors[1], "low", "--json").json()
    assert (shown["before"]["label"], shown["after"]["label"], shown["corrections"]) == ("low", "low", 0)


def test_the_first_example_ever_is_corrected_from_nothing(sharp: Sharp, vectors: tuple[str, str]) -> None:
    sharp("learner", "create", "new")
    done = sharp("correct", vectors[1], "low")
    assert done.code == 0 and "nothing known" in done.out and "low" in done.out


def test_classes_that_are_integers_are_taught_as_integers(sharp: Sharp, server: FakeServer, tmp_path: Path) -> None:
    sharp("learn", "digits", "--json")
    np.save(tmp_path / "digit.npy", np.zeros(64, np.float32))
    assert sharp("teach", "7", str(tmp_path / "digit.npy")).code == 0
    assert server.learners["digits"].lessons[0].y == [7]
    failed = sharp("teach", "seven", str(tmp_path / "digit.npy"))
    assert failed.code == 2 and "integers" in failed.err


def test_images_need_an_episode_first_and_say_so(sharp: Sharp, tmp_path: Path) -> None:
    Image.new("L", (8, 8)).save(tmp_path / "a.png")
    failed = sharp("teach", "dark", str(tmp_path / "a.png"), "--learner", "pictures")
    assert failed.code == 1 and "first episode" in failed.err


def test_only_one_example_is_corrected_at_a_time(sharp: Sharp, vectors: tuple[str, str]) -> None:
    failed = sharp("correct", vectors[0], "low", "--learner", "heights")
    assert failed.code == 2 and "3 examples" in failed.err
