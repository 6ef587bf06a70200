"""The entry point: makes the process ready for signals, then loads what is heavy and serves.

Must stay light: torch and gRPC are imported only after SIGTERM has a handler, and after the caller had its chance to
set the environment that they read once.
"""

from __future__ import annotations

import signal
import sys

from sharp_server.config.model import ServerConfig


def run(config: ServerConfig, announce_json: bool = False) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code. The line on stdout with the ports may be JSON."""
    # Until there is something to drain, SIGTERM just ends it; without this, process 1 of a container would not hear it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    from sharp_server.server import serve

    return serve(config, announce_json)
