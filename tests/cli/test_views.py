"""The pictures: bars that add up, labels and times as people write them, messages as plain values."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from sharp_cli.data import LabelledData, Part
from sharp_cli.failures import hoist
from sharp_cli.learn_view import LearnView
from sharp_cli.output import size, span
from sharp_cli.plain import to_plain
from sharp_cli.watch_view import describe_event, rank_bar
from sharp_client import (
    EpisodeClosed,
    EpisodeDiscarded,
    EpisodeEvent,
    EpisodeLearned,
    EpisodeParked,
    EpisodeStarted,
    EpisodeStatistics,
    LayerStatistics,
    LearnerConfig,
    Progress,
    RankCount,
    Snapshot,
)
from sharp_client._episode import EpisodeState


@given(units=st.lists(st.integers(1, 999), min_size=1, max_size=12), width=st.integers(1, 80))
def test_a_bar_of_ranks_is_always_as_wide_as_it_should_be(units: list[int], width: int) -> None:
    ranks = tuple(RankCount(rank=rank, units=count) for rank, count in enumerate(units))
    bar = rank_bar(LayerStatistics(units=sum(units), idle=units[0], ranks=ranks), width)
    assert len(bar.plain) == width
    assert abs(bar.plain.count("░") - width * units[0] / sum(units)) <= 1


def test_plain_values_keep_numbers_and_labels_and_write_times_as_text() -> None:
    created = datetime(2026, 11, 16, 1, 2, 3, tzinfo=UTC)
    plain = to_plain(Snapshot(id="7", model_version=2**60, classes=("a", "b"), create_time=created))
    assert plain["model_version"] == 2**60 and plain["id"] == "7"
    assert plain["classes"] == ["a", "b"] and plain["create_time"] == "2026-11-16T01:02:03Z"
    assert plain["damaged"] is False


def test_plain_values_leave_out_what_is_absent_and_keep_maps() -> None:
    assert {"loss", "time_left"}.isdisjoint(to_plain(Progress(phase=1)))
    assert to_plain(Progress(time_left=1.5))["time_left"] == 1.5
    assert to_plain(LearnerConfig(overrides={"a": "1"}))["overrides"] == {"a": "1"}
    assert to_plain(EpisodeStatistics(classes=(-3,), recruited={"hidden": 4})) | {"memories": None} == {
        "examples": 0,
        "classes": [-3],
        "new_classes": [],
        "phase_losses": [],
        "training_time": 0.0,
        "examples_per_second": 0.0,
        "layers": [],
        "memories": None,
        "recruited": {"hidden": 4},
    }


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ({"closed": EpisodeClosed(closed_by="cut", examples=5)}, "closed by cut, 5"),
        ({"started": EpisodeStarted(attempt=2, attempts=3)}, "attempt 2 of 3"),
        ({"learned": EpisodeLearned(model_version=9)}, "version 9"),
        ({"parked": EpisodeParked(detail="too [big]")}, "parked: too [big]"),
        ({"discarded": EpisodeDiscarded(reason="operator")}, "operator"),
    ],
)
def test_events_are_described_in_a_line(event: dict[str, object], said: str) -> None:
    described = describe_event(EpisodeEvent(episode=3, **event))  # type: ignore[arg-type]
    assert described is not None and said in described.plain and "episode 3" in described.plain


def test_learning_shows_what_is_sent_durable_and_learned_and_how_far_each_episode_is() -> None:
    learned, training = EpisodeState(3), EpisodeState(5)
    learned.apply(EpisodeEvent(episode=1, closed=EpisodeClosed(examples=40)))
    statistics = EpisodeStatistics(examples=40, phase_losses=(1.0, 0.5))
    learned.apply(EpisodeEvent(episode=1, learned=EpisodeLearned(model_version=7, statistics=statistics)))
    progress = Progress(phase=2, phases=3, loss=0.25, examples_per_second=1234, fraction=0.5, time_left=75)
    training.apply(EpisodeEvent(episode=2, closed=EpisodeClosed(examples=60)))
    training.apply(EpisodeEvent(episode=2, started=EpisodeStarted(phase=1, phases=3)))
    training.apply(EpisodeEvent(episode=2, progress=progress))
    stream: Any = SimpleNamespace(
        episodes=[learned, training], examples_sent=100, examples_acknowledged=80, stream_id="s/1", resumptions=1
    )
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(LearnView(stream, "pets", 200, 2).render())
    lines = console.export_text().splitlines()
    assert [line.split("  ")[-1].strip() for line in lines[1:4]] == ["100 of 200", "80 of 200", "40 of 200"]
    assert "pets" in lines[0] and "s/1" in lines[0] and "resumed 1 ×" in lines[0]
    assert "episode 1 (1/2)" in lines[4] and "version 7 · loss 0.500 · 40 examples" in lines[4]
    assert "episode 2 (2/2)" in lines[5] and "phase 2 of 3 · loss 0.250 · 1,234 /s · 1:15 left" in lines[5]


def test_progress_is_no_line_of_its_own() -> None:
    assert describe_event(EpisodeEvent(progress=Progress())) is None


def test_sizes_and_times_are_written_for_people() -> None:
    assert [size(n) for n in (0, 999, 1000, 12_345_678, 5e12)] == ["0 B", "999 B", "1.0 kB", "12.3 MB", "5.0 TB"]
    assert [span(s) for s in (0, 59.6, 3600, 3725)] == ["0:00", "1:00", "1:00:00", "1:02:05"]


def test_options_of_the_command_itself_may_come_last_unless_a_command_has_its_own() -> None:
    assert hoist(["learn", "iris", "--json", "-a", "h:1"]) == ["--json", "-a", "h:1", "learn", "iris"]
    assert hoist(["learn", "iris", "--address=h:1"]) == ["--address=h:1", "learn", "iris"]
    assert hoist(["serve", "--insecure"]) == ["serve", "--insecure"]
    assert hoist(["--json", "benchmark", "paper", "--json"]) == ["--json", "benchmark", "paper", "--json"]
    assert hoist(["class", "forget", "--", "--json"]) == ["class", "forget", "--", "--json"]


@given(labels=st.lists(st.integers(0, 5), min_size=1, max_size=60), per_episode=st.integers(0, 7))
def test_episodes_by_classes_hold_each_example_once_and_no_class_twice(labels: list[int], per_episode: int) -> None:
    data = LabelledData(list(range(len(labels))), labels, "data")
    episodes = data.episodes(per_episode, seed=1)
    assert sorted(x for episode in episodes for x in episode.x) == list(range(len(labels)))
    assert sum(len(set(episode.y)) for episode in episodes) == len(set(labels))
    assert all(labels[x] == y for episode in episodes for x, y in zip(episode.x, episode.y, strict=True))
    train, test = data.part(Part.TRAIN), data.part(Part.TEST)
    assert len(train) + len(test) == len(labels) and not set(train.x) & set(test.x)
