"""One life of the server, from its start to its crash or its end; and the network, over which clients reach it.

The whole composition root is real, with storage, trainer and predictor's thread in virtual time. Calls end at the real
services, without gRPC in between: messages take a while, keep their order, and are lost with the server.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc

from reliability.simulation.loop import LIFE
from reliability.simulation.shared_disk import SharedSimulatedStorage
from reliability.simulation.storage import SimulatedStorage
from reliability.simulation.teacher import InProcessTeacher
from reliability.simulation.trainer import SimulatedTrainer
from reliability.simulation.world import World
from sharp.v1 import learning_pb2
from sharp_server.api.errors import answer_for
from sharp_server.config.model import DataConfig, ServerConfig
from sharp_server.context import Makers, ServerContext
from sharp_server.errors import RpcError
from sharp_server.prediction.batcher import Batcher, _Lane
from sharp_server.storage.data_folder import DataFolder
from sharp_server.storage.interface import Storage


class UnavailableError(Exception):
    """Nobody is there, or nobody is any more: what became of the call is not known."""


class RefusedError(Exception):
    """The server refused, with a status as a client sees it."""

    def __init__(self, code: grpc.StatusCode, reason: str, text: str) -> None:
        super().__init__(f"{code.name} {reason}: {text}")
        self.code, self.reason, self.text = code, reason, text


def as_seen(error: BaseException) -> Exception:
    """What a client sees of an exception in the server."""
    answer = answer_for(error)
    return RefusedError(answer.code, answer.reason, error.message if isinstance(error, RpcError) else repr(error))


class _SimulatedBatcher(Batcher):
    """The predictor's thread as events of the loop."""

    def _announce(self, lane: _Lane) -> None:
        if not lane.announced:
            lane.announced = True
            self._loop.call_later(self._loop.delay(), self._serve, lane)  # type: ignore[attr-defined]


class Server:
    """One life."""

    def __init__(self, world: World, config: ServerConfig, life: int, owner: str = "") -> None:
        """`owner`: the name of this start of it, where it shares the journal with others."""
        self._world, self.life, self.owner = world, life, owner
        self._folder = DataFolder(Path(config.data.folder))
        self._folder.acquire()
        self._context = contextvars.copy_context()
        self._context.run(LIFE.set, life)
        trainer = type("Trainer", (SimulatedTrainer,), {"world": world})
        makers = Makers(self._storage, _SimulatedBatcher, trainer, InProcessTeacher)
        self.parts: ServerContext = self._context.run(ServerContext, config, self._folder, owner, makers)
        self._context.run(self.parts.trainer.launch)
        self.loading = self.run(self.parts.load())
        self.pending: set[asyncio.Future[Any]] = set()
        """What clients wait for."""
        self.there = True

    def _storage(self, config: DataConfig, folder: DataFolder, owner: str) -> Storage:
        return SharedSimulatedStorage(self._world, folder, owner) if owner else SimulatedStorage(self._world, folder)

    @property
    def trainer(self) -> SimulatedTrainer:
        """Its trainer."""
        assert isinstance(self.parts.trainer, SimulatedTrainer)
        return self.parts.trainer

    @property
    def serving(self) -> bool:
        """Whether it takes calls."""
        return self.there and self.parts.state.serving

    def run(self, work: Any) -> asyncio.Task[Any]:
        """Run something as part of it."""
        return self._world.loop.create_task(work, context=self._context.copy())

    def crash(self) -> None:
        """SIGKILL: nothing of it happens any more; what is on disk stays."""
        self.there = False
        self._world.loop.end_life(self.life)
        self.trainer.drop()
        self.parts._batcher.close()
        self._folder.release()
        for waiting in self.pending:
            if not waiting.done():
                waiting.set_exception(UnavailableError("the server died"))

    async def stop(self) -> None:
        """SIGTERM: what is under way has a moment to end."""
        self.parts.begin_stop()
        await asyncio.sleep(self._world.loop.delay())
        await self.run(self.parts.close())
        self.crash()


class Network:
    """Leads to whatever server is there."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.server: Server | None = None

    async def there(self) -> Server:
        """The server that a call reaches after a while, or nobody."""
        await asyncio.sleep(self._world.loop.delay())
        if self.server is None or not self.server.serving:
            raise UnavailableError("nobody is there")
        return self.server

    async def call(self, method: Callable[[ServerContext], Awaitable[Any]], patience: float | None = None) -> Any:
        """A unary call; whoever loses patience leaves, and does not know what becomes of it."""
        server = await self.there()
        waiting: asyncio.Future[Any] = self._world.loop.create_future()
        task = server.run(method(server.parts))

        def ended(done: asyncio.Task[Any]) -> None:
            if waiting.done():
                done.cancelled() or done.exception()
            elif done.cancelled():
                waiting.set_exception(UnavailableError("the call was cancelled"))
            elif (error := done.exception()) is not None:
                waiting.set_exception(as_seen(error))
            else:
                waiting.set_result(done.result())

        task.add_done_callback(ended)
        server.pending.add(waiting)
        try:
            answer = await (waiting if patience is None else asyncio.wait_for(waiting, patience))
        except TimeoutError:
            task.cancel()
            raise UnavailableError("the client lost patience") from None
        finally:
            server.pending.discard(waiting)
        await asyncio.sleep(self._world.loop.delay())
        if not server.there:
            raise UnavailableError("the answer was lost")
        return answer


class LearnCall:
    """A Learn call: the server's `context` on one side, a client's on the other."""

    def __init__(self, world: World, server: Server) -> None:
        self._loop = world.loop
        self._server = server
        self._requests: asyncio.Queue[Any] = asyncio.Queue()
        self._answers: asyncio.Queue[Any] = asyncio.Queue()
        self._last = [0.0, 0.0]
        self._task = server.run(server.parts.learning.Learn(None, self))
        self._task.add_done_callback(self._ended)
        self._over: asyncio.Future[Any] = self._loop.create_future()
        self._over.add_done_callback(lambda over: self._answers.put_nowait(over.exception()))
        server.pending.add(self._over)

    def _later(self, side: int, put: Callable[[Any], None], message: Any) -> None:
        self._last[side] = self._loop.arrival(self._last[side])
        self._loop.call_at(self._last[side], put, message)

    def _ended(self, done: asyncio.Task[Any]) -> None:
        error = None if done.cancelled() else done.exception()
        end = UnavailableError("the call is over") if error is None else as_seen(error)
        self._later(1, self._finish, end)

    def _finish(self, end: Exception) -> None:
        if not self._over.done():
            self._over.set_exception(end)

    # ---- the server's side ------------------------------------------------------------------------------------------

    async def read(self) -> Any:
        """The next request."""
        return await self._requests.get()

    async def write(self, answer: learning_pb2.LearnResponse) -> None:
        """Send an answer."""
        self._later(1, self._answers.put_nowait, answer)

    # ---- the client's side ------------------------------------------------------------------------------------------

    def send(self, request: learning_pb2.LearnRequest) -> None:
        """Send a request."""
        self._later(0, self._requests.put_nowait, request)

    def half_close(self) -> None:
        """There will be no more."""
        self._later(0, self._requests.put_nowait, grpc.aio.EOF)

    async def receive(self) -> learning_pb2.LearnResponse:
        """The next answer; raises what ended the call."""
        answer = await self._answers.get()
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, learning_pb2.LearnResponse)
        return answer

    def leave(self) -> None:
        """Cut the connection."""
        self._server.pending.discard(self._over)
        self._task.cancel()
