"""Passes on a share of a device: none is faster than on a whole device, and whole devices are priced as ever."""

from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import files
from planner.costs import step_prices
from planner.costs.compute.contention import ASSUMED_SHARES, DeviceUse, concurrent_demand, slowdown
from planner.costs.pricing import pricing_of
from planner.plan.plan_file import Plan, SharedDeviceItems
from planner.plan.task import PASS_PHASES
from planner.plan.tasks.expand import expand
from planner.specs.base import with_fields

SHARED = files.read(Path(__file__).parents[2] / "golden/by_hand/shared-devices/plan.yaml", Plan)
SHARES = st.sampled_from((0.1, 0.25, 0.3, 0.5, 0.75, 0.9))
SECONDS = st.floats(0.0, 10.0)
USES = st.tuples(SHARES, SECONDS, SECONDS, st.none() | SECONDS).map(lambda each: DeviceUse(*each))


def whole(plan: Plan) -> Plan:
    """The same, in which everything has all of its devices."""
    (step,) = plan.steps
    micro_batches = (
        {module: unshared(groups) for module, groups in micro_batch.items()} for micro_batch in step.micro_batches
    )
    return with_fields(plan, steps=(with_fields(step, micro_batches=tuple(micro_batches)),))


def unshared(groups: dict) -> dict:
    return {group: said.items if isinstance(said, SharedDeviceItems) else said for group, said in groups.items()}


@given(USES)
def test_a_whole_device_has_no_slowdown(use):
    assert slowdown(use._replace(share=1.0), []) == 1.0


@pytest.mark.slow
@given(USES, SHARES)
def test_slowdown_of_a_share_is_bounded_by_one_over_the_share(use, less):
    lower, higher = sorted((use.share, less))
    assert use._replace(share=lower).share_seconds >= use._replace(share=higher).share_seconds >= use.device_seconds
    assert use.share_seconds <= use.device_seconds / use.share * (1 + 1e-12)


def test_half_of_the_compute_uses_all_memory_bandwidth():
    """By hand: 3 s of compute and 1 s of memory on half a device, next to a pass that streams all the time."""
    own, other = DeviceUse(0.5, 3.0, 1.0, 1.4), DeviceUse(0.5, 0.0, 2.0, 2.0)
    assert ASSUMED_SHARES.kappa == 2.0 and own.share_seconds == 7.0 and own.bandwidth_share == pytest.approx(0.2)
    assert slowdown(own, [other]) == pytest.approx(7.0 / 4.0 * (1.0 + ASSUMED_SHARES.gamma * 0.2))


@given(SHARES, st.lists(USES, max_size=5))
def test_no_others_that_fit_demand_more_than_is_counted(own, others):
    """Against all sets of passes that fit next to one at a time."""
    room = 1.0 - own
    for count in range(len(others) + 1):
        for some in combinations(others, count):
            if sum(use.share for use in some) <= room:
                assert sum(use.bandwidth_share for use in some) <= concurrent_demand(room, others) + 1e-9


@given(USES, st.lists(USES, max_size=4), USES)
def test_one_more_concurrent_pass_makes_nothing_faster(own, others, one):
    assert slowdown(own, [*others, one]) >= slowdown(own, others) * (1 - 1e-12)


def test_passes_with_a_share_take_longer_and_others_what_they_took():
    plan, alone = SHARED, whole(SHARED)
    price, before = step_prices(pricing_of(plan), expand(plan)), step_prices(pricing_of(alone), expand(alone))
    for task, same in zip(expand(plan), expand(alone), strict=True):
        cost, usual = price.alone(task), before.alone(same)
        if task.phase in PASS_PHASES and task.share < 1:
            assert cost.comm == usual.comm
            assert (
                usual.value
                < cost.value
                <= usual.value / task.share * (1 + ASSUMED_SHARES.gamma * (ASSUMED_SHARES.kappa - 1.0))
            )
            assert (cost.source, cost.spread) == ("analytic", usual.spread + ASSUMED_SHARES.spread)
        elif task.phase not in ("gather", "sync"):  # these have more compute beside them
            assert cost == usual


def test_fits_count_as_compute():
    """Nothing runs next to it: its fits take four times as long on a quarter of the device."""
    plan = files.read(Path(__file__).parents[2] / "golden/by_hand/mixed-groups/plan.yaml", Plan)
    (step,) = plan.steps
    micro_batches = (
        {"llm": {name: SharedDeviceItems(items=of, share=0.25) for name, of in micro_batch.items()}}
        for micro_batch in step.micro_batches
    )
    quarter = with_fields(plan, steps=(with_fields(step, micro_batches=tuple(micro_batches)),))
    usual, price = pricing_of(plan), pricing_of(quarter)
    for task, same in zip(expand(quarter), expand(plan), strict=True):
        if task.group in ("g2", "g3"):
            assert price.price(task).value == pytest.approx(4.0 * usual.price(same).value)
