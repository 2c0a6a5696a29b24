"""Schedules of many jobs as tables and JSON: what came of a policy beside its baselines, and one decision."""

from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.text import Text

from planner.cli.views.plain_table import table
from planner.specs.base import Spec, ranges_text
from planner.specs.cluster_jobs.actions_file import PolicyChoice, ScheduleOutcome
from planner.units import percent, plural
from planner.workflows.queue_decision import QueueDecision
from planner.workflows.scheduling import ScheduleAnswer

if TYPE_CHECKING:
    from planner.learning import Training

COLUMNS = (">makespan", ">mean completion", ">p50", ">p99", ">in use", ">moves")


def schedule_answer(answer: ScheduleAnswer) -> dict[str, Any]:
    return {
        **figures(answer.schedule.outcome),
        "jobs": len(answer.schedule.jobs),
        "gpus": dict(answer.schedule.fleet.counts),
        "bound_s": answer.bound_s,
        "policy": figures(answer.schedule.choice),
        "baselines": {name: figures(outcome) for name, outcome in answer.baselines.items()},
        "notes": answer.notes,
    }


def figures(spec: Spec) -> dict[str, Any]:
    """The fields of a spec of plain values by their names."""
    return {name: getattr(spec, name) for name in spec.__struct_fields__}


def schedule_tables(answer: ScheduleAnswer, output: Path | None, html: Path | None) -> Iterator[RenderableType]:
    """The policy beside its baselines, and what no schedule beats."""
    schedule = answer.schedule
    fleet = ", ".join(f"{count} {kind}" for kind, count in schedule.fleet.counts.items())
    yield Text.assemble((plural(len(schedule.jobs), "job"), "bold"), f" on {fleet}: simulated")
    lines = [(choice_text(schedule.choice), schedule.outcome), *answer.baselines.items()]
    yield table("", *COLUMNS, rows=[(name, *outcome_cells(outcome)) for name, outcome in lines])
    if answer.bound_s is not None:
        over = schedule.outcome.makespan_s / answer.bound_s - 1
        yield Text(f"no schedule ends before {answer.bound_s:,.0f} s, by a linear program: {percent(over)} above")
    yield from map(Text, answer.notes)
    for what, path in (("decisions", output), ("page", html)):
        if path:
            yield Text(f"{what} written to {path}", style="dim")


def choice_text(choice: PolicyChoice) -> str:
    """The policy as it was typed: what is not usual."""
    usual = PolicyChoice()
    words = [choice.order] + [choice.place] * (choice.place != usual.place)
    words += ["preempt"] * choice.preempt + ["no backfill"] * (not choice.backfill)
    return ", ".join(words + [f"rounds {choice.rounds}"] * bool(choice.rounds))


def outcome_cells(outcome: ScheduleOutcome) -> tuple[str, ...]:
    seconds = (
        outcome.makespan_s,
        outcome.mean_completion_s,
        outcome.p50_completion_s,
        outcome.p99_completion_s,
    )
    return (*(f"{each:,.0f} s" for each in seconds), percent(outcome.utilisation), str(outcome.moves))


def decision_answer(decision: QueueDecision) -> dict[str, Any]:
    return {
        "now_s": decision.now_s,
        "actions": [{**action._asdict(), "gpus": ranges_text(action.gpus)} for action in decision.actions],
        "waits": decision.waits,
        "commands": decision.commands,
        "notes": decision.notes,
    }


def decision_tables(decision: QueueDecision) -> Iterator[RenderableType]:
    """What would happen to each job, why, and by which commands."""
    kind_of = decision.state.fleet.kind_of
    places = {a.job: f"{ranges_text(a.gpus)} of {kind_of[a.gpus[0]]}" for a in decision.actions if a.gpus}
    lines = [(a.job, a.do, places.get(a.job, ""), a.reason) for a in decision.actions]
    lines += [(job, "wait", "", reason) for job, reason in decision.waits.items()]
    waiting = sum(action.do == "start" for action in decision.actions) + len(decision.waits)
    yield Text(f"{plural(len(decision.state.running), 'job')} running, {waiting} waiting")
    yield Text(f"now: {moment(decision.now_s)}, {'as printed' if decision.printed else 'the last time in the queue'}")
    yield table("job", "", "GPUs", "because", rows=lines)
    if decision.commands:
        yield Text("\ncommands that would do it, not executed:", style="dim")
        yield Text("\n".join(decision.commands), no_wrap=True)
    yield from map(Text, decision.notes)


def moment(seconds: float) -> str:
    """A time of a queue: of one that counts from 1970 as a date."""
    return (
        f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
        if seconds > 1e8
        else f"{seconds:,.0f} s"
    )


def training_answer(training: "Training") -> dict[str, Any]:
    weights = training.weights
    return {
        "teacher": weights.teacher,
        "kinds": weights.kinds,
        "agreement": training.agreement,
        "imitated_over_teacher": training.imitated,
        "learned_over_teacher": training.learned,
        "kept_after_round": training.round,
    }


def training_text(training: "Training", output: Path) -> Iterator[RenderableType]:
    """How alike it is to its teacher, and what it is worth beside it."""
    name = training.weights.teacher
    yield Text.assemble(("policy", "bold"), f" learned from {name}: simulated, on jobs from which nothing was learned")
    yield Text(f"takes what {name} takes in {percent(training.agreement)} of choices, as it had imitated it")
    for what, over in (("imitation", training.imitated), ("what was kept", training.learned)):
        yield Text(f"{what}: mean completion {over - 1:+.1%} of {name}'s")
    kept = f"after round {training.round}" if training.round else "the imitation: no round was better"
    yield Text(f"kept: {kept}; written to {output}", style="dim")
