"""DATA: what a command reads on this machine: folders of images, tables of vectors, data sets of scikit-learn.

Whatever can't be used is named with its place and its problem, and whatever is left out is said: nothing here drops an
example without a word. It knows no server.
"""

from sharp_cli.data.findings import BadDataError, BadItem, Findings
from sharp_cli.data.images import IMAGE_SUFFIXES, ImageFacts, look_at
from sharp_cli.data.labelled import LabelledData, Part
from sharp_cli.data.sources import HELP, NAMES, ReadOptions, load
from sharp_cli.data.tables import TABLE_SUFFIXES, Table, read_table

__all__ = [
    "HELP",
    "IMAGE_SUFFIXES",
    "NAMES",
    "TABLE_SUFFIXES",
    "BadDataError",
    "BadItem",
    "Findings",
    "ImageFacts",
    "LabelledData",
    "Part",
    "ReadOptions",
    "Table",
    "load",
    "look_at",
    "read_table",
]
