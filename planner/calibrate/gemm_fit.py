"""Fit of matrix products: 2(m + m0)(n + n0)(k + k0)/(share·peak) + launch, of bf16 and fp8 tables.

Only shapes of training (many tokens, wide layers) are fitted. Errors on smaller ones, which are bound by launches and
by reading weights, are reported apart.

Products of at most 16 rows, which read their weights once and compute next to nothing, with weights larger than any
cache, give the share of the memory's bandwidth: bytes/(share·bandwidth) + launch.
"""

from dataclasses import dataclass

import numpy as np

from planner.calibrate.curve_fit import BoundedCoefficient, FittedCurve, KernelFormula, fit_curve
from planner.calibrate.kernel_tables import Array, KernelTable, Mask, read_table
from planner.specs.hardware.device_rates import GemmCurve

TOKENS, WIDTH = 1024, 512  # least m, and least n and k, of a product in training
TOKEN_MULTIPLE = 16  # m must be a multiple: fp8 kernels require it, and run up to 15 % slower where they must pad
DTYPES = {"bf16": "bfloat16", "fp8": "fp8"}  # names of dtypes in tables
PEAK_SHARE = BoundedCoefficient("share", 1e-3, 1.0, 0.1, prior=None)
ROWS = 16  # one tile: with more rows, compute begins to count
BYTES = 2  # of an element of bf16
LEAST_BYTES = 128e6  # bytes: over twice the last-level cache of an A100 (40 MB) or an H100 (50 MB)


@dataclass(frozen=True)
class GemmFit:
    """A fitted curve, and the fit's errors."""

    curve: GemmCurve
    fit: FittedCurve


def read_gemm(path: str, dtype: str = "bf16", system: str = "") -> KernelTable:
    """Matrix products of one dtype. Raises InputError.

    Columns m, n, k, latency; gemm_dtype and system where the table has them.
    """
    name = DTYPES.get(dtype, dtype)
    numbers = {"m": None, "n": None, "k": None, "latency": None}
    return read_table(path, numbers, {"gemm_dtype": name, "system": system}).only(gemm_dtype=name, system=system)


def fit_gemm(table: KernelTable, peak_tflops: float, inside: Mask | None = None) -> GemmFit:
    """The curve of a table's matrix products; `inside` (rows,): those that are fitted, by default of training's shapes.
    Raises InputError, as `fit_curve` does.
    """
    peak = peak_tflops * 1e12

    def seconds(kernels: KernelTable, values: dict[str, float]) -> Array:
        return padded_seconds(kernels, values, peak)

    coefficients = (
        PEAK_SHARE,
        *(BoundedCoefficient(name, 0.0, 1e5, 100.0) for name in ("m0", "n0", "k0")),
        BoundedCoefficient("launch_us", 0.0, 1e4, 10.0),
    )
    form = KernelFormula(coefficients, ("m", "n", "k"), seconds)
    curve = fit_curve(form, table, is_training_shape(table) if inside is None else inside, gemm_flops(table) / peak)
    return GemmFit(GemmCurve(**rounded_coefficients(curve.values)), curve)


def padded_seconds(table: KernelTable, values: dict[str, float], peak: float) -> Array:
    """Seconds (rows,) with each dimension extended by its coefficient; `peak` in FLOP/s."""
    m, n, k = (table.numbers[axis] + values[f"{axis}0"] for axis in "mnk")
    seconds: Array = 2 * m * n * k / (values["share"] * peak) + values["launch_us"] * 1e-6
    return seconds


def gemm_flops(table: KernelTable) -> Array:
    """FLOPs (rows,)."""
    m, n, k = (table.numbers[axis] for axis in "mnk")
    product: Array = 2 * m * n * k
    return product


def is_training_shape(table: KernelTable) -> Mask:
    """Whether each row (rows,) has a shape of training."""
    m, n, k = (table.numbers[axis] for axis in "mnk")
    return np.asarray((m >= TOKENS) & (m % TOKEN_MULTIPLE == 0) & (n >= WIDTH) & (k >= WIDTH))


def rounded_coefficients(values: dict[str, float]) -> dict[str, float]:
    """Coefficients rounded for files: shares to four decimals, lengths and microseconds to two."""
    return {name: round(value, 4 if name.endswith("share") else 2) for name, value in values.items()}


@dataclass(frozen=True)
class BandwidthFit:
    """The fitted share of the bandwidth, launch overhead, and the fit's errors."""

    share: float
    launch_us: float
    fit: FittedCurve


def fit_memory_bandwidth(gemms: KernelTable, gb_per_s: float) -> BandwidthFit:
    """The share of the bandwidth that thin bf16 products reach. Raises InputError where there are too few."""
    bandwidth = gb_per_s * 1e9
    thin = gemms.where(gemms.numbers["m"] <= ROWS)

    def seconds(kernels: KernelTable, values: dict[str, float]) -> Array:
        return moved_bytes(kernels) / (values["share"] * bandwidth) + values["launch_us"] * 1e-6

    form = KernelFormula((PEAK_SHARE, BoundedCoefficient("launch_us", 0.0, 1e4, 10.0)), ("m", "n", "k"), seconds)
    curve = fit_curve(form, thin, np.asarray(moved_bytes(thin) >= LEAST_BYTES))
    values = rounded_coefficients(curve.values)
    return BandwidthFit(values["share"], values["launch_us"], curve)


def moved_bytes(table: KernelTable) -> Array:
    """Bytes (rows,) read and written."""
    m, n, k = (table.numbers[axis] for axis in "mnk")
    total: Array = BYTES * (m * n + n * k + m * k)
    return total
