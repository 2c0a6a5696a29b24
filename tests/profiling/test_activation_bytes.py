"""What autograd keeps, counted against what can be counted by hand, and against the memory that stays alive."""

import pytest
import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from planner.costs.layout_columns import LayoutColumns
from planner.costs.memory.activations import layer_activations
from planner.models.build import build, init_weights
from planner.models.inputs.training_items import synthetic_batch
from planner.profiling.fsdp_without_communication import LayerStack
from planner.profiling.module_bench import module_activation_bytes, saved_bytes
from planner.specs.framework.memory_coefficients import PLANNER_RUNTIME_MEMORY
from planner.specs.layers import Decoder, Vit
from planner.specs.parallelism import SELECTIVE_PARTS

TOKENS, FLOAT = 12, 4
SHAPES = [
    Decoder(layers=3, hidden=64, heads=4, ffn=128, vocab=96),
    Decoder(layers=2, hidden=64, heads=4, ffn=128, vocab=96, gated=False, norm="layer", bias="all"),
    Vit(layers=4, hidden=64, heads=4, ffn=128, patch=2, out=32),
]


def test_a_perceptron_keeps_its_input_and_what_lies_between():
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 5))
    x = torch.randn(TOKENS, 8)
    assert saved_bytes(lambda: model(x), model.parameters()) == TOKENS * (8 + 32) * FLOAT


def test_storages_count_once_and_whole():
    x = torch.randn(TOKENS, 8, requires_grad=True)
    assert saved_bytes(lambda: (x * x).sum(), []) == TOKENS * 8 * FLOAT
    assert saved_bytes(lambda: x[:2] * x[2:4], []) == TOKENS * 8 * FLOAT  # two views keep the whole alive
    assert saved_bytes(lambda: x * x, [x]) == 0
    assert saved_bytes(lambda: x + 1, []) == 0


def test_without_gradients_nothing_is_kept_after_all_but_it_is_counted_with_them():
    model = nn.Linear(8, 8)
    x = torch.randn(TOKENS, 8)
    with torch.no_grad():
        assert saved_bytes(lambda: model(x), model.parameters()) == TOKENS * 8 * FLOAT


@pytest.mark.parametrize("spec", SHAPES)
def test_layers_and_ends_keep_together_what_the_model_keeps(spec):
    batch = synthetic_batch(spec, [(0, 40), (1, 24)], 0)
    layer, ends, _ = module_activation_bytes(spec, batch, torch.float32, torch.device("cpu"))
    alone = LayoutColumns(ranks=1, seq=64, batch=1, dtype="float32")
    analytic = 64 * float(layer_activations(spec, spec.layer_kind(0), alone, PLANNER_RUNTIME_MEMORY).with_recompute)
    assert 0.8 * analytic < layer < 1.6 * analytic
    model = build(spec)
    init_weights(model, 0)
    whole = saved_bytes(lambda: model(batch), model.parameters())
    assert spec.layers * layer + ends == pytest.approx(whole, rel=0.05)


@pytest.mark.parametrize("spec", SHAPES)
def test_what_is_made_again_is_not_kept(spec):
    batch = synthetic_batch(spec, [(0, 40), (1, 24)], 0)
    layer, _, (selective, full) = module_activation_bytes(spec, batch, torch.float32, torch.device("cpu"))
    assert layer > selective > full == 64 * spec.hidden * FLOAT  # its input
    alone = LayoutColumns(ranks=1, seq=64, batch=1, dtype="float32", recomputed_parts=SELECTIVE_PARTS)
    analytic = 64 * float(layer_activations(spec, spec.layer_kind(0), alone, PLANNER_RUNTIME_MEMORY).with_recompute)
    assert 0.8 * analytic < selective < 1.6 * analytic


class Alive(TorchDispatchMode):
    """The memory that operations gave out, as long as anybody holds it; what was there `before` aside."""

    def __init__(self, before):
        super().__init__()
        self.before = {tensor.untyped_storage().data_ptr() for tensor in before}
        self.seen = {}

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        found = operation(*args, **(kwargs or {}))
        for tensor in tree_leaves(found):
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in self.before:
                self.seen[storage.data_ptr()] = StorageWeakRef(storage), storage.nbytes()
        return found

    @property
    def bytes(self):
        return sum(size for storage, size in self.seen.values() if not storage.expired())


@pytest.mark.parametrize("how", ["none", "selective", "full"])
@pytest.mark.parametrize("spec", SHAPES)
def test_what_is_counted_is_what_stays_alive(spec, how):
    batch = synthetic_batch(spec, [(0, 40), (1, 24)], 0)
    stack = LayerStack(spec, 3, torch.float32, torch.device("cpu"))
    init_weights(stack, 0)
    stack.set_recompute(how)
    x = torch.randn(64, spec.hidden, requires_grad=True)
    rotary = build(spec).position_encoding(x, batch)
    known = [*stack.parameters(), *(rotary or ())]
    counted = saved_bytes(lambda: stack(x, rotary, batch), known)
    with Alive([*known, x]) as alive:
        result = stack(x, rotary, batch)
    assert alive.bytes + x.nbytes - result.nbytes == pytest.approx(counted, rel=0.02)
