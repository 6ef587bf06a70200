"""A short run of the fuzzer: whatever is sent, the server answers with a reason, tells nothing, and loses nothing."""

from __future__ import annotations

import json
import random
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from grpc import StatusCode
from typer.testing import CliRunner

from benchmarks.errors import OptionError
from devtools.process_stats import resident_bytes
from reliability.fuzz import __main__ as command
from reliability.fuzz import seeds, snapshots, wire
from reliability.fuzz.answers import SECONDS, Answer, Violation, judge
from reliability.fuzz.attack import Attacker, explore
from reliability.fuzz.methods import KNOWN
from reliability.fuzz.pictures import bombs
from reliability.fuzz.run import FuzzOptions
from sharp.v1 import prediction_pb2, tensor_pb2

GROWTH = 200e6
"""Bytes by which memory may be higher after these few hundred messages: allocators keep some."""

METHODS = [f"/{service.full_name}/{method.name}" for module in KNOWN
           for service in module.DESCRIPTOR.services_by_name.values() for method in service.methods]  # fmt: skip


@pytest.fixture(autouse=True)
def unharmed(attacker: Attacker) -> Iterator[None]:
    """After every test: alive, what was planted is as it was, memory within bounds, no fault in the log."""
    target = attacker.target
    before = resident_bytes(target.server.pid) or 0
    yield
    wire.still_answers(target)
    target.tidy()
    assert target.state() == target.before
    assert (resident_bytes(target.server.pid) or 0) - before < GROWTH
    assert target.log_faults() == []


def test_every_method_that_the_server_offers_is_attacked(attacker: Attacker) -> None:
    assert {method.path for method in attacker.target.methods} == set(METHODS)


@pytest.mark.parametrize("path", METHODS)
def test_no_message_breaks_a_method(attacker: Attacker, path: str) -> None:
    method = next(method for method in attacker.target.methods if method.path == path)
    attacker.ask(method, examples=12, seed=1)
    assert attacker.tallies[path].calls >= 12


def test_a_victim_that_was_deleted_is_there_again_for_whatever_comes_next(attacker: Attacker) -> None:
    target = attacker.target
    target.client.delete_learner(seeds.VICTIM)
    target.have_victim()
    assert target.snapshot in {kept.id for kept in target.client.list_snapshots(seeds.VICTIM)}


@pytest.mark.parametrize("awaited", [{"min_model_version": 10**12}, {"min_examples": 10**12}], ids=str)
def test_waiting_for_what_never_comes_is_no_violation_and_takes_no_time(
    attacker: Attacker, awaited: dict[str, int]
) -> None:
    method = next(method for method in attacker.target.methods if method.path.endswith("/Predict"))
    request = prediction_pb2.PredictRequest(learner=seeds.PLANTED, inputs=seeds.inputs(1), **awaited)  # type: ignore[arg-type]
    begun, known = time.monotonic(), len(attacker.violations)
    assert attacker.send("waiting", method, [request.SerializeToString()]) == "DEADLINE_EXCEEDED"
    assert len(attacker.violations) == known and time.monotonic() - begun < SECONDS / 2


def test_no_image_breaks_the_server(attacker: Attacker) -> None:
    attacker.show_pictures(examples=15, seed=1)


def test_every_bomb_is_refused_alone(attacker: Attacker) -> None:
    method = next(method for method in attacker.target.methods if method.path.endswith("/Predict"))
    for bomb in bombs():
        images = tensor_pb2.EncodedImages(images=[bomb], resize=True)
        request = prediction_pb2.PredictRequest(learner="pictures", inputs=tensor_pb2.Inputs(images=images))
        attacker.send("bombs", method, [request.SerializeToString()])
    codes = attacker.tallies["bombs"].codes
    # Whole images may be many pixels or carry much that is not looked at: those are answered, all others refused.
    assert codes["INVALID_ARGUMENT"] >= len(bombs()) - 4 and set(codes) <= {"INVALID_ARGUMENT", "OK"}


def test_no_snapshot_file_breaks_the_server(attacker: Attacker) -> None:
    attacker.offer_snapshots(examples=25, seed=1)


def test_what_snapshots_are_forged_from_stays_as_it_is(attacker: Attacker) -> None:
    before = repr(snapshots._JSON)
    explore(lambda file: None, snapshots.forged(attacker.target.parts), examples=400, seed=3)
    assert repr(snapshots._JSON) == before


def test_headers_that_lie_are_refused(attacker: Attacker) -> None:
    for file in snapshots.lying_headers(attacker.target.parts):
        assert attacker.offer(file) == "INVALID_ARGUMENT"


def test_a_header_of_a_hundred_megabytes_is_refused_without_reading_it(attacker: Attacker) -> None:
    size = 100 << 20
    file = struct.pack("<Q", size) + b'{"__metadata__":{"a":"' + b" " * (size - 26) + b'"}}'
    assert attacker.offer(file) == "INVALID_ARGUMENT"


def test_garbage_and_silence_on_the_ports_disturb_nobody(attacker: Attacker) -> None:
    assert wire.send_garbage(attacker.target, random.Random(1)) > 15
    wire.keep_silent(attacker.target, 80)


def test_streams_that_are_opened_and_dropped_leave_nothing_behind(attacker: Attacker) -> None:
    wire.drop_streams(attacker.target, 240, random.Random(1))


def test_answers_that_nobody_reads_do_not_pile_up(attacker: Attacker) -> None:
    wire.read_slowly(attacker.target, 2000)


# ---- the fuzzer itself ------------------------------------------------------------------------------------------


def test_the_command_attacks_tells_and_saves(tmp_path: Path) -> None:
    file = tmp_path / "fuzz.json"
    words = ["--messages", "40", "--per-round", "2", "--seed", "2", "--output", str(file)]
    outcome = CliRunner().invoke(command.app, words, env={"COLUMNS": "160"})
    assert outcome.exit_code == 0, outcome.output
    found = json.loads(file.read_text())
    assert found["failures"] == [] and found["messages"] >= 40 and set(METHODS) <= set(found["by_method"])
    assert found["planted_same"] and found["planted_same_after_restart"] and found["exit_code"] == 0
    assert all(found["memory"][name]["samples"] > 20 for name in ("front", "trainer", "teacher"))
    assert "nothing broke" in outcome.output


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(StatusCode.INTERNAL, "x"), "INTERNAL"),
        (Answer(StatusCode.UNKNOWN, "x"), "UNKNOWN"),
        (Answer(StatusCode.UNAVAILABLE, "x"), "UNAVAILABLE"),
        (Answer(StatusCode.DEADLINE_EXCEEDED), "in time"),
        (Answer(StatusCode.NOT_FOUND, 'File "x"'), "revealed"),
        (Answer(StatusCode.NOT_FOUND, "/srv/secret-folder/x"), "secret-folder"),
        (Answer(StatusCode.OK, parts=[b"..Traceback (most recent"]), "Traceback"),
    ],
    ids=str,
)
def test_an_answer_that_may_not_be_is_found(attacker: Attacker, answer: Answer, words: str) -> None:
    method = next(method for method in attacker.target.methods if method.path.endswith("/Predict"))
    with pytest.raises(Violation, match=words):
        judge(method, answer, b"secret-folder")


@pytest.mark.parametrize("options", [{"messages": 0}, {"seed": -1}, {"per_round": 0}], ids=str)
def test_an_option_that_cannot_be_is_named(options: dict[str, int]) -> None:
    with pytest.raises(OptionError):
        FuzzOptions(**options)
