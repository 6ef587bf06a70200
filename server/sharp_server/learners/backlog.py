"""What one learner has taken and not learned yet: bytes, open examples, episodes that wait or are parked.

It follows the journal: whoever changes something there says so here, by a method. Belongs to the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace

from sharp_server.storage.records import EpisodeRow


class Backlog:
    """Counts that agree with each other at every moment."""

    def __init__(self) -> None:
        self._episodes: dict[int, EpisodeRow] = {}
        self._bytes = 0
        self._lessons = self._lesson_bytes = 0
        self._open_examples = 0
        self._room = asyncio.Event()

    # ---- facts ------------------------------------------------------------------------------------------------------

    @property
    def bytes(self) -> int:
        """Taken and not learned: parked, on their way to the disk, and of lessons, included."""
        return max(0, self._bytes) + self._lesson_bytes

    @property
    def lessons(self) -> int:
        """Lessons that are no part of a version yet."""
        return self._lessons

    @property
    def open_examples(self) -> int:
        """Examples that are in no episode yet."""
        return self._open_examples

    @property
    def examples(self) -> int:
        """Examples that are not learned and not parked."""
        return self._open_examples + sum(episode.examples for episode in self.waiting())

    @property
    def all_examples(self) -> int:
        """The same, those of parked episodes included."""
        return self._open_examples + sum(episode.examples for episode in self._episodes.values())

    def episodes(self) -> list[EpisodeRow]:
        """All of them."""
        return list(self._episodes.values())

    def waiting(self) -> list[EpisodeRow]:
        """Closed episodes that are to be learned, in order."""
        return sorted((e for e in self._episodes.values() if e.state == "waiting"), key=lambda e: e.position)

    def parked(self) -> list[EpisodeRow]:
        """Parked episodes by number."""
        return sorted((e for e in self._episodes.values() if e.state == "parked"), key=lambda e: e.number)

    def next(self) -> EpisodeRow | None:
        """The episode to be learned next."""
        return min((e for e in self._episodes.values() if e.state == "waiting"), key=lambda e: e.position, default=None)

    def ahead_of(self, episode: EpisodeRow) -> int:
        """Episodes to be learned before this one."""
        return sum(other.position < episode.position for other in self.waiting())

    def waits_for(self, stream: int) -> bool:
        """Whether an episode of a stream is still to be learned."""
        return any(e.stream == stream and e.state == "waiting" for e in self._episodes.values())

    # ---- what happens -----------------------------------------------------------------------------------------------

    def load(self, episodes: Iterable[EpisodeRow], nbytes: int, open_examples: int) -> None:
        """Take up what the journal has."""
        self._episodes = {episode.number: episode for episode in episodes}
        self._bytes, self._open_examples = nbytes, open_examples

    def reserve(self, nbytes: int) -> None:
        """Bytes are on their way to the disk."""
        self._bytes += nbytes

    def release(self, nbytes: int) -> None:
        """Bytes are learned, deleted, or did not reach the disk."""
        self._bytes -= nbytes
        self._room.set()
        self._room = asyncio.Event()

    def keep_lessons(self, lessons: int, nbytes: int) -> None:
        """So many lessons are no part of a version, and take so many bytes."""
        self._lessons, self._lesson_bytes = lessons, nbytes
        self.release(0)

    async def room_freed(self) -> None:
        """Until bytes become free the next time."""
        await self._room.wait()

    def arrived(self, examples: int) -> None:
        """Examples are durable."""
        self._open_examples += examples

    def closed(self, episode: EpisodeRow) -> None:
        """Open examples became an episode."""
        self._episodes[episode.number] = episode
        self._open_examples -= episode.examples

    def update(self, episode: EpisodeRow) -> None:
        """An episode is now this; one that is learned or discarded is none of ours any more, and does not come back."""
        if episode.state in ("learned", "discarded"):
            self._episodes.pop(episode.number, None)
        elif episode.number in self._episodes:
            self._episodes[episode.number] = episode

    def forgot(
        self, episodes: Iterable[EpisodeRow], discarded: Iterable[EpisodeRow], nbytes: int, open_examples: int
    ) -> None:
        """A class was taken out: so much is gone, and of the episodes these are left or discarded."""
        self.relabelled(episodes)
        for episode in discarded:
            self._episodes.pop(episode.number, None)
        self._open_examples -= open_examples
        self.release(nbytes)

    def relabelled(self, episodes: Iterable[EpisodeRow]) -> None:
        """Classes changed: the episodes hold this now.

        Only that is taken over: while they were read, others may have been closed, or their fate decided.
        """
        for episode in episodes:
            known = self._episodes.get(episode.number)
            if known is not None:
                self._episodes[episode.number] = replace(
                    known, examples=episode.examples, bytes=episode.bytes, classes=episode.classes
                )

    def drop(self, episode: EpisodeRow) -> None:
        """An episode was given up."""
        self._episodes.pop(episode.number, None)
        self.release(episode.bytes)

    def clear(self) -> None:
        """The learner is deleted."""
        self._episodes.clear()
        self.release(0)
