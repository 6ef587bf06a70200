"""The `sharp` command's entry point: one app, to which every module of commands adds its own.

It must start fast: what is heavy (torch, scikit-learn, the benchmarks) is imported when a command runs, never here.
"""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Annotated

import typer

from sharp_cli import classes, episode, health, learn, learner, predict, serve, snapshot, status, teach, watch
from sharp_cli.benchmark import app as benchmark
from sharp_cli.connection import Connection
from sharp_cli.failures import OneLineFailures
from sharp_client import Tls, read_address

app = typer.Typer(
    name="sharp",
    cls=OneLineFailures,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def sharp(
    ctx: typer.Context,
    address: Annotated[
        str,
        typer.Option("--address", "-a", envvar="SHARP_ADDRESS", help="Where the server listens, host:port."),
    ] = "localhost:50051",
    token_file: Annotated[
        Path | None, typer.Option(envvar="SHARP_TOKEN_FILE", help="File of the bearer token.", dir_okay=False)
    ] = None,
    tls: Annotated[bool, typer.Option("--tls", envvar="SHARP_TLS", help="Use TLS with the system's CAs.")] = False,
    ca_file: Annotated[
        Path | None, typer.Option(envvar="SHARP_CA_FILE", help="CAs that vouch for the server (PEM); implies --tls.")
    ] = None,
    cert_file: Annotated[
        Path | None, typer.Option(envvar="SHARP_CERT_FILE", help="Our own certificate, for mutual TLS (PEM).")
    ] = None,
    key_file: Annotated[Path | None, typer.Option(envvar="SHARP_KEY_FILE", help="Its key (PEM).")] = None,
    server_name: Annotated[
        str | None, typer.Option(envvar="SHARP_SERVER_NAME", help="Name that the server's certificate must have.")
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Send the token without TLS, also to other machines.")
    ] = False,
    timeout: Annotated[float, typer.Option(min=0.001, help="Seconds for one call.")] = 60.0,
    json: Annotated[bool, typer.Option("--json", help="Answer in JSON, one document per line.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    """A classifier that keeps learning: new classes today without forgetting yesterday's.

    The options here may also come after the command.
    """
    if version:
        typer.echo(importlib.metadata.version("sharp-serve"))
        raise typer.Exit()
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())
        raise typer.Exit(2)
    ctx.obj = Connection(address=address)  # for words about an address that is none
    server = read_address(address)
    uses_tls = tls or server.tls or any(file is not None for file in (ca_file, cert_file, key_file))
    ctx.obj = Connection(
        address=server.target,
        token_file=token_file,
        tls=Tls(ca_file, cert_file, key_file, server_name) if uses_tls else None,
        insecure=insecure,
        timeout=timeout,
        json=json,
    )


app.command("serve")(serve.make_command())
app.command()(learn.learn)
app.command()(teach.teach)
app.command()(teach.correct)
app.command()(predict.predict)
app.command()(predict.evaluate)
app.command()(status.status)
app.command()(health.health)
app.command()(watch.watch)
app.add_typer(learner.app, name="learner")
app.add_typer(snapshot.app, name="snapshot")
app.add_typer(episode.app, name="episode")
app.add_typer(classes.app, name="class")
app.add_typer(benchmark, name="benchmark")

if __name__ == "__main__":
    app()
