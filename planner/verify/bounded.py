"""One step of a plan as bounds look at it: tasks, their times, and the packing problem that it answers, if any."""

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
        """The first one."""
        return next(iter(self.plan.layouts))

    @property
    def meets_once(self) -> bool:
        """Whether ranks meet at the end of the step alone."""
        return self.plan.steps[self.number].sync == "step"

    @cached_property
    def problem(self) -> Sequences | None:
        """To pack the step's sequences, as strategies do: one module, spread by data parallelism; None for the rest."""
        plan, step = self.plan, self.plan.steps[self.number]
        if len(plan.layouts) > 1 or plan.layouts[self.module].stages or not plan.uses.degrees:
            return None
        usual = usual_order(plan, step, self.module) and usual_groups(plan, self.number)
        if not (usual and whole_items(self.tasks)):
            return None
        found = sequences(self.pricing, self.module, plan.uses, step_sizes(plan, self.number, self.module), step.sync)
        return found if usual_offload(found, self.tasks) else None

    @property
    def packing(self) -> Sequences:
        """The problem, for bounds over every plan: they are asked where there is one."""
        assert self.problem is not None
        return self.problem

    def proven(self, bound: Callable[..., float], *more: int) -> float:
        """Of the problem and the known value, what takes long: once while a plan is solved, verified and compared."""
        return kept(bound, self.packing, self.value, *more)

    @property
    def streams(self) -> float:
        """Seconds that no packing beats where ranks meet once."""
        return self.proven(stream_seconds, self.effort)

    @property
    def ordered(self) -> bool:
        """Whether the order of passes on stages was decided: written out, or with backward in two."""
        written = any(not isinstance(order, str) for order in self.plan.steps[self.number].order.values())
        return written or any(task.phase == "I" for task in self.tasks)


@lru_cache(64)
def kept(bound: Callable[..., float], problem: Sequences, value: float, *more: int) -> float:
    """Bounds are pure: the same problem has the same."""
    return bound(problem, value, *more)


def step_sizes(plan: Plan, number: int, module: str) -> dict[int, int]:
    """Item → tokens of what one step works on."""
    items = (i for row in plan.steps[number].micro_batches for a in assignments(plan, row) for i in a.items)
    return {item: plan.uses.tokens(module, item) for item in items}
