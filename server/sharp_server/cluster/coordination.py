"""The composition root of a coordinator: the board in the database, and health checks of the servers as its probe."""

from __future__ import annotations

import asyncio
import logging

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]

from sharp_server.cluster.coordinator import Coordinator
from sharp_server.cluster.peers import Peers
from sharp_server.config.model import ServerConfig
from sharp_server.errors import StoreUnavailable
from sharp_server.storage.board import Server
from sharp_server.storage.postgres.board import PostgresBoard

log = logging.getLogger(__name__)

_SECONDS_TO_ANSWER = 1.0
_SECONDS_BETWEEN_TRIES = 1.0


async def coordinate(config: ServerConfig) -> None:
    """Coordinate the servers on a store until cancelled; a database that is away is waited for."""
    board, peers = PostgresBoard(config.data.store), Peers(config.trust, config.cluster)
    try:
        while True:
            try:
                await board.open()
                break
            except StoreUnavailable as error:
                log.warning("the database is away: %s", error)
                await asyncio.sleep(_SECONDS_BETWEEN_TRIES)
        await Coordinator(board, HealthProbe(peers), config.cluster.replicas_for).run()
    finally:
        await peers.close()
        await board.close()


class HealthProbe:
    """Asks for a server's health, as `grpc.health.v1` has it: it lives as long as it answers at all."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    async def __call__(self, server: Server) -> bool:
        """Whether it answers, within a second or so."""
        channel = await self._peers.channel(server.address)
        if channel is None:
            return False
        check = health_pb2_grpc.HealthStub(channel).Check
        try:
            await check(health_pb2.HealthCheckRequest(), timeout=_SECONDS_TO_ANSWER)
        except grpc.aio.AioRpcError:
            return False
        return True
