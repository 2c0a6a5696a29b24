"""`planner why` explains a plan, `planner why-not` what another plan would cost."""

from typing import Annotated

import typer

from planner.cli.options import DOES_NOT_FIT, ILLEGAL, JobOrPlan, Json, PlanFile


def why(
    plan: PlanFile,
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="[ITEM|GROUP|TABLE]", help="Number of an item (12, vision.12), a group such as g0-7, or a table."
        ),
    ] = None,
    step: Annotated[int, typer.Option(help="Step to explain, of a plan of several batches.", min=0)] = 0,
    json: Json = False,
) -> None:
    """Explain where an item, a group or an embedding table is; without one, what would shorten the step.

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


def why_not(
    plan: JobOrPlan,
    changes: Annotated[
        list[str],
        typer.Argument(metavar="KEY=VALUE…", help="Changes such as items.17.degree=64, zero=2 or vision.tp=4."),
    ],
    step: Annotated[int, typer.Option(help="Step to explain, of a plan of several batches.", min=0)] = 0,
    json: Json = False,
) -> None:
    """Solve a plan again, or a job that fixes its layout, with something changed: what that costs, and why.

    Fields of a static layout (tp=4 pp=2) are fixed, and the search decides the others. Of a plan of several modules a
    key says of which (vision.tp=4 llm.pp=2 vision.ranks=first_stage, or a whole layout as screens show it): the others
    keep theirs, and where a strategy decided these it also decides them again.

    Exit code 3: nothing has it, and the answer says what binds; 2: degrees or stages that exclude each other, or what
    the software cannot launch.

    Keys: items.N.degree, degrees, strategy, sync, zero, recompute, dtype, tokens_per_rank, memory_margin, ranks,
    nodes, effort; of a static layout tp, cp, ulysses, pp, vpp, ep, etp, dp, replica, micro_batch, schedule, dispatch,
    offload, optimizer_offload, stages (as [0-10,11-22], with which the layout's other fields stay), overlap (as [tp]),
    rank_order, sequence_parallel, gradients; of several modules MODULE.FIELD, MODULE.inputs_per_rank, tokens_per_rank,
    memory_margin; of embedding tables groups, replicas, average_every.
    """
    from planner import pipeline
    from planner.cli import render
    from planner.cli.views import why_tables
    from planner.workflows.launching import plan_at

    planned, unfit = plan_at(plan)
    answer = pipeline.why_not(planned, tuple(changes), step)
    noted = [f"the plan itself {unfit}"] if unfit else []
    told = {"note": noted[0]} if noted else {}
    render.emit(json, why_tables.why_answer(answer) | told, *noted, *why_tables.answer_lines(answer))
    if answer.infeasible:
        raise typer.Exit(ILLEGAL if answer.infeasible.illegal else DOES_NOT_FIT)
