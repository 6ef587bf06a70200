"""What dies and what happens, measured: under Learn, Teach and Predict, then every promise is checked.

After all of it: every acknowledged example was learned exactly once, the learner equals, bit for bit, one on a single
machine that nobody disturbed, no write of a stale owner was taken, and no prediction came from a version that was not
published.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from devtools.server_process import ONE_THREAD, ServerProcess
from reliability.cluster.laboratory import Laboratory, laboratory
from reliability.cluster.machines import Machine
from reliability.cluster.owners import OwnerLog
from reliability.crash import checks
from reliability.crash.clients import PATIENT, App, Producer
from reliability.crash.options import CALM, LEARNER, CrashOptions
from reliability.crash.run import teach_calmly
from reliability.crash.stream import NumberedStream
from sharp_client import Client

Say = Callable[[str], None]
_SECONDS_TO_LEARN = 90.0
"""In which whatever was sent is learned in the end."""
_SECONDS_CUT = 15.0
_SECONDS_WITHOUT_DATABASE = 5.0
_SECONDS_WITHOUT_HEAD = 5.0
_SECONDS_BETWEEN_BATCHES = 0.15
"""Most of a run is waiting: more batches would show no more, and all of them are learned again in the end."""
_IDLE = ("idle-1", "idle-2")
"""Learners that nobody uses: of three, one moves when a machine comes back."""


@dataclass(frozen=True)
class Disaster:
    """One thing that died, and what came of it."""

    what: str
    seconds_until_learn: float
    """From the moment it died until the next batch was acknowledged."""
    predictions: int
    """Answered between that moment and the recovery."""
    predictions_failed: int
    """Calls of Predict that failed in that time, all retries included."""
    resumptions: int
    """How often the producer had to take up its stream again."""
    seconds_until_owner: float = 0.0
    """From the moment it died until another machine owned the learner; 0: none had to."""


@dataclass
class ClusterResult:
    """A whole run."""

    disasters: list[Disaster] = field(default_factory=list)
    batches: int = 0
    lessons: int = 0
    predictions: int = 0
    episodes: int = 0
    epoch: int = 0
    """How often the learner changed its owner, at least."""
    hand_over_seconds: list[float] = field(default_factory=list)
    """For which learners that moved to a machine that came back were nobody's."""
    tensors: int = 0
    violations: dict[str, list[str]] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def survived(self) -> bool:
        """Whether every promise was kept."""
        return not any(self.violations.values())


def run(say: Say, folder: Path | None = None, only: str = "") -> ClusterResult:
    """Break everything, one after the other; `only`: disasters whose name holds this."""
    with tempfile.TemporaryDirectory(prefix="sharp-cluster-", ignore_cleanup_errors=True) as temporary:
        chosen = folder or Path(temporary)
        chosen.mkdir(parents=True, exist_ok=True)
        chosen.chmod(0o755)
        return _run(say, chosen, only)


def _run(say: Say, folder: Path, only: str) -> ClusterResult:
    begun, options, result = time.monotonic(), CrashOptions(pause=_SECONDS_BETWEEN_BATCHES), ClusterResult()
    stream, found = NumberedStream(options), checks.Violations()
    say("starting Ray, PostgreSQL and two servers")
    with laboratory(folder) as lab:
        with Client(lab.addresses, retry=PATIENT, timeout=options.patience) as client:
            for name in (LEARNER, *_IDLE):
                client.create_learner(name, overrides=options.learner(), seed=options.seed)
        with (
            OwnerLog(lab.rows) as owners,
            Producer(lab.addresses, stream, options) as producer,
            App(lab.addresses, stream) as app,
        ):
            breaking = _Breaking(lab, producer, app, owners, result, say)
            breaking.until(lambda: producer.learned >= 2 and app.answers.total() > 10, "the first episodes are learned")
            for disaster in (
                breaking.kill_the_machine,
                breaking.cut_the_link,
                breaking.kill_the_head,
                breaking.kill_the_database,
            ):
                if only in disaster.__name__:
                    disaster()
            say("learning what was sent")
            producer.finish(_SECONDS_TO_LEARN)
            app.finish(_SECONDS_TO_LEARN)
            last = producer.sent
            _check_account(lab, stream, last, found, producer.lessons)
            _check_versions(lab, app, found)
            result.epoch = int(lab.rows("SELECT epoch FROM learners WHERE name = %s", LEARNER)[0][0])
            result.batches, result.lessons = producer.acknowledged, producer.lessons
            result.predictions = app.answers.total()
        with Client(lab.addresses, retry=PATIENT, timeout=options.patience) as client:
            client.export_snapshot(LEARNER, folder / f"{LEARNER}.safetensors")
    say("teaching another learner the same stream on one machine, in peace")
    with ServerProcess(folder / "calm", environment=ONE_THREAD).start() as server:
        with Client(server.address, timeout=options.patience) as client:
            result.episodes = teach_calmly(client, stream, last, last, options)
            client.export_snapshot(CALM, folder / f"{CALM}.safetensors")
    result.tensors = checks.compare(folder / f"{LEARNER}.safetensors", folder / f"{CALM}.safetensors", found)
    result.violations = {promise: texts for promise, texts in found.found.items() if texts}
    result.seconds = time.monotonic() - begun
    return result


class _Breaking:
    """Breaks one thing at a time, and waits until everything is as before."""

    def __init__(
        self, lab: Laboratory, producer: Producer, app: App, owners: OwnerLog, result: ClusterResult, say: Say
    ) -> None:
        self._lab, self._producer, self._app, self._result, self._say = lab, producer, app, result, say
        self._owners = owners

    def kill_the_machine(self) -> None:
        """The machine that owns the learner loses its power, and comes back after the other has taken over."""
        machine = self._owner()
        self._measure("the owner's machine is killed", machine.kill, machine)
        self._say("the machine comes back")
        back = time.monotonic()
        self._lab.start_machine(machine)
        self._until_all_there()
        self.until(lambda: self._owners.gaps(back), "a learner moves to the machine that came back")
        self._result.hand_over_seconds = self._owners.gaps(back)

    def cut_the_link(self) -> None:
        """The machine that owns the learner is cut off, goes on by itself, and is plugged in again."""
        machine = self._owner()
        begun = time.monotonic()
        self._measure("the owner's link is cut", machine.cut, machine)
        time.sleep(max(0.0, _SECONDS_CUT - (time.monotonic() - begun)))
        self._say("the link is restored")
        machine.reconnect()
        self._until_all_there()
        self.until(
            lambda: "is owned by another server now" in self._lab.server_log(machine), "the stale owner has noticed"
        )

    def kill_the_head(self) -> None:
        """Ray's head goes and comes back: nobody who serves notices."""
        before = self._lab.rows("SELECT owner FROM cluster_servers ORDER BY owner")
        self._measure("Ray's head is killed", self._lab.head.kill)
        time.sleep(_SECONDS_WITHOUT_HEAD)
        self._say("the head comes back")
        self._lab.start_head()
        self._progress(3)
        if self._lab.rows("SELECT owner FROM cluster_servers ORDER BY owner") != before:
            raise RuntimeError("a server was started again because Ray's head was gone")

    def kill_the_database(self) -> None:
        """PostgreSQL goes and comes back: predictions go on, Learn waits."""
        acknowledged, answered = self._producer.acknowledged, self._app.answers.total()
        failed = self._app.unanswered
        self._lab.postgres.kill()
        begun = time.monotonic()
        time.sleep(_SECONDS_WITHOUT_DATABASE)
        without = self._app.answers.total() - answered
        if self._producer.acknowledged > acknowledged + 1:
            raise RuntimeError("a batch was acknowledged while the database was gone")
        if not without:
            raise RuntimeError("no prediction was answered while the database was gone")
        self._lab.postgres.start()
        self._progress(1)
        seconds = time.monotonic() - begun
        self._note(
            f"PostgreSQL is killed, and back after {_SECONDS_WITHOUT_DATABASE:.0f} s", seconds, answered, failed, 0
        )
        self._until_all_there()

    def _owner(self) -> Machine:
        self.until(lambda: self._lab.owner(LEARNER), "the learner has an owner")
        owner = self._lab.owner(LEARNER)
        assert owner is not None
        return owner

    def _measure(self, what: str, disaster: Callable[[], None], lost: Machine | None = None) -> None:
        self._say(what)
        answered, failed = self._app.answers.total(), self._app.unanswered
        resumptions = self._producer.resumptions
        begun = time.monotonic()
        disaster()
        self._progress(1)
        seconds, owned = time.monotonic() - begun, None
        if lost is not None:
            owned = self._owners.owned_elsewhere(LEARNER, lost.address, begun)
        self._note(what, seconds, answered, failed, resumptions, owned - begun if owned is not None else 0.0)

    def _note(
        self, what: str, seconds: float, answered: int, failed: int, resumptions: int, until_owner: float = 0.0
    ) -> None:
        self._result.disasters.append(
            Disaster(
                what,
                round(seconds, 1),
                self._app.answers.total() - answered,
                self._app.unanswered - failed,
                self._producer.resumptions - resumptions,
                round(until_owner, 1),
            )
        )
        self._say(f"{what}: Learn answers again after {seconds:.1f} s")

    def _progress(self, batches: int) -> None:
        """Wait until more is acknowledged than was, counted from what is certainly new."""
        before = self._producer.acknowledged
        self.until(lambda: self._producer.acknowledged >= before + 1 + batches, "Learn acknowledges again")

    def _until_all_there(self) -> None:
        self.until(lambda: len(self._lab.servers()) == len(self._lab.machines), "all servers are there")
        learned = self._producer.learned
        self.until(lambda: self._producer.learned > learned, "another episode is learned")

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait for something, but not if whoever it depends on has failed."""

        def met() -> object:
            for user in (self._producer, self._app):
                if user.failure is not None:
                    raise user.failure
            return condition()

        self._lab.until(met, what)


def _check_account(lab: Laboratory, stream: NumberedStream, last: int, found: checks.Violations, lessons: int) -> None:
    """Every acknowledged batch is in the account once, learned, and nothing raw is left of it."""
    rows = lab.rows(
        "SELECT b.sequence, sum(b.count), count(*) FILTER (WHERE e.state = 'learned' IS NOT TRUE) FROM batch_slices b "
        "JOIN learners l ON l.id = b.learner LEFT JOIN episodes e ON e.id = b.episode "
        "WHERE l.name = %s GROUP BY b.sequence ORDER BY b.sequence",
        LEARNER,
    )
    wanted = {number: len(stream.batch(number).y) for number in range(1, last + 1) if not stream.is_mark(number)}
    for sequence, examples, unlearned in rows:
        if wanted.pop(int(sequence), None) != examples or unlearned:
            found.add(0, f"batch {sequence}: {examples} examples in the account, {unlearned} parts not learned")
    for number in wanted:
        found.add(0, f"batch {number} was acknowledged and is not in the account")
    kept = lab.rows("SELECT count(*), count(DISTINCT request_id) FROM lessons")[0]
    if kept != (lessons, lessons):
        found.add(5, f"{lessons} lessons were answered, the journal has {kept[0]}")


def _check_versions(lab: Laboratory, app: App, found: checks.Violations) -> None:
    """Every version that answered is in the journal, and was before it answered."""
    created = {int(version): float(when) for version, when in lab.rows("SELECT version, created FROM versions")}
    for version, first in app.first.items():
        if version and version not in created:
            found.add(3, f"version {version} answered and was never published")
        elif version and first < created[version]:
            found.add(3, f"version {version} answered before it was published")
