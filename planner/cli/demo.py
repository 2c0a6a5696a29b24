"""`planner demo`: runs the whole product in one command."""

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import Json


def demo(
    folder: Annotated[Path, typer.Option(help="Folder for the files it writes.")] = Path("planner-demo"),
    json: Json = False,
) -> None:
    """Run everything on this machine: profile, solve, simulate, run, check.

    Needs torch and no GPU; the files it writes can be read, edited and used again.
    """
    from planner import pipeline
    from planner.cli import render, story, summary
    from planner.demo import demo as run_demo

    pipeline.require_torch("demo")
    with story.demo_printer(json) as listener:
        result = run_demo(folder, listener)
    render.emit(json, summary.demo_answer(result), *story.closing_panel(result))
