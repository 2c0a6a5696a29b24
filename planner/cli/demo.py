"""`planner demo`: the whole product in one command."""

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import Json


def demo(
    folder: Annotated[Path, typer.Option(help="Where its files go.")] = Path("planner-demo"),
    json: Json = False,
) -> None:
    """See it work here: profile, solve, simulate, run, check.

    Needs torch and no GPU; its files can be looked at, changed and used again.
    """
    from planner import pipeline
    from planner.cli import render, story, summary
    from planner.demo import demo as tell

    pipeline.require_torch("demo")
    with story.telling(json) as listener:
        told = tell(folder, listener)
    render.emit(json, summary.demo(told), *story.ending(told))
