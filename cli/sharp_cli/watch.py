"""`sharp watch`: a learner as it lives."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.live import Live

from sharp_cli import connection
from sharp_cli.output import console, write_json
from sharp_cli.plain import to_plain
from sharp_cli.predict import LearnerOption
from sharp_cli.watch_view import WatchView
from sharp_client import Retry


def watch(
    ctx: typer.Context,
    learner: LearnerOption = None,
    interval: Annotated[float, typer.Option(min=0.1, help="Shortest time between two looks, in seconds.")] = 0.5,
    once: Annotated[bool, typer.Option("--once", help="Show one moment and leave.")] = False,
) -> None:
    """Watch a learner live: units by rank, idle capacity left, memories, backlog, throughput. Ctrl-C leaves."""
    options = connection.of(ctx)
    with options.connect() as client:
        chosen = connection.choose_learner(client, learner)
    # A server that is started again takes a while: go on where a single call would give up.
    with options.connect(Retry(attempts=60)) as client:
        messages = client.watch_learner(chosen.name, min_interval=interval)
        view, out = WatchView(chosen.name), console()
        try:
            if options.json:
                for message in messages:
                    write_json(to_plain(message))
                    if once:
                        return
            elif once:
                view.take(next(messages))
                out.print(view.render(out.width))
            else:
                with Live(console=out, refresh_per_second=8) as live:
                    for message in messages:
                        view.take(message)
                        live.update(view.render(out.width), refresh=True)
        except KeyboardInterrupt:
            return
