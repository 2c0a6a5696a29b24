"""The scan in chunks is the recurrence token by token, documents do not see each other, and layers made of other blocks
train as any.
"""

import pytest
import torch
import torch.nn.functional as F

from planner.models.build import build, init_weights
from planner.models.inputs.training_items import synthetic_batch
from planner.models.kernels.chunked_scan import ScanInputs, state_space_scan
from planner.models.sharding import EqualShard, ModuleShard, parameter_splits, take_shard
from planner.models.tensor_region import copy_shared, held_region, whole_region
from planner.specs.layers import Decoder
from planner.specs.layers.components import Experts, StateSpace
from tests.models.networks.test_network import DOCUMENTS, assert_same, loss_and_gradients, network
from tests.models.saved_activations import SavedActivations

SPACE = StateSpace(heads=4, head_dim=6, state=5, groups=2, conv=4, chunk=4)
PLAIN = {"hidden": 32, "heads": 4, "ffn": 48, "vocab": 50}
SHAPES = {
    "nemotron": Decoder(
        **PLAIN, layers=4, kv_heads=2, state_space=SPACE, pattern="M - * M", gated=False, activation="relu2",
        positions="none",
    ),
    "bamba": Decoder(
        **PLAIN, layers=3, state_space=StateSpace(heads=3, head_dim=4, state=7, conv=2, bias=True, step_max=0.05),
        pattern="M- *- M-", rotary_share=0.5,
    ),
    "experts": Decoder(
        **PLAIN, layers=3, state_space=StateSpace(heads=2, head_dim=4, state=3, conv_bias=False, step_min=0.01),
        pattern="ME * *M-", moe=Experts(experts=4, topk=2, ffn=8, shared_ffn=8), gated=False, activation="relu2",
    ),
}  # fmt: skip
every = pytest.mark.parametrize("spec", SHAPES.values(), ids=SHAPES)


def token_by_token(scanned: ScanInputs, lengths: list[int]) -> torch.Tensor:
    """The recurrence by its definition."""
    found, token = [], 0
    values, inputs, outputs, steps, decays = scanned
    for length in lengths:
        state = torch.zeros(*values.shape[1:], inputs.shape[2], dtype=values.dtype)
        for _ in range(length):
            moved = (values[token] * steps[token][..., None])[..., None] * inputs[token][:, None, None]
            state = state * (steps[token] * decays).exp()[..., None, None] + moved
            found.append((state * outputs[token][:, None, None]).sum(-1))
            token += 1
    return torch.stack(found)


@pytest.mark.parametrize("chunk", [1, 4, 7, 64])
def test_the_scan_equals_the_recurrence(chunk: int) -> None:
    torch.manual_seed(0)
    lengths, groups, heads = [5, 1, 8, 19], 2, 3
    tokens = sum(lengths)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.float64).requires_grad_()

    values, inputs, outputs = drawn(tokens, groups, heads, 4), drawn(tokens, groups, 5), drawn(tokens, groups, 5)
    leaves = (values, inputs, outputs, drawn(tokens, groups, heads), drawn(groups, heads))
    scanned = ScanInputs(values, inputs, outputs, F.softplus(leaves[3]), -leaves[4].exp())
    weights = torch.randn(tokens, groups, heads, 4, dtype=torch.float64)
    got, want = state_space_scan(scanned, lengths, chunk), token_by_token(scanned, lengths)
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)
    for ours, theirs in zip(
        torch.autograd.grad((got * weights).sum(), leaves, retain_graph=True),
        torch.autograd.grad((want * weights).sum(), leaves),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)


@every
def test_packing_changes_nothing(spec: Decoder) -> None:
    """Neither states nor the convolution cross a document boundary."""
    model = network(spec)
    packed = loss_and_gradients(model, [synthetic_batch(spec, DOCUMENTS, seed=4)])
    apart = loss_and_gradients(model, [synthetic_batch(spec, [document], seed=4) for document in DOCUMENTS])
    assert_same(packed, apart)


def test_a_token_depends_on_all_before_it_in_its_document_alone() -> None:
    spec = SHAPES["nemotron"]
    model = network(spec)
    batch = synthetic_batch(spec, DOCUMENTS, seed=4)  # 8, 4 and 20 tokens
    x = model.embed(batch).detach().requires_grad_()
    y = model.layers["0"](x, model.position_encoding(x, batch), batch)
    (gradient,) = torch.autograd.grad(y[27].sum(), x)
    assert gradient.norm(dim=1).nonzero()[:, 0].tolist() == [*range(12, 28)]


@every
@pytest.mark.parametrize("how", ["selective", "full"])
def test_recompute_changes_nothing(spec: Decoder, how: str) -> None:
    batches = [synthetic_batch(spec, DOCUMENTS, seed=4)]
    again = ModuleShard(recompute=dict.fromkeys(range(spec.layers), how))
    assert_same(loss_and_gradients(network(spec, held=again), batches), loss_and_gradients(network(spec), batches))


@pytest.mark.parametrize(("how", "normed"), [("none", 1), ("selective", 0), ("full", None)])
def test_a_block_saves_the_inputs_and_outputs_of_its_projections(how: str, normed: int | None) -> None:
    spec = Decoder(**PLAIN, layers=1, norm="layer", state_space=SPACE, pattern="M")
    model, tokens, statistics = network(spec, held=ModuleShard(recompute={0: how})), 32, 2
    batch = synthetic_batch(spec, [(0, tokens)], seed=4)
    x = torch.randn(tokens, spec.hidden, dtype=torch.float64, requires_grad=True) + 0
    with SavedActivations() as kept:
        model.layers["0"](x, None, batch)
    want = spec.hidden
    if normed is not None:
        want += normed * spec.hidden + statistics + sum(SPACE.projection_widths) + SPACE.inner_width
    assert kept.bytes == want * tokens * 8


@every
def test_an_idle_rank_has_zero_loss_and_gradients(spec: Decoder) -> None:
    loss, gradients = loss_and_gradients(network(spec), [synthetic_batch(spec, [], seed=4)])
    assert loss == 0
    assert all(gradient is not None and not gradient.any() for gradient in gradients.values())


def test_initial_steps_and_decays_are_those_of_mamba() -> None:
    model = build(SHAPES["nemotron"])
    init_weights(model, 1)
    block = model.layers["0"].state_space
    steps, decays = F.softplus(block.step_bias), block.decay_log.exp()
    assert (steps >= 0.001).all() and (steps <= 0.1).all() and len(steps.unique()) == 4
    assert (decays >= 1).all() and (decays <= 16).all() and len(decays.unique()) == 4
    assert (block.skip == 1).all()


def test_shards_of_groups_make_up_the_block() -> None:
    """The rows of a group are not contiguous in a matrix: those of other groups are between them."""
    spec = SHAPES["nemotron"]
    whole = dict(network(spec).named_parameters())
    made = {name: torch.full_like(parameter, torch.nan) for name, parameter in whole.items()}
    for index in range(2):
        part = network(spec, held=ModuleShard(tp=EqualShard(index, 2)))
        splits = parameter_splits(part)
        assert {"layers.0.state_space.into.weight", "layers.0.state_space.convolution.weight"} < splits.keys()
        for name, parameter in part.named_parameters():
            assert torch.equal(parameter, take_shard(whole[name], splits.get(name, ())))
            part = held_region(parameter, splits.get(name, ()))
            copy_shared(made[name], whole_region(part.full), parameter.detach(), part)
    assert all(torch.equal(made[name], parameter) for name, parameter in whole.items())
