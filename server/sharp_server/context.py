"""The composition root: makes every part of the front and gives each what it uses. Nothing else knows all of them.

It wires and decides nothing; no part gets the context itself.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import cast
from urllib.parse import unquote, urlsplit

from sharp.v1 import learning_pb2
from sharp_engine import Label
from sharp_server.api.admin import AdminService, Operations
from sharp_server.api.decode import InputDecoder, labels_of
from sharp_server.api.learning import LearningService
from sharp_server.api.open_inference import InferenceService
from sharp_server.api.prediction import PredictionService
from sharp_server.api.server_status import ServerStatus
from sharp_server.config.model import ConfigurationError, DataConfig, ServerConfig
from sharp_server.errors import RpcError
from sharp_server.http import HttpParts
from sharp_server.ingest.session import SessionTools
from sharp_server.learners import events
from sharp_server.learners.damage import DamageLog
from sharp_server.learners.forgetting import Forgetting
from sharp_server.learners.gauges import DiskGauges, LearnerGauges
from sharp_server.learners.importing import Importing
from sharp_server.learners.inputs import Examples
from sharp_server.learners.lessons import Lessons
from sharp_server.learners.lifecycle import Lifecycle
from sharp_server.learners.parked_episodes import ParkedEpisodes
from sharp_server.learners.registry import Readers, Registry
from sharp_server.learners.relabelling import ClassRelabelling
from sharp_server.learners.restoring import Restoring
from sharp_server.learners.served_learner import ServedLearner
from sharp_server.learners.snapshots import Snapshots
from sharp_server.learners.startup import StartUp
from sharp_server.learners.versions import Versions
from sharp_server.learners.weights import Weights
from sharp_server.prediction.batcher import Batcher
from sharp_server.runtime.metrics import Metrics
from sharp_server.runtime.server_state import ServerState
from sharp_server.runtime.threads import BackgroundThread
from sharp_server.storage.board import Board
from sharp_server.storage.data_folder import DataFolder
from sharp_server.storage.interface import SharedStorage, Storage
from sharp_server.storage.object_upkeep import ObjectUpkeep
from sharp_server.storage.objects import FolderObjects, ObjectStore
from sharp_server.storage.sqlite.storage import SqliteStorage
from sharp_server.storage.version_files import VersionFiles
from sharp_server.teaching.process import TeacherProcess
from sharp_server.teaching.remote import Bases
from sharp_server.teaching.teaching import Teaching
from sharp_server.training.aftermath import Aftermath
from sharp_server.training.consolidation import Consolidation
from sharp_server.training.process import TrainerProcess
from sharp_server.training.publisher import Publisher
from sharp_server.training.scheduler import Scheduler

_SECONDS_TO_FINISH = 5.0
_SECONDS_TO_CONSOLIDATE = 2.0


@dataclass(frozen=True)
class ClusterParts:
    """What a member of a cluster uses."""

    storage: SharedStorage
    board: Board
    registry: Registry
    readers: Readers
    start_up: StartUp
    scheduler: Scheduler
    teaching: Teaching
    batcher: Batcher
    files: VersionFiles
    thread: BackgroundThread
    """Where files of versions of other servers are fetched."""
    bases: Bases
    """Where they begin to be taught."""


@dataclass(frozen=True)
class Makers:
    """Who makes what has threads, a process or a file of its own: `reliability.simulation` brings others."""

    storage: Callable[[DataConfig, DataFolder, str], Storage] = lambda *where: _open_storage(*where)
    batcher: type[Batcher] = Batcher
    trainer: type[TrainerProcess] = TrainerProcess
    teacher: type[TeacherProcess] = TeacherProcess


_MAKERS = Makers()


class ServerContext:
    """Everything that a front process has. Made on the event loop that it then serves."""

    def __init__(self, config: ServerConfig, folder: DataFolder, owner: str = "", make: Makers = _MAKERS) -> None:
        """`owner`: the name of this start of the server, where it shares the journal with others."""
        limits = config.limits
        self.state = state = ServerState()
        self.metrics = metrics = Metrics()
        self.registry = registry = Registry()
        readers = Readers(registry) if owner else registry
        self._in_cluster = bool(owner)
        self.storage = storage = make.storage(config.data, folder, owner)
        self._thread = thread = BackgroundThread()
        objects = _open_objects(config.data)
        self._object_thread = object_thread = BackgroundThread("objects") if objects is not None else thread
        files = VersionFiles(folder, storage, objects, object_thread, metrics.object_store_failures.inc)
        self._upkeep = ObjectUpkeep(
            *(files, storage, registry, object_thread, config.data.cache_bytes, config.data.objects_grace_seconds)
        )
        self._decoding = threads = ThreadPoolExecutor(2, thread_name_prefix="decode")
        self._batcher = batcher = make.batcher(config.batching, config.predictor, metrics)
        self.trainer = trainer = make.trainer(folder.path, storage.example_source(), config.trainer, config.log)
        self.teacher = teacher = make.teacher(config, metrics.teacher_restarts.inc)
        self._teaching = teaching = Teaching(config.teaching, storage, teacher, files, thread, config.predictor.device)
        publisher = Publisher(config, files, storage, thread, teaching)
        self._consolidation = consolidation = Consolidation(
            config.teaching, teaching, publisher, registry, lambda: self._scheduler.wake()
        )
        aftermath = Aftermath(
            config.trainer,
            files,
            storage,
            publisher,
            metrics,
            lambda *learned: events.statistics(*learned).SerializeToString(),
            teaching,
        )
        self._scheduler = scheduler = Scheduler(config, folder, files, storage, registry, aftermath, trainer, metrics)
        damage = DamageLog(storage, metrics)
        forgetting = Forgetting(config, folder, files, storage, publisher, scheduler, thread, metrics, teaching)
        restoring = Restoring(files, storage, publisher, scheduler, forgetting, damage, thread)
        relabelling = ClassRelabelling(files, storage, publisher, scheduler, forgetting, thread, teaching)
        versions = Versions(storage, restoring)
        lifecycle = Lifecycle(config, folder, files, storage, registry, scheduler, batcher, teaching)
        snapshots = Snapshots(limits, files, storage, damage, thread, consolidation)
        importing = Importing(config, folder, state, registry, lifecycle, restoring, snapshots, thread)
        weights = Weights(config, folder, state, thread)
        parked = ParkedEpisodes(storage, scheduler, metrics, teaching)
        self._start_up = StartUp(
            config, folder, files, storage, registry, publisher, restoring, damage, thread, teaching
        )
        self._cluster_parts: Callable[[], ClusterParts] = lambda: ClusterParts(
            cast("SharedStorage", storage),
            _open_board(config.data),
            registry,
            cast("Readers", readers),
            self._start_up,
            scheduler,
            teaching,
            batcher,
            files,
            object_thread,
            Bases(teacher, files, object_thread),
        )
        metrics.watch(LearnerGauges(registry, lambda: trainer.pid, lambda: teacher.pid, config.quality.metric_classes))
        metrics.watch(DiskGauges(folder.free_bytes), blocks=True)

        decoder = InputDecoder(limits, threads)

        async def decode(batch: learning_pb2.Batch, served: ServedLearner) -> tuple[Examples, list[Label]]:
            examples = await decoder.examples(batch.inputs, served.input_spec)
            return examples, labels_of(batch.labels, served.label_kind, len(examples.x))

        tools = SessionTools(limits, storage, metrics, threads, decode, scheduler.wake, teaching.batches_arrived)
        operations = Operations(
            lifecycle, forgetting, relabelling, restoring, versions, snapshots, importing, weights, parked
        )
        status = ServerStatus(config, folder, files, state, storage, registry, scheduler, trainer, teacher)
        lessons = Lessons(limits, storage, teaching, metrics)
        self.learning = LearningService(limits, state, registry, lifecycle, storage, tools, lessons, decoder)
        self.prediction = PredictionService(limits, state, readers, batcher, decoder)
        self.admin = AdminService(limits, state, registry, operations, status)
        self.inference = inference = InferenceService(limits, state, readers, batcher, decoder)
        self.http = HttpParts(
            config, state, metrics, registry, readers, operations, status, batcher, decoder, inference, lessons
        )

    async def load(self) -> None:
        """Take up everything that is in the data folder, then begin to train and to serve."""
        await self._start_up.load(take_up=not self._in_cluster)
        self._scheduler.start()
        self._consolidation.start()
        self._upkeep.start()
        self.state.begin_serving()
        self.teacher.launch()  # unless something was taught already: serving does not wait for it

    def cluster_parts(self) -> ClusterParts:
        """What a member of a cluster uses; there must be an owner."""
        return self._cluster_parts()

    def begin_stop(self) -> None:
        """Take no more calls; those that never end by themselves are made to end."""
        self.state.begin_stop()
        for served in self.registry:
            served.end_producers(RpcError("SERVER_NOT_READY", "the server is stopping"))
            served.notify()

    async def close(self) -> None:
        """Stop the trainer at a step, make versions of lessons if that is quick, and close what is open."""
        await self._scheduler.stop()
        await self.state.finished(_SECONDS_TO_FINISH)
        await self._consolidation.stop(_SECONDS_TO_CONSOLIDATE)
        await self._upkeep.stop()
        self._teaching.close()
        await self.teacher.end()
        await self.storage.close()
        self._batcher.close()
        self._thread.close()
        self._object_thread.close()
        self._decoding.shutdown(wait=False, cancel_futures=True)


def _open_storage(config: DataConfig, folder: DataFolder, owner: str) -> Storage:
    """The journal that the settings name."""
    if not config.store:
        return SqliteStorage(folder.journal)
    try:
        from sharp_server.storage.postgres.storage import PostgresStorage
    except ImportError as missing:
        message = f"data.store: {missing.name} is missing: pip install 'sharp-serve[server,cluster]'"
        raise ConfigurationError(message) from None
    return PostgresStorage(config.store, owner)


def _open_board(config: DataConfig) -> Board:
    """Where the servers that share the journal find each other."""
    from sharp_server.storage.postgres.board import PostgresBoard

    return PostgresBoard(config.store)


def _open_objects(config: DataConfig) -> ObjectStore | None:
    """The object store that the settings name."""
    if not config.objects:
        return None
    parts = urlsplit(config.objects)
    if parts.scheme != "s3":
        path = unquote(parts.path) if config.objects.startswith("file://") else config.objects
        return FolderObjects(Path(path))
    try:
        from sharp_server.storage.bucket import BucketObjects
    except ImportError as missing:
        message = f"data.objects: {missing.name} is missing: pip install 'sharp-serve[server,cluster]'"
        raise ConfigurationError(message) from None
    return BucketObjects(parts.netloc, parts.path.strip("/"), config.objects_seconds)
