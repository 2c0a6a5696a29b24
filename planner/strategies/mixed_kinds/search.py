"""The quickest static layout over ranks of several kinds, and over those of each kind alone.

Tried are meshes in the order of candidates.py. Where all ranks of a stage are neighbours, stages are of one kind each,
as far as their number divides: they have layers as they are quick. Where the ranks of a replica are neighbours,
replicas are of one kind, and have micro-batches as they are quick. Most meshes have a bit of both. Each stage
recomputes as few layers in full as it needs to fit on its own devices. No plan is worse than the best on one kind,
which is found first, nor than equal stages, which are tried beside the others.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil, inf

from planner.costs import SharedPrices
from planner.errors import Infeasible
from planner.layouts import recompute_ranges, spread_stages
from planner.plan.join_plans import round_digits
from planner.plan.mesh.rank_mesh import stage_ranks
from planner.plan.plan_file import Layout, Plan
from planner.scoring import TriedPlan
from planner.specs.base import with_fields
from planner.specs.inputs import Inputs
from planner.specs.parallelism import ZERO_BUBBLE
from planner.strategies.assignment.module_items import replica_groups, require_token_limit
from planner.strategies.mixed_kinds.candidates import mixed_space
from planner.strategies.mixed_kinds.division import Priced, StageProblem, divided_layers, stage_problem
from planner.strategies.static.layouts_plan import draft_of_layouts, pricing_for
from planner.strategies.static.tried_layouts import TriedLayouts

MESHES = {1: 6, 2: 16, 3: 48, 4: 160}  # that are tried at most, by effort
CLEARLY = 1.05  # times what the divided one takes, by its stages alone: equal ones are not simulated beside it
NEAR = 1.02  # times the quickest so far: meshes of which a step takes about as long are simulated
ROUNDS = 3  # of layers by seconds and of recomputation by memory, each from the other


@dataclass(frozen=True)
class MixedTries:
    """What tries on ranks of several kinds have in common."""

    inputs: Inputs
    shared: SharedPrices = field(default_factory=SharedPrices)

    @property
    def module(self) -> str:
        return self.inputs.module

    def tried(self, layout: Layout) -> Iterator[TriedLayouts]:
        """Yield the layout with even stages, and with as many layers on each as it is quick, simulated if they fit."""
        if layout.pp == 1 or not self.inputs.software.knobs.uneven_stages:
            divisions = [layout]
        else:
            problem = self.stage_problem(layout)
            divided = self.divided(layout, problem)
            gain = problem.step_seconds(rank_layers(layout), none_of(layout)) / problem.step_seconds(
                rank_layers(divided), none_of(layout)
            )
            if fitting := self.fitted(divided, problem):
                yield fitting
            divisions = [layout] if gain < CLEARLY and divided.stages != layout.stages else []
        for each in divisions:
            if fitting := self.fitted(each, None):
                yield fitting

    def stage_problem(self, layout: Layout) -> StageProblem:
        """The seconds of a layout's stages."""
        groups = [*replica_groups(layout).values()]
        plain, full = (
            Priced(each, pricing_for(self.inputs, {self.module: each}, self.shared))
            for each in (
                layout,
                with_fields(layout, recompute="full") if layout.schedule not in ZERO_BUBBLE else layout,
            )
        )
        sizes = [*self.inputs.batches[0].items.values()]
        equal = self.inputs.software.knobs.groups == "layout"
        return stage_problem(plain, full, groups, sizes, equal)

    def divided(self, layout: Layout, problem: StageProblem, full: Sequence[int] = ()) -> Layout:
        """The layout whose stages have as many layers as they are quick."""
        layers = divided_layers(problem, full or none_of(layout))
        return with_fields(layout, stages=spread_stages(layers, layout.vpp))

    def fitted(self, layout: Layout, problem: StageProblem | None) -> TriedLayouts | None:
        """The layout with as few layers in full as fit, simulated; None where none do. `problem`: divides its layers
        again by what stages recompute; None: they stay.
        """
        found = self.with_recomputation(layout)
        for _ in range(ROUNDS):
            if problem is None or found is None or not any(found[1]):
                break
            again = self.divided(layout, problem, found[1])
            if again.stages == layout.stages:
                break
            layout, found = again, self.with_recomputation(again) or found
        return simulated(found[0], self.shared) if found else None

    def with_recomputation(self, layout: Layout) -> tuple[Plan, list[int]] | None:
        """The plan of a layout whose stages recompute as few layers in full as fit, with how many; None: none fit."""
        plan = draft_of_layouts(self.inputs, {self.module: layout})
        excess = self.excess(plan, layout)
        if max(excess) <= 0.0:
            return plan, none_of(layout)
        if not self.recompute_is_open(layout):
            return None
        whole = with_fields(layout, recompute="full")
        least = self.excess(with_fields(plan, layouts={self.module: whole}), whole)
        if max(least) > 0.0:
            return None
        layers, base = self.inputs.spec.layers, layout.recompute
        assert not isinstance(base, dict), "what a search leaves open has no ranges"
        held = rank_layers(layout) if layout.stages else [layers]
        full = [
            ceil(own * max(0.0, most) / (most - few)) if most > 0.0 else 0
            for own, most, few in zip(held, excess, least, strict=True)
        ]
        while "ranges" in self.inputs.software.knobs.recompute and any(a < b for a, b in zip(full, held, strict=True)):
            own = with_fields(layout, recompute=recompute_ranges(layout, layers, base, full))
            beyond = self.excess(with_fields(plan, layouts={self.module: own}), own)
            if max(beyond) <= 0.0:
                return draft_of_layouts(self.inputs, {self.module: own}), full
            full = [min(most, a + (over > 0.0)) for a, over, most in zip(full, beyond, held, strict=True)]
        return draft_of_layouts(self.inputs, {self.module: whole}), held

    def recompute_is_open(self, layout: Layout) -> bool:
        """Whether layers may be recomputed in full."""
        fixed = self.inputs.fixed_parallelism.recompute
        return fixed is None and layout.schedule not in ZERO_BUBBLE and "full" in self.inputs.software.knobs.recompute

    def excess(self, plan: Plan, layout: Layout) -> list[float]:
        """Bytes that the rank of each stage with most beyond what it may hold has too much; negative: room."""
        if plan.uses.limits.tokens_per_rank is not None:
            return [0.0] * layout.pp
        tried = TriedPlan(plan, self.shared)
        peaks, memory = tried.least_peaks, tried.plan_memory
        return [
            max(peaks[rank] - memory.allowed_bytes(rank) for rank in stage_ranks(layout, stage))
            for stage in range(layout.pp)
        ]


def rank_layers(layout: Layout) -> list[int]:
    """Layers of each pipeline rank."""
    return [sum(map(len, layout.stages[stage :: layout.pp])) for stage in range(layout.pp)]


def none_of(layout: Layout) -> list[int]:
    """No layers of any pipeline rank."""
    return [0] * layout.pp


def simulated(plan: Plan, shared: SharedPrices) -> TriedLayouts | None:
    """A plan, simulated; None where it does not fit."""
    tried = TriedPlan(plan, shared)
    try:
        require_token_limit(plan)
        tried.require_memory()
    except Infeasible:
        return None
    return TriedLayouts(plan.layouts, plan=plan, seconds=round_digits(tried.step_seconds()))


def mixed_tries(inputs: Inputs) -> tuple[list[TriedLayouts], str]:
    """The layouts on all ranks that fit, simulated; and the work spent."""
    tries, done = MixedTries(inputs), list[TriedLayouts]()
    space = mixed_space(inputs, MESHES[inputs.effort])
    for layout, about in space.layouts:
        if about >= NEAR * min((each.seconds for each in done), default=inf):
            break
        done += tries.tried(layout)
    return done, f"{space.priced} layouts priced on each kind, {len(done)} simulated"
