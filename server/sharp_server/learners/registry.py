"""All learners of this server by name; in a cluster also those that it only follows."""

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
        names = sorted(served.name for served in self)
        if not names:
            raise RpcError("LEARNER_NOT_FOUND", "there is no learner yet")
        if len(names) > 1:
            more = ", …" if len(names) > _NAMES_SHOWN else ""
            message = f"there are several learners, name one of them: {', '.join(names[:_NAMES_SHOWN])}{more}"
            raise RpcError("LEARNER_NOT_FOUND", message)
        return self.get(names[0])


class Readers(Registry):
    """Learners of which this server answers predictions: its own, and in a cluster those that it follows."""

    def __init__(self, owned: Registry) -> None:
        super().__init__()
        self._owned = owned

    def __iter__(self) -> Iterator[ServedLearner]:
        return iter([*self._owned, *self.followed_only()])

    def find(self, name: str) -> ServedLearner | None:
        """A learner, if there is one of that name."""
        return self._owned.find(name) or super().find(name)

    def get(self, name: str) -> ServedLearner:
        """A learner, or the refusal."""
        return self.find(name) or super().get(name)

    def followed_only(self) -> list[ServedLearner]:
        """The learners that are not owned, whether they are followed or on their way to another owner."""
        return [served for served in super().__iter__() if self._owned.find(served.name) is None]

    def followed(self, name: str) -> ServedLearner | None:
        """A learner that is followed, whoever owns it."""
        return super().find(name)
