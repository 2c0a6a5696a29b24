"""Draws a plan in the terminal: step time and bound, ranks in time to scale, and where time and memory go."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.text import Text

from planner.cli.canvas import Canvas
from planner.cli.views.embedding_tables import load_bars
from planner.cli.views.memory_bars import memory_bars
from planner.cli.views.micro_batch_bands import micro_batch_bands
from planner.cli.views.plan_tables import headline, plan_table_lines
from planner.cli.views.rank_lanes import rank_lanes
from planner.plan.plan_file import Plan
from planner.scoring import Score
from planner.units import duration

STEPS_SHOWN = 3


def draw_plan(shown: Plan, scores: Sequence[Score], canvas: Canvas) -> Iterator[RenderableType]:
    """Lines and pictures of a plan."""
    kinds = ", ".join(f"{kind.count} × {kind.kind}" for kind in shown.ranks)
    yield Text.assemble((shown.name, "bold"), f"  {shown.made.strategy} on {kinds}")
    yield from headline(shown)
    for number, score in enumerate(scores[:STEPS_SHOWN]):
        if len(scores) > 1:
            yield Text(f"\nstep {number}: {duration(score.step_seconds)}", style="bold")
        if shown.steps[number].sync == "step" or has_overlap(shown):
            yield rank_lanes(score.timeline, canvas)
        else:
            yield from micro_batch_bands(shown, number, score, canvas)
    if len(scores) > STEPS_SHOWN:
        yield Text(f"… and {len(scores) - STEPS_SHOWN} more steps", style="dim")
    yield from load_bars(shown, canvas)
    yield memory_bars(shown, scores, canvas)
    yield from plan_table_lines(shown)


def has_overlap(shown: Plan) -> bool:
    """Whether micro-batches overlap in time: on the stages of a pipeline, or of several modules."""
    return len(shown.layouts) > 1 or any(layout.pp > 1 for layout in shown.layouts.values())
