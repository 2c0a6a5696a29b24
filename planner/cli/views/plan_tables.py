"""What verbs print of a plan: a headline, tables and lines, and alternatives. Every number says whether it is measured,
simulated or published.
"""

from collections.abc import Iterator, Sequence
from math import exp, prod
from pathlib import Path

from rich.console import Group as Stack
from rich.console import RenderableType
from rich.text import Text

from planner.check import Finding, verdict
from planner.cli.views.beside_plan import alternatives_table, beside_texts
from planner.cli.views.embedding_tables import table_rows
from planner.cli.views.expert_texts import expert_texts
from planner.cli.views.loader_tables import loader_bound_line, loader_texts
from planner.cli.views.plain_table import table
from planner.costs import find_objective, usd_per_hour
from planner.errors import InputError
from planner.plan.descriptions import (
    all_items_text,
    filled_gaps_text,
    module_layout_text,
    modules_text,
    unused_ranks_text,
)
from planner.plan.pack_fill import pack_fill, pack_text
from planner.plan.plan_file import Outcome, Plan
from planner.scoring import (
    BESIDE,
    SPACE,
    Score,
    allowed_bytes_on,
    bounded_value,
    bounds_same_work,
    exceeds_memory,
    expert_answers,
    interval_spread,
    nearest_run,
    nearest_text,
    objective_value,
    shares_text,
    throughput,
)
from planner.specs.hardware.cluster import device_of_rank, rank_kinds
from planner.strategies import SolvedJob
from planner.targets import TARGETS
from planner.units import GIB, MIB, duration, percent, plural

MILLION = 1e6  # tokens
STYLES = {
    "regression": "bold red",
    "illegal": "bold red",
    "gain": "green",
    "drift": "yellow",
    "stale_inputs": "yellow",
    "added": "cyan",
    "removed": "cyan",
}


def solve_lines(result: SolvedJob, path: Path, further: str = "") -> RenderableType:
    """The answer about a plan that was written to a path; `further`: what else to do than to show it."""
    plan = result.plan
    micro_batches = sum(len(step.micro_batches) for step in plan.steps)
    steps = f"{plural(len(plan.steps), 'step')}, " if len(plan.steps) > 1 else ""
    return Stack(
        Text.assemble(
            (plan.name, "bold"), f"  {steps}{plural(micro_batches, 'micro-batch')} on {plural(plan.size, 'rank')}"
        ),
        *map(Text, result.told),
        *headline(plan),
        *plan_table_lines(plan),
        Text(f"\nsolved in {duration(result.seconds)} ({plan.outcome.effort}); written to {path}", style="dim"),
        Text(f"next: planner show {path}{export_text(plan, path)}{further}", style="dim"),
    )


def export_text(plan: Plan, path: Path) -> str:
    """How to launch a plan of one module with its own software, where that is a target of exports."""
    names = [name for name, each in TARGETS.items() if each.software == plan.uses.software.name]
    return f"; planner export {path} --to {names[0]} -o launch.sh" if names and len(plan.layouts) == 1 else ""


def headline(plan: Plan) -> Iterator[Text]:
    """Lines that lead a screen about a plan: the step with its interval, what it gives, and the proof."""
    steps, predicted = len(plan.steps), plan.prediction
    seconds = predicted.step_seconds / steps
    spread = interval_spread(plan, predicted.spread)
    low, high = (duration(seconds * exp(side * spread)) for side in (-1, 1))
    if not fits_devices(plan):
        yield Text("DOES NOT FIT in the memory of its devices", style="bold red")
    every = f" each, {plural(steps, 'step')} in {duration(predicted.step_seconds)}," if steps > 1 else ""
    yield Text.assemble("step ", (duration(seconds), "bold"), f"{every} simulated, {low} to {high} (80 % interval)")
    yield Text(", ".join(gains(plan, seconds)))
    yield proof_line(plan.outcome)
    yield from loader_bound_line(plan)
    if len(plan.layouts) > 1:
        yield Text(modules_text(plan))


def gains(plan: Plan, seconds: float) -> Iterator[str]:
    """Tokens, MFU and dollars of a mean step of so many seconds, and the chance of running out of memory."""
    given = throughput(plan, seconds)
    if given.tokens_per_second:
        yield f"{given.tokens_per_second:,.0f} tokens/s"
        yield f"MFU {percent(given.mfu)}"
        try:
            per_dollar = objective_value(
                plan, plan.prediction.step_seconds, range(len(plan.steps)), "tokens_per_dollar"
            )
            hourly = usd_per_hour(plan.uses.cluster, plan.uses.devices) / plan.size
            yield f"${MILLION / per_dollar:.3g} per million tokens at ${hourly:.3g} per GPU-hour"
        except InputError:
            pass  # nobody said what an hour of these ranks costs
    if plan.uses.limits.tokens_per_rank is None:
        yield f"{percent(plan.prediction.oom_chance)} chance of running out of memory"


def fits_devices(plan: Plan) -> bool:
    """Whether the fullest rank stays within what its device allows; a job's own limit in tokens replaces that."""
    kind = device_of_rank(plan.uses.cluster, plan.prediction.fullest_rank)
    over = exceeds_memory(plan.prediction.peak_memory_gib * GIB, allowed_bytes_on(plan, kind))
    return plan.uses.limits.tokens_per_rank is not None or not over


def proof_line(outcome: Outcome) -> Text:
    """How far a plan, or the quickest layout found beside it, is from its bound: `at most 0.2 % above the best possible
    (bound 5.20 s, by coupled)`; where the bound leaves layouts out, `above any megatron layout without …`.
    """
    of_order, goal = bounds_same_work(outcome.bound_by), find_objective(outcome.objective)
    over = "" if of_order else outcome.bound_over
    optimal = f"none is quicker of {over}" if over else "proven optimal"
    optimal = "no other order of the same work is shorter" if of_order else optimal
    status = {"optimal": optimal, "by_hand": "written by hand"}.get(outcome.status, "")
    best = over.replace("all ", "any ", 1).replace("layouts", "layout", 1) or "the best possible"
    best = "the best order of the same work" if of_order else best
    distance = (
        f"{best} gives at most {percent(outcome.gap)} more"
        if goal.larger_is_better
        else f"at most {percent(outcome.gap)} above {best}"
    )
    of = "" if bounded_value(outcome) == outcome.value else "the quickest found is "
    stated = "" if goal.unit == "s" else f"{goal.formatted(outcome.value)}, "
    by = "" if outcome.bound_by == SPACE else f", by {outcome.bound_by}"
    return Text.assemble(f"{stated}{status or of + distance} ", (f"(bound {goal.formatted(outcome.bound)}{by})", "dim"))


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
        rows.add_row("measured", f"nearest run: {nearest_text(nearest)}")
    for note in extrapolation_notes(plan):
        rows.add_row("", note)
    for labelled in (*table_rows(plan), *loader_texts(plan), *layout_lines(plan)):
        rows.add_row(*labelled)
    if plan.then:
        count = "" if plan.then.batches is None else f"{plan.then.batches} "
        rows.add_row("then", f"{count}further batches from {plan.then.folder}, each planned while earlier ones train")
    yield Text()
    yield rows
    yield from alternatives_table(plan)


def layout_lines(plan: Plan) -> Iterator[tuple[str, RenderableType]]:
    """What is computed and in which layouts, those beside the plan's, and what is left out, each with its label."""
    if len(plan.layouts) > 1:
        yield "works on", all_items_text(plan)
    packed = pack_fill(plan)
    if packed:
        yield "packed in", pack_text(packed)
    yield from (("layout", f"{name}: {module_layout_text(plan, name)}") for name in plan.layouts)
    if filled := filled_gaps_text(plan):
        yield "in gaps", filled
    if shared := shares_text(plan):
        yield "shares", shared
    yield from ((name, text) for name in BESIDE for text in beside_texts(plan, name))
    yield from (("experts", text) for text in expert_texts(plan))
    yield from absent_texts(plan)


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
    """The share of the time that is priced by measurements, if any, and the sources of all prices."""
    prices = plan.uses.prices
    sources = sorted({costs.source for costs in prices.modules.values()} | {r.source for r in prices.rates.values()})
    share = plan.prediction.measured_share
    measured = f"{percent(share)} measured" if share else "nothing measured"
    text = f"{measured}; prices of modules: {', '.join(sources)} (profile {plan.uses.prices.profile})"
    loads = sorted({experts.load.source for experts in expert_answers(plan) if experts.ep > 1})
    return f"{text}; load of experts: {', '.join(loads)}" if loads else text


def extrapolation_notes(plan: Plan) -> Iterator[str]:
    """Notes on collectives that are wider than any measured one."""
    prices, widest = plan.uses.prices, widest_collective(plan)
    most = max((point.ranks for costs in prices.collectives.values() for point in costs.points), default=widest)
    if widest > most:
        yield f"collectives were measured over {most} ranks, the plan has groups of {widest}: extrapolated"


def widest_collective(plan: Plan) -> int:
    """Ranks of the largest collective: over a dimension of a layout, or over a group of sequences."""
    dims = [max(layout.tp, layout.cp, layout.dp, layout.replica) for layout in plan.layouts.values()]
    return max([*dims, *(prod(group.split.values()) for group in plan.groups.values())])


def simulation_table(plan: Plan, scores: Sequence[Score]) -> RenderableType:
    """Seconds, shares of the time, memory and tasks of each simulated step, as a table."""
    rows = table("step", ">seconds", ">compute", ">exposed comm", ">idle", ">peak", ">tasks", title="simulated")
    for number, score in enumerate(scores):
        parts = score.breakdown
        shares = (parts.compute, parts.exposed_comm, parts.idle)
        rows.add_row(
            str(number),
            f"{score.step_seconds:.4f}",
            *(percent(part / (score.step_seconds or 1)) for part in shares),
            gib_text(max(score.memory.peaks)),
            str(len(score.timeline.events)),
        )
    return rows


def finding_lines(listed: Sequence[Finding]) -> RenderableType:
    """The verdict, then a line and a message for each finding."""
    lines = [Text(verdict(listed), style="bold")]
    for finding in listed:
        category = (f"{finding.category.replace('_', ' '):<14}", STYLES.get(finding.category, ""))
        change = f"{finding_value(finding.old)} → {finding_value(finding.new)}".strip(" →")
        lines.append(Text.assemble("\n", category, (finding.where, "bold"), f"  {change}"))
        lines.append(Text(f"              {finding.message}", style="dim"))
    return Stack(*lines)


def written_lines(paths: Sequence[Path]) -> RenderableType:
    """The files of plans that are new or changed."""
    return Text("\n".join(f"written to {path}" for path in paths) or "nothing changed", no_wrap=True)


def finding_value(value: float | str | None) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
