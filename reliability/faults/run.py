"""One server through one fault: work before it, under it and after it, and what came of it."""

from __future__ import annotations

import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.reporting.machine import machine, versions
from benchmarks.reporting.runner import ReportProgress, silently
from devtools.certificates import Authority
from devtools.server_process import ONE_THREAD, ServerProcess
from reliability.faults.name_server import NameServer
from reliability.faults.scenarios import SCENARIOS, Scenario, Stage
from reliability.faults.shim import Shim
from reliability.faults.work import KNOWN, LEARNING, OPTIONS, App, Producer, examples
from sharp_client import Client, SharpError, Tls

_MOST_SECONDS = 180.0
"""To get well again."""


@dataclass
class Outcome:
    """What one fault did."""

    fault: str
    about: str
    seconds: float
    """How long it lasted."""
    answered: int = 0
    """Predictions, under the fault."""
    failed: dict[str, int] = field(default_factory=dict)
    wrong: int = 0
    slowest_prediction: float = 0.0
    acknowledged: int = 0
    """Batches and boundaries, under the fault."""
    answering_seconds: float = 0.0
    """From the end of the fault until a prediction was answered."""
    recovery_seconds: float = 0.0
    """From the end of the fault until everything sent was durable and learned."""
    parked: int = 0
    """Episodes that were parked by it, and retried after it."""
    lost: int = 0
    """Examples that were acknowledged and are not known at the end."""
    alive: bool = True
    """Whether the server lived through it."""
    tracebacks: int = 0
    """In the server's log."""
    problem: str = ""

    @property
    def well(self) -> bool:
        """Whether predictions were right, nothing was lost, and the server lived on."""
        return self.alive and not (self.lost or self.wrong or self.problem or self.tracebacks)

    @property
    def happened(self) -> str:
        """All of it, for people.

        >>> Outcome("clock", "the clock jumps", 10.0, answered=90, acknowledged=12, recovery_seconds=0.5).happened
        '90 predictions answered; 12 batches acknowledged; well again after 0.5 s; nothing lost'
        """
        told = [f"{self.answered} predictions answered"]
        told += [f"{count} failed ({reason})" for reason, count in self.failed.items()]
        told += [f"{self.acknowledged} batches acknowledged"]
        told += [f"{self.parked} episodes parked and retried"] if self.parked else []
        told += [f"well again after {self.recovery_seconds:.1f} s", f"{self.lost or 'nothing'} lost"]
        return "; ".join(told + ([self.problem] if self.problem else []))


@dataclass
class FaultsResult:
    """All faults."""

    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def well(self) -> bool:
        """Whether all promises held."""
        return all(outcome.well for outcome in self.outcomes)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        rows = [{**asdict(outcome), "happened": outcome.happened, "well": outcome.well} for outcome in self.outcomes]
        return {"versions": versions(), "machine": machine(), "well": self.well, "faults": rows}


def run(names: list[str], seconds: float, folder: Path | None, progress: ReportProgress = silently) -> FaultsResult:
    """Put a new server through each fault."""
    result = FaultsResult()
    with tempfile.TemporaryDirectory() as temporary:
        for number, name in enumerate(names):
            progress(name, number, len(names))
            result.outcomes.append(_through(name, SCENARIOS[name], seconds, (folder or Path(temporary)) / name))
    return result


def _through(name: str, scenario: Scenario, seconds: float, folder: Path) -> Outcome:
    outcome = Outcome(name, scenario.about, seconds)
    settings: dict[str, object] = {"trainer.device": "cpu", "predictor.device": "cpu", **scenario.settings}
    certificates = _Certificates(folder) if scenario.tls else None
    if certificates is not None:
        settings |= certificates.settings
    tls = None if certificates is None else certificates.tls
    shim = Shim(folder / "shim", folder / "data")
    server = ServerProcess(folder, settings, environment={**ONE_THREAD, **(shim.environment if scenario.shim else {})})
    with server, NameServer("127.0.0.1") as names:
        server.start()
        address = names.target(server.port) if scenario.by_name else server.address
        _teach(address, tls)
        stage = Stage(server, shim, names, lambda: None if certificates is None else certificates.rotate())
        app, producer = App(address, tls), Producer(address, tls)
        try:
            time.sleep(seconds)
            app.seen()
            before = producer.acknowledged
            scenario.begin(stage)
            time.sleep(seconds)
            _note(outcome, app, producer.acknowledged - before)
            scenario.end(stage)
            outcome.recovery_seconds = _recovered(address, app, producer, tls, outcome)
            if certificates is not None:
                outcome.problem = outcome.problem or _new_clients(server, certificates)
        finally:
            app.end()
            producer.close()
        outcome.alive = server.running
    outcome.tracebacks = server.log.read_text(encoding="utf-8", errors="replace").count("Traceback")
    return outcome


def _teach(address: str, tls: Tls | None) -> None:
    """A learner that is asked all the time, and one that goes on learning."""
    with Client(address, tls=tls) as client:
        client.create_learner(KNOWN, preset="default", overrides=OPTIONS)
        client.create_learner(LEARNING, preset="default", overrides=OPTIONS)
        with client.learn(KNOWN, stream_id="once") as stream:
            stream.send(*examples(0))
            stream.end_episode().wait(_MOST_SECONDS)


def _note(outcome: Outcome, app: App, acknowledged: int) -> None:
    seen = app.seen()
    outcome.answered, outcome.wrong, outcome.slowest_prediction = seen.answered, seen.wrong, seen.slowest
    outcome.failed, outcome.acknowledged = dict(seen.failed), acknowledged


def _recovered(address: str, app: App, producer: Producer, tls: Tls | None, outcome: Outcome) -> float:
    """Wait until predictions are answered and everything that was sent is learned, with parked episodes retried once;
    returns the seconds.
    """
    begun = time.monotonic()
    try:
        if not app.answered(_MOST_SECONDS):
            raise TimeoutError("no prediction was answered any more")
        outcome.answering_seconds = time.monotonic() - begun
        producer.end(_MOST_SECONDS)
        with Client(address, tls=tls) as client:
            learner = client.learner(LEARNING)
            parked = learner.parked()
            outcome.parked = len(parked)
            for episode in parked:
                learner.retry(episode.episode)
            while time.monotonic() - begun < _MOST_SECONDS and learner.status().backlog.episodes_waiting:
                time.sleep(0.2)
        outcome.lost = producer.lost()
        if producer.error and not parked:
            outcome.problem = producer.error
    except (SharpError, TimeoutError) as error:
        outcome.problem = f"{type(error).__name__}: {error}"
    return time.monotonic() - begun


def _new_clients(server: ServerProcess, certificates: _Certificates) -> str:
    """Which certificate a new connection sees, after the rotation and after a restart."""
    with Client(server.address, tls=certificates.tls) as client:
        client.list_learners()
    server.stop()
    server.start()
    with Client(server.address, tls=certificates.tls) as client:
        return "" if client.list_learners() else "a restart with the new certificate serves nothing"


class _Certificates:
    """A server's files of TLS, and an authority that clients trust."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._authority = Authority("faults")
        self._certificate, self._key = folder / "server.pem", folder / "server.key"
        (folder / "ca.pem").write_bytes(self._authority.certificate)
        self.settings = {"trust.certificate": self._certificate, "trust.key": self._key}
        self.tls = Tls(ca_file=folder / "ca.pem")
        self.rotate()

    def rotate(self) -> None:
        """Another certificate of the same authority."""
        pair = self._authority.vouch("localhost")
        self._certificate.write_bytes(pair.certificate)
        self._key.write_bytes(pair.key)
