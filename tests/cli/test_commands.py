"""Each command against a server: what it says to people, what to programs, and how it fails."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import sharp_client
from sharp_client.testing import FakeServer

Sharp = Any
GROUPS = ("learner", "snapshot", "episode", "class")


@pytest.fixture
def taught(sharp: Sharp) -> Sharp:
    """A server that knows iris."""
    assert sharp("learn", "iris", "--json").code == 0
    return sharp


def test_learning_by_classes_makes_an_episode_of_each_group(sharp: Sharp, server: FakeServer) -> None:
    done = sharp("learn", "digits", "--classes-per-episode", "2", "--batch-size", "100")
    assert done.code == 0, done.err
    assert done.out.count("✓") == 5 and "1,797 examples are durable, version 5 serves" in done.out
    assert server.learners["digits"].episodes_learned == 5
    assert sum(known.count for known in server.learners["digits"].classes.values()) == 1797


def test_learning_writes_a_line_per_episode_and_a_summary_for_programs(sharp: Sharp) -> None:
    lines = sharp("learn", "iris", "--classes-per-episode", "1", "-l", "flowers", "--json").lines()
    assert [line["event"] for line in lines] == ["episode"] * 3 + ["done"]
    assert [line["state"] for line in lines[:3]] == ["learned"] * 3
    assert lines[-1] | {"stream_id": ""} == {
        "event": "done",
        "learner": "flowers",
        "stream_id": "",
        "examples_sent": 150,
        "examples_durable": 150,
        "episodes": 3,
        "model_version": 3,
    }


def test_data_that_cannot_be_sent_makes_no_learner(sharp: Sharp, server: FakeServer, tmp_path: Path) -> None:
    np.savez(tmp_path / "bad.npz", x=np.full((4, 2), np.nan), y=np.zeros(4, int))
    done = sharp("learn", str(tmp_path / "bad.npz"))
    assert done.code == 1 and "bad.npz[0]: holds a NaN" in done.err and not server.learners


def test_automatic_boundaries_leave_the_cuts_to_the_server(sharp: Sharp, server: FakeServer) -> None:
    words = ("--boundaries", "automatic", "--classes-per-episode", "1", "--batch-size", "25")
    lines = sharp("learn", "iris", *words, "--json").lines()
    assert [line["closed_by"] for line in lines[:-1]] == ["cut", "cut", "mark"]


def test_not_waiting_ends_when_everything_is_durable(sharp: Sharp, server: FakeServer) -> None:
    done = sharp("learn", "iris", "--no-wait", "--json").lines()[-1]
    assert done["examples_durable"] == 150


def test_a_stream_with_an_id_continues_after_what_is_durable(sharp: Sharp, server: FakeServer) -> None:
    words = ("learn", "iris", "--stream-id", "job-1", "--classes-per-episode", "1")
    first = sharp(*words)
    second = sharp(*words, "--json").lines()[-1]
    assert first.code == 0 and second["examples_durable"] == 150 and second["model_version"] == 3
    assert sum(known.count for known in server.learners["iris"].classes.values()) == 150


def test_an_episode_that_is_parked_is_shown_and_fails_the_command(sharp: Sharp, tmp_path: Path) -> None:
    np.savez(tmp_path / "one.npz", x=np.eye(2, dtype=np.float32), y=np.array([0, 1]))
    sharp("learner", "create", "lonely", "--preset", "sharp")
    done = sharp("learn", str(tmp_path / "one.npz"), "-l", "lonely")
    assert done.code == 1 and "no two examples share a class" in done.out
    parked = sharp("episode", "list", "--json").json()["episodes"]
    assert [(one["episode"], one["parked"]["reason"]) for one in parked] == [(1, "no_positive_pair")]
    assert "no positive pair" in sharp("episode", "list").out
    assert sharp("episode", "retry", "1", "--json").json() == {"learner": "lonely", "episode": 1, "episodes_ahead": 0}
    assert "no episode of lonely is parked" in sharp("episode", "list").out
    assert sharp("episode", "discard", "1").code == 1


def test_evaluation_shows_accuracy_by_class_and_the_confusion(taught: Sharp) -> None:
    result = taught("evaluate", "iris", "--json").json()
    assert result["examples"] == 150 and result["accuracy"] > 0.8
    assert result["classes"] == ["setosa", "versicolor", "virginica"]
    assert np.sum(result["confusion"]) == 150
    shown = taught("evaluate", "iris", "--part", "test")
    assert "of 30 examples are right" in shown.out and "setosa" in shown.out


def test_images_in_folders_are_taught_and_predicted(sharp: Sharp, tmp_path: Path) -> None:
    for label, shade in (("dark", 10), ("light", 240)):
        (tmp_path / "shades" / label).mkdir(parents=True)
        for index in range(4):
            Image.new("L", (6, 6), shade + index).save(tmp_path / "shades" / label / f"{index}.png")
    assert sharp("learn", str(tmp_path / "shades")).code == 0
    file = tmp_path / "new.jpg"
    Image.new("L", (6, 6), 230).save(file)
    answer = sharp("predict", str(file), "--top", "2", "--novelty", "--json").json()
    assert answer["learner"] == "shades"
    assert answer["predictions"][0]["label"] == "light" and len(answer["predictions"][0]["top"]) == 2
    shown = sharp("predict", str(file), "--top", "2")
    assert "light" in shown.out and "dark" in shown.out
    Image.new("L", (9, 9), 5).save(file)
    assert sharp("predict", str(file)).code == 1
    assert "dark" in sharp("predict", str(file), "--resize").out


def test_arrays_in_files_are_predicted(taught: Sharp, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((2, 4), np.float32))
    np.savez(tmp_path / "x.npz", x=np.ones((1, 4), np.float32))
    answer = taught("predict", str(tmp_path / "x.npy"), str(tmp_path / "x.npz"), "--json").json()
    assert [one["label"] for one in answer["predictions"]] == ["setosa", "setosa", "virginica"]


def test_status_shows_the_server_and_its_learners(taught: Sharp) -> None:
    shown = taught("status")
    assert "serving" in shown.out and "iris" in shown.out
    shown_json = taught("status", "--json").json()
    assert shown_json["state"] == "serving" and shown_json["learners"][0]["name"] == "iris"


def test_watching_once_draws_layers_memories_and_throughput(taught: Sharp) -> None:
    shown = taught("watch", "--once").out
    for word in ("iris", "units by rank", "hidden", "█", "░", "92%", "short-term", "long-term", "behind", "examples/s"):
        assert word in shown
    shown_json = taught("watch", "--once", "--json").json()
    assert shown_json["status"]["layers"][0]["ranks"] == [{"rank": 0, "units": 88}, {"rank": 2, "units": 8}]


def test_snapshots_are_made_listed_exported_imported_restored_and_deleted(taught: Sharp, tmp_path: Path) -> None:
    made = taught("snapshot", "create", "--note", "a [bold] note", "--json").json()
    assert made["note"] == "a [bold] note" and made["origin"] == "requested"
    listed = taught("snapshot", "list", "--json").json()["snapshots"]
    assert [one["origin"] for one in listed] == ["requested", "automatic"]
    assert "a [bold] note" in taught("snapshot", "list").out
    file = tmp_path / "iris.safetensors"
    exported = taught("snapshot", "export", str(file), "--id", made["id"], "--json").json()
    assert exported["size_bytes"] == file.stat().st_size and exported["sha256"] == made["sha256"]
    assert taught("snapshot", "import", str(file), "-l", "copy", "--json").json()["created"] is True
    assert "version 2 serves" in taught("snapshot", "restore", made["id"], "-l", "iris").out
    assert taught("snapshot", "delete", made["id"], "-l", "iris").code == 0
    again = taught("snapshot", "delete", made["id"], "-l", "iris")
    assert again.code == 1 and again.err.startswith("sharp: ") and again.err.count("\n") == 1


def test_the_classes_of_a_learner_are_listed(taught: Sharp) -> None:
    listed = taught("class", "list", "--json").json()
    assert listed["learner"] == "iris"
    assert sorted(known["label"] for known in listed["classes"]) == ["setosa", "versicolor", "virginica"]
    assert "setosa" in taught("class", "list").out
    taught("learner", "create", "empty")
    assert "knows no class yet" in taught("class", "list", "-l", "empty").out


def test_a_forgotten_class_is_gone(taught: Sharp, server: FakeServer) -> None:
    shown_json = taught("class", "forget", "setosa", "--json").json()
    assert shown_json["ltm_entries"] == 1 and len(shown_json["snapshots_holding"]) == 1
    assert "setosa" not in server.learners["iris"].classes
    assert "deleted" in taught("class", "forget", "virginica", "--delete-snapshots", "--yes").out
    assert taught("class", "forget", "rose", "--yes").code == 1


def test_classes_that_are_integers_are_forgotten_as_integers(sharp: Sharp, server: FakeServer) -> None:
    sharp("learn", "digits", "--part", "test")
    assert sharp("class", "forget", "3", "--yes").code == 0 and 3 not in server.learners["digits"].classes
    assert sharp("class", "forget", "4", "--json").json()["label"] == 4
    assert sharp("class", "forget", "three").code == 2


def test_learners_are_created_listed_shown_and_deleted(sharp: Sharp, server: FakeServer) -> None:
    assert "no learners yet" in sharp("learner", "list").out
    words = ("--preset", "mnist", "--set", "training.phases=3", "--input-shape", "1x28x28", "--seed", "4")
    made = sharp("learner", "create", "mine", *words, "--json").json()
    assert made["config"]["overrides"] == {"training.phases": "3"} and made["config"]["input_shape"] == [1, 28, 28]
    assert "mine" in sharp("learner", "list").out
    assert "1×28×28" in sharp("learner", "show", "mine").out
    assert sharp("learner", "show", "mine", "--json").json()["config"]["seed"] == 4
    assert sharp("learner", "delete", "mine", input="n\n").code == 1 and "mine" in server.learners
    assert sharp("learner", "delete", "mine", "--yes").code == 0 and not server.learners


def test_every_command_speaks_json_and_nothing_else_to_programs(sharp: Sharp, tmp_path: Path) -> None:
    np.savez(tmp_path / "lonely.npz", x=np.eye(2, 4, dtype=np.float32), y=np.array(["rose", "tulip"]))
    np.save(tmp_path / "x.npy", np.zeros((2, 4), np.float32))
    np.save(tmp_path / "one.npy", np.zeros((1, 4), np.float32))
    said: set[tuple[str, ...]] = set()

    def run(*words: str, code: int = 0) -> Any:
        done = sharp(*words, "--json")
        assert done.code == code and not done.err, (words, done.err)
        said.add(words[:2] if words[0] in GROUPS else words[:1])
        return done.lines()[-1]

    run("learner", "create", "iris", "--preset", "sharp")
    run("learn", "iris")
    run("learn", str(tmp_path / "lonely.npz"), "-l", "iris", code=1)
    for words in (("predict", str(tmp_path / "x.npy")), ("evaluate", "iris"), ("status",), ("watch", "--once"),
                  ("learner", "list"), ("learner", "show", "iris"), ("learner", "watch", "--once"),
                  ("class", "list"), ("snapshot", "list"), ("episode", "list"),
                  ("episode", "discard", "2"), ("snapshot", "export", str(tmp_path / "file"))):  # fmt: skip
        run(*words)
    made = run("snapshot", "create")["id"]
    run("snapshot", "restore", made)
    run("snapshot", "delete", made)
    run("class", "forget", "setosa")
    run("teach", "rose", str(tmp_path / "x.npy"), "-l", "flowers")
    run("correct", str(tmp_path / "one.npy"), "tulip", "-l", "flowers")
    run("learner", "delete", "flowers")
    run("snapshot", "import", str(tmp_path / "file"), "-l", "copy")
    run("learner", "delete", "copy")
    run("learn", str(tmp_path / "lonely.npz"), "-l", "iris", code=1)
    run("episode", "retry", str(run("episode", "list", "-l", "iris")["episodes"][0]["episode"]), "-l", "iris")
    run("serve", "--print-config")
    app = importlib.import_module("sharp_cli.main").app
    there: set[tuple[str, ...]] = {(command.name or command.callback.__name__,) for command in app.registered_commands}
    for group in app.registered_groups:
        commands = group.typer_instance.registered_commands
        there |= {(group.name, command.name or command.callback.__name__) for command in commands}
    # The fake server has no health service: tests/cli/test_health.py asks a real one.
    assert said == {words for words in there if words[0] not in ("benchmark", "health")}


def test_nothing_is_coloured_where_nobody_looks(taught: Sharp) -> None:
    for words in (("status",), ("evaluate", "iris"), ("watch", "--once"), ("learner", "show", "iris")):
        assert "\x1b" not in taught(*words).out


def test_interrupted_learning_shows_what_is_durable_and_how_to_continue(
    sharp: Sharp, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sharp_cli import learn

    def interrupt(self: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(learn._Follower, "report", interrupt)
    done = sharp("learn", "iris", "--batch-size", "100")
    assert done.code == 130 and "of 150 examples are durable" in done.err and "--stream-id python/" in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("dance",),
        ("learn",),
        ("learn", "no-such-thing"),
        ("learn", "iris", "--batch-size", "0"),
        ("learn", "iris", "--boundaries", "fuzzy"),
        ("learner", "create", "x", "--set", "nonsense"),
        ("learner", "create", "x", "--input-shape", "big"),
        ("episode", "retry", "zero"),
        ("predict",),
        ("snapshot", "import", "file"),
        ("watch", "--interval", "0"),
        ("status",),
    ],
)
def test_bad_usage_ends_with_2_and_no_traceback(words: tuple[str, ...], sharp: Sharp) -> None:
    done = sharp(*words, "--tls=maybe") if words == ("status",) else sharp(*words)
    assert done.code == 2
    assert "Traceback" not in done.out + done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("learner", "show", "nobody"), "there is no learner 'nobody'"),
        (("predict", "/no/such/file.png", "-l", "iris"), "/no/such/file.png: no such file or directory"),
        (("snapshot", "import", "/no/such/file", "-l", "iris"), "No such file or directory"),
        (("learn", "iris", "-l", "bad name"), "is no name for a learner"),
        (("learn", "/no/such.npz"), "No such file or directory"),
        (("--token-file", "/no/such/token", "status"), "No such file or directory"),
    ],
)
def test_a_failure_is_one_line_and_exit_code_1(words: tuple[str, ...], said: str, sharp: Sharp) -> None:
    done = sharp(*words)
    assert done.code == 1 and done.out == ""
    assert done.err.startswith("sharp: ") and said in done.err and done.err.count("\n") == 1


def test_no_server_is_one_clear_line(sharp: Sharp) -> None:
    done = sharp("status", address="localhost:1")
    assert done.code == 1 and "is it running" in done.err and done.err.count("\n") == 1
    assert "(connection refused)" in done.err


def test_a_refusal_says_when_to_come_back(sharp: Sharp, server: FakeServer) -> None:
    server.fail_next("GetServerStatus", sharp_client.ServerNotReadyError("the server is starting"), times=9)
    done = sharp("status", "--timeout", "0.5")
    assert done.code == 1 and "the server is starting (try again in 0.01 s)" in done.err


def test_with_several_learners_one_must_be_named(sharp: Sharp) -> None:
    sharp("learner", "create", "a")
    sharp("learner", "create", "b")
    done = sharp("snapshot", "list")
    assert done.code == 2 and "a, b" in done.err


def test_a_data_set_of_scikit_learn_needs_scikit_learn(sharp: Sharp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    done = sharp("learn", "iris")
    assert done.code == 2 and "scikit-learn" in done.err


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"a": np.zeros(2)}, "no x"),
        ({"x": np.zeros((2, 2)), "y": np.zeros(3, int)}, "one label per example"),
        ({"x": np.array([object()]), "y": np.zeros(1)}, "can't be read"),
    ],
)
def test_an_npz_that_does_not_fit_is_explained(arrays: dict[str, Any], said: str, sharp: Sharp, tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", **arrays)
    done = sharp("learn", str(tmp_path / "data.npz"))
    assert done.code == 2 and said in " ".join(done.err.replace("│", " ").split())


def test_the_configuration_of_a_server_is_shown_with_its_sources(tmp_path: Path, sharp: Sharp) -> None:
    pytest.importorskip("sharp_server")
    file = tmp_path / "sharp.toml"
    file.write_text("[listen]\nport = 1234\n[log]\nlevel = 'debug'\n")
    shown = sharp("serve", "--config", str(file), "--port", "0", "--print-config", "--json").json()
    assert shown["listen.port"] == {"value": 0, "source": "flag"}
    assert shown["log.level"] == {"value": "debug", "source": f"file {file}"}
    assert shown["log.format"]["source"] == "default"
    assert "listen.port" in sharp("serve", "--print-config").out
    wrong = sharp("serve", "--port", "many", "--print-config")
    assert wrong.code == 2 and "many" in wrong.err and wrong.err.count("\n") == 1
    from sharp_server import config_options

    help_text = " ".join(sharp("serve", "--help").out.replace("│", " ").split())
    assert "--port,--listen-port" in help_text and "--insecure" in help_text and "--log-format" in help_text
    for option in config_options():
        assert option.variable in help_text.replace(" ", ""), option.name


def test_a_missing_server_is_explained() -> None:
    program = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "grpc_health", "sharp_engine"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocker())
from sharp_cli.main import app
app(["serve", "--port", "0", "--data-folder", sys.argv[1]], prog_name="sharp")
"""
    path = [str(Path(__file__).parents[2] / folder) for folder in ("client", "server", "cli", "proto")]
    program = f"import sys; sys.path[:0] = {path!r}\n{program}"
    done = subprocess.run([sys.executable, "-c", program, "/nowhere"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and done.stdout == ""
    assert "pip install 'sharp-serve[server]'" in done.stderr and done.stderr.count("\n") == 1
