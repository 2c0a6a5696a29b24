"""How a training framework spends time beside its kernels: few traits, each with a physical meaning."""

from planner.specs.base import Amount, Positive, Share, Spec


class Timing(Spec):
    """What a framework overlaps, what it fuses, and what each step costs it."""

    passes: Amount = 1.0  # passes over memory of norms, residuals and activations, over those of fused kernels
    score_bytes: Amount = (
        0.0  # read and written per score, forward, where attention's matrix exists; 0: flash attention
    )
    tp_exposed: Share = 1.0  # of tensor parallelism's exchanges in forward
    tp_exposed_backward: Share = 1.0
    ep_exposed: Share = 1.0  # of the experts' exchanges
    overlapped: Share = 0.3  # of an exchange that is made to run beside compute, what is waited for all the same
    imbalance: Amount = 0.3  # tokens of the fullest rank over the mean, less 1, with one expert a rank and no balancing
    pp_exposed: Share = 1.0  # of sends between pipeline stages
    dp_window: Share = 1.0  # of the compute beside them in which gradients and parameters can be exchanged
    gradient_bytes: Positive = 4.0  # of an element as gradients are reduced
    kernels: Positive = 1.0  # rate of its kernels in training, over what others' sustain on the device
    attention: Positive = 1.0  # rate of its attention over the newest kernels', on devices later than Ampere
    experts: Positive = 1.0  # rate of its experts' grouped products over those that were timed on the device
    cast: Amount = 1.0  # of what fp8's casts cost a kernel timed alone, the part that no other kernel does on its way
    layer_us: Amount = 0.0  # of the host, to launch a layer's pass, however small: a quicker device waits for it
    tp_us: Amount = 0.0  # of the host besides, where ranks of tp exchange
    expert_us: Amount = 0.0  # of the host besides, in a layer of experts: counting and sorting tokens
    micro_batch_ms: Amount = 0.0  # of each micro-batch and pass on a stage
    step_ms: Amount = 0.0  # of each step: data, logging, norms
    shard_ms: Amount = 0.0  # of each step, for each rank over which optimizer states are sharded
    jitter: Amount = 0.0  # of a step, for each doubling of the ranks: the slowest of more ranks sets the pace
