"""A mixture of experts is the sum of its experts' outputs by the router's weights: all of them computed for all tokens,
or only those that were chosen, by either back end.
"""

import itertools
import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from planner.models.autograd.auxiliary_loss import AuxiliaryLosses
from planner.models.autograd.deferred_weights import DeferredGradients, deferring_weight_gradients
from planner.models.batch import Batch
from planner.models.build import build, init_weights
from planner.models.inputs.training_items import synthetic_batch
from planner.models.kernels import grouped_gemm
from planner.models.layers.mixture_of_experts import MixtureOfExperts, drop_over_capacity, load_balancing_loss
from planner.models.sharding import FULL_MODULE, EqualShard, ExpertShard, expert_parameters, parameter_splits
from planner.models.token_dispatch import LOCAL_DISPATCHER, ExpertChoice, combine_outputs
from planner.specs.layers import Decoder
from planner.specs.layers.components import Experts
from planner.specs.parameters import layer_parameters, parameter_counts

SHAPE = {"layers": 3, "hidden": 16, "heads": 4, "ffn": 24, "vocab": 30}
EXPERTS = {"experts": 6, "topk": 2, "ffn": 8}
TOKENS = 23
KINDS = {
    "softmax": {},
    "as they are": {"normalised": False},
    "sigmoid": {"scores": "sigmoid"},
    "biased choice": {"scores": "sigmoid", "router_bias": True, "normalised": False},
    "biased logits": {"router_bias": True},
    "shared": {"shared_ffn": 12},
    "one": {"topk": 1},
    "all": {"topk": 6},
    "balanced": {"balance": 0.3},
    "balanced sigmoid": {"balance": 0.3, "scores": "sigmoid"},
    "full": {"capacity": 0.7},
}
PARTS = {"plain": {}, "gpt": {"gated": False, "bias": "all", "norm": "layer"}, "biased": {"bias": "all"}}


def made(parts, dtype=torch.float64, **kind):
    """A mixture of experts with weights, and tokens for it; biases are nonzero, so that errors in them show."""
    spec = Decoder(**SHAPE, **PARTS[parts], moe=Experts(**{**EXPERTS, **kind}))
    torch.manual_seed(3)
    moe = MixtureOfExperts(spec, spec.moe, 1, dtype, FULL_MODULE)
    for parameter in moe.parameters():
        torch.nn.init.normal_(parameter, 0.0, 0.4)
    return moe, torch.randn(TOKENS, spec.hidden, dtype=dtype, requires_grad=True)


def batch_of(slices=(), auxiliary=None):
    nothing = torch.zeros(0)
    return Batch(
        inputs=nothing,
        targets=nothing,
        positions=nothing,
        cu_seqlens=nothing,
        capacity_slices=slices,
        auxiliary=auxiliary or AuxiliaryLosses(),
    )


def dense(moe, x, slices=None):
    """Every expert applied to every token, and the load-balancing loss."""
    said, own = moe.moe, moe.experts
    logits = x @ moe.router.weight.T
    bias = 0.0 if moe.router.bias is None else moe.router.bias
    if said.scores == "softmax":
        scores = ranked = (logits + bias).softmax(-1)
    else:
        scores, ranked = logits.sigmoid(), logits.sigmoid() + bias
    best = ranked.argsort(-1, descending=True)[:, : said.topk]
    chosen = torch.zeros_like(scores).scatter(1, best, 1.0)
    weights = scores * chosen
    if said.normalised:
        weights = weights / weights.sum(-1, keepdim=True)
    for rows in slices or [range(len(x))]:
        taken = [0] * said.experts
        for row, expert in itertools.product(rows, range(said.experts)):
            taken[expert] += bool(chosen[row, expert])
            if said.capacity and taken[expert] > math.ceil(said.capacity * len(rows) * said.topk / said.experts):
                weights = weights.clone()
                weights[row, expert] = 0.0
    y = 0
    for expert in range(said.experts):
        into = {way: x @ getattr(own, way)[expert].T for way in ("gate", "up") if hasattr(own, way)}
        if own.biased:
            into = {way: value + getattr(own, f"{way}_bias")[expert] for way, value in into.items()}
        wide = F.silu(into["gate"]) * into["up"] if "gate" in into else F.gelu(into["up"])
        out = wide @ own.down[expert].T + (own.down_bias[expert] if own.biased else 0)
        y = y + weights[:, expert, None] * out
    if moe.shared is not None:
        y = y + moe.shared(x, batch_of())
    probabilities = scores / scores.sum(-1, keepdim=True)
    share = chosen.sum(0) / chosen.sum()
    return y, said.balance * len(x) * said.experts * (share * probabilities.mean(0)).sum()


def gradients(moe, x, loss):
    """Gradients of a scalar; zero for what it does not depend on."""
    wanted = [x, *moe.parameters()]
    return torch.autograd.grad(loss, wanted, allow_unused=True, materialize_grads=True)


def weighted_sum(y):
    """A scalar whose gradient differs in every element."""
    return (y * torch.linspace(-1, 2, y.numel(), dtype=y.dtype).view_as(y)).sum()


@pytest.mark.parametrize(
    ("kind", "parts"), [*itertools.product(KINDS, ["plain"]), ("softmax", "gpt"), ("full", "biased")]
)
def test_equals_every_expert_for_every_token(kind, parts):
    moe, x = made(parts, **KINDS[kind])
    batch = batch_of(auxiliary=AuxiliaryLosses(0.5))
    y = moe(x, batch)
    want, balance = dense(moe, x)
    torch.testing.assert_close(y, want, rtol=1e-12, atol=1e-12)
    if moe.moe.balance:
        torch.testing.assert_close(batch.auxiliary.losses[1], balance.detach())
        torch.testing.assert_close(batch.auxiliary.total([0, 1]), 0.5 * balance.detach())
    found = gradients(moe, x, weighted_sum(y))
    for one, other in zip(found, gradients(moe, x, weighted_sum(want) + 0.5 * balance), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-12)


def test_a_bias_of_sigmoid_scores_changes_the_choice_and_no_weight():
    moe, x = made("plain", **KINDS["biased choice"])
    with torch.no_grad():
        moe.router.bias.fill_(0.0)
        moe.router.bias[4] = 10.0
    _, choice = moe.router(x)
    assert (choice.experts[:, 0] == 4).all()
    torch.testing.assert_close(choice.weights[:, 0], (x @ moe.router.weight[4]).sigmoid())
    assert (
        gradients(moe, x, weighted_sum(moe(x, batch_of())))[
            1 + [n for n, _ in moe.named_parameters()].index("router.bias")
        ]
        .eq(0)
        .all()
    )


def test_of_equal_scores_the_first_experts_are_chosen():
    moe, x = made("plain")
    with torch.no_grad():
        moe.router.weight.fill_(0.0)
    _, choice = moe.router(x)
    assert choice.experts.tolist() == [[0, 1]] * TOKENS
    torch.testing.assert_close(choice.weights, torch.full((TOKENS, 2), 0.5, dtype=x.dtype))
    assert choice.counts().tolist() == [TOKENS, TOKENS, 0, 0, 0, 0]


def test_experts_without_tokens_have_gradients_of_zero():
    moe, x = made("gpt")
    with torch.no_grad():
        moe.router.weight.fill_(0.0)
    weighted_sum(moe(x, batch_of())).backward()
    for name, parameter in moe.experts.named_parameters():
        assert parameter.grad[:2].ne(0).any(), name
        assert parameter.grad[2:].eq(0).all(), name


def test_no_tokens_at_all():
    for kind in KINDS.values():
        moe, x = made("gpt", **kind)
        x = x[:0].detach().requires_grad_()
        y = moe(x, batch_of())
        assert y.shape == x.shape
        y.sum().backward()
        assert all(p.grad.eq(0).all() for n, p in moe.named_parameters() if n != "router.bias" or p.grad is not None)


def test_capacity_counts_each_slice_in_its_own_order():
    """Slices need not be contiguous, and the order of a slice is that of its rows."""
    moe, x = made("plain", capacity=0.6)
    order = torch.randperm(TOKENS, generator=torch.Generator().manual_seed(1))
    slices = (order[:9], order[9:10], order[10:])
    y = moe(x, batch_of(slices=slices))
    want, _ = dense(moe, x, [rows.tolist() for rows in slices])
    torch.testing.assert_close(y, want, rtol=1e-12, atol=1e-12)
    apart = torch.cat([moe(x[rows], batch_of()) for rows in slices])
    torch.testing.assert_close(y[order], apart, rtol=1e-12, atol=1e-12)
    assert not torch.equal(y, moe(x, batch_of()))


def test_capacity_keeps_the_first_and_never_more_than_it_is():
    generator = torch.Generator().manual_seed(2)
    for topk, capacity in ((1, 0.5), (2, 1.0), (3, 1.25), (2, 100.0)):
        experts = torch.rand(40, 8, generator=generator).argsort(-1)[:, :topk]
        choice = ExpertChoice(experts, torch.ones(40, topk), 8)
        kept = drop_over_capacity(choice, capacity, ())
        room = math.ceil(capacity * 40 * topk / 8)
        assert kept.counts().tolist() == [min(room, n) for n in choice.counts().tolist()]
        for expert in range(8):
            came, stayed = ((c.experts == expert).any(1).nonzero()[:, 0].tolist() for c in (choice, kept))
            assert stayed == came[:room]


def test_balance_loss_is_least_for_uniform_experts():
    """With uniform choices or probabilities the loss is 1 per token, whatever the other; with one expert it is E."""
    even, one = torch.full((10, 4), 0.25), torch.eye(4)[[0] * 10]
    assert load_balancing_loss(even, torch.tensor([20, 0, 0, 0])).item() == pytest.approx(10)
    assert load_balancing_loss(torch.rand(10, 4).softmax(-1), torch.tensor([5, 5, 5, 5])).item() == pytest.approx(10)
    assert load_balancing_loss(one, torch.tensor([20, 0, 0, 0])).item() == pytest.approx(40)
    assert load_balancing_loss(even[:0], torch.zeros(4, dtype=torch.int64)).item() == 0


def test_a_recomputed_loss_counts_once():
    spec = Decoder(**SHAPE, moe=Experts(**EXPERTS, balance=0.2, dense_layers=1))
    found = []
    for recompute in ("none", "full"):
        model = build(
            spec, dtype=torch.float64, shard=replace(FULL_MODULE, recompute=dict.fromkeys(range(3), recompute))
        )
        init_weights(model, 1)
        batch = replace(synthetic_batch(spec, [(0, 9), (1, 5)], 1), auxiliary=AuxiliaryLosses(1 / 14))
        loss = model(batch) / 14
        before = batch.auxiliary.total(range(3))
        loss.backward()
        assert batch.auxiliary.total(range(3)) == before > 0
        assert set(batch.auxiliary.losses) == {1, 2}
        found.append([parameter.grad for parameter in model.parameters()])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("sizes", [(5, 0, 9, 1), (0, 0, 0, 0), (0, 16, 0, 0)])
def test_grouped_mm_equals_the_loop(dtype, sizes):
    assert grouped_gemm.grouped_mm_available(torch.device("cpu"))
    torch.manual_seed(0)
    sizes = torch.tensor(sizes)
    x, matrices = torch.randn(int(sizes.sum()), 16), torch.randn(4, 8, 16)
    x, matrices = (t.to(dtype).requires_grad_() for t in (x, matrices))
    assert grouped_gemm.grouped_mm_supports(x, 8)
    results = []
    for y in (grouped_gemm.grouped_matmul(x, matrices, sizes), grouped_gemm.matmul_one_by_one(x, matrices, sizes)):
        results.append([y, *torch.autograd.grad(y, [x, matrices], torch.ones_like(y).cumsum(0))])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


def test_unsupported_widths_or_dtypes_use_the_loop():
    x = torch.randn(4, 6)
    assert not grouped_gemm.grouped_mm_supports(x, 8)
    assert not grouped_gemm.grouped_mm_supports(torch.randn(4, 8), 6)
    assert not grouped_gemm.grouped_mm_supports(torch.randn(4, 8, dtype=torch.float64), 8)
    matrices, sizes = torch.randn(2, 5, 6), torch.tensor([1, 3])
    want = torch.cat([x[:1] @ matrices[0].T, x[1:] @ matrices[1].T])
    torch.testing.assert_close(grouped_gemm.grouped_matmul(x, matrices, sizes), want)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_weight_gradients_of_experts_may_be_deferred(dtype):
    """Backward in two passes gives the gradients of one."""
    moe, x = made("biased", dtype, shared_ffn=8)
    want = gradients(moe, x, weighted_sum(moe(x, batch_of())))
    store = DeferredGradients()
    with deferring_weight_gradients(store):
        y = moe(x, batch_of())
    weighted_sum(y).backward()
    assert moe.experts.up.grad is None
    store.accumulate()
    for one, other in zip([x, *moe.parameters()], want, strict=True):
        torch.testing.assert_close(one.grad, other, rtol=1e-5 if dtype == torch.float32 else 1e-12, atol=1e-6)


def test_outputs_come_back_to_the_tokens_that_chose_them():
    """Dispatch and combine give the weighted sum of a token's own rows."""
    experts = torch.tensor([[2, 0], [1, 2], [0, 3]])
    choice = ExpertChoice(experts, torch.tensor([[0.5, 2.0], [1.0, 0.25], [3.0, 0.0]]), 4)
    rows = torch.arange(6.0).view(3, 2)
    y = LOCAL_DISPATCHER.dispatch(rows, choice, lambda sorted_rows, sizes: sorted_rows)
    torch.testing.assert_close(y, rows * choice.weights.sum(1, keepdim=True))
    nothing = combine_outputs(rows[:0], torch.zeros(0, dtype=torch.int64), choice)
    assert nothing.eq(0).all()


def test_parameters_are_counted_exactly():
    for parts, bias, shared in itertools.product(PARTS, (False, True), (0, 10)):
        said = Experts(**EXPERTS, router_bias=bias, shared_ffn=shared, dense_layers=1)
        spec = Decoder(**SHAPE, **PARTS[parts], moe=said)
        model = build(spec, device=torch.device("meta"))
        assert sum(p.numel() for p in model.parameters()) == parameter_counts(spec).total
        for layer, kind in (("0", "dense"), ("2", "moe")):
            assert sum(p.numel() for p in model.layers[layer].parameters()) == layer_parameters(spec, kind)


def test_initial_weights_of_an_expert_depend_on_its_number():
    """Whichever rank holds it, and whichever shard of it."""
    spec = Decoder(**SHAPE, **PARTS["gpt"], moe=Experts(**EXPERTS))
    whole = build(spec)
    init_weights(whole, 2)
    wanted = dict(whole.named_parameters())
    for ep, etp in itertools.product(range(3), range(2)):
        some = ExpertShard(EqualShard(ep, 3), EqualShard(etp, 2))
        held = replace(FULL_MODULE, experts=dict.fromkeys(range(spec.layers), some))
        part = build(spec, shard=held)
        init_weights(part, 2)
        splits = parameter_splits(part)
        for name in expert_parameters(part):
            want = wanted[name]
            for split in splits[name]:
                first, last = split.shard.span(want.shape[split.dim])
                want = want.narrow(split.dim, first, last - first)
            assert torch.equal(part.get_parameter(name), want), name
    up, bias = wanted["layers.1.mlp.experts.up"], wanted["layers.1.mlp.experts.up_bias"]
    assert not torch.equal(up[0], up[1])
    assert 0.8 < up.std() * spec.hidden**0.5 < 1.2
    assert bias.eq(0).all()


@pytest.mark.parametrize("scores", ["softmax", "sigmoid"])
@pytest.mark.parametrize("deferred", [False, True])
def test_logits_are_never_rounded_to_bfloat16(scores, deferred):
    """With weights and rows in bfloat16 the router gives the probabilities, and the gradient, of float32."""
    moe, x = made("plain", torch.bfloat16, scores=scores, router_bias=True)
    wide, _ = made("plain", torch.float32, scores=scores, router_bias=True)
    wide.load_state_dict(moe.state_dict())
    found = []
    for each, rows in ((moe, x.detach()), (wide, x.detach().float())):
        store = DeferredGradients() if deferred else None
        with deferring_weight_gradients(store):
            probabilities, choice = each.router(rows)
        (probabilities[:, 0].sum() + choice.weights[:, 0].sum()).backward()
        if store:
            store.accumulate()
        found.append((probabilities, each.router.weight.grad))
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1].bfloat16())
