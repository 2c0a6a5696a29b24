"""Samples on groups of unequal degree that change with every micro-batch, which read encoders on all ranks: loss and
gradients are those of one process.
"""

from itertools import islice
from random import Random

import pytest

from planner.plan.legal.plan_laws import require_legal
from planner.plan.plan_file import Layout, Plan, assignments
from planner.specs.base import Ranks, with_fields
from planner.specs.job import Fix
from planner.strategies.assignment.encoder_orders import FRONT, STREAMED, EncoderOrder
from tests.grouped_jobs import GROUPED, any_grouped_plan, grouped_job
from tests.runtime.multi_module_plans import require_those_of_one_process
from tests.runtime.training_worlds import run_all

pytestmark = pytest.mark.slow

ENCODERS = {  # beside samples that synchronise in every micro-batch, or once a step
    "at once": ({"zero": 1}, EncoderOrder(at_once=True)),
    "ahead": ({"zero": 0, "recompute": "full"}, STREAMED),
    "in one pass": ({"zero": 2}, FRONT),
    "tensors": ({"zero": 1, "tp": 2}, EncoderOrder()),
}


def in_float64(plan: Plan) -> Plan:
    """The same decisions, in a precision in which rounding hides nothing."""
    layouts = {name: with_fields(layout, dtype="float64") for name, layout in plan.layouts.items()}
    found = with_fields(plan, layouts=layouts, uses=with_fields(plan.uses, fix=Fix()))
    require_legal(found, plan.name)
    return found


def degrees(plan: Plan) -> set[int]:
    """How many ranks groups of samples have."""
    placed = (a for row in plan.steps[0].micro_batches for a in assignments(plan, row))
    return {len(plan.groups[a.group].ranks) for a in placed if a.module == "llm"}


@pytest.mark.parametrize(("ranks", "each"), [(2, 2), pytest.param(4, 1, marks=pytest.mark.soak)])
def test_loss_and_gradients_are_those_of_one_process(tmp_path, ranks, each):
    """On two ranks each strategy beside every second layout of encoders."""
    plans: dict[str, Plan] = {}
    for seed, strategy in enumerate(GROUPED):
        for name, (fields, order) in islice(ENCODERS.items(), seed % each, None, each):
            layout = Layout(ranks=Ranks(range(ranks)), dp=ranks // fields.get("tp", 1), **fields)
            plan = any_grouped_plan(grouped_job(tmp_path, strategy, ranks), layout, order, Random(seed))
            plans[f"{strategy}, {name}"] = in_float64(plan)
    assert any(len(degrees(plan)) > 1 for plan in plans.values())
    results = run_all(ranks, plans)
    for name, plan in plans.items():
        require_those_of_one_process(plan, results[name].verify)
