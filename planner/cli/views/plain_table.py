"""The table that all screens are made of."""

from collections.abc import Iterable

from rich.console import RenderableType
from rich.table import Table


def table(*columns: str, rows: Iterable[Iterable[RenderableType]] = (), title: str = "") -> Table:
    """A table without borders; columns that begin with `>` are right-aligned."""
    plain = Table(title=title or None, title_justify="left", box=None, pad_edge=False, header_style="dim")
    plain.show_header = any(columns)
    for column in columns:
        plain.add_column(column.removeprefix(">"), justify="right" if column.startswith(">") else "left")
    for row in rows:
        plain.add_row(*row)
    return plain
