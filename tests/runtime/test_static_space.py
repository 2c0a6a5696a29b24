"""Every kind of static layout that a search may propose trains like one process: one of each, in float64.

The pairs of choices (`test_layout_pairs.py`) cross what most layouts share; here are the corners of the space: experts
folded over all dims of attention or with a capacity, stages of unequal lengths, recomputation by layer, replicas of
shards, chunks, rings of three, heads and widths that tp does not divide, and ZeRO 2 and 3 under a pipeline.
"""

import pytest

from planner.plan.mesh.rank_mesh import groups_over
from planner.plan.plan_file import ExpertLayout, Layout
from planner.specs.base import Layers, Ranks, with_fields
from planner.specs.layers import Decoder
from planner.specs.layers.components import Experts
from planner.specs.parallelism import MESH_DIMS
from tests.examples import soaked
from tests.runtime.training_worlds import DECODER, asked_for, run_all, spread

pytestmark = pytest.mark.slow

FIVE = with_fields(DECODER, layers=5)
MIXTURE = Decoder(
    layers=3, hidden=16, heads=4, kv_heads=2, ffn=20, vocab=48,
    moe=Experts(experts=8, topk=2, ffn=12, shared_ffn=8, balance=0.1, dense_layers=1),
)  # fmt: skip
FULL = with_fields(MIXTURE, layers=2, moe=with_fields(MIXTURE.moe, capacity=0.75, dense_layers=0))
FEW = with_fields(MIXTURE, layers=2, moe=with_fields(MIXTURE.moe, experts=2))
WHOLE = Decoder(layers=4, hidden=32, heads=12, kv_heads=3, head_dim=4, ffn=45, vocab=63, bias="qkv")
UNEVEN = (Layers([0, 1, 2]), Layers([3, 4]))
LATE = (Layers([0]), Layers([1, 2, 3, 4]))
CHUNKS = (Layers([0, 1]), Layers([2]), Layers([3]), Layers([4]))
SHARING = ("tp", "cp", "pp")  # dims whose ranks work on the same sequences
OTHERWISE = {"0": ExpertLayout(ep=4), "1": ExpertLayout(ep=2, etp=2)}  # experts of either layer
BY_LAYER = {"0-1": "full", "2": "selective"}


def static(size, spec=DECODER, **layout):
    """Four micro-batches, in each of which all ranks that share a sequence, and only they, work on two."""
    mesh = Layout(ranks=Ranks(range(size)), **{name: layout[name] for name in MESH_DIMS if name in layout})
    return spread(size, spec, rows=[[*dict.fromkeys(groups_over(mesh, SHARING).values())]] * 4, **layout)


# The first replica has three micro-batches, and the other one: as many as replicas of unlike ranks are quick.
SHARES = [[Ranks([0, 2]), Ranks([1, 3])], [Ranks([0, 2])], [Ranks([0, 2])]]
INSIDE = [[Ranks([0, 1]), Ranks([2, 3])], [Ranks([0, 1])], [Ranks([0, 1])]]


def shared(rows, **layout):
    """Replicas of two stages of three layers and two, with unequal numbers of micro-batches."""
    return spread(4, FIVE, rows=rows, pp=2, dp=2, stages=UNEVEN, **layout)


SPACE = {
    3: {
        "ring of three": static(3, cp=3),
        "ring of three, zero 3, recomputed": static(3, cp=3, zero=3, recompute="full"),
        "ring of three, window": static(3, with_fields(DECODER, window=6, full_every=2), cp=3, zero=1),
    },
    4: {
        "uneven stages": static(4, FIVE, pp=2, dp=2, stages=UNEVEN, zero=1),
        "uneven stages, all in the last": static(4, FIVE, pp=2, tp=2, stages=LATE, zero=1),
        "uneven stages, backward in two": static(4, FIVE, pp=2, dp=2, stages=UNEVEN, order="zb_h1"),
        **{f"uneven stages and shares, zero {zero}": shared(SHARES, zero=zero) for zero in (0, 1, 2, 3)},
        "uneven stages and shares, side by side": shared(INSIDE, zero=1, rank_order="tp-cp-pp-dp-replica"),
        "uneven stages and shares, recomputed": shared(SHARES, zero=1, recompute=BY_LAYER),
        "uneven chunks": static(4, FIVE, pp=2, vpp=2, dp=2, stages=CHUNKS, zero=1),
        "recomputed by layer": static(4, tp=2, dp=2, zero=1, recompute=BY_LAYER),
        "recomputed by layer, cp, zero 3": static(4, cp=2, dp=2, zero=3, recompute=BY_LAYER),
        "recomputed by layer, experts": static(4, MIXTURE, dp=4, ep=4, zero=1, recompute=BY_LAYER),
        "recomputed by layer, stages": static(4, FIVE, pp=2, dp=2, stages=UNEVEN, recompute=BY_LAYER),
        **{f"replicas, zero {zero}": static(4, replica=2, dp=2, zero=zero) for zero in (1, 3)},
        **{f"replicas, experts, zero {zero}": static(4, MIXTURE, replica=2, dp=2, ep=2, zero=zero) for zero in (1, 3)},
        **{f"interleaved, zero {zero}": static(4, pp=2, vpp=2, dp=2, zero=zero) for zero in (1, 2, 3)},
        "interleaved, zero 1, tp": static(4, pp=2, vpp=2, tp=2, zero=1),
        **{f"stages, zero {zero}": static(4, pp=2, dp=2, zero=zero) for zero in (2, 3)},
        **{f"stages, gpipe, zero {zero}": static(4, pp=2, dp=2, zero=zero, order="gpipe") for zero in (2, 3)},
        "folded experts": static(4, MIXTURE, tp=2, cp=2, ulysses=2, ep=4, zero=1, recompute="full"),
        "capacity, ring": static(4, FULL, cp=2, dp=2, ep=4),
        "experts otherwise in each layer": static(4, FULL, dp=4, zero=3, recompute="full", experts=OTHERWISE),
        "few experts on many ranks": static(4, FEW, dp=4, ep=2, zero=3),
        "one head of keys": static(4, with_fields(DECODER, kv_heads=1), tp=4),
        "heads and words that tp does not divide": static(4, WHOLE, tp=2, dp=2, zero=3),
        "four stages": static(4, pp=4, zero=1),
        "stages, experts, zero 3": static(4, MIXTURE, pp=2, dp=2, ep=2, zero=3, stages=(Layers([0]), Layers([1, 2]))),
    },
    6: {
        "ring of three, tp": static(6, cp=3, tp=2, zero=1),
        "ring of three, dp": static(6, cp=3, dp=2, zero=3),
        "ring of three, heads": static(6, cp=6, ulysses=2, zero=1),
        "ring of three, stages": static(6, cp=3, pp=2, zero=2),
        "three replicas of data": static(6, FIVE, dp=3, pp=2, stages=UNEVEN, zero=1),
        "ring of six": static(6, cp=6),
    },
    8: {
        **{
            f"folded experts, zero {zero}": static(8, MIXTURE, tp=2, cp=2, dp=2, ep=8, zero=zero)
            for zero in (0, 1, 3)
        },
        "folded experts, heads": static(8, MIXTURE, tp=2, cp=2, ulysses=2, dp=2, ep=8, zero=1, recompute="full"),
        "folded experts, width too": static(8, MIXTURE, tp=2, cp=2, dp=2, ep=4, etp=2, zero=1),
        "folded experts, gathered": static(8, MIXTURE, tp=2, cp=2, dp=2, ep=8, zero=1, dispatch="all_gather"),
        "folded experts, replicas": static(8, MIXTURE, tp=2, cp=2, replica=2, ep=8, zero=1),
        "interleaved, replicas, tp": static(8, pp=2, vpp=2, tp=2, replica=2, zero=1),
    },
}  # fmt: skip


OFTEN = (  # of each kind one that `test_layout_pairs.py` has not; the others in the soak
    (3, "ring of three, window"), (4, "uneven stages, backward in two"), (4, "uneven chunks"),
    (4, "recomputed by layer, stages"), (4, "replicas, experts, zero 1"), (4, "folded experts"),
    (4, "uneven stages and shares, zero 1"), (4, "capacity, ring"), (4, "experts otherwise in each layer"),
    (4, "heads and words that tp does not divide"),
)  # fmt: skip


@pytest.fixture(scope="module")
def results(request):
    asked = asked_for(request, "size", "name")
    return {
        size: run_all(size, {name: plan for name, plan in plans.items() if (size, name) in asked})
        for size, plans in SPACE.items()
    }


@pytest.mark.parametrize(
    ("size", "name"), soaked([(size, name) for size, plans in SPACE.items() for name in plans], OFTEN)
)
def test_loss_and_gradients_are_those_of_one_process(results, size, name):
    verified = results[size][name].verify
    assert (verified.loss_rel_err <= 1e-12, verified.grad_rel_err <= 1e-12) == (True, True), verified
