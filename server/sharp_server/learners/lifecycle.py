"""How a learner comes and goes: durable first, then known; gone from the journal first, then from the disk."""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from sharp.v1 import learner_pb2
from sharp_engine.config import to_dict
from sharp_server.config.model import ServerConfig
from sharp_server.errors import RpcError
from sharp_server.learners.names import learner_name
from sharp_server.learners.registry import Registry
from sharp_server.learners.served_learner import ServedLearner
from sharp_server.learners.settings import check_backbone_works, differences, engine_config, label_kind, names_files
from sharp_server.prediction.batcher import Batcher
from sharp_server.storage.data_folder import DataFolder
from sharp_server.storage.interface import Storage
from sharp_server.storage.manifest import write_manifest
from sharp_server.storage.records import LearnerRow, Manifest, NewLearner
from sharp_server.storage.version_files import VersionFiles
from sharp_server.teaching.teaching import Teaching
from sharp_server.training.scheduler import Scheduler

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


class Lifecycle:
    """Makes and deletes learners."""

    def __init__(
        self,
        config: ServerConfig,
        folder: DataFolder,
        files: VersionFiles,
        storage: Storage,
        registry: Registry,
        scheduler: Scheduler,
        batcher: Batcher,
        teaching: Teaching,
    ) -> None:
        self._config, self._folder, self._files, self._storage = config, folder, files, storage
        self._registry, self._scheduler, self._batcher, self._teaching = registry, scheduler, batcher, teaching
        self._one_at_a_time = asyncio.Lock()

    async def create(self, name: str, config: learner_pb2.LearnerConfig) -> ServedLearner:
        """Make a learner from its configuration."""
        learner_name(name, "name")
        made = await _where_it_may_block(config, engine_config, config, self._config)
        if made.architecture.backbone is not None:  # nobody wants to hear of it when the first episode is learned
            await asyncio.to_thread(check_backbone_works, made.architecture)
        shape = made.architecture.input_shape
        return await self.create_from(
            name,
            config,
            json.dumps(to_dict(made)),
            json.dumps(shape) if shape is not None else None,
            label_kind(config),
        )

    async def create_from(
        self, name: str, config: learner_pb2.LearnerConfig, settings: str, input_shape: str | None, kind: str | None
    ) -> ServedLearner:
        """Make a learner from what the journal keeps of it."""
        async with self._one_at_a_time:
            new = NewLearner(name, uuid.uuid4().hex, config.SerializeToString(), settings, input_shape, kind)
            row = await self._storage.create_learner(new, self._config.limits.learners)
            # Not in the background thread: it may be loading a large version, and a first batch waits for this.
            await asyncio.to_thread(self._make_folder, row)
            served = ServedLearner(row)
            self._registry.add(served)
            log.info("learner %s was made", name)
            return served

    def _make_folder(self, row: LearnerRow) -> None:
        self._folder.make_learner(row.uid)
        manifest = Manifest(row.name, row.config.hex(), row.settings, row.created)
        write_manifest(self._folder.of_learner(row.uid), manifest)

    async def create_if_missing(self, name: str, config: learner_pb2.LearnerConfig | None = None) -> ServedLearner:
        """The learner of that name, made as the configuration says if there is none.

        One that is there already must be as the configuration says, as far as that says anything.
        """
        config = config or learner_pb2.LearnerConfig()
        served = self._registry.find(name)
        if served is None:
            try:
                return await self.create(name, config)
            except RpcError as refusal:
                served = self._registry.find(name)
                if refusal.reason != "LEARNER_EXISTS" or served is None:
                    raise
        there = (served.config, served.input_shape)
        different = await _where_it_may_block(config, differences, config, *there, self._config)
        if different:
            message = f"the learner {name!r} is there already, with other settings: {'; '.join(different)}"
            raise RpcError("LEARNER_EXISTS", message, learner=name)
        return served

    async def delete(self, served: ServedLearner) -> tuple[int, int]:
        """Delete a learner with all it has; returns unlearned examples and snapshots that went with it."""
        with served.change():
            async with self._scheduler.paused(served):
                unlearned = served.backlog.all_examples
                snapshots = len(await self._storage.snapshots(served.id))
                await self._storage.delete_learner(served.id)
                self._registry.remove(served)
                served.delete()
                self._batcher.forget(served.id)
                self._teaching.forget(served, served.farewell)
                await self._files.delete_learner(served.uid)
                await self._storage.erase()
                log.info("learner %s was deleted", served.name)
                return unlearned, snapshots


async def _where_it_may_block(
    config: learner_pb2.LearnerConfig, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Read a configuration: in a thread if that looks for files, which most don't name."""
    return await asyncio.to_thread(work, *args, **kwargs) if names_files(config) else work(*args, **kwargs)
