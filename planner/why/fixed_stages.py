"""A plan whose stages are changed: no search decides layers of stages, so its other fields keep their values."""

from planner.plan.descriptions import fixable_layout
from planner.plan.plan_file import Plan
from planner.scoring import require_memory
from planner.specs.base import with_fields
from planner.specs.inputs import Inputs
from planner.specs.parallelism import Parallelism, decided_fields
from planner.strategies.static import predict_job
from planner.why.change_setters import change_job

IMPLIED = frozenset({"pp", "vpp"})  # by how many stages there are
# Of the ranks that are left, of the chunks, and of the compute that hides copies to the host
FOLLOWING = frozenset({"dp", "schedule", "stages", "offload"})


def keeping_layout(inputs: Inputs, step: Plan, words: tuple[str, ...]) -> Inputs:
    """The changed problem of a step of one module with its layout, in which only these words change something."""
    ((name, layout),) = step.layouts.items()
    given = {word.partition("=")[0].strip() for word in words} | IMPLIED
    own = {key: value for key, value in decided_fields(fixable_layout(layout)).items() if key not in FOLLOWING}
    wish = {key: value for key, value in decided_fields(inputs.job.layout).items() if key in given}
    layouts = {name: Parallelism(**own | wish)}
    return change_job(inputs, layout=Parallelism(), fix=with_fields(inputs.job.fix, layouts=layouts))


def priced_as_fixed(inputs: Inputs) -> Plan:
    """The plan of the layout that a problem fixes. Raises InputError, and Infeasible where it does not fit."""
    predicted = predict_job(inputs)
    for each in predicted.scores:
        require_memory(predicted.plan, each)
    return predicted.plan
