"""Timelines of a plan for Perfetto: simulated, and beside them what a run measured."""

from collections.abc import Sequence
from pathlib import Path

from planner.ledger import ComparedRun, StepOverlay, overlay_steps
from planner.plan.plan_file import Plan
from planner.plan.tasks.expand import expand
from planner.scoring import Score
from planner.simulate import TracedStep, build_trace, write_trace
from planner.specs.base import Ranks

TRACED_STEPS = 16  # that a trace file holds at most


def overlay(plan: Plan, scores: Sequence[Score], measured: Path) -> tuple[StepOverlay, ...]:
    """What a run of this plan measured, beside its simulation. Raises InputError when it was another plan's run."""
    simulated = [(score.timeline, expand(plan, number)) for number, score in enumerate(scores)]
    return overlay_steps(simulated, measured, plan.name, plan.size)


def write_simulated_trace(
    path: Path, plan: Plan, scores: Sequence[Score], overlays: Sequence[StepOverlay] = (), only: Ranks | None = None
) -> int:
    """Write the first simulated steps, beside what was measured of them; `only`: of these ranks.

    Returns how many ranks are drawn: of very many, one of each kind.
    """
    if overlays:
        sides = [[simulated_step(scores[each.step], each.step), each.traced] for each in overlays]
    else:
        sides = [[simulated_step(score, number)] for number, score in enumerate(scores)]
    trace = build_trace(sides[:TRACED_STEPS], plan.name, only)
    write_trace(path, trace)
    return len(trace["otherData"].get("stands_for", range(plan.size)))


def simulated_step(score: Score, number: int) -> TracedStep:
    """A simulated step."""
    return TracedStep(score.timeline, score.tasks, "simulated", score.memory, number)


def write_measured_trace(path: Path, run: ComparedRun) -> None:
    """Write the last measured steps, in the format of the simulated ones; `simulate --measured` reads them."""
    write_trace(path, build_trace([[step] for step in run.traced[-TRACED_STEPS:]], run.plan.name))
