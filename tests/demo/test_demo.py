"""`make demo` in its short form, with a real server, and what it says where a promise does not hold."""

from __future__ import annotations

import io
import json
import re
import tempfile
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from demo import __main__ as command
from demo.picture import picture
from demo.plain_network import PlainNetwork
from demo.record import Episode, Record
from demo.report import page
from demo.story import Story
from demo.view import Lesson, View
from devtools.server_process import ServerProcess, ServerProcessError
from sharp_engine import preset


@pytest.fixture
def record() -> Record:
    record = Record(architecture="mlp for 64", test_examples=40, forgotten=3, accuracy_of_the_others=0.9)
    for number, (sharp, plain) in enumerate(((1.0, 1.0), (0.95, 0.5))):
        classes = (2 * number, 2 * number + 1)
        known = dict.fromkeys(range(2 * number + 2), sharp)
        forgot = {label: float(label in classes) for label in known}
        record.episodes.append(Episode(classes, 280, 1.5, sharp, plain, known, forgot))
    record.promise("it holds", True, "seen <here>")
    return record


def test_the_short_form_keeps_every_promise_serves_its_page_until_it_is_ended_and_leaves_only_its_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARP_LISTEN_PORT", "1")  # settings of another server must not leak in
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    report, drawn = tmp_path / "report.html", tmp_path / "picture.svg"
    output_so_far = []

    def look() -> None:
        output_so_far.append(capsys.readouterr().out)
        page = re.findall(r"http://127\.0\.0\.1:\d+/", output_so_far[0])[-1]
        with urllib.request.urlopen(page, timeout=30) as answer:
            assert b"SHARP" in answer.read()
        with urllib.request.urlopen(f"{page}api/learners/digits", timeout=30) as answer:
            assert len(json.load(answer)["classes"]) == 3  # four were learned, one was forgotten
        assert "promises held</dt><dd>5 of 5" in report.read_text(encoding="utf-8")
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "wait", look)
    argv = ["--episodes", "2", "--forget", "1", "--keep", "--report", str(report), "--picture", str(drawn)]
    assert command.main(argv) == 0
    output = output_so_far[0] + capsys.readouterr().out
    assert "\x1b" not in output  # plain lines: this is no terminal
    assert output.count("✓") == 6 and "✗" not in output
    assert "episode 2 of 2: 2 and 3" in output and "killed with SIGKILL" in output and "Forget 1, please" in output
    text = report.read_text(encoding="utf-8")
    assert "promises held</dt><dd>6 of 6" in text and "mlp for 64" in text
    assert drawn.read_text(encoding="utf-8") in text
    assert not list(tmp_path.glob("sharp-demo-*"))


def test_it_is_kept_only_if_asked_and_says_how_to_ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: Record, capsys: pytest.CaptureFixture[str]
) -> None:
    pauses = []
    monkeypatch.setattr(Story, "__init__", lambda story, *_, pause: pauses.append(pause))
    monkeypatch.setattr(Story, "run", lambda story: record)
    assert command.main(["--report", str(tmp_path / "report.html")]) == 0
    assert pauses == [None] and "make demo KEEP=1" in capsys.readouterr().out


def test_a_broken_promise_is_exit_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: Record, capsys: pytest.CaptureFixture[str]
) -> None:
    record.promise("the predictions are the same", False, "they are not")
    monkeypatch.setattr(Story, "run", lambda story: record)
    assert command.main(["--report", str(tmp_path / "report.html")]) == 1
    assert "not every promise held" in capsys.readouterr().out
    assert 'class="broken"><td>✗' in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_run_without_any_promise_proves_nothing() -> None:
    assert not Record().kept_all


@pytest.mark.parametrize("argv", [["--forget", "4", "--episodes", "2"], ["--forget", "-1"], ["--episodes", "6"]])
def test_what_cannot_be_done_is_refused(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(argv)
    assert ended.value.code == 2
    assert argv[0] in capsys.readouterr().err


def test_the_report_loads_nothing_and_the_picture_is_themed(record: Record) -> None:
    text = page(record)
    links = set(re.findall(r"(?:https?:)?//[\w.]+", text))
    assert links <= {"http://www.w3.org"}  # the name of a namespace, never fetched
    assert not re.search(r"<(script|link|img|iframe)|@import|url\(", text)
    assert "seen &lt;here&gt;" in text
    assert "prefers-color-scheme: dark" in picture(record)
    assert picture(record).count("<circle") == 4


def test_a_terminal_sees_bars_that_move() -> None:
    stream: Any = SimpleNamespace(examples_sent=30, examples_acknowledged=20)
    lesson = Lesson("episode 1 of 2", 40, stream, sent_before=10)
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100)
    console.print(lesson.render())
    before = screen.getvalue()
    assert "20 examples" in before and "10 on the server's disk" in before and "fine-tuning" in before
    lesson.plain = 1.0
    console.print(lesson.render())
    assert "fine-tuned" in screen.getvalue()[len(before) :]


def test_the_view_needs_no_terminal(record: Record) -> None:
    shown = io.StringIO()
    view = View(Console(file=shown, width=40))
    view.heading("Learn")
    with view.working("starting"):
        view.episode(2, record.episodes[1])
    view.promise(record.promises[0])
    lines = [line.rstrip() for line in shown.getvalue().splitlines() if line]
    assert lines[0].startswith("Learn")
    assert lines[1:] == [
        "  starting …",
        "  after episode 2 (new: 2 and 3): SHARP 95.0 %, plain network 50.0 %",
        "  ✓ it holds (seen <here>)",
    ]


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("no folder")
    with pytest.raises(ServerProcessError, match="does not serve: .+"):
        ServerProcess(tmp_path, as_command=True).start()


def test_the_plain_network_learns_and_then_forgets() -> None:
    config = preset("default").with_options({"training.min_steps": 10, "architecture.kind": "mlp"})
    network = PlainNetwork(config, (8,), classes=4)
    rng = np.random.default_rng(0)
    centres = rng.random((4, 8)).astype(np.float32)

    def examples(*labels: int) -> tuple[np.ndarray[Any, Any], list[int]]:
        y = [label for label in labels for _ in range(30)]
        return centres[y] + 0.02 * rng.random((len(y), 8), np.float32), y

    shares = list(network.learn(*examples(0, 1)))
    assert len(shares) == 30 and shares[-1] == 1.0
    x, y = examples(0, 1)
    assert network.predict(x).tolist() == y
    list(network.learn(*examples(2, 3)))
    assert not set(network.predict(x)) & {0, 1}
