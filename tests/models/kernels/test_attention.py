"""Packed attention equals the definition of attention, document by document."""

import pytest
import torch

from planner.models.kernels import attention_tiles as tiling
from planner.models.kernels.attention import ScoreOptions, attention_per_document, block_boundaries, packed_attention
from planner.models.kernels.attention_tiles import Masking, hidden_keys, slice_length, tiles_of, visible_pairs
from planner.models.kernels.varlen_attention import adapt_varlen_kernel, varlen_kernel
from planner.specs.shapes import attended_pairs

LENGTHS = [5, 1, 12, 3]
CU_SEQLENS = torch.tensor([0, 5, 6, 18, 21], dtype=torch.int32)
CAUSAL, FULL = Masking(True), Masking(False)
MASKINGS = [CAUSAL, FULL, *(Masking(causal, window) for causal in (True, False) for window in (1, 4, 5, 40))]
named = pytest.mark.parametrize("masking", MASKINGS, ids=str)


def visible_mask(length, masking):
    """The mask `(queries, keys)` of visible keys, from the definition of a window."""
    query, key = torch.arange(length)[:, None], torch.arange(length)
    window = masking.window or length
    if masking.causal:
        return (key <= query) & (key > query - window)
    return query // window == key // window


def textbook(q, k, v, masking, sinks=None):
    """softmax(q k' / sqrt(D)) v with the key/value heads repeated, from its definition; a sink is one more column."""
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    scores = torch.einsum("qhd,khd->hqk", q, k) / q.shape[2] ** 0.5
    scores = scores.masked_fill(~visible_mask(len(q), masking), -torch.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks[:, None, None].expand(-1, len(q), 1)], 2)
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1)[..., : len(k)], v)


def reference(q, k, v, masking, sinks=None):
    parts = zip(*(x.split(LENGTHS) for x in (q, k, v)), strict=True)
    return torch.cat([textbook(*part, masking, sinks) for part in parts])


def leaves(kv_heads, dtype=torch.float64, tokens=21, value=8):
    torch.manual_seed(0)
    shapes = ((4, 8), (kv_heads, 8), (kv_heads, value))
    return [torch.randn(tokens, *shape, dtype=dtype, requires_grad=True) for shape in shapes]


def assert_same(got, want, inputs):
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)
    grad = torch.randn_like(want)
    for mine, theirs in zip(*(torch.autograd.grad(x, inputs, grad) for x in (got, want)), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@named
def test_equals_the_definition(kv_heads, masking):
    qkv = leaves(kv_heads)
    assert_same(packed_attention(*qkv, CU_SEQLENS, masking), reference(*qkv, masking), qkv)


@pytest.mark.parametrize("value", [3, 8, 12])
@named
def test_sinks_and_values_of_another_width(value, masking):
    inputs = [*leaves(2, value=value), torch.randn(4, dtype=torch.float64, requires_grad=True)]
    got = packed_attention(*inputs[:3], CU_SEQLENS, masking, inputs[3])
    assert_same(got, reference(*inputs[:3], masking, inputs[3]), inputs)
    assert_same(packed_attention(*inputs[:3], CU_SEQLENS, masking), reference(*inputs[:3], masking), inputs[:3])


@pytest.mark.parametrize("masking", [Masking(True, 70), Masking(True, 3), Masking(False, 150)], ids=str)
def test_long_documents_in_tiles(masking, monkeypatch):
    monkeypatch.setattr(tiling, "SHORTEST", 16)
    monkeypatch.setattr(tiling, "LONGEST", 50)
    qkv = leaves(2, tokens=401)
    got = packed_attention(*qkv, torch.tensor([0, 180, 401], dtype=torch.int32), masking)
    want = torch.cat([textbook(*part, masking) for part in zip(*(x.split([180, 221]) for x in qkv), strict=True)])
    assert_same(got, want, qkv)


@pytest.mark.parametrize("most", [1, 3, 100])
@named
def test_pairs_cover_every_visible_score_once(masking, most):
    """And pairs without visible scores are skipped, so that work with a window does not grow quadratically."""
    spans = [(document, 0, length) for document, length in enumerate(LENGTHS)]
    cut = tiles_of(spans, masking, most)
    total = torch.zeros(21, 21, dtype=torch.int)
    for pair in visible_pairs(cut, cut, masking):
        sees = torch.ones_like(total[pair.queries, pair.keys], dtype=torch.bool)
        unseen = hidden_keys(pair, masking, torch.device("cpu"))
        sees = sees if unseen is None else ~unseen
        lower = torch.ones(len(sees), len(sees)).tril().bool()
        assert sees.any() and (pair.visibility == "all") == bool(sees.all())
        assert (pair.visibility == "triangle") == (unseen is not None and torch.equal(unseen, lower.logical_not()))
        total[pair.queries, pair.keys] += sees
    want = torch.block_diag(*(visible_mask(length, masking).int() for length in LENGTHS))
    assert torch.equal(total, want.int())
    assert total.sum() == sum(attended_pairs(length, masking.causal, masking.window) for length in LENGTHS)


def computed_scores(pair):
    """Number of scores of a pair of tiles that are computed, including those that a mask hides."""
    return slice_length(pair.queries) * slice_length(pair.keys)


def test_work_within_a_window_is_linear_in_length():
    work = []
    for length in (2000, 4000, 8000):
        cut = tiles_of([(0, 0, length)], Masking(True, 128), 128)
        work.append(sum(computed_scores(pair) for pair in visible_pairs(cut, cut, Masking(True, 128))))
    assert work[2] - work[1] <= 2.1 * (work[1] - work[0]) and work[2] < 8000 * 3 * 128


def test_blocks_of_documents():
    assert block_boundaries(CU_SEQLENS, 4).tolist() == [0, 4, 5, 6, 10, 14, 18, 21]
    assert block_boundaries(CU_SEQLENS, 40).tolist() == CU_SEQLENS.tolist()


@pytest.mark.parametrize("masking", [CAUSAL, Masking(True, 4)], ids=str)
def test_bfloat16_is_close(masking):
    inputs = [*leaves(2, torch.bfloat16), torch.randn(4).bfloat16()]
    want = reference(*(x.double() for x in inputs[:3]), masking)
    torch.testing.assert_close(packed_attention(*inputs[:3], CU_SEQLENS, masking).double(), want, rtol=0.05, atol=0.05)
    out = packed_attention(*inputs[:3], CU_SEQLENS, masking, inputs[3])
    assert out.dtype == torch.bfloat16
    want = reference(*(x.double() for x in inputs[:3]), masking, inputs[3].double())
    torch.testing.assert_close(out.double(), want, rtol=0.05, atol=0.05)


@named
def test_no_tokens_give_zero_gradients_and_not_none(masking):
    inputs = [*leaves(2, tokens=0, value=5), torch.randn(4, dtype=torch.float64, requires_grad=True)]
    out = packed_attention(*inputs[:3], torch.zeros(1, dtype=torch.int32), masking, inputs[3])
    assert out.shape == (0, 4, 5)
    assert all(grad is not None and not grad.any() for grad in torch.autograd.grad(out.sum(), inputs))


def dense_varlen(heads, tensors, masking):
    """What the flash kernel computes, after checking its arguments: q, k, v, document boundaries, longest document."""
    q, k, v, cu_q, cu_k, max_q, max_k = tensors
    assert (cu_q.dtype, cu_k.dtype, max_q, max_k, k.shape[1]) == (torch.int32, torch.int32, 12, 12, heads)
    assert q.shape[2] == k.shape[2] == v.shape[2]
    return packed_attention(q, k, v, cu_q, masking)


def by_window(window_size):
    """-1 means no limit; the kernel counts the tokens before a token, without the token itself."""
    before, behind = window_size
    return Masking(behind == 0, None if before < 0 else before + 1)


def named_causal(*tensors, is_causal=False):
    return dense_varlen(4, tensors, Masking(is_causal))


def named_window(*tensors, window_size=(-1, -1)):
    return dense_varlen(4, tensors, by_window(window_size))


def named_both(*tensors, window_size=(-1, -1), enable_gqa=False):
    assert enable_gqa
    return dense_varlen(2, tensors, by_window(window_size))


@pytest.mark.parametrize("kernel", [named_causal, named_window, named_both])
@pytest.mark.parametrize("masking", [CAUSAL, FULL, Masking(True, 4)], ids=str)
def test_every_signature_of_the_varlen_kernel_is_supported(kernel, masking):
    """The kernels themselves need CUDA; these stand-ins have the signatures of three releases."""
    qkv = leaves(2, value=6)
    adapted = adapt_varlen_kernel(kernel, masking.window is not None)
    if kernel is named_causal and masking.window:
        assert adapted is None
    else:
        torch.testing.assert_close(adapted(*qkv, CU_SEQLENS, masking), reference(*qkv, masking))


def test_a_kernel_that_cannot_be_causal_is_not_used():
    assert adapt_varlen_kernel(lambda query, key, value: query) is None
    assert varlen_kernel() is None or callable(varlen_kernel())


@pytest.mark.gpu
@pytest.mark.parametrize("kv_heads", [1, 4])
@pytest.mark.parametrize("masking", [CAUSAL, FULL, Masking(True, 4), Masking(False, 5)], ids=str)
def test_the_flash_kernel_is_close(kv_heads, masking):
    assert varlen_kernel() is not None
    exact = [x.detach().cuda().requires_grad_() for x in leaves(kv_heads)]
    half = [x.detach().bfloat16().requires_grad_() for x in exact]
    got, want = packed_attention(*half, CU_SEQLENS, masking), packed_attention(*exact, CU_SEQLENS, masking)
    grad = torch.randn_like(want)
    mine = [got, *torch.autograd.grad(got, half, grad.bfloat16())]
    theirs = [want, *torch.autograd.grad(want, exact, grad)]
    for left, right in zip(mine, theirs, strict=True):
        assert (left - right).norm() < 2e-2 * right.norm()


def test_dense_attention_per_document():
    qkv = leaves(2)
    assert_same(
        attention_per_document(*qkv, (CU_SEQLENS, CU_SEQLENS), ScoreOptions(causal=True)), reference(*qkv, CAUSAL), qkv
    )
