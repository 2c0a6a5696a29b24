"""Kinds of dispatch: which is cheapest, layout by layout, and volumes against MegaScale-MoE's formulas."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.costs.layout_columns import LayoutColumns, stack_columns
from planner.costs.network.expert_dispatch import DISPATCHES, best_dispatch, dispatch_seconds, expert_seconds
from planner.costs.network.layer_traffic import layer_groups, tensor_seconds, ulysses_seconds
from planner.costs.step.static_step import static_step_seconds
from planner.specs.base import with_fields
from planner.specs.framework.timing_coefficients import TimingCoefficients
from planner.specs.layers.components import Experts
from tests.costs.machines import MIXTRAL, ideal, nodes, shipped

NEAR, FAR = 300e9, 25e9
TOKENS, RANKS = 8192, 8


def setup(**fields):
    return LayoutColumns(**{"ranks": 64, "seq": TOKENS, "batch": 64, **fields})


def routed(topk, experts=64):
    return with_fields(MIXTRAL, moe=Experts(experts=experts, topk=topk, ffn=1024))


def attention_volumes(groups):
    """Bytes of attention by tp, and by Ulysses, of one layer and direction, with so many query heads to a key head."""
    module = with_fields(MIXTRAL, heads=8 * groups, kv_heads=8, hidden=1024 * groups)
    by_heads = setup(cp=RANKS, ulysses=RANKS)
    tensor = tensor_seconds(module, "moe", setup(tp=RANKS), ideal(), layer_groups(setup(tp=RANKS), RANKS))[0]
    return (
        module,
        float(tensor) * NEAR,
        float(ulysses_seconds(module, by_heads, ideal(), layer_groups(by_heads, RANKS))) * NEAR,
    )


@pytest.mark.parametrize(("groups", "published"), [(8, 0.28125), (4, 0.3125)])
def test_ulysses_moves_half_of_the_published_share_of_what_tensor_parallelism_moves(groups, published):
    """A rank has b·s·h/n of queries and of outputs, and 1/m of that of keys and of values, of which (n − 1)/n leave it,
    once: (2 + 2/m)·(b·s·h/n)·(n − 1)/n, next to 2·b·s·h·(n − 1)/n by tp. The published formula (arXiv 2505.11432) has
    twice as much for Ulysses, as if it counted what is received too, and 0.28 of tp's volume for 8 queries a key.
    """
    module, tensor, heads = attention_volumes(groups)
    whole = TOKENS * module.hidden * 2
    assert tensor == pytest.approx(2 * whole * (RANKS - 1) / RANKS)
    assert heads == pytest.approx((2 + 2 / groups) * whole / RANKS * (RANKS - 1) / RANKS)
    assert 2 * heads / tensor == pytest.approx(published)


@given(topk=st.integers(1, 16), ranks=st.sampled_from([2, 4, 8]))
def test_experts_move_k_over_n_of_what_tensor_parallelism_of_an_mlp_moves(topk, ranks):
    """Of the same tokens: each of n ranks has b·s/n of them, and 2·(k/n)·b·s·h·(n − 1)/n leave it."""
    spread = dispatch_seconds(routed(topk), setup(ep=ranks, cp=ranks), ideal(), "all_to_all")
    sharded = 2 * TOKENS * MIXTRAL.hidden * 2 * (ranks - 1) / ranks / NEAR
    assert float(spread) / sharded == pytest.approx(topk / ranks)


@given(topk=st.integers(1, 32), imbalance=st.floats(0.0, 1.0))
def test_gathering_takes_over_where_the_fullest_ranks_copies_pass_the_number_of_ranks(topk, imbalance):
    at, machine = setup(ep=RANKS, imbalance=1.0), ideal(TimingCoefficients(imbalance=imbalance))
    load = 1 + imbalance / np.sqrt(64 / RANKS)
    if abs(topk * load - RANKS) > 1e-9:
        best = best_dispatch(routed(topk), at, machine, ("all_to_all", "all_gather"))
        assert best.names == ("all_gather" if topk * load > RANKS else "all_to_all")


def test_uneven_experts_move_the_crossover_of_mixtral_to_where_it_was_measured():
    """More than 6 experts a token on 8 ranks (arXiv 2505.11432), even ones from 8 on: a load between 8/7 and 8/6."""
    module = with_fields(MIXTRAL, moe=with_fields(MIXTRAL.moe, counts=((5.0, 4, 4, 4, 4, 4, 4, 4),)))
    chosen = [
        best_dispatch(
            with_fields(module, moe=with_fields(module.moe, topk=k)), setup(ep=8), ideal(), ("all_to_all", "all_gather")
        ).names.item()
        for k in range(1, 9)
    ]
    assert chosen == ["all_to_all"] * 6 + ["all_gather"] * 2


def test_one_copy_to_each_node_is_cheapest_where_copies_leave_the_node():
    at = setup(ep=32)
    assert best_dispatch(routed(8), at, ideal()).names == "node_level"
    assert best_dispatch(routed(8), at, ideal(network=nodes(25.0, 300.0))).seconds <= dispatch_seconds(
        routed(8), at, ideal(network=nodes(25.0, 300.0)), "all_to_all"
    )


def test_the_cheapest_of_many_layouts_is_that_of_each():
    each = [setup(ep=ep, tp=tp, etp=etp) for ep in (1, 2, 8, 32) for tp in (1, 4) for etp in (1, 2)]
    module, machine = routed(6), shipped()
    many = best_dispatch(module, stack_columns(each), machine)
    for number, at in enumerate(each):
        alone = {kind: float(dispatch_seconds(module, at, machine, kind)) for kind in DISPATCHES}
        assert float(many.seconds[number]) == pytest.approx(min(alone.values()), rel=1e-12)
        assert alone[many.names[number]] == pytest.approx(min(alone.values()), rel=1e-12)


def test_a_step_with_a_choice_of_dispatch_takes_as_long_as_the_fastest_of_them():
    at, machine, kinds = setup(ep=np.array([2.0, 8.0, 32.0])), shipped(), ("all_to_all", "all_gather")
    free = static_step_seconds(routed(6), replace(at, dispatch=kinds), machine).seconds
    fixed = [static_step_seconds(routed(6), replace(at, dispatch=kind), machine).seconds for kind in kinds]
    assert free == pytest.approx(np.min(fixed, axis=0), rel=1e-12)
    assert len({*best_dispatch(routed(6), at, machine, kinds).which.tolist()}) > 1, "layouts differ in what is best"
    assert np.all(expert_seconds(routed(6), "moe", replace(at, dispatch=kinds), machine)[0] > 0)
