"""Tables of docs/cluster.md: what dies and what happened, what a cluster costs and brings, the simulation."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.reporting.markdown import Row, markdown_table

Results = list[dict[str, Any]]


def deaths(results: Results) -> str:
    """What died under load, and what came of it."""
    rows: list[Row] = []
    last = ""
    for result in (result for result in results if "disasters" in result):
        lost = "; ".join(result["violations"]) or "nothing"
        for found in result["disasters"]:
            owner = f"{found['seconds_until_owner']:.1f}" if found.get("seconds_until_owner") else "–"
            learn = f"{found['seconds_until_learn']:.1f}"
            rows.append(
                (found["what"], owner, learn, str(found["predictions"]), str(found["predictions_failed"]), lost)
            )
        last = (
            f"{result['batches']} numbers were acknowledged and {result['lessons']} lessons taught, each once; "
            f"{result['tensors']} tensors equal those of a learner that nobody disturbed."
        )
    columns = (
        *("what dies", "s until another owns it", "s until Learn is acknowledged again", "predictions meanwhile"),
        *("of them failed", "lost"),
    )
    return f"{markdown_table(columns, rows)}\n\n{last}" if rows else ""


def figures(results: Results) -> str:
    """What a cluster costs and brings."""
    rows: list[Row] = []
    for result in results:
        found = result.get("cluster_figures", {})
        asked = found.get("followers")
        if asked:
            rates = [statistics.median(asked[which]["rates"]) for which in ("one", "two")]
            waits = [1000 * statistics.median(asked[which]["p50"]) for which in ("one", "two")]
            name = f"predictions of two followers, a core each, {asked['examples']} images a message"
            beside = f"{asked['ratio']:.2f} of one, {rates[0]:,.0f}/s; p50 {waits[1]:.1f} ms, of one {waits[0]:.1f}"
            rows.append((name, f"{rates[1]:,.0f}/s", beside, f"at least {asked['target']:g}"))
        alone = found.get("alone")
        requests = [found.get("ingest"), found.get("ray"), alone and alone["requests"]]
        names = ("Learn on PostgreSQL", "a server that Ray keeps", "a server alone")
        for name, row in zip(names, requests, strict=True):
            if row:
                rate, beside = f"{row['rate']:,.0f} {row['unit']}", f"{row['ratio']:.2f} of {row['ceiling']}"
                rows.append((f"{name}: {row['name']}", rate, beside, f"at least {row['target']:g}"))
        for cost in alone["costs"] if alone else ():
            beside = f"{cost['ratio']:.2f} of {alone['before']}"
            now = f"{cost['now']:.1f} {cost['unit']}" if cost["unit"] == "s" else f"{cost['now']:.0f} {cost['unit']}"
            rows.append((cost["name"], now, beside, f"at most {cost['target']:.2f}"))
    return markdown_table(("", "measured", "beside", "to reach"), rows) if rows else ""


def simulation(results: Results) -> str:
    """A thousand learners on twenty machines."""
    for result in results:
        found = result.get("cluster_simulation")
        if found:
            given, outcome = found["conditions"], found["outcome"]
            parts = (
                f"{given['learners']} learners on {given['machines']} machines for {given['days']:g} days, "
                f"{outcome['machines_lost']} machines lost, each back after {given['minutes_away']:g} minutes; "
                f"{given['notice']:.1f} s until another owns a learner, {given['take_up']:.1f} s to take one up, "
                f"{given['hand_over']:.1f} s to hand one over, as measured above."
            )
            load = f"{outcome['least_learners_on_a_machine']} to {outcome['most_learners_on_a_machine']}"
            rows: list[Row] = [
                ("learners that a machine owns", load),
                (
                    "learners that lose their machine, an hour",
                    f"{outcome['learners_that_lost_their_machine_per_hour']:.0f}",
                ),
                (
                    "learners that move to a machine that came back, an hour",
                    f"{outcome['learners_moved_to_machines_that_came_back_per_hour']:.0f}",
                ),
                (
                    "seconds without an owner: mean, 99 of 100, most",
                    f"{outcome['seconds_without_an_owner_mean']:.1f}, {outcome['seconds_without_an_owner_p99']:.1f}, "
                    f"{outcome['seconds_without_an_owner_most']:.1f}",
                ),
                ("share of the time in which Learn waits", f"{outcome['share_of_time_in_which_learn_waits']:.4%}"),
                ("times that nobody could predict either", str(outcome["times_that_nobody_could_predict"])),
            ]
            return f"{parts}\n\n{markdown_table(('', 'simulated'), rows)}"
    return ""
