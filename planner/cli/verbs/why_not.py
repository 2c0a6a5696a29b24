"""`planner why-not`: explains what another plan would cost."""

from typing import Annotated

import typer

from planner.cli.options import Json, PlanFile


def why_not(
    plan: PlanFile,
    changes: Annotated[
        list[str], typer.Argument(metavar="KEY=VALUE…", help="Changes such as items.17.degree=64 or zero=2.")
    ],
    step: Annotated[int, typer.Option(help="Step to explain, of a plan of several batches.", min=0)] = 0,
    json: Json = False,
) -> None:
    """Solve a plan again with something changed: what that costs, and why.

    For plans of one module. Fields of a static layout (tp=4 pp=2) are fixed, and the search decides the others.

    Keys: items.N.degree, degrees, strategy, sync, zero, recompute, dtype, tokens_per_rank, memory_margin, ranks,
    nodes, effort; of a static layout tp, cp, ulysses, pp, vpp, ep, etp, dp, replica, micro_batch, schedule, dispatch,
    offload, optimizer_offload.
    """
    from planner import pipeline
    from planner.cli import render
    from planner.cli.views import why_tables

    answer = pipeline.why_not(pipeline.read_plan(plan), tuple(changes), step)
    render.emit(json, why_tables.why_answer(answer), *why_tables.answer_lines(answer))
