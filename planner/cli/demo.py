"""`planner demo`: the whole product in one command."""

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import Json


def demo(
    folder: Annotated[Path, typer.Option(help="Where its files go.")] = Path("planner-demo"),
    json: Json = False,
) -> None:
    """Watch it work on this machine: profile, solve, verify, simulate, run, check; no GPU needed."""
    from planner import pipeline
    from planner.cli import render, story, summary

    with story.telling() as listener:
        told = pipeline.demo(folder, listener)
    render.emit(json, summary.demo(told), *story.ending(told))
