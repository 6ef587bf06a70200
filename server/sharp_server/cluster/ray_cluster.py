"""`sharp serve --cluster ADDRESS`: a keeper on every machine of a Ray cluster that has the resource `sharp`.

Ray places one detached actor per machine and one coordinator, and starts them again. Nothing that is served or learned
goes through it, so when its head is gone everything goes on but the placing. Only texts and numbers go over its wire.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sharp_server.cluster.coordination import coordinate
from sharp_server.cluster.keeper import Keeper, changed_settings
from sharp_server.config.model import ConfigurationError, ServerConfig
from sharp_server.config.sources import resolve_config
from sharp_server.runtime import logs

log = logging.getLogger(__name__)

NAMESPACE = "sharp"
COORDINATOR = "coordinator"
RESOURCE = "sharp"
_HEAD = "node:__internal_head__"
"""Ray's own resource, of its head. The coordinator is there: a machine that is lost does not take it along, and while
the head is lost nothing could be placed anyway."""
_SECONDS_BETWEEN_LOOKS = 2.0
_SECONDS_TO_START = 180.0


class KeeperActor:
    """A keeper, as Ray runs it."""

    def __init__(self, node: str, settings: Mapping[str, str]) -> None:
        logs.set_up(_config(settings).log)
        folder = Path(settings.get("data.folder", ServerConfig().data.folder)).absolute() / node
        self._keeper = Keeper(node, {**settings, "cluster.advertise": node}, folder)
        self._keeper.start()

    def state(self) -> dict[str, object]:
        """What is known of its server."""
        return self._keeper.state()

    def stop(self) -> None:
        """End its server."""
        self._keeper.stop()


class CoordinatorActor:
    """The coordinator, as Ray runs it, which also puts keepers on machines as they come."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        config = _config(settings)
        logs.set_up(config.log)
        self._settings = dict(settings)
        self._keepers: dict[str, tuple[str, Any]] = {}
        """By address: Ray's name for this life of the machine, and its keeper."""
        self._stop = threading.Event()
        threading.Thread(target=self._coordinate, args=(config,), name="coordinator", daemon=True).start()
        threading.Thread(target=self._place_keepers, name="keepers", daemon=True).start()

    def keepers(self) -> list[str]:
        """Nodes that have a keeper."""
        return sorted(self._keepers)

    def stop(self) -> None:
        """End all servers, and place no more."""
        self._stop.set()
        keepers = [keeper for _, keeper in self._keepers.values()]
        ray.get([keeper.stop.remote() for keeper in keepers])
        for keeper in keepers:
            ray.kill(keeper)

    def _coordinate(self, config: ServerConfig) -> None:
        while not self._stop.is_set():
            try:
                asyncio.run(coordinate(config))
            except Exception:
                log.exception("coordinating failed, and begins again")
                time.sleep(_SECONDS_BETWEEN_LOOKS)

    def _place_keepers(self) -> None:
        """Ray is asked in a thread of its own: while its head is gone, it does not answer."""
        while not self._stop.wait(_SECONDS_BETWEEN_LOOKS):
            try:
                for node in _machines():
                    self._keep(node["NodeManagerAddress"], node["NodeID"])
            except Exception as error:
                log.warning("Ray's machines could not be looked at: %s", error)

    def _keep(self, address: str, node: str) -> None:
        """A keeper for a machine, of this life of it: Ray does not move it elsewhere."""
        if self._keepers.get(address, ("", None))[0] == node:
            return
        actor = ray.remote(KeeperActor).options(
            name=f"keeper-{node}",
            namespace=NAMESPACE,
            lifetime="detached",
            get_if_exists=True,
            max_restarts=-1,
            num_cpus=0,
            resources={RESOURCE: 0.001},
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
        )
        self._keepers[address] = node, actor.remote(address, self._settings)
        log.info("a keeper was put on %s", address)


def _machines() -> list[dict[str, Any]]:
    """The machines that are there and may have a server."""
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return [node for node in nodes if node["Alive"] and node["Resources"].get(RESOURCE)]


def _config(settings: Mapping[str, str]) -> ServerConfig:
    """The config of a coordinator: that of its servers, which are in no cluster of Ray's as far as they know."""
    return resolve_config(dict(settings), {}).config


def serve_on_ray(config: ServerConfig, announce_json: bool = False) -> int:
    """Put keepers on all machines of a Ray cluster, which start their servers, and leave them alone."""
    logs.set_up(config.log)
    if not (config.data.store and config.data.objects):
        raise ConfigurationError("servers of a cluster share a journal and versions: give data.store and data.objects")
    settings = changed_settings(config)
    address = settings.pop("cluster.ray")
    ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.WARNING)
    try:
        coordinator: Any = (
            ray.remote(CoordinatorActor)
            .options(
                name=COORDINATOR,
                namespace=NAMESPACE,
                lifetime="detached",
                get_if_exists=True,
                max_restarts=-1,
                num_cpus=0,
                resources={_HEAD: 0.001},
            )
            .remote(settings)
        )
        machines = {str(node["NodeManagerAddress"]) for node in _machines()}
        deadline = time.monotonic() + _SECONDS_TO_START
        while not machines <= set(ray.get(coordinator.keepers.remote())):
            if time.monotonic() > deadline:
                log.error("not every machine has a keeper after %.0f s", _SECONDS_TO_START)
                return 1
            time.sleep(0.2)
        nodes = sorted(machines)
        line = f"sharp serves on {len(nodes)} machines: {', '.join(nodes)}"
        sys.stdout.write((json.dumps({"event": "serving", "nodes": nodes}) if announce_json else line) + "\n")
        return 0
    finally:
        ray.shutdown()


def stop_on_ray(address: str) -> None:
    """End all servers of a cluster, and its coordinator."""
    ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.WARNING)
    try:
        coordinator = ray.get_actor(COORDINATOR, NAMESPACE)
        ray.get(coordinator.stop.remote())
        ray.kill(coordinator)
    finally:
        ray.shutdown()
