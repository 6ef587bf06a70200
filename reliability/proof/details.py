"""What the page has below the figures of some parts: rows that a figure would hide."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from reliability.proof.figures import Result


def nothing(results: Sequence[Result]) -> str:
    """For a part whose figures say everything."""
    return ""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) if len(lines) > 2 else ""


def of_crash(results: Sequence[Result]) -> str:
    """How long it took to go on, by what was killed."""
    kinds = sorted({kind for result in results for kind in result["recoveries"]})
    recoveries = {kind: [r["recoveries"][kind] for r in results if kind in r["recoveries"]] for kind in kinds}
    rows = [
        (
            kind,
            f"{min(seconds['median'] for seconds in found):.1f} to {max(seconds['median'] for seconds in found):.1f}",
            f"{max(seconds['slowest'] for seconds in found):.1f}",
        )
        for kind, found in recoveries.items()
    ]
    return _table(("recovery of", "median of each run, s", "slowest, s"), rows)


def of_coverage(results: Sequence[Result]) -> str:
    """Each reader."""
    rows = [
        (target["target"], f"{target['runs']:,}", f"{target['covered']:,}", f"{target['seconds']:,.0f}")
        for result in results
        for target in result["targets"]
    ]
    return _table(("reader", "inputs", "places of the code reached", "seconds"), rows)


def of_load(results: Sequence[Result]) -> str:
    """Latency in slices of ten minutes."""
    slices = [part for result in results for part in result.get("ten_minute_slices", ())]
    rows = [
        (
            f"{10 * number} to {10 * number + 10}",
            f"{part['requests']:,}",
            f"{1e3 * part['p50_seconds']:.1f}",
            f"{1e3 * part['p99_seconds']:.0f}",
        )
        for number, part in enumerate(slices)
    ]
    return _table(("minutes", "predictions", "p50, ms", "p99, ms"), rows)


def of_faults(results: Sequence[Result]) -> str:
    """What each fault did."""
    rows = [_fault(fault) for result in results for fault in result["faults"]]
    head = ("fault", "predictions", "slowest, s", "acknowledged", "well again after, s", "parked", "lost", "held")
    return _table(head, rows)


def _fault(fault: Result) -> tuple[str, ...]:
    codes = [f"{count:,} {code}" for code, count in fault["failed"].items()]
    wrong = [f"**{fault['wrong']:,} wrong**"] if fault["wrong"] else []
    return (
        f"`{fault['fault']}`: {fault['about']}",
        ", ".join([f"{fault['answered']:,} answered", *codes, *wrong]),
        f"{fault['slowest_prediction']:.2f}",
        f"{fault['acknowledged']:,}",
        f"{fault['recovery_seconds']:.1f}",
        f"{fault['parked']:,}, retried" if fault["parked"] else "0",
        f"**{fault['lost']:,}**" if fault["lost"] else "0",
        "yes" if fault["well"] else f"**no**{_because(fault)}",
    )


def _because(fault: Result) -> str:
    reasons = [] if fault["alive"] else ["the server ended"]
    if fault["tracebacks"]:
        reasons.append(f"{fault['tracebacks']} tracebacks in its log")
    if fault["problem"]:
        reasons.append(" ".join(fault["problem"].split()).replace("|", "\\|"))
    return f": {'; '.join(reasons)}" if reasons else ""


def of_container(results: Sequence[Result]) -> str:
    """Each check, with what it found."""
    return "".join(f"- {line}\n" for result in results for line in result["passed"])
