"""The order of writes, seen by strace: what a power cut could take is never what was promised.

    python -m reliability.write_order [--output F.json]

Killing a process leaves the page cache, so it shows nothing of power cuts. What does is the order of system calls: a
batch must be in the journal's log and the log flushed before its acknowledgement is sent; a snapshot must be flushed,
renamed and its folder flushed before the row that names it is written, and that row flushed before anyone hears of the
version. A real server runs under strace while a learner is taught; its system calls, with the bytes they carry, are
then held against these rules. Needs strace (Linux).
"""

from __future__ import annotations

import json
import queue
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import grpc
import numpy as np
import typer
from rich.console import RenderableType
from rich.text import Text

from benchmarks.errors import BenchmarkError
from benchmarks.reporting.machine import machine, versions
from benchmarks.reporting.runner import ProgressBar, entry_point, execute, new_app
from devtools.server_process import ServerProcess
from sharp.v1 import (
    admin_pb2_grpc,
    episode_pb2,
    label_pb2,
    learner_admin_pb2,
    learner_pb2,
    learning_pb2,
    learning_pb2_grpc,
    snapshot_pb2,
    tensor_pb2,
)

_CALLS = "write,pwrite64,writev,fsync,fdatasync,rename,renameat,renameat2,sendmsg,sendto,sendfile,copy_file_range"
_SENT = ("sendmsg", "sendto", "write", "writev")
_LINE = re.compile(r"^(\d+) +(?:<\.\.\. (\w+) resumed>(.*)|(\w+)\((.*))$")
_ESCAPE = re.compile(rb"\\x([0-9a-f]{2})")
_NEXT_PIECE = re.compile(r'", iov_len=\d+\}, \{iov_base="')
"""Between the pieces of one message: gRPC may cut an answer anywhere."""

app = new_app()


@dataclass(frozen=True)
class Call:
    """A system call, with its place in the order of beginnings and of ends."""

    name: str
    text: bytes
    """Its arguments, strings and names of files decoded."""
    begun: int
    ended: int

    @property
    def done(self) -> bool:
        """Whether it succeeded."""
        return not self.text.rstrip().endswith(b")") and b") = -1 " not in self.text


def parse(lines: Iterator[str]) -> list[Call]:
    """The calls of a trace by `strace -f -y -xx`; one that others interrupted is put together again.

    >>> trace = ["7 fsync(3</a> <unfinished ...>", "8 close(4</b>) = 0", "7 <... fsync resumed>) = 0"]
    >>> [(call.name, call.begun, call.ended) for call in parse(iter(trace))]
    [('close', 1, 1), ('fsync', 0, 2)]
    """
    calls: list[Call] = []
    unfinished: dict[str, tuple[str, int]] = {}
    for number, line in enumerate(lines):
        match = _LINE.match(line.rstrip("\n"))
        if match is None:
            continue
        process, resumed, rest, name, arguments = match.groups()
        if resumed is not None:
            before, begun = unfinished.pop(process, ("", number))
            calls.append(Call(resumed, _decoded(before + rest), begun, number))
        elif arguments.endswith("<unfinished ...>"):
            unfinished[process] = (arguments.removesuffix("<unfinished ...>"), number)
        else:
            calls.append(Call(name, _decoded(arguments), number, number))
    return calls


def _decoded(text: str) -> bytes:
    """Strings as the bytes that they stand for, those of a message in several pieces put together."""
    return _ESCAPE.sub(lambda match: bytes([int(match.group(1), 16)]), _NEXT_PIECE.sub("", text).encode())


@dataclass
class Findings:
    """What the trace shows."""

    calls: int = 0
    """System calls that were looked at."""
    acknowledgements: int = 0
    """Each sent after the flush of the log that holds its batch."""
    versions: int = 0
    """Snapshot flushed, renamed, folder flushed, row written and flushed, then announced."""
    violations: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "versions": versions(),
            "machine": machine(),
            "calls": self.calls,
            "acknowledgements": self.acknowledgements,
            "snapshots": self.versions,
            "violations": self.violations,
        }


@dataclass(frozen=True)
class Acknowledged:
    """A batch with bytes of its own, and the message that acknowledged it."""

    planted: bytes
    message: bytes


@dataclass(frozen=True)
class Announced:
    """A version's snapshot by its name, and bytes of the message that announced it, found in no other."""

    snapshot: str
    message: bytes


def judge(calls: list[Call], acknowledged: list[Acknowledged], announced: list[Announced]) -> Findings:
    """Hold the trace against the rules."""
    found = Findings(calls=len(calls))
    for number, item in enumerate(acknowledged, 1):
        problem = _acknowledgement(calls, item)
        if problem:
            found.violations.append(f"acknowledgement {number}: {problem}")
        else:
            found.acknowledgements += 1
    for version in announced:
        problem = _version(calls, version)
        if problem:
            found.violations.append(f"snapshot {version.snapshot}: {problem}")
        else:
            found.versions += 1
    return found


def _acknowledgement(calls: list[Call], item: Acknowledged) -> str:
    written = [c for c in calls if c.name == "pwrite64" and b"journal.db-wal>" in c.text and item.planted in c.text]
    sent = [c for c in calls if c.name in _SENT and b"journal" not in c.text[:200] and item.message in c.text]
    if not written or not sent:
        return "the batch was not seen in the log" if not written else "the answer was not seen"
    return _flushed(calls, b"journal.db-wal>", written[0].ended, sent[0].begun, "the log")


def _flushed(calls: list[Call], file: bytes, after: int, before: int, what: str) -> str:
    """Empty if a flush of the file began after one moment and ended before another; else what is wrong."""
    for call in calls:
        if call.name in ("fsync", "fdatasync") and file in call.text and call.done:
            if call.begun > after and call.ended < before:
                return ""
    return f"{what} was not flushed in between"


def _version(calls: list[Call], version: Announced) -> str:
    name = version.snapshot.encode() + b".safetensors"
    renamed = [c for c in calls if c.name.startswith("rename") and name + b'"' in c.text and c.done]
    rows = [
        c
        for c in calls
        if c.name == "pwrite64" and b"journal.db-wal>" in c.text and version.snapshot.encode() in c.text
    ]
    sent = [c for c in calls if c.name in _SENT and b"journal" not in c.text[:200] and version.message in c.text]
    for seen, what in ((renamed, "its rename"), (rows, "its row"), (sent, "the message that announced it")):
        if not seen:
            return f"{what} was not seen"
    temporary = renamed[0].text.split(b'"')[1].rpartition(b"/")[2]
    filling = ("write", "sendfile", "copy_file_range")
    writes = [c for c in calls if c.name in filling and temporary + b">" in c.text[:600]]
    if not writes or writes[-1].ended > renamed[0].begun:
        return "it was not written whole under another name first"
    folder = renamed[0].text.split(b'"')[-2].rpartition(b"/")[0] + b">"
    return (
        _flushed(calls, temporary + b">", writes[-1].ended, renamed[0].begun, "the temporary file")
        or _flushed(calls, folder, renamed[0].ended, rows[0].begun, "the folder")
        or _flushed(calls, b"journal.db-wal>", rows[0].ended, sent[0].begun, "the row")
    )


# ---- the run --------------------------------------------------------------------------------------------------------


def traced(folder: Path, batches: int, episodes: int) -> tuple[list[Call], list[Acknowledged], list[Announced]]:
    """Teach a learner on a server under strace; returns the trace and what the client received, byte for byte."""
    if shutil.which("strace") is None:
        raise BenchmarkError("strace is not installed")
    trace = folder / "trace"
    strace = ["strace", "-f", "-y", "-xx", "-s", "200000", "-e", f"trace={_CALLS}", "-o", str(trace)]
    with ServerProcess(folder, {"trainer.niceness": 0}, wrapper=strace).start() as server:
        answers = _teach(server.address, batches, episodes)
    with trace.open(encoding="latin-1") as file:
        return parse(iter(file)), *answers


def _teach(address: str, batches: int, episodes: int) -> tuple[list[Acknowledged], list[Announced]]:
    """One batch at a time, each waited for, through the bare stubs: the bytes of every answer are needed."""
    acknowledged: list[Acknowledged] = []
    announced: list[Announced] = []
    rng = np.random.default_rng(0)
    with grpc.insecure_channel(address) as channel:
        admin, learning = admin_pb2_grpc.AdminStub(channel), learning_pb2_grpc.LearningStub(channel)
        layers = json.dumps([{"kind": "linear", "units": 40}] * 3)
        overrides = {"architecture.kind": "mlp", "architecture.layers": layers, "training.phases": "2"}
        config = learner_pb2.LearnerConfig(overrides=overrides)
        admin.CreateLearner(learner_admin_pb2.CreateLearnerRequest(name="traced", config=config))
        requests: queue.Queue[Any] = queue.Queue()
        requests.put(learning_pb2.LearnRequest(open=learning_pb2.Open(learner="traced", stream_id="order")))
        answers = learning.Learn(iter(requests.get, None))
        next(answers)
        sequence = 0
        for _ in range(episodes):
            for _ in range(batches):
                sequence += 1
                x = rng.integers(1, 255, (10, 41 + sequence), np.uint8)[:, :40].copy()
                tensor = tensor_pb2.Tensor(dtype=tensor_pb2.DTYPE_UINT8, shape=x.shape, data=x.tobytes())
                labels = label_pb2.Labels(texts=label_pb2.TextLabels(values=["a", "b"] * 5))
                batch = learning_pb2.Batch(sequence=sequence, inputs=tensor_pb2.Inputs(tensor=tensor), labels=labels)
                requests.put(learning_pb2.LearnRequest(batch=batch))
                answer = next(a for a in answers if a.HasField("ack") and a.ack.sequence == sequence)
                acknowledged.append(Acknowledged(x.tobytes(), answer.SerializeToString()))
            sequence += 1
            requests.put(learning_pb2.LearnRequest(end_episode=learning_pb2.EndEpisode(sequence=sequence)))
            answer = next(a for a in answers if a.HasField("event") and a.event.HasField("learned"))
            listed = admin.ListSnapshots(snapshot_pb2.ListSnapshotsRequest(learner="traced")).snapshots
            losses = episode_pb2.EpisodeStatistics(phase_losses=answer.event.learned.statistics.phase_losses)
            announced.append(Announced(listed[0].id, losses.SerializeToString()))  # maps may be written in any order
        kept = admin.CreateSnapshot(snapshot_pb2.CreateSnapshotRequest(learner="traced", note="kept"))
        announced.append(Announced(kept.snapshot.id, kept.SerializeToString()))
        requests.put(None)
    return acknowledged, announced


@app.command()
def command(
    batches: Annotated[int, typer.Option(help="Of an episode.")] = 5,
    episodes: Annotated[int, typer.Option(help="To be learned.")] = 4,
    output: Annotated[Path | None, typer.Option(help="JSON file for the result.")] = None,
) -> None:
    """Show that what is acknowledged or announced was flushed to disk before."""

    def trace(bar: ProgressBar) -> Findings:
        bar("tracing a server")
        with tempfile.TemporaryDirectory(prefix="sharp-order-") as folder:
            return judge(*traced(Path(folder), batches, episodes))

    execute(trace, report, output=output, failed=lambda found: bool(found.violations))


def report(found: Findings) -> Iterator[RenderableType]:
    """What is printed at the end."""
    yield Text(
        f"{found.calls:,} system calls\n"
        f"{found.acknowledgements} acknowledgements sent after the flush of their batch\n"
        f"{found.versions} snapshots: written, flushed, renamed, folder flushed, row flushed, then announced\n"
        f"{len(found.violations)} in another order"
    )
    for violation in found.violations:
        yield Text(f"✗ {violation}", style="bold red")


main = entry_point(app, "reliability.write_order")

if __name__ == "__main__":
    main()
