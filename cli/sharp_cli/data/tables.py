"""Tables of vectors: .npz, .npy, .csv and .parquet files, with a column of labels where there is one.

The label is the column that was named, or else the first one called label, class, target or y, or else, where labels
are needed, the last one. All other columns are features. A column without a single number is passed over, and said; a
row with something else than numbers is bad, and named.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import typer

from sharp_cli.data.findings import BadItem, Findings

TABLE_SUFFIXES = (".npz", ".npy", ".csv", ".parquet")
"""What counts as a table."""

LABEL_NAMES = ("label", "class", "target", "y")
"""What a column of labels is called."""

Array = np.ndarray[Any, np.dtype[Any]]
Labels = list[str | int]


@dataclass(frozen=True)
class Table:
    """Examples of one file."""

    x: Array
    """Vectors (n, features), or images of an .npz or .npy file."""
    y: Labels | None
    """One label each. None: the file has none."""
    places: Sequence[str]
    """Where each one is."""
    findings: Findings = field(default_factory=Findings)


def read_table(path: Path, label_column: str | None = None, *, labelled: bool) -> Table:
    """Read a file; `labelled`: it must have labels."""
    read = {".npz": _read_npz, ".npy": _read_npy, ".csv": _read_csv, ".parquet": _read_parquet}[path.suffix.lower()]
    return read(path, label_column, labelled)


def _complain(path: Path, problem: str) -> typer.BadParameter:
    return typer.BadParameter(f"{path} {problem}", param_hint="DATA")


# ---- arrays ---------------------------------------------------------------------------------------------------------


def _read_npz(path: Path, label_column: str | None, labelled: bool) -> Table:
    label = label_column or "y"
    try:
        with np.load(path, allow_pickle=False) as arrays:
            missing = [key for key in ("x", label)[: 1 + labelled] if key not in arrays]
            if missing:
                found = ", ".join(arrays.files) or "nothing"
                raise _complain(path, f"has {found}, but no {' and no '.join(missing)}")
            x, y = arrays["x"], arrays[label] if labelled else None
    except (OSError, typer.BadParameter):
        raise
    except Exception as error:  # numpy raises whatever zip files, headers and pickles do
        raise _complain(path, f"can't be read: {error}") from None
    if y is not None and (y.ndim != 1 or len(x) != len(y)):
        raise _complain(path, f"needs one label per example: x has the shape {x.shape}, y {y.shape}")
    return _whole_rows(path, x, None if y is None else y.tolist())


def _read_npy(path: Path, label_column: str | None, labelled: bool) -> Table:
    if labelled:
        raise _complain(path, "has no labels: use an .npz file with x and y")
    try:
        return _whole_rows(path, np.load(path, allow_pickle=False), None)
    except ValueError as error:
        raise _complain(path, f"can't be read: {error}") from None


def _whole_rows(path: Path, x: Array, y: Labels | None) -> Table:
    """The rows of numbers, all finite; the others are bad."""
    findings, places = Findings(), [f"{path}[{row}]" for row in range(len(x))]
    if x.ndim >= 2 and np.issubdtype(x.dtype, np.floating):
        whole = np.isfinite(x.reshape(len(x), -1)).all(axis=1)
        if not whole.all():
            findings.bad += [BadItem(places[row], "holds a NaN or an infinity") for row in np.flatnonzero(~whole)]
            kept = np.flatnonzero(whole)
            x, places = x[kept], [places[row] for row in kept]
            y = None if y is None else [y[row] for row in kept]
    return Table(x, y, places, findings)


# ---- columns --------------------------------------------------------------------------------------------------------


def _read_csv(path: Path, label_column: str | None, labelled: bool) -> Table:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            sample = file.read(1 << 16)
            file.seek(0)
            reader = csv.reader(file, delimiter=_delimiter(sample))
            rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if any(map(str.strip, row))]
    except (csv.Error, UnicodeDecodeError) as error:
        raise _complain(path, f"can't be read: {error}") from None
    if not rows:
        raise _complain(path, "is empty")
    has_header = not any(_is_number(cell) for cell in rows[0][1])
    names = rows[0][1] if has_header else [f"column {i + 1}" for i in range(len(rows[0][1]))]
    rows = rows[has_header:]
    findings = Findings()
    whole = []
    for line, row in rows:
        if len(row) == len(names):
            whole.append((line, row))
        else:
            findings.bad.append(BadItem(f"{path}, line {line}", f"has {len(row)} columns, the others {len(names)}"))
    columns = {name: [row[i] for _, row in whole] for i, name in enumerate(names)}
    if len(columns) < len(names):
        raise _complain(path, "has two columns of one name")
    lines = [f"{path}, line {line}" for line, _ in whole]
    return _from_columns(path, columns, lines, label_column, labelled, findings)


def _delimiter(sample: str) -> str:
    first = sample.partition("\n")[0]
    return max((",", ";", "\t"), key=first.count)


def _read_parquet(path: Path, label_column: str | None, labelled: bool) -> Table:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise _complain(path, "needs pyarrow, which is not installed: pip install 'sharp-serve[parquet]'") from None
    try:
        table = parquet.read_table(path)
    except (pyarrow.ArrowException, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise _complain(path, f"can't be read: {error}") from None
    columns: dict[str, list[Any]] = {}
    for name in table.column_names:
        values = table[name].to_pylist()
        lengths = {len(value) for value in values if isinstance(value, list)}
        if not lengths:
            columns[name] = values
        elif len(lengths) > 1:
            raise _complain(path, f"has vectors of different lengths in the column {name}")
        else:  # a column of vectors: one column for each of their values
            size = lengths.pop()
            columns |= {f"{name}[{i}]": [None if v is None else v[i] for v in values] for i in range(size)}
    places = [f"{path}, row {row}" for row in range(table.num_rows)]
    return _from_columns(path, columns, places, label_column, labelled, Findings())


def _from_columns(
    path: Path,
    columns: dict[str, list[Any]],
    places: list[str],
    label_column: str | None,
    labelled: bool,
    findings: Findings,
) -> Table:
    """Divide columns into features and label, and rows into whole and bad ones."""
    label = _label_name(path, list(columns), label_column, labelled)
    numbers = {name: [_number(cell) for cell in cells] for name, cells in columns.items() if name != label}
    texts = [name for name, cells in numbers.items() if cells and not np.isfinite(cells).any()]
    features = [name for name in numbers if name not in texts]
    if texts:
        findings.passed_over.append(f"columns of {path} without numbers: {', '.join(texts)}")
    if not features or not places:
        raise _complain(path, "has no rows of numbers")
    x = np.array([numbers[name] for name in features], np.float64).T  # (rows, features)
    y = columns[label] if label is not None else None
    kept = []
    for row in range(len(places)):
        wrong = np.flatnonzero(~np.isfinite(x[row]))
        if len(wrong):
            name = features[wrong[0]]
            cell = columns[name][row]
            problem = "is empty" if cell in ("", None) else f"is {cell!r}, not a number"
            findings.bad.append(BadItem(places[row], f"{name} {problem}"))
        elif labelled and y is not None and y[row] in ("", None):
            findings.bad.append(BadItem(places[row], f"{label} is empty"))
        else:
            kept.append(row)
    chosen = None if y is None else _labels([y[row] for row in kept])
    return Table(x[kept].astype(np.float32), chosen, [places[row] for row in kept], findings)


def _label_name(path: Path, names: list[str], wanted: str | None, labelled: bool) -> str | None:
    if wanted is not None:
        if wanted not in names:
            raise typer.BadParameter(f"{path} has {', '.join(names)}, but no {wanted}", param_hint="--label-column")
        return wanted
    known = [name for name in names if name.lower() in LABEL_NAMES]
    return known[0] if known else names[-1] if labelled else None


def _labels(cells: list[Any]) -> Labels:
    """As integers, if all of them are, else as texts."""
    try:
        if all(isinstance(cell, int) or str(int(cell)) == str(cell).strip() for cell in cells):
            return [int(cell) for cell in cells]
    except (TypeError, ValueError):
        pass
    return [str(cell) for cell in cells]


def _number(cell: Any) -> float:
    try:
        return float(cell)
    except (TypeError, ValueError):
        return float("nan")


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
