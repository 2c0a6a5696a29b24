"""Samples on groups of unequal degree that change with every micro-batch, which read encoders on all ranks: loss and
gradients are those of one process.
"""

import pytest

from planner.callbacks import silent
from planner.plan.legal.plan_laws import require_legal
from planner.plan.plan_file import Plan, assignments
from planner.solve_job import solve_job
from planner.specs.base import with_fields
from tests.grouped_jobs import GROUPED, grouped_job
from tests.runtime.multi_module_plans import require_those_of_one_process
from tests.runtime.training_worlds import ONCE, run_all

pytestmark = pytest.mark.slow

TIMES = {
    "at once": "vit: {backward: at_once, ahead: 1}",
    "last": "vit: {backward: last, serves: 9}",
    "tp": "vit: {tp: 2}",
}


def in_float64(plan: Plan) -> Plan:
    """The same decisions, in a precision in which rounding hides nothing."""
    layouts = {name: with_fields(layout, dtype="float64") for name, layout in plan.layouts.items()}
    found = with_fields(plan, layouts=layouts)
    require_legal(found, plan.name)
    return found


def read_by(plan: Plan) -> set[str]:
    """The groups of the samples."""
    rows = plan.steps[0].micro_batches
    return {a.group for row in rows for a in assignments(plan, row) if a.module == "llm"}


@pytest.mark.parametrize("ranks", [2, 4])
def test_loss_and_gradients_are_those_of_one_process(tmp_path, ranks):
    plans: dict[str, Plan] = {}
    for strategy in GROUPED:
        for when, fixed in TIMES.items():
            inputs = grouped_job(tmp_path, strategy, ranks, fixed)
            plans[f"{strategy}, {when}"] = in_float64(solve_job(inputs, silent).plan)
    assert {len(plan.groups[name].ranks) for plan in plans.values() for name in read_by(plan)} >= {1, 2}
    results = run_all(ranks, plans, ONCE)
    for name, plan in plans.items():
        require_those_of_one_process(plan, results[name].verified)
