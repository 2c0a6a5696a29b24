"""Latent attention equals its definition, head by head, token by token."""

import pytest
import torch

from planner.models.build import build, init_weights
from planner.models.inputs.training_items import synthetic_batch
from planner.models.layers.latent_attention import LatentAttention
from planner.specs.layers import Decoder
from planner.specs.layers.components import LatentAttentionShape
from tests.models.networks.test_network import assert_same, loss_and_gradients

SHAPE = {"layers": 2, "hidden": 24, "heads": 4, "ffn": 20, "vocab": 30}
LATENT = LatentAttentionShape(q_rank=6, kv_rank=5, rope_dim=4, nope_dim=3, value_dim=7)
DOCUMENTS = [(3, 9), (0, 1), (7, 14)]
SPECS = {
    "whole": Decoder(**SHAPE, latent=LATENT),
    "direct queries": Decoder(
        **SHAPE, latent=LatentAttentionShape(kv_rank=5, rope_dim=4, nope_dim=3, value_dim=7), bias="all"
    ),
    "layer norm, sinks, window": Decoder(**SHAPE, latent=LATENT, norm="layer", bias="qkv", sinks=True, window=4),
}


def model_of(spec):
    model = build(spec, dtype=torch.float64)
    init_weights(model, 1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1 and not name.endswith("sinks"):  # biases and norms with an effect
                parameter += 0.3 * torch.randn(parameter.shape, dtype=torch.float64)
    return model


def rotated(x, place, base=10000.0):
    """One vector as pairs (i, i + D / 2), rotated by its position."""
    half = len(x) // 2
    pairs = torch.complex(x[:half], x[half:])
    angles = torch.tensor([place * base ** (-2 * i / len(x)) for i in range(half)], dtype=torch.float64)
    pairs = pairs * torch.polar(torch.ones(half, dtype=torch.float64), angles)
    return torch.cat([pairs.real, pairs.imag])


def by_definition(attention: LatentAttention, latent: LatentAttentionShape, x, window=None):
    """One document `(n, hidden)`, eqs. 37 to 47 of the paper, one head and pair of tokens at a time."""
    c_q = x if attention.query_down is None else attention.query_norm(attention.query_down(x))
    down = attention.key_down(x)
    c_kv, k_r = attention.key_norm(down[:, : latent.kv_rank]), down[:, latent.kv_rank :]
    width, made = latent.nope_dim + latent.rope_dim, latent.nope_dim + latent.value_dim
    queries, keys = attention.query_up(c_q), attention.key_up(c_kv)
    outputs = []
    for head in range(attention.heads):
        q, kv = queries[:, head * width : (head + 1) * width], keys[:, head * made : (head + 1) * made]
        rows = []
        for t in range(len(x)):
            seen = range(max(0, t - (window or len(x)) + 1), t + 1)
            own = torch.cat([q[t, : latent.nope_dim], rotated(q[t, latent.nope_dim :], t)])
            scores = [own @ torch.cat([kv[s, : latent.nope_dim], rotated(k_r[s], s)]) / width**0.5 for s in seen]
            if attention.sinks is not None:
                scores.append(attention.sinks[head])
            weights = torch.stack(scores).softmax(0)
            rows.append(sum(weights[i] * kv[s, latent.nope_dim :] for i, s in enumerate(seen)))
        outputs.append(torch.stack(rows))
    return attention.output(torch.cat(outputs, 1))


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_equals_the_definition(spec):
    model = model_of(spec)
    batch = synthetic_batch(spec, DOCUMENTS, seed=4)
    x = model.embed(batch).detach()
    attention = model.layers["0"].attention
    got = attention(x, model.position_encoding(x, batch), batch)
    lengths = [length for _, length in DOCUMENTS]
    want = torch.cat([by_definition(attention, spec.latent, part, spec.window) for part in x.split(lengths)])
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_packing_changes_nothing(spec):
    model = model_of(spec)
    packed = loss_and_gradients(model, [synthetic_batch(spec, DOCUMENTS, seed=4)])
    apart = loss_and_gradients(model, [synthetic_batch(spec, [document], seed=4) for document in DOCUMENTS])
    assert_same(packed, apart)
    assert all(gradient.any() for gradient in packed[1].values())
