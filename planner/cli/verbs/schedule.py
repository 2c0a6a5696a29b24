"""`planner schedule`: many jobs on one cluster, decided by a policy; `planner train-policy`: one that is learned."""

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import Json, cluster_names, optional_duration, order_names, place_names, teacher_names, written

ClusterName = Annotated[
    str, typer.Option(help="A cluster, or its file, whose GPUs the jobs share.", autocompletion=cluster_names)
]
Counts = Annotated[str, typer.Option(help="Counts of GPUs in place of --cluster, such as 8xv100,16xp100.")]
Table = Annotated[
    Path | None, typer.Option(help="A CSV of steps a second by model, kind and GPUs; kinds are then only names.")
]
Tokens = Annotated[int, typer.Option(help="Tokens of a sequence, of models that planner prices by itself.", min=1)]
Restart = Annotated[str, typer.Option(help="What each restart costs a job, such as 120s.")]


def schedule(
    trace: Annotated[
        Path | None,
        typer.Argument(help="Jobs: a CSV, or what squeue --json, sacct --json or kubectl get workloads -o json print."),
    ] = None,
    cluster: ClusterName = "",
    gpus: Counts = "",
    throughputs: Table = None,
    seq: Tokens = 4096,
    order: Annotated[
        str, typer.Option(help="Who comes first, or a policy of shares.", autocompletion=order_names)
    ] = "fifo",
    place: Annotated[
        str,
        typer.Option(
            help="Which kind of GPU a job of an order gets: cells too, and pack beside another.",
            autocompletion=place_names,
        ),
    ] = "fastest",
    backfill: Annotated[bool, typer.Option(help="Let jobs go ahead of one that does not fit.")] = True,
    preempt: Annotated[bool, typer.Option("--preempt", help="Stop and move running jobs for others.")] = False,
    rounds: Annotated[
        str, typer.Option(help="Decide only in rounds of so many seconds, or as Gavel does: gavel.")
    ] = "",
    restart: Restart = "0",
    state: Annotated[
        Path | None, typer.Option(help="A living queue in place of TRACE: one decision, and commands that would do it.")
    ] = None,
    policy: Annotated[
        Path | None, typer.Option(help="A policy that planner train-policy has learned, in place of --order.")
    ] = None,
    why: Annotated[str, typer.Option(help="What happened to this job, and why.")] = "",
    html: Annotated[Path | None, written(help="Write a page, nodes over time, to this file.")] = None,
    output: Annotated[
        Path | None, written("-o", "--output", help="Write the decisions to this file, to be checked again.")
    ] = None,
    json: Json = False,
) -> None:
    """Run the jobs of a trace on one cluster by a policy, beside baselines of the same order; or decide for a queue.

    Times are simulated, from throughputs that are measured, stated, or searched by planner. Exit code 3: a job asks for
    more GPUs than there are.
    """
    from planner import files
    from planner.cli import progress, render
    from planner.cli.views import schedule_tables as views
    from planner.errors import InputError
    from planner.report import schedule_page
    from planner.specs.base import with_fields
    from planner.specs.cluster_jobs.actions_file import PolicyChoice
    from planner.workflows import queue_decision, scheduling

    question = scheduling.asked(trace, state, cluster, gpus, throughputs, seq)
    cost = optional_duration(restart, "--restart") or 0.0
    if policy and order != "fifo":
        message = f"a learned policy and the order {order} both say who comes first"
        raise InputError(message, where="--order", fix="leave out one of --order and --policy")
    usual = PolicyChoice(place=place, backfill=backfill, preempt=preempt, rounds=rounds, restart_s=cost)
    choice = with_fields(usual, order="learned" if policy else order, weights=str(policy or ""))
    if state:
        scheduling.require_trace({"--why": why, "--html": html, "--output": output})
        decision = queue_decision.decide_queue(question, choice)
        render.emit(json, views.decision_answer(decision), *views.decision_tables(decision))
        raise typer.Exit
    with progress.progress_bar("scheduling", "runs") as on_run:
        answer = scheduling.schedule_trace(question, choice, on_run)
    told = scheduling.job_story(answer.schedule, why) if why else []
    if output:
        files.write(output, answer.schedule.file())
    if html:
        files.write_text(html, schedule_page(answer.schedule, question.trace.name).html())
    if why:
        render.emit(json, {"job": why, "story": told}, "\n".join(told))
        raise typer.Exit
    render.emit(json, views.schedule_answer(answer), *views.schedule_tables(answer, output, html))


def train_policy(
    traces: Annotated[
        list[Path], typer.Argument(help="Traces of jobs to learn from, as `planner schedule` reads them.")
    ],
    output: Annotated[Path, written("-o", "--output", help="Write the policy to this file (safetensors).")],
    teacher: Annotated[
        str, typer.Option(help="The policy that is imitated first.", autocompletion=teacher_names)
    ] = "marginal_gain",
    cluster: ClusterName = "",
    gpus: Counts = "",
    throughputs: Table = None,
    seq: Tokens = 4096,
    restart: Restart = "0",
    rounds: Annotated[
        int, typer.Option(help="Rounds of learning from its own decisions; 0: it only imitates.", min=0, max=10_000)
    ] = 30,
    seed: Annotated[int, typer.Option(help="Of all random numbers: the same seed, the same policy.", min=0)] = 0,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from OUTPUT.training, which a training leaves.")
    ] = False,
    json: Json = False,
) -> None:
    """Learn a policy for `planner schedule --policy` from traces of jobs: imitate a teacher, then improve on it.

    All times are simulated. What is printed is measured on the last fifth of each trace, from which nothing is learned.
    """
    from planner.cli import progress, render
    from planner.cli.views import schedule_tables as views
    from planner.workflows.policy_training import LearningQuestion, learn_policy
    from planner.workflows.scheduling import ClusterQuestion

    cost = optional_duration(restart, "--restart") or 0.0
    question = ClusterQuestion(traces[0], cluster, gpus, throughputs, seq)
    asked = LearningQuestion(question, (*traces,), teacher, cost, rounds, seed)
    with progress.progress_bar("training", "done") as on_progress:
        training = learn_policy(asked, output, resume, on_progress)
    render.emit(json, views.training_answer(training), *views.training_text(training, output))
