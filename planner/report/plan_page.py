"""The page of a plan: head, ranks in time, groups, memory, where time goes, and why."""

from collections.abc import Sequence

from planner.ledger import explain_difference
from planner.plan.descriptions import size_text
from planner.plan.plan_file import Assignment, Plan, assignments
from planner.plan.tasks.expand import expand
from planner.report.comparison import comparison_section
from planner.report.micro_batch_section import groups_table, legend, micro_batch_bands, picture
from planner.report.page import Page, per_step
from planner.report.page_step import PageStep, simulated_step
from planner.report.plan_head import head_numbers, subtitle, summary
from planner.report.sources_section import sources_section
from planner.report.tags import Content, Markup, join, section, table, tag
from planner.report.time_and_memory import memory_by_rank, shares_section, time_by_rank
from planner.report.timeline_columns import TimelineColumns
from planner.report.timeline_section import timeline_section
from planner.report.why_section import why_section
from planner.scoring import Score, allowed_bytes_on
from planner.specs.hardware.cluster import rank_kinds
from planner.units import KIB
from planner.why import WhyPlan

Measured = tuple[int, PageStep]  # number of the plan's step, and the recorded step


def plan_page(
    plan: Plan, scores: Sequence[Score], measured: Sequence[Measured] = (), why: WhyPlan | None = None
) -> Page:
    """The whole page; measured steps are shown beside simulated ones."""
    steps = [simulated_step(plan, number, score) for number, score in enumerate(scores)]
    every = [*steps, *(shown for _, shown in measured)]
    sections = [
        shares_section(steps, f" and of {len(steps)} steps, simulated" if len(steps) > 1 else ", simulated"),
        timeline_section(every),
        groups_section(plan, scores),
        memory(plan, steps, scores),
        section("by-rank", "Where each rank's time goes", per_step([time_by_rank(shown) for shown in every])),
        measured_section(plan, steps, measured) if measured else None,
        why_section(plan, scores, why),
        sources_section(plan, min(score.timeline.measured_share for score in scores)),
    ]
    data = {
        "page": "plan",
        **TimelineColumns(every).data(),
        "caps": [
            round(cap / KIB) for cap in sorted({allowed_bytes_on(plan, kind) for kind in rank_kinds(plan.uses.cluster)})
        ],
        "ranksOf": {name: str(group.ranks) for name, group in plan.groups.items()},
        "measured": [at for at, _ in measured],
    }
    return Page(
        kind="plan",
        title=plan.name,
        subtitle=subtitle(plan),
        figures=head_numbers(plan, scores),
        sections=tuple(each for each in sections if each is not None),
        data=data,
        summary=summary(plan, scores, [shown for _, shown in measured]),
    )


def measured_section(plan: Plan, steps: Sequence[PageStep], measured: Sequence[Measured]) -> Markup:
    """Compare each measured step with its simulation."""
    tasks = {at: expand(plan, at) for at, _ in measured}  # of all groups, not only one of each kind
    explained = [explain_difference(steps[at].timeline, shown.timeline, tasks[at]) for at, shown in measured]
    return comparison_section([(steps[at], shown) for at, shown in measured], explained)


def groups_section(plan: Plan, scores: Sequence[Score]) -> Markup | None:
    """Groups to scale where ranks synchronise in every micro-batch; else as a table."""
    longest = max(score.step_seconds for score in scores)
    drawn: list[Content] = []
    for number, score in enumerate(scores):
        if to_scale(plan, number):
            bands = micro_batch_bands(plan, number, score)
            hint = tag("p", "Hover over a group, or tap it.", class_="note say live", aria_live="polite")
            drawn.append(join(legend(bands), picture(plan.size, bands, longest), hint, groups_table(bands)))
        else:
            drawn.append(group_table(plan, number, score))
    any_drawn = any(to_scale(plan, number) for number in range(len(plan.steps)))
    lead = (
        "Ranks from left to right, time from top to bottom, both to scale. A block is a group of ranks that share its "
        "sequences; the number says how many."
        if any_drawn
        else "Ranks work through their micro-batches independently, and synchronise once a step."
        if all(step.sync == "step" for step in plan.steps)
        else "Ranks of a module that ZeRO-3 shards synchronise in each of its micro-batches."
    )
    return section("groups", "Groups by micro-batch" if any_drawn else "Work by group", per_step(drawn), lead=lead)


def to_scale(plan: Plan, number: int) -> bool:
    """Whether ranks synchronise in every micro-batch, each in one group of the only module."""
    return plan.steps[number].sync == "micro_batch" and len(plan.layouts) == 1


def group_table(plan: Plan, number: int, score: Score) -> Markup:
    """Work of each group as a table, by module, as tokens of different modules do not add up."""
    busy = seconds_by_group(score)
    work: dict[tuple[str, str], list[Assignment]] = {}
    for micro_batch in plan.steps[number].micro_batches:
        for a in assignments(plan, micro_batch):
            work.setdefault((a.module, a.group), []).append(a)
    several = len(plan.layouts) > 1
    rows = []
    for (module, name), placed in work.items():
        items = [item for a in placed for item in a.items]
        sizes = size_text(plan, module, (plan.uses.tokens(module, item) for item in items))
        counts = f"{len(placed):,}", f"{len(items):,}", sizes if several else sizes.split()[0]
        cells = name, str(plan.groups[name].ranks), *counts, f"{busy.get((module, name), 0.0):.4f}"
        rows.append((module, *cells) if several else cells)
    heads = ("group", "ranks", ">micro-batches", ">items", ">of" if several else ">tokens", ">seconds of its tasks")
    return table(("module", *heads) if several else heads, rows, f"Step {number}, simulated")


def seconds_by_group(score: Score) -> dict[tuple[str, str], float]:
    """Seconds of the passes of each module on each group, over all micro-batches."""
    busy: dict[tuple[str, str], float] = {}
    for (module, _, group), seconds in score.timeline.module_seconds().items():
        busy[module, group] = busy.get((module, group), 0.0) + seconds
    return busy


def memory(plan: Plan, steps: Sequence[PageStep], scores: Sequence[Score]) -> Markup:
    of_steps = [memory_by_rank(shown, score) for shown, score in zip(steps, scores, strict=True)]
    curve = tag(
        "canvas",
        "The table above shows the peaks.",
        id="memory",
        role="img",
        aria_label="Memory of the chosen rank over time",
    )
    live = tag(
        "div",
        tag("p", id="memory-of", class_="note", aria_live="polite"),
        tag("div", curve, class_="stage"),
        class_="live",
    )
    lead = "What each rank holds at its peak. Choose a rank here or above to see it over time."
    return section("memory-section", "Memory by rank", per_step(of_steps), live, lead=lead)
