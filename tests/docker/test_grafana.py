"""docker/grafana.json: a dashboard whose every panel asks for metrics that there are, by labels that they have."""

from __future__ import annotations

import json
import re
from typing import Any

import promql_parser
import pytest

from tests.docker.test_operations import ROOT, TEXT, documented

BOARD = json.loads((ROOT / "docker" / "grafana.json").read_text(encoding="utf-8"))
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
LABELS = {
    name: {label.strip() for label in labels.split(",") if label.strip()} | {"instance", "job"}
    for name, labels in re.findall(r"^\| `(sharp_\w+)` \| ([^|]*)\|", TEXT, re.MULTILINE)
}
HISTOGRAMS = ("_bucket", "_sum", "_count")


def base(metric: str) -> str:
    """The documented name of a series."""
    return next((metric.removesuffix(end) for end in HISTOGRAMS if metric.removesuffix(end) in LABELS), metric)


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_every_panel_asks_for_metrics_that_there_are(panel: dict[str, Any]) -> None:
    assert panel["targets"] and panel["datasource"]["uid"] == "${datasource}"
    for target in panel["targets"]:
        named: list[promql_parser.VectorSelector] = []

        def visit(node: object, named: list[promql_parser.VectorSelector] = named) -> None:
            if isinstance(node, promql_parser.VectorSelector):
                named.append(node)

        promql_parser.walk(promql_parser.parse(target["expr"].replace("$__rate_interval", "5m")), visit)
        assert named
        for selector in named:
            name = base(str(selector.name))
            if name == "up":
                continue
            assert name in documented(), target["expr"]
            matched = set(re.findall(r'(\w+)=~?"', target["expr"].partition(str(selector.name))[2].partition("}")[0]))
            assert matched <= LABELS[name], f"{name} has no such labels: {matched - LABELS[name]}"


def test_the_dashboard_leaves_out_no_metric_that_tells_how_the_server_is() -> None:
    asked = " ".join(target["expr"] for panel in PANELS for target in panel["targets"])
    least = {
        "sharp_requests_total",
        "sharp_lag_seconds",
        "sharp_episodes",
        "sharp_disk_free_bytes",
        "sharp_memory_bytes",
    }
    assert all(name in asked for name in least)


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not taken & cells and place["x"] + place["w"] <= 24, panel["title"]
        taken |= cells
