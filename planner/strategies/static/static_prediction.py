"""The prediction for one static layout: seconds and their breakdown, memory, and the source of each number."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from planner.layouts import closed_form_parts, layout_problem
from planner.plan.plan_file import Plan
from planner.scoring import (
    HostMemory,
    Score,
    fullest_host,
    in_memory,
    require_possible,
    restate_in_objective,
    score,
    with_loader,
)
from planner.specs.inputs import Inputs
from planner.strategies.assignment.packed_modules import packs_samples
from planner.strategies.static.layouts_plan import priced_together


@dataclass(frozen=True, slots=True)
class StepTimePrediction:
    """A plan, its simulated steps, their breakdown in seconds, and the source of each number."""

    plan: Plan
    scores: tuple[Score, ...]
    parts: dict[str, float]  # seconds of a step by part; their sum is `closed_seconds` where there is one
    closed_seconds: float | None  # of the closed form; None: the parts are the simulated step's
    sources: dict[str, str]

    @property
    def fits(self) -> bool:
        """Whether every rank stays within its allowed memory, and every host, as `planner fits` says it."""
        return in_memory(self.scores)

    @property
    def host(self) -> HostMemory | None:
        """The fullest host of all steps; None where nothing is in the memory of any."""
        return fullest_host(self.scores)


def predict_job(inputs: Inputs) -> StepTimePrediction:
    """The prediction for the layouts that a job fixes, whether they fit or not. Raises InputError."""
    plan, found = priced_together(inputs)
    plan = restate_in_objective(plan, inputs.job.objective)
    if inputs.loader:
        plan = with_loader(plan, inputs.loader)
        return predict_plan(plan, (score(plan),))
    if len(plan.layouts) > 1 or packs_samples(inputs) or plan.uses.prices.modules:
        return predict_plan(plan, (found,))
    closed = closed_form_parts(layout_problem(inputs), plan.layouts[inputs.module])
    parts = {name: float(value) for name, value in asdict(closed).items()}
    require_possible({f"{name} of the step": value for name, value in parts.items()}, plan.name, found.step_seconds)
    return StepTimePrediction(plan, (found,), parts, float(closed.seconds), sources_of(plan))


def predict_plan(plan: Plan, scores: Sequence[Score]) -> StepTimePrediction:
    """The prediction for an existing plan."""
    return StepTimePrediction(plan, tuple(scores), simulated_parts(scores), None, sources_of(plan))


def simulated_parts(scores: Sequence[Score]) -> dict[str, float]:
    """Seconds by part of the mean rank in the mean step."""
    each = [score.breakdown for score in scores]
    names = {"compute": "compute", "exposed_comm": "exposed communication", "idle": "waiting"}
    return {part: sum(getattr(parts, name) for parts in each) / len(each) for name, part in names.items()}


def sources_of(plan: Plan) -> dict[str, str]:
    """The source of each kind of number, by name."""
    prices, cluster = plan.uses.prices, plan.uses.cluster
    modules = [f"{costs.source} ({name})" for name, costs in prices.modules.items()]
    kernels = [f"{rates.source} ({kind})" for kind, rates in prices.rates.items()]
    tables = sorted({table.source for table in prices.collectives.values()})
    by_links = sorted({rates.source if rates.link_share else "analytic" for rates in prices.rates.values()})
    network = f"{', '.join(tables or by_links or ['analytic'])}, of {cluster.name}'s levels"
    return {
        "compute": ", ".join(modules + kernels),
        "exchange": network,
        "overlap, overhead": "the framework's coefficients",
        "memory": "exact; the framework's coefficients",
    }
