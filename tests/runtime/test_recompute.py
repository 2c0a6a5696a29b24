"""Recomputation in the backward pass gives the numbers of one process, and repeats no all-to-all of heads."""

import pytest

from planner.specs.base import with_fields
from planner.specs.layers.components import Experts
from tests.examples import soaked
from tests.runtime.training_worlds import DECODER, asked_for, run_all, spread

pytestmark = pytest.mark.slow

MOE = with_fields(DECODER, moe=Experts(experts=4, topk=2, ffn=16, shared_ffn=16, dense_layers=1))
RANGES = {"0": "full", "1-2": "selective"}
SHARED = {"dp": 4, "rows": [[(0, 1), (2, 3)], [(0, 1, 2, 3)]]}
BLOCKS = {"dp": 2, "tp": 2, "rows": [[(0, 1, 2, 3)], [(0, 1), (2, 3)]]}
LAYOUTS = {
    "zero 3": {**SHARED, "zero": 3},
    "zero 1": {**SHARED, "zero": 1},
    "staged": {"pp": 2, "dp": 2, "zero": 1},
    "tensor parallel": {**BLOCKS, "zero": 1},
}
FLOAT64 = 8  # bytes
HOW = {"none": "none", "selective": "selective", "ranges": RANGES, "parts": ("attention", "norm")}
PLANS = {
    **{(name, how): spread(4, **layout, recompute=HOW[how]) for name, layout in LAYOUTS.items() for how in HOW},
    ("experts", "selective"): spread(4, MOE, **SHARED, zero=3, ep=2, recompute="selective"),
    ("experts", "full"): spread(4, MOE, **SHARED, zero=3, ep=2, recompute="full"),
    ("experts", "parts"): spread(4, MOE, **SHARED, zero=3, ep=2, recompute=("norm", "moe")),
    ("experts, tensor parallel", "parts"): spread(
        4, MOE, **BLOCKS, zero=1, ep=2, etp=2, recompute={"0-1": ("attention", "mlp"), 2: ("moe",)}
    ),
    ("experts, tensor parallel", "selective"): spread(4, MOE, **BLOCKS, zero=1, ep=2, etp=2, recompute="selective"),
}


COMPARED = ("none", "selective", "ranges")  # by what their backwards send
SENT = (*(("zero 3", how) for how in COMPARED), ("tensor parallel", "none"), ("tensor parallel", "selective"))
OFTEN = (*SENT, ("experts, tensor parallel", "parts"))  # the others in the soak


@pytest.fixture(scope="module")
def results(request):
    compared = {(name, how) for name in asked_for(request, "compared") for how in COMPARED}
    asked = {*asked_for(request, "name", "how"), *compared, *SENT}
    return run_all(4, {name: plan for name, plan in PLANS.items() if name in asked})


@pytest.mark.parametrize(("name", "how"), soaked(PLANS, OFTEN))
def test_loss_and_gradients_are_those_of_one_process(results, name, how):
    verified = results[name, how].verify
    assert (verified.loss_rel_err <= 1e-12, verified.grad_rel_err <= 1e-12) == (True, True), verified


def sent_by_backwards(result):
    return sum(record.sent_bytes for record in result.steps[-1].measured if "/B/" in record.id)


@pytest.mark.parametrize("compared", soaked(["zero 3", "staged"], ["zero 3"]))
def test_selective_exchanges_no_heads_again(results, compared):
    none, selective, ranges = (sent_by_backwards(results[compared, how]) for how in COMPARED)
    assert ranges > selective == none > 0  # full does


def test_a_block_gathers_the_norms_outputs_again_and_adds_up_none(results):
    """Each rank of two sends its rows to the other: for attention and for the MLP of each layer."""
    plain, again = (results["tensor parallel", how] for how in ("none", "selective"))
    rows = plain.steps[-1].tokens
    more = sent_by_backwards(again) - sent_by_backwards(plain)
    assert more == 2 * DECODER.layers * rows * DECODER.hidden * FLOAT64
