"""Whether a plan fits into memory: use by kind on each stage, the probability, and a change that would fit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from planner.costs.memory import FRAGMENTED, Footprint
from planner.layouts import layout_problem
from planner.plan.plan_file import Plan
from planner.scoring import (
    HostMemory,
    PlanMemory,
    Score,
    exceeds_memory,
    fullest_host,
    prediction_of,
    restate_in_objective,
    score,
    with_loader,
)
from planner.specs.base import with_fields
from planner.specs.hardware.cluster import device_of_rank
from planner.specs.inputs import Inputs
from planner.strategies.assignment.packed_modules import packs_samples
from planner.strategies.static.closed_form_change import ALONE, smallest_change
from planner.strategies.static.layouts_plan import plan_together
from planner.strategies.static.nearest_change import Change
from planner.strategies.static.tried_change import fitting_change
from planner.units import GIB


@dataclass(frozen=True, slots=True)
class StageMemory:
    """Peak memory of the fullest rank of a pipeline stage; with several modules, of a combination of their stages."""

    stage: int
    holds: dict[str, int]  # module → its stage
    rank: int
    taken: Footprint
    allowed: float  # bytes
    chance: float  # of running out of memory
    fragmented_chance: float | None = None  # where ranks have chunks of layers: without expandable segments


@dataclass(frozen=True, slots=True)
class MemoryFit:
    """Memory of all stages; the fullest one decides whether the plan fits."""

    plan: Plan
    scores: tuple[Score, ...]
    device: str
    device_bytes: float
    stages: tuple[StageMemory, ...]
    # A change that would fit, if this does not; None: none that was tried does, or it was not searched
    change: Change | None = None

    @property
    def fullest(self) -> StageMemory:
        """The stage with the greatest share of its allowed memory in use."""
        return max(self.stages, key=lambda use: (float(use.taken.total) / use.allowed, -use.stage))

    @property
    def largest_module(self) -> str:
        """The module with most states on the fullest rank."""
        use, holding = self.fullest, max(self.scores, key=lambda each: each.oom_chance).plan_memory
        kind = holding.kind(use.rank)
        return max(use.holds, key=lambda name: float(holding.stage_footprint(name, use.holds[name], kind).states))

    @property
    def fits(self) -> bool:
        """Whether every stage fits, and every host."""
        stages_fit = not any(exceeds_memory(float(use.taken.total), use.allowed) for use in self.stages)
        return stages_fit and (self.host is None or self.host.fits)

    @property
    def host(self) -> HostMemory | None:
        """The fullest host of all steps; None where nothing is in the memory of any."""
        return fullest_host(self.scores)


def memory_fit_of_job(inputs: Inputs) -> MemoryFit:
    """Memory of the layouts that a job fixes. Raises InputError."""
    plan = restate_in_objective(plan_together(inputs, runs=False), inputs.job.objective)
    if inputs.loader:
        plan = with_loader(with_fields(plan, prediction=prediction_of(score(plan))), inputs.loader)
    found = memory_fit_of_plan(plan, (score(plan),))
    if found.fits:
        return found
    if len(plan.layouts) > 1 or packs_samples(inputs):
        return replace(found, change=fitting_change(inputs, plan.layouts, runs=False))
    problem, layout = layout_problem(inputs), plan.layouts[inputs.module]
    whole = with_fields(problem.trained.fixed, **{name: getattr(layout, name) for name in ALONE})
    return replace(found, change=smallest_change(problem, whole))


def memory_fit_of_plan(plan: Plan, scores: Sequence[Score]) -> MemoryFit:
    """Memory of an existing plan."""
    worst = max(scores, key=lambda each: each.oom_chance)
    stages = stage_memories(plan, worst)
    kind = device_of_rank(plan.uses.cluster, worst.fullest_rank)
    return MemoryFit(plan, tuple(scores), kind, plan.uses.devices[kind].memory_gib * GIB, stages)


def stage_memories(plan: Plan, found: Score) -> tuple[StageMemory, ...]:
    """Memory of each pipeline stage; with several modules, of ranks that hold the same stages of all of them."""
    holding, peaks = found.plan_memory, found.memory.peaks
    passes = holding.over_step(found.spans, found.tasks, updates=False).peaks
    alike: dict[tuple[int, ...], list[int]] = {}  # stage of each module, -1 where there is none → ranks
    for rank in range(plan.size):
        held = tuple(stages.get(rank, -1) for stages in holding.stage_of.values())
        if any(stage >= 0 for stage in held):
            alike.setdefault(held, []).append(rank)
    uses = []
    for number, held in enumerate(sorted(alike)):
        rank = max(alike[held], key=lambda each: (peaks[each] / holding.allowed_bytes(each), -each))
        taken, names = holding.peak_footprint(rank, passes[rank], found.tasks), zip(holding.stage_of, held, strict=True)
        stages = {name: stage for name, stage in names if stage >= 0}
        chance = holding.oom_chance(rank, peaks[rank])
        fragmented = max(chance, fragmented_chance(holding, rank, taken)) if has_chunks(plan, rank, stages) else None
        uses.append(StageMemory(number, stages, rank, taken, holding.allowed_bytes(rank), chance, fragmented))
    return tuple(uses)


def has_chunks(plan: Plan, rank: int, held: Mapping[str, int]) -> bool:
    """Whether a GPU has several chunks of layers of a module, whose activations come and go in turn."""
    on_gpu = device_of_rank(plan.uses.cluster, rank) != "cpu"
    return on_gpu and any(plan.layouts[name].vpp > 1 for name in held)


def fragmented_chance(holding: PlanMemory, rank: int, taken: Footprint) -> float:
    """The chance of running out during passes where the allocator has no expandable segments. What the update needs it
    makes room for: no activations are left then, and unused segments go back to the device.
    """
    passes = replace(taken, update=0.0).fragmented(FRAGMENTED)
    return holding.oom_chance(rank, float(passes.total))
