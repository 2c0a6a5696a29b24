"""What a run prints: predicted and measured times and memory, checkpoints, the comparison with one process, traces."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from planner.cli.views.plain_table import table
from planner.ledger import ComparedRanks, ComparedRun, PeakMemoryUse, fullest_rank, memory_uses
from planner.units import byte_size, duration, plural
from planner.workflows.tracing import TRACED_STEPS

if TYPE_CHECKING:
    from planner.runtime import ParityErrors, ParityTolerance, RunOptions

HEAT = ((1.5, "black on red"), (1.2, "black on dark_orange"), (1.1, "black on yellow"))  # times what is usual
RANKS_SHOWN = 16
STOP_REASONS = {
    "time": "the time limit was reached",
    "interrupt": "interrupted",
    "terminate": "SIGTERM asked for it",
    "hangup": "its terminal was closed (SIGHUP)",
}


def run_lines(result: ComparedRun, trace: Path | None) -> Iterator[RenderableType]:
    """Predicted and measured times by kind of task, the loss, and the comparison with one process."""
    yield Text(f"a step, predicted and measured ({result.machine})")
    rows = table("task", ">predicted", ">measured", ">ratio")
    known = result.predicted_step_seconds
    for kind in result.kinds:
        ratio = f"{kind.measured / kind.predicted:.2f}" if kind.predicted else ""
        if kind.predicted or kind.measured:
            rows.add_row(kind.name, "" if known is None else duration(kind.predicted), duration(kind.measured), ratio)
    yield rows
    if len(result.ranks.work) > 1:
        yield rank_heat_map(result.ranks)
        for slow in result.ranks.slow[:RANKS_SHOWN]:
            yield Text(slow.text, style="bold yellow")
    if result.memory:
        yield run_memory_table(result.memory)
    yield Text.assemble(
        "\nstep ",
        (duration(result.step_seconds), "bold"),
        f" measured (median of {len(result.losses)}), {'nothing' if known is None else duration(known)} predicted; ",
        f"loss {result.losses[0]:.4f} → {result.losses[-1]:.4f}",
    )
    yield from price_source_note(result)
    if result.stop_reason != "steps":
        why = STOP_REASONS[result.stop_reason]
        yield Text(f"ended after {plural(len(result.losses), 'step')}: {why}", style="yellow")
    if result.features:
        yield features_line(result)
    if result.plannings:
        yield planning_line(result)
    if result.verified and result.tolerance:
        line, same = parity_text(result.verified, result.tolerance)
        yield Text(line, style="green" if same else "bold red")
    yield from trace_line(trace, len(result.timelines))


def rank_heat_map(ranks: ComparedRanks) -> RenderableType:
    """Own work of each rank by kind, the redder the longer it takes than the others'; of many, the slowest."""
    kinds = list(dict.fromkeys(kind for work in ranks.work for kind in work))
    pairs = [*enumerate(zip(ranks.work, ranks.usual, strict=True))]
    slowest = sorted(pairs, key=lambda each: -(sum(each[1][0].values()) / (sum(each[1][1].values()) or 1.0)))
    more = f"; the {RANKS_SHOWN} slowest of {len(pairs)}" if len(pairs) > RANKS_SHOWN else ""
    rows = table(
        "rank", *(f">{kind}" for kind in kinds), title=f"\nown work of each rank, and times what is usual{more}"
    )
    for rank, (work, usual) in sorted(slowest[:RANKS_SHOWN]):
        cells = []
        for kind in kinds:
            ratio = work.get(kind, 0.0) / (usual.get(kind) or 1.0) or 1.0
            style = next((style for least, style in HEAT if ratio >= least), "")
            cells.append(Text(f"{duration(work[kind])} {ratio:.2f} ×" if kind in work else "", style=style))
        rows.add_row(str(rank), *cells)
    return rows


def resume_line(result: ComparedRun) -> Iterator[RenderableType]:
    """The step from which the run resumed, if it did."""
    if result.steps_before:
        yield Text(f"resumed from step {result.steps_before:,}")


def checkpoint_lines(
    result: ComparedRun, options: "RunOptions", steps: int | None, job: str | None
) -> Iterator[RenderableType]:
    """Where the checkpoint is, and the command that resumes it; `steps` and `job`: as the options gave them."""
    from planner.runtime import resume_command

    if options.save is None:
        return
    done, count = result.steps_before + len(result.losses), steps or len(result.plan.steps)
    left = [] if steps is None or done >= count else ["--steps", str(steps)]
    command = " ".join((resume_command(options, job), *left))
    more = "" if done < count or result.stop_reason != "steps" else " --steps MORE"
    if more and options.training.schedule != "constant":  # which a longer run would not have had
        end = f"the last of its {options.training.schedule} schedule"
        yield Text(f"saved to {options.save} after {plural(done, 'step')}, {end}")
        return
    yield Text(f"saved to {options.save} after {plural(done, 'step')}; to resume:")
    yield Text(f"  {command}{more}", no_wrap=True, overflow="ignore")


def run_memory_table(ranks: Sequence[PeakMemoryUse]) -> RenderableType:
    """Memory of the fullest rank in its fullest step, predicted and measured, and the range over all ranks."""
    fullest = fullest_rank(ranks)
    which = f"rank {fullest.rank}, the fullest of {len(ranks)}" if len(ranks) > 1 else f"rank {fullest.rank}"
    rows = table("memory", ">predicted", ">measured", ">ratio", title=f"\n{which}, in its fullest step")
    if len(ranks) > 1:
        rows.add_column("all ranks", justify="right")
    of_ranks = [[*memory_uses(rank)] for rank in ranks]
    for part, *of_all in zip(memory_uses(fullest), *of_ranks, strict=True):
        ratio = f"{part.measured / part.predicted:.2f}" if part.predicted else ""
        expected = "" if part.predicted is None else byte_size(part.predicted)
        measured = [other.measured for other in of_all]
        range_text = [f"{byte_size(min(measured))} – {byte_size(max(measured))}"] if len(ranks) > 1 else []
        rows.add_row(part.name, expected, byte_size(part.measured), ratio, *range_text)
    return rows


def price_source_note(result: ComparedRun) -> Iterator[RenderableType]:
    """A note on the source of predictions where nothing was measured on this machine."""
    prices = result.plan.uses.prices
    if result.predicted_step_seconds is None:
        yield Text("the plan has no prices (uses.prices): nothing is predicted", style="dim")
    elif not result.plan.prediction.measured_share and "measured" not in {c.source for c in prices.modules.values()}:
        note = f"predicted from shipped rates of `{prices.profile}`; planner profile MODEL measures this machine"
        if "layouts" in result.plan.made.decided:
            note = f"predicted from rates of `{prices.profile}`, as every static layout: nothing was measured here"
        yield Text(note, style="dim")


def parity_text(errors: "ParityErrors", bound: "ParityTolerance") -> tuple[str, bool]:
    """A line on the comparison with one process, and whether they agree."""
    from planner.runtime import parity_errors_text, within_tolerance

    same = within_tolerance(errors, bound)
    agrees = "same as" if bound.gradient is not None else "same loss, gradients not held to any bound, as"
    return f"{agrees if same else 'differs from'} one process: {parity_errors_text(errors)}", same


def features_line(result: ComparedRun) -> Text:
    """How many outputs of frozen encoders were read in place of computed, and how many files were damaged."""
    read, computed, damaged = (sum(counts) for counts in zip(*result.features, strict=True))
    broken = f"; {plural(damaged, 'damaged file')} noticed" if damaged else ""
    return Text(f"features of frozen encoders: {read} items read, {computed} computed{broken}")


def planning_line(result: ComparedRun) -> Text:
    """Planning time hidden behind training, and the exposed rest that training waited for."""
    steps = result.plannings
    hidden, exposed = sum(step.hidden_s for step in steps), sum(step.exposed_s for step in steps)
    waited = sum(step.exposed_s > 0 for step in steps)
    return Text(
        f"planning: hidden {duration(hidden)}, exposed {duration(exposed) if exposed else '0'} measured; "
        f"training waited for {waited or 'none'} of {len(steps)} steps planned meanwhile"
    )


def trace_line(trace: Path | None, steps: int, ranks: tuple[int, int] | None = None) -> Iterator[RenderableType]:
    """Where the trace was written, and which part; `ranks`: how many are in it, and of how many."""
    if trace is None:
        return
    parts_written = []
    if steps > 1:
        parts_written.append(
            f"{min(steps, TRACED_STEPS)} of {steps} steps" if steps > TRACED_STEPS else f"{steps} steps"
        )
    if ranks and ranks[0] < ranks[1]:
        parts_written.append(f"{ranks[0]} of {ranks[1]} ranks: those of --trace-ranks, else one of each kind")
    of = f" ({'; '.join(parts_written)})" if parts_written else ""
    yield Text(f"\ntrace written to {trace}{of}: open it at ui.perfetto.dev", style="dim")
