"""Whether one static layout fits into memory: who uses what on each stage, how sure it is, and what would fit."""

from dataclasses import asdict, dataclass, replace

from planner.costs.static.footprint import Footprint
from planner.specs.inputs import Inputs
from planner.strategies.static.change import Change, smallest
from planner.strategies.static.fixed import fixed_choice
from planner.strategies.static.predicted import fullest_stage
from planner.strategies.static.screen import RISK, chance_of, footprint_of, problem_of


@dataclass(frozen=True, slots=True)
class StageUse:
    """One rank of a pipeline stage at its fullest."""

    stage: int
    taken: Footprint
    chance: float  # of running out of memory


@dataclass(frozen=True, slots=True)
class Fits:
    """Of all stages; the answer is the fullest one's."""

    layout: str
    device: str
    device_bytes: float
    margin_bytes: float  # never planned on
    stages: tuple[StageUse, ...]
    fullest: int
    change: Change | None  # what would fit, if this does not

    @property
    def chance(self) -> float:
        return self.stages[self.fullest].chance

    @property
    def allowed(self) -> float:
        return self.device_bytes - self.margin_bytes

    @property
    def yes(self) -> bool:
        return self.chance <= RISK and float(self.stages[self.fullest].taken.total) <= self.allowed


def fitting(inputs: Inputs) -> Fits:
    """Of the layout that the job fixes. Raises InputError."""
    problem, choice = problem_of(inputs), fixed_choice(inputs, runs=False)
    taken = [footprint_of(problem, choice, stage) for stage in range(choice.pp)]
    stages = tuple(StageUse(stage, each, chance_of(problem, each)) for stage, each in enumerate(taken))
    found = Fits(
        layout=choice.text(problem.trained.ranks),
        device=inputs.cluster.ranks[0].kind,
        device_bytes=problem.device_bytes,
        margin_bytes=problem.device_bytes - problem.allowed,
        stages=stages,
        fullest=fullest_stage(problem, taken)[0],
        change=None,
    )
    if found.yes:
        return found
    return replace(found, change=smallest(problem, asdict(choice)))
