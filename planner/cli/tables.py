"""What verbs answer with, as tables and lines for people. Every number says measured, simulated or published."""

import shlex
from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group as Stack
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from planner.check import Finding, verdict
from planner.costs.objective import objective_called
from planner.deciding import Solved
from planner.ledger import Used
from planner.ledger.memory import holds_most, parts
from planner.pipeline import TRACED_STEPS, Ran
from planner.plan.model import Outcome, Plan
from planner.plan.words import layout_text, way_text, work_text
from planner.specs.catalogue import ModelRow
from planner.specs.cluster import kind_of
from planner.specs.kinds import kinds
from planner.strategies import is_static
from planner.units import GIB, MIB, duration, percent, plural, size
from planner.verify.bounds import same_work
from planner.verify.held import allowed_on
from planner.verify.score import Score
from planner.verify.worth import objective_of

if TYPE_CHECKING:
    from planner.runtime import Bound, Verified

ALLOWED = "chance of running out of memory"
STYLES = {
    "regression": "bold red",
    "illegal": "bold red",
    "gain": "green",
    "drift": "yellow",
    "stale_inputs": "yellow",
    "added": "cyan",
    "removed": "cyan",
}


def table(*columns: str, title: str = "") -> Table:
    """A plain table; columns that begin with `>` are numbers."""
    made = Table(title=title or None, title_justify="left", box=None, pad_edge=False, header_style="dim")
    made.show_header = any(columns)
    for column in columns:
        made.add_column(column.removeprefix(">"), justify="right" if column.startswith(">") else "left")
    return made


def outcome_line(outcome: Outcome, steps: int = 1) -> Text:
    """`step 5.22 s simulated, at most 0.2 % above the best possible (bound 5.20 s, by coupled)`; of several steps
    `6 steps 31.30 s, 5.22 s each, simulated, …`, with the bound of all together.
    """
    of_order, goal = same_work(outcome.bound_by), objective_called(outcome.objective)
    optimal = "no other order of the same work is shorter" if of_order else "proven optimal"
    what = {"optimal": optimal, "by_hand": "written by hand"}.get(outcome.status, "")
    best = "the best order of the same work" if of_order else "the best possible"
    near = (
        f"{best} gives at most {percent(outcome.gap)} more"
        if goal.more
        else f"at most {percent(outcome.gap)} above {best}"
    )
    distance = what or near
    each = f", {goal.said(outcome.value / steps)} each," if steps > 1 and not goal.more else ""
    return Text.assemble(
        "step " if steps == 1 else f"{plural(steps, 'step')} ",
        (goal.said(outcome.value), "bold"),
        f"{each} simulated, {distance} ",
        (f"(bound {goal.said(outcome.bound)}, by {outcome.bound_by})", "dim"),
    )


def prediction_lines(plan: Plan) -> Iterator[RenderableType]:
    """Time with its spread, where it goes, memory against the cap, and what the numbers rest on."""
    p = plan.prediction
    total = p.step_seconds or 1.0
    rows = table("", "")
    all_steps = f" for {plural(len(plan.steps), 'step')}" if len(plan.steps) > 1 else ""
    rows.add_row("time", f"{duration(p.step_seconds)}{all_steps} ± {percent(p.spread)} (80 % interval), simulated")
    rows.add_row(
        "of which",
        f"compute {percent(p.breakdown.compute / total)}, exposed communication "
        f"{percent(p.breakdown.exposed_comm / total)}, idle {percent(p.breakdown.idle / total)}",
    )
    rows.add_row("memory", memory_text(plan))
    rows.add_row("rests on", rests_on(plan))
    for note in rests_notes(plan):
        rows.add_row("", note)
    if len(plan.layouts) > 1:
        rows.add_row("works on", work_text(plan))
    for name, layout in plan.layouts.items():
        rows.add_row("layout", f"{name}: {layout_text(layout)}")
    for other in plan.instead:
        what = objective_of(plan).said(other.value) if other.value is not None else f"impossible: {other.because}"
        how = way_text(other, plan.made.strategy)
        why = f" ({other.because})" if other.because and other.value is not None else ""
        rows.add_row("instead", f"{how}: {what}{why}")
    if plan.uses.dropped:
        rows.add_row("dropped", f"{len(plan.uses.dropped)} rows longer than the job allows (uses.dropped names them)")
    for name, items in plan.uses.left_out.items():
        why = "whose readers were dropped, or had no room (uses.left_out names them)"
        rows.add_row("left out", f"{plural(len(items), 'item')} of {name}, {why}")
    if plan.then:
        count = "" if plan.then.batches is None else f"{plan.then.batches} "
        rows.add_row("then", f"{count}further batches from {plan.then.folder}, each planned while earlier ones train")
    yield Text()
    yield rows


def beyond(plan: Plan, kind: str) -> str:
    """The job's limit in tokens is taken at its word; what the memory model thinks of it is said all the same."""
    cap = allowed_on(plan, kind)
    more = plan.prediction.peak_memory_gib * GIB > cap
    return f"; by the memory model that is more than {kind} allows ({gib_text(cap)})" if more else ""


def memory_text(plan: Plan) -> str:
    """`67.77 GiB on the fullest rank, 73.35 GiB allowed, …`; of several kinds which rank that is."""
    told, limit = plan.prediction, plan.uses.limits.tokens_per_rank
    kind = kind_of(plan.uses.cluster, told.fullest_rank)
    rank = (
        f"rank {told.fullest_rank}, the fullest ({kind})" if len(kinds(plan.uses.cluster)) > 1 else "the fullest rank"
    )
    used = f"{gib_text(told.peak_memory_gib * GIB)} on {rank}"
    if limit:
        return f"{used}, {limit:,} tokens a rank, the job's limit{beyond(plan, kind)}"
    return f"{used}, {gib_text(allowed_on(plan, kind))} allowed, {percent(told.oom_chance)} {ALLOWED}"


def gib_text(count_bytes: float) -> str:
    """A rank's memory: `67.77 GiB`; below a tenth of one, `20.5 MiB`."""
    return f"{count_bytes / GIB:.2f} GiB" if abs(count_bytes) >= GIB / 10 else f"{count_bytes / MIB:.1f} MiB"


def rests_on(plan: Plan) -> str:
    """How much of the time is priced by what was measured here."""
    prices = plan.uses.prices
    sources = sorted({costs.source for costs in prices.modules.values()} | {r.source for r in prices.rates.values()})
    share = plan.prediction.measured_share
    return f"{percent(share)} measured; prices of modules: {', '.join(sources)} (profile {plan.uses.prices.profile})"


def rests_notes(plan: Plan) -> Iterator[str]:
    """What the shares alone would hide: measurements that went unused, and collectives wider than any measured."""
    prices, widest = plan.uses.prices, widest_exchange(plan)
    most = max((point.ranks for each in prices.collectives.values() for point in each.points), default=widest)
    if widest > most:
        yield f"collectives were measured over {most} ranks, the plan has groups of {widest}: extrapolated"


def widest_exchange(plan: Plan) -> int:
    """Ranks of the largest group that one collective joins: of a layout's dimensions, and of groups of sequences."""
    dims = [max(layout.tp, layout.cp, layout.dp, layout.replica) for layout in plan.layouts.values()]
    return max([*dims, *(prod(group.split.values()) for group in plan.groups.values())])


def solved(result: Solved, path: Path) -> RenderableType:
    plan = result.plan
    rows = sum(len(step.micro_batches) for step in plan.steps)
    steps = f"{plural(len(plan.steps), 'step')}, " if len(plan.steps) > 1 else ""
    return Stack(
        Text.assemble((plan.name, "bold"), f"  {steps}{plural(rows, 'micro-batch')} on {plural(plan.size, 'rank')}"),
        outcome_line(plan.outcome, len(plan.steps)),
        *prediction_lines(plan),
        Text(f"\nsolved in {duration(result.seconds)} ({plan.outcome.effort}); written to {path}", style="dim"),
        Text(f"next: planner show {path}", style="dim"),
    )


def simulated(plan: Plan, scores: Sequence[Score]) -> RenderableType:
    """Per step."""
    rows = table("step", ">seconds", ">compute", ">exposed comm", ">idle", ">peak", ">tasks", title="simulated")
    for number, score in enumerate(scores):
        parts = score.timeline.breakdown()
        shares = (parts.compute, parts.exposed_comm, parts.idle)
        rows.add_row(
            str(number),
            f"{score.value:.4f}",
            *(percent(part / (score.value or 1)) for part in shares),
            gib_text(max(score.memory.peaks)),
            str(len(score.tasks)),
        )
    return rows


def traced(trace: Path | None, steps: int, ranks: tuple[int, int] | None = None) -> Iterator[RenderableType]:
    """Where the trace is, and what of it; `ranks`: drawn, of how many."""
    if trace is None:
        return
    said = []
    if steps > 1:
        said.append(f"{min(steps, TRACED_STEPS)} of {steps} steps" if steps > TRACED_STEPS else f"{steps} steps")
    if ranks and ranks[0] < ranks[1]:
        said.append(f"{ranks[0]} of {ranks[1]} ranks: those asked for with --trace-ranks, else one of each kind")
    of = f" ({'; '.join(said)})" if said else ""
    yield Text(f"\ntrace written to {trace}{of}: open it at ui.perfetto.dev", style="dim")


def models(listed: Sequence[ModelRow]) -> RenderableType:
    rows = table("model", "module", "kind", ">parameters", "counted")
    for row in listed:
        rows.add_row(row.model, row.module, row.kind, f"{row.parameters:,}", row.counted)
    return rows


def findings(found: Sequence[Finding]) -> RenderableType:
    """The verdict, then what was found, a line and its words each."""
    lines = [Text(verdict(found), style="bold")]
    for finding in found:
        category = (f"{finding.category.replace('_', ' '):<14}", STYLES.get(finding.category, ""))
        change = f"{value_text(finding.old)} → {value_text(finding.new)}".strip(" →")
        lines.append(Text.assemble("\n", category, (finding.where, "bold"), f"  {change}"))
        lines.append(Text(f"              {finding.message}", style="dim"))
    return Stack(*lines)


def value_text(value: float | str | None) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def ran(result: Ran, trace: Path | None) -> Iterator[RenderableType]:
    """Predicted beside measured by kind of task, the check against one process, and the loss."""
    yield Text(f"a step: predicted beside measured ({result.machine})")
    rows = table("task", ">predicted", ">measured", ">ratio")
    known = result.predicted_step_seconds
    for kind in result.kinds:
        ratio = f"{kind.measured / kind.predicted:.2f}" if kind.predicted else ""
        if kind.predicted or kind.measured:
            rows.add_row(kind.name, "" if known is None else duration(kind.predicted), duration(kind.measured), ratio)
    yield rows
    if result.memory:
        yield memory(result.memory)
    yield Text.assemble(
        "\nstep ",
        (duration(result.step_seconds), "bold"),
        f" measured (median of {len(result.losses)}), {'nothing' if known is None else duration(known)} predicted; ",
        f"loss {result.losses[0]:.4f} → {result.losses[-1]:.4f}",
    )
    yield from guessed(result)
    if result.ended != "steps":
        why = {"time": "its time was over", "interrupt": "interrupted"}[result.ended]
        yield Text(f"ended after {plural(len(result.losses), 'step')}: {why}", style="yellow")
    if result.planned:
        yield planning_line(result)
    yield from verified(result)
    yield from traced(trace, len(result.timelines))


def resumed(result: Ran) -> Iterator[RenderableType]:
    """Where the run began, if it went on with another."""
    if result.before:
        yield Text(f"went on from step {result.before:,}")


def kept(result: Ran, plan: Path, save: Path | None, steps: int | None) -> Iterator[RenderableType]:
    """Where what was trained is, and how it goes on; `steps`: that the run was to have, if it was told."""
    if save is None:
        return
    done, count = result.before + len(result.losses), steps or len(result.plan.steps)
    left = [] if steps is None else ["--steps", str(steps)]
    command = shlex.join(["planner", "run", str(plan), "--resume", str(save), *(left if done < count else [])])
    more = "" if done < count or result.ended != "steps" else " --steps MORE"
    yield Text(f"saved to {save} after {plural(done, 'step')}; to go on:")
    yield Text(f"  {command}{more}", no_wrap=True, overflow="ignore")


def memory(ranks: Sequence[Used]) -> RenderableType:
    """The fullest rank in its fullest step: predicted beside measured, and the range of all ranks."""
    one = holds_most(ranks)
    which = f"rank {one.rank}, the fullest of {len(ranks)}" if len(ranks) > 1 else f"rank {one.rank}"
    rows = table("memory", ">predicted", ">measured", ">ratio", title=f"\n{which}, in its fullest step")
    if len(ranks) > 1:
        rows.add_column("all ranks", justify="right")
    each = [[*parts(rank)] for rank in ranks]
    for part, *of_all in zip(parts(one), *each, strict=True):
        ratio = f"{part.measured / part.predicted:.2f}" if part.predicted else ""
        expected = "" if part.predicted is None else size(part.predicted)
        measured = [other.measured for other in of_all]
        span = [f"{size(min(measured))} – {size(max(measured))}"] if len(ranks) > 1 else []
        rows.add_row(part.name, expected, size(part.measured), ratio, *span)
    return rows


def guessed(result: Ran) -> Iterator[RenderableType]:
    """What predictions rest on where nothing of them was measured here."""
    prices = result.plan.uses.prices
    if result.predicted_step_seconds is None:
        yield Text("the plan has no prices (uses.prices): nothing is predicted", style="dim")
    elif not result.plan.prediction.measured_share and "measured" not in {c.source for c in prices.modules.values()}:
        said = f"predicted from shipped rates of `{prices.profile}`; planner profile MODEL measures this machine"
        if is_static(result.plan.made.strategy):
            said = f"predicted from rates of `{prices.profile}`, as every static layout: nothing was measured here"
        yield Text(said, style="dim")


def verified(result: Ran) -> Iterator[RenderableType]:
    """How far the run was from one process."""
    if result.verified and result.bound:
        said, same = beside_one_process(result.verified, result.bound)
        yield Text(said, style="green" if same else "bold red")


def beside_one_process(found: "Verified", bound: "Bound") -> tuple[str, bool]:
    """Whether training was that of one process, in words too."""
    from planner.runtime import errors, within

    same = within(found, bound)
    return f"{'same as' if same else 'differs from'} one process: {errors(found)}", same


def planning_line(result: Ran) -> Text:
    """How much planning went on beside training, and how much of it was waited for."""
    steps = result.planned
    hidden, exposed = sum(step.hidden_s for step in steps), sum(step.exposed_s for step in steps)
    waited = sum(step.exposed_s > 0 for step in steps)
    return Text(
        f"planning: hidden {duration(hidden)}, exposed {duration(exposed) if exposed else '0'} measured; "
        f"of {len(steps)} steps planned meanwhile {waited or 'none'} waited for"
    )
