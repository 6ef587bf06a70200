"""One run of the crash loop, from an empty folder to the verdict."""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.errors import require
from benchmarks.reporting.machine import machine, versions
from benchmarks.reporting.runner import ReportProgress, silently
from reliability.crash import checks
from reliability.crash.chaos import Chaos
from reliability.crash.checks import Violations
from reliability.crash.clients import PATIENT, STREAM_ID, App, Producer, teach_lesson
from reliability.crash.operations import Operator
from reliability.crash.options import CALM, LEARNER, CrashOptions
from reliability.crash.proxy import Line
from reliability.crash.stream import NumberedStream
from sharp_client import Client, Timeout


@dataclass
class CrashResult:
    """What was survived, and what did not hold."""

    options: CrashOptions
    kills: dict[str, int] = field(default_factory=dict)
    episodes: int = 0
    batches: int = 0
    """Acknowledged."""
    examples_learned: int = 0
    lessons: int = 0
    """Taught, each once."""
    unacknowledged: int = 0
    """Batches that were sent last and never acknowledged: the server died over them."""
    resumptions: int = 0
    predictions: int = 0
    versions_answering: int = 0
    unanswered: int = 0
    operations: dict[str, int] = field(default_factory=dict)
    """What an operator did in between, each carried through once."""
    kills_in_operations: int = 0
    slowest_recovery: float = 0.0
    """Seconds until the producer was acknowledged something or an episode was learned; see `Chaos.recoveries`."""
    recoveries: dict[str, dict[str, float]] = field(default_factory=dict)
    """By kind of kill: the median and the slowest."""
    tensors: int = 0
    """Compared bit for bit in the end."""
    seconds: float = 0.0
    violations: dict[str, list[str]] = field(default_factory=dict)

    @property
    def survived(self) -> int:
        """Kills, if everything held."""
        return sum(self.kills.values()) if not any(self.violations.values()) else 0

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {"versions": versions(), "machine": machine(), "survived": self.survived, **asdict(self)}


def run(options: CrashOptions, progress: ReportProgress = silently, folder: Path | None = None) -> CrashResult:
    """Kill, and check; progress is counted in kills. `folder` keeps the data folder and the server's log."""
    with tempfile.TemporaryDirectory(prefix="sharp-crash-") as temporary:
        chosen = folder or Path(temporary)
        chosen.mkdir(parents=True, exist_ok=True)
        require(not (chosen / "data").exists(), "folder", str(chosen), "without a data folder")
        return _run(options, chosen, progress)


def _run(options: CrashOptions, folder: Path, progress: ReportProgress) -> CrashResult:
    begun = time.monotonic()
    stream, found = NumberedStream(options), Violations()
    result = CrashResult(options)
    progress("starting the server", 0, options.kills)
    with Line() as line, Line() as other:
        chaos = Chaos(folder, (line, other), stream, options, found)
        try:
            with Client(line.address, retry=PATIENT, timeout=options.patience) as client:
                client.create_learner(LEARNER, overrides=options.learner(), seed=options.seed)
            with (
                Producer(line.address, stream, options) as producer,
                App(other.address, stream) as app,
            ):

                def report() -> None:
                    progress(f"{producer.learned} episodes learned, {app.answers.total()} predictions", chaos.done)

                chaos.kills_up_to(options.kills - 1, producer, app, report)
                progress("learning what was sent", chaos.done)
                producer.finish()
                result.resumptions = producer.resumptions
                result.lessons = producer.lessons
                result.operations = dict(producer.operator.done)
                for text in producer.operator.named_forgotten:
                    found.add(6, text)
                last = _die_over_a_tail(chaos, line, stream, producer, options, result)
                progress("taking up what was acknowledged of the last episode", chaos.done)
                app.finish()
            result.kills = dict(chaos.kills)
            result.kills_in_operations = chaos.aimed
            result.recoveries = {
                kind: {"median": statistics.median(seconds), "slowest": max(seconds)}
                for kind, seconds in sorted(chaos.recoveries.items())
            }
            result.slowest_recovery = max((kind["slowest"] for kind in result.recoveries.values()), default=0.0)
            result.predictions, result.unanswered = app.answers.total(), app.unanswered
            result.versions_answering = len({answer.version for answer in app.answers})
            progress("teaching another learner the same stream, in peace", chaos.done)
            with Client(line.address, timeout=Timeout(call=options.patience)) as client:
                result.episodes = teach_calmly(client, stream, last, producer.sent, options)
                for name in (LEARNER, CALM):
                    client.export_snapshot(name, folder / f"{name}.safetensors")
        finally:
            if chaos.server.running:
                chaos.server.stop()
    progress("checking", chaos.done)
    result.examples_learned = checks.in_the_end(
        folder / "data", stream, last, options, app, found, result.lessons, chaos.store
    )
    chaos.close()
    result.tensors = checks.compare(folder / f"{LEARNER}.safetensors", folder / f"{CALM}.safetensors", found)
    result.batches = sum(not stream.is_mark(number) for number in range(1, last + 1))
    result.violations = found.found
    result.seconds = time.monotonic() - begun
    return result


def _die_over_a_tail(
    chaos: Chaos, line: Line, stream: NumberedStream, producer: Producer, options: CrashOptions, result: CrashResult
) -> int:
    """The last kill: batches are on their way, and their producer never comes back for those not acknowledged.

    Another one takes up the stream and ends the episode after whatever is durable. Returns the last batch of that.
    """
    chance, sent = random.Random(f"tail {options.seed}"), producer.sent
    with Client(line.address, retry=PATIENT, timeout=Timeout(connect=options.patience)) as client:
        call = client.learn(LEARNER, stream_id=STREAM_ID, create=False)
        assert call.acknowledged == sent
        tail = sent
        deadline = time.monotonic() + chance.uniform(0.0, 0.1)
        while not stream.is_mark(tail + 1) and time.monotonic() < deadline:
            tail += 1
            batch = stream.batch(tail)
            call.send(batch.x, batch.y)

        def left() -> int:
            call.cancel()
            return call.acknowledged

        chaos.kill_server(left, producer)
        acknowledged = call.acknowledged
    chaos.start_server()
    with (
        Client(line.address, retry=PATIENT, timeout=Timeout(connect=options.patience)) as client,
        client.learn(LEARNER, stream_id=STREAM_ID, create=False) as call,
    ):
        last = call.acknowledged
        if not acknowledged <= last <= tail:
            chaos.violations.add(0, f"{acknowledged} was acknowledged and {tail} sent, the server has {last}")
        result.unacknowledged = tail - last
        if last > sent:
            call.end_episode().wait(options.patience)
    return last


def teach_calmly(client: Client, stream: NumberedStream, last: int, taught: int, options: CrashOptions) -> int:
    """The same batches in the same episodes, the same lessons and operations up to `taught`, nobody killed; returns
    episodes.
    """
    client.create_learner(CALM, overrides=options.learner(), seed=options.seed)
    operator = Operator(client, CALM, stream)
    with client.learn(CALM) as call:
        for number in range(1, last + 1):
            if number <= taught and stream.has_lesson(number):
                call.flush(options.patience)
                teach_lesson(client, CALM, stream, number)
            if stream.is_mark(number):
                ended = call.end_episode()
                if number <= taught and stream.operation(stream.episode_of(number)) is not None:
                    ended.wait(options.patience)
                    operator.work(stream.episode_of(number))
            else:
                batch = stream.batch(number)
                call.send(batch.x, batch.y)
        if not stream.is_mark(last):
            call.end_episode()
        return len(call.wait(3600.0))
