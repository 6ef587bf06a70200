"""`python -m sharp_server.cluster [--set section.name=value …]`: the coordinator by itself, where there is no Ray."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys

from sharp_server.cluster.coordination import coordinate
from sharp_server.config.model import ConfigurationError
from sharp_server.config.sources import resolve_config
from sharp_server.runtime import logs


def main(arguments: list[str]) -> int:
    """Read the settings, as a server does, and coordinate until SIGTERM."""
    remaining, flags = list(arguments), {}
    while len(remaining) > 1 and remaining[0] == "--set" and "=" in remaining[1]:
        name, _, value = remaining[1].partition("=")
        flags[name] = value
        del remaining[:2]
    if remaining:
        sys.stderr.write(f"{__doc__}\nnot understood: {remaining[0]}\n")
        return 2
    try:
        config = resolve_config(flags, os.environ, os.environ.get("SHARP_CONFIG")).config
    except ConfigurationError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    logs.set_up(config.log)

    async def work() -> None:
        task = asyncio.ensure_future(coordinate(config))
        for name in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(name, task.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(work())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
