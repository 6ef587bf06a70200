"""The latest events of one learner, numbered: whoever comes back reads what it missed.

In memory and bounded: what became of every episode is in the journal. Progress is not kept, it is part of the status.
"""

from __future__ import annotations

from collections import deque

from sharp.v1 import episode_pb2

_KEPT = 200


class EventLog:
    """Numbers rise by one; belongs to the event loop."""

    def __init__(self) -> None:
        self._events: deque[tuple[int, episode_pb2.EpisodeEvent]] = deque(maxlen=_KEPT)
        self._last = 0

    @property
    def last(self) -> int:
        """The number of the newest event; 0: there was none."""
        return self._last

    def add(self, event: episode_pb2.EpisodeEvent) -> None:
        """Something happened."""
        if not event.HasField("progress"):
            self._last += 1
            self._events.append((self._last, event))

    def after(self, number: int) -> list[tuple[int, episode_pb2.EpisodeEvent]]:
        """What happened after an event, as far as it is kept."""
        return [entry for entry in self._events if entry[0] > number]

    def clear(self) -> None:
        """Keep nothing of what happened: a class that is named in it was forgotten. Numbers go on rising."""
        self._events.clear()
