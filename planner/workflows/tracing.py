"""Timelines of a plan for Perfetto: simulated, and beside them what a run measured."""

from collections.abc import Sequence
from pathlib import Path

from planner.ledger import ComparedRun, StepOverlay, overlay_steps
from planner.plan.plan_file import Plan
from planner.plan.tasks.expand import expand
from planner.scoring import Score, whole_score
from planner.simulate import (
    RoundsLeftOut,
    TracedStep,
    abridged_tasks,
    abridged_timeline,
    build_trace,
    whole_curves,
    whole_timeline,
    write_trace,
)
from planner.specs.base import Ranks

TRACED_STEPS = 16  # that a trace file holds at most


def overlay(plan: Plan, scores: Sequence[Score], measured: Path) -> tuple[StepOverlay, ...]:
    """What a run of this plan measured, beside its simulation. Raises InputError when it was another plan's run."""
    simulated = [(whole_timeline(score.timeline), expand(plan, number)) for number, score in enumerate(scores)]
    return overlay_steps(simulated, measured, plan.name, plan.size)


def write_simulated_trace(
    path: Path, plan: Plan, scores: Sequence[Score], overlays: Sequence[StepOverlay] = (), only: Ranks | None = None
) -> int:
    """Write the first simulated steps, beside what was measured of them; `only`: of these ranks.

    Returns how many ranks are drawn: of very many, one of each kind.
    """
    if overlays:
        sides = [[whole_step(scores[each.step], each.step), each.traced] for each in overlays]
    else:
        sides = [[abridged_step(score, number)] for number, score in enumerate(scores)]
    trace = build_trace(sides[:TRACED_STEPS], plan.name, only)
    write_trace(path, trace)
    return len(trace["otherData"].get("stands_for", range(plan.size)))


def whole_step(score: Score, number: int) -> TracedStep:
    """A simulated step with all its tasks."""
    whole = whole_score(score)
    return TracedStep(whole.timeline, whole.tasks, "simulated", whole.memory, number)


def abridged_step(score: Score, number: int) -> TracedStep:
    """A simulated step without the rounds that are told from others."""
    events, tasks = abridged_timeline(score.timeline), abridged_tasks(score.timeline, score.tasks)
    memory = whole_curves(score.memory, score.timeline, abridged=True)
    found, left_out = score.timeline.repetition, None
    if found:
        start = min(score.timeline.round_starts().values()) + found.seconds
        left_out = RoundsLeftOut(found.rounds, found.micro_batches, start, found.rounds * found.seconds)
    return TracedStep(events, tasks, "simulated", memory, number, left_out=left_out)


def write_measured_trace(path: Path, run: ComparedRun) -> None:
    """Write the last measured steps, in the format of the simulated ones; `simulate --measured` reads them."""
    write_trace(path, build_trace([[step] for step in run.traced[-TRACED_STEPS:]], run.plan.name))
