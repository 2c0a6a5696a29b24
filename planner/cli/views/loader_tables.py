"""What screens say of a data loader: a stage a line, whether it sets the step, and what more would give."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from planner.cli.views.plain_table import table
from planner.costs import CORES, beside_training, loader_reads, node_item_seconds
from planner.plan.plan_file import Plan
from planner.scoring import score, step_loading_seconds
from planner.specs.loader import LoaderFile, LoaderStage
from planner.strategies import DividedLoader
from planner.units import byte_size, duration, percent, plural

ROUNDING = 1e-6  # of seconds in a file, relative
WIDEST = 24  # columns of a bar


def loader_lines(answer: DividedLoader, path: Path | None) -> Iterator[RenderableType]:
    """The shares of a loader, and what they give."""
    loader, shares = answer.loader, answer.shares
    yield Text.assemble((loader.name, "bold"), f"  {plural(len(loader.stages), 'stage')}, {loader.source}{at(loader)}")
    lines = table("stage", "pool", ">units", ">seconds an item", "")
    for work, units in zip(answer.work, answer.units, strict=True):
        seconds = work.seconds_with(units)
        bar = "█" * round(WIDEST * seconds / answer.seconds)
        lines.add_row(work.name, work.pool or "", str(units) if work.pool else "", duration(seconds), bar)
    if loader.trainer_seconds:
        bar = "░" * round(WIDEST * loader.trainer_seconds / answer.seconds)
        lines.add_row("who trains", "", "", duration(loader.trainer_seconds), bar)
    yield lines
    yield from (Text(text) for text in shared_texts(answer))
    yield Text(f"\n{verdict(answer)}", style="yellow" if answer.loader_bound else "")
    gain = shares.equal_seconds / shares.seconds
    yield Text(f"an equal split: {duration(shares.equal_seconds)} an item, {gain:.2f} times as long")
    for pool, seconds in answer.one_more.items():
        less = f"{duration(seconds)} an item, {percent(1 - seconds / shares.seconds)} less"
        yield Text(f"one more of {pool}: {less if seconds < shares.seconds else 'no quicker'}")
    yield Text(
        "no whole shares of these units are quicker: each smaller time asks for more than there are", style="dim"
    )
    if path:
        yield Text(f"written to {path}", style="dim")


def at(loader: LoaderFile) -> str:
    """` (AMD EPYC, 2 cores)`: on which machine it was measured, or what published it."""
    return f" ({loader.machine})" if loader.machine else ""


def shared_texts(answer: DividedLoader) -> Iterator[str]:
    """Which stages share all units of a pool, and why."""
    for work in answer.work:
        if work.pool and len(work.stages) > 1:
            pool = answer.loader.pools[work.pool]
            why = "as it says" if pool.shared else f"fewer units than stages, {pool.units} for {len(work.stages)}"
            yield f"{' and '.join(work.stages)} share {work.pool}: {why}"


def verdict(answer: DividedLoader) -> str:
    """Whether the loader or who trains sets the step."""
    slowest = f"{answer.shares.slowest} is the slowest stage, {duration(answer.shares.seconds)} an item"
    if answer.loader_bound is None:
        return f"{slowest}, {1 / answer.shares.seconds:,.1f} items/s; who trains is not in the file (trainer_seconds)"
    trains = f"who trains takes {duration(answer.loader.trainer_seconds)}"
    return f"loader-bound: {slowest}, {trains}" if answer.loader_bound else f"the loader keeps up: {slowest}, {trains}"


def loader_answer(answer: DividedLoader, path: Path | None) -> dict[str, Any]:
    """The JSON answer of `planner loader`."""
    return {
        "name": answer.loader.name,
        "shares": answer.shares,
        "loader_bound": answer.loader_bound,
        "seconds": answer.seconds,
        "one_more": answer.one_more,
        "stages": [
            {"stage": work.name, "pool": work.pool, "units": units, "seconds": work.seconds_with(units)}
            for work, units in zip(answer.work, answer.units, strict=True)
        ],
        "file": str(path) if path else None,
    }


def profiled_lines(loader: LoaderFile, path: Path) -> Iterator[RenderableType]:
    """What a measured loader takes, and with how many workers."""
    yield Text.assemble((loader.name, "bold"), f"  {plural(loader.items, 'item')} measured{at(loader)}")
    lines = table("stage", ">an item on one core", ">spread", ">bytes")
    for stage in loader.stages:
        spread = f"±{percent(stage.spread)}"
        lines.add_row(stage.name, duration(stage.seconds + stage.constant), spread, byte_size(stage.bytes))
    yield lines
    timed = ", ".join(f"{1 / each.seconds:,.1f} with {each.workers}" for each in loader.timings)
    yield Text(f"items/s by worker processes: {timed}")
    if loader.settings:
        yield Text(f"best alone on this machine: {settings_text(loader.settings.workers, loader.settings.prefetch)}")
    yield Text(f"written to {path}; in a job, loader: {path} counts it", style="dim")


def settings_text(workers: int, prefetch: int) -> str:
    """`2 workers, 2 steps ready each`."""
    return f"{plural(workers, 'worker')}, {plural(prefetch, 'step')} ready each" if workers else "no worker"


# --------------------------------------------------------------------------------------------- the loader of a plan


def loader_texts(plan: Plan) -> Iterator[tuple[str, str]]:
    """The loader of a plan, a stage a line, each with its label; nothing where it has none."""
    loader, settings = plan.uses.loader, plan.loader
    if not loader or not settings:
        return
    reads = loader_reads(plan, 0)
    seconds = step_loading_seconds(plan, 0)
    trained = plan_trained_seconds(plan)
    bound = f"loader-bound: {duration(seconds)}" if seconds > trained else f"keeps up: {duration(seconds)}"
    yield "loader", f"{bound} a step, {duration(trained)} to train it; samples: {reads.each_rank} on the busiest node"
    pinned = ", pinned" if settings.pinned else ""
    each = settings_text(settings.workers, settings.prefetch)
    yield (
        "",
        f"{each} on each of {plural(reads.ranks, 'rank')} of a node{pinned}; read as {order_text(settings.order)}",
    )
    yield from (("", stage_text(stage)) for stage in loader.stages)
    if reads.once < reads.each_rank:
        once = reads.once * node_item_seconds(loader, max(1, settings.workers), reads.ranks)
        yield "", f"one loader a node that feeds all its ranks: {duration(once)}, {reads.once} samples"
    if CORES in loader.pools:
        cores = loader.pools[CORES].units
        yield "", f"one core more than {cores}: {duration(seconds * cores / (cores + 1))} at best"


def order_text(order: str) -> str:
    """In which order items are read."""
    return "they are stored" if order == "stored" else "the plan has them"


def stage_text(stage: LoaderStage) -> str:
    """A stage in a line."""
    held = f", {byte_size(stage.bytes)}" if stage.bytes else ""
    return (
        f"{stage.name}  {duration(stage.seconds + stage.constant)} a sample on one core ±{percent(stage.spread)}{held}"
    )


def plan_trained_seconds(plan: Plan) -> float:
    """Seconds of the first step once its batches are there: simulated again where its loader hides them."""
    assert plan.loader, "only plans with a loader are asked"
    step, loading = (plan.steps[0].prediction or plan.prediction).step_seconds, step_loading_seconds(plan, 0)
    if not (plan.loader.workers and beside_training(plan)):
        return step - loading
    return step if loading < step * (1 - ROUNDING) else score(plan).trained_seconds


def loader_bound_line(plan: Plan) -> Iterator[Text]:
    """That the loader sets the step, where it does."""
    if plan.loader and step_loading_seconds(plan, 0) > plan_trained_seconds(plan):
        yield Text("loader-bound: the data loader sets the step, not the ranks that train", style="yellow")
