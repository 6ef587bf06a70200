"""`sharp serve`: a server in this terminal. Its flags are the settings of the server."""

from __future__ import annotations

import inspect
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from sharp_cli import connection
from sharp_cli.output import console, table, write_json

MISSING = "the server is not installed here ({missing} is missing): pip install 'sharp-serve[server]'"


def make_command() -> Callable[..., None]:
    """Make the function behind the command, one parameter per setting of the server."""
    try:
        from sharp_server import config_options
    except ImportError as missing:
        return _stand_in(str(missing.name))
    options = config_options()
    # Settings of the HTTP port go by their full names: `--port` is the one of the gRPC services.
    last_parts = Counter(option.name.rpartition(".")[2] for option in options if not option.name.startswith("http."))
    names = {option.name.replace(".", "_"): option.name for option in options}
    parameters = [
        inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context),
        _parameter("config", Path | None, "--config", "-c", envvar="SHARP_CONFIG", help="TOML file of settings."),
        _parameter("print_config", bool, "--print-config", default=False, help="Show each value and its source."),
    ]
    for option in options:
        section, _, last = option.name.partition(".")
        words = [last, option.name] if last_parts[last] == 1 and section != "http" else [option.name]
        if option.name == "cluster.ray":  # what the others of its section are about
            words = ["cluster", option.name]
        flags = ["--" + word.replace(".", "-").replace("_", "-") for word in words]
        if option.type is bool:
            flags = [f"{flag}/--no-{flag[2:]}" for flag in flags]
        default = f"default {option.default}; " if option.default != "" else ""
        shown = f"{option.help} ({default}env {option.variable})"
        kind = bool | None if option.type is bool else str | None
        group = {"rich_help_panel": f"Settings: {section}", "show_default": False}
        if option.type is not bool:
            group["metavar"] = option.type.__name__.upper()
        parameters.append(_parameter(option.name.replace(".", "_"), kind, *flags, help=shown, **group))

    def serve(ctx: typer.Context, config: Path | None, print_config: bool, **flags: Any) -> None:
        """Serve learners until stopped."""
        given = {names[key]: str(value) for key, value in flags.items() if value is not None}
        _serve(connection.of(ctx).json, given, config, print_config)

    serve.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    serve.__annotations__ = {}
    return serve


def _parameter(name: str, kind: Any, *flags: str, default: Any = None, **options: Any) -> inspect.Parameter:
    annotation = Annotated[kind, typer.Option(*flags, **options)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _serve(as_json: bool, flags: dict[str, str], config: Path | None, print_config: bool) -> None:
    from sharp_server import ConfigurationError, resolve_config
    from sharp_server.run import run

    try:
        resolved = resolve_config(flags, os.environ, config)
    except ConfigurationError as error:
        typer.echo(f"sharp: {error}", err=True)
        raise typer.Exit(2) from None
    if print_config:
        if as_json:
            write_json({name: {"value": value, "source": source} for name, value, source in resolved.rows()})
        else:
            rows = [[name, repr(value), source] for name, value, source in resolved.rows()]
            console().print(table("setting", "value", "source", rows=rows))
        return
    try:
        run(resolved.config, announce_json=as_json)
    except ImportError as missing:
        typer.echo(f"sharp: {MISSING.format(missing=missing.name)}", err=True)
        raise typer.Exit(1) from None


def _stand_in(missing: str) -> Callable[..., None]:
    def serve() -> None:
        """Serve learners until stopped."""
        typer.echo(f"sharp: {MISSING.format(missing=missing)}", err=True)
        raise typer.Exit(1)

    return serve
