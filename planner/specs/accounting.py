"""What a training framework keeps in a device's memory beside what the layout says: few traits, one set a framework."""

from typing import Literal

from planner.specs.base import Amount, Positive, Share, Spec


class Accounting(Spec, kw_only=True):
    """Defaults are Megatron-LM's with Transformer Engine, in bfloat16 with Adam and a float32 copy of the weights.

    Bytes are per parameter, per element or per logit, as the field says. The two last fields are no traits of the
    framework's code but of what was measured with it: how far its allocator, and this model, are off.
    """

    # Per parameter.
    gradient_bytes: Amount = 4.0  # 4: accumulated in float32; 2: in the weights' precision, and cast for the update
    optimizer_bytes: Amount = 12.0  # float32 weights and Adam's two moments, each 4
    own_master: bool = False  # the float32 weights are what is sharded, and no other copy stays (FSDP2)
    fp8_weight_bytes: Amount = 4.0  # of a layer's weight under fp8: 2 in bfloat16 (if kept), 1 in fp8, 1 transposed
    keeps_gathered: bool = False  # under a pipeline, what ZeRO-3 gathered stays to the end of the step, gradients too

    holds_gradients: bool = False  # under ZeRO-2 they stay whole, summed on each rank, and are reduced once a step

    # Per token.
    flash: bool = True  # attention's matrix never exists; else it does, and the softmax and dropout of it
    dropout: bool = False  # one byte of mask for each element that may be dropped
    fused: bool = True  # the MLP's gate, activation and product are one function, which keeps its input only
    fp8_pointwise: bool = False  # under fp8, that input is kept in one byte too
    selective: Literal["modules", "ops"] = "modules"  # what selective recomputation drops; ops: each second product
    logit_bytes: Amount = 6.0  # of one logit: 2 and a float32 copy of it, which becomes its gradient
    imbalance: Positive = 1.0  # tokens of the fullest rank of experts, over the mean

    # Of the process.
    workspace_gib: Amount = 0.5  # libraries' workspaces that the framework's allocator holds
    context_gib: Amount = 1.0  # the device's context and kernels, outside of the allocator; assumed
    buffers: Amount = 1.0  # of communicators, over NCCL's
    fragmentation: Share = 0.05  # what the allocator has reserved and cannot use, over what is allocated; assumed
    spread: Amount = 0.1  # standard deviation of the log of measured over predicted bytes


# This package's own runtime: FSDP2 shards float32 weights, which are what the optimizer works on, and computes with
# copies in bfloat16; its ranks may run unequal numbers of micro-batches, so they reduce gradients at a step's end. Its
# MLP is no single function: gate, activated gate and product are kept.
BUNDLED = Accounting(own_master=True, holds_gradients=True, fused=False)
