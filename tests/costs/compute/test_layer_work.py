"""The work of all ranks adds up to the model's, however it is sharded."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.costs.compute.layer_work import head_work, layer_work
from planner.costs.layout_columns import LayoutColumns
from planner.specs.shapes import embedding_head_flops, layer_flops
from tests.costs.machines import GPT, LLAMA, MIXTRAL

POWERS = st.sampled_from([1, 2, 4, 8])


def flops(work):
    return sum(float(np.asarray(p.flops)) for p in work.matmuls) + (work.attention.flops if work.attention else 0.0)


@given(tp=POWERS, cp=POWERS, micro=POWERS, module=st.sampled_from([GPT, LLAMA]))
def test_dense_ranks_share_the_layers_flops(tp, cp, micro, module):
    setup = LayoutColumns(ranks=64, seq=2048, batch=64, micro_batch=micro, tp=tp, cp=cp)
    squared, per_token = layer_flops(module, "dense")
    whole = micro * (squared * 2048**2 + per_token * 2048)
    assert tp * cp * flops(layer_work(module, "dense", setup)) == pytest.approx(whole, rel=1e-3)  # norms and biases


@given(ep=POWERS, tp=st.sampled_from([1, 2, 4]), etp=st.sampled_from([1, 2]))
def test_experts_ranks_share_the_layers_flops(ep, tp, etp):
    """Of the mean rank, with its own tokens' copies; ranks of etp get each other's, and have a shard of each expert."""
    setup = LayoutColumns(ranks=64, seq=2048, batch=64, tp=tp, ep=ep, etp=etp)
    squared, per_token = layer_flops(MIXTRAL, "moe")
    whole = squared * 2048**2 + per_token * 2048
    assert tp * flops(layer_work(MIXTRAL, "moe", setup)) == pytest.approx(whole, rel=1e-3)


@given(tp=POWERS)
def test_the_head_is_split_over_the_vocabulary(tp):
    setup = LayoutColumns(ranks=64, seq=2048, batch=64, tp=tp)
    assert tp * flops(head_work(LLAMA, setup)) == pytest.approx(2048 * embedding_head_flops(LLAMA), rel=1e-9)


def test_a_gpt_is_korthikantis_formula():
    """Equation 7 of arXiv 2205.05198, of a third of three passes: 24·s·h²·(1 + s/6h) a layer, with full attention.

    A causal mask removes half of what is squared.
    """
    s, h = 2048, GPT.hidden
    work = layer_work(GPT, "dense", LayoutColumns(ranks=1, seq=s, batch=1))
    assert flops(work) + work.attention.flops == pytest.approx(24 * s * h**2 * (1 + s / (6 * h)), rel=1e-9)


@pytest.mark.parametrize("sequence_parallel", [True, False])
def test_norms_are_split_over_tp_only_by_sequence_parallelism(sequence_parallel):
    one, eight = (
        layer_work(
            GPT, "dense", LayoutColumns(ranks=8, seq=2048, batch=8, tp=tp, sequence_parallel=sequence_parallel)
        ).memory_bytes
        for tp in (1, 8)
    )
    assert one / eight == pytest.approx(8.0) if sequence_parallel else 1.0 < one / eight < 8.0


def test_a_window_bounds_the_pairs():
    setup = LayoutColumns(ranks=1, seq=8192, batch=1)
    full, narrow = (layer_work(LLAMA, "dense", setup, window).attention for window in (None, 1024))
    assert narrow.pairs == 8192 * 1024 - 1024**2 / 2 < full.pairs == 8192**2 / 2
