"""Measured tables of the documents, written from `benchmarks/results/*.json` by `make readme`.

A table stands between `<!-- NAME -->` and `<!-- /NAME -->` in README.md, docs/benchmarks.md or docs/cluster.md;
everything else in them is left as it is. Its keys say what kind of result a file holds, so a new file of a known kind
appears by itself.
No figure is computed here that is not in the files.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.reporting import cluster_tables, learner_tables, paper_tables, ring_tables
from benchmarks.reporting.files import write_text
from benchmarks.reporting.markdown import Row, markdown_table

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
BENCHMARKS = ROOT / "docs" / "benchmarks.md"
CLUSTER = ROOT / "docs" / "cluster.md"
RESULTS = ROOT / "benchmarks" / "results"
RING_PICTURE = ROOT / "docs" / "images" / "ring.svg"

Results = list[dict[str, Any]]


def main() -> int:
    """Write the tables into the documents."""
    results = load()
    for document in DOCUMENTS:
        write_text(document, rendered(document.read_text(encoding="utf-8"), results))
    picture = ring_tables.picture(results)
    if picture is not None:
        write_text(RING_PICTURE, picture)
    return 0


def load(folder: Path = RESULTS) -> Results:
    """All results, by the names of their files."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]


def rendered(text: str, results: Results) -> str:
    """A document with its tables as the results have them.

    >>> print(rendered("<!-- speed -->old<!-- /speed -->", []))
    <!-- speed -->
    Not measured yet.
    <!-- /speed -->
    """
    for name, table in TABLES.items():
        opening, closing = f"<!-- {name} -->", f"<!-- /{name} -->"
        body = table(results) or ("" if name in OPTIONAL else "Not measured yet.")
        lines = "\n".join(filter(None, (opening, body, closing)))
        before, found, rest = text.partition(opening)
        if found:
            text = f"{before}{lines}{rest.partition(closing)[2]}"
    return text


# ---- the tables -------------------------------------------------------------------------------------------------


def headline(results: Results) -> str:
    """The figures that a newcomer asks for first, one line each."""
    rows: list[Row] = []
    for run in learner_tables.in_order([result for result in results if result.get("learner") == "sequences"]):
        mean, std, seeds = run["mean"]["accuracy"], run["std"]["accuracy"], len(run["seeds"])
        measured = f"**{100 * mean:.1f}** ± {100 * std:.1f} ({seeds} seed{'s' if seeds > 1 else ''})"
        at_once = run["everything_at_once"]
        beside = "–" if at_once is None else f"the paper's network, everything at once: {100 * at_once:.1f}"
        rows.append((f"class by class, in %: {run['title']}", measured, beside))
    for result in results:
        if "sequence" not in result:  # only the engine's speed has one
            continue
        for figure in (result["sequence"] or {}).get("comparisons", ()):
            if figure["target"] is not None:
                ratio = f"{figure['cpu_ratio']:.2f} of its processor time"
                rows.append((f"learning: {figure['name']}", ratio, figure["beside"]))
        for figure in result["teaching"]:
            name = f"teaching one example: {figure['inputs']}, {figure['classes']} classes"
            rows.append((name, f"{figure['teach_ms']:.1f} ms", "right at once"))
    for result in results:
        for figure in result.get("throughput", ()):
            rate = f"{figure['rate']:,.0f} {figure['unit']}"
            rows.append((figure["name"], rate, f"{figure['ratio']:.2f} of {figure['ceiling']}"))
        for state in (result.get("latency") or {}).get("states", ()):
            if state["target"] is not None:
                p99 = f"p99 {1000 * state['p99_seconds']:.1f} ms"
                rows.append((f"single images, {state['name']}", p99, f"{state['p99_ratio']:.2f} of idle"))
    for store, runs in _crash_runs(results).items():
        kills = f"{_sum(runs, 'survived'):,} of {_kills(runs).total():,}"
        rows.append((f"kills survived without loss{store}", kills, "the same weights, bit for bit, as undisturbed"))
    return markdown_table(("", "measured", "beside"), rows)


def speed(results: Results) -> str:
    """Ratios of processor time over what stands beside; lower is faster."""
    rows: list[Row] = []
    for result in results:
        if "throughput" in result:  # of the server
            continue
        for figure in (result.get("sequence") or {}).get("comparisons", ()):
            ratio, target = f"{figure['cpu_ratio']:.2f}", _most(figure["target"])
            rows.append((f"the default learner: {figure['name']}", ratio, figure["beside"], target))
        for figure in result.get("answers", ()):
            name = f"answers: {figure['name']}, {figure['classes']} classes"
            rows.append((name, f"{figure['cpu_ratio']:.2f}", "the bare operations", _most(figure["target"])))
        for figure in result.get("teaching", ()):
            name = f"teaching one example: {figure['inputs']}, {figure['classes']} classes"
            both = f"{figure['teach_ms']:.1f} ms, {figure['with_prediction_ms']:.1f} ms with the next prediction"
            rows.append((name, both, "", "milliseconds"))
        for figure in result.get("training", ()):
            name = f"learning: {figure['name']}"
            rows.append((name, f"{figure['cpu_ratio']:.2f}", "a dense network", _most(figure["target"])))
        by_batch: dict[int, list[dict[str, Any]]] = {}
        for figure in result.get("prediction", ()):
            by_batch.setdefault(figure["batch"], []).append(figure)
        for batch, figures in by_batch.items():
            memories = sorted(figure["classes"] * figure["per_class"] for figure in figures)
            name = f"predicting: batches of {batch}, {memories[0]:,} to {memories[-1]:,} memories"
            for kind, words in (("with_novelty", "with novelty"), ("without_novelty", "without")):
                ratios = _range(figure[kind]["cpu_ratio"] for figure in figures)
                target = _most(figures[0][kind]["target"])
                rows.append((f"{name}, {words}", ratios, "a dense network and a matrix product", target))
        growth = result.get("growth")
        if growth:
            name, ratio = f"growing: episode {growth['episodes']}", growth["cpu_ratio_last_to_third"]
            rows.append((name, f"{ratio:.2f}", "the third episode", _most(growth["target"])))
            if (metric := growth.get("metric_cpu_ratio_of_medians")) is not None:
                name = f"growing: episode {growth['episodes']}, until the metric answers"
                rows.append((name, f"{metric:.2f}", "the third episode", _most(growth["target"])))
            if (beyond := growth.get("unexplained_bytes_per_episode")) is not None:
                rows.append(
                    ("growing: the process beyond its memories", f"{beyond / 1e6:+.2f} MB", "an episode", "flat")
                )
        for figure in result.get("snapshot", ()):
            beside = f"its bytes {'written' if figure['name'].endswith('save') else 'read'}"
            rows.append((f"snapshot: {figure['name']}", f"{figure['cpu_ratio']:.1f}", beside, _most(figure["target"])))
    return markdown_table(("", "processor time", "over that of", "to reach"), rows)


def serving(results: Results) -> str:
    """Throughput over a ceiling (higher is better) and latency over idle (lower is better)."""
    rows: list[Row] = []
    for result in results:
        for figure in result.get("throughput", ()):
            rate = f"{figure['rate']:,.0f} {figure['unit']}"
            beside = f"{figure['ratio']:.2f} of {figure['ceiling']}"
            rows.append((figure["name"], rate, beside, f"at least {figure['target']:g}"))
        for state in (result.get("latency") or {}).get("states", ()):
            if state["target"] is not None:
                p99 = f"p99 {1000 * state['p99_seconds']:.1f} ms, {state['failures']} failed of {state['requests']:,}"
                rows.append((f"single images, {state['name']}", p99, f"{state['p99_ratio']:.2f} of idle",
                             _most(state["target"])))  # fmt: skip
        if "throughput" in result and result.get("teaching"):
            rows += _taught(result["teaching"])
        if result.get("pages"):
            rows += _watched(result["pages"])
    return markdown_table(("", "measured", "beside", "to reach"), rows)


def _taught(taught: dict[str, Any]) -> list[Row]:
    teach, write = taught["calls"][:2]
    p50, p99 = (f"{1000 * teach[key]:.1f} ms" for key in ("p50_seconds", "p99_seconds"))
    beside = f"a durable empty write: {1000 * write['p50_seconds']:.2f} and {1000 * write['p99_seconds']:.2f} ms"
    _, state, floor, flood = taught["predictions"]
    rate = f"{taught['labels_taught_per_second']:.0f} of {taught['labels_per_second']:.0f} labels/s"
    p99_beside = f"p99 {1000 * state['p99_seconds']:.1f} ms, {rate}"
    return [
        (f"Teach of one example, {taught['classes']} classes known", f"p50 {p50}, p99 {p99}", beside, ""),
        ("single vectors, while labels are taught", p99_beside, f"{taught['prediction_p99_ratio']:.2f} of idle",
         _most(taught["target"])),
        ("the same, while an empty service on the front's core makes as many durable",
         f"p99 {1000 * floor['p99_seconds']:.1f} ms", f"{taught['floor_p99_ratio']:.2f} of idle", ""),
        (f"single vectors, while {taught['flood_examples_per_second']:,.0f} examples/s come over Learn",
         f"p99 {1000 * flood['p99_seconds']:.1f} ms, {taught['flood_examples_behind']:,.0f} not counted yet",
         f"{taught['flood_p99_ratio']:.2f} of idle", ""),
    ]  # fmt: skip


def _watched(pages: dict[str, Any]) -> list[Row]:
    watched = [state for state in pages["states"] if "p99_ratio" in state]
    rows: list[Row] = [
        (f"single images, {state['name']}", f"p99 {1000 * state['p99_seconds']:.1f} ms",
         f"{state['p99_ratio']:.2f} of the same without pages", _most(pages["target"]))
        for state in watched
    ]  # fmt: skip
    for found in pages["paints"]:
        shown = f"first paint {found['first_paint_ms']:.0f} ms, a lesson shown after {found['update_ms']:.0f} ms"
        rows.append((f"the page, {found['name']}", shown, f"{found['page_bytes'] / 1000:.0f} kB", "below 300 kB"))
    return rows


def reliability(results: Results) -> str:
    """What the crash loop survived, all runs together."""
    rows: list[Row] = []
    for store, runs in _crash_runs(results).items():
        kills = ", ".join(f"{count:,} × {kind}" for kind, count in sorted(_kills(runs).items()))
        broken = sum(len(found) for run in runs for found in run["violations"].values())
        learned = f"{_sum(runs, 'examples_learned'):,} in {_sum(runs, 'episodes'):,} episodes"
        rows += [
            (f"kills survived{store}", f"{_sum(runs, 'survived'):,} of {_kills(runs).total():,} ({kills})"),
            ("acknowledged batches lost or learned twice, versions torn, answers wrong", str(broken)),
            ("examples learned, each once", learned),
            ("tensors equal, bit for bit, to those of a run that nobody disturbed", f"{_sum(runs, 'tensors'):,}"),
            ("slowest recovery", f"{max(run['slowest_recovery'] for run in runs):.1f} s"),
        ]
    return markdown_table(("", "measured"), rows)


def _crash_runs(results: Results) -> dict[str, Results]:
    """Runs of the crash loop, by what is said of their journal's store."""
    runs: dict[str, Results] = {}
    for result in results:
        if "survived" in result:
            postgres = result.get("options", {}).get("store") == "postgres"
            runs.setdefault(", journal in PostgreSQL" if postgres else "", []).append(result)
    return runs


def _kills(runs: Results) -> Counter[str]:
    kills: Counter[str] = Counter()
    for run in runs:
        kills.update(run["kills"])
    return kills


def _sum(runs: Results, key: str) -> int:
    return sum(run[key] for run in runs)


def load_run(results: Results) -> str:
    """What a server did near its capacity."""
    rows: list[Row] = []
    for result in results:
        if "capacity" not in result:
            continue
        rows += [
            ("requests per second", f"{result['rate']:,.0f} of {result['capacity']:,.0f} possible"),
            ("for", f"{result['seconds'] / 60:.0f} minutes, {result['requests']:,} requests"),
            ("p50 and p99", f"{1000 * result['p50_seconds']:.1f} and {1000 * result['p99_seconds']:.1f} ms"),
        ]
        if slices := [1000 * part["p99"] for part in result.get("slices", ())]:
            rows.append(("p99 by slice", f"{min(slices):.1f} to {max(slices):.1f} ms"))
        rows.append(("failed calls and other faults", "; ".join(result["failures"]) or "none"))
        for name in ("front", "trainer"):
            trace = result["memory"][name]
            rows.append((f"memory of the {name}", f"{trace['last_mb']:,.0f} MB, {_slope(trace)} MB per minute"))
    return markdown_table(("", "measured"), rows)


TABLES: dict[str, Callable[[Results], str]] = {
    "headline": headline,
    "accuracy": paper_tables.accuracy,
    **paper_tables.EXTRA,
    "speed": speed,
    "serving": serving,
    "reliability": reliability,
    "load": load_run,
    "cluster-deaths": cluster_tables.deaths,
    "cluster-figures": cluster_tables.figures,
    "cluster-simulation": cluster_tables.simulation,
    "ring-overview": ring_tables.overview,
    "ring": ring_tables.details,
    **{f"learner-{group}": partial(learner_tables.markdown, group) for group in learner_tables.GROUPS},
}
"""By the name of their markers."""
OPTIONAL = frozenset(paper_tables.EXTRA)
"""Tables of which nothing is shown until they were measured."""
DOCUMENTS: dict[Path, tuple[str, ...]] = {
    README: ("headline",),
    BENCHMARKS: (
        *("ring-overview", "ring"),
        *(f"learner-{group}" for group in learner_tables.GROUPS),
        *("accuracy", *paper_tables.EXTRA, "speed", "serving", "reliability", "load"),
    ),
    CLUSTER: ("cluster-deaths", "cluster-figures", "cluster-simulation"),
}
"""Which tables stand where."""


# ---- inside -----------------------------------------------------------------------------------------------------


def _slope(trace: dict[str, Any]) -> str:
    if trace["slope_mb"] is None:
        return "too few samples for a slope in"
    interval = trace.get("slope_interval_mb")
    return f"{trace['slope_mb']:+.2f}" + (f" ({interval[0]:+.2f} to {interval[1]:+.2f})" if interval else "")


def _range(ratios: Iterable[float]) -> str:
    values = sorted(ratios)
    return f"{values[0]:.2f}" if len(values) == 1 else f"{values[0]:.2f} to {values[-1]:.2f}"


def _most(target: float | None) -> str:
    return "" if target is None else f"at most {target:g}"


if __name__ == "__main__":
    sys.exit(main())
