"""Draws a plan in the terminal: step time and bound, ranks in time to scale, and where time and memory go."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.text import Text

from planner.cli.bands import micro_batches
from planner.cli.bars import memory
from planner.cli.canvas import Canvas
from planner.cli.lanes import lanes
from planner.cli.tables import outcome_line, prediction_lines
from planner.plan.model import Plan
from planner.units import duration
from planner.verify.score import Score
from planner.verify.worth import objective_of, worth

STEPS_SHOWN = 3
EDITED = 1e-6  # relative difference: less is rounding


def plan(shown: Plan, scores: Sequence[Score], canvas: Canvas) -> Iterator[RenderableType]:
    """Lines and pictures of a plan."""
    kinds = ", ".join(f"{kind.count} × {kind.kind}" for kind in shown.ranks)
    yield Text.assemble((shown.name, "bold"), f"  {shown.made.strategy} on {kinds}")
    yield outcome_line(shown.outcome, len(shown.steps))
    yield from edited(shown, scores)
    for number, score in enumerate(scores[:STEPS_SHOWN]):
        if len(scores) > 1:
            yield Text(f"\nstep {number}: {duration(score.value)}", style="bold")
        if shown.steps[number].sync == "step" or overlapping(shown):
            yield lanes(score.timeline, canvas)
        else:
            yield from micro_batches(shown, number, score, canvas)
    if len(scores) > STEPS_SHOWN:
        yield Text(f"… and {len(scores) - STEPS_SHOWN} more steps", style="dim")
    yield memory(shown, scores, canvas)
    yield from prediction_lines(shown)


def overlapping(shown: Plan) -> bool:
    """Whether micro-batches overlap in time: on the stages of a pipeline, or of several modules."""
    return len(shown.layouts) > 1 or any(layout.pp > 1 for layout in shown.layouts.values())


def edited(plan: Plan, scores: Sequence[Score]) -> Iterator[Text]:
    """A warning where the time that the file states is not what its decisions take: they were edited by hand."""
    goal = objective_of(plan)
    simulated = worth(plan, sum(score.value for score in scores), range(len(scores)))
    if abs(simulated - plan.outcome.value) > EDITED * simulated:
        stated, found = goal.said(plan.outcome.value), goal.said(simulated)
        verb = goal.verb.removesuffix("s")
        text = (
            f"the file states {stated}, but its decisions {verb} {found}, simulated: it was edited after it was solved;"
        )
        yield Text(f"{text} the bound above and the table below are still the original's", style="yellow")
