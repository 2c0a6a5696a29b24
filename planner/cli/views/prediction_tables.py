"""What `planner predict` and `planner fits` print, and their JSON answers."""

from collections.abc import Iterator
from dataclasses import asdict, fields
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from planner.cli.views.expert_texts import expert_texts
from planner.cli.views.loader_tables import loader_bound_line
from planner.cli.views.plain_table import table
from planner.cli.views.plan_tables import gib_text
from planner.costs import STEP_SECONDS
from planner.costs.memory import Footprint
from planner.plan.descriptions import all_items_text, left_out_texts, module_layout_text
from planner.plan.pack_fill import pack_fill, pack_text
from planner.scoring import HostMemory, PlanAnswer, objective_of, plan_answer, sample_modules
from planner.strategies.static import MemoryFit, StageMemory, StepTimePrediction
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
    plan, several = prediction.plan, len(prediction.plan.layouts) > 1
    facts, ranks = plan_answer(plan, prediction.scores), plan.size
    seconds, memory = facts["step_seconds"], facts["memory"]
    low, high = (duration(end) for end in facts["interval_seconds"])
    used, allowed = gib_text(memory["peak_gib"] * GIB), gib_text(memory["allowed_gib"] * GIB)
    if not prediction.fits:
        yield Text.assemble(
            ("DOES NOT FIT", "bold red"),
            f": the fullest rank would hold {used} of {allowed} allowed; times are what it would take "
            "(planner fits says which change would fit)",
        )
    for name, layout in plan.layouts.items():
        of_module = f"  of {name}" if several else ""
        on = f"{of_module}  on {plural(len(layout.ranks), 'rank')}"
        yield Text.assemble((module_layout_text(plan, name, ""), "bold"), on)
    if several or plan.uses.dropped:
        yield Text("; ".join([*([all_items_text(plan)] if several else []), *left_out_texts(plan)]))
    packed = pack_fill(plan)
    if packed:
        yield Text(f"packed in {pack_text(packed)}")
    closed = f"; closed form {duration(prediction.closed_seconds)}" if prediction.closed_seconds else ""
    yield Text.assemble("step ", (duration(seconds), "bold"), f" simulated, {low} to {high} (80 % interval){closed}")
    yield from loader_bound_line(plan)
    rate, goal = facts["tokens_per_second"], objective_of(plan)
    objective_text = "" if facts["objective"] == STEP_SECONDS else f"{goal.formatted(facts['value'])}, "
    of = f" of {' and '.join(sample_modules(plan))}" if several else ""
    yield Text(f"{objective_text}{rate:,.0f} tokens/s{of}, {rate / ranks:,.0f} per rank, MFU {percent(facts['mfu'])}\n")
    yield parts_table(prediction, seconds)
    if prediction.closed_seconds and abs(seconds - prediction.closed_seconds) >= EXPLAINED * seconds:
        yield Text(SIMULATION_NOTE, style="dim")
    risk = f"{percent(memory['chance'])} chance of running out"
    yield Text(f"\nmemory: {used} with context and buffers on the fullest rank, {allowed} allowed, {risk}")
    yield Text(host_text(prediction.host))
    sources = table("", "rests on", "")
    for what, source in prediction.sources.items():
        sources.add_row("", what, source)
    for text in expert_texts(plan):
        sources.add_row("", "experts", text)
    yield sources


def parts_table(prediction: StepTimePrediction, seconds: float) -> RenderableType:
    """Seconds by part, and what simulation adds to the closed form; parts near zero are left out."""
    rows = table("part", ">seconds", ">share")
    closed = prediction.closed_seconds
    rest = {"simulation adds": seconds - closed} if closed else {}
    for name, spent in {**prediction.parts, **rest}.items():
        if abs(spent) >= LEAST * seconds:
            rows.add_row(name, duration(spent), percent(spent / seconds))
    return rows


def prediction_summary(prediction: StepTimePrediction) -> PlanAnswer:
    """The JSON answer of `planner predict`."""
    return {
        **plan_answer(prediction.plan, prediction.scores),
        "fits": prediction.fits,
        "ranks": prediction.plan.size,
        "closed_form_seconds": prediction.closed_seconds,
        "parts": prediction.parts,
        "sources": prediction.sources,
        "host_memory": host_summary(prediction.host),
    }


# ------------------------------------------------------------------------------------------------------------- fits


def fits_lines(fit: MemoryFit) -> Iterator[RenderableType]:
    """Whether it fits, what uses the memory, and the smallest change that would fit."""
    verdict, style = ("fits", "bold green") if fit.fits else ("does not fit", "bold red")
    fullest = fit.fullest
    several = len(fit.plan.layouts) > 1
    layouts = " and ".join(f"{name}: " * several + module_layout_text(fit.plan, name, "") for name in fit.plan.layouts)
    chance = f"{percent(fullest.chance)} chance of running out of memory, on {stage_text(fit, fullest)}"
    yield Text.assemble((layouts, "bold"), " ", (verdict, style), f" in {fit.device}: {chance}\n")
    yield from loader_bound_line(fit.plan)
    yield memory_use_table(fit)
    if fit.host:
        yield Text(f"\n{host_text(fit.host)}", style="" if fit.host.fits else "bold red")
    if not fit.fits:
        yield Text(f"\n{change_text(fit)}")


def host_text(host: HostMemory | None) -> str:
    """What is offloaded and kept in the memory of the fullest host; empty where nothing is."""
    if host is None:
        return ""
    parts = {"offloaded": host.offloaded, "features": host.features}
    each = " and ".join(f"{gib_text(size)} {what}" for what, size in parts.items() if size)
    return f"host memory: {each} on node {host.node}, {gib_text(host.allowed)} allowed for its ranks together\n"


def host_summary(host: HostMemory | None) -> dict[str, float] | None:
    """What is offloaded and kept in the memory of the fullest host, in GiB, for JSON answers."""
    sizes = (
        {"offloaded_gib": host.offloaded, "features_gib": host.features, "allowed_gib": host.allowed} if host else {}
    )
    return {"node": host.node, **{name: size / GIB for name, size in sizes.items()}} if host else None


def memory_use_table(fit: MemoryFit) -> RenderableType:
    """Bytes of each kind on the first two stages, the fullest and the last."""
    stages = shown_stages(fit)
    heading = "on one rank of" if len(fit.plan.layouts) == 1 else "on one rank of stages"
    rows = table(heading, *(f">{stage_text(fit, use)}" for use in stages))
    for field in fields(Footprint):
        sizes = [float(getattr(use.taken, field.name)) for use in stages]
        if any(sizes):
            rows.add_row(field.name, *map(gib_text, sizes))
    rows.add_row("peak", *(gib_text(float(use.taken.total)) for use in stages), style="bold")
    rows.add_row("allowed", *(gib_text(use.allowed) for use in stages))
    rows.add_row("device", *(gib_text(fit.device_bytes) for _ in stages))
    rows.add_row("chance of running out", *(percent(use.chance) for use in stages))
    fragmented = [use.fragmented_chance for use in stages]
    if any(each is not None and each > 2 * use.chance for each, use in zip(fragmented, stages, strict=True)):
        rows.add_row("without expandable segments", *("" if each is None else percent(each) for each in fragmented))
    return rows


def stage_text(fit: MemoryFit, use: StageMemory) -> str:
    """`stage 1`; with several modules `llm 1, vit 0`: the stage of each that a rank holds."""
    if len(fit.plan.layouts) == 1:
        return f"stage {use.stage}"
    return ", ".join(f"{name} {stage}" if fit.plan.layouts[name].pp > 1 else name for name, stage in use.holds.items())


def shown_stages(fit: MemoryFit) -> list[StageMemory]:
    last = len(fit.stages) - 1
    return [fit.stages[stage] for stage in sorted({0, min(1, last), fit.fullest.stage, last})][:COLUMNS]


def change_text(fit: MemoryFit) -> str:
    """The nearest change that would fit, with its memory and step time."""
    change = fit.change
    if change is None and len(fit.plan.layouts) > 1:
        name = fit.largest_module
        return (
            f"`{name}` holds most there, and no change that was tried fits: give it ranks of its own "
            f"(fix.layouts.{name}.ranks), or more ranks"
        )
    if change is None:
        return "no change that was tried fits: it needs more ranks, shorter sequences, or another layout"
    how = "simulated" if change.simulated else "by the closed form"
    used = f"{gib_text(change.bytes_needed)}, {duration(change.seconds)} a step {how}"
    what = "the smallest change that fits" if change.is_least else "a change that fits"
    return f"{what}: {' and '.join(change.differences)} ({used})"


def gib(taken: Footprint) -> dict[str, float]:
    parts = {name: float(size) / GIB for name, size in asdict(taken).items()}
    return {**parts, "total": float(taken.total) / GIB}


def fits_summary(fit: MemoryFit) -> dict[str, Any]:
    """The JSON answer of `planner fits`; sizes in GiB."""
    change = fit.change
    return {
        **plan_answer(fit.plan, fit.scores),
        "fits": fit.fits,
        "device": fit.device,
        "host_memory": host_summary(fit.host),
        "device_gib": fit.device_bytes / GIB,
        "fullest": fit.fullest.stage,
        "stages": [
            {
                "stage": use.stage,
                "holds": use.holds,
                "chance": use.chance,
                "chance_without_expandable_segments": use.fragmented_chance,
                "allowed_gib": use.allowed / GIB,
                **gib(use.taken),
            }
            for use in fit.stages
        ],
        "change": change
        and {"what": [*change.differences], "step_seconds": change.seconds, "total": change.bytes_needed / GIB},
    }
