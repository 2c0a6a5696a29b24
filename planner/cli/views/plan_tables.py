"""Tables and lines that verbs print. Every number says whether it is measured, simulated or published."""

from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group as Stack
from rich.console import RenderableType
from rich.text import Text

from planner.check import Finding, verdict
from planner.cli.views.alternatives_table import alternatives_table
from planner.cli.views.expert_texts import expert_texts
from planner.cli.views.plain_table import table
from planner.cli.views.plan_headline import headline
from planner.ledger import ComparedRun, PeakMemoryUse, fullest_rank, memory_uses
from planner.plan.descriptions import all_items_text, module_layout_text, unused_ranks_text
from planner.plan.pack_fill import pack_fill, pack_text
from planner.plan.plan_file import Plan
from planner.scoring import Score, allowed_bytes_on, expert_answers, nearest_run, nearest_text
from planner.specs.hardware.cluster import device_of_rank, rank_kinds
from planner.strategies import SolvedJob
from planner.units import GIB, MIB, byte_size, duration, percent, plural
from planner.workflows.tracing import TRACED_STEPS

if TYPE_CHECKING:
    from planner.runtime import ParityErrors, ParityTolerance, RunOptions

STYLES = {
    "regression": "bold red",
    "illegal": "bold red",
    "gain": "green",
    "drift": "yellow",
    "stale_inputs": "yellow",
    "added": "cyan",
    "removed": "cyan",
}
STOP_REASONS = {
    "time": "the time limit was reached",
    "interrupt": "interrupted",
    "terminate": "SIGTERM asked for it",
    "hangup": "its terminal was closed (SIGHUP)",
}


def plan_table_lines(plan: Plan) -> Iterator[RenderableType]:
    """Where the time goes, memory, sources of the numbers, layouts; then alternatives."""
    p = plan.prediction
    total = p.step_seconds or 1.0
    rows = table("", "")
    rows.add_row(
        "of which",
        f"compute {percent(p.breakdown.compute / total)}, exposed communication "
        f"{percent(p.breakdown.exposed_comm / total)}, idle {percent(p.breakdown.idle / total)}",
    )
    rows.add_row("memory", memory_text(plan))
    rows.add_row("rests on", price_sources(plan))
    nearest = nearest_run(plan)
    if nearest:
        rows.add_row("nearest", nearest_text(nearest))
    for note in extrapolation_notes(plan):
        rows.add_row("", note)
    if len(plan.layouts) > 1:
        rows.add_row("works on", all_items_text(plan))
    packed = pack_fill(plan)
    if packed:
        rows.add_row("packed in", pack_text(packed))
    for name in plan.layouts:
        rows.add_row("layout", f"{name}: {module_layout_text(plan, name)}")
    for text in expert_texts(plan):
        rows.add_row("experts", text)
    for absent in absent_texts(plan):
        rows.add_row(*absent)
    if plan.then:
        count = "" if plan.then.batches is None else f"{plan.then.batches} "
        rows.add_row("then", f"{count}further batches from {plan.then.folder}, each planned while earlier ones train")
    yield Text()
    yield rows
    yield from alternatives_table(plan)


def absent_texts(plan: Plan) -> Iterator[tuple[str, str]]:
    """What of the ranks and of the batches is not in the plan, each with its label."""
    if unused := unused_ranks_text(plan):
        yield "unused", unused
    if plan.uses.dropped:
        too_long = plural(len(plan.uses.dropped), "sample")
        yield "dropped", f"{too_long} longer or larger than the job allows (uses.dropped names them)"
    for name, items in plan.uses.left_out.items():
        why = "whose readers were dropped, or had no room (uses.left_out names them)"
        yield "left out", f"{plural(len(items), 'item')} of {name}, {why}"


def memory_warning(plan: Plan, kind: str) -> str:
    """A warning where the job's limit in tokens lets more through than the memory model allows; else empty."""
    cap = allowed_bytes_on(plan, kind)
    more = plan.prediction.peak_memory_gib * GIB > cap
    return f"; by the memory model that is more than {kind} allows ({gib_text(cap)})" if more else ""


def memory_text(plan: Plan) -> str:
    """`67.77 GiB on the fullest rank, 73.35 GiB allowed, …`; names the rank where there are several kinds."""
    prediction, limit = plan.prediction, plan.uses.limits.tokens_per_rank
    kind = device_of_rank(plan.uses.cluster, prediction.fullest_rank)
    rank = (
        f"rank {prediction.fullest_rank}, the fullest ({kind})"
        if len(rank_kinds(plan.uses.cluster)) > 1
        else "the fullest rank"
    )
    used = f"{gib_text(prediction.peak_memory_gib * GIB)} on {rank}"
    if limit:
        return f"{used}, {limit:,} tokens a rank, the job's limit{memory_warning(plan, kind)}"
    return f"{used}, {gib_text(allowed_bytes_on(plan, kind))} allowed"


def gib_text(count_bytes: float) -> str:
    """Memory of a rank: `67.77 GiB`; below a tenth of a GiB, `20.5 MiB`."""
    return f"{count_bytes / GIB:.2f} GiB" if abs(count_bytes) >= GIB / 10 else f"{count_bytes / MIB:.1f} MiB"


def price_sources(plan: Plan) -> str:
    """The share of the time that is priced by measurements, and the sources of all prices."""
    prices = plan.uses.prices
    sources = sorted({costs.source for costs in prices.modules.values()} | {r.source for r in prices.rates.values()})
    share = plan.prediction.measured_share
    text = f"{percent(share)} measured; prices of modules: {', '.join(sources)} (profile {plan.uses.prices.profile})"
    loads = sorted({found.load.source for found in expert_answers(plan) if found.ep > 1})
    return f"{text}; load of experts: {', '.join(loads)}" if loads else text


def extrapolation_notes(plan: Plan) -> Iterator[str]:
    """Notes on collectives that are wider than any measured one."""
    prices, widest = plan.uses.prices, widest_collective(plan)
    most = max((point.ranks for each in prices.collectives.values() for point in each.points), default=widest)
    if widest > most:
        yield f"collectives were measured over {most} ranks, the plan has groups of {widest}: extrapolated"


def widest_collective(plan: Plan) -> int:
    """Ranks of the largest collective: over a dimension of a layout, or over a group of sequences."""
    dims = [max(layout.tp, layout.cp, layout.dp, layout.replica) for layout in plan.layouts.values()]
    return max([*dims, *(prod(group.split.values()) for group in plan.groups.values())])


def solve_lines(result: SolvedJob, path: Path, further: str = "") -> RenderableType:
    """The answer about a plan that was written to a path; `further`: what else to do than to show it."""
    plan = result.plan
    micro_batches = sum(len(step.micro_batches) for step in plan.steps)
    steps = f"{plural(len(plan.steps), 'step')}, " if len(plan.steps) > 1 else ""
    return Stack(
        Text.assemble(
            (plan.name, "bold"), f"  {steps}{plural(micro_batches, 'micro-batch')} on {plural(plan.size, 'rank')}"
        ),
        *headline(plan),
        *plan_table_lines(plan),
        Text(f"\nsolved in {duration(result.seconds)} ({plan.outcome.effort}); written to {path}", style="dim"),
        Text(f"next: planner show {path}{further}", style="dim"),
    )


def simulation_table(plan: Plan, scores: Sequence[Score]) -> RenderableType:
    """A table with a row for each step."""
    rows = table("step", ">seconds", ">compute", ">exposed comm", ">idle", ">peak", ">tasks", title="simulated")
    for number, score in enumerate(scores):
        parts = score.timeline.breakdown()
        shares = (parts.compute, parts.exposed_comm, parts.idle)
        rows.add_row(
            str(number),
            f"{score.step_seconds:.4f}",
            *(percent(part / (score.step_seconds or 1)) for part in shares),
            gib_text(max(score.memory.peaks)),
            str(sum(score.timeline.event_counts)),
        )
    return rows


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


def finding_lines(listed: Sequence[Finding]) -> RenderableType:
    """The verdict, then a line and a message for each finding."""
    lines = [Text(verdict(listed), style="bold")]
    for finding in listed:
        category = (f"{finding.category.replace('_', ' '):<14}", STYLES.get(finding.category, ""))
        change = f"{finding_value(finding.old)} → {finding_value(finding.new)}".strip(" →")
        lines.append(Text.assemble("\n", category, (finding.where, "bold"), f"  {change}"))
        lines.append(Text(f"              {finding.message}", style="dim"))
    return Stack(*lines)


def finding_value(value: float | str | None) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


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
    yield from parity_line(result)
    yield from trace_line(trace, len(result.timelines))


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
    each = [[*memory_uses(rank)] for rank in ranks]
    for part, *of_all in zip(memory_uses(fullest), *each, strict=True):
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


def parity_line(result: ComparedRun) -> Iterator[RenderableType]:
    """Whether losses and gradients are those of one process."""
    if result.verified and result.tolerance:
        line, same = parity_text(result.verified, result.tolerance)
        yield Text(line, style="green" if same else "bold red")


def parity_text(found: "ParityErrors", bound: "ParityTolerance") -> tuple[str, bool]:
    """A line on the comparison with one process, and whether they agree."""
    from planner.runtime import parity_errors_text, within_tolerance

    same = within_tolerance(found, bound)
    return f"{'same as' if same else 'differs from'} one process: {parity_errors_text(found)}", same


def features_line(result: ComparedRun) -> Text:
    """How many outputs of frozen encoders were read in place of computed, and how many files were damaged."""
    read, computed, damaged = (sum(each) for each in zip(*result.features, strict=True))
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
