"""Groups that share sequences by rings, heads or both give the loss and the gradients of one process."""

import pytest

from planner.specs.base import with_fields
from planner.specs.layers import Audio, Vit
from planner.specs.layers.components import LatentAttentionShape
from tests.runtime.training_worlds import DECODER, asked_for, run_all, spread

pytestmark = pytest.mark.slow

SMALL = with_fields(DECODER, layers=2)
LATENT = with_fields(
    SMALL, kv_heads=None, latent=LatentAttentionShape(q_rank=16, kv_rank=8, rope_dim=4, nope_dim=4, value_dim=6)
)
DIRECT = with_fields(LATENT.latent, q_rank=0)
VIT = Vit(layers=2, hidden=32, heads=4, ffn=48, patch=2, merge=2, out=6, window=6, full_layers=(1,))
AUDIO = Audio(layers=2, hidden=32, heads=4, ffn=48, mels=5, pool=2, out=6)
MODELS = {
    "window, norms": with_fields(SMALL, window=6, full_every=2, qk_norm=True),
    "sinks": with_fields(SMALL, sinks=True, bias="attention"),
    "latent": LATENT,
    "latent, sinks": with_fields(LATENT, latent=DIRECT, sinks=True, window=9, norm="layer", bias="qkv"),
    "vit": VIT,
    "audio": AUDIO,
}
ALL, LEFT, RIGHT = (0, 1, 2, 3), (0, 1), (2, 3)
RING, BOTH = {"ring": 4}, {"ulysses": 2, "ring": 2}
SPLITS = {ALL: BOTH, (0, 1, 2): {"ring": 3}, LEFT: {"ring": 2}, RIGHT: {"ulysses": 2}, (1, 3): {"ring": 2}}
TURNS = [[ALL], [LEFT, RIGHT]]


def shared(spec=SMALL, rows=TURNS, splits=SPLITS, **layout):
    return spread(4, spec, rows=rows, splits=splits, **{"dp": 4, "zero": 3, **layout})


def with_tp(spec, **layout):
    """Matrices over two ranks, sequences over two others."""
    return spread(4, spec, dp=2, tp=2, rows=[[ALL]] * 2, splits={ALL: {"ring": 2}}, zero=1, **layout)


PLANS = {
    "mixed in one step": shared(rows=[[ALL], [(0, 1, 2), (3,)], [LEFT, RIGHT], [(1, 3), (0,)]]),
    "ring 4, recompute": shared(rows=[[ALL]] * 2, splits={ALL: RING}, zero=0, recompute="full"),
    "hsdp": shared(replica=2, dp=2, recompute="selective"),
    "pp": shared(DECODER, pp=2, dp=2, zero=1, rows=[[ALL]] * 3, splits={ALL: {"ring": 2}}),
    "unequal counts": shared(
        zero=1, rows=[[(3,)], [(0, 1, 2), (3,)], [(3,)], [ALL], [(1,)], [(3,), (1,)]], splits=SPLITS | {ALL: RING}
    ),
    **{name: shared(spec, zero=3 if at % 2 else 1) for at, (name, spec) in enumerate(MODELS.items())},
    **{f"{name}, tp": with_tp(MODELS[name]) for name in ("sinks", "latent", "latent, sinks", "audio")},
}


@pytest.fixture(scope="module")
def results(request):
    return run_all(4, {name: PLANS[name] for name in asked_for(request, "name")})


@pytest.mark.every(4)
@pytest.mark.parametrize("name", PLANS)
def test_loss_and_gradients_are_those_of_one_process(results, name):
    verified = results[name].verify
    assert verified.steps == 1
    assert (verified.loss_rel_err <= 1e-12, verified.grad_rel_err <= 1e-12) == (True, True), verified
