"""Coefficients of a training framework's memory: what it keeps beside what the layout determines."""

from typing import Literal

from planner.specs.base import Amount, Positive, Share, Spec


class MemoryCoefficients(Spec, kw_only=True):
    """Defaults are Megatron-LM's with Transformer Engine, in bfloat16 with Adam and a float32 copy of the weights.

    Bytes are per parameter, per element or per logit, as the field says. The last two fields do not
    follow from the framework's code but from measurements: fragmentation of its allocator, and the error of this model.
    """

    # Per parameter.
    gradient_bytes: Amount = 4.0  # 4: accumulated in float32; 2: in the weights' precision, and cast for the update
    optimizer_bytes: Amount = 12.0  # float32 weights and Adam's two moments, each 4
    update_bytes: Amount = 0.0  # temporaries of Adam's arithmetic, where it is not one kernel
    releases_gradients: bool = False  # below ZeRO-3 gradients are freed once they are copied for the update
    own_master: bool = False  # the float32 weights are the sharded ones, without another resident copy (FSDP2)
    fp8_weight_bytes: Amount = 4.0  # of a layer's weight under fp8: 2 in bfloat16 (if kept), 1 in fp8, 1 transposed
    # in pipelines, weights gathered by ZeRO-3 stay to the end of the step, and so do whole gradients
    keeps_gathered: bool = False

    root_unit: bool = False  # under ZeRO-3 all that is outside of the layers is gathered, and reduced, at once
    holds_gradients: bool = False  # under ZeRO-2 gradients are accumulated unsharded and reduced once a step

    # Per token.
    flash: bool = True  # FlashAttention; else the attention matrix is kept, with its softmax and dropout
    dropout: bool = False  # a mask of one byte for each element
    fused: bool = True  # the MLP's gate, activation and product are one kernel, which keeps its input only
    fused_norms: bool = True  # a norm is one layer with the product behind it, and recomputing norms leaves it out
    fp8_pointwise: bool = False  # under fp8, that input is kept in one byte too
    # what selective recomputation drops; ops: every second matrix product
    selective: Literal["modules", "ops"] = "modules"
    logit_bytes: Amount = 6.0  # of one logit: 2, and a float32 copy that becomes its gradient
    logits_at_once: Amount = 0.0  # of chunks of tokens, whose logits backward computes again; 0: all of a micro-batch
    imbalance: Positive = 1.0  # tokens of the most loaded rank of experts, over the mean

    # Of the process.
    bucket_gib: Amount = 0.0  # buckets of gradients on their way to their ranks, which are there while passes run
    workspace_gib: Amount = 0.0625  # in the allocator; on Hopper 32 MiB each of PyTorch's cuBLAS and Transformer Engine
    context_gib: Amount = 1.0  # the device's context and kernels, outside of the allocator; assumed
    buffers: Amount = 1.0  # of communicators, relative to NCCL's
    fragmentation: Share = 0.05  # reserved and unusable bytes, over allocated ones; assumed
    spread: Amount = 0.1  # standard deviation of the log of measured over predicted bytes


# Logits that planner's own runtime has in memory at a time: 512 MiB in float32, plus a copy in a narrower dtype and
# their gradient. Of more, it computes a loss in chunks of tokens.
RUNTIME_LOGITS_AT_ONCE = 2**27

# planner's own runtime: FSDP2 shards float32 weights, which the optimizer updates, and computes with bfloat16 copies.
# Its ranks may run unequal numbers of micro-batches, so gradients are reduced at the end of a step. Its MLP is not one
# fused kernel: gate, activated gate and product are kept.
PLANNER_RUNTIME_MEMORY = MemoryCoefficients(
    own_master=True,
    root_unit=True,
    holds_gradients=True,
    fused=False,
    fused_norms=False,
    logit_bytes=10.0,  # float32 logits and their log-softmax; then its softmax and gradient, and that in bfloat16
    logits_at_once=RUNTIME_LOGITS_AT_ONCE,
)
