"""The seconds of a step, however they are asked for, and prices of tasks that are alike."""

from functools import partial
from math import prod

import pytest

from planner.costs import pricing_of, step_prices
from planner.layouts.space.layout_fields import SEARCHED_FIELDS, layout_of
from planner.layouts.space.layout_problem import layout_problem
from planner.plan.mesh.identical_groups import identical_groups
from planner.plan.tasks.expand import expand
from planner.scoring.step_simulation import simulated_step, step_seconds
from planner.simulate.equal_micro_batches import equal_step_seconds
from planner.specs.base import with_fields
from planner.strategies.static.layouts_plan import draft_of_layouts
from tests.static_jobs import small_cluster, static_inputs

EQUAL = 1e-9


def equal_plan(folder, count, schedule="", dp=2, **few):
    """A static plan of so many equal micro-batches on each replica."""
    ranks = dp * prod(few.get(name, 1) for name in ("tp", "cp", "pp"))
    fixed = f"schedule: {schedule}" if schedule else ""
    cluster = small_cluster(folder, "h100-80gb", ranks)
    inputs = static_inputs(folder, "llama-3-8b", cluster, (4096,) * (count * dp), fixed)
    problem = layout_problem(inputs)
    numbers = {**dict.fromkeys(SEARCHED_FIELDS, 1), "zero": 0, "recompute": 0, **few}
    return draft_of_layouts(inputs, {inputs.module: layout_of(problem.trained, numbers)})


CASES = [
    ("", {"pp": 2, "tp": 2}, 13),
    ("", {"pp": 3}, 11),  # stages of 11, 11 and 10 layers
    ("", {"pp": 4, "zero": 1}, 11),
    ("", {"pp": 2, "zero": 3}, 10),
    ("", {"pp": 4, "zero": 2, "cp": 2}, 10),
    ("", {"pp": 2, "vpp": 4}, 8),
    ("", {"pp": 4, "vpp": 2, "zero": 1}, 16),
    ("zb_h1", {"pp": 4}, 13),
    ("zb_h2", {"pp": 4, "zero": 1}, 14),
    ("zb_h2", {"pp": 2, "tp": 2}, 11),
]


@pytest.mark.parametrize(("schedule", "few", "count"), [*CASES, ("gpipe", {"pp": 4}, 9), ("", {"pp": 2, "zero": 3}, 3)])
@pytest.mark.every(2)
def test_copied_micro_batches_take_as_long_as_expanded_ones(tmp_path, schedule, few, count):
    plan = equal_plan(tmp_path, count, schedule, **few)
    pricing, alike = pricing_of(plan), identical_groups(plan, 0)
    assert (
        equal_step_seconds(plan, 0, alike.ranks, partial(step_prices, pricing))
        == simulated_step(plan, 0, pricing, alike)[1].step_seconds
    )


@pytest.mark.parametrize("few", [{"pp": 2, "tp": 2}, {"pp": 4, "vpp": 2}])
def test_gradients_reduced_as_they_come_are_exposed_in_each_micro_batch(tmp_path, few):
    """Under ZeRO-2; once a step where they are held until its end."""
    plan = equal_plan(tmp_path, 96, zero=2, **few)
    reduced = with_fields(plan.uses.prices.accounting, holds_gradients=False)
    plan, held = (
        with_fields(plan, uses=with_fields(plan.uses, prices=with_fields(plan.uses.prices, accounting=reduced))),
        plan,
    )
    pricing, alike = pricing_of(plan), identical_groups(plan, 0)
    tasks, whole = simulated_step(plan, 0, pricing, alike)
    assert step_seconds(plan) == whole.step_seconds
    sync = next(task for task in tasks if task.phase == "sync" and task.micro_batch is None)
    each, once = (step_prices(pricing_of(some), tasks)(sync).value for some in (plan, held))
    assert each == pytest.approx(96 * once, rel=EQUAL) and once > 0.0


@pytest.mark.parametrize("few", [{"pp": 2, "zero": 3}, {"pp": 2, "vpp": 2, "zero": 2}, {"tp": 2, "zero": 3}])
def test_tasks_alike_are_priced_once_and_as_each_alone(tmp_path, few):
    plan = equal_plan(tmp_path, 8, **few)
    tasks = expand(plan)
    price = step_prices(pricing_of(plan), tasks)
    assert price.each(tasks) == [price(task) for task in tasks]


def test_weights_that_stay_gathered_are_gathered_in_the_first_micro_batch_alone(tmp_path):
    plan = equal_plan(tmp_path, 8, pp=2, zero=3)
    stay = with_fields(plan.uses.prices.accounting, keeps_gathered=True)
    kept = with_fields(plan, uses=with_fields(plan.uses, prices=with_fields(plan.uses.prices, accounting=stay)))
    tasks = expand(plan)
    costs = step_prices(pricing_of(kept), tasks).each(tasks)
    found = [(task.micro_batch, cost.value) for task, cost in zip(tasks, costs, strict=True) if task.phase == "gather"]
    assert len(found) == 16 and all((seconds > 0) == (not number) for number, seconds in found)
