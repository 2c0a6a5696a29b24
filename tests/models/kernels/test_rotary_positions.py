"""Rotary positions are rotations of complex numbers by powers of the base, and norms add the eps of the spec."""

import pytest
import torch

from planner.models.build import build, init_weights
from planner.models.inputs.training_items import synthetic_batch
from planner.models.kernels.rotary_positions import apply_rotary, rotary_table
from planner.models.layers.linear import build_norm
from planner.specs.base import with_fields
from planner.specs.layers import Decoder, Vit

SPEC = Decoder(layers=1, hidden=8, heads=2, ffn=8, vocab=9)


@pytest.mark.parametrize("base", [10000.0, 500000.0, 2.0])
@pytest.mark.parametrize("width", [2, 6, 16])
def test_pairs_are_rotated_by_powers_of_the_base(base, width):
    positions = torch.tensor([0, 1, 5, 4000])
    x = torch.randn(4, 3, width, dtype=torch.float64)
    pairs = torch.complex(x[..., : width // 2], x[..., width // 2 :])
    angles = positions[:, None, None] * torch.tensor(
        [base ** (-2 * i / width) for i in range(width // 2)], dtype=torch.float64
    )
    want = pairs * torch.polar(torch.ones_like(angles), angles)
    got = apply_rotary(x, rotary_table(positions, width, torch.float64, base))
    torch.testing.assert_close(got, torch.cat([want.real, want.imag], -1), rtol=1e-12, atol=1e-12)


def test_a_network_uses_the_base_of_its_spec():
    losses = []
    for base in (10000.0, 100.0, 10000.0):
        model = build(with_fields(SPEC, rope_base=base), dtype=torch.float64)
        init_weights(model, 1)
        losses.append(model(synthetic_batch(SPEC, [(0, 20)], 2)).item())
    assert losses[0] == losses[2] != losses[1]


@pytest.mark.parametrize("eps", [1e-5, 0.25])
@pytest.mark.parametrize("kind", ["rms", "layer"])
def test_norms_add_their_eps(eps, kind):
    vit = Vit(layers=1, hidden=8, heads=2, ffn=8, patch=2, out=8)
    x = torch.randn(5, 8, dtype=torch.float64)
    centred = x - (x.mean(-1, keepdim=True) if kind == "layer" else 0)
    want = centred / (centred.square().mean(-1, keepdim=True) + eps).sqrt()
    for spec in (SPEC, vit):
        made = build_norm(with_fields(spec, norm=kind, norm_eps=eps), torch.float64)
        torch.testing.assert_close(made(x), want, rtol=1e-12, atol=1e-14)
