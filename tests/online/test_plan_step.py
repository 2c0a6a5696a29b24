"""A step lies on groups that its head has: laid anew where it does not, and worth what is then simulated."""

from dataclasses import replace

import pytest

from planner.errors import InputError
from planner.online.batch_stream import BatchStream
from planner.online.catalogue_placement import place_on_catalogue
from planner.online.plan_inputs import inputs_of_plan
from planner.online.plan_step import plan_step
from planner.plan.plan_file import Group
from planner.plan.step_files import PlanHead
from planner.scoring.score import score
from planner.specs.base import Ranks, with_fields
from planner.specs.hardware.profile import ModuleCosts, PassCosts, PassFit
from tests.online.small_jobs import head_of


def shifted(plan):
    """The same plan with its pairs on the two ranks in the middle: a block that no catalogue has."""
    middle = Group(ranks=Ranks((1, 2)), split={"ulysses": 2})
    (step,) = plan.steps
    names = {"g0-1": "g1-2", "g2-3": "g1-2"}
    row = next(row for row in step.micro_batches if "g0-3" not in row)
    pair, alone = (0, 1), 2
    items = [item for group in row.values() for item in group]
    moved = {"g1-2": tuple(items[i] for i in pair), "g0": (items[alone],), "g3": tuple(items[3:])}
    rows = tuple(moved if each is row else each for each in step.micro_batches)
    groups = {name: group for name, group in plan.groups.items() if name not in names} | {"g1-2": middle}
    used = {name for each in rows for name in each}
    full = {**plan.groups, **groups}
    return with_fields(
        plan,
        then=None,
        groups={name: full[name] for name in full if name in used},
        steps=(with_fields(step, micro_batches=rows),),
    )


def test_what_is_not_in_the_catalogue_is_laid_anew(tmp_path):
    head = head_of(tmp_path)
    plan = shifted(head)
    laid = place_on_catalogue(head, plan)
    assert all(head.groups[name] == group for name, group in laid.groups.items())
    before, after = ([sorted(map(len, row.values())) for row in p.steps[0].micro_batches] for p in (plan, laid))
    assert before == after
    assert laid.outcome.value == pytest.approx(score(laid).step_seconds, rel=1e-8)
    assert laid.outcome.value == pytest.approx(score(plan).step_seconds, rel=1e-8)  # the ranks are alike


def test_what_lies_in_the_catalogue_stays(tmp_path):
    head = head_of(tmp_path)
    assert place_on_catalogue(head, head) is head


def test_prices_that_changed_are_refused(tmp_path):
    head = head_of(tmp_path)
    inputs = inputs_of_plan(head, tmp_path)
    batch = BatchStream(inputs)[1]
    assert plan_step(inputs, PlanHead(head), 1, batch).number == 1
    ((kind, rates),) = head.uses.prices.rates.items()
    layer = PassCosts(forward=PassFit(ms_per_token=9.0), backward=PassFit(ms_per_token=9.0))
    measured = {"tiny-decoder/llm": ModuleCosts(source="measured", spread=0.1, layer=layer)}
    for known in (
        replace(inputs, profile=with_fields(inputs.profile, modules=measured)),
        replace(inputs, rates={kind: with_fields(rates, launch_us=2 * rates.launch_us)}),
    ):
        with pytest.raises(InputError, match="changed since the plan was made") as failed:
            plan_step(known, PlanHead(head), 7, batch)
        assert failed.value.where.startswith("step 7")
