"""Failures as one clear line and an exit code, never a traceback; and options that may come after the command."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from sharp_client import AuthenticationError, SharpError, UnavailableError

HOISTED_FLAGS = frozenset({"--json", "--insecure", "--tls"})
"""Options of `sharp` itself that may also come after the command."""

HOISTED_OPTIONS = frozenset(
    {"--address", "-a", "--token-file", "--ca-file", "--cert-file", "--key-file", "--server-name", "--timeout"}
)
"""The same, followed by a value."""

OWN_OPTIONS = {"serve": frozenset({"--json"}), "benchmark": frozenset[str]()}
"""Commands with options of the same names, and what is hoisted there nevertheless."""


def explain(error: Exception) -> str:
    """Explain in one line what went wrong, and what may help."""
    text = str(error).strip() or type(error).__name__
    if isinstance(error, UnavailableError) and not error.reason:
        cause = text.rpartition(": ")[2].strip(" ])").lower()  # the rest is gRPC's own list of all its attempts
        text = f"no server answers ({cause}): is it running, is --address right, does it need TLS (--ca-file)?"
    elif isinstance(error, AuthenticationError):
        text = f"{text} (give the token with --token-file)"
    elif isinstance(error, OSError) and not isinstance(error, SharpError):
        text = f"{error.strerror or text}{f': {error.filename}' if error.filename else ''}"
    delay = getattr(error, "retry_delay", None)
    if delay:
        text += f" (try again in {delay:g} s)"
    return " ".join(text.split())


class OneLineFailures(TyperGroup):
    """The group of all commands: turns failures into a line and exit code 1."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Bring the options of `sharp` itself to the front."""
        return super().parse_args(ctx, hoist(args))

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # The reader of our output closed it. Python would complain once more at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(1) from None
        except (SharpError, OSError, ValueError) as error:
            typer.echo(f"sharp: {explain(error)}", err=True)
            raise typer.Exit(1) from None


def hoist(args: Sequence[str]) -> list[str]:
    """Move the options of `sharp` itself before the command.

    >>> hoist(["status", "--json", "--address", "host:1"])
    ['--json', '--address', 'host:1', 'status']
    >>> hoist(["serve", "--token-file", "tokens", "--json"])
    ['--json', 'serve', '--token-file', 'tokens']
    """
    front: list[str] = []
    rest: list[str] = []
    command = _command(args)
    allowed = OWN_OPTIONS.get(command, HOISTED_FLAGS | HOISTED_OPTIONS)
    queue = list(args)
    while queue:
        word = queue.pop(0)
        name = word.partition("=")[0]
        if word == "--":
            return [*front, *rest, word, *queue]
        if name not in allowed and not (not rest and name in HOISTED_FLAGS | HOISTED_OPTIONS):
            rest.append(word)
        elif name in HOISTED_OPTIONS and "=" not in word and queue:
            front += [word, queue.pop(0)]
        else:
            front.append(word)
    return front + rest


def _command(args: Sequence[str]) -> str:
    queue = list(args)
    while queue:
        word = queue.pop(0)
        if not word.startswith("-"):
            return word
        if word in HOISTED_OPTIONS and queue:
            queue.pop(0)
    return ""
