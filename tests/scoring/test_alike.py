"""What a plan is worth does not depend on whether groups that are alike are simulated once, or each."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from planner.costs.cost_lines import Cost
from planner.ledger.work_kinds import step_seconds_by_kind
from planner.plan.legal.plan_laws import violations
from planner.plan.mesh.identical_groups import identical_groups
from planner.plan.plan_file import Plan
from planner.plan.task import Task
from planner.plan.tasks.expand import expand
from planner.scoring.score import Score, score
from planner.scoring.tried_plan import TriedPlan
from planner.simulate import simulate
from planner.specs.base import Ranks, with_fields
from planner.strategies.static.fixed_layout import fixed_layout
from planner.strategies.static.layouts_plan import draft_of_layouts
from tests.examples import examples
from tests.plans import sharded_plan
from tests.replica_plans import any_fed_replicas, any_placed_replicas, replicas
from tests.scoring.priced import priced
from tests.static_jobs import small_cluster, static_inputs

DENSE, EXPERTS = "llama-3-8b", "qwen3-30b-a3b"
CASES = [
    (DENSE, 8, (4096,) * 32, "tp: 2, cp: 1, pp: 1, zero: 0, recompute: none, micro_batch: 2"),
    (DENSE, 8, (4096,) * 16, "tp: 1, cp: 2, pp: 2, zero: 1, recompute: none, micro_batch: 1"),
    (DENSE, 16, (4096,) * 32, "tp: 2, cp: 1, pp: 2, vpp: 4, zero: 1, recompute: full, micro_batch: 1"),
    (DENSE, 16, (4096,) * 64, "tp: 1, cp: 1, pp: 4, zero: 2, recompute: none, micro_batch: 2"),
    (DENSE, 8, (2048,) * 8, "tp: 2, cp: 1, pp: 1, zero: 3, recompute: selective, micro_batch: 1"),
    (DENSE, 8, (8192, 512, 512, 8192, 700, 700, 8192, 90, 8192, 90, 700, 700), "tp: 1, cp: 1, pp: 2, zero: 1"),
    (DENSE, 8, (8192, 512, 512, 8192, 700), "tp: 1, cp: 1, pp: 2, zero: 3"),
    (EXPERTS, 16, (4096,) * 32, "tp: 1, cp: 1, pp: 2, ep: 8, zero: 1, recompute: none, micro_batch: 1"),
    (EXPERTS, 16, (8192, 512, 512, 8192, 700), "tp: 1, cp: 1, pp: 4, ep: 4, zero: 1"),
    (EXPERTS, 16, (4096,) * 32, "tp: 2, cp: 1, pp: 4, ep: 4, vpp: 3, zero: 1, recompute: full, micro_batch: 1"),
]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0]}x{case[1]} {case[3][:40]}")
def plan(request, tmp_path_factory) -> Plan:
    model, ranks, sizes, fixed = request.param
    folder = tmp_path_factory.mktemp("job")
    inputs = static_inputs(folder, model, small_cluster(folder, "h100-80gb", ranks), sizes, fixed)
    found = draft_of_layouts(inputs, {inputs.module: fixed_layout(inputs)})
    assert not violations(found)
    return found


@contextmanager
def unfolded_up_to(ranks: int) -> Iterator[None]:
    """With every rank simulated of jobs of up to so many, and of larger ones those alone that others are not like."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["planner.scoring.step_simulation"], "MAX_UNFOLDED_RANKS", ranks)
        yield


def scored(plan: Plan, whole: int) -> Score:
    with unfolded_up_to(whole):
        return score(plan)


def require_worth_the_same(once: Score, each: Score) -> None:
    assert once.step_seconds == each.step_seconds
    assert once.timeline.rank_breakdowns() == each.timeline.rank_breakdowns()
    assert once.memory == each.memory
    assert once.bound == each.bound


@pytest.mark.every(3)
def test_alike_or_each_a_plan_is_worth_the_same(plan):
    once, each = (scored(plan, whole) for whole in (0, plan.size))
    assert len(once.tasks) < len(each.tasks)
    require_worth_the_same(once, each)
    assert once.timeline.breakdown() == each.timeline.breakdown()
    assert once.timeline.busiest_rank() == each.timeline.busiest_rank()
    busy, all_busy = (s.timeline.group_seconds() for s in (once, each))
    assert [busy[key] for key in all_busy if key[1] in plan.groups] == [
        all_busy[key] for key in all_busy if key[1] in plan.groups
    ]
    assert step_seconds_by_kind(once.timeline) == pytest.approx(step_seconds_by_kind(each.timeline))


@pytest.mark.parametrize("rows", [[[(0, 2)]], [[(0, 4), (4, 1)], [(0, 4)]], [[(2, 2), (4, 2)], [(6, 1)]]])
def test_idle_ranks_once_or_each_a_plan_is_worth_the_same(rows):
    """Ranks in no group of a step under ZeRO-3, which joins all of them in every micro-batch."""
    plan = priced(sharded_plan(16, rows))
    assert not violations(plan)
    once, each = (scored(plan, whole) for whole in (0, plan.size))
    assert len(once.tasks) < len(each.tasks)
    require_worth_the_same(once, each)
    assert once.timeline.group_seconds() == each.timeline.group_seconds()


@examples(60)
@given(any_fed_replicas() | any_placed_replicas())
def test_replicas_that_read_images_are_worth_the_same_once_or_each(plan):
    plan = priced(plan)
    once, each = (scored(plan, whole) for whole in (0, plan.size))
    assert (len(once.tasks) < len(each.tasks)) == bool(identical_groups(plan, 0).groups)
    require_worth_the_same(once, each)
    assert once.timeline.module_seconds() == each.timeline.module_seconds()


@examples(60)
@given(any_fed_replicas() | any_placed_replicas())
def test_a_search_finds_the_same_of_replicas_once_or_each(plan):
    """What fits and what does not, on every rank, and how long the step takes."""
    found = []
    for whole in (0, plan.size):
        with unfolded_up_to(whole):
            tried = TriedPlan(priced(plan))
            tried.require_memory()
            found.append((tried.memory.peaks, tried.least_peaks, tried.least_seconds, tried.step_seconds()))
    assert found[0] == found[1]


@examples(60)
@given(any_placed_replicas())
def test_a_placement_without_a_group_is_one_of_each_group(plan):
    """Every rank has the same tasks in the same order, of which the same run beside others; but where idle ranks join
    an encoder's micro-batches, which no group names.
    """
    assume(plan.layouts["vit"].zero != 3)
    (step,) = plan.steps
    if plan.layouts["vit"].zero == 3:  # ranks without work join, which no placement can name
        return
    places = tuple(
        with_fields(place, on=group)
        for place in step.placements
        for group in step.micro_batches[place.moved.micro_batch]["vit"]
    )
    rules = tuple(each for each in step.placed if each.is_rule)
    named = with_fields(plan, steps=(with_fields(step, order={"place": (*rules, *places)}),))
    assert not violations(named) and (not places or not identical_groups(named, 0).groups)
    one, other = (expand(each) for each in (plan, named))
    for rank in range(plan.size):
        assert [t.id for t in one if rank in t.ranks] == [t.id for t in other if rank in t.ranks]
    assert {t.id for t in one if t.beside} == {t.id for t in other if t.beside}
    each, alone = (scored(priced(of), plan.size) for of in (plan, named))
    assert each.step_seconds == alone.step_seconds and each.memory == alone.memory


@pytest.mark.every(3)
def test_every_rank_is_simulated_or_stands_behind_one_that_is(plan):
    timeline = scored(plan, 0).timeline
    simulated = {rank for rank in range(plan.size) if rank not in timeline.representative_rank}
    assert {timeline.representative_of(rank) for rank in range(plan.size)} == simulated
    assert timeline.representative_rank.keys() == timeline.groups_of.keys()
    for rank, groups in timeline.groups_of.items():
        group = next(name for name in groups if name in plan.groups and rank in plan.groups[name].ranks)
        place = plan.groups[group].ranks.index(rank)
        assert timeline.representative_rank[rank] == plan.groups[timeline.representative_group[group]].ranks[place]
    doing = timeline.rank_multiplicity()
    assert sum(doing(Ranks((rank,))) for rank in range(plan.size)) == plan.size


@pytest.mark.every(3)
def test_the_fullest_rank_is_that_of_all(plan):
    whole, few = (scored(plan, most) for most in (plan.size, 0))
    assert few.fullest_rank == whole.fullest_rank == whole.memory.peaks.index(max(whole.memory.peaks))
    assert few.peak_bytes == whole.peak_bytes


@given(
    st.lists(st.lists(st.integers(0, 2), min_size=4, max_size=4), min_size=1, max_size=4),
    st.integers(1, 3),
    st.sampled_from((0, 1, 3)),
    st.randoms(use_true_random=False),
)
def test_any_prices_give_all_ranks_the_same_times(rows, pp, zero, chance):
    """Prices that look at sizes, layers and phase alone; of replicas, some are alike and some are not."""
    plan = replicas(rows, pp)
    plan = with_fields(plan, layouts={"llm": with_fields(plan.layouts["llm"], zero=zero)})
    require_the_same_times(plan, chance)


@examples(100)
@given(any_fed_replicas(("llm", "seer", "late")), st.randoms(use_true_random=False))
def test_any_prices_give_replicas_that_read_images_the_same_times(plan, chance):
    """Of the tokens, or by cross attention: in each of two stages, or in one of them alone."""
    assert not violations(plan)
    require_the_same_times(plan, chance)


def require_the_same_times(plan: Plan, chance: Random) -> None:
    costs: dict[tuple, Cost] = {}

    def price(task: Task) -> Cost:
        key = task.module, task.phase, task.of, task.layers, task.sizes, task.micro_batch is None
        return costs.setdefault(key, Cost(chance.randint(0, 8) / 8, "measured", 0.0, chance.randint(0, 2) / 16))

    others = identical_groups(plan, 0)
    each = simulate(expand(plan), price, plan.size)
    once = simulate(expand(plan, 0, others.ranks), price, plan.size, others)
    assert once.step_seconds == each.step_seconds
    assert once.rank_breakdowns() == each.rank_breakdowns()
    ends = {event.id: (event.start, event.end) for event in each.events}
    assert all(ends[event.id] == (event.start, event.end) for event in once.events)
