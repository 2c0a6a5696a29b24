"""`planner why`: explains a plan."""

from typing import Annotated

import typer

from planner.cli.options import Json, PlanFile


def why(
    plan: PlanFile,
    what: Annotated[
        str | None,
        typer.Argument(metavar="[ITEM|GROUP]", help="Number of an item (12, vision.12), or a group such as g0-7."),
    ] = None,
    step: Annotated[int, typer.Option(help="Step to explain, of a plan of several batches.", min=0)] = 0,
    json: Json = False,
) -> None:
    """Explain where an item or a group is; without one, what would shorten the step.

    Solves the plan's own problem again, from the plan file alone, with more memory, nodes, bandwidth or other
    recomputation. Of a plan of several modules: seconds and loads by module, what binds, the step with a faster network
    or module, with encoders on other ranks, and with other data; of an item of it: when its outputs are there and when
    they are read, and the step if another group had it.
    """
    from planner import pipeline
    from planner.cli import render
    from planner.cli.views import why_tables

    answer = pipeline.why(pipeline.read_plan(plan), what, step)
    render.emit(json, why_tables.why_answer(answer), *why_tables.answer_lines(answer))
