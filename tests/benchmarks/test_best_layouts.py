"""The best layout of a space: no other of it that fits is quicker, and less freedom is never better."""

import numpy as np
import pytest

from benchmarks.best_layouts import Step, best_layout
from benchmarks.moe_folding import (
    FOLDED,
    METHODS,
    UNFOLDED,
    Published,
    eos,
    mfu_of,
    pick_of,
    quicker_dispatch,
)
from planner.specs.layers import Decoder
from planner.specs.layers.components import Experts
from planner.specs.parallelism import Parallelism

SMALL = Decoder(
    layers=8, hidden=2048, heads=16, kv_heads=8, ffn=5632, vocab=32000, moe=Experts(experts=8, topk=2, ffn=5632)
)


@pytest.mark.slow
def test_the_best_is_the_least_over_each_choice_of_a_degree():
    step = Step(SMALL, 16, 4096, 32)
    best = best_layout(step, eos())
    each = [best_layout(step, eos(), Parallelism(tp=tp)) for tp in (1, 2, 4, 8)]
    assert best.seconds == min(pick.seconds for pick in each if pick)


def test_what_is_not_allowed_is_not_chosen():
    step = Step(SMALL, 16, 4096, 32)
    pick = best_layout(step, eos(), allowed=lambda space: space["pp"] == 4)
    assert pick.columns.pp == 4 and pick.seconds >= best_layout(step, eos()).seconds
    assert best_layout(step, eos(), allowed=lambda space: np.zeros(len(space["tp"]), dtype=bool)) is None


@pytest.mark.slow
def test_folding_never_loses_to_what_it_contains():
    model = Published("small", SMALL, 32, dict.fromkeys(METHODS))
    reached = {method: pick_of(model, method) for method in METHODS}
    assert reached[FOLDED].seconds <= reached[UNFOLDED].seconds <= reached["TP + EP + DP"].seconds
    assert reached["FSDP + EP"].seconds <= reached["FSDP"].seconds
    assert all(0.0 < mfu_of(model, pick) < 1.0 for pick in reached.values())
    plain = reached[UNFOLDED].columns
    assert plain.etp == plain.tp and plain.pipelines % plain.ep == 0


@pytest.mark.parametrize("topk, way", [(4, "all_to_all"), (8, "all_to_all"), (9, "all_gather")])
def test_all_gather_pays_from_more_experts_a_token_than_ranks(topk, way):
    """Theory of arXiv 2505.11432: 2·(k/n)·bsh against 2·bsh, over n = 8 ranks."""
    assert quicker_dispatch(topk) == way
