"""What must be true after every schedule, whatever happened in it. Each check gives what is wrong, in words."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from pathlib import Path

from reliability.simulation.actors import Records
from reliability.simulation.oracle import Oracle
from reliability.simulation.plan import FORGETTABLE, Plan, batch, lesson
from reliability.simulation.world import Note, World
from sharp_engine.config import from_dict
from sharp_server.learners.served_learner import ServedLearner
from sharp_server.storage.data_folder import MANIFEST, SUFFIX, DataFolder


def check_account(plan: Plan, records: Records, connection: sqlite3.Connection) -> list[str]:
    """Every acknowledged batch and every answered lesson is in the journal exactly once."""
    problems: list[str] = []
    for (learner, stream), acknowledged in records.acknowledged.items():
        marks = next(s.marks for s in (*plan.streams, *plan.after) if (s.learner, s.name) == (learner, stream))
        slices = connection.execute(
            "SELECT b.sequence, b.first, b.count FROM batch_slices b JOIN streams s ON s.id = b.stream "
            "JOIN learners l ON l.id = s.learner WHERE l.name = ? AND s.name = ?",
            (learner, stream),
        )
        kept = Counter((sequence, first + i) for sequence, first, count in slices for i in range(count))
        wanted = {
            (sequence, number)
            for sequence in range(1, acknowledged + 1)
            if sequence not in marks
            for number in range(len(batch(plan.seed, learner, stream, sequence).labels))
        }
        problems += [f"{learner}/{stream}: example {key} is missing" for key in sorted(wanted - kept.keys())]
        problems += [f"{learner}/{stream}: example {key} is kept {n} times" for key, n in kept.items() if n > 1]
    lessons = "SELECT l.name, m.request_id, m.place FROM lessons m JOIN learners l ON l.id = m.learner ORDER BY m.id"
    rows = connection.execute(lessons).fetchall()
    known = {(learner, request_id) for learner, request_id, _ in rows}
    problems += [f"lesson {key} was answered and is not known" for key in sorted(records.taught - known)]
    for learner in plan.learners:
        places = [place for name, _, place in rows if name == learner]
        if places != sorted(set(places)):
            problems.append(f"{learner}: its lessons are at {places}")
    return problems


def check_history(plan: Plan, world: World) -> list[str]:
    """Every version is what the engine makes of the journal's order; every batch and lesson came once."""
    problems: list[str] = []
    rows = world.disk.connection.execute("SELECT name, settings FROM learners").fetchall()
    oracles = {name: Oracle(plan.seed, name, from_dict(json.loads(text)), world.folder) for name, text in rows}
    seen: Counter[tuple[str, str]] = Counter()
    for note in world.disk.notes():
        problems += oracles[note.learner].follow(note, world.evidence(note.what.get("snapshot", "")))
        if problems:
            return problems
        if note.kind in ("batch", "mark", "lesson"):
            seen[note.learner, json.dumps({k: v for k, v in note.what.items() if k not in ("place", "episodes")})] += 1
    return [f"{key} was written {times} times" for key, times in seen.items() if times > 1]


def check_answers(records: Records, notes: list[Note]) -> list[str]:
    """No answer came from a version before it was published, or after a later one had answered."""
    problems: list[str] = []
    published = {(note.learner, note.what["version"]): note.number for note in notes if note.kind == "version"}
    newest: Counter[str] = Counter()
    for answer, _, answered in records.answers:
        key = (answer.learner, answer.version)
        if answer.version and published.get(key, answered + 1) > answered:
            problems.append(f"{answer.learner}: version {answer.version} answered and was not published")
        if answer.version < newest[answer.learner]:
            problems.append(f"{answer.learner}: {answer.version} answered after {newest[answer.learner]}")
        newest[answer.learner] = max(newest[answer.learner], answer.version)
    return problems


def check_forgotten(plan: Plan, records: Records, notes: list[Note]) -> list[str]:
    """A forgotten class is in no answer, until somebody brings it again."""
    problems: list[str] = []
    for learner, moment, told in records.forgotten:
        forgets = [n.number for n in notes if n.learner == learner and n.number <= told and forgets_class(n)]
        since = max(forgets, default=told)
        brought = [n.number for n in notes if n.learner == learner and n.number > since and brings_class(plan, n)]
        until = min(brought, default=1 << 62)
        problems += [
            f"{learner}: version {answer.version} answered with a forgotten class"
            for answer, asked, answered in records.answers
            if answer.learner == learner and moment < asked and answered < until and FORGETTABLE in answer.labels
        ]
    return problems


def forgets_class(note: Note) -> bool:
    """Whether it forgets the class."""
    return note.kind == "forget" or (note.kind == "version" and note.what["cause"] == "forgotten")


def brings_class(plan: Plan, note: Note) -> bool:
    """Whether examples of the class arrived with it."""
    if note.kind == "batch":
        return FORGETTABLE in batch(plan.seed, note.learner, note.what["stream"], note.what["sequence"]).labels
    return note.kind == "lesson" and FORGETTABLE in lesson(plan.seed, note.learner, note.what["request_id"]).labels


def check_at_rest(served: ServedLearner, connection: sqlite3.Connection, folder: DataFolder) -> list[str]:
    """When everything is learned: nothing raw is left, memory agrees with the journal, no file is left behind."""
    problems: list[str] = []
    raw = connection.execute(
        "SELECT (SELECT count(*) FROM examples e JOIN batch_slices b ON b.id = e.batch_slice WHERE b.learner = ?1) + "
        "(SELECT count(*) FROM lesson_examples e JOIN lessons m ON m.id = e.lesson WHERE m.learner = ?1)",
        (served.id,),
    ).fetchone()[0]
    examples = connection.execute("SELECT examples FROM learners WHERE id = ?", (served.id,)).fetchone()[0]
    facts = {
        "raw parts in the journal": (raw, 0),
        "bytes in the backlog": (served.backlog.bytes, 0),
        "open examples in the backlog": (served.backlog.open_examples, 0),
        "uncounted examples": (served.uncounted_examples, 0),
        "examples that arrived": (served.examples_durable, examples),
    }
    problems += [
        f"{served.name}: {name}: {found}, not {wanted}" for name, (found, wanted) in facts.items() if found != wanted
    ]
    rows = connection.execute("SELECT name FROM snapshots WHERE learner = ?", (served.id,))
    wanted_files = {name + SUFFIX for (name,) in rows} | {MANIFEST}
    files = {path.name for path in folder.of_learner(served.uid).iterdir()}
    problems += [f"{served.name}: {name} is left behind" for name in sorted(files - wanted_files)]
    problems += [f"{served.name}: {name} is missing" for name in sorted(wanted_files - files)]
    problems += [f"{served.name}: {path.name} is left in work" for path in _work_of(folder.work, served.uid)]
    return problems


def _work_of(work: Path, uid: str) -> list[Path]:
    return sorted(work.glob(f"*{uid}-*"))
