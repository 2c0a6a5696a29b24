"""Fit of grouped matrix products: the experts of one device in one kernel, relative to one product per expert.

An expert's products are [tokens × hidden]·[hidden × 2 inter], gate and up at once, and [tokens × inter]·[inter ×
hidden]; tokens = num_tokens·topk/num_experts when balanced. The imbalance of a load distribution is its time over that
of the balanced kernel.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.calibrate.curve_fit import FittedCurve, KernelFormula, fit_curve
from planner.calibrate.gemm_fit import PEAK_SHARE, rounded_coefficients
from planner.calibrate.kernel_tables import Array, KernelTable, read_table
from planner.errors import InputError
from planner.specs.hardware.device_rates import GemmCurve

AXES = ("num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size")
TOKENS, WIDTH = 256, 512  # least tokens of an expert, and least inner width on a device, in training


@dataclass(frozen=True)
class GroupedFit:
    """The fitted share of a separate product's rate, the imbalance factors, and the fit's errors."""

    share: float
    imbalance: dict[str, float]  # by load distribution: median time over the balanced kernel's
    fit: FittedCurve


def read_grouped(path: str) -> KernelTable:
    """Rows with all experts on one device: rows of several devices time one of them without naming it.

    Raises InputError.
    """
    numbers = {**dict.fromkeys(AXES), "moe_ep_size": 1.0, "latency": None}
    table = read_table(path, numbers, {"distribution": "balanced"})
    return table.where(table.numbers["moe_ep_size"] == 1)


def fit_grouped(table: KernelTable, gemm: GemmCurve, peak_tflops: float) -> GroupedFit:
    """The share of `gemm`'s rate that a table's balanced kernels reach. Raises InputError where it has none."""
    balanced = table.only(distribution="balanced")

    def seconds(kernels: KernelTable, values: dict[str, float]) -> Array:
        whole: Array = separate_seconds(kernels, gemm, peak_tflops * 1e12) / values["share"] + 2e-6 * gemm.launch_us
        return whole

    def inside(kernels: KernelTable) -> NDArray[np.bool_]:
        return np.asarray((tokens_per_expert(kernels) >= TOKENS) & (inner_width(kernels) >= WIDTH))

    curve = fit_curve(KernelFormula((PEAK_SHARE,), AXES, seconds), balanced, inside(balanced))
    training = table.where(inside(table))
    names = sorted(set(training.words["distribution"].tolist()) - {"balanced"})
    return GroupedFit(
        rounded_coefficients(curve.values)["share"], {name: imbalance(training, name) for name in names}, curve
    )


def separate_seconds(table: KernelTable, gemm: GemmCurve, peak: float) -> Array:
    """Seconds (rows,) of the experts' products as separate kernels, without launch overhead."""
    m, hidden, width = tokens_per_expert(table) + gemm.m0, table.numbers["hidden_size"], inner_width(table)
    gate_and_up = m * (2 * width + gemm.n0) * (hidden + gemm.k0)
    down = m * (hidden + gemm.n0) * (width + gemm.k0)
    seconds: Array = table.numbers["num_experts"] * 2 * (gate_and_up + down) / (gemm.share * peak)
    return seconds


def tokens_per_expert(table: KernelTable) -> Array:
    """Tokens of one expert (rows,)."""
    numbers = table.numbers
    share: Array = numbers["num_tokens"] * numbers["topk"] / numbers["num_experts"]
    return share


def inner_width(table: KernelTable) -> Array:
    """An expert's inner width on one device (rows,)."""
    width: Array = table.numbers["inter_size"] / table.numbers["moe_tp_size"]
    return width


def imbalance(table: KernelTable, distribution: str) -> float:
    """Median of a load distribution's time over the balanced one, of configurations with both. Raises InputError."""
    keys = list(zip(*(table.numbers[axis].tolist() for axis in AXES), strict=True))
    times: dict[str, dict[tuple[float, ...], float]] = {}
    for key, name, seconds in zip(keys, table.words["distribution"].tolist(), table.seconds.tolist(), strict=True):
        times.setdefault(name, {})[key] = seconds
    even, skewed = times.get("balanced", {}), times[distribution]
    ratios = [skewed[key] / even[key] for key in skewed if key in even]
    if not ratios:
        message = f"no configuration of {distribution} was measured balanced too"
        raise InputError(message, where=table.path, fix="measure both, or leave this distribution out")
    return round(float(np.median(ratios)), 4)
