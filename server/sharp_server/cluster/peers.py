"""Connections to the other servers of the cluster: one channel each, with TLS where this server has it."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import grpc

from sharp_server.config.model import ClusterConfig, TrustConfig

_SECONDS_TO_CONNECT = 1.0
"""After this long a server that can't be reached is away."""
_OPTIONS: list[tuple[str, Any]] = [
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # A server whose link is cut sends nothing, not even that it is gone: a ping that is not answered says so.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 3_000),
]


class Peers:
    """Channels by address; belongs to the event loop."""

    def __init__(self, trust: TrustConfig, cluster: ClusterConfig) -> None:
        self._credentials = _credentials(trust, cluster)
        self._channels: dict[str, grpc.aio.Channel] = {}

    async def channel(self, address: str) -> grpc.aio.Channel | None:
        """A channel that is connected; None: the server can't be reached."""
        channel = self._channels.get(address)
        if channel is None:
            if self._credentials is None:
                channel = grpc.aio.insecure_channel(address, _OPTIONS)
            else:
                channel = grpc.aio.secure_channel(address, self._credentials, _OPTIONS)
            self._channels[address] = channel
        if channel.get_state(try_to_connect=True) is not grpc.ChannelConnectivity.READY:
            try:
                await asyncio.wait_for(channel.channel_ready(), _SECONDS_TO_CONNECT)
            except TimeoutError:
                return None
        return channel

    async def close(self) -> None:
        """End all connections."""
        for channel in self._channels.values():
            with contextlib.suppress(Exception):
                await channel.close()


def _credentials(trust: TrustConfig, cluster: ClusterConfig) -> grpc.ChannelCredentials | None:
    if not trust.certificate:
        return None
    authority = Path(cluster.ca).read_bytes() if cluster.ca else None
    return grpc.ssl_channel_credentials(authority, Path(trust.key).read_bytes(), Path(trust.certificate).read_bytes())
