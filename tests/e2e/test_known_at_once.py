"""The story of a label, with real processes: taught, corrected, killed, started again, learned with an episode."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from sharp_client import AsyncClient, Client, OpenEpisodeWarning
from tests.server.running import Server

CLASSES = ("ash", "birch", "cedar")


def examples(label: str, each: int, seed: int) -> np.ndarray[Any, Any]:
    """Vectors of one class: a corner of the cube, and noise."""
    corner = np.random.default_rng(sum(label.encode())).random(16)
    return (0.7 * corner + 0.3 * np.random.default_rng(seed).random((each, 16))).astype(np.float32)


def answers(client: Client, x: np.ndarray[Any, Any]) -> tuple[Any, ...]:
    """Labels, shares, distances and novelty, to the last bit."""
    found = client.learner("trees").predict(x, novelty=True)
    assert found.novelties is not None
    return (*found.labels.tolist(), *(values.tobytes() for values in (found.vote_shares, found.distances)),
            found.novelties.tobytes())  # fmt: skip


def test_the_story_of_a_label(lend: Callable[..., Server]) -> None:
    server = lend(teaching__version_seconds=3600)
    probes = np.concatenate([examples(label, 10, 9) for label in CLASSES])
    truth = [label for label in CLASSES for _ in range(10)]
    with Client(server.address) as client:
        trees = client.learner("trees")
        for label in CLASSES:  # vectors, from the first example on
            for x in examples(label, 5, 1):
                taught = trees.teach(x[None], label)
        assert (taught.model_version, taught.examples_known) == (0, 15)
        found = trees.predict(probes)
        assert found.labels.tolist() == truth and found.examples_beyond_version == 15
        odd = (examples("ash", 1, 7) + examples("cedar", 1, 8)) / 2
        right = {"ash": "cedar", "cedar": "ash"}[trees.predict(odd).labels[0]]  # whatever it is, it is the other one
        corrected = trees.teach(odd, right, request_id="the-odd-one")
        assert (corrected.corrections, corrected.new_classes) == (1, ())
        assert trees.predict(odd).labels.tolist() == [right]
        assert trees.predict(probes).labels.tolist() == truth
        before = answers(client, np.concatenate((probes, odd)))
        server.kill()
    server.start()
    with Client(server.address) as client:
        trees = client.learner("trees")
        assert answers(client, np.concatenate((probes, odd))) == before
        assert trees.teach(odd, right, request_id="the-odd-one").repetition
        with trees.learn() as stream:
            for label in CLASSES:
                stream.send(examples(label, 30, 2), [label] * 30)
            report = stream.end_episode()
        report.wait(120)
        found = trees.predict(probes, min_model_version=report.model_version or 0)
        assert found.labels.tolist() == truth and found.examples_beyond_version == 0
        assert trees.predict(odd).labels.tolist() == [right]
        assert trees.status().examples_known == 106
        learned = answers(client, np.concatenate((probes, odd)))
        trees.teach(examples("elm", 1, 1), "elm")
        before = answers(client, probes)
        server.kill()
    server.start()
    with Client(server.address) as client:
        assert answers(client, probes) == before
        trees = client.learner("trees")
        with trees.learn() as stream:  # an episode with the labels of two classes exchanged
            for label, wrong in (("ash", "cedar"), ("cedar", "ash"), ("birch", "birch")):
                stream.send(examples(label, 60, 3), [wrong] * 60)
            mistake = stream.end_episode()
        mistake.wait(120)
        assert trees.predict(probes, min_model_version=mistake.model_version or 0).labels.tolist() != truth
        undone = trees.undo()
        assert (undone.undone_model_version, undone.restored_model_version) == (
            mistake.model_version,
            report.model_version,
        )
        assert answers(client, np.concatenate((probes, odd))) == learned  # elm, part of the mistake's version, went too


def test_what_an_open_stream_sent_is_known_and_leaving_it_says_what_waits(lend: Callable[..., Server]) -> None:
    async def story(address: str) -> None:
        async with AsyncClient(address) as client:
            trees = client.learner("trees")
            with pytest.warns(OpenEpisodeWarning, match="60 examples"):
                async with trees.learn() as stream:
                    for label in CLASSES:
                        await stream.send(examples(label, 20, 2), [label] * 20)
            found = await trees.predict(examples("cedar", 5, 3), min_examples=60)
            assert found.labels.tolist() == ["cedar"] * 5 and found.model_version == 0
            taught = await trees.teach(examples("elm", 1, 1), ["elm"])
            assert taught.examples_known == 61
            status = await trees.status()
            assert (status.backlog.open_examples, status.backlog.uncounted_examples, status.backlog.lessons) == (
                60,
                0,
                1,
            )

    asyncio.run(story(lend().address))


def test_a_flood_of_batches_is_counted_in_the_end_and_lessons_do_not_wait_for_it(lend: Callable[..., Server]) -> None:
    rng = np.random.default_rng(0)
    with Client(lend().address) as client:
        trees = client.learner("trees")
        trees.create()
        with pytest.warns(OpenEpisodeWarning), trees.learn() as stream:  # noqa: PT031
            for _ in range(60):
                stream.send(rng.random((64, 16), np.float32), rng.integers(0, 5, 64))
            stream.flush()
            taught = trees.teach(np.full((1, 16), 3.0, np.float32), [7])
            assert trees.predict(np.full((1, 16), 3.0, np.float32)).labels.tolist() == [7]
            assert taught.examples_known <= 60 * 64 + 1
        found = trees.predict(np.full((1, 16), 3.0, np.float32), min_examples=60 * 64 + 1, timeout=120)
        assert found.labels.tolist() == [7] and found.examples_beyond_version == 60 * 64 + 1
        assert trees.status().backlog.uncounted_examples == 0
