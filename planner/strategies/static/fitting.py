"""Whether a plan fits into memory: use by kind on each stage, the probability, and a change that would fit."""

from dataclasses import dataclass

from planner.costs.memory.footprint import Footprint
from planner.plan.model import Plan
from planner.specs.cluster import kind_of
from planner.specs.inputs import Inputs
from planner.strategies.static.change import Change, fields_of, smallest
from planner.strategies.static.fixed import fixed_layout
from planner.strategies.static.laid import laid
from planner.strategies.static.screen import problem_of
from planner.strategies.static.together import laid_together
from planner.units import GIB
from planner.verify.held import exceeds
from planner.verify.score import Score, score
from planner.verify.worth import in_objective


@dataclass(frozen=True, slots=True)
class StageUse:
    """Peak memory of the fullest rank of a pipeline stage; with several modules, of a combination of their stages."""

    stage: int
    holds: dict[str, int]  # module → its stage
    rank: int
    taken: Footprint
    allowed: float  # bytes
    chance: float  # of running out of memory


@dataclass(frozen=True, slots=True)
class Fits:
    """Memory of all stages; the fullest one decides whether the plan fits."""

    plan: Plan
    scores: tuple[Score, ...]
    device: str
    device_bytes: float
    stages: tuple[StageUse, ...]
    change: Change | None  # a change that would fit, if this does not; None: there is none, or it was not searched

    @property
    def fullest(self) -> StageUse:
        """The stage with the greatest share of its allowed memory in use."""
        return max(self.stages, key=lambda use: (float(use.taken.total) / use.allowed, -use.stage))

    @property
    def yes(self) -> bool:
        """Whether every stage fits."""
        return not any(exceeds(float(use.taken.total), use.allowed) for use in self.stages)


def fitting(inputs: Inputs) -> Fits:
    """Memory of the layouts that a job fixes. Raises InputError."""
    if len(inputs.model.modules) > 1:
        plan = laid_together(inputs, runs=False)
        return of_plan(plan, (score(plan),))
    problem, layout = problem_of(inputs), fixed_layout(inputs, runs=False)
    plan = in_objective(laid(inputs, problem, layout), inputs.job.objective)
    scores = (score(plan),)
    found = of_plan(plan, scores)
    return found if found.yes else of_plan(plan, scores, smallest(problem, fields_of(layout)))


def of_plan(plan: Plan, scores: tuple[Score, ...], change: Change | None = None) -> Fits:
    """Memory of an existing plan."""
    worst = max(scores, key=lambda each: each.chance)
    stages = stage_memories(plan, worst)
    kind = kind_of(plan.uses.cluster, worst.fullest)
    return Fits(plan, scores, kind, plan.uses.devices[kind].memory_gib * GIB, stages, change)


def stage_memories(plan: Plan, found: Score) -> tuple[StageUse, ...]:
    """Memory of each pipeline stage; with several modules, of ranks that hold the same stages of all of them."""
    holding, peaks = found.holding, found.memory.peaks
    alike: dict[tuple[int, ...], list[int]] = {}  # stage of each module, -1 where there is none → ranks
    for rank in range(plan.size):
        held = tuple(stages.get(rank, -1) for stages in holding.stage_of.values())
        if any(stage >= 0 for stage in held):
            alike.setdefault(held, []).append(rank)
    uses = []
    for number, held in enumerate(sorted(alike)):
        rank = max(alike[held], key=lambda each: (peaks[each] / holding.allowed(each), -each))
        taken, names = holding.taken(rank, peaks[rank], found.tasks), zip(holding.stage_of, held, strict=True)
        stages = {name: stage for name, stage in names if stage >= 0}
        uses.append(StageUse(number, stages, rank, taken, holding.allowed(rank), holding.chance(rank, peaks[rank])))
    return tuple(uses)
