"""Making learners: durable first, then known to the registry."""

from __future__ import annotations

import asyncio
import json
import logging
import uuid

from sharp.v1 import learner_pb2
from sharp_engine.config import to_dict
from sharp_server.config.model import ServerConfig
from sharp_server.errors import RpcError
from sharp_server.learners.names import learner_name
from sharp_server.learners.served_learner import Registry, ServedLearner
from sharp_server.learners.settings import engine_config, label_kind
from sharp_server.storage.data_folder import DataFolder
from sharp_server.storage.manifest import Manifest, write_manifest
from sharp_server.storage.sqlite import learners as ledger_learners
from sharp_server.storage.sqlite.journal import Journal
from sharp_server.storage.sqlite.learners import LearnerRow

log = logging.getLogger(__name__)


class Creation:
    """Makes learners, one at a time."""

    def __init__(self, config: ServerConfig, folder: DataFolder, journal: Journal, registry: Registry) -> None:
        self._config, self._folder, self._journal, self._registry = config, folder, journal, registry
        self._one_at_a_time = asyncio.Lock()

    async def create(self, name: str, config: learner_pb2.LearnerConfig) -> ServedLearner:
        """Make a learner from its configuration."""
        learner_name(name, "name")
        made = engine_config(config, self._config)
        shape = made.architecture.input_shape
        return await self.create_row(
            name,
            config.SerializeToString(),
            json.dumps(to_dict(made)),
            json.dumps(shape) if shape is not None else None,
            label_kind(config),
        )

    async def create_row(
        self, name: str, config: bytes, settings: str, input_shape: str | None, kind: str | None
    ) -> ServedLearner:
        """Make a learner from what the journal keeps of it."""
        async with self._one_at_a_time:
            uid = uuid.uuid4().hex
            row: LearnerRow = await self._journal.write(
                ledger_learners.create, name, uid, config, settings, input_shape, kind, self._config.limits.learners
            )
            await asyncio.to_thread(self._make_folder, row)
            served = ServedLearner(row)
            self._registry.add(served)
            log.info("learner %s was made", name)
            return served

    def _make_folder(self, row: LearnerRow) -> None:
        self._folder.make_learner(row.uid)
        manifest = Manifest(row.name, row.config.hex(), row.settings, row.created)
        write_manifest(self._folder.of_learner(row.uid), manifest)

    async def create_if_missing(self, name: str) -> ServedLearner:
        """The learner of that name, made with an empty configuration if there is none."""
        try:
            return await self.create(name, learner_pb2.LearnerConfig())
        except RpcError as refusal:
            served = self._registry.find(name)
            if refusal.reason == "LEARNER_EXISTS" and served is not None:
                return served
            raise
