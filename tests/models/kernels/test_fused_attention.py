"""Fused kernels equal the definition, by themselves and as a part of more keys than they attend to."""

import pytest
import torch

from planner.models.kernels import explicit_attention
from planner.models.kernels.fused_attention import CpuFlashAttention, CudaFlashAttention, fused_kernel_for
from planner.models.kernels.varlen_attention import MAX_HEAD_DIM

SHAPES = {"alike": (4, 8, 8), "grouped": (2, 8, 8), "narrow values": (2, 8, 3), "wide values": (1, 6, 11)}


class FlashOperators:
    """Stand-ins for the CUDA kernel: packed sequences, one width, log-sum-exps `(heads, tokens)`."""

    def _flash_attention_forward(self, q, k, v, *words, scale):
        *lengths, causal, _ = words
        self.check(q, k, v, lengths)
        out, lse = explicit_attention.forward(self.scaled(q, scale), k, v, unseen(q, k) if causal else None)
        return out, lse.transpose(0, 1).contiguous(), torch.tensor(7), torch.tensor(8), torch.empty(0)

    def _flash_attention_backward(self, *words, scale):
        of_out, q, k, v, out, lse, *lengths, causal, seed, unused = words
        self.check(q, k, v, lengths)
        assert (int(seed), int(unused)) == (7, 8) and out.shape == of_out.shape == q.shape
        qkv, delta = (self.scaled(q, scale), k, v), (of_out * out).sum(-1)
        of_q, of_k, of_v = explicit_attention.backward(
            of_out, qkv, lse.transpose(0, 1), delta, unseen(q, k) if causal else None
        )
        return self.scaled(of_q, scale), of_k, of_v

    def check(self, q, k, v, lengths):
        cu_q, cu_k, longest_q, longest_k, dropout = lengths
        assert (cu_q.tolist(), cu_k.tolist()) == ([0, len(q)], [0, len(k)])
        assert (longest_q, longest_k, dropout) == (len(q), len(k), 0.0)
        assert q.shape[2] == k.shape[2] == v.shape[2] and cu_q.dtype == torch.int32

    def scaled(self, q, scale):
        return q * scale * q.shape[2] ** 0.5


KERNELS = {
    "cpu": CpuFlashAttention,
    "cpu, heads repeated": lambda: CpuFlashAttention(grouped=False),
    "gpu stand-in": lambda: CudaFlashAttention(FlashOperators()),
}


def unseen(q, k):
    return torch.ones(len(q), len(k)).triu(1).bool()


def tensors(shape, queries, keys):
    heads, width, values = SHAPES[shape]
    generator = torch.Generator().manual_seed(2)
    shapes = ((queries, 4, width), (keys, heads, width), (keys, heads, values), (queries, 4, values))
    return [torch.randn(each, generator=generator, dtype=torch.float64) for each in shapes]


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("queries", "keys", "causal"), [(7, 7, True), (5, 9, False), (9, 5, False), (1, 1, True)])
def test_kernels_equal_the_definition(kernel, shape, queries, keys, causal):
    q, k, v, of_out = tensors(shape, queries, keys)
    made, hidden = kernel(), unseen(q, k) if causal else None
    got, want = made.forward(q, k, v, causal), explicit_attention.forward(q, k, v, hidden)
    more = torch.rand(queries, 4, dtype=torch.float64)  # the contribution of other keys, which this call does not have
    lse, out = want[1] + more, want[0] + more[..., None]
    delta = (of_out * out).sum(-1)
    got += made.backward(of_out, (q, k, v), (out, lse), causal)
    want += explicit_attention.backward(of_out, (q, k, v), lse, delta, hidden)
    for mine, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)


def test_the_definition_has_the_gradients_of_autograd():
    q, k, v, of_out = (x.requires_grad_() for x in tensors("grouped", 6, 6))
    of_lse = torch.randn(6, 4, dtype=torch.float64)
    out, lse = explicit_attention.forward(q, k, v, unseen(q, k))
    want = torch.autograd.grad([out, lse], [q, k, v], [of_out, of_lse])
    delta = (of_out * out).sum(-1) - of_lse
    got = explicit_attention.backward(of_out, (q, k, v), lse, delta, unseen(q, k))
    for mine, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)


def test_queries_without_visible_keys():
    q, k, v, _ = tensors("grouped", 3, 4)
    out, lse = explicit_attention.forward(q, k, v, torch.tensor([[True] * 4, [False] * 4, [True, False] * 2]))
    assert not out[0].any() and lse[0].eq(-torch.inf).all()
    assert out.isfinite().all() and lse[1:].isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_kernel_by_device_and_dtype(dtype):
    q = torch.empty(3, 4, 8, dtype=dtype)
    assert isinstance(fused_kernel_for(q, 8), CpuFlashAttention) == (dtype != torch.float16)
    assert fused_kernel_for(q.to("meta"), 8) is None


@pytest.mark.gpu
@pytest.mark.parametrize("shape", ["alike", "grouped", "narrow values"])
@pytest.mark.parametrize("causal", [True, False])
def test_the_flash_kernel_is_close(shape, causal):
    q, k, v, of_out = (x.cuda() for x in tensors(shape, 32, 32))
    half = [x.bfloat16() for x in (q, k, v, of_out)]
    made = fused_kernel_for(half[0], v.shape[2])
    assert isinstance(made, CudaFlashAttention) and q.shape[2] <= MAX_HEAD_DIM
    hidden = unseen(q, k).cuda() if causal else None
    want = explicit_attention.forward(q, k, v, hidden)
    got = made.forward(*half[:3], causal)
    want += explicit_attention.backward(of_out, (q, k, v), want[1], (of_out * want[0]).sum(-1), hidden)
    got += made.backward(half[3], tuple(half[:3]), got, causal)
    for mine, theirs in zip(got, want, strict=True):
        assert (mine - theirs).norm() < 2e-2 * theirs.norm()
