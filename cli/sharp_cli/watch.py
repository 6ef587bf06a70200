"""`sharp watch`: a learner, live."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.live import Live

from sharp_cli import connection
from sharp_cli.connection import LearnerOption
from sharp_cli.output import console, write_json
from sharp_cli.plain import to_plain
from sharp_cli.watch_view import WatchView
from sharp_client import Retry


def watch(
    ctx: typer.Context,
    learner: LearnerOption = None,
    interval: Annotated[float, typer.Option(min=0.1, help="Shortest time between two looks, in seconds.")] = 0.5,
    once: Annotated[bool, typer.Option("--once", help="Show one moment and exit.")] = False,
) -> None:
    """Watch a learner live: units by rank, idle capacity left, memories, backlog, throughput. Ctrl-C ends it."""
    options = connection.of(ctx)
    with options.connect() as client:
        chosen = connection.choose_learner(client, learner)
    # A server that restarts takes a while: keep trying where a single call would give up.
    with options.connect(Retry(attempts=60)) as client:
        updates = client.watch_learner(chosen.name, min_interval=interval)
        view, out = WatchView(chosen.name), console()
        try:
            if options.json:
                for update in updates:
                    write_json(to_plain(update))
                    if once:
                        return
            elif once:
                view.update(next(updates))
                out.print(view.render(out.width, out.height if out.is_terminal else None))
            else:
                with Live(console=out, refresh_per_second=8) as live:
                    for update in updates:
                        view.update(update)
                        live.update(view.render(out.width, out.height), refresh=True)
        except KeyboardInterrupt:
            return
