"""`python -m sharp_server [--set section.name=value …] [--config FILE] [--print-config]`: a plain way to start."""

from __future__ import annotations

import os
import sys

from sharp_server import ConfigurationError, resolve_config
from sharp_server.run import run


def main(arguments: list[str]) -> int:
    """Read the arguments and serve."""
    flags: dict[str, str] = {}
    toml: str | None = os.environ.get("SHARP_CONFIG")
    show = False
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "--print-config":
            show = True
        elif word == "--config" and rest:
            toml = rest.pop(0)
        elif word == "--set" and rest and "=" in rest[0]:
            key, _, given = rest.pop(0).partition("=")
            flags[key] = given
        else:
            sys.stderr.write(f"{__doc__}\nnot understood: {word}\n")
            return 2
    try:
        resolved = resolve_config(flags, os.environ, toml)
    except ConfigurationError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    if show:
        for name, value, source in resolved.rows():
            sys.stdout.write(f"{name} = {value!r}  # {source}\n")
        return 0
    # gRPC's own core writes to stderr in a form of its own. It reads this once, when grpc is first imported.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    run(resolved.config)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
