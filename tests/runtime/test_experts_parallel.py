"""Experts sharded over a mesh other than attention's give the loss and the gradients of one process."""

import pytest

from planner.plan.plan_file import ExpertLayout
from planner.specs.base import with_fields
from planner.specs.layers import Decoder
from planner.specs.layers.components import Experts
from tests.runtime.training_worlds import run_all, spread

pytestmark = pytest.mark.soak  # the matrix has a part of them

EXPERTS = Experts(experts=8, topk=2, ffn=12)
SHAPE = {"layers": 2, "hidden": 16, "heads": 4, "kv_heads": 2, "ffn": 20, "vocab": 48}
ALONE = [[(0,), (1,), (2,), (3,)], [(1,), (3,)], [(2,)]]  # ranks for themselves, some of them idle
FOLDED = [[(0, 1), (2, 3)], [(0, 1)], [(2, 3)], [(0, 1, 2, 3)], [(1,), (2, 3)]]  # sequence groups, not those of experts
BLOCKS = [[(0, 1), (2, 3)], [(2, 3)], [(0, 1, 2, 3)]]  # the same where ranks 0 and 1, 2 and 3 share matrices
STAGES = [[(0, 1, 2, 3)], [(0, 2), (1, 3)], [(0, 2)], [(1, 3)]]  # where 0 and 1 are the first stage


def mixture(parts=None, **kind):
    """A small decoder with experts."""
    return Decoder(**SHAPE, **(parts or {}), moe=with_fields(EXPERTS, **kind))


GPT = mixture({"gated": False, "bias": "all", "norm": "layer"})
SHARED = mixture(shared_ffn=8, scores="sigmoid", router_bias=True)
BIASED = mixture(router_bias=True, normalised=False, dense_layers=1)
FULL = mixture(capacity=0.75)
BALANCED = mixture(balance=0.2)
BOTH = mixture(balance=0.2, capacity=0.75, shared_ffn=8)


def data(spec, rows, **layout):
    return spread(4, spec, dp=4, rows=rows, **layout)


def staged(spec, **layout):
    return spread(4, spec, pp=2, dp=2, rows=STAGES, ep=2, **layout)


def blocks(spec, rows=BLOCKS, **layout):
    return spread(4, spec, dp=2, tp=2, rows=rows, **layout)


def otherwise(first, last):
    """What is said of the experts of the first layer, and of the last."""
    return {"0": ExpertLayout(**first), "1": ExpertLayout(**last)}


PLANS = {
    4: {
        "zero 0": data(BIASED, ALONE, ep=4, zero=0),
        "zero 1, copies": data(SHARED, FOLDED, ep=2, zero=1),
        "zero 3": data(SHARED, FOLDED, ep=4, zero=3),
        "etp": data(GPT, ALONE, ep=2, etp=2, zero=1),
        "etp alone": data(GPT, FOLDED, etp=4, zero=3, recompute="selective"),
        "few experts on many ranks": data(mixture(experts=2), FOLDED, ep=2, zero=3),
        "all held, balance": data(BALANCED, FOLDED, zero=1, recompute="full"),
        "capacity": data(FULL, FOLDED, ep=4, zero=1),
        "capacity, ring": data(
            BOTH, [[(0, 1), (2, 3)], [(0, 1)]], ep=4, splits={(0, 1): {"ring": 2}, (2, 3): {"ulysses": 2}}
        ),
        "all gather": data(BOTH, FOLDED, ep=4, zero=3, dispatch="all_gather", recompute="full"),
        "all gather, etp first": data(GPT, FOLDED, etp=2, ep=2, dispatch="all_gather"),
        "ranges, zero 3": data(
            BOTH, FOLDED, zero=3, recompute="full", experts=otherwise({"ep": 4}, {"etp": 2, "ep": 2})
        ),
        "ranges, zero 0": data(GPT, ALONE, ep=2, experts=otherwise({"etp": 4, "ep": 1}, {"dispatch": "all_gather"})),
        "ranges, tp, stages": spread(4, BOTH, pp=2, tp=2, zero=1, experts=otherwise({}, {"ep": 2})),
        "replicas": spread(4, BALANCED, replica=2, dp=2, rows=ALONE, ep=2, zero=1),
        "stages, zero 3": staged(BOTH, zero=3, recompute="full"),
        "stages, backward in two": staged(BALANCED, zero=1, order="zb_h1"),
        "stages last": spread(4, BALANCED, dp=2, pp=2, rank_order="pp-dp", rows=[[(0, 1), (2, 3)], [(2, 3)]], etp=2),
        "tp": blocks(SHARED, ep=4, zero=1),
        "tp, zero 3": blocks(BOTH, ep=4, zero=3, recompute="full"),
        "tp, all held": blocks(BALANCED, zero=0),
        "tp, etp": blocks(GPT, ep=2, etp=2, zero=2),
        "tp, stages": spread(4, BOTH, pp=2, tp=2, ep=2, zero=1),
    },
    8: {
        # Experts over all ranks, where none of attention's dims is larger than 2 (arXiv 2504.14960).
        "folded": spread(
            8,
            mixture(shared_ffn=8),
            dp=4,
            tp=2,
            rows=[[(0, 1, 2, 3), (4, 5, 6, 7)], [(4, 5, 6, 7)], [(0, 1, 2, 3), (4, 5), (6, 7)]],
            ep=8,
            zero=1,
        ),
    },
}


EVERY = mixture(experts=4, topk=4, ffn=16)  # no choice that could fall otherwise where numbers are rounded
ROUNDED = {  # dtype → (layouts, how near their losses and gradients are)
    "float32": ({"ep": 4, "zero": 3}, 1e-6, 1e-5),
    "bf16": ({"ep": 2, "etp": 2, "zero": 1, "dispatch": "all_gather"}, 5e-3, 5e-2),
}
LESS_EXACT = {dtype: data(EVERY, FOLDED, dtype=dtype, **layout) for dtype, (layout, _, _) in ROUNDED.items()}


@pytest.fixture(scope="module")
def results():
    return {size: run_all(size, {**plans, **(LESS_EXACT if size == 4 else {})}) for size, plans in PLANS.items()}


@pytest.mark.parametrize(("size", "name"), [(size, name) for size, plans in PLANS.items() for name in plans])
def test_loss_and_gradients_are_those_of_one_process(results, size, name):
    verified = results[size][name].verify
    assert verified.steps == 1
    assert (verified.loss_rel_err <= 1e-12, verified.grad_rel_err <= 1e-12) == (True, True), verified


@pytest.mark.parametrize("dtype", ROUNDED)
def test_products_of_all_experts_in_one_call_are_as_near_as_their_dtype(results, dtype):
    """In these dtypes one call multiplies by all experts of a rank."""
    verified, (_, of_loss, of_gradients) = results[4][dtype].verify, ROUNDED[dtype]
    assert (verified.loss_rel_err <= of_loss, verified.grad_rel_err <= of_gradients) == (True, True), verified
