"""Bounds of plans with orders of their own: no step is shorter, whatever its slots."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.costs import pricing_of, step_prices
from planner.plan.legal.plan_laws import violations
from planner.plan.plan_file import Plan
from planner.plan.schedules import SCHEDULES
from planner.plan.schedules.explicit import slot_lines
from planner.plan.tasks.expand import expand
from planner.scoring.bounds.step_bounds import busiest_rank_seconds
from planner.scoring.score import score
from planner.specs.base import with_fields
from tests.examples import examples
from tests.plan.schedules.made import ordered_plan, some_order
from tests.plans import sharded_plan
from tests.scoring.priced import priced

CHANCES = st.integers(0, 2**32).map(Random)


def unlike(plan: Plan, chance: Random) -> Plan:
    """With items of any lengths."""
    items = {item: chance.choice((1, 8, 60)) for item in plan.uses.items["llm"]}
    return with_fields(plan, uses=with_fields(plan.uses, items={"llm": items}))


@pytest.mark.slow
@examples(60)
@given(CHANCES, st.integers(1, 4), st.integers(1, 5), st.integers(1, 3), st.integers(1, 2), st.sampled_from([0, 1, 3]))
def test_no_order_beats_its_bound(chance, pp, micro_batches, chunks, dp, zero):
    chunks = chunks if pp > 1 else 1
    lines = slot_lines(some_order(chance, pp, micro_batches, chunks), chunks)
    plan = unlike(priced(ordered_plan(pp, micro_batches, lines, chunks, dp, zero=zero), degrees=(1, 2)), chance)
    assert not violations(plan)
    s = score(plan)
    assert s.bound.seconds <= s.step_seconds * (1 + 1e-9)


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("pp", [1, 2])
@pytest.mark.parametrize("zero", [0, 3])
@pytest.mark.every(3)
def test_no_schedule_beats_its_bound(name, pp, zero):
    if name == "forward_only" and zero == 3:
        return
    s = score(priced(ordered_plan(pp, 4, name, 1, 2, zero=zero), degrees=(1, 2)))
    assert s.bound.seconds <= s.step_seconds * (1 + 1e-9)


@examples(40)
@given(CHANCES, st.lists(st.sampled_from([((0, 2),), ((0, 1), (1, 1))]), min_size=1, max_size=4))
def test_micro_batches_that_are_mixed_up_are_not_bounded_as_if_ranks_met_in_each(chance, rows):
    """Under ZeRO-3 on one stage: forwards may run ahead, so that a step can be shorter than its rows one by one."""
    plan = sharded_plan(2, [list(row) for row in rows])
    lines = slot_lines(some_order(chance, 1, len(rows), 1))
    plan = priced(with_fields(plan, steps=(with_fields(plan.steps[0], order={"llm": lines}),)), degrees=(1, 2))
    assert not violations(plan)
    s = score(plan)
    assert s.bound.seconds <= s.step_seconds * (1 + 1e-9)


@given(CHANCES, st.integers(1, 4), st.integers(1, 5))
def test_cutting_a_backward_changes_no_work(chance, pp, micro_batches):
    """The busiest rank has as much to do in any order as under 1F1B."""
    lines = slot_lines(some_order(chance, pp, micro_batches, 1))
    plans = [priced(ordered_plan(pp, micro_batches, order)) for order in (lines, "1f1b")]
    tasks = [*map(expand, plans)]
    costs = [step_prices(pricing_of(plan), own).each_alone(own) for plan, own in zip(plans, tasks, strict=True)]
    work = [busiest_rank_seconds(*each) for each in zip(tasks, costs, strict=True)]
    assert work[0] == pytest.approx(work[1], rel=1e-9)


@pytest.mark.parametrize(
    ("order", "zero", "over_all"),
    [
        ("1f1b", 3, True),
        ("1f1b", 1, True),
        ("gpipe", 1, True),
        ("zb_h1", 1, True),
        ("gpipe", 3, False),
        ("zb_h2", 3, False),
        ("forward_only", 0, False),
    ],
)
@pytest.mark.every(3)
def test_packings_bound_what_trains_row_by_row_where_ranks_meet(order, zero, over_all):
    """And once a step, whatever trains. What does not, or lets forwards run ahead of gathers, does other work."""
    s = score(priced(ordered_plan(1, 4, order, 1, 2, zero=zero), degrees=(1, 2)))
    assert (s.bound.by != "busiest_rank") == over_all
