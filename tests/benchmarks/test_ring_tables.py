"""The ring in the documents: who stands in bold, in which order, and charts whose names can be read."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.reporting import comparison_charts, ring_tables
from benchmarks.reporting.comparison_charts import Dot, Series


def record(name: str, accuracy: float, **values: Any) -> dict[str, Any]:
    mean = {
        "accuracy": accuracy, "forgetting": 0.1, "backward_transfer": -0.1, "learn_cpu_seconds": 12.0,
        "answer_cpu_seconds_per_1000": 0.5, "kept_bytes": 39_200, "raw_bytes": 0,
    }  # fmt: skip
    return {
        "name": name, "title": name.title(), "kind": "user", "at_once": False, "without_boundaries": True,
        "needs_classes": False, "forgets": False, "keeps_raw": False, "resumes_exactly": True, "published": "",
        "fraction": 1.0, "seeds": [0], "mean": mean, "std": dict.fromkeys(mean, 0.0),
        "accuracy_after_episode": [1.0, accuracy], **values,
    }  # fmt: skip


def ring(dataset: str, *records: dict[str, Any]) -> dict[str, Any]:
    return {
        "ring": dataset,
        "settings": {"blurry": None, "classes_per_episode": 2, "order": "label", "memory": 50},
        "data": {"judged_by": "the test set", "classes": 10},
        "published": {"DER": {"mean": 82.7, "std": 2.7}},
        "machine": {"cpu": "AMD", "cores": 2, "threads": 1, "system": "Linux"},
        "contestants": list(records),
        "absent": {"BIR": "not run"},
    }


OURS = record("sharp", 0.9, kind="ours")


def test_ours_is_bold_where_nobody_without_raw_data_is_ahead() -> None:
    found = ring("mnist", record("knn", 0.95, keeps_raw=True), record("joint", 0.99, at_once=True), OURS)
    lines = ring_tables.overview([found]).splitlines()
    assert "| Sharp | **90.0** |" in lines and "| Knn | 95.0 |" in lines and "| Joint | 99.0 |" in lines


def test_a_rival_that_is_ahead_without_raw_data_is_bold_instead() -> None:
    lines = ring_tables.overview([ring("mnist", record("ridge", 0.91), OURS)]).splitlines()
    assert "| Ridge | **91.0** |" in lines and "| Sharp | 90.0 |" in lines


def test_a_contestant_has_one_row_and_the_figure_of_an_earlier_engine_a_mark() -> None:
    earlier = record("sharp", 0.7, kind="ours", title=f"Sharp {ring_tables.OUTDATED}")
    text = ring_tables.overview([ring("mnist", OURS), ring("banking77", earlier)])
    assert f"| Sharp | **90.0** | **70.0** {ring_tables.OUTDATED} |" in text.splitlines()
    assert text.endswith(ring_tables.OUTDATED_NOTE)


def test_who_learned_from_a_part_says_so_and_the_paper_stands_beside() -> None:
    text = ring_tables.details([ring("mnist", record("der", 0.8, fraction=0.1, published="DER"), OURS)])
    assert "| Der, 0.1 of the examples | 80.0 | 82.7 ± 2.7 |" in text
    assert text.endswith("Not in this ring: BIR (not run).")


def test_rings_that_were_judged_by_validation_data_are_not_quoted() -> None:
    trial = ring("mnist", OURS)
    trial["data"]["judged_by"] = "validation examples"
    assert ring_tables.overview([trial]) == "" and ring_tables.picture([trial]) is None


def test_rings_of_one_data_set_have_columns_of_their_own_and_the_picture_is_the_plain_ones() -> None:
    plain, behind = ring("mnist", OURS), ring("mnist", record("sharp", 0.7, kind="ours"))
    behind["settings"]["pretrained"] = {"source": "cifar10", "digest": "12"}
    lines = ring_tables.overview([behind, plain]).splitlines()
    assert lines[0] == "|  | MNIST | MNIST, G pretrained on CIFAR10 |"
    assert lines[2] == "| Sharp | **90.0** | **70.0** |"
    assert "**MNIST, G pretrained on CIFAR10**, 2 of 10 classes" in ring_tables.details([behind])
    assert ring_tables.picture([behind]) is None and "Sharp 90.0" in str(ring_tables.picture([behind, plain]))


def test_who_ran_on_another_machine_or_commit_is_named_and_who_does_not_say_is_not() -> None:
    here = "AMD, 2 cores, torch on 1 of them, Linux"
    away = record("der", 0.8, runs=[{"machine": "Intel", "commit": "b"}, {"machine": here, "commit": "a"}])
    found = ring("mnist", away, record("er", 0.7, runs=[{"seed": 0}]), record("sharp", 0.9, runs=[{"machine": here}]))
    assert ring_tables.details([found]).endswith("Run on another machine: Der (Intel).")
    assert ring_tables.at_other_commits(found["contestants"], "a") == "Run at another commit: Der (b)."
    assert ring_tables.on_other_machines([record("er", 0.7)], found["machine"]) == ""


def test_rings_stand_in_the_usual_order() -> None:
    head = ring_tables.overview([ring("banking77", OURS), ring("mnist", OURS)]).splitlines()[0]
    assert head == "|  | MNIST | Banking77 embeddings |"


def test_the_picture_is_a_whole_svg_that_names_everyone_and_loads_nothing() -> None:
    everything = record("joint", 0.99, at_once=True, accuracy_after_episode=[None, 0.99])
    picture = ring_tables.picture([ring("mnist", OURS, everything)])
    assert picture is not None
    names = [element.text for element in ElementTree.fromstring(picture).iter() if element.tag.endswith("text")]
    assert "Sharp 90.0" in names and "Joint 99.0" in names
    assert picture.count("http") == 1, "the namespace alone"


@given(st.lists(st.floats(0.0, comparison_charts.HEIGHT), min_size=1, max_size=25))
def test_names_beside_lines_never_overlap(heights: list[float]) -> None:
    places = comparison_charts._spread(sorted(heights))
    gaps = [after - before for before, after in zip(places, places[1:], strict=False)]
    assert all(gap >= comparison_charts._LINE - 1e-6 for gap in gaps)
    assert places[0] > 0 and places[-1] < comparison_charts.HEIGHT


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=20))
def test_a_scale_keeps_the_order_of_shares_and_stays_inside(shares: list[float]) -> None:
    scale = comparison_charts.Scale.of(shares)
    heights = [scale.y(share) for share in sorted(shares)]
    assert heights == sorted(heights, reverse=True)
    assert 0 < heights[-1] and heights[0] < comparison_charts.HEIGHT


def test_a_scale_is_wide_where_the_best_are_good_and_nearly_even_where_nobody_is() -> None:
    good, poor = comparison_charts.Scale.of([0.99, 0.2], top=1.0), comparison_charts.Scale.of([0.4, 0.2], top=0.4)
    assert good.y(0.98) - good.y(0.99) > 3 * (good.y(0.49) - good.y(0.5))
    assert poor.y(0.3) - poor.y(0.4) < 1.4 * (poor.y(0.0) - poor.y(0.1))


def test_a_name_stands_as_near_to_its_dot_as_there_is_room() -> None:
    free = comparison_charts._room(60.0, 300.0, 200.0, 700.0, [])
    assert free is not None and free.anchor == "start" and free.leader(300.0, 200.0) == ""
    right = comparison_charts._room(60.0, 690.0, 200.0, 700.0, [])
    assert right is not None and right.anchor == "end"
    crowd = [(200.0, 400.0, 150.0, 250.0)]
    assert comparison_charts._room(60.0, 300.0, 200.0, 700.0, crowd) is not None
    assert comparison_charts._room(60.0, 300.0, 200.0, 700.0, [(0.0, 720.0, 0.0, 460.0)]) is None


@pytest.mark.parametrize("count", [1, 5, 40])
def test_a_plane_shows_every_dot_and_names_only_where_there_is_room(count: int) -> None:
    dots = [Dot(f"rival {i}", 10.0**i if count < 10 else 5.0, 0.5, "plain", "") for i in range(count)]
    drawn = comparison_charts.plane(dots, "bytes", "title")
    assert drawn.count("<circle") == count
    named = drawn.count('class="name plain"')
    assert named == count if count < 10 else 0 < named < count


def test_a_line_with_gaps_is_drawn_where_it_was_measured() -> None:
    drawn = comparison_charts.lines([Series("one", [0.5, float("nan"), 0.7], "ours")], "episode", "title")
    assert drawn.count(",") == 2 and "one 70.0" in drawn
