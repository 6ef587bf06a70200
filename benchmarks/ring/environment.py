"""The rivals' own environment: `.venv-ring` beside `.venv`, made by `make ring-env`.

It holds the libraries of `requirements.txt`, in exactly those versions, and shares everything else (torch, numpy,
scikit-learn) with the environment that makes it: rivals run on the same torch as we do.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

FOLDER = Path(__file__).parents[2] / ".venv-ring"
REQUIREMENTS = Path(__file__).parent / "requirements.txt"


def interpreter(named: Path | None = None, folder: Path = FOLDER) -> Path | None:
    """The environment's Python: the one that was named, or the one of `make ring-env`; nothing where there is none."""
    found = named or folder / "bin" / "python"
    return found if found.is_file() else None


def make(folder: Path = FOLDER) -> Path:
    """Make the environment, or bring it up to date."""
    if interpreter(folder=folder) is None:
        venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    site = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    )
    shared = {sysconfig.get_path("purelib"), *(path for path in sys.path if path.endswith("site-packages"))}
    Path(site.stdout.strip(), "shared.pth").write_text("\n".join(sorted(shared)) + "\n", encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--requirement", str(REQUIREMENTS)], check=True)
    return python


if __name__ == "__main__":
    make()
