"""The entry point: makes the process ready for signals, then loads what is heavy and serves.

Must stay light: torch and gRPC are imported only after SIGTERM has a handler, and after the caller had its chance to
set the environment that they read once.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from typing import NoReturn

from sharp_server.config.model import ServerConfig


def run(config: ServerConfig, announce_json: bool = False) -> NoReturn:
    """Serve until SIGTERM or SIGINT, then end the process. The line on stdout with the ports may be JSON."""
    # Until there is something to drain, SIGTERM just ends it; without this, process 1 of a container would not hear it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if config.cluster.ray:
        from sharp_server.cluster.ray_cluster import serve_on_ray as serve
    else:
        from sharp_server.server import serve

    code = serve(config, announce_json)
    # Everything is closed and on disk. What is left is to take torch and gRPC apart, which takes long and helps nobody.
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
