"""A plan as a person wants it in the terminal: what it is worth, drawn to scale, where time and memory go."""

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
EDITED = 1e-6  # relative: less is rounding


def plan(shown: Plan, scores: Sequence[Score], canvas: Canvas) -> Iterator[RenderableType]:
    """Head, picture and outcome of a plan."""
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
    """Whether micro-batches lie beside each other: on the stages of a pipeline, and of several modules on one rank."""
    return len(shown.layouts) > 1 or any(layout.pp > 1 for layout in shown.layouts.values())


def edited(shown: Plan, scores: Sequence[Score]) -> Iterator[Text]:
    """A word where the file says another time than its decisions take: somebody changed them by hand."""
    goal = objective_of(shown)
    value = worth(shown, sum(score.value for score in scores), range(len(scores)))
    if abs(value - shown.outcome.value) > EDITED * value:
        stated, found = goal.said(shown.outcome.value), goal.said(value)
        text = f"the file says {stated}, and what it decides {goal.verb} {found}, simulated:"
        yield Text(f"{text} it was changed after it was solved, and what stands below is as it was", style="yellow")
