"""`python -m demo`: see `make demo`."""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console

from demo.picture import picture
from demo.record import Record
from demo.report import write_report
from demo.story import CLASSES_PER_EPISODE, Story
from demo.view import View


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; 1 if a promise did not hold."""
    parser = argparse.ArgumentParser(prog="make demo", description="Learn digits without forgetting, and prove it.")
    parser.add_argument("--forget", type=int, metavar="DIGIT", help="the class to forget in the end (default: 3)")
    parser.add_argument("--episodes", type=int, default=5, choices=range(2, 6), help="how many of the five to learn")
    parser.add_argument("--report", type=Path, default=Path("demo-report.html"), help="where the report goes")
    parser.add_argument("--keep", action="store_true", help="keep serving in the end, until Ctrl-C")
    parser.add_argument("--picture", type=Path, help="where to write the README's picture, an SVG, as well")
    options = parser.parse_args(arguments)
    taught = CLASSES_PER_EPISODE * options.episodes
    forget = 3 if options.forget is None else options.forget
    if not 0 <= forget < taught:
        parser.error(f"--forget must be one of the digits that are taught, 0 to {taught - 1}, not {forget}")
    torch.set_num_threads(1)  # the plain network must not slow down the server
    view = View(Console(highlight=False))

    def keep(record: Record, page: str) -> None:
        write_report(options.report, record)
        view.heading("Yours to play with")
        view.line(f"draw a digit and see it named, correct it, forget it: {page}")
        view.line("Ctrl-C ends it")
        with contextlib.suppress(KeyboardInterrupt):
            wait()

    pause = keep if options.keep else None
    with tempfile.TemporaryDirectory(prefix="sharp-demo-") as folder:
        record = Story(Path(folder), view, options.episodes, forget, pause=pause).run()
    write_report(options.report, record)
    if options.picture is not None:
        options.picture.parent.mkdir(parents=True, exist_ok=True)
        options.picture.write_text(picture(record), encoding="utf-8")
    view.line(f"the plots are in {options.report}")
    if not record.kept_all:
        view.line("not every promise held: see the ✗ above")
        return 1
    view.line(f"every promise held, in {record.seconds:.0f} s")
    if not options.keep:
        view.line("to draw digits and see them named: make demo KEEP=1, which ends with the address of its page")
    return 0


def wait() -> None:
    """Until Ctrl-C."""
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    sys.exit(main())
