"""The one interface to what is durable: every operation of the journal, each complete or without effect.

An implementation promises: an awaited operation has reached the disk; operations of one caller happen in the order of
their calls; one that is refused leaves nothing behind; an operation that finds no room raises `JournalUnavailable` and
may be tried again. `tests/server/storage/test_contract.py` holds every implementation to that. Nobody above this
package may know which implementation it has.

Refusals are `RpcError`s, so that a caller can pass them on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from sharp_server.storage.records import (
    Arrival,
    BatchSlice,
    Beyond,
    BeyondKey,
    Change,
    CorruptionEvent,
    EpisodeRow,
    Forgotten,
    FoundLearner,
    LearnerRow,
    LessonRow,
    NewLearner,
    NewLesson,
    NewSnapshot,
    NewVersion,
    OwnerRow,
    Published,
    QualityRow,
    Relabelling,
    SnapshotRow,
    StreamRow,
    VersionRow,
)


class UnsupportedFormatError(RuntimeError):
    """What is on disk was written by another version of the server, and is sound as far as anybody can tell."""


class StoreInUseError(RuntimeError):
    """Another server has the database."""


@dataclass(frozen=True)
class Opening:
    """What was found when the journal was opened."""

    begun_anew: str = ""
    """Why there is a new, empty journal, in words for the operator; empty: it is the one of before."""
    set_aside: bool = False
    """Whether one that could not be used was set aside."""
    losses: tuple[str, ...] = ()
    """What of the one of before could not be read, in words for the operator."""


class ExampleSource(Protocol):
    """Reads the raw examples of episodes, in a process of its own: it is handed over by pickle."""

    def read(self, episode: int) -> list[BatchSlice]:
        """The examples of a closed episode, in the order in which they came."""
        ...

    def lessons(self, learner: int, before: int) -> list[Beyond]:
        """The lessons before a place that are not part of a version yet, in the order in which they came."""
        ...


class Storage(Protocol):
    """The journal."""

    async def open(self) -> Opening:
        """Open or make it. One that is damaged beyond use is set aside and begun anew."""
        ...

    async def close(self) -> None:
        """Finish what waits and close it."""
        ...

    def example_source(self) -> ExampleSource:
        """How the trainer's process gets at raw examples."""
        ...

    async def erase(self) -> bool:
        """Make sure that nothing deleted is left on disk. False: a reader holds it still."""
        ...

    # ---- streams: what arrives --------------------------------------------------------------------------------------

    async def open_stream(self, learner: int, name: str, boundaries: str) -> StreamRow:
        """Take up a stream, or make it; other boundaries than before are refused."""
        ...

    async def room(self) -> None:
        """Wait until more may be appended."""
        ...

    def append(self, arrival: Arrival) -> asyncio.Future[list[EpisodeRow]]:
        """Keep a batch as the very next one of its stream; gives the episodes that are closed by it.

        A new class that is there already, under another number, is written under that one.
        """
        ...

    def close_episode(self, learner: int, stream: int, sequence: int) -> asyncio.Future[list[EpisodeRow]]:
        """Keep a producer's mark: all open examples become an episode. Gives none if there were none."""
        ...

    async def open_slices(self, stream: int) -> list[BatchSlice]:
        """A stream's open examples, in order."""
        ...

    async def episodes_of_stream(self, stream: int, after_sequence: int, limit: int) -> list[EpisodeRow]:
        """The newest `limit` episodes that end after a sequence number, in order."""
        ...

    async def empty_marks(self, stream: int, after_sequence: int, limit: int) -> list[int]:
        """Sequence numbers of the newest `limit` marks after a number that closed nothing, in order."""
        ...

    # ---- lessons: what is known at once -----------------------------------------------------------------------------

    def keep_lesson(self, lesson: NewLesson) -> asyncio.Future[LessonRow]:
        """Keep a lesson at the next place in the order of arrivals, or find the one with its request id.

        New classes are written as those of a batch. An id is known as long as its examples are no part of a version,
        and among the newest 10,000 lessons of the learner; one that belongs to other content is refused.
        """
        ...

    async def drop_lesson(self, learner: int, place: int) -> None:
        """Take back a lesson that could not be taught."""
        ...

    async def last_lesson(self, learner: int) -> BeyondKey | None:
        """Where the last lesson that is not part of a version yet stands in the order of `beyond`, if there is one."""
        ...

    async def beyond(self, learner: int, after: BeyondKey, nbytes: int) -> list[Beyond]:
        """What is not part of a version yet, in the order in which it becomes known; none: nothing is left.

        Batches that are open or in waiting episodes come by their place, whole; a lesson comes after the batches up to
        its `counted`. Everything that changes what is known but a version made of lessons alone (an episode learned,
        parked or retried, a class forgotten, a version restored) sets `counted` to 0: lessons first. Gives about so
        many bytes, and at least one arrival if there is any. A version that was just recorded is served with what is
        beyond it, so this and `last_lesson` wait for a database that is away, rather than fail.
        """
        ...

    # ---- episodes: what becomes of them -----------------------------------------------------------------------------

    async def unlearned_episodes(self, learner: int) -> list[EpisodeRow]:
        """Episodes that wait or are parked."""
        ...

    async def unlearned_totals(self, learner: int) -> tuple[int, int]:
        """Bytes of batches that are not learned yet, and examples that are in no episode yet."""
        ...

    async def begin(self, episode: int) -> int:
        """A try begins; gives how many began since a phase was last finished."""
        ...

    async def advance(self, episode: int, phase_sha256: bytes | None = None) -> None:
        """A phase of a waiting episode was finished: what failed before counts no more.

        `phase_sha256` names the object that holds the learner after this phase; absent: none does, and the one of
        before stays. Whatever changes the version or the examples that an episode is learned from (a version recorded,
        a class forgotten or relabelled), parks it or starts it over, takes its phase back in the same transaction.
        """
        ...

    async def excuse(self, episode: int) -> None:
        """A try came to nothing for no fault of the episode."""
        ...

    async def fail(self, episode: int, start_over: bool = False) -> int:
        """A try failed; gives how many have. `start_over`: what was finished of it counts no more."""
        ...

    async def park(self, episode: int, reason: str, detail: str) -> EpisodeRow:
        """Set a waiting episode aside with its reason."""
        ...

    async def retry(self, learner: int, number: int) -> EpisodeRow:
        """Put a parked episode at the end of the queue."""
        ...

    async def discard(self, learner: int, number: int) -> EpisodeRow:
        """Give up a parked episode and delete its examples; gives it as it was."""
        ...

    async def learned(self, episode: int, version: NewVersion, statistics: bytes) -> Published:
        """Record the version that holds an episode and the lessons before its place, and delete their examples, in one
        transaction.
        """
        ...

    # ---- learners ---------------------------------------------------------------------------------------------------

    async def learners(self) -> list[LearnerRow]:
        """All learners by name."""
        ...

    async def create_learner(self, new: NewLearner, limit: int) -> LearnerRow:
        """Make a learner, if its name is free and there are fewer than `limit`."""
        ...

    async def delete_learner(self, learner: int) -> None:
        """Delete a learner with all it has."""
        ...

    async def enter(self, found: Sequence[FoundLearner]) -> None:
        """Write learners that were found by their files into a new journal."""
        ...

    async def fix_inputs(self, learner: int, input_shape: str, label_kind: str | None) -> None:
        """Fix a learner's input shape (JSON) and kind of labels."""
        ...

    async def classes(self, learner: int) -> list[tuple[int, str]]:
        """(ordinal, label as JSON) of the classes that were met and not forgotten."""
        ...

    async def add_classes(self, learner: int, pairs: list[tuple[int, str]], next_class: int) -> None:
        """Write down classes that a snapshot brought: (ordinal, label as JSON)."""
        ...

    async def forgotten(self, learner: int) -> dict[str, int]:
        """Label as JSON → id of the newest snapshot that may still hold it."""
        ...

    def forget(self, learner: int, label: str) -> asyncio.Future[Forgotten]:
        """Remove a class (label as JSON) from everything not learned yet, lessons too, and remember that it was
        forgotten.
        """
        ...

    def relabel(self, change: Relabelling) -> asyncio.Future[int]:
        """Give a class another name, or make it part of another, in everything not learned yet, and remember what it
        was called: forgetting it reaches its older names too. Gives the examples that changed.
        """
        ...

    async def renamed(self, learner: int) -> list[tuple[str, str, int]]:
        """(Old label, new label, id of the newest snapshot with the old one) of classes renamed or merged, in order."""
        ...

    async def older_names(self, learner: int, label: str) -> dict[str, int]:
        """What a class was called before (labels as JSON) → id of the newest snapshot that may hold it as that."""
        ...

    # ---- versions and snapshots -------------------------------------------------------------------------------------

    def publish(
        self,
        version: NewVersion,
        forget: str | None = None,
        remember: Sequence[str] = (),
        relabel: Relabelling | None = None,
    ) -> asyncio.Future[Published]:
        """Record a version with its snapshot; in the same transaction a class may be forgotten or renamed or merged,
        others come back, and the examples of lessons that are part of it go.
        """
        ...

    async def version(self, learner: int, version: int) -> VersionRow | None:
        """One version, if there was one of that number."""
        ...

    async def qualities(self, learner: int) -> list[QualityRow]:
        """How good the newest versions are, newest first."""
        ...

    async def episodes_learned(self, learner: int) -> int:
        """Episodes that a learner has learned in all, undone ones included."""
        ...

    async def add_snapshot(self, new: NewSnapshot, limit: int) -> SnapshotRow:
        """Record a snapshot that is kept on request, if there are fewer than `limit` of those."""
        ...

    async def snapshots(self, learner: int) -> list[SnapshotRow]:
        """A learner's snapshots, newest first."""
        ...

    async def snapshot(self, learner: int, name: str) -> SnapshotRow:
        """One snapshot, or the refusal."""
        ...

    async def delete_snapshots(self, learner: int, names: list[str]) -> None:
        """Delete the records of snapshots; their files are the caller's."""
        ...

    # ---- damage -----------------------------------------------------------------------------------------------------

    async def mark_damaged(self, snapshot: SnapshotRow) -> None:
        """Note that a snapshot's file is not what was written."""
        ...

    async def add_corruption_event(self, event: CorruptionEvent) -> None:
        """Write down what was found damaged."""
        ...

    async def corruption_events(self) -> list[CorruptionEvent]:
        """The newest hundred, newest first."""
        ...


class Ownership(Protocol):
    """Who may write to which learner, where several servers share one journal.

    A storage that speaks for an owner writes to a learner only while the owner and the epoch of its own claim are those
    in the journal, compared in the transaction of the write; else it raises `StaleOwnerError` and writes nothing. What
    it creates is its own at once. Reading is everybody's.
    """

    async def claim(self, learner: int, owner: str, address: str) -> int:
        """Give a learner an owner, reached at an address, whoever had it before; gives the new epoch."""
        ...

    async def release(self, learner: int, epoch: int) -> None:
        """Give a learner up, if it is still owned under this epoch; else StaleOwnerError."""
        ...

    async def owners(self) -> list[OwnerRow]:
        """All learners by name, with their owners."""
        ...


class SharedStorage(Storage, Ownership, Protocol):
    """A journal that several servers share."""

    def changes(self) -> AsyncIterator[Change]:
        """What any server changes from now on, as it is committed.

        The first item, and the first after every lost connection, has `what` = "lost": it comes when listening has
        begun, so whoever then looks at everything misses nothing.
        """
        ...
