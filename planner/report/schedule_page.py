"""The page of a schedule: nodes from top to bottom, time from left to right, a colour for each job."""

from collections.abc import Iterator, Sequence

from planner.policies import Schedule
from planner.report.page import Figure, Page
from planner.report.tags import Markup, bar, details, drawing, lane_name, section, table
from planner.simulate import Segment
from planner.specs.base import ranges_text
from planner.units import percent, plural

WIDTH, LEFT, GPU, GAP = 1000.0, 110.0, 6.0, 4.0  # in units of the picture
GOLDEN = 137.508  # degrees: hues of jobs that follow each other are far apart
MOST = 20_000  # bars of one picture


def schedule_page(schedule: Schedule, title: str) -> Page:
    outcome, fleet = schedule.outcome, schedule.fleet
    bars = schedule.history.segments[:MOST]
    lead = (
        f"Each bar is a job on a GPU; point at it for its name. {plural(len(fleet.nodes), 'node')}, {fleet.size} GPUs."
    )
    if len(bars) < len(schedule.history.segments):
        lead += f" The first {MOST:,} of {len(schedule.history.segments):,} are drawn."
    ends = sorted(schedule.jobs, key=lambda job: schedule.history.ends[job.id])
    lines = [
        (job.id, str(job.gpus), *(f"{at:,.0f}" for at in (job.submit_s, schedule.history.ends[job.id])))
        for job in ends[:MOST]
    ]
    return Page(
        kind="schedule",
        title=title,
        subtitle=f"{plural(len(schedule.jobs), 'job')} by {schedule.choice.order}, simulated",
        figures=(
            Figure("Makespan", f"{outcome.makespan_s:,.0f} s", "from the first submission to the last end"),
            Figure("Mean completion", f"{outcome.mean_completion_s:,.0f} s", f"p99 {outcome.p99_completion_s:,.0f} s"),
            Figure("In use", percent(outcome.utilisation), "of all GPUs until the last end"),
            Figure("Moves", str(outcome.moves), "restarts of jobs"),
        ),
        sections=(
            section("gpus", "Nodes over time", picture(schedule, bars), bar_table(bars), lead=lead),
            section("jobs", "Jobs", table(("job", ">GPUs", ">submitted, s", ">ended, s"), lines, "Jobs as they ended")),
        ),
        data={"page": "schedule"},
        summary={"page": "schedule", "jobs": len(schedule.jobs)},
    )


def bar_table(bars: Sequence[Segment]) -> Markup:
    """The bars in numbers, folded."""
    lines = [(each.job, each.kind, ranges_text(each.gpus), f"{each.since:,.0f}", f"{each.until:,.0f}") for each in bars]
    heads = ("job", "kind", "GPUs", ">from, s", ">to, s")
    return details("The bars as a table", table(heads, lines, "Who had which GPUs, and when"))


def picture(schedule: Schedule, bars: Sequence[Segment]) -> Markup:
    """Nodes as bands of GPUs, one line each, and the bars of jobs on them."""
    fleet, span = schedule.fleet, max(schedule.history.ends.values()) or 1.0
    top = {gpu: GPU * gpu + GAP * number for number, node in enumerate(fleet.nodes) for gpu in node.gpus}
    height = GPU * fleet.size + GAP * len(fleet.nodes)
    names = (lane_name(f"{node.kind} {number}", top[node.gpus[0]] + 2 * GPU) for number, node in enumerate(fleet.nodes))
    numbers = {job.id: number for number, job in enumerate(schedule.jobs)}
    drawn = (job_bars(each, numbers, top, (WIDTH - LEFT) / span) for each in bars)
    label = f"{plural(len(schedule.jobs), 'job')} on {fleet.size} GPUs over {span:,.0f} s"
    return drawing(label, (WIDTH, height), names, drawn)


def job_bars(each: Segment, numbers: dict[str, int], top: dict[int, float], scale: float) -> Iterator[Markup]:
    """The bars of a job, one for each of its GPUs: half as high where it shares them."""
    number, share = numbers[each.job], 0.5 if each.beside else 1.0
    below = share if each.beside and number > numbers[each.beside] else 0.0
    title = f"{each.job}: {len(each.gpus)} of {each.kind}, {each.since:,.0f} to {each.until:,.0f} s"
    colour = f"hsl({number * GOLDEN % 360:.0f} 60% {45 + number % 3 * 10}%)"
    for gpu in each.gpus:
        place = LEFT + each.since * scale, top[gpu] + below * GPU
        yield bar(title, place, ((each.until - each.since) * scale, share * GPU - 0.5), colour)
