"""What modules on the same ranks cost each other: an exchange and passes beside it end after max(S, C) + w·min(S, C), a
gap hides 1 − w of the shorter and of nothing twice, and who has nothing beside it takes what it takes alone.
"""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.costs.cost_lines import Cost
from planner.costs.side_by_side import SideBySide
from planner.plan.plan_file import Plan, TaskPlacement
from planner.plan.task import PASS_PHASES
from planner.plan.tasks.expand import expand
from planner.specs.base import with_fields
from tests.examples import examples
from tests.plans import timed
from tests.replica_plans import any_placed_replicas, fed_replicas, replicas

WAITED = st.floats(0.0, 1.0)
RANDOM = st.randoms(use_true_random=False)


def side_by_side(plan: Plan, chance: Random, waited: float, unplaced: float) -> SideBySide:
    """The tasks of a plan at any prices, of passes a part of exchange among them."""
    tasks = expand(plan)
    seconds = [chance.choice((0.0, 0.5, 1.0, 3.0)) for _ in tasks]
    parts = [chance.choice((0.0, 0.25, 1.0)) if task.phase in PASS_PHASES else 0.0 for task in tasks]
    costs = [Cost(s, "measured", 0.0, s * part) for s, part in zip(seconds, parts, strict=True)]
    return SideBySide(tasks, costs, waited, unplaced)


def hidden(found: SideBySide) -> dict[int, float]:
    """Place → seconds that a gap hides of a pass."""
    return {place: -seconds for place, seconds in found.hidden_in_gaps()}


@examples(100)
@given(any_placed_replicas(), RANDOM, WAITED)
def test_gaps_hide_no_second_twice(plan, chance, waited):
    """On every rank, of each pass and of all passes together: 1 − w of what is shorter, whoever is beside."""
    each = side_by_side(plan, chance, waited, waited)
    of_pass = hidden(each)
    for rank in range(plan.size):
        on = [place for place, task in enumerate(each.tasks) if rank in task.ranks and task.phase in PASS_PHASES]
        placed = [place for place in on if each.placed[place]]
        for some in ([place] for place in placed), [placed]:
            for own in some:
                c, s = (sum(part) for part in ((each.seconds - each.exchanged)[own], each.exchanged[own]))
                others = [place for place in on if each.tasks.task(place).module == "llm"]
                computes, exchanges = (each.seconds - each.exchanged)[others].sum(), each.exchanged[others].sum()
                most = (1.0 - waited) * (min(exchanges, c) + min(s, computes))
                assert -1e-9 <= sum(of_pass[place] for place in own) <= most + 1e-9


def test_two_passes_beside_one_exchange_share_it():
    """Of a second in which a pass waits for exchanges, the last of those that begin beside it has what there is."""
    plan = timed(fed_replicas([[0, 0]] * 3, {}, {"dp": 2}), "vit", ahead=None)
    places = tuple(TaskPlacement(do=f"vit.F{number}", beside="llm.F0@0") for number in (1, 2))
    tasks = expand(
        with_fields(plan, steps=(with_fields(plan.steps[0], order={"place": (*plan.steps[0].placed, *places)}),))
    )
    gap = {(task.module, task.phase, task.micro_batch): task.id for task in tasks}["llm", "F", 0].rpartition("/")[0]
    costs = [Cost(1.0, "measured", 0.0, float(task.id.startswith(gap))) for task in tasks]
    found = hidden(SideBySide(tasks, costs, 0.25, 0.25))
    assert {(tasks.task(place).micro_batch, seconds) for place, seconds in found.items()} == {(1, 0.0), (2, 0.75)}


@examples(100)
@given(any_placed_replicas(), RANDOM, WAITED, WAITED)
def test_nothing_takes_less_than_what_is_waited_for(plan, chance, waited, unplaced):
    """Of a placed pass w at least; all others take what they take alone, or longer where an exchange is beside them."""
    each = side_by_side(plan, chance, waited, unplaced)
    for place, cost in each.changed().items():
        alone, task = each.costs[place], each.tasks.task(place)
        least = waited * alone.value if task.beside else alone.value
        assert cost.value >= least - 1e-9 and cost.comm == alone.comm
        assert task.beside or task.phase in (*PASS_PHASES, "sync", "gather")


@given(st.lists(st.lists(st.integers(0, 2), min_size=2, max_size=2), min_size=1, max_size=3), RANDOM, WAITED)
def test_one_module_takes_what_it_takes_alone(rows, chance, waited):
    assert not side_by_side(replicas(rows), chance, waited, waited).changed()


@pytest.mark.parametrize("waited", [0.0, 0.3, 1.0])
@given(st.sampled_from(("llm.sync", "llm.gather")), st.floats(0.0, 8.0), st.floats(0.1, 8.0))
def test_an_exchange_and_a_pass_beside_it_end_after_the_longer_and_what_is_waited_for(
    waited, beside, exchange, computed
):
    """By the formula, the one of them that takes longer ends last."""
    plan = fed_replicas([[0, 0]], {}, {"dp": 2})
    places = (TaskPlacement(do="vit.B0", beside=beside),)
    plan = with_fields(plan, steps=(with_fields(plan.steps[0], order={"place": places}),))
    tasks = expand(plan)
    of = {("vit", "B"): computed, ("llm", beside.partition(".")[2]): exchange}
    costs = [Cost(of.get((task.module, task.phase), 0.0), "measured", 0.0) for task in tasks]
    changed = SideBySide(tasks, costs, waited, waited).changed()
    ends = {
        of[task.module, task.phase] and changed.get(place, costs[place]).value
        for place, task in enumerate(tasks)
        if (task.module, task.phase) in of
    }
    assert max(ends) == pytest.approx(max(exchange, computed) + waited * min(exchange, computed))
    assert min(ends) == pytest.approx((1.0 + waited) * min(exchange, computed))
