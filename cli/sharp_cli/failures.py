"""Failures as one clear line and an exit code, never a traceback; and options that may come after the command."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from sharp_cli import connection
from sharp_client import (
    AuthenticationError,
    BackboneNeededError,
    ConfigInvalidError,
    LearnerExistsError,
    LearnerNotFoundError,
    RoleMissingError,
    SharpError,
    UnavailableError,
)

HOISTED_FLAGS = frozenset({"--json", "--insecure", "--tls"})
"""Options of `sharp` itself that may also come after the command."""

HOISTED_OPTIONS = frozenset(
    {"--address", "-a", "--token-file", "--ca-file", "--cert-file", "--key-file", "--server-name", "--timeout"}
)
"""The same, followed by a value."""

OWN_OPTIONS = {"serve": frozenset({"--json"}), "benchmark": frozenset[str]()}
"""Commands with options of the same names, and what is hoisted there nevertheless."""


_HELP: tuple[tuple[type[Exception], str], ...] = (
    (RoleMissingError, "another token, given with --token-file, may have it"),
    (AuthenticationError, "give the token with --token-file"),
    (BackboneNeededError, "give --resize 64, or --backbone resnet18 --weights FILE to `sharp learn`, or the settings "
                          "with --set to `sharp learner create`"),
    (ConfigInvalidError, "settings are given with --set KEY=VALUE to `sharp learner create`"),
    (LearnerExistsError, "name another one with --learner"),
    (LearnerNotFoundError, "learners are named with --learner, and listed by `sharp learner list`"),
)  # fmt: skip
"""What may help, by kind of failure; the first that fits."""

_TLS_PROBLEMS = (
    ("hostname", "the certificate of {address} is for another name: give that with --server-name"),
    ("peer name", "the certificate of {address} is for another name: give that with --server-name"),
    ("certificate has expired", "the certificate of {address} has expired"),
    ("certificate_verify_failed", "the certificate of {address} is from an authority that is not known here: give its "
                                  "certificate with --ca-file"),
    ("wrong_version_number", "{address} does not speak TLS: leave out --tls and --ca-file"),
    ("certificate_required", "{address} asks for a certificate of yours: --cert-file and --key-file"),
    ("handshake failed", "there is no TLS connection with {address}: does it speak TLS, and is --ca-file right?"),
)  # fmt: skip
"""What gRPC says of a failed handshake, and what it means."""


def explain(error: Exception, address: str) -> str:
    """Explain in one line what went wrong, and what may help."""
    text = str(error).strip() or type(error).__name__
    if isinstance(error, UnavailableError) and not error.reason:
        text = _no_connection(text, address)
    elif isinstance(error, SharpError):
        help_text = next((words for kind, words in _HELP if isinstance(error, kind)), "")
        if "backbone" in error.metadata.get("setting", ""):
            help_text = "--backbone and --weights say which; a file on this machine is given by its path"
        text += f" ({help_text})" if help_text else ""
    elif isinstance(error, OSError) and not isinstance(error, SharpError):
        text = f"{error.strerror or text}{f': {error.filename}' if error.filename else ''}"
    delay = getattr(error, "retry_delay", None)
    if delay:
        text += f" (try again in {delay:g} s)"
    return " ".join(text.split())


def _no_connection(text: str, address: str) -> str:
    lowered = text.lower()
    for sign, meaning in _TLS_PROBLEMS:
        if sign in lowered:
            return meaning.format(address=address)
    cause = text.rpartition(": ")[2].strip(" ])").lower()  # the rest is gRPC's own list of all its attempts
    return f"no server answers at {address} ({cause}): is it running, is --address right, does it need TLS (--ca-file)?"


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
            typer.echo(f"sharp: {explain(error, connection.of(ctx).address)}", err=True)
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
