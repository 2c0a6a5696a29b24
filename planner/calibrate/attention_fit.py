"""Fit of flash attention, forward seconds: 4·causal·heads·head_dim·s(s + s0)·batch/(share·peak) + launch, by head_dim.

Tables hold the forward pass alone. Backward is assumed to reach 63/73 of forward's share, as FlashAttention-2's best
shares of an A100's peak do (arXiv 2307.08691, section 4.1); its FLOPs are 2.5 times forward's.
"""

from dataclasses import dataclass

import numpy as np

from planner.calibrate.curve_fit import BoundedCoefficient, FittedCurve, KernelFormula, fit_curve
from planner.calibrate.gemm_fit import PEAK_SHARE, rounded_coefficients
from planner.calibrate.kernel_tables import Array, KernelTable, Mask, read_table
from planner.specs.hardware.device_rates import AttentionCurve

BACKWARD_SHARE = 63 / 73
TOKENS, HEADS = 1024, 16  # least sequence length, and least heads times batch, that fill a device in training


@dataclass(frozen=True)
class AttentionFit:
    """A fitted curve, and the fit's errors."""

    curve: AttentionCurve
    fit: FittedCurve


def read_attention(path: str, head_dim: int) -> KernelTable:
    """Rows of one head_dim, without a sliding window, with keys and values in bf16. Raises InputError.

    Columns batch_size, isl, num_heads, latency; head_dim, window_size, kv_cache_dtype where the table has them.
    """
    needed = {"batch_size": None, "isl": None, "num_heads": None, "latency": None}
    table = read_table(
        path, {**needed, "head_dim": float(head_dim), "window_size": 0.0}, {"kv_cache_dtype": "bfloat16"}
    )
    mask = (table.numbers["head_dim"] == head_dim) & (table.numbers["window_size"] == 0)
    return table.where(mask).only(kv_cache_dtype="bfloat16")


def fit_attention(table: KernelTable, peak_tflops: float, causal: bool = True) -> AttentionFit:
    """The curve of one head size; `causal`: half of the scores are masked. Raises InputError, as `fit_curve` does."""
    peak = peak_tflops * 1e12 / (0.5 if causal else 1.0)

    def seconds(kernels: KernelTable, values: dict[str, float]) -> Array:
        return attention_flops(kernels, values["s0"]) / (values["share"] * peak) + values["launch_us"] * 1e-6

    coefficients = (
        PEAK_SHARE,
        BoundedCoefficient("s0", 0.0, 1e5, 100.0),
        BoundedCoefficient("launch_us", 0.0, 1e4, 10.0),
    )
    form = KernelFormula(coefficients, ("batch_size", "isl", "num_heads", "head_dim"), seconds)
    curve = fit_curve(form, table, is_training_shape(table), attention_flops(table, 0.0) / peak)
    values = rounded_coefficients(curve.values)
    return AttentionFit(AttentionCurve(**values, backward_share=round(values["share"] * BACKWARD_SHARE, 4)), curve)


def attention_flops(table: KernelTable, s0: float) -> Array:
    """FLOPs (rows,) when every token attends to every token and to s0 more."""
    s = table.numbers["isl"]
    product: Array = (
        4 * table.numbers["batch_size"] * table.numbers["num_heads"] * table.numbers["head_dim"] * s * (s + s0)
    )
    return product


def is_training_shape(table: KernelTable) -> Mask:
    """Whether each row (rows,) has a shape of training."""
    heads = table.numbers["num_heads"] * table.numbers["batch_size"]
    return np.asarray((table.numbers["isl"] >= TOKENS) & (heads >= HEADS))
