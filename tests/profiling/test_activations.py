"""What autograd keeps, counted against what can be counted by hand."""

import pytest
import torch
from torch import nn

from planner.costs.static.activations import layer_bytes
from planner.costs.static.setup import Setup
from planner.models.build import build, init_weights
from planner.models.data import packed_batch
from planner.profiling.activations import kept_bytes, module_kept
from planner.specs.accounting import BUNDLED
from planner.specs.layers import layer_kind
from planner.specs.model import Decoder, Vit

TOKENS, FLOAT = 12, 4


def test_a_perceptron_keeps_its_input_and_what_lies_between():
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 5))
    x = torch.randn(TOKENS, 8)
    assert kept_bytes(lambda: model(x), model.parameters()) == TOKENS * (8 + 32) * FLOAT


def test_storages_count_once_and_whole():
    x = torch.randn(TOKENS, 8, requires_grad=True)
    assert kept_bytes(lambda: (x * x).sum(), []) == TOKENS * 8 * FLOAT
    assert kept_bytes(lambda: x[:2] * x[2:4], []) == TOKENS * 8 * FLOAT  # two views keep the whole alive
    assert kept_bytes(lambda: x * x, [x]) == 0
    assert kept_bytes(lambda: x + 1, []) == 0


def test_without_gradients_nothing_is_kept_after_all_but_it_is_counted_with_them():
    model = nn.Linear(8, 8)
    x = torch.randn(TOKENS, 8)
    with torch.no_grad():
        assert kept_bytes(lambda: model(x), model.parameters()) == TOKENS * 8 * FLOAT


@pytest.mark.parametrize(
    "spec",
    [
        Decoder(layers=3, hidden=64, heads=4, ffn=128, vocab=96),
        Decoder(layers=2, hidden=64, heads=4, ffn=128, vocab=96, gated=False, norm="layer", bias="all"),
        Vit(layers=4, hidden=64, heads=4, ffn=128, patch=2, out=32),
    ],
)
def test_layers_and_ends_keep_together_what_the_model_keeps(spec):
    batch = packed_batch(spec, [(0, 40), (1, 24)], 0)
    layer, ends = module_kept(spec, batch, torch.float32, torch.device("cpu"))
    alone = Setup(ranks=1, seq=64, batch=1, precision="float32")
    analytic = 64 * float(layer_bytes(spec, layer_kind(spec, 0), alone, BUNDLED).partly)
    assert 0.8 * analytic < layer < 1.6 * analytic
    model = build(spec)
    init_weights(model, 0)
    whole = kept_bytes(lambda: model(batch), model.parameters())
    assert spec.layers * layer + ends == pytest.approx(whole, rel=0.05)
