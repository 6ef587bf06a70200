"""Tables as Markdown has them."""

from __future__ import annotations

from collections.abc import Sequence

Row = Sequence[str]


def markdown_table(columns: Row, rows: Sequence[Row]) -> str:
    """A table, or nothing where there are no rows.

    >>> print(markdown_table(("", "measured"), [("kills survived", "200")]))
    |  | measured |
    | --- | --- |
    | kills survived | 200 |
    """
    if not rows:
        return ""
    lines = [columns, tuple("---" for _ in columns), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
