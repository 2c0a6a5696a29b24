"""Matrices sharded over tp, with any other field of a layout, give the loss and the gradients of one process."""

import pytest

from planner.runtime.run_options import RunOptions, TrainingOptions
from planner.specs.layers import Decoder, Vit
from tests.runtime.training_worlds import run_all, spread

pytestmark = pytest.mark.soak  # the matrix has a part of them

SHAPE = {"layers": 4, "hidden": 32, "heads": 8, "ffn": 48, "vocab": 64}
GPT = Decoder(**SHAPE, gated=False, norm="layer", bias="all", positions="learned", max_positions=60, tied=True)
VIT = Vit(layers=4, hidden=32, heads=8, ffn=48, patch=2, merge=2, out=6)
ODD = Decoder(layers=4, hidden=32, heads=12, kv_heads=3, head_dim=4, ffn=45, vocab=63, bias="qkv")
BLOCKS, BOTH = [(0, 1), (2, 3)], [(0, 1, 2, 3)]
HALF, FLOAT = {"dtype": "bf16"}, {"dtype": "float32"}

PLANS = {
    "tp 4": spread(4, tp=4),
    "tp 4, one kv head": spread(4, Decoder(**SHAPE, kv_heads=1), tp=4),
    "tp 4, two kv heads": spread(4, Decoder(**SHAPE, kv_heads=2, bias="qkv"), tp=4, recompute="full"),
    "zero 0, blocks of unlike sizes": spread(4, dp=2, tp=2, zero=0, rows=[BLOCKS, [(2, 3)], [(0, 1)]]),
    "zero 1, ulysses": spread(4, dp=2, tp=2, zero=1, rows=[BOTH, BLOCKS]),
    "zero 2, replicas": spread(4, replica=2, tp=2, zero=2, rows=[BLOCKS, BOTH]),
    "zero 3, idle ranks": spread(4, dp=2, tp=2, zero=3, rows=[BLOCKS, [(2, 3)], BOTH]),
    "zero 3, kv and vocabulary whole": spread(4, ODD, dp=2, tp=2, zero=3, rows=[BLOCKS, BOTH]),
    "pipeline": spread(4, pp=2, tp=2, zero=1),
    "interleaved, tp slowest": spread(4, tp=2, pp=2, rank_order="pp-tp", vpp=2, rows=[BOTH] * 2),
    "gpt": spread(4, GPT, dp=2, tp=2, zero=2, rows=[BLOCKS, BOTH], recompute="full"),
    "gpt, pipeline": spread(4, GPT, pp=2, tp=2),
    "gpt, tied over a pipeline": spread(4, GPT, dp=2, pp=2, rank_order="pp-dp", zero=3, rows=[BLOCKS, BOTH]),
    "vit": spread(4, VIT, dp=2, tp=2, zero=1, rows=[BLOCKS, BOTH]),
    "vit, tp 4": spread(4, VIT, tp=4),
    "float32": spread(4, ODD, dp=2, tp=2, zero=1, rows=[BOTH, BLOCKS], **FLOAT),
    "bf16": spread(4, dp=2, tp=2, zero=3, rows=[BOTH, BLOCKS], **HALF),
}
WITHOUT = {  # tensor parallelism: the same items
    "llama, dp 4": spread(4, dp=4),
    "gpt, dp 4": spread(4, GPT, dp=4),
}
EXACT = (1e-12, 1e-12)  # of the loss, and of the worst gradient
TOLERANCE = {"float32": (1e-6, 1e-5), "bf16": (1e-2, 5e-2)}
OPTIONS = RunOptions(steps=3, verify=True, seed=5, training=TrainingOptions(learning_rate=3e-3))


@pytest.fixture(scope="module")
def results():
    return run_all(4, PLANS | WITHOUT, OPTIONS)


@pytest.mark.parametrize("name", PLANS)
def test_loss_and_gradients_are_those_of_one_process(results, name):
    verified, (loss, gradient) = results[name].verify, TOLERANCE.get(name, EXACT)
    assert verified.steps == 1
    assert (verified.loss_rel_err <= loss, verified.grad_rel_err <= gradient) == (True, True), verified


@pytest.mark.parametrize(
    ("name", "without"), [("tp 4", "llama, dp 4"), ("pipeline", "llama, dp 4"), ("gpt, pipeline", "gpt, dp 4")]
)
def test_ranks_with_the_same_parameters_go_on_alike(results, name, without):
    """Else the losses of later steps would not be those of the same training without tensor parallelism."""
    losses, want = ([step.loss for step in results[key].steps] for key in (name, without))
    assert losses == pytest.approx(want, rel=1e-9)
    assert len(set(losses)) == 3
