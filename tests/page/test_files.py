"""The page's files: what is installed is what is here, light, and loads nothing from elsewhere. No browser needed."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from sharp_server.http.assets import load_assets

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "server" / "sharp_server" / "http" / "page"
MOST_BYTES = 300_000


def test_the_wheel_holds_every_file_of_the_page(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)],
        cwd=ROOT, check=True, capture_output=True,
    )  # fmt: skip
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        found = {
            name.rpartition("/")[2]: archive.read(name)
            for name in archive.namelist()
            if name.startswith("sharp_server/http/page/")
        }
    assert found == {file.name: file.read_bytes() for file in PAGE.iterdir()}


def test_every_file_is_served_and_all_together_are_light() -> None:
    served = load_assets()
    assert len(served) == len(list(PAGE.iterdir()))
    assert sum(len(asset.content) for asset in served.values()) < MOST_BYTES
    assert sum(len(asset.compressed) for asset in served.values()) < MOST_BYTES / 5


@pytest.mark.parametrize("file", sorted(PAGE.iterdir()), ids=lambda file: file.name)
def test_no_file_names_another_server(file: Path) -> None:
    text = file.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?://|url\(|@import|\binnerHTML\b|\beval\(", text)


def test_every_file_that_is_asked_for_is_there() -> None:
    there = {file.name for file in PAGE.iterdir()}
    asked = set()
    for file in PAGE.iterdir():
        text = file.read_text(encoding="utf-8")
        asked |= set(re.findall(r'"/assets/([^"]+)"', text)) | set(re.findall(r'from "\./([^"]+)"', text))
    assert asked <= there and there - asked == {"index.html", "docs.html"}
