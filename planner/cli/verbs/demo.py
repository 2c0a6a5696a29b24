"""`planner demo`: runs the whole product in one command."""

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import Json
from planner.extras import require_torch


def demo(
    folder: Annotated[Path, typer.Option(help="Folder for the files it writes.")] = Path("planner-demo"),
    json: Json = False,
) -> None:
    """Run everything on this machine: profile, solve, simulate, run, check.

    Needs torch and no GPU; the files it writes can be read, edited and used again.
    """
    from planner.cli import render
    from planner.cli.views import demo_screen, json_answers
    from planner.workflows.demo import demo as run_demo

    require_torch("demo")
    with demo_screen.demo_printer(json) as listener:
        result = run_demo(folder, listener)
    render.emit(json, json_answers.demo_answer(result), *demo_screen.closing_panel(result))
