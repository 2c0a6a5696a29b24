"""Lines of the multimodal demo: what its stages found, the usual placements of encoders, and the closing panel."""

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import RenderableType
from rich.panel import Panel
from rich.text import Text

from planner.cli.render import canvas
from planner.cli.views import plan_picture
from planner.cli.views.demo_screen import file_list, profile_line
from planner.cli.views.plain_table import table
from planner.cli.views.plan_tables import parity_text, run_lines
from planner.plan.descriptions import layout_text
from planner.plan.plan_file import Plan
from planner.strategies import SolvedJob
from planner.units import duration, percent, plural
from planner.workflows.multimodal_demo import MultimodalDemoResult, UsualPlacement, mean_step_seconds

CHAPTERS = {
    "samples": "draw coloured squares and tones, and the words that name them",
    "profile": "measure layers of two encoders and a decoder, optimizer and collectives on this machine",
    "solve": "decide the layout of each module, and which ranks it is on",
    "simulate": "check and re-price the plan of all batches, and simulate it task by task",
    "run": "train all three with it on 4 processes, and compare with one process",
    "compare": "where trainers usually have encoders, at the same prices",
}


def stage_lines(chapter: str, result: Any) -> Iterator[RenderableType]:
    """Lines for the result of a stage."""
    if chapter == "samples":
        images, clips = (
            sum(len(of) for of in each) for each in zip(*((s.images, s.clips) for s in result), strict=True)
        )
        yield Text(f"   {plural(len(result), 'sample')}, with {plural(images, 'image')} and {plural(clips, 'clip')}")
    elif chapter == "profile":
        yield profile_line(result)
    elif chapter == "solve":
        _, solved = result
        yield Text(f"   {decided_text(solved)}, decided in {duration(solved.seconds)}")
        for name, layout in solved.plan.layouts.items():
            yield Text(f"   {name}: {layout_text(layout, solved.plan.size)}")
    elif chapter == "simulate":
        plan, scores = result
        yield from plan_picture.draw_plan(plan, scores, canvas())
    elif chapter == "run":
        yield from run_lines(result, None)
    elif chapter == "compare":
        yield usual_table(*result)


def decided_text(solved: SolvedJob) -> str:
    """How good the layouts are, and for how many others they were tried."""
    return f"{duration(mean_step_seconds(solved.plan))} a step predicted ({solved.plan.outcome.effort})"


def usual_table(plan: Plan, usual: Sequence[UsualPlacement]) -> RenderableType:
    """What usual placements of encoders would take for the same batches."""
    shown = table("encoders", ">predicted", ">longer", "decoder")
    ours = mean_step_seconds(plan)
    shown.add_row("as decided", duration(ours), "", layout_text(plan.layouts["llm"], plan.size))
    for each in usual:
        slower = each.because if each.step_seconds is None else percent(each.step_seconds / ours - 1.0)
        seconds = "" if each.step_seconds is None else duration(each.step_seconds)
        shown.add_row(each.name, seconds, slower, layout_text(each.layouts["llm"]))
    return shown


def closing_panel(result: MultimodalDemoResult) -> Iterator[RenderableType]:
    """The closing panel."""
    ran, plan = result.ran, result.solved.plan
    predicted = ran.predicted_step_seconds or 0.0  # never 0: the demo's plan has prices
    parity = f", {parity_text(ran.verified, ran.tolerance)[0]}" if ran.verified and ran.tolerance else ""
    lines = [
        f"measured    layers, collectives and the optimizer on this machine ({result.profile.provenance.machine})",
        f"decided     layouts of {plural(len(plan.layouts), 'module')}: {result.decided.plan.outcome.effort}",
        f"ran         {len(ran.losses)} steps of training on 4 processes{parity}",
        f"learned     loss {ran.losses[0]:.2f} → {ran.losses[-1]:.2f}; no model of the text alone is below "
        f"{result.least_loss:.2f}",
        f"predicted   {duration(predicted)} a step; measured {duration(ran.step_seconds)} "
        f"({ran.step_seconds / predicted:.2f}×)",
        f"files       {file_list(result.folder)}",
        f"next        edit {result.folder / 'job.yaml'}, then: planner solve {result.folder / 'job.yaml'}",
    ]
    yield Text()
    yield Panel("\n".join(lines), title="what just happened", title_align="left")
