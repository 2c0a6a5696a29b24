"""One step of a plan as lower bounds use it: tasks, their times, and the packing problem that it answers, if any.

Bounds over all packings apply to steps that strategies could have chosen, as they price them. A plan written by hand
can do more: split a group in another way, let it span several kinds of ranks, share a device, offload what fits, or
defer or omit a micro-batch's backward. Such a step can be shorter than any packing, and only its busiest rank bounds
it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from planner.costs import PackingProblem, Pricing, packing_problem, rank_pools, split_degree
from planner.plan.mesh.synchronisation import sync_of
from planner.plan.plan_file import Plan, Step, assignments
from planner.plan.schedules import FORWARD_ONLY
from planner.plan.task import Task
from planner.plan.tasks.task_table import TaskTable
from planner.scoring.bounds.stream_bound import stream_seconds
from planner.simulate import Timeline
from planner.specs.sequence_sharding import SequenceSplit


@dataclass(frozen=True)
class BoundedStep:
    """Step `number` of a plan, expanded, priced and simulated."""

    plan: Plan
    number: int
    pricing: Pricing
    tasks: TaskTable
    timeline: Timeline

    @property
    def step_seconds(self) -> float:
        """Seconds that the step takes."""
        return self.timeline.step_seconds

    @property
    def effort(self) -> int:
        return self.plan.made.effort

    @cached_property
    def module(self) -> str:
        """The module of the samples, which feeds no other; of several the first."""
        feeding = {edge.source for edge in self.plan.edges}
        return next(name for name in self.plan.layouts if name not in feeding)

    @property
    def syncs_once(self) -> bool:
        """Whether ranks synchronise only once, at the end of the step."""
        return self.plan.steps[self.number].sync == "step"

    @cached_property
    def packing_problem_or_none(self) -> PackingProblem | None:
        """The packing problem of the step's sequences, in a module under data parallelism; None for other steps. Other
        modules only add to what it waits for, and to what ranks hold.
        """
        plan, step = self.plan, self.plan.steps[self.number]
        layout = plan.layouts[self.module]
        if layout.stages or not plan.uses.degrees or (len(plan.layouts) > 1 and not self.packed_beside_others):
            return None
        usual = standard_order(plan, step, self.module) and standard_groups(plan, self.number, self.module)
        own = [task for task in self.tasks if task.module == self.module]
        if not (usual and undivided_items(own)):
            return None
        problem = packing_problem(
            self.pricing, self.module, plan.uses, step_sizes(plan, self.number, self.module), step.sync
        )
        return problem if standard_offload(problem, own) else None

    @property
    def packed_beside_others(self) -> bool:
        """Whether cost lines are those of the module's passes beside others, and its own ranks synchronise when the
        step says.
        """
        same = self.plan.steps[self.number].sync == sync_of(self.plan.layouts[self.module])
        reads_tokens = not self.plan.uses.models[self.module].cross_attention_width
        return same and reads_tokens and self.pricing.through_layers(self.module)

    @property
    def packing_problem(self) -> PackingProblem:
        """The packing problem, for bounds over every plan, which apply only where there is one."""
        assert self.packing_problem_or_none is not None
        return self.packing_problem_or_none

    def cached_bound(self, bound: Callable[..., float], *more: int) -> float:
        """A slow bound of the problem and the known seconds, computed once while a plan is solved and compared."""
        return cached_bound_value(bound, self.packing_problem, self.step_seconds, *more)

    @property
    def stream_bound(self) -> float:
        """Lower bound in seconds over all packings, where ranks synchronise once per step."""
        return self.cached_bound(stream_seconds, self.effort)

    @property
    def order_decided(self) -> bool:
        """Whether the plan decides the order of passes on stages: slot by slot, or with a split backward."""
        step = self.plan.steps[self.number]
        written = any(not isinstance(order, str) for module, order in step.order.items() if module != "place")
        return written or bool(step.placements) or any(kind.phase == "I" for kind in self.tasks.kinds)


@lru_cache(64)
def cached_bound_value(bound: Callable[..., float], problem: PackingProblem, value: float, *more: int) -> float:
    """The value of a bound, cached: it is a pure function of the problem."""
    return bound(problem, value, *more)


def step_sizes(plan: Plan, number: int, module: str) -> dict[int, int]:
    """Item → tokens, of one step."""
    items = (
        item
        for micro_batch in plan.steps[number].micro_batches
        for a in assignments(plan, micro_batch)
        for item in a.items
        if a.module == module
    )
    return {item: plan.uses.tokens(module, item) for item in items}


def standard_groups(plan: Plan, number: int, name: str) -> bool:
    """Whether every group of a module in a step is whole ranks of one pool for all layers, split as strategies split
    it.
    """
    layout = plan.layouts[name]
    found = rank_pools(plan.uses.cluster, layout.ranks)
    used = {
        (a.group, a.layers, a.share)
        for micro_batch in plan.steps[number].micro_batches
        for a in assignments(plan, micro_batch)
        if a.module == name
    }
    for named, layers, share in used:
        group = plan.groups[named]
        within = any(pool.first <= min(group.ranks) and max(group.ranks) < pool.first + pool.ranks for pool in found)
        parts = group.resolved_split(layout)
        whole = layers is None and share == 1 and len(group.ranks) == parts.degree
        if not (within and whole and parts == SequenceSplit(**split_degree(plan.uses.models[name], parts.degree))):
            return False
    return True


def standard_order(plan: Plan, step: Step, module: str) -> bool:
    """Whether micro-batches are trained, and one after the other where ranks synchronise in each."""
    order = plan.order_of(step, module)
    return order in (None, "1f1b") or (step.sync == "step" and order != FORWARD_ONLY)


def undivided_items(tasks: Sequence[Task]) -> bool:
    """Whether every item is one sequence for attention: one of several parts costs less."""
    return not any(task.parts for task in tasks)


def standard_offload(problem: PackingProblem, tasks: Sequence[Task]) -> bool:
    """Whether only items that no rank could hold without it are offloaded."""
    return not any(
        ratio and problem.least_tokens(size) == size
        for task in tasks
        for size, ratio in zip(task.sizes, task.offload, strict=False)
    )
