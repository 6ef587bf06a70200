"""What the servers of a cluster and their coordinator write down for each other: who is there, who should do what.

It also says of learners what both need to know. It never writes to a learner: who may do that is the journal's fence.
Whatever keeps it from answering is a `StoreUnavailable`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from sharp_server.storage.records import BeyondKey


@dataclass(frozen=True)
class Server:
    """A server of the cluster."""

    node: str
    """Its name, which outlives its process."""
    owner: str
    """The name of this start of it: what the journal knows it by."""
    address: str
    """Of its gRPC port, as others reach it."""
    http: str
    """Of its HTTP port; empty: it has none."""


@dataclass(frozen=True)
class OwnedLearner:
    """Who has a learner."""

    id: int
    uid: str
    name: str
    owner: str
    epoch: int


@dataclass(frozen=True)
class Place:
    """Where a learner is."""

    id: int
    """In the journal."""
    uid: str
    name: str
    owner: str
    """Name of the server that owns it, of this start of it; empty: nobody does."""
    address: str
    """Of the owner's gRPC port; empty: nobody is there."""
    http: str
    """Of its HTTP port; empty: it has none."""


@dataclass(frozen=True)
class Standing:
    """What shows a follower that something of a learner has changed."""

    version: int
    head: int
    next_place: int
    examples: int
    """That ever arrived."""


@dataclass(frozen=True)
class LearnerPlacement:
    """One learner, as it is or as it should be."""

    uid: str
    owner: str | None
    """Node of the server that owns it; None: nobody."""
    followers: tuple[str, ...] = ()
    """Nodes of the servers that answer predictions of it besides the owner, sorted."""


class Board(Protocol):
    """Belongs to the event loop it is opened on."""

    async def open(self) -> None:
        """Connect, and make the tables if nobody has."""
        ...

    async def close(self) -> None:
        """End the connections."""
        ...

    # ---- who is there -----------------------------------------------------------------------------------------------

    async def enter(self, server: Server) -> None:
        """A server is there; an older start of it is not."""
        ...

    async def leave(self, server: Server) -> None:
        """A server is gone, unless it has been started again."""
        ...

    async def servers(self) -> list[Server]:
        """Who is there, as far as anybody knows."""
        ...

    # ---- who has what -----------------------------------------------------------------------------------------------

    async def learners(self) -> list[OwnedLearner]:
        """All learners by name, and who owns them."""
        ...

    async def places(self) -> list[Place]:
        """All learners, and where their owners are reached; an owner that is not there is nobody."""
        ...

    async def standings(self, uids: Sequence[str]) -> dict[str, Standing]:
        """How far learners are, by uid."""
        ...

    async def lesson_keys(self, learner: int) -> list[BeyondKey]:
        """Where the lessons that are part of no version yet stand in the order in which they become known."""
        ...

    # ---- who should do what -----------------------------------------------------------------------------------------

    async def placements(self) -> list[LearnerPlacement]:
        """Who should own and follow which learner, as the coordinator said last."""
        ...

    async def want(self, placements: Iterable[LearnerPlacement], gone: Sequence[str] = ()) -> None:
        """Say who should; `gone`: learners that are no more."""
        ...

    async def lead(self, holder: str, seconds: float) -> bool:
        """Be the coordinator for so long, or go on being it, unless another one is."""
        ...
