"""The page of the proof, from the results of its parts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from benchmarks.reporting.machine import describe
from reliability.proof.figures import Figure
from reliability.proof.parts import Part
from reliability.proof.results import Found

_HEAD = """# Proof

What `make proof` ran, each figure beside its goal; misses in bold. Written by the command, from the files in
`{results}`. What each part does is in [reliability](reliability.md). A part counts for as long as the code that it
exercises is the same as at the commit that it names.

"""


def page(entries: Iterable[tuple[Part, Found]], quick: bool, results: Path) -> str:
    """The text: of each part its results, or that there are none; all in short first."""
    text = _HEAD.format(results=results)
    if quick:
        text += "A short form, to see that everything runs: it shows nothing.\n\n"
    short, sections = "", ""
    for part, found in entries:
        state, section = _section(part, found, quick)
        short += f"| {part.title} | {state} |\n"
        sections += f"\n## {part.title}\n\n{section}"
    return f"{text}| part | |\n| --- | --- |\n{short}{sections}"


def _section(part: Part, found: Found, quick: bool) -> tuple[str, str]:
    """Of one part: how it stands, in a word or two, and its text."""
    if not found.results:
        why = part.left_out(quick)
        return "**not run**", f"**Not run**{f': {why}' if why else ''}.\n"
    try:
        figures = part.figures(found.results, part.wanted(quick))
        table = part.table(found.results)
    except (KeyError, TypeError):
        return "**not run**", "**Not run**: its result was written by an older version of its command.\n"
    text = "| what | found | goal |\n| --- | --- | --- |\n" + "".join(map(_line, figures))
    text += f"\n{table}" if table else ""
    text += f"\n{_facts(part, found, quick)}"
    if quick:
        return "ran", text
    held = all(figure.held for figure in figures)
    if not found.current:
        text += "\n**The code that this exercises has changed since.**\n"
        return f"**{'shown' if held else 'missed'}, with older code**", text
    return "shown" if held else "**missed**", text


def _facts(part: Part, found: Found, quick: bool) -> str:
    """Which commits the results are of, on which machines, and how many runs they were."""
    lines = []
    of_commits = {
        f"commit {result['versions']['commit'] or 'unknown'}; {describe(result['machine'])}": None
        for result in found.results
    }
    runs = len(part.runs(quick))
    if runs > 1:
        lines.append(f"{len(found.results)} of {runs} runs")
    sentence = "; ".join([*lines, *of_commits])
    return f"{sentence[0].upper()}{sentence[1:]}.\n"


def _line(figure: Figure) -> str:
    found = figure.found if figure.held else f"**{figure.found}**"
    return f"| {figure.what} | {found} | {figure.goal} |\n"
