"""Every setting of the server, and where its values come from.

`model` is one tree of frozen dataclasses; `sources` reads flags, environment and file into it. It must never read the
process's environment by itself, and imports nothing of the server.
"""

from sharp_server.config.model import ConfigurationError, ServerConfig
from sharp_server.config.sources import Option, Resolved, config_options, resolve_config

__all__ = ["ConfigurationError", "Option", "Resolved", "ServerConfig", "config_options", "resolve_config"]
