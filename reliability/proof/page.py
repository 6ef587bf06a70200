"""The page of the proof, from the results of its parts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.reporting.machine import describe
from reliability.proof.figures import Figure
from reliability.proof.parts import Part

_HEAD = """# Proof

What `make proof` ran, each figure beside its goal; misses in bold. Written by the command, from the files in
`{results}`. What each part does is in [reliability](reliability.md).
"""


def page(entries: Iterable[tuple[Part, dict[str, Any] | None]], quick: bool, results: Path) -> str:
    """The text: of each part its result, or that there is none."""
    text = _HEAD.format(results=results)
    if quick:
        text += "\nA short form, to see that everything runs: it shows nothing.\n"
    for part, result in entries:
        text += f"\n## {part.title}\n\n"
        if result is None:
            text += f"**Not run**{_because(part)}.\n"
            continue
        try:
            lines = "".join(_line(figure) for figure in part.figures(result, part.wanted(quick)))
        except (KeyError, TypeError):
            text += "**Not run**: what is there was written by an older version of its command.\n"
            continue
        text += f"| what | found | goal |\n| --- | --- | --- |\n{lines}"
        text += f"\nCommit {result['versions']['commit'] or 'unknown'}; {describe(result['machine'])}.\n"
    return text


def _because(part: Part) -> str:
    why = part.why_not()
    return f": {why}" if why else ""


def _line(figure: Figure) -> str:
    found = figure.found if figure.held else f"**{figure.found}**"
    return f"| {figure.what} | {found} | {figure.goal} |\n"
