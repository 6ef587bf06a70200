"""The order of writes, as far as one process can see it; `reliability.write_order` shows the rest with strace."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from reliability.simulation.teacher import InProcessTeacher
from reliability.write_order import Acknowledged, Announced, judge, parse
from sharp_engine import Learner, LearnerConfig, preset
from sharp_engine.config import to_dict
from sharp_server.config.model import DataConfig, ServerConfig, TrainerConfig
from sharp_server.learners.served_learner import ServedLearner
from sharp_server.runtime.threads import BackgroundThread
from sharp_server.storage.data_folder import DataFolder, place, sha256_of
from sharp_server.storage.objects import FolderObjects
from sharp_server.storage.records import NewLearner, NewVersion, Published
from sharp_server.storage.sqlite import schema
from sharp_server.storage.sqlite.journal import Journal
from sharp_server.storage.sqlite.storage import SqliteStorage
from sharp_server.storage.version_files import VersionFiles
from sharp_server.teaching.teaching import Teaching
from sharp_server.training.publisher import Publisher
from tests.faults.opening import NEVER


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Flushes and renames of this process, in order, by name of the file."""
    seen: list[tuple[str, str]] = []
    fsync, replace = os.fsync, os.replace

    def watched_fsync(handle: Any) -> None:
        fsync(handle)
        seen.append(("flushed", Path(os.readlink(f"/proc/self/fd/{int(handle)}")).name))

    def watched_replace(source: Any, target: Any) -> None:
        assert seen[-1] == ("flushed", Path(source).name), "a file is renamed that was not flushed last"
        replace(source, target)
        seen.append(("renamed", Path(target).name))

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(os, "replace", watched_replace)
    return seen


def taught() -> Learner:
    learner = Learner(preset("default").with_options({"training.phases": 1}))
    learner.learn_episode(torch.rand(20, 6), ["a", "b"] * 10)
    return learner


def test_a_snapshot_is_flushed_renamed_and_its_folder_flushed(calls: list[tuple[str, str]], tmp_path: Path) -> None:
    taught().save(tmp_path / "one.safetensors")
    assert calls[0][1].endswith(".tmp")
    assert calls[1:] == [("renamed", "one.safetensors"), ("flushed", tmp_path.name)]
    calls.clear()
    (tmp_path / "two.tmp").write_bytes(b"a copy")
    place(tmp_path / "two.tmp", tmp_path / "two")
    assert calls == [("flushed", "two.tmp"), ("renamed", "two"), ("flushed", tmp_path.name)]


def test_a_new_data_folder_is_durable_with_all_its_parents(calls: list[tuple[str, str]], tmp_path: Path) -> None:
    folder = DataFolder(tmp_path / "some" / "where" / "data")
    folder.acquire()
    folder.release()
    assert {("flushed", name) for name in ("data", "where", "some", tmp_path.name)} <= set(calls)


@pytest.mark.parametrize("shared", [False, True])
def test_the_row_comes_after_the_file_and_its_object_and_the_version_after_the_row(
    calls: list[tuple[str, str]], tmp_path: Path, shared: bool
) -> None:
    order: list[str] = []

    async def publish() -> None:
        config = ServerConfig(data=DataConfig(folder=str(tmp_path)), trainer=TrainerConfig(retry_seconds=NEVER))
        folder, storage, thread = DataFolder(tmp_path), SqliteStorage(tmp_path / "journal.db"), BackgroundThread()
        objects = FolderObjects(tmp_path / "objects") if shared else None
        files = VersionFiles(folder, storage, objects, thread)
        folder.acquire()
        await storage.open()
        settings = json.dumps(to_dict(LearnerConfig()))
        row = await storage.create_learner(NewLearner("one", "uid", b"", settings, None, None), 9)
        folder.make_learner(row.uid)
        served = ServedLearner(row)

        def watch(statement: str) -> None:
            if statement.startswith("INSERT INTO snapshots"):
                if objects is not None:
                    (stored,) = objects.list(served.uid)
                    draft, *folders = [name for what, name in calls[-3:] if what == "flushed"]
                    assert draft.startswith(".draft-") and folders == [served.uid, "objects"]
                    assert sha256_of(next(folder.of_learner(served.uid).glob("*.safetensors"))) == stored.sha256
                    del calls[-3:]
                flushed, renamed, folder_flushed = calls[-3:]
                assert flushed[1].endswith(".tmp") and renamed[0] == "renamed" and folder_flushed[1] == served.uid
                assert renamed[1] in statement or folder.snapshot(served.uid, renamed[1].split(".")[0]).exists()
                order.append("row")
            if statement == "COMMIT" and "row" in order:
                assert served.model.version == 0, "it serves before it is durable"
                order.append("commit")

        async def record(version: NewVersion) -> Published:
            return await storage.publish(version)

        storage._journal._connection.set_trace_callback(watch)
        teacher = InProcessTeacher(config)
        teaching = Teaching(config.teaching, storage, teacher, files, thread, "cpu")
        await Publisher(config, files, storage, thread, teaching).publish_changed(served, taught(), "restored", record)
        order.append(f"version {served.model.version}")
        storage._journal._connection.set_trace_callback(None)
        await storage.close()
        thread.close()
        folder.release()

    asyncio.run(publish())
    assert order == ["row", "commit", "version 1"]


def test_the_journal_flushes_every_commit_and_answers_after_it(tmp_path: Path) -> None:
    async def write() -> list[bool]:
        journal = Journal(tmp_path / "journal.db")
        journal.start(asyncio.get_running_loop())
        connection = journal._connection
        settings = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]
        assert settings == ["wal", 2], "2: FULL, a flush of the log with every commit"
        assert connection.execute("PRAGMA secure_delete").fetchone() == (1,)
        answered: list[bool] = []
        futures: list[Any] = []

        def watch(statement: str) -> None:
            if statement == "COMMIT":
                answered.append(any(future.done() for future in futures))

        connection.set_trace_callback(watch)
        futures.append(journal.submit(lambda c: c.execute("INSERT INTO examples VALUES (1, x'', x'')").rowcount, 1))
        assert await futures[0] == 1
        connection.set_trace_callback(None)
        await journal.close()
        return answered

    assert asyncio.run(write()) == [False]
    connection = schema.connect(tmp_path / "journal.db", readonly=True)
    assert connection.execute("SELECT count(*) FROM examples").fetchone() == (1,)
    connection.close()


RIGHT = r"""
1 pwrite64(5</d/journal.db-wal>, "\x70\x6c\x61\x6e\x74", 5, 0) = 5
1 fdatasync(5</d/journal.db-wal> <unfinished ...>
2 write(7</d/s/u/.x.tmp>, "\x73\x6f\x6d\x65", 4) = 4
1 <... fdatasync resumed>) = 0
1 sendmsg(9<socket:[1]>, {msg_iov=[{iov_base="\x61\x63\x6b", iov_len=3}]}, 0) = 3
2 fsync(7</d/s/u/.x.tmp>) = 0
2 rename("/d/s/u/.x.tmp", "/d/s/u/name.safetensors") = 0
2 fsync(8</d/s/u>) = 0
1 pwrite64(5</d/journal.db-wal>, "\x6e\x61\x6d\x65", 4, 0) = 4
1 fdatasync(5</d/journal.db-wal>) = 0
1 sendmsg(9<socket:[1]>, {msg_iov=[{iov_base="\x74\x6f\x6c\x64", iov_len=4}]}, 0) = 4
"""


def findings(trace: str) -> Any:
    lines = iter(trace.strip().splitlines())
    return judge(parse(lines), [Acknowledged(b"plant", b"ack")], [Announced("name", b"told")])


def test_the_judge_of_traces_accepts_the_right_order() -> None:
    found = findings(RIGHT)
    assert (found.acknowledgements, found.versions, found.violations) == (1, 1, [])


def test_an_answer_that_is_sent_in_pieces_is_seen() -> None:
    whole, pieces = r'"\x61\x63\x6b", iov_len=3', r'"\x61", iov_len=1}, {iov_base="\x63\x6b", iov_len=2'
    assert whole in RIGHT
    found = findings(RIGHT.replace(whole, pieces))
    assert (found.acknowledgements, found.versions, found.violations) == (1, 1, [])


@pytest.mark.parametrize(
    ("line", "to", "complaint"),
    [
        (3, 5, "the log was not flushed"),  # the flush ends only after the acknowledgement
        (5, 7, "the temporary file was not flushed"),
        (7, 10, "the folder was not flushed"),
        (9, 11, "the row was not flushed"),
        (2, 7, "not written whole"),
    ],
)
def test_the_judge_of_traces_finds_every_wrong_order(line: int, to: int, complaint: str) -> None:
    lines = RIGHT.strip().splitlines()
    lines.insert(to - 1, lines.pop(line))
    assert any(complaint in violation for violation in findings("\n".join(lines)).violations)


def test_a_flush_that_failed_is_none() -> None:
    failed = RIGHT.replace("fsync(7</d/s/u/.x.tmp>) = 0", "fsync(7</d/s/u/.x.tmp>) = -1 EIO")
    assert findings(failed).versions == 0
