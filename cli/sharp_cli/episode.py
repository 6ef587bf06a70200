"""`sharp episode …`: the episodes that could not be learned."""

from __future__ import annotations

from typing import Annotated

import typer

from sharp_cli import connection
from sharp_cli.connection import LearnerOption
from sharp_cli.output import console, size, table, write_json
from sharp_cli.plain import to_plain

app = typer.Typer(no_args_is_help=True, help="List, retry and discard episodes that could not be learned.")

EpisodeArgument = Annotated[int, typer.Argument(metavar="EPISODE", min=1, help="Number of the episode.")]


@app.command("list")
def list_parked(ctx: typer.Context, learner: LearnerOption = None) -> None:
    """List the episodes that could not be learned, and why."""
    options = connection.of(ctx)
    with options.connect() as client:
        chosen = connection.choose_learner(client, learner)
        episodes = chosen.parked()
    if options.json:
        write_json({"learner": chosen.name, "episodes": to_plain(episodes)})
        return
    if not episodes:
        console().print(f"no episode of {chosen.name} is parked")
        return
    rows = [
        [
            episode.episode,
            episode.parked.reason.replace("_", " "),
            episode.parked.detail,
            episode.parked.attempts,
            episode.examples,
            size(episode.size_bytes),
            episode.stream_id,
        ]
        for episode in episodes
    ]
    heads = ("episode", "reason", "detail", "attempts", "examples", "size", "stream")
    console().print(table(*heads, rows=rows, numbers=("episode", "attempts", "examples", "size")))


@app.command()
def retry(ctx: typer.Context, episode: EpisodeArgument, learner: LearnerOption = None) -> None:
    """Put a parked episode back in the queue."""
    options = connection.of(ctx)
    with options.connect() as client:
        chosen = connection.choose_learner(client, learner)
        answer = chosen.retry(episode)
    if options.json:
        write_json({"learner": chosen.name, "episode": episode, **to_plain(answer)})
    else:
        console().print(f"episode {episode} is back in the queue, {answer.episodes_ahead} ahead of it")


@app.command()
def discard(ctx: typer.Context, episode: EpisodeArgument, learner: LearnerOption = None) -> None:
    """Give up a parked episode and delete its examples."""
    options = connection.of(ctx)
    with options.connect() as client:
        chosen = connection.choose_learner(client, learner)
        answer = chosen.discard(episode)
    if options.json:
        write_json({"learner": chosen.name, "episode": episode, **to_plain(answer)})
    else:
        console().print(f"discarded episode {episode} with {answer.examples:,} examples")
