"""Fit of memory-bound kernels: bytes/(share·bandwidth) + launch.

The kernels are matrix products of at most 16 rows, which read their weights once and compute next to nothing, with
weights larger than any cache.
"""

from dataclasses import dataclass

import numpy as np

from planner.calibrate.curve_fit import BoundedCoefficient, FittedCurve, KernelFormula, fit_curve
from planner.calibrate.gemm_fit import PEAK_SHARE, rounded_coefficients
from planner.calibrate.kernel_tables import Array, KernelTable

ROWS = 16  # one tile: with more rows, compute begins to count
BYTES = 2  # of an element of bf16
LEAST_BYTES = 128e6  # bytes: over twice the last-level cache of an A100 (40 MB) or an H100 (50 MB)


@dataclass(frozen=True)
class BandwidthFit:
    """The fitted share of the bandwidth, launch overhead, and the fit's errors."""

    share: float
    launch_us: float
    fit: FittedCurve


def fit_memory_bandwidth(gemms: KernelTable, gb_per_s: float, sources: tuple[str, ...] = ()) -> BandwidthFit:
    """The share of the bandwidth that thin bf16 products reach. Raises InputError where there are too few."""
    bandwidth = gb_per_s * 1e9
    thin = gemms.where(gemms.numbers["m"] <= ROWS)

    def seconds(kernels: KernelTable, values: dict[str, float]) -> Array:
        return moved_bytes(kernels) / (values["share"] * bandwidth) + values["launch_us"] * 1e-6

    form = KernelFormula((PEAK_SHARE, BoundedCoefficient("launch_us", 0.0, 1e4, 10.0)), ("m", "n", "k"), seconds)
    curve = fit_curve(form, thin, np.asarray(moved_bytes(thin) >= LEAST_BYTES), sources=sources)
    values = rounded_coefficients(curve.values)
    return BandwidthFit(values["share"], values["launch_us"], curve)


def moved_bytes(table: KernelTable) -> Array:
    """Bytes (rows,) read and written."""
    m, n, k = (table.numbers[axis] for axis in "mnk")
    total: Array = BYTES * (m * n + n * k + m * k)
    return total
