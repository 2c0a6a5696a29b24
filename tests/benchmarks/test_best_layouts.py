"""The best layout of a space: no other of it that fits is quicker, and less freedom is never better."""

import pytest

from benchmarks.best_layouts import Step, best_layout
from benchmarks.moe_folding import (
    eos,
    quicker_dispatch,
)
from planner.specs.layers import Decoder
from planner.specs.layers.components import Experts
from planner.specs.parallelism import Parallelism

SMALL = Decoder(
    layers=8, hidden=2048, heads=16, kv_heads=8, ffn=5632, vocab=32000, moe=Experts(experts=8, topk=2, ffn=5632)
)


@pytest.mark.soak
def test_the_best_is_the_least_over_each_choice_of_a_degree():
    step = Step(SMALL, 16, 4096, 32)
    best = best_layout(step, eos())
    each = [best_layout(step, eos(), Parallelism(tp=tp)) for tp in (1, 2, 4, 8)]
    assert best.seconds == min(pick.seconds for pick in each if pick)


@pytest.mark.parametrize("topk, way", [(4, "all_to_all"), (8, "all_to_all"), (9, "all_gather")])
@pytest.mark.every(3)
def test_all_gather_pays_from_more_experts_a_token_than_ranks(topk, way):
    """Theory of arXiv 2505.11432: 2·(k/n)·bsh against 2·bsh, over n = 8 ranks."""
    assert quicker_dispatch(topk) == way
