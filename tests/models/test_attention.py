"""Packed attention equals textbook attention, document by document."""

import pytest
import torch

from planner.models.attention import adapt_varlen, packed_attention, per_document, varlen_kernel

LENGTHS = [5, 1, 12, 3]
CU_SEQLENS = torch.tensor([0, 5, 6, 18, 21], dtype=torch.int32)


def textbook(q, k, v, causal):
    """softmax(q k' / sqrt(D)) v with the key/value heads repeated, from its definition."""
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    scores = torch.einsum("qhd,khd->hqk", q, k) / q.shape[2] ** 0.5
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[1:]).triu(1).bool(), -torch.inf)
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), v)


def reference(q, k, v, causal):
    return torch.cat([textbook(*part, causal) for part in zip(*(x.split(LENGTHS) for x in (q, k, v)), strict=True)])


def leaves(kv_heads, dtype=torch.float64, tokens=21):
    torch.manual_seed(0)
    return [torch.randn(tokens, heads, 8, dtype=dtype, requires_grad=True) for heads in (4, kv_heads, kv_heads)]


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("causal", [True, False])
def test_equals_the_definition(kv_heads, causal):
    qkv = leaves(kv_heads)
    grad = torch.randn(21, 4, 8, dtype=torch.float64)
    got, want = packed_attention(*qkv, CU_SEQLENS, causal), reference(*qkv, causal)
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)
    pairs = zip(torch.autograd.grad(got, qkv, grad), torch.autograd.grad(want, qkv, grad), strict=True)
    for mine, theirs in pairs:
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)


def test_bfloat16_is_close():
    qkv = leaves(2, torch.bfloat16)
    want = reference(*(x.double() for x in qkv), True)
    torch.testing.assert_close(packed_attention(*qkv, CU_SEQLENS, True).double(), want, rtol=0.05, atol=0.05)


def test_no_tokens_give_zero_gradients_and_not_none():
    qkv = leaves(2, tokens=0)
    out = packed_attention(*qkv, torch.zeros(1, dtype=torch.int32), True)
    assert out.shape == (0, 4, 8)
    assert all(grad is not None for grad in torch.autograd.grad(out.sum(), qkv))


def dense_varlen(heads, tensors, causal):
    """What the flash kernel computes, after a look at how it was called: q, k, v, where each starts, the longest."""
    q, k, v, cu_q, cu_k, max_q, max_k = tensors
    assert (cu_q.dtype, cu_k.dtype, max_q, max_k, k.shape[1]) == (torch.int32, torch.int32, 12, 12, heads)
    return per_document(q, k, v, cu_q, causal)


def named_causal(*tensors, is_causal=False):
    return dense_varlen(4, tensors, is_causal)


def named_window(*tensors, window_size=(-1, -1)):
    return dense_varlen(4, tensors, window_size == (-1, 0))


def named_both(*tensors, window_size=(-1, -1), enable_gqa=False):
    assert enable_gqa
    return dense_varlen(2, tensors, window_size == (-1, 0))


@pytest.mark.parametrize("kernel", [named_causal, named_window, named_both])
@pytest.mark.parametrize("causal", [True, False])
def test_every_signature_of_the_varlen_kernel_is_understood(kernel, causal):
    """The kernels themselves need CUDA; these stand-ins have the signatures of three releases."""
    qkv = leaves(2)
    got = adapt_varlen(kernel)(*qkv, CU_SEQLENS, causal)
    torch.testing.assert_close(got, reference(*qkv, causal))


def test_a_kernel_that_cannot_be_causal_is_not_used():
    assert adapt_varlen(lambda query, key, value: query) is None
    assert varlen_kernel() is None or callable(varlen_kernel())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("kv_heads", [1, 4])
@pytest.mark.parametrize("causal", [True, False])
def test_the_flash_kernel_is_close(kv_heads, causal):
    assert varlen_kernel() is not None
    exact = [x.detach().cuda().requires_grad_() for x in leaves(kv_heads)]
    half = [x.detach().bfloat16().requires_grad_() for x in exact]
    got, want = packed_attention(*half, CU_SEQLENS, causal), per_document(*exact, CU_SEQLENS, causal)
    grad = torch.randn_like(want)
    mine = [got, *torch.autograd.grad(got, half, grad.bfloat16())]
    theirs = [want, *torch.autograd.grad(want, exact, grad)]
    for left, right in zip(mine, theirs, strict=True):
        assert (left - right).norm() < 2e-2 * right.norm()
