"""Learners of other servers of which this one answers predictions: it follows their versions and what is taught since.

It reads and never writes. A version is fetched, its SHA-256 compared, loaded, and swapped in between two batches; what
was taught beyond it is read from the journal in the owner's own order, so both answer alike as soon as both know as
much. Every answer says how much that is here (`examples_beyond_version`).

Notifications are hints: what is looked at is always the journal, so one that is lost costs a second.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sharp_server.context import ClusterParts
from sharp_server.learners.served_learner import ServedLearner
from sharp_server.learners.settings import teaching_refusal
from sharp_server.prediction.model import Model
from sharp_server.prediction.summary import Summary
from sharp_server.storage.board import Standing
from sharp_server.storage.records import Beyond, BeyondKey, LearnerRow
from sharp_server.teaching.protocol import TeacherDiedError
from sharp_server.teaching.remote import RemoteLearner

log = logging.getLogger(__name__)

_BYTES_AT_ONCE = 4 << 20
"""Of arrivals read from the journal, between two swaps."""
_DEATHS = 3
"""Of the teacher, in a row, after which a learner is left as it is until something about it is new."""


class FollowedLearner(ServedLearner):
    """A learner of another server."""

    def __init__(self, row: LearnerRow) -> None:
        super().__init__(row)
        self._known_here = 0

    @property
    def examples_known(self) -> int:
        """Examples that ever arrived and that this server has taken into account, at least."""
        return self._known_here

    def knows(self, examples: int) -> None:
        """So many are."""
        self._known_here = max(self._known_here, examples)


@dataclass(eq=False)
class _Follower:
    """One learner that is followed, and how far."""

    served: FollowedLearner
    standing: Standing | None = None
    """As it was when it was last looked at; None: it is to be made anew."""
    deaths: int = 0
    """Of the teacher, in a row, over this learner."""
    changes: int = 0
    """How often something else than an arrival changed it."""
    file: Path | None = None
    """Of the version that serves."""
    unlearned_bytes: int = 0
    summary: Summary | None = None
    taught: RemoteLearner | None = None
    lessons: list[BeyondKey] = field(default_factory=list)
    """That are known, in order."""
    last: BeyondKey = field(default_factory=BeyondKey)
    """Of whatever is known: everything up to here, if no lesson came before it since."""
    examples: int = 0
    batch_examples: int = 0

    def goes_on(self, lessons: list[BeyondKey]) -> bool:
        """Whether all lessons that are not known yet come after everything that is."""
        known = len(self.lessons)
        return self.lessons == lessons[:known] and (len(lessons) == known or lessons[known] > self.last)

    def begin_anew(self, taught: RemoteLearner | None, summary: Summary | None) -> None:
        """Nothing is known but a version."""
        self.let_go()
        self.taught, self.summary, self.lessons, self.last = taught, summary, [], BeyondKey()
        self.examples = self.batch_examples = 0

    def let_go(self) -> None:
        """The teacher need not keep it."""
        if self.taught is not None:
            self.taught.drop()
            self.taught = None

    def take(self, found: Sequence[Beyond]) -> None:
        """These are known."""
        self.last = found[-1].key
        self.lessons += [item.key for item in found if item.lesson]
        self.examples += sum(item.examples for item in found)
        self.batch_examples += sum(item.examples for item in found if not item.lesson)


class FollowedLearners:
    """Belongs to the event loop; versions are fetched in the thread, loaded and taught by the teacher."""

    def __init__(self, parts: ClusterParts) -> None:
        self._board, self._storage, self._files, self._readers = parts.board, parts.storage, parts.files, parts.readers
        self._batcher, self._thread, self._bases = parts.batcher, parts.thread, parts.bases
        self._followers: dict[str, _Follower] = {}
        """By uid."""

    def changed(self, uid: str) -> None:
        """Something else than an arrival changed what is known of a learner: make it anew."""
        follower = self._followers.get(uid)
        if follower is not None:
            follower.standing = None
            follower.changes += 1

    def all_changed(self) -> None:
        """The same of all of them."""
        for uid in self._followers:
            self.changed(uid)

    def file_of(self, uid: str) -> Path | None:
        """The file of the version that a learner is followed with, if it is."""
        follower = self._followers.get(uid)
        return follower.file if follower is not None else None

    async def follow(self, uids: Collection[str]) -> None:
        """Follow these learners and no others, and take in whatever is new of them."""
        for uid in [uid for uid in self._followers if uid not in uids]:
            self.drop(uid)
        standings = await self._board.standings(list(uids))
        new = [uid for uid, found in standings.items() if self._standing(uid) != found]
        if not new:
            return
        rows = {row.uid: row for row in await self._storage.learners()}
        for uid in new:
            row = rows.get(uid)
            if row is None:
                continue
            try:
                await self._take_in(row, standings[uid])
            except asyncio.CancelledError:
                raise
            except TeacherDiedError as death:
                self._note_death(self._followers[uid], standings[uid], death)
            except Exception as error:  # a version that went while it was fetched, or a store that is away
                log.warning("%s could not be followed: %s: %s", row.name, type(error).__name__, error)
                self.changed(uid)

    def _note_death(self, follower: _Follower, standing: Standing, death: TeacherDiedError) -> None:
        """It is made anew; if the teacher dies of it every time, when something about it is new."""
        follower.deaths += death.at_work
        follower.standing = None
        if follower.deaths >= _DEATHS:
            log.error("%s: the teacher dies of what is new of it: it answers as before", follower.served.name)
            follower.begin_anew(None, None)
            follower.standing, follower.deaths = standing, 0

    def drop(self, uid: str) -> None:
        """Follow a learner no more."""
        follower = self._followers.pop(uid, None)
        if follower is not None:
            follower.let_go()
        if follower is not None and self._readers.followed(follower.served.name) is follower.served:
            self._readers.remove(follower.served)
            self._batcher.forget(follower.served.id)

    def _standing(self, uid: str) -> Standing | None:
        follower = self._followers.get(uid)
        return follower.standing if follower is not None else None

    async def _take_in(self, row: LearnerRow, standing: Standing) -> None:
        follower = self._followers.setdefault(row.uid, _Follower(FollowedLearner(row)))
        before, changes = follower.standing, follower.changes
        nbytes, open_examples = await self._storage.unlearned_totals(row.id)
        lessons = await self._board.lesson_keys(row.id)
        same_version = before is not None and (before.version, before.head) == (standing.version, standing.head)
        goes_on = follower.taught is not None and follower.goes_on(lessons)
        if not same_version or nbytes < follower.unlearned_bytes or not goes_on:
            await self._begin_anew(follower, row)
        follower.unlearned_bytes = nbytes
        if row.input_shape:
            follower.served.fix_inputs(tuple(json.loads(row.input_shape)), row.label_kind)
        follower.served.reload_classes(await self._storage.classes(row.id))
        episodes = follower.summary.episodes if follower.summary is not None else 0
        if teaching_refusal(follower.served.config, follower.served.input_shape, episodes) is None:
            await self._teach(follower, row)
            unknown = 0
        else:
            waiting = await self._storage.unlearned_episodes(row.id)
            unknown = open_examples + sum(episode.examples for episode in waiting if episode.state == "waiting")
        now = (await self._board.standings([row.uid])).get(row.uid)
        if now is None or (now.version, now.head) != (standing.version, standing.head):
            follower.standing = None  # a version came while the journal was read: what was read may belong to either
            return
        follower.served.knows(standing.examples - unknown)
        await self._serve(follower, row)
        if self._followers.get(row.uid) is not follower:
            return  # it was dropped meanwhile
        # What changed while the journal was read may be missing: then it is made anew, at the next look.
        follower.standing = standing if follower.changes == changes else None
        if self._readers.followed(row.name) is not follower.served:
            self._readers.add(follower.served)
            self._batcher.forget(row.id)
            log.info("%s is followed here, from version %d", row.name, row.version)

    async def _begin_anew(self, follower: _Follower, row: LearnerRow) -> None:
        """Begin with the version by itself; it serves when what was taught since is known too."""
        served, summary, follower.file = follower.served, None, None
        head = next((found for found in await self._storage.snapshots(row.id) if found.id == row.head), None)
        if head is None:
            taught = await self._bases.new(served.config)
        else:
            path = self._files.path(row.uid, head.name)
            await self._thread.run_in_thread(path.parent.mkdir, mode=0o700, exist_ok=True)
            taught, summary = await self._bases.version(row.uid, head.name, head.sha256, served.config, None)
            follower.file = path
        follower.begin_anew(taught, summary)

    async def _teach(self, follower: _Follower, row: LearnerRow) -> None:
        """Take in whatever the journal has beyond what is known."""
        assert follower.taught is not None
        while found := await self._storage.beyond(row.id, follower.last, _BYTES_AT_ONCE):
            # After what arrived was read: whatever class is in it is there by then.
            follower.served.classes.load(await self._storage.classes(row.id))
            shape = follower.served.input_shape or ()
            await follower.taught.teach_again(found, shape, follower.served.labels_by_ordinal())
            follower.take(found)

    async def _serve(self, follower: _Follower, row: LearnerRow) -> None:
        assert follower.taught is not None
        follower.deaths = 0
        known = await follower.taught.known()
        model = Model(
            row.version, known.predictor, follower.summary, follower.examples, follower.batch_examples, known.summary
        )
        follower.served.serve(model, None)
