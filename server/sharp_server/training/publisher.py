"""How a version comes to serve: file in place → loaded by the teacher → in the object store, where there is one →
recorded in the journal → swapped in → tidied.

The order is the promise: nothing serves that is not durable, nobody hears of a version before it serves, and raw
examples go in the very transaction that records what was learned from them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from sharp_engine import Label, Learner, Quality
from sharp_server.config.model import ServerConfig
from sharp_server.errors import disk_is_full
from sharp_server.prediction.model import Model
from sharp_server.prediction.portable_config import without_paths
from sharp_server.prediction.quality import MeasuredVersion, QualityReport, compare, quality_of, to_json
from sharp_server.prediction.summary import Summary, summarize
from sharp_server.runtime.threads import BackgroundThread
from sharp_server.storage.data_folder import new_name
from sharp_server.storage.interface import Storage
from sharp_server.storage.records import EpisodeRow, NewSnapshot, NewVersion, Published
from sharp_server.storage.version_files import VersionFiles
from sharp_server.teaching.teaching import Teaching
from sharp_server.training.trainee import Trainee

log = logging.getLogger(__name__)

_WARNED = 10
"""Classes that got worse and are named in the log, per version."""

T = TypeVar("T")

Record = Callable[[NewVersion], Awaitable[Published]]
"""Writes a version into the journal, together with whatever belongs into the same transaction."""


GiveUp = Callable[[], bool]
"""Asked while an object store can't be reached: whether to wait for it no longer."""


def _never_wait() -> bool:
    return True


@dataclass(frozen=True)
class Content:
    """What is in the file of a version."""

    summary: Summary
    quality: QualityReport
    sha256: bytes
    """Of the file, as whoever wrote it meant it to be."""


Prepare = Callable[[Path], Awaitable[Content | None]]
"""Puts the file of a version in its place, or finds it there; none: there is nothing to be put there."""


@dataclass
class _Prepared:
    """A version whose file is in its place."""

    content: Content
    version: NewVersion
    recorded: bool = False
    """Whether the journal has it: the file stays from then on."""


class Publisher:
    """Brings versions to life."""

    def __init__(
        self,
        config: ServerConfig,
        files: VersionFiles,
        storage: Storage,
        thread: BackgroundThread,
        teaching: Teaching,
    ) -> None:
        self._config, self._files, self._storage, self._thread = config, files, storage, thread
        self._teaching = teaching

    async def publish_trained(
        self,
        trainee: Trainee,
        episode: EpisodeRow,
        name: str,
        content: Content,
        statistics: bytes,
    ) -> EpisodeRow:
        """Serve what the trainer made of an episode, and left as the file of that name; gives the learned episode."""
        version = trainee.model.version + 1

        async def found(path: Path) -> Content:
            return content

        async def record(new: NewVersion) -> Published:
            learned = replace(new, episode=episode.number, lessons=episode.place)
            return await self.write_with_disk_retry(lambda: self._storage.learned(episode.id, learned, statistics))

        await self._publish(trainee, name, "learned", found, record, lambda: trainee.changing)
        trainee.release(episode.bytes)
        await self._delete_if_possible(self._files.clear_work(trainee))
        await self.erase_if_possible()
        return replace(
            episode,
            state="learned",
            version=version,
            episodes_learned=content.summary.episodes,
            statistics=statistics,
            finished_at=time.time(),
        )

    async def publish_changed(self, trainee: Trainee, learner: Learner, cause: str, record: Record) -> Published:
        """Serve a learner that was changed by something else than learning (class forgotten, snapshot restored)."""
        version = trainee.model.version + 1

        return await self._publish(trainee, new_name(version), cause, self._save(trainee, learner), record)

    async def publish_taught(self, trainee: Trainee) -> bool:
        """Make lessons part of a version: no answer changes, and their raw examples go. False: there were none."""
        version, until = trainee.model.version + 1, 0
        name = new_name(version)

        async def save(path: Path) -> Content | None:
            nonlocal until
            saved = await self._teaching.save(trainee, path)
            if saved is None:
                return None
            until = saved.until
            return Content(saved.summary, self.compared(trainee, saved.quality, saved.summary.labels), saved.sha256)

        async with self._file(trainee, name, "taught", version, save) as prepared:
            if prepared is None:
                return False
            content, new = prepared.content, replace(prepared.version, lessons=until)
            async with self._teaching.unchanged(trainee):
                published = await self._storage.publish(new)
                prepared.recorded = True
                model = self._teaching.consolidated(trainee, until, version, content.summary)
                self._serve(trainee, replace(model, quality=content.quality), new.snapshot)
        await self._tidy(trainee, published)
        await self.erase_if_possible()
        return True

    def compared(self, trainee: Trainee, quality: Quality | None, labels: Sequence[Label]) -> QualityReport:
        """The version that is about to serve and knows these classes, beside the one that serves."""
        now = None if quality is None else MeasuredVersion(trainee.model.version + 1, time.time(), quality)
        before = trainee.model.quality.now
        known = before.of_classes(frozenset(labels)) if before is not None else None
        return compare(now, known, self._config.quality.fall_points)

    def _save(self, trainee: Trainee, learner: Learner) -> Prepare:
        def save(path: Path) -> Content:
            learner.reconfigure(without_paths(learner.config))
            sha256 = learner.save(path, pending=False)
            summary = summarize(learner)
            return Content(summary, self.compared(trainee, quality_of(learner), summary.labels), sha256)

        async def saved(path: Path) -> Content:
            return await self._thread.run_in_thread(save, path)

        return saved

    async def _publish(
        self,
        trainee: Trainee,
        name: str,
        cause: str,
        prepare: Prepare,
        record: Record,
        give_up: GiveUp = _never_wait,
    ) -> Published:
        version = trainee.model.version + 1
        async with self._file(trainee, name, cause, version, prepare, give_up) as prepared:
            assert prepared is not None
            content, head = prepared.content, (name, prepared.version.snapshot.sha256)
            # Before it is recorded: what can't be loaded must not become the version.
            async with self._teaching.opened(trainee, head, content.summary) as opened:
                async with self._teaching.held(trainee):
                    published = await record(prepared.version)
                    prepared.recorded = True
                    model = await self._teaching.rebuild(trainee, head, version, content.summary, opened)
                    self._serve(trainee, replace(model, quality=content.quality), prepared.version.snapshot)
        await self._tidy(trainee, published)
        return published

    def _serve(self, trainee: Trainee, model: Model, snapshot: NewSnapshot) -> None:
        self._thread.discard(trainee.model)
        trainee.serve(model, (snapshot.name, snapshot.sha256))
        _warn(trainee.name, model)

    @contextlib.asynccontextmanager
    async def _file(
        self,
        trainee: Trainee,
        name: str,
        cause: str,
        version: int,
        prepare: Prepare,
        give_up: GiveUp = _never_wait,
    ) -> AsyncIterator[_Prepared | None]:
        """The file of a version in its place, which goes again if the version does not come to be."""
        path = self._files.path(trainee.uid, name)

        def described(content: Content) -> _Prepared:
            snapshot = NewSnapshot(
                learner=trainee.id,
                name=name,
                version=version,
                episodes=content.summary.episodes,
                classes=json.dumps(content.summary.labels),
                origin="automatic",
                size=path.stat().st_size,
                sha256=content.sha256,
            )
            measured = content.quality.now
            new = NewVersion(
                snapshot,
                cause,
                self._config.data.automatic_snapshots,
                quality=None if measured is None else to_json(measured.quality),
                keep_qualities=self._config.quality.versions,
            )
            return _Prepared(content, new)

        made: _Prepared | None = None
        try:
            content = await prepare(path)
            if content is None:
                yield None
                return
            made = await self._thread.run_in_thread(described, content)
            async with self._files.recording(trainee.uid, path, made.version.snapshot.sha256, give_up):
                yield made
        except Exception:  # whoever is cancelled does not know what the journal has: the next start looks
            if made is None or not made.recorded:
                await asyncio.shield(self._thread.run_in_thread(path.unlink, missing_ok=True))
            raise

    async def _tidy(self, trainee: Trainee, published: Published) -> None:
        await self._delete_if_possible(self._files.delete_snapshots(trainee, list(published.replaced)))

    async def _delete_if_possible(self, deletion: Awaitable[None]) -> None:
        """Delete files that a version has replaced, unless the disk refuses: the version is published all the same,
        and whoever tidies next, or starts, deletes them.
        """
        try:
            await deletion
        except OSError as error:
            log.warning("files that are not needed any more could not be deleted yet: %s", error.strerror)

    async def erase_if_possible(self) -> None:
        """Leave nothing deleted on disk, unless the disk has no room for that: the next deletion does it."""
        try:
            await self._storage.erase()
        except Exception as error:
            if not disk_is_full(error):
                raise
            log.warning("the write-ahead log could not be emptied yet: %s", error)

    async def write_with_disk_retry(self, write: Callable[[], Awaitable[T]]) -> T:
        """Write, and wait for room on the disk as long as it takes."""
        while True:
            try:
                return await write()
            except Exception as error:
                if not disk_is_full(error):
                    raise
                await asyncio.sleep(self._config.trainer.retry_seconds)


def _warn(learner: str, model: Model) -> None:
    """Name the classes that got worse."""
    for fall in model.quality.fallen[:_WARNED]:
        before, now = fall.before, fall.now
        log.warning(
            "%s: version %d answers %r worse: %d of %d held-out examples right, before %d of %d",
            *(learner, model.version, str(now.label)[:80], now.right, now.examples, before.right, before.examples),
        )
