"""Image files on this machine, looked at before they are sent: what they are, and whether they are whole."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from sharp_cli.data.findings import BadItem

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")
"""What counts as an image in a folder."""

_FORMATS = ("PNG", "JPEG", "WEBP", "BMP")
_GREY_MODES = ("1", "L", "LA", "I", "I;16", "I;16B")


@dataclass(frozen=True)
class ImageFacts:
    """What an image file is."""

    height: int
    width: int
    grey: bool

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return self.height, self.width


def look_at(paths: Sequence[Path]) -> list[ImageFacts | BadItem]:
    """Look at image files, several at a time: what each is, or what is wrong with it."""
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as threads:
        return list(threads.map(_look, paths))


def _look(path: Path) -> ImageFacts | BadItem:
    from PIL import Image, UnidentifiedImageError

    try:
        if not path.stat().st_size:
            return BadItem(str(path), "is empty")
        with Image.open(path, formats=_FORMATS) as image:
            width, height = image.size
            facts = ImageFacts(height, width, image.mode in _GREY_MODES)
            if image.format == "PNG":
                image.verify()
            else:
                # All of the file is read, but few pixels are made of a JPEG.
                image.draft(None, (max(1, width // 8), max(1, height // 8)))
                image.load()
    except UnidentifiedImageError:
        return BadItem(str(path), "is no PNG, JPEG, WebP or BMP, or is damaged")
    except OSError as error:
        return BadItem(str(path), error.strerror.lower() if error.strerror else f"is damaged ({_words(error)})")
    except Exception as error:  # whatever a broken file does to its reader
        return BadItem(str(path), f"is damaged ({_words(error)})")
    return facts


def _words(error: Exception) -> str:
    return " ".join(str(error).split())[:120] or type(error).__name__
