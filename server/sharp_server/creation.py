"""Making learners: durable first, then known to the registry."""

from __future__ import annotations

import asyncio
import json
import logging
import uuid

from sharp.v1 import learner_pb2
from sharp_engine.config import to_dict
from sharp_server import ledger_learners
from sharp_server.config import ServerConfig
from sharp_server.errors import Refusal
from sharp_server.folders import DataFolder
from sharp_server.identity import Identity, write_identity
from sharp_server.journal import Journal
from sharp_server.ledger_learners import LearnerRow
from sharp_server.names import learner_name
from sharp_server.registry import Owned, Registry
from sharp_server.settings import engine_config, label_kind

log = logging.getLogger(__name__)


class Creation:
    """Makes learners, one at a time."""

    def __init__(self, config: ServerConfig, folder: DataFolder, journal: Journal, registry: Registry) -> None:
        self._config, self._folder, self._journal, self._registry = config, folder, journal, registry
        self._one_at_a_time = asyncio.Lock()

    async def create(self, name: str, config: learner_pb2.LearnerConfig) -> Owned:
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
    ) -> Owned:
        """Make a learner from what the journal keeps of it."""
        async with self._one_at_a_time:
            uid = uuid.uuid4().hex
            row: LearnerRow = await self._journal.write(
                ledger_learners.create, name, uid, config, settings, input_shape, kind, self._config.limits.learners
            )
            await asyncio.to_thread(self._make_folder, row)
            owned = Owned(row)
            self._registry.add(owned)
            log.info("learner %s was made", name)
            return owned

    def _make_folder(self, row: LearnerRow) -> None:
        self._folder.make_learner(row.uid)
        identity = Identity(row.name, row.config.hex(), row.settings, row.created)
        write_identity(self._folder.of_learner(row.uid), identity)

    async def create_if_missing(self, name: str) -> Owned:
        """The learner of that name, made with an empty configuration if there is none."""
        try:
            return await self.create(name, learner_pb2.LearnerConfig())
        except Refusal as refusal:
            owned = self._registry.find(name)
            if refusal.reason == "LEARNER_EXISTS" and owned is not None:
                return owned
            raise
