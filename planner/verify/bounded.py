"""One step of a plan as lower bounds use it: tasks, their times, and the packing problem that it answers, if any."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from planner.costs.pricing import Pricing
from planner.costs.step.sequences import Sequences, sequences
from planner.plan.model import Plan, assignments
from planner.plan.task import Task
from planner.simulate import Timeline
from planner.verify.covered import usual_groups, usual_offload, usual_order, whole_items
from planner.verify.streams import stream_seconds


@dataclass(frozen=True)
class Bounded:
    """Step `number` of a plan, expanded, priced and simulated."""

    plan: Plan
    number: int
    pricing: Pricing
    tasks: Sequence[Task]
    timeline: Timeline

    @property
    def value(self) -> float:
        """Seconds that the step takes."""
        return self.timeline.step_seconds

    @property
    def effort(self) -> int:
        return self.plan.made.effort

    @property
    def module(self) -> str:
        """The first module."""
        return next(iter(self.plan.layouts))

    @property
    def meets_once(self) -> bool:
        """Whether ranks synchronise only once, at the end of the step."""
        return self.plan.steps[self.number].sync == "step"

    @cached_property
    def problem(self) -> Sequences | None:
        """The packing problem of the step's sequences: one module under data parallelism; None for other steps."""
        plan, step = self.plan, self.plan.steps[self.number]
        if len(plan.layouts) > 1 or plan.layouts[self.module].stages or not plan.uses.degrees:
            return None
        usual = usual_order(plan, step, self.module) and usual_groups(plan, self.number)
        if not (usual and whole_items(self.tasks)):
            return None
        problem = sequences(self.pricing, self.module, plan.uses, step_sizes(plan, self.number, self.module), step.sync)
        return problem if usual_offload(problem, self.tasks) else None

    @property
    def packing(self) -> Sequences:
        """The packing problem, for bounds over every plan, which apply only where there is one."""
        assert self.problem is not None
        return self.problem

    def proven(self, bound: Callable[..., float], *more: int) -> float:
        """A slow bound of the problem and the known seconds, computed once while a plan is solved and compared."""
        return kept(bound, self.packing, self.value, *more)

    @property
    def streams(self) -> float:
        """Lower bound in seconds over all packings, where ranks synchronise once per step."""
        return self.proven(stream_seconds, self.effort)

    @property
    def ordered(self) -> bool:
        """Whether the plan decides the order of passes on stages: slot by slot, or with a split backward."""
        written = any(not isinstance(order, str) for order in self.plan.steps[self.number].order.values())
        return written or any(task.phase == "I" for task in self.tasks)


@lru_cache(64)
def kept(bound: Callable[..., float], problem: Sequences, value: float, *more: int) -> float:
    """The value of a bound, cached: it is a pure function of the problem."""
    return bound(problem, value, *more)


def step_sizes(plan: Plan, number: int, module: str) -> dict[int, int]:
    """Item → tokens, of one step."""
    items = (
        i for micro_batch in plan.steps[number].micro_batches for a in assignments(plan, micro_batch) for i in a.items
    )
    return {item: plan.uses.tokens(module, item) for item in items}
