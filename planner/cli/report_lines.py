"""What `planner report` says of the page it wrote."""

from typing import Any

from rich.text import Text

from planner.units import size


def written(summary: dict[str, Any]) -> Text:
    """Where it is, and how large."""
    return Text.assemble(
        (f"{summary['report']}", "bold"),
        f"  {size(summary['bytes'])}: open it in a browser, it loads nothing from elsewhere",
    )
