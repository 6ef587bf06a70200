"""All learners of this server by name."""

from __future__ import annotations

from collections.abc import Iterator

from sharp_server.errors import RpcError
from sharp_server.learners.served_learner import ServedLearner

_NAMES_SHOWN = 10


class Registry:
    """Who is served; belongs to the event loop."""

    def __init__(self) -> None:
        self._by_name: dict[str, ServedLearner] = {}

    def __iter__(self) -> Iterator[ServedLearner]:
        return iter(list(self._by_name.values()))

    def __len__(self) -> int:
        return len(self._by_name)

    def add(self, served: ServedLearner) -> None:
        """Take in a learner."""
        self._by_name[served.name] = served

    def remove(self, served: ServedLearner) -> None:
        """Let go of a learner."""
        self._by_name.pop(served.name, None)

    def find(self, name: str) -> ServedLearner | None:
        """A learner, if there is one of that name."""
        return self._by_name.get(name)

    def get(self, name: str) -> ServedLearner:
        """A learner, or the refusal."""
        served = self._by_name.get(name)
        if served is None:
            raise RpcError("LEARNER_NOT_FOUND", f"there is no learner {name[:80]!r}", learner=name)
        return served

    def only(self) -> ServedLearner:
        """The one that is meant where none is named, or the refusal."""
        names = sorted(self._by_name)
        if not names:
            raise RpcError("LEARNER_NOT_FOUND", "there is no learner yet")
        if len(names) > 1:
            more = ", …" if len(names) > _NAMES_SHOWN else ""
            message = f"there are several learners, name one of them: {', '.join(names[:_NAMES_SHOWN])}{more}"
            raise RpcError("LEARNER_NOT_FOUND", message)
        return self._by_name[names[0]]
