"""What `why`, `why-not` and `solve --static` print, and their JSON answers. All seconds are simulated."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from planner.cli.views.joint_tables import doubt_text, joint_item_lines, joint_why_lines, joint_why_not_lines
from planner.cli.views.plain_table import table
from planner.cli.views.plan_tables import gib_text
from planner.units import GIB, duration, percent
from planner.why import (
    GroupLoad,
    JointWhyNot,
    JointWhyPlan,
    MixComparison,
    StaticComparison,
    StepFacts,
    WhyAnswer,
    WhyGroup,
    WhyItem,
    WhyJointItem,
    WhyNot,
    WhyPlan,
)

Answer = WhyAnswer | WhyNot | JointWhyNot | StaticComparison
NOT_SOLVED = "not solved"
CLOSE = 1e-6  # share of the step: a smaller difference is none


def answer_lines(answer: Answer) -> Iterator[RenderableType]:
    """Lines and tables of any answer."""
    if isinstance(answer, WhyNot):
        return why_not_lines(answer)
    if isinstance(answer, JointWhyPlan):
        return joint_why_lines(answer)
    if isinstance(answer, JointWhyNot):
        return joint_why_not_lines(answer)
    if isinstance(answer, WhyJointItem):
        return joint_item_lines(answer)
    if isinstance(answer, WhyItem):
        return why_item_lines(answer)
    if isinstance(answer, WhyGroup):
        return why_group_lines(answer)
    if isinstance(answer, WhyPlan):
        return why_plan_lines(answer)
    return static_lines(answer)


# ---------------------------------------------------------------------------------------------------------- why-not


def why_not_lines(answer: WhyNot) -> Iterator[RenderableType]:
    """The cost of a change, its reasons, and both steps."""
    asked = ", ".join(answer.changes)
    if answer.infeasible:
        yield Text.assemble((asked, "bold"), " is not possible: ", answer.infeasible.message)
        if answer.infeasible.where:
            yield Text(f"  binding constraint: {answer.infeasible.where.removesuffix(' (what binds)')}")
        if answer.infeasible.fix:
            yield Text(f"  feasible with: {answer.infeasible.fix}")
    elif answer.after:
        yield cost_line(answer, asked)
        reasons = table("", "")
        for number, clause in enumerate(answer.because):
            reasons.add_row("" if number else "  because", clause.text)
        yield reasons
        yield Text()
        yield facts_table(answer.before, answer.after)
        layouts = table("", "")
        for name, text in answer.after.layouts.items():
            layouts.add_row("changed", f"{name}: {text}")
        yield layouts
    if answer.follows:
        yield Text(f"this also requires {', '.join(answer.follows)}", style="dim")
    yield from resolve_warning(answer.again, answer.before)


def cost_line(answer: WhyNot, asked: str) -> Text:
    seconds, share = answer.seconds or 0.0, answer.share or 0.0
    after = answer.after.value if answer.after else 0.0
    line, both = Text.assemble((asked, "bold")), steps(answer.before.value, after)
    if abs(share) < CLOSE:
        return line.append(f" changes nothing: the step takes {duration(after)} either way, simulated")
    if seconds > 0:
        return line.append(f" adds {duration(seconds)}, {percent(share)}: {both}")
    saved, doubt = f"saves {duration(-seconds)}, {percent(-share)}: {both}", doubt_text(answer)
    if doubt:
        return line.append(f" {saved}{doubt}")
    return line.append(f" is better than the plan: it {saved}", style="green")


def steps(before: float, after: float) -> str:
    return f"{duration(before)} → {duration(after)} a step, simulated"


def resolve_warning(again: float | None, before: StepFacts) -> Iterator[RenderableType]:
    """A warning where the solver, given the plan's own problem again, reaches another step time."""
    if again is not None and abs(again - before.value) > CLOSE * before.value:
        yield Text(
            f"the unchanged problem, solved again, takes {duration(again)}: the plan takes {duration(before.value)}",
            style="yellow",
        )


def facts_table(before: StepFacts, after: StepFacts) -> RenderableType:
    rows = table("", ">plan", ">changed")
    for (name, old), (_, new) in zip(fact_lines(before), fact_lines(after), strict=True):
        rows.add_row(name, old, new)
    return rows


def fact_lines(facts: StepFacts) -> Iterator[tuple[str, str]]:
    """Where the mean rank's time goes, and the counts that explain it."""
    yield "step", duration(facts.value)
    yield f"bound ({facts.bound_by})", duration(facts.bound)
    yield "compute", duration(facts.compute)
    yield "exchanges across nodes", duration(facts.exchange_across)
    yield "exchanges inside nodes", duration(facts.exchange_within)
    yield "gathers, reductions, transfers", duration(facts.other_comm)
    yield "idle", duration(facts.idle)
    yield "micro-batches", micro_batch_count_text(facts)
    yield "groups", f"⟨{facts.groups}⟩"
    yield "token capacity in use", capacity_text(facts)
    yield "memory of the fullest rank", gib_text(facts.peak_memory_gib * GIB)


def capacity_text(facts: StepFacts) -> str:
    """The share of the tokens that groups may hold which they hold; of packs, of what packs may hold."""
    if facts.packs:
        return percent(facts.packs.modules[0].fill)
    return percent(facts.held / facts.room) if facts.room else "–"


def micro_batch_count_text(facts: StepFacts) -> str:
    """Number of micro-batches; per rank where ranks synchronise once a step."""
    if facts.sync == "micro_batch":
        return str(facts.micro_batches)
    fewest, most = facts.fewest_of_rank, facts.most_of_rank
    return f"{fewest} a rank" if fewest == most else f"{fewest} to {most} a rank"


# -------------------------------------------------------------------------------------------------------------- why


def why_plan_lines(answer: WhyPlan) -> Iterator[RenderableType]:
    """Where the time goes, and what would shorten the step."""
    facts = answer.facts
    yield Text.assemble((answer.plan, "bold"), f"  step {answer.step}, mean over ranks, simulated")
    parts = table("", "")
    for line in fact_lines(facts):
        parts.add_row(*line)
    if answer.nearest:
        parts.add_row("nearest run", answer.nearest)
    yield parts
    yield Text()
    rows = table("with", ">step", ">saves", ">share")
    for gain in answer.sensitivities:
        if gain.seconds is None or gain.saved is None or gain.share is None:
            rows.add_row(gain.what, gain.because, "", "")
        else:
            rows.add_row(gain.what, duration(gain.seconds), duration(gain.saved), percent(gain.share))
    yield rows
    if answer.kept:
        yield Text(f"its decisions stay, since no strategy makes them: {answer.kept}", style="dim")
    yield from resolve_warning(answer.again, facts)


def why_item_lines(answer: WhyItem) -> Iterator[RenderableType]:
    """Where the item is, and each degree that it could have instead."""
    load = answer.load
    yield Text.assemble(
        (f"item {answer.item}", "bold"),
        f"  {answer.tokens:,} tokens, in group {load.group} ⟨{load.degree}⟩ of micro-batch {load.micro_batch}",
    )
    yield Text(f"{load_text(load)}\n")
    several = len({choice.kind for choice in answer.choices}) > 1
    numbers = (">alone", ">tokens per rank", ">capacity", "fits", "nodes", ">step", ">difference")
    rows = table("degree", *(["ranks"] if several else []), *numbers)
    rows.columns[1].no_wrap = several  # a kind's name is not broken
    for choice in answer.choices:
        step, difference = choice.because or (NOT_SOLVED if choice.fits else "too long"), ""
        if choice.step_seconds is not None:
            step = duration(choice.step_seconds)
            difference = "chosen" if choice.chosen else f"{signed(choice.step_seconds - answer.value)}"
        rows.add_row(
            f"⟨{choice.degree}⟩",
            *([choice.kind] if several else []),
            duration(choice.seconds),
            f"{choice.tokens_per_rank:,.0f}",
            f"{choice.room_per_rank:,}",
            "yes" if choice.fits else "no",
            "several" if choice.crosses_nodes else "one",
            step,
            difference,
        )
    yield rows
    if any(choice.fits and choice.step_seconds is None and not choice.because for choice in answer.choices):
        yield Text(f"{NOT_SOLVED}: only the next smaller and the next larger degree that fit are tried", style="dim")


def signed(seconds: float) -> str:
    return f"{'+' if seconds >= 0 else '−'}{duration(abs(seconds))}"


def load_text(load: GroupLoad) -> str:
    """A sentence: `the group takes 1.2 s and waits 0.3 s for g0-31; it holds 6,000 of 12,000 tokens`."""
    room = f" of {load.room:,} tokens ({percent(load.held / load.room)})" if load.room else " tokens"
    offloaded = f", and {load.tokens - load.held:,} more in host memory" if load.held < load.tokens else ""
    return f"the group takes {slack_text(load)}; it holds {load.held:,}{room}{offloaded}"


def slack_text(load: GroupLoad) -> str:
    """Slack of a group in its micro-batch, or over the step where ranks synchronise once a step."""
    if load.rank_seconds is None:
        slack = f"waits {duration(load.slack)} for {load.waits_for}" if load.waits_for else "is critical"
        return f"{duration(load.seconds)} and {slack}"
    critical = f"has {duration(load.slack)} of slack: {load.waits_for} is critical" if load.waits_for else "is critical"
    works = f"{duration(load.seconds)} of the {duration(load.rank_seconds)} that rank {load.rank} works"
    return f"{works} and {critical}"


def why_group_lines(answer: WhyGroup) -> Iterator[RenderableType]:
    """Load of a group in every micro-batch, and its items."""
    first = answer.loads[0]
    where = "several nodes" if first.crosses_nodes else "one node"
    yield Text.assemble((answer.group, "bold"), f"  ⟨{first.degree}⟩ on ranks {first.ranks}, {where}")
    for load in answer.loads:
        of = f"{load.module}, " if len(answer.sizes) > 1 else ""
        yield Text(f"\n{of}micro-batch {load.micro_batch}: {load_text(load)}")
        rows = table("item", ">tokens")
        sizes = answer.sizes[load.module]
        for item in sorted(load.items, key=lambda item: (-sizes[item], item)):
            rows.add_row(str(item), f"{sizes[item]:,}")
        yield rows


# ----------------------------------------------------------------------------------------------------- solve --static


def static_lines(answer: StaticComparison) -> Iterator[RenderableType]:
    """The best single degree for all batches, compared with planning each batch."""
    count, total = len(answer.static_seconds), sum(answer.static_seconds)
    yield Text.assemble(
        (answer.name, "bold"), f"  {count} batches, simulated; the best single degree is ⟨{answer.degree}⟩"
    )
    rows = table("", ">seconds", ">a batch", "")
    for tried in answer.degrees:
        seconds = (duration(tried.seconds), duration(tried.seconds / count)) if tried.seconds is not None else ("", "")
        rows.add_row(f"static ⟨{tried.degree}⟩", *seconds, tried.because)
    planned = sum(answer.per_batch_seconds)
    rows.add_row("per-batch plans", duration(planned), duration(planned / count), "")
    rows.add_row("bound of per-batch plans", duration(sum(answer.per_batch_bounds)), "", "")
    yield rows
    yield Text(
        f"\nper-batch planning saves {percent(answer.gain_total)} of {duration(total)}; of a batch "
        f"{percent(answer.gain_median)} (median), {percent(answer.gain_p10)} to {percent(answer.gain_p90)} (p10 to p90)"
    )
    if answer.deferral:
        yield Text(
            f"static with deferral: {len(answer.deferral.items)} items ({answer.deferral.tokens:,} tokens) wait one "
            f"batch, which saves {percent(answer.deferral.saved)}; a greedy model, without the effect on convergence",
        )


def static_path_line(path: Path) -> RenderableType:
    return Text(f"static plan written to {path}", style="dim")


def why_answer(answer: Answer | MixComparison) -> dict[str, Any]:
    """The JSON answer."""
    return {name: getattr(answer, name) for name in answer.__struct_fields__}
