"""What is known of coefficients before anything is fitted to step times, and how uncertain their logarithms are."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import hypot


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
