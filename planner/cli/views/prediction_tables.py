"""What `planner predict` and `planner fits` print, and their JSON answers."""

from collections.abc import Iterator
from dataclasses import asdict, fields
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from planner.cli.views.expert_texts import expert_texts
from planner.cli.views.plain_table import table
from planner.cli.views.plan_tables import gib_text
from planner.costs import STEP_SECONDS
from planner.costs.memory import Footprint
from planner.plan.descriptions import all_items_text, left_out_texts, module_layout_text
from planner.plan.pack_fill import pack_fill, pack_text
from planner.scoring import PlanAnswer, objective_of, plan_answer, sample_modules
from planner.strategies.static import LayoutChange, MemoryFit, StageMemory, StepTimePrediction
from planner.units import GIB, duration, percent, plural

LEAST = 5e-4  # share of the step: less is 0.0 %
EXPLAINED = 0.01  # share of the step above which what simulation adds is explained
SIMULATION_NOTE = (
    "the parts assume equal sequences, evenly distributed; the simulation takes them as they are: ranks and stages "
    "wait for those with more tokens or layers"
)
COLUMNS = 4  # stages in a table: the JSON answer has all


def prediction_lines(prediction: StepTimePrediction) -> Iterator[RenderableType]:
    """Step time with its parts, memory, and the sources of the numbers."""
    facts, ranks = plan_answer(prediction.plan, prediction.scores), prediction.plan.size
    seconds, memory = facts["step_seconds"], facts["memory"]
    low, high = (duration(each) for each in facts["interval_seconds"])
    used, allowed = gib_text(memory["peak_gib"] * GIB), gib_text(memory["allowed_gib"] * GIB)
    if not prediction.fits:
        yield Text.assemble(
            ("DOES NOT FIT", "bold red"),
            f": the fullest rank would hold {used} of {allowed} allowed; times are what it would take "
            "(planner fits says which change would fit)",
        )
    for name, layout in prediction.plan.layouts.items():
        of_module = f"  of {name}" if len(prediction.plan.layouts) > 1 else ""
        yield Text.assemble(
            (module_layout_text(prediction.plan, name, ""), "bold"),
            f"{of_module}  on {plural(len(layout.ranks), 'rank')}",
        )
    if len(prediction.plan.layouts) > 1:
        yield Text("; ".join([all_items_text(prediction.plan), *left_out_texts(prediction.plan)]))
    elif prediction.plan.uses.dropped:
        yield Text("; ".join(left_out_texts(prediction.plan)))
    packed = pack_fill(prediction.plan)
    if packed:
        yield Text(f"packed in {pack_text(packed)}")
    closed = f"; closed form {duration(prediction.closed_seconds)}" if prediction.closed_seconds else ""
    yield Text.assemble("step ", (duration(seconds), "bold"), f" simulated, {low} to {high} (80 % interval){closed}")
    rate, goal = facts["tokens_per_second"], objective_of(prediction.plan)
    objective_text = "" if facts["objective"] == STEP_SECONDS else f"{goal.formatted(facts['value'])}, "
    of = f" of {' and '.join(sample_modules(prediction.plan))}" if len(prediction.plan.layouts) > 1 else ""
    yield Text(f"{objective_text}{rate:,.0f} tokens/s{of}, {rate / ranks:,.0f} per rank, MFU {percent(facts['mfu'])}\n")
    yield parts_table(prediction, seconds)
    if prediction.closed_seconds and abs(seconds - prediction.closed_seconds) >= EXPLAINED * seconds:
        yield Text(SIMULATION_NOTE, style="dim")
    risk = f"{percent(memory['chance'])} chance of running out"
    yield Text(f"\nmemory: {used} with context and buffers on the fullest rank, {allowed} allowed, {risk}\n")
    sources = table("", "rests on", "")
    for what, source in prediction.sources.items():
        sources.add_row("", what, source)
    for text in expert_texts(prediction.plan):
        sources.add_row("", "experts", text)
    yield sources


def parts_table(found: StepTimePrediction, seconds: float) -> RenderableType:
    """Seconds by part, and what simulation adds to the closed form; parts near zero are left out."""
    rows = table("part", ">seconds", ">share")
    rest = {"simulation adds": seconds - found.closed_seconds} if found.closed_seconds else {}
    for name, each in {**found.parts, **rest}.items():
        if abs(each) >= LEAST * seconds:
            rows.add_row(name, duration(each), percent(each / seconds))
    return rows


def prediction_summary(found: StepTimePrediction) -> PlanAnswer:
    return {
        **plan_answer(found.plan, found.scores),
        "fits": found.fits,
        "ranks": found.plan.size,
        "closed_form_seconds": found.closed_seconds,
        "parts": found.parts,
        "sources": found.sources,
    }


# ------------------------------------------------------------------------------------------------------------- fits


def fits_lines(answered: MemoryFit) -> Iterator[RenderableType]:
    """Whether it fits, what uses the memory, and the smallest change that would fit."""
    verdict, style = ("fits", "bold green") if answered.fits else ("does not fit", "bold red")
    fullest = answered.fullest
    layouts = " and ".join(
        f"{name}: {module_layout_text(answered.plan, name, '')}"
        if len(answered.plan.layouts) > 1
        else module_layout_text(answered.plan, name, "")
        for name in answered.plan.layouts
    )
    chance = f"{percent(fullest.chance)} chance of running out of memory, on {stage_text(answered, fullest)}"
    yield Text.assemble((layouts, "bold"), " ", (verdict, style), f" in {answered.device}: {chance}\n")
    yield memory_use_table(answered)
    if not answered.fits:
        yield Text(f"\n{change_text(answered)}")


def memory_use_table(found: MemoryFit) -> RenderableType:
    """Bytes of each kind on the first two stages, the fullest and the last."""
    stages = shown_stages(found)
    heading = "on one rank of" if len(found.plan.layouts) == 1 else "on one rank of stages"
    rows = table(heading, *(f">{stage_text(found, use)}" for use in stages))
    for field in fields(Footprint):
        sizes = [float(getattr(use.taken, field.name)) for use in stages]
        if any(sizes):
            rows.add_row(field.name, *map(gib_text, sizes))
    rows.add_row("peak", *(gib_text(float(use.taken.total)) for use in stages), style="bold")
    rows.add_row("allowed", *(gib_text(use.allowed) for use in stages))
    rows.add_row("device", *(gib_text(found.device_bytes) for _ in stages))
    rows.add_row("chance of running out", *(percent(use.chance) for use in stages))
    fragmented = [use.fragmented_chance for use in stages]
    if any(each is not None and each > 2 * use.chance for each, use in zip(fragmented, stages, strict=True)):
        rows.add_row("without expandable segments", *("" if each is None else percent(each) for each in fragmented))
    return rows


def stage_text(found: MemoryFit, use: StageMemory) -> str:
    """`stage 1`; with several modules `llm 1, vit 0`: the stage of each that a rank holds."""
    if len(found.plan.layouts) == 1:
        return f"stage {use.stage}"
    return ", ".join(
        f"{name} {stage}" if found.plan.layouts[name].pp > 1 else name for name, stage in use.holds.items()
    )


def shown_stages(found: MemoryFit) -> list[StageMemory]:
    last = len(found.stages) - 1
    return [found.stages[stage] for stage in sorted({0, min(1, last), found.fullest.stage, last})][:COLUMNS]


def change_text(found: MemoryFit) -> str:
    """The smallest change that would fit, with its memory and step time."""
    change = found.change
    if change is None and len(found.plan.layouts) > 1:
        name = found.largest_module
        return (
            f"`{name}` holds most there, and no change that was tried fits: give it ranks of its own "
            f"(fix.layouts.{name}.ranks), or more ranks"
        )
    if change is None:
        return "no change that was tried fits: it needs more ranks, shorter sequences, or another layout"
    how = "by the closed form" if isinstance(change, LayoutChange) else "simulated"
    used = f"{gib_text(change.bytes_needed)}, {duration(change.seconds)} a step {how}"
    return f"the smallest change that fits: {', '.join(change.differences)} ({used})"


def gib(taken: Footprint) -> dict[str, float]:
    parts = {name: float(size) / GIB for name, size in asdict(taken).items()}
    return {**parts, "total": float(taken.total) / GIB}


def fits_summary(found: MemoryFit) -> dict[str, Any]:
    """The JSON answer of `planner fits`; sizes in GiB."""
    change = found.change
    return {
        **plan_answer(found.plan, found.scores),
        "fits": found.fits,
        "device": found.device,
        "device_gib": found.device_bytes / GIB,
        "fullest": found.fullest.stage,
        "stages": [
            {
                "stage": use.stage,
                "holds": use.holds,
                "chance": use.chance,
                "chance_without_expandable_segments": use.fragmented_chance,
                "allowed_gib": use.allowed / GIB,
                **gib(use.taken),
            }
            for use in found.stages
        ],
        "change": change
        and {"what": [*change.differences], "step_seconds": change.seconds, "total": change.bytes_needed / GIB},
    }
