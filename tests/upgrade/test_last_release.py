"""What the release before left on disk: read, or refused with both formats and the way to go, and never touched."""

from __future__ import annotations

import hashlib
import re
import shutil
import sqlite3
import tarfile
from pathlib import Path

import pytest

from devtools.server_process import ServerProcess, ServerProcessError
from sharp_client import Client, SnapshotFormatUnsupportedError
from sharp_engine import Learner, SnapshotVersionError
from sharp_engine.snapshot import VERSION
from sharp_server.storage.sqlite.schema import FORMAT
from tests.server.running import Server

KEPT = Path(__file__).parent / "release-0.1.0.tar.xz"
"""Written by `write.py` with the code of 0.1.0: two episodes learned, a lesson, a batch that waits for its boundary."""
JOURNAL, SNAPSHOTS = 3, 2
"""The formats it has."""
OPERATIONS = (Path(__file__).parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with tarfile.open(KEPT) as archive:
        archive.extractall(tmp_path / "server", filter="data")
    return tmp_path / "server" / "data"


def _opened(data: Path, elsewhere: Path) -> sqlite3.Connection:
    """A copy of the journal: opening it would fold its log into it."""
    shutil.rmtree(elsewhere, ignore_errors=True)
    elsewhere.mkdir()
    for path in data.glob("journal.db*"):
        shutil.copy(path, elsewhere)
    return sqlite3.connect(elsewhere / "journal.db")


def _content(data: Path, elsewhere: Path) -> tuple[int, list[str]]:
    """The journal's format and every row of it."""
    connection = _opened(data, elsewhere)
    content = connection.execute("PRAGMA user_version").fetchone()[0], list(connection.iterdump())
    connection.close()
    return content


def _files(data: Path) -> dict[str, str]:
    """Every other file, with a digest of its bytes."""
    return {
        str(path.relative_to(data)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(data.rglob("*"))
        if path.is_file() and not path.name.startswith("journal.db")
    }


def test_the_kept_files_are_small_and_hold_a_bit_of_everything(data: Path, tmp_path: Path) -> None:
    assert KEPT.stat().st_size < 200_000
    assert _content(data, tmp_path / "copy")[0] == JOURNAL
    connection = _opened(data, tmp_path / "copy")
    rows = {
        table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        for table in ("episodes", "lessons", "examples")
    }
    connection.close()
    assert rows["episodes"] == 2 and rows["lessons"] == 1 and rows["examples"] >= 1
    assert sum(name.endswith(".safetensors") for name in _files(data)) >= 2


def test_a_server_refuses_the_journal_of_the_release_before_and_leaves_everything_as_it_was(
    data: Path, tmp_path: Path
) -> None:
    content, files = _content(data, tmp_path / "copy"), _files(data)
    server = ServerProcess(data.parent)
    for _ in range(2):  # and again, as a supervisor would
        with pytest.raises(ServerProcessError):
            server.start()
        said = server.last_lines()
        assert f"the journal has format {JOURNAL}, this server reads {FORMAT}" in said
        assert "empty data folder" in said and "docs/operations.md" in said and "Traceback" not in said
        assert server.exit_code == 1
        assert _content(data, tmp_path / "copy") == content and _files(data) == files


def test_a_snapshot_of_the_release_before_is_refused_with_both_formats_and_the_way_to_go(data: Path) -> None:
    for path in (data / "snapshots").rglob("*.safetensors"):
        with pytest.raises(
            SnapshotVersionError, match=rf"'{SNAPSHOTS}' cannot be read: this version reads {VERSION}; .*"
        ):
            Learner.load(path)
        try:
            Learner.load(path)
        except SnapshotVersionError as error:
            assert "docs/operations.md" in str(error)


def test_a_server_refuses_to_import_a_snapshot_of_the_release_before_and_makes_nothing_of_it(
    data: Path, shared: Server
) -> None:
    file = next((data / "snapshots").rglob("*.safetensors"))
    with Client(shared.address) as client:
        with pytest.raises(SnapshotFormatUnsupportedError, match=rf"{SNAPSHOTS}.*{VERSION}.*docs/operations.md"):
            client.import_snapshot("of-the-release-before", file)
        assert "of-the-release-before" not in [learner.name for learner in client.list_learners()]


def test_the_handbook_has_the_formats_of_both_releases_and_the_page_that_refusals_name() -> None:
    found = dict(re.findall(r"^\| (0\.\d) \| (format \d \| format \d) \|$", OPERATIONS, re.MULTILINE))
    assert found == {
        "0.1": f"format {JOURNAL} | format {SNAPSHOTS}",
        "0.2": f"format {FORMAT} | format {VERSION}",
    }
    assert "\n## Upgrade\n" in OPERATIONS
