"""The audio encoder equals Whisper's definition with torch's convolutions over whole clips, for any shards."""

import math

import pytest
import torch
import torch.nn.functional as F

from planner.models.build import build, init_weights
from planner.models.inputs.training_items import synthetic_batch, synthetic_item
from planner.models.networks.audio_network import sinusoidal_positions
from planner.models.sequence_parallel import NoSequenceParallel
from planner.specs.layers import Audio
from planner.specs.sequence_sharding import rank_spans
from tests.models.networks.test_network import assert_same, loss_and_gradients

SPEC = Audio(layers=2, hidden=24, heads=4, ffn=20, mels=5, pool=2, out=6)
DOCUMENTS = [(3, 8), (0, 2), (7, 14)]


class Shard(NoSequenceParallel):
    """One of six shards; attention is not used."""

    def __init__(self, place):
        self.place = place

    def local_spans(self, lengths):
        return rank_spans(lengths, (2, 3), self.place, SPEC.pool)


def model_of(spec=SPEC):
    model = build(spec, dtype=torch.float64)
    init_weights(model, 1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter += 0.3 * torch.randn(parameter.shape, dtype=torch.float64)
    return model


def clip(item, tokens, seed=4):
    """All frames of one clip, `(mels, 2 tokens)`, from the middle frames of single tokens."""
    windows = torch.cat([synthetic_item(SPEC, item, (token, token + 1), seed)[0] for token in range(tokens)])
    return windows[:, 2:4].flatten(0, 1).T.double()


def kernel(matrix):
    """The weight of a convolution, `(out, in, 3)`."""
    return matrix.view(len(matrix), -1, 3)


def by_definition(model, frames):
    """conv1d, GELU, conv1d of stride 2, GELU, and the table (arXiv 2212.04356, §2.2; openai/whisper's AudioEncoder)."""
    x = F.gelu(F.conv1d(frames[None], kernel(model.sounds.weight), model.sounds.bias, padding=1))
    x = F.gelu(F.conv1d(x, kernel(model.halved.weight), model.halved.bias, stride=2, padding=1))
    half = SPEC.hidden // 2
    waves = torch.exp(-math.log(10000) / (half - 1) * torch.arange(half, dtype=torch.float64))
    angles = torch.arange(x.shape[2])[:, None] * waves
    return x[0].T + torch.cat([angles.sin(), angles.cos()], 1)


def test_tokens_equal_two_convolutions():
    model = model_of()
    got = model.embed(synthetic_batch(SPEC, DOCUMENTS, seed=4))
    want = torch.cat([by_definition(model, clip(*document)) for document in DOCUMENTS])
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("place", range(6))
def test_a_shard_depends_on_neighbouring_frames(place):
    model, shard = model_of(), synthetic_batch(SPEC, DOCUMENTS, 4, sequence_parallel=Shard(place))
    starts = {0: 0, 1: 8, 2: 10}
    lengths = [length for _, length in DOCUMENTS]
    whole = model.embed(synthetic_batch(SPEC, DOCUMENTS, 4))
    held = Shard(place).local_spans(lengths)
    want = [whole[starts[document] + first : starts[document] + last] for document, first, last in held]
    torch.testing.assert_close(model.embed(shard), torch.cat(want), rtol=0, atol=1e-14)


def test_neighbouring_tokens_share_frames():
    inputs, targets = synthetic_item(SPEC, 5, (3, 9), seed=1)
    assert inputs.shape == (6, 5, SPEC.mels) and targets.shape == (3, SPEC.out)
    assert torch.equal(inputs[1:, :3], inputs[:-1, 2:])
    assert inputs.min() < 0 < inputs.max()


@pytest.mark.parametrize("tokens", [2, 6])
def test_a_clip_is_padded_with_zeros(tokens):
    inputs = synthetic_batch(SPEC, [(0, tokens)], seed=1).inputs
    assert not inputs[0, :2].any() and not inputs[-1, 4:].any()
    assert inputs[0, 2:].any(1).all() and inputs[-1, :4].any(1)[-2:].all()


def test_outputs_are_projected_means():
    model, x = model_of(), torch.randn(6, SPEC.hidden, dtype=torch.float64)
    got = model.output_tokens(x, synthetic_batch(SPEC, [(0, 6)], seed=1))
    want = model.projector(model.norm(torch.stack([x[at : at + 2].mean(0) for at in (0, 2, 4)])))
    torch.testing.assert_close(got, want, rtol=1e-13, atol=1e-13)


def test_packing_changes_nothing():
    model = model_of()
    packed = loss_and_gradients(model, [synthetic_batch(SPEC, DOCUMENTS, seed=4)])
    apart = loss_and_gradients(model, [synthetic_batch(SPEC, [document], seed=4) for document in DOCUMENTS])
    assert_same(packed, apart)


def test_an_idle_rank_has_zero_gradients():
    loss, gradients = loss_and_gradients(model_of(), [synthetic_batch(SPEC, [], seed=4)])
    assert loss == 0
    assert all(gradient is not None and not gradient.any() for gradient in gradients.values())


def test_every_token_depends_on_its_whole_clip_alone():
    model = model_of()
    batch = synthetic_batch(SPEC, DOCUMENTS, seed=4)
    x = model.embed(batch).detach().requires_grad_()
    y = model.layers["0"](x, model.position_encoding(x, batch), batch)
    (gradient,) = torch.autograd.grad(y[12].sum(), x)
    assert gradient.norm(dim=1).nonzero()[:, 0].tolist() == list(range(10, 24))


def test_the_position_table_has_the_width_asked_for():
    for width in (1, 2, 7, 8):
        table = sinusoidal_positions(torch.arange(5), width)
        assert table.shape == (5, width) and table.abs().max() <= 1
