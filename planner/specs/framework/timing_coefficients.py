"""Coefficients of a training framework's time beside its kernels; each has a physical meaning.

Priors say what is known of them before anything is fitted to step times, and how uncertain their logarithms are.

Recipes of fp8 differ in what shares a scale, and what that costs in casts. With one scale for a tensor (tensorwise), or
for blocks along both dims (Transformer Engine's recipes), what was cast once is used in all products, and gathered in
fp8. With a scale for each row (rowwise, torchao's axiswise) each product needs its operands cast along its own inner
dim, in two kernels (amax, then cast), after a gather in bf16. So it is in NVFP4, with a scale for 16 elements of a row,
and one for the tensor (Transformer Engine's NVFP4BlockScaling).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import hypot
from typing import Literal

from planner.specs.base import Amount, Positive, Share, Spec, with_fields


class TimingCoefficients(Spec):
    """What a framework overlaps, what it fuses, and its overhead."""

    passes: Amount = 1.0  # memory traffic of norms, residuals and activations, relative to fused kernels
    # bytes read and written per attention score in forward, where the matrix exists; 0: FlashAttention
    score_bytes: Amount = 0.0
    tp_exposed: Share = 1.0  # exposed share of tensor-parallel communication in forward
    tp_exposed_backward: Share = 1.0
    ep_exposed: Share = 1.0  # exposed share of expert-parallel communication
    overlapped: Share = 0.3  # of communication that is overlapped with compute, the share that stays exposed
    imbalance: Amount = 0.3  # standard deviation of the tokens of one expert over their mean, with no balancing
    pp_exposed: Share = 1.0  # exposed share of sends between pipeline stages
    dp_window: Share = 1.0  # share of concurrent compute that overlaps communication of gradients and parameters
    overlaps_replicas: bool = True  # that communication runs beside compute at all
    prefetches: bool = True  # of ZeRO-3: weights of a backward's next layers are gathered beside it
    gathers_ahead: bool = True  # below ZeRO-3: updated weights are gathered beside the next forward, not before it
    gradient_bytes: Positive = 4.0  # bytes of a gradient element in its reduction
    # rate of its matrix products in training, relative to the sustained rate of others' on the device
    kernels: Positive = 1.0
    attention: Positive = 1.0  # rate of its attention, relative to the newest kernels, on devices later than Ampere
    attention_ampere: Positive = 1.0  # the same on Ampere and earlier ones
    experts: Positive = 1.0  # rate of its experts' grouped gemms, over the device's share of a single product's
    recomputes_logits: bool = False  # backward computes those of one chunk of tokens after the other again
    cast: Amount = 1.0  # share of fp8's casts that is not fused into other kernels
    gathers_fp8: bool = True  # tokens are cast to fp8 before they are gathered over tp, not by each rank thereafter
    layer_us: Amount = 0.0  # launch overhead of a layer's pass on the host: a lower bound of its time
    tp_us: Amount = 0.0  # additional launch overhead with tensor parallelism
    expert_us: Amount = 0.0  # additional launch overhead of a layer of experts: counting and sorting tokens
    each_expert_us: Amount = 0.0  # additional launch overhead of each expert on the rank: its products and their casts
    experts_at_once: bool = False  # in fp8 on a device with microscaling: one kernel for all, and steps are CUDA graphs
    micro_batch_ms: Amount = 0.0  # overhead of each micro-batch and pass on a stage
    step_ms: Amount = 0.0  # overhead of each step: data, logging, norms
    shard_ms: Amount = 0.0  # overhead of each step, for each rank that optimizer states are sharded over
    host_update_ns: Positive | None = None  # of a parameter with moments in host memory, and its copies; None: unknown
    jitter: Amount = 0.0  # share of a step, for each doubling of the ranks: the slowest of more ranks is critical


def plain_numbers(timing: TimingCoefficients) -> TimingCoefficients:
    """The coefficients that are known, as Python's numbers."""
    known = {name: value for name in timing.__struct_fields__ if (value := getattr(timing, name)) is not None}
    numbers = {name: value if isinstance(value, bool) else float(value) for name, value in known.items()}
    return with_fields(timing, **numbers)


Fp8Recipe = Literal["tensorwise", "rowwise"]
# Casts of rowwise recipes over those of others. torchao's README (0.9, torchao/float8): Llama 3 8B with FSDP on 8 H100
# trains 1.25 times as many tokens a second as in bf16 with tensorwise scales, 1.10 times as many with rowwise ones.
ROWWISE_CASTS = 3.0


def with_recipe(timing: TimingCoefficients, recipe: Fp8Recipe) -> TimingCoefficients:
    """Coefficients of a framework that casts by this recipe."""
    if recipe == "tensorwise":
        return timing
    return with_fields(timing, cast=timing.cast * ROWWISE_CASTS, gathers_fp8=False)


@dataclass(frozen=True, slots=True)
class Prior:
    """A log-normal prior of a coefficient: its median, and the width of its logarithm."""

    value: float
    width: float  # standard deviation of the logarithm


SUSTAINED_PRIOR = Prior(0.92, 0.15)  # sustained over the rate of kernels timed alone
FRAMEWORK_PRIORS = {
    "passes": Prior(1.2, 0.25),
    "kernels": Prior(1.0, 0.07),
    "attention": Prior(1.0, 0.15),
    "experts": Prior(1.0, 0.15),
    "cast": Prior(0.5, 0.4),
    "tp_exposed": Prior(0.6, 0.4),
    "ep_exposed": Prior(0.7, 0.5),
    "overlapped": Prior(0.4, 0.4),
    "imbalance": Prior(0.3, 0.5),
    "pp_exposed": Prior(0.4, 0.5),
    "dp_window": Prior(0.6, 0.5),
    "expert_us": Prior(1000.0, 0.6),
    "each_expert_us": Prior(250.0, 0.6),
    "layer_us": Prior(150.0, 0.7),
    "tp_us": Prior(100.0, 0.7),
    "micro_batch_ms": Prior(0.3, 0.7),
    "step_ms": Prior(20.0, 0.5),
    "shard_ms": Prior(1.0, 1.0),
    "jitter": Prior(0.003, 0.3),
}
AT_MOST_ONE = ("overlapped", "cast", "tp_exposed", "ep_exposed", "pp_exposed", "dp_window")
# What one framework's coefficients are uncertain by on one device. Products go at `kernels` times the sustained rate:
# its width is that of both.
WIDTHS: Mapping[str, float] = {name: prior.width for name, prior in FRAMEWORK_PRIORS.items()} | {
    "kernels": hypot(FRAMEWORK_PRIORS["kernels"].width, SUSTAINED_PRIOR.width)
}
