"""The activations that a layer saves are those that the memory of plans counts, and recompute does not change
gradients.
"""

import pytest
import torch

from planner.models.autograd.activation_offload import storage_address
from planner.models.autograd.recompute import recompute_along, recomputing
from planner.models.build import build, init_weights
from planner.models.inputs.training_items import synthetic_batch
from planner.models.layers.linear import DeferrableLinear
from planner.models.sequence_parallel import NoSequenceParallel
from planner.models.sharding import ModuleShard
from planner.plan.descriptions import flow_text
from planner.specs.base import with_fields
from planner.specs.parallelism import PART_SETS, parts_of
from planner.specs.shapes import attention_output_width, key_width, query_width, value_width
from tests.models.networks.test_network import DOCUMENTS, SHAPES, assert_same, loss_and_gradients
from tests.models.saved_activations import SavedActivations

TOKENS = 32
LAYER = with_fields(
    SHAPES["llama"], norm="layer"
)  # on CPUs RMS norms save more: torch composes them of smaller operations
DECODERS = {
    "gated": LAYER,
    "ungated": with_fields(LAYER, gated=False),
    "a key for each query": with_fields(LAYER, kv_heads=4, hidden=64),
}
DENSE_SETS = [parts for parts in PART_SETS if "moe" not in parts]
FLOAT64 = 8  # bytes
STATISTICS = 2  # per token, saved by a norm


def network(spec, how):
    model = build(spec, dtype=torch.float64, shard=ModuleShard(recompute=dict.fromkeys(range(spec.layers), how)))
    init_weights(model, 1)
    return model


@pytest.mark.every(17)
@pytest.mark.parametrize("how", ["selective", "full", *PART_SETS], ids=flow_text)
@pytest.mark.parametrize("spec", SHAPES.values(), ids=SHAPES)
def test_recompute_changes_no_gradient(spec, how):
    batches = [synthetic_batch(spec, DOCUMENTS, seed=4)]
    assert_same(loss_and_gradients(network(spec, how), batches), loss_and_gradients(network(spec, "none"), batches))


def counted_elements(spec, how):
    """Elements per token that are inputs of products, norms or attention, by hand. The score matrix never exists
    (flash).
    """
    if how == "full":
        return spec.hidden
    parts = parts_of(how)
    attention = query_width(spec) + key_width(spec) + value_width(spec) + attention_output_width(spec)
    if spec.latent:  # the compressed vectors that heads are expanded from
        attention += spec.latent.q_rank + spec.latent.kv_rank + spec.latent.rope_dim
    normed = 0 if "norm" in parts else 2 * spec.hidden
    return 2 * spec.hidden + normed + attention + (0 if "mlp" in parts else mlp_elements(spec))


def mlp_elements(spec):
    """Gate, up, activated gate, product; or up, activated. Experts also keep what is sent to them and what they return,
    and the router's probabilities.
    """
    inner, moe = 4 if spec.gated else 2, spec.moe
    if moe is None:
        return inner * spec.ffn
    return inner * (moe.topk * moe.ffn + moe.shared_ffn) + 2 * moe.topk * spec.hidden + moe.experts


def saved_elements(spec, how):
    """Elements per token that a layer saves whose input x comes from another layer."""
    model, batch = network(spec, how), synthetic_batch(spec, [(0, TOKENS)], seed=4)
    x = torch.randn(TOKENS, spec.hidden, dtype=torch.float64, requires_grad=True) + 0
    rotary = model.position_encoding(x, batch)
    with SavedActivations(resident=rotary) as kept:
        model.layers["1"](x, rotary, batch)
    return kept.bytes / FLOAT64 / TOKENS


@pytest.mark.every(4)
@pytest.mark.parametrize("how", ["none", "selective", "full", *DENSE_SETS], ids=flow_text)
@pytest.mark.parametrize("name", DECODERS)
def test_a_layer_saves_what_is_counted(name, how):
    spec, parts = DECODERS[name], parts_of(how)
    # Attention saves a number per head and, per document, its output twice; a norm its mean and deviation.
    attended = 0 if "attention" in parts else spec.heads + attention_output_width(spec)
    beside = attended + STATISTICS * (1 if {"norm", "mlp"} <= parts else 2)
    want = counted_elements(spec, how) + (beside if how != "full" else 0)
    assert saved_elements(spec, how) == want


def test_selective_recomputes_neither_projections_nor_attention(monkeypatch):
    spec, seen = SHAPES["llama"], []
    model, batch = network(spec, "selective"), synthetic_batch(spec, DOCUMENTS, seed=4)
    for name, module in model.named_modules():
        if isinstance(module, DeferrableLinear):
            module.register_forward_hook(lambda *_, name=name: seen.append(name))
    attend = NoSequenceParallel.attend
    monkeypatch.setattr(NoSequenceParallel, "attend", lambda *args: (seen.append("attend"), attend(*args))[1])
    loss = model(batch)
    forward, seen[:] = sorted(seen), []
    loss.backward()
    assert forward.count("attend") == spec.layers
    assert seen
    assert all(".mlp." in name for name in seen)


def test_a_norm_is_recomputed_once_for_all_that_read_it():
    made = []

    def double(x):
        made.append(x)
        return 2 * x

    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    weights = [torch.randn(3, 3, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    with SavedActivations() as kept, recomputing(double, x) as y:
        z = recompute_along(lambda y: y + 1, y)
        out = sum((z @ weight).square().sum() for weight in weights)
    assert storage_address(z) not in kept.sizes
    out.backward()
    assert len(made) == 2
    want = torch.autograd.grad(sum(((2 * x + 1) @ weight).square().sum() for weight in weights), weights)
    torch.testing.assert_close([weight.grad for weight in weights], list(want), rtol=1e-12, atol=0)
