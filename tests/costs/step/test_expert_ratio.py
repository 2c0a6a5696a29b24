"""Compute over exchange of experts: the published formula, and the priced seconds against it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.costs.layout_columns import LayoutColumns
from planner.costs.step.expert_ratio import expert_ratio, published_ratio, width_ratio
from planner.specs.base import with_fields
from planner.specs.layers.components import Experts
from tests.costs.machines import MIXTRAL, ideal


def test_a_narrow_expert_on_one_adapter_is_bound_by_exchange():
    """Width 1408 on 50 GB/s beside 989 TFLOP/s: about 0.12 on 8 ranks (arXiv 2505.11432)."""
    assert float(width_ratio(1408, 50e9, 989e12, 8)) == pytest.approx(0.122, abs=1e-3)
    assert np.isinf(width_ratio(1408, 50e9, 989e12, 1))


@given(
    ep=st.sampled_from([2, 4, 8, 16]),
    ffn=st.sampled_from([768, 1408, 14336]),
    topk=st.integers(1, 8),
    gated=st.booleans(),
)
def test_priced_seconds_without_launches_give_the_formula(ep, ffn, topk, gated):
    """Within a node: the slowest link joins all ranks. Beyond it, what stays in the node is not sent by the adapter."""
    module = with_fields(MIXTRAL, gated=gated, moe=Experts(experts=64, topk=topk, ffn=ffn))
    at = LayoutColumns(ranks=64, seq=4096, batch=64, ep=ep)
    found, formula = float(expert_ratio(module, at, ideal())), float(published_ratio(module, at, ideal()))
    assert found == pytest.approx(formula) if ep <= 8 else found > formula


def test_where_no_tokens_travel_there_is_no_bound():
    at = LayoutColumns(ranks=64, seq=4096, batch=64, ep=np.array([1, 8]))
    assert np.isinf(expert_ratio(MIXTRAL, at, ideal())).tolist() == [True, False]
