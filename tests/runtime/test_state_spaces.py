"""Layers of state spaces, linear and other attention, MLPs and experts, one block or several each, sharded over ranks:
the loss and the gradients of one process.
"""

import pytest

from planner.specs.base import with_fields
from planner.specs.layers import Decoder
from planner.specs.layers.components import Experts, LinearAttention, StateSpace
from tests.examples import soaked
from tests.runtime.training_worlds import asked_for, run_all, spread

pytestmark = pytest.mark.slow

SHAPE = {"layers": 4, "hidden": 32, "heads": 8, "kv_heads": 4, "ffn": 48, "vocab": 64}
PLAIN = {"gated": False, "activation": "relu2", "positions": "none"}
SPACE = StateSpace(heads=4, head_dim=8, state=6, groups=2, chunk=8, step_min=0.001)
NEMOTRON = Decoder(**SHAPE, **PLAIN, state_space=SPACE, pattern="M - * M")
BAMBA = Decoder(**SHAPE, state_space=SPACE, pattern="M- *- M- M-", rotary_share=0.5, tied=True)
MOE = Decoder(
    **SHAPE, **PLAIN, state_space=SPACE, pattern="ME M *E -", moe=Experts(experts=4, topk=2, ffn=16, shared_ffn=8)
)
BIASED = with_fields(NEMOTRON, state_space=with_fields(SPACE, bias=True, step_max=0.05))
LINEAR = LinearAttention(heads=8, key_heads=4, key_dim=6, value_dim=5, conv=3, chunk=8)
NEXT = Decoder(
    **SHAPE, linear_attention=LINEAR, pattern="LE *E L- LE", attention_gate=True, qk_norm=True, rotary_share=0.5,
    moe=Experts(experts=4, topk=2, ffn=16, shared_ffn=8, shared_gate=True),
)  # fmt: skip
NARROW = with_fields(MOE, moe=with_fields(MOE.moe, latent=12))
ALONE = [(0,), (1,), (2,), (3,)]
UNEQUAL = [ALONE, ALONE[:1], ALONE[1:]]
DATA, STAGES = {"dp": 4, "rows": UNEQUAL}, [[(0, 2), (1, 3)], [(0, 2)], [(1, 3)]]
RANGES = {"0": "full", "1-2": "selective"}
PLANS = {
    "zero 0": spread(4, NEMOTRON, **DATA, zero=0),
    "zero 1, full": spread(4, NEMOTRON, **DATA, zero=1, recompute="full"),
    "zero 2, replicas": spread(4, BAMBA, replica=2, dp=2, zero=2, rows=UNEQUAL),
    "zero 3": spread(4, NEMOTRON, **DATA, zero=3),
    "zero 3, selective": spread(4, BAMBA, **DATA, zero=3, recompute="selective"),
    "tensor parallel": spread(4, NEMOTRON, tp=2, dp=2, zero=1, rows=[[(0, 1), (2, 3)], [(2, 3)]]),
    "tensor parallel, selective": spread(
        4, BIASED, tp=2, dp=2, zero=3, rows=[[(0, 1), (2, 3)], [(0, 1)]], recompute="selective"
    ),
    "tensor parallel stages": spread(4, BAMBA, tp=2, pp=2, recompute="full"),
    "tensor parallel, experts": spread(4, MOE, tp=2, dp=2, zero=1, ep=2, etp=2, rows=[[(0, 1), (2, 3)]] * 2),
    "pipeline": spread(4, NEMOTRON, pp=4, recompute=RANGES),
    "pipeline of pairs": spread(4, BAMBA, pp=2, dp=2, zero=1, rows=STAGES, recompute="full"),
    "interleaved": spread(4, NEMOTRON, pp=2, dp=2, vpp=2, zero=1, rows=STAGES[:1] * 2),
    "zero bubble": spread(4, NEMOTRON, pp=2, dp=2, zero=1, rows=STAGES[:1] * 3, order="zb_h1"),
    "experts": spread(4, MOE, **DATA, zero=3, ep=2, recompute="selective"),
    "linear attention": spread(4, NEXT, **DATA, zero=3, ep=2, recompute="selective"),
    "linear attention, tensor parallel": spread(4, NEXT, tp=2, pp=2, ep=2, recompute="full"),
    "latent experts": spread(4, NARROW, tp=2, dp=2, zero=1, ep=2, etp=2, rows=[[(0, 1), (2, 3)]] * 2),
    "experts of a stage": spread(4, MOE, pp=2, dp=2, zero=1, ep=2, rows=STAGES[:1] * 2),
}


OFTEN = ("linear attention", "zero 3, selective", "tensor parallel, experts", "zero bubble")  # the others in the soak


@pytest.fixture(scope="module")
def results(request):
    return run_all(4, {name: PLANS[name] for name in asked_for(request, "name")})


@pytest.mark.parametrize("name", soaked(PLANS, OFTEN))
@pytest.mark.every(2)
def test_loss_and_gradients_are_those_of_one_process(results, name):
    verified = results[name].verify
    assert (verified.loss_rel_err <= 1e-12, verified.grad_rel_err <= 1e-12) == (True, True), verified
