"""The composition root: makes every part of the front and gives each what it uses. Nothing else knows all of them.

It wires and decides nothing; no part gets the context itself.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from sharp.v1 import learning_pb2
from sharp_engine import Label, Learner
from sharp_server.api.admin import AdminService, Operations
from sharp_server.api.decode import InputDecoder, labels_of
from sharp_server.api.learning import LearningService
from sharp_server.api.open_inference import InferenceService
from sharp_server.api.prediction import PredictionService
from sharp_server.api.server_status import ServerStatus
from sharp_server.config.model import ServerConfig
from sharp_server.errors import RpcError
from sharp_server.http import HttpParts
from sharp_server.ingest.session import SessionTools
from sharp_server.learners import events
from sharp_server.learners.damage import DamageLog
from sharp_server.learners.forgetting import Forgetting
from sharp_server.learners.gauges import LearnerGauges
from sharp_server.learners.importing import Importing
from sharp_server.learners.inputs import Examples
from sharp_server.learners.lessons import Lessons
from sharp_server.learners.lifecycle import Lifecycle
from sharp_server.learners.parked_episodes import ParkedEpisodes
from sharp_server.learners.registry import Registry
from sharp_server.learners.restoring import Restoring
from sharp_server.learners.served_learner import ServedLearner
from sharp_server.learners.snapshots import Snapshots
from sharp_server.learners.startup import StartUp
from sharp_server.prediction.batcher import Batcher
from sharp_server.prediction.lane import Teachable
from sharp_server.prediction.model import load_learner
from sharp_server.prediction.teaching import Loader, Teaching
from sharp_server.runtime.metrics import Metrics
from sharp_server.runtime.server_state import ServerState
from sharp_server.runtime.threads import BackgroundThread
from sharp_server.storage.data_folder import DataFolder
from sharp_server.storage.interface import Storage
from sharp_server.storage.sqlite.storage import SqliteStorage
from sharp_server.training.aftermath import Aftermath
from sharp_server.training.consolidation import Consolidation
from sharp_server.training.process import TrainerProcess
from sharp_server.training.publisher import Publisher
from sharp_server.training.scheduler import Scheduler

_SECONDS_TO_FINISH = 5.0
_SECONDS_TO_CONSOLIDATE = 2.0


class ServerContext:
    """Everything that a front process has. Made on the event loop that it then serves."""

    def __init__(self, config: ServerConfig, folder: DataFolder) -> None:
        limits = config.limits
        self.state = state = ServerState()
        self.metrics = metrics = Metrics()
        self.registry = registry = Registry()
        self.storage: Storage = SqliteStorage(folder.journal)
        storage = self.storage
        self._thread = thread = BackgroundThread()
        self._decoding = threads = ThreadPoolExecutor(2, thread_name_prefix="decode")
        self._batcher = batcher = Batcher(config.batching, config.predictor, metrics)
        self.trainer = trainer = TrainerProcess(folder.path, storage.example_source(), config.trainer, config.log)
        self._teaching_thread = BackgroundThread("teach", config.teaching.niceness)
        self._teaching = teaching = Teaching(config.teaching, storage, self._teaching_thread, _loader(config, folder))
        publisher = Publisher(config, folder, storage, thread, teaching)
        self._consolidation = consolidation = Consolidation(
            config.teaching, teaching, publisher, registry, lambda: self._scheduler.wake()
        )
        aftermath = Aftermath(
            config.trainer,
            folder,
            storage,
            publisher,
            thread,
            metrics,
            lambda report, summary: events.statistics(report, summary).SerializeToString(),
            teaching,
        )
        self._scheduler = scheduler = Scheduler(config, folder, storage, registry, aftermath, trainer, metrics)
        damage = DamageLog(storage, metrics)
        forgetting = Forgetting(config, folder, storage, publisher, scheduler, thread, metrics, teaching)
        restoring = Restoring(folder, storage, publisher, scheduler, forgetting, damage, thread)
        lifecycle = Lifecycle(config, folder, storage, registry, scheduler, batcher, thread, teaching)
        snapshots = Snapshots(limits, folder, storage, damage, thread, consolidation)
        importing = Importing(config, folder, state, registry, lifecycle, restoring, snapshots, thread)
        parked = ParkedEpisodes(storage, scheduler, metrics, teaching)
        self._start_up = StartUp(config, folder, storage, registry, publisher, restoring, damage, thread, teaching)
        metrics.watch(LearnerGauges(registry, lambda: trainer.pid, folder.free_bytes))

        decoder = InputDecoder(limits, threads)

        async def decode(batch: learning_pb2.Batch, served: ServedLearner) -> tuple[Examples, list[Label]]:
            examples = await decoder.examples(batch.inputs, served.input_spec)
            return examples, labels_of(batch.labels, served.label_kind, len(examples.x))

        tools = SessionTools(limits, storage, metrics, threads, decode, scheduler.wake, teaching.batches_arrived)
        operations = Operations(lifecycle, forgetting, restoring, snapshots, importing, parked)
        status = ServerStatus(config, folder, state, storage, registry, scheduler, trainer)
        lessons = Lessons(limits, storage, teaching, metrics)
        self.learning = LearningService(limits, state, registry, lifecycle, storage, tools, lessons, decoder)
        self.prediction = PredictionService(limits, state, registry, batcher, decoder)
        self.admin = AdminService(limits, state, registry, operations, status)
        self.inference = inference = InferenceService(limits, state, registry, batcher, decoder)
        self.http = HttpParts(
            config, state, metrics, registry, operations, status, batcher, decoder, inference, lessons
        )

    async def load(self) -> None:
        """Take up everything that is in the data folder, then begin to train and to serve."""
        await self._start_up.load()
        self._scheduler.start()
        self._consolidation.start()
        self.state.begin_serving()

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
        self._teaching.close()
        await self.storage.close()
        self._batcher.close()
        self._thread.close()
        self._teaching_thread.close()
        self._decoding.shutdown(wait=False, cancel_futures=True)


def _loader(config: ServerConfig, folder: DataFolder) -> Loader:
    """How teaching gets at the learner of the version that serves, or at a new one."""

    def load(served: Teachable) -> Learner:
        device = config.predictor.device
        if served.head is None:
            return Learner(served.config.with_options({"device": device}))
        name, sha256 = served.head
        return load_learner(folder.snapshot(served.uid, name), sha256, device)

    return load
