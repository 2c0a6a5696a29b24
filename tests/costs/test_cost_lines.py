"""Cost lines over sequences, sums of costs, and what a plan must carry to be priced."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.costs.compute.fit_lines import fit_line, pass_fit
from planner.costs.cost_lines import Cost, CostLine, LaunchTerm, RingTerm, WindowTerm, least_trusted, total_cost
from planner.costs.pricing import pricing_of
from planner.errors import InputError
from planner.plan.tasks.expand import expand
from planner.specs.base import with_fields
from planner.specs.hardware.profile import ModuleCosts, PassCosts, PassFit
from tests.plans import sharded_plan

PASSES = PassCosts(
    forward=PassFit(ms_per_token2=1e-6, ms_per_token=0.1, ms=0.5), backward=PassFit(ms_per_token=0.3, ms=1.0)
)
COSTS = ModuleCosts(source="measured", spread=0.1, layer=PASSES, ends=PASSES)


def test_a_sum_is_as_trustworthy_as_its_worst_part():
    assert least_trusted(["measured", "published", "fitted"]) == "published"
    total = total_cost(Cost(3.0, "measured", 0.1, 1.0), Cost(1.0, "analytic", 0.5), Cost(0.0, "published", 9.0))
    assert total == Cost(4.0, "analytic", pytest.approx((3 * 0.1 + 1 * 0.5) / 4), 1.0)


def test_published_passes_are_shared_out_and_add_up():
    both = PassCosts(both=PassFit(ms_per_token2=3.0, ms_per_token=6.0, ms=9.0), forward_share=0.25)
    forward, backward = pass_fit(both, True), pass_fit(both, False)
    assert (forward.ms, backward.ms) == (2.25, 6.75)
    assert forward.ms_per_token2 + backward.ms_per_token2 == 3.0


def test_lines_of_half_the_layers_are_half_the_line():
    whole, half = (fit_line(COSTS, layers, False, True, 1) for layers in (4, 2))
    assert whole == half + half
    shared = fit_line(COSTS, 4, False, True, 4)
    assert shared.const == whole.const > 0  # launches are everybody's
    assert shared.seconds((4, 8)) - shared.const == pytest.approx((whole.seconds((4, 8)) - whole.const) / 4)
    assert fit_line(COSTS, 4, True, True, 1).lin > whole.lin
    assert CostLine(1.0, 2.0, 3.0).seconds((2, 1)) == 5.0 + 2.0 * 3 + 3.0


PARTS = st.builds(
    CostLine,
    quad=st.floats(0, 1e-6),
    lin=st.floats(0, 1e-3),
    const=st.floats(0, 1),
    rings=st.lists(st.builds(RingTerm, st.floats(0, 1e-2), st.floats(0, 1e-5)), max_size=2).map(tuple),
    windows=st.lists(
        st.builds(WindowTerm, st.floats(0, 1e-6), st.floats(0, 500), st.integers(1, 5000), st.booleans()), max_size=2
    ).map(tuple),
)
HOSTED = st.builds(
    lambda line, host, times: replace(line, launches=(LaunchTerm(times, line, host),)),
    PARTS,
    st.floats(1e-6, 1),
    st.floats(0.1, 9),
)
SIZES = st.lists(st.integers(1, 20_000), min_size=1, max_size=5)


@given(HOSTED, HOSTED, SIZES, st.floats(0.1, 50))
def test_lines_add_up_and_multiply(one, other, sizes, times):
    for name in ("seconds", "comm_seconds"):
        mine, yours = getattr(one, name)(sizes), getattr(other, name)(sizes)
        assert getattr(one + other, name)(sizes) == pytest.approx(mine + yours)
        assert getattr(one * times, name)(sizes) == pytest.approx(times * mine)


@given(HOSTED, HOSTED, st.lists(SIZES | st.just([]), max_size=4))
def test_packs_by_sums_of_their_items_parts_take_what_each_takes(one, other, packs):
    line, parts = one + other, np.zeros((len(packs), 3))
    for number, sizes in enumerate(packs):
        parts[number] = sum((np.array(line.item_parts(size)) for size in sizes), np.zeros(3))
    assert line.packed_seconds(parts) == pytest.approx([line.seconds(sizes) if sizes else 0.0 for sizes in packs])


@given(PARTS, SIZES)
def test_items_take_what_each_takes_and_the_constant_unless_the_host_is_slower(line, sizes):
    each = sum(line.item_seconds(size) for size in sizes)
    assert line.seconds(sizes) == pytest.approx(line.const + each)
    hosted = replace(line, launches=(LaunchTerm(1.0, line, 5.0),))
    slower = max(5.0, line.seconds(sizes))
    assert slower - 1e-9 <= hosted.seconds(sizes) <= 2**0.25 * slower + 1e-9
    assert (
        hosted.const + sum(hosted.item_seconds(size) for size in sizes) <= hosted.seconds(sizes) + 1e-9
    )  # no more than it adds


@given(st.integers(1, 300), st.integers(1, 300), st.booleans())
def test_a_window_counts_the_pairs_that_it_sees(size, window, causal):
    """Against a count token by token; causal pairs on the diagonal and at the window's edge count half."""
    seen = WindowTerm(1.0, 0.0, window, causal).item_seconds(size)
    if causal:
        assert seen == sum(min(token, window) for token in range(1, size + 1)) - min(size, window) / 2
    else:
        assert seen == min(size, window) * size


def test_without_prices_there_is_no_pricing():
    plan = sharded_plan(2, [[(0, 2)]])
    with pytest.raises(InputError, match="no prices for `llm`"):
        pricing_of(plan)


def test_gathers_that_the_fits_include_are_free():
    plan = sharded_plan(2, [[(0, 2)]])
    apart, included = (
        pricing_of(
            with_fields(plan, uses=with_fields(plan.uses, prices=with_fields(plan.uses.prices, modules={"llm": costs})))
        )
        for costs in (with_fields(COSTS, sharding=how) for how in ("apart", "included"))
    )
    for task in expand(plan):
        if task.phase in ("gather", "sync"):
            assert apart.price(task).value > 0 == included.price(task).value
        else:
            assert apart.price(task) == included.price(task)
