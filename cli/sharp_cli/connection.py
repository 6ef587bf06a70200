"""Where the server is and how to reach it: the options that all commands share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from sharp_client import Client, Learner, Limits, Retry, Timeout, Tls

LearnerOption = Annotated[
    str | None,
    typer.Option("--learner", "-l", envvar="SHARP_LEARNER", help="Its name. May be left out if there is only one."),
]
"""Which learner."""


@dataclass(frozen=True)
class Connection:
    """The options before the command."""

    address: str = "localhost:50051"
    """Where the server listens."""
    token_file: Path | None = None
    """File of the bearer token."""
    tls: Tls | None = None
    """Trust in the server. None: no TLS."""
    insecure: bool = False
    """Whether to send the token without TLS."""
    timeout: float = 60.0
    """Seconds for one call."""
    json: bool = False
    """Whether to answer in JSON."""

    def connect(self, retry: Retry | None = None, limits: Limits | None = None) -> Client:
        """Make a client. Nothing is sent yet."""
        return Client(
            self.address,
            token_file=self.token_file,
            tls=self.tls,
            insecure=self.insecure,
            timeout=Timeout(call=self.timeout),
            retry=retry,
            limits=limits,
        )


def of(ctx: typer.Context) -> Connection:
    """Give the options that came before the command."""
    found: Any = ctx.find_root().obj
    return found if isinstance(found, Connection) else Connection()


def choose_learner(client: Client, name: str | None) -> Learner:
    """Give the named learner, or the only one there is."""
    if name is not None:
        return client.learner(name)
    names = [learner.name for learner in client.list_learners()]
    if len(names) == 1:
        return client.learner(names[0])
    if not names:
        raise typer.BadParameter("the server has no learner yet: teach one with `sharp learn`", param_hint="--learner")
    raise typer.BadParameter(f"which one? There are {', '.join(names)}", param_hint="--learner")
