"""How the server is: its trainer and its teacher, its limits, its disk, and what was found damaged."""

from __future__ import annotations

import asyncio
import time

from sharp.v1 import admin_pb2, server_pb2
from sharp_engine.device import resolve_device
from sharp_server.config.model import ServerConfig
from sharp_server.errors import redact
from sharp_server.learners.messages import duration, timestamp
from sharp_server.learners.registry import Registry
from sharp_server.runtime import version
from sharp_server.runtime.metrics import memory_of
from sharp_server.runtime.server_state import ServerState, Stage
from sharp_server.storage.data_folder import DataFolder
from sharp_server.storage.interface import Storage
from sharp_server.storage.version_files import VersionFiles
from sharp_server.teaching.process import TeacherProcess
from sharp_server.training.process import TrainerProcess
from sharp_server.training.scheduler import Scheduler

_STATES = {
    Stage.STARTING: server_pb2.SERVER_STATE_STARTING,
    Stage.SERVING: server_pb2.SERVER_STATE_SERVING,
    Stage.STOPPING: server_pb2.SERVER_STATE_STOPPING,
}


class ServerStatus:
    """Answers for the server as a whole."""

    def __init__(
        self,
        config: ServerConfig,
        folder: DataFolder,
        files: VersionFiles,
        state: ServerState,
        storage: Storage,
        registry: Registry,
        scheduler: Scheduler,
        process: TrainerProcess,
        teacher: TeacherProcess,
    ) -> None:
        self._config, self._folder, self._files = config, folder, files
        self._state, self._storage, self._registry = state, storage, registry
        self._scheduler, self._process, self._teacher = scheduler, process, teacher

    async def message(self) -> admin_pb2.GetServerStatusResponse:
        """Everything, as it is now."""
        taken, free = await asyncio.to_thread(self._folder.usage)
        return admin_pb2.GetServerStatusResponse(
            version=version.version(),
            start_time=timestamp(self._state.started),
            state=_STATES[self._state.stage],
            learners=len(self._registry),
            trainer=self._trainer(),
            teacher=self._teaching(),
            limits=self._limits(),
            data_bytes=taken,
            free_bytes=free,
            corruption_events=await self._corruption_events(),
            object_store_failure=redact(self._files.failure),
            device=str(resolve_device(self._config.predictor.device)),
        )

    def _trainer(self) -> server_pb2.TrainerStatus:
        learner, episode = self._scheduler.current
        pid = self._process.pid
        return server_pb2.TrainerStatus(
            running=self._process.ready,
            restarts=self._scheduler.restarts,
            learner=learner,
            episode=episode,
            memory_bytes=memory_of(str(pid)) if pid else 0,
            threads=self._config.trainer.threads,
            since=duration(max(0.0, time.time() - self._process.since)),
        )

    def _teaching(self) -> server_pb2.TeacherStatus:
        pid = self._teacher.pid
        return server_pb2.TeacherStatus(
            running=self._teacher.ready,
            restarts=self._teacher.restarts,
            memory_bytes=memory_of(str(pid)) if pid else 0,
            since=duration(max(0.0, time.time() - self._teacher.since)),
        )

    def _limits(self) -> server_pb2.Limits:
        limits = self._config.limits
        return server_pb2.Limits(
            message_bytes=limits.message_bytes,
            batch_examples=limits.batch_examples,
            unlearned_bytes=limits.unlearned_bytes,
            learners=limits.learners,
            classes=limits.classes,
            streams=limits.streams,
            prediction_queue=self._config.batching.queue_examples,
            top_k=limits.top_k,
            nearest_memories=limits.nearest_memories,
            image_pixels=limits.image_pixels,
            snapshot_bytes=limits.snapshot_bytes,
            automatic_snapshots=self._config.data.automatic_snapshots,
            manual_snapshots=limits.manual_snapshots,
            weights_bytes=limits.weights_bytes,
        )

    async def _corruption_events(self) -> list[server_pb2.CorruptionEvent]:
        if self._state.stage is Stage.STARTING:
            return []
        return [
            server_pb2.CorruptionEvent(
                time=timestamp(event.time),
                learner=event.learner,
                snapshot_id=event.snapshot,
                lost_model_version=event.lost_version,
                serving_model_version=event.serving_version,
                detail=event.detail,
            )
            for event in await self._storage.corruption_events()
        ]
