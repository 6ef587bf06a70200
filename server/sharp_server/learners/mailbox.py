"""Events that wait for one reader.

Progress is thinned out for slow readers: only the newest is kept. Nothing else is dropped from a producer's queue.
"""

from __future__ import annotations

import asyncio
from collections import deque

from sharp.v1 import episode_pb2 as pb


class Mailbox:
    """A queue of one reader; belongs to the event loop."""

    def __init__(self, bound: int | None = None) -> None:
        self._events: deque[pb.EpisodeEvent] = deque(maxlen=bound)
        self._progress: pb.EpisodeEvent | None = None
        self._full = asyncio.Event()

    def __len__(self) -> int:
        return len(self._events)

    def put(self, event: pb.EpisodeEvent) -> None:
        """Add an event."""
        if event.HasField("progress"):
            self._progress = event
        else:
            if self._progress is not None and self._progress.episode == event.episode:
                self._progress = None  # it would come after the event that it precedes
            self._events.append(event)
        self._full.set()

    def wake(self) -> None:
        """Let the reader look, though there may be nothing."""
        self._full.set()

    def take(self) -> list[pb.EpisodeEvent]:
        """Everything that waits, in order."""
        events = list(self._events)
        self._events.clear()
        if self._progress is not None:
            events.append(self._progress)
            self._progress = None
        self._full.clear()
        return events

    async def wait(self) -> None:
        """Until there is something, or someone called `wake`."""
        await self._full.wait()
