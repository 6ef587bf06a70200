"""Nobody hears that an episode is learned before its version serves, however it comes to be told."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from sharp.v1 import learning_pb2
from sharp_server.api.learning import LearningService
from sharp_server.storage.records import EpisodeRow


class _Journal:
    """Three episodes: the version of the second one is in the journal, and about to serve."""

    async def episodes_of_stream(self, *_: object) -> list[EpisodeRow]:
        return [_episode(1, "learned", 1), _episode(2, "learned", 2), _episode(3, "waiting", 0)]

    async def empty_marks(self, *_: object) -> list[int]:
        return []


def _episode(number: int, state: str, version: int) -> EpisodeRow:
    return EpisodeRow(
        *(number, 1, number, 1, "s", "EXPLICIT", state, number, "mark", number, number, 0, 4, 4, ('"a"',), 0.0, 0, 0),
        *("", "", 0.0, version, version, b""),
    )


def test_an_episode_whose_version_does_not_serve_yet_is_not_told_as_learned() -> None:
    service = LearningService(*cast("Any", (None, None, None, None, _Journal(), None, None, None)))
    backlog = SimpleNamespace(ahead_of=lambda _: 0)
    served = SimpleNamespace(backlog=backlog, model=SimpleNamespace(version=1))
    session: Any = SimpleNamespace(
        mailbox=SimpleNamespace(take=list),
        stream=SimpleNamespace(id=1),
        durable=3,
        acknowledgement=lambda durable, _: learning_pb2.LearnResponse(ack=learning_pb2.Ack(sequence=durable)),
    )

    def told() -> list[tuple[int, str | None]]:
        answers = asyncio.run(service._replay(cast("Any", served), session, 0))
        assert answers[-1].ack.sequence == 3
        return [(answer.event.episode, answer.event.WhichOneof("event")) for answer in answers[:-1]]

    assert told() == [(1, "closed"), (1, "learned"), (2, "closed"), (3, "closed")]
    served.model.version = 2
    assert told() == [(1, "closed"), (1, "learned"), (2, "closed"), (2, "learned"), (3, "closed")]
