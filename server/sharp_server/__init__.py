"""SHARP Serve's server: learners that learn from streams and answer at the same time, over gRPC.

`resolve_config` and `config_options` make a config; `run` serves until it is told to stop.
"""

from __future__ import annotations

import signal
import sys

from sharp_server.config import ConfigurationError, ServerConfig
from sharp_server.options import Option, Resolved, config_options, resolve_config

__all__ = ["ConfigurationError", "Option", "Resolved", "ServerConfig", "config_options", "resolve_config", "run"]


def run(config: ServerConfig, announce_json: bool = False) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code. The line on stdout that tells the ports may be JSON."""
    # Until there is something to drain, SIGTERM just ends it; without this, process 1 of a container would not hear it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    from sharp_server.main import run as serve

    return serve(config, announce_json)
