"""The simulation of one step of a plan: of a long pipeline with equal micro-batches only until its rounds repeat."""

from planner.costs import Pricing, pricing_of
from planner.plan.mesh.identical_groups import IdenticalGroups, identical_groups
from planner.plan.plan_file import Plan
from planner.plan.tasks.expand import expand
from planner.plan.tasks.rounds import shortened
from planner.plan.tasks.task_table import TaskTable
from planner.simulate import Timeline, equal_step_seconds, repeated, simulate
from planner.specs.framework.overlap import AS_PRICED, Overlap

SETTLING = (1, 4, 16, 64)  # rounds before those that must turn out equal; then the whole step is simulated


def simulated_step(
    plan: Plan, number: int, pricing: Pricing, alike: IdenticalGroups, overlap: Overlap = AS_PRICED
) -> tuple[TaskTable, Timeline]:
    """The tasks that were simulated, and the timeline of the whole step."""
    for settling in SETTLING:
        few = shortened(plan, number, settling)
        if few is None:
            break
        tasks, timeline = timed_tasks(few[0], number, pricing, alike, overlap, few[1].left_out * few[1].micro_batches)
        found = repeated(timeline, tasks, few[1])
        if found:
            return tasks, found
    return timed_tasks(plan, number, pricing, alike, overlap)


def repeats(plan: Plan, number: int) -> bool:
    """Whether a step is so long that its rounds are looked for."""
    return shortened(plan, number, settling=1) is not None


def step_seconds(plan: Plan, number: int = 0) -> float:
    """The seconds of a step alone, for who compares many plans by them; one group of each kind is simulated."""
    pricing, alike = pricing_of(plan), identical_groups(plan, number)
    seconds = equal_step_seconds(plan, number, alike.ranks, pricing.with_concurrency)
    return simulated_step(plan, number, pricing, alike)[1].step_seconds if seconds is None else seconds


def timed_tasks(
    plan: Plan, number: int, pricing: Pricing, alike: IdenticalGroups, overlap: Overlap, left_out: int = 0
) -> tuple[TaskTable, Timeline]:
    """The tasks of a step, simulated to its end. `left_out`: micro-batches like the last that are not in the plan."""
    tasks = expand(plan, number, alike.ranks)
    return tasks, simulate(tasks, pricing.with_concurrency(tasks, left_out), plan.size, alike, overlap.occupied_streams)
