"""SHARP Serve's server: learners that learn from streams and answer at the same time, over gRPC.

`resolve_config` and `config_options` make a config; `sharp_server.run.run` serves until it gets SIGTERM or SIGINT.
"""

from __future__ import annotations

from sharp_server.config.model import ConfigurationError, ServerConfig
from sharp_server.config.sources import Option, Resolved, config_options, resolve_config

__all__ = ["ConfigurationError", "Option", "Resolved", "ServerConfig", "config_options", "resolve_config"]
