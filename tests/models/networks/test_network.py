"""The loss and gradients of a network over a packed batch are the sums over its documents."""

import pytest
import torch

from planner.models.build import build, init_weights
from planner.models.inputs.training_items import synthetic_batch
from planner.models.sharding import FULL_MODULE, ModuleShard
from planner.specs.layers import Audio, Decoder, TextEncoder, Vit
from planner.specs.workload.items import packed_documents

DOCUMENTS = [(3, 8), (0, 4), (7, 20)]
SHAPES = {
    "llama": Decoder(layers=2, hidden=32, heads=4, kv_heads=2, ffn=48, vocab=50),
    "gpt": Decoder(layers=2, hidden=32, heads=4, ffn=48, vocab=50, gated=False, norm="layer", bias="all",
                   positions="learned", max_positions=20, tied=True),
    "relative": Decoder(layers=2, hidden=32, heads=4, kv_heads=2, ffn=48, vocab=50, positions="relative", buckets=8,
                        scaled_head=True, activation="relu", gated=False),
    "bert": TextEncoder(layers=2, hidden=32, heads=4, ffn=48, vocab=50, max_positions=20, segments=2, input_norm=True,
                        post_norm=True, predicts=True, pooled=True, classes=2),
    "text": TextEncoder(layers=2, hidden=32, heads=4, ffn=48, vocab=50, positions="relative", buckets=6, norm="rms",
                        bias="none", gated=True),
    "vit": Vit(layers=2, hidden=32, heads=4, ffn=48, patch=2, merge=2, out=6),
}  # fmt: skip


def network(spec, held=FULL_MODULE):
    model = build(spec, dtype=torch.float64, shard=held)
    init_weights(model, 1)
    return model


def loss_and_gradients(model, batches):
    model.zero_grad()
    loss = sum(model(batch) for batch in batches)
    loss.backward()
    return loss.detach(), {name: parameter.grad for name, parameter in model.named_parameters()}


def assert_same(left, right, rtol=1e-12):
    torch.testing.assert_close(left[0], right[0], rtol=rtol, atol=0)
    smallest = 1e-3 * max(
        gradient.norm() for gradient in right[1].values()
    )  # the gradient of a key's bias is zero up to noise
    for name, gradient in left[1].items():
        assert (gradient - right[1][name]).norm() <= rtol * max(right[1][name].norm(), smallest), name


@pytest.mark.parametrize("spec", [SHAPES["vit"], Audio(layers=2, hidden=16, heads=4, ffn=24, mels=3, pool=2, out=6)])
def test_parts_of_an_item_are_independent(spec):
    """The loss and gradients of an item of several parts are the sums over the parts."""
    model, parts = network(spec), packed_documents((3,), ((8, 4),))
    together = loss_and_gradients(model, [synthetic_batch(spec, parts, seed=4)])
    assert_same(together, loss_and_gradients(model, [synthetic_batch(spec, [part], seed=4) for part in parts]))
    whole, _ = loss_and_gradients(model, [synthetic_batch(spec, [(3, 12)], seed=4)])
    assert abs(whole - together[0]) > 1e-6 * whole


@pytest.mark.parametrize("spec", SHAPES.values(), ids=SHAPES)
def test_packing_changes_nothing(spec):
    model = network(spec)
    packed = loss_and_gradients(model, [synthetic_batch(spec, DOCUMENTS, seed=4)])
    apart = loss_and_gradients(model, [synthetic_batch(spec, [document], seed=4) for document in DOCUMENTS])
    assert_same(packed, apart)


@pytest.mark.parametrize("spec", SHAPES.values(), ids=SHAPES)
def test_recompute_changes_nothing(spec):
    batches = [synthetic_batch(spec, DOCUMENTS, seed=4)]
    kept = loss_and_gradients(network(spec), batches)
    again = ModuleShard(recompute=dict.fromkeys(range(spec.layers), "full"))
    assert_same(loss_and_gradients(network(spec, held=again), batches), kept)


def test_chunks_of_the_loss_change_nothing_and_bound_the_logits(monkeypatch):
    spec = SHAPES["llama"]
    batches = [synthetic_batch(spec, DOCUMENTS, seed=4)]
    whole = loss_and_gradients(network(spec), batches)
    model, seen = network(spec), []
    model.loss_tokens = 7
    inner = model._losses
    monkeypatch.setattr(model, "_losses", lambda tensor, x, y: (seen.append(len(x)), inner(tensor, x, y))[1])
    assert_same(loss_and_gradients(model, batches), whole)
    assert max(seen) == 7
    assert sum(seen) == 2 * 32  # once in forward, once recomputed in backward


@pytest.mark.parametrize("spec", SHAPES.values(), ids=SHAPES)
def test_an_idle_rank_has_zero_loss_and_gradients(spec):
    loss, gradients = loss_and_gradients(network(spec), [synthetic_batch(spec, [], seed=4)])
    assert loss == 0
    assert all(gradient is not None and not gradient.any() for gradient in gradients.values())


def test_tokens_depend_on_earlier_ones_of_their_document_alone():
    spec = SHAPES["llama"]
    model = network(spec)
    batch = synthetic_batch(spec, DOCUMENTS, seed=4)
    x = model.embed(batch).detach().requires_grad_()
    y = model.layers["0"](x, model.position_encoding(x, batch), batch)
    (gradient,) = torch.autograd.grad(y[9].sum(), x)  # the second token of the second document
    assert gradient.norm(dim=1).nonzero()[:, 0].tolist() == [8, 9]
