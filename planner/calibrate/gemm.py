"""Matrix products: 2(m + m0)(n + n0)(k + k0)/(share·peak) + launch, of bf16 and fp8 tables.

Fitted on shapes of training (many tokens, wide layers); the errors on smaller ones, where launches and the stream of
the weights decide, are told apart.
"""

from dataclasses import dataclass

import numpy as np

from planner.calibrate.curve import Coefficient, Form, Found, fit
from planner.calibrate.tables import Array, Mask, Table, read
from planner.specs.rates import GemmCurve

TOKENS, WIDTH = 1024, 512  # the least m, and the least n and k, of a product in training
WHOLE = 16  # tokens come in multiples of it: fp8 kernels ask for that, and run up to 15 % slower on what they must pad
DTYPES = {"bf16": "bfloat16", "fp8": "fp8"}  # as tables call them
SHARE = Coefficient("share", 1e-3, 1.0, 0.1, prior=None)


@dataclass(frozen=True)
class Gemm:
    curve: GemmCurve
    found: Found


def read_gemm(path: str, dtype: str = "bf16", system: str = "") -> Table:
    """The products of one dtype: m, n, k, latency; gemm_dtype and system where the table has several."""
    name = DTYPES.get(dtype, dtype)
    numbers = {"m": None, "n": None, "k": None, "latency": None}
    return read(path, numbers, {"gemm_dtype": name, "system": system}).only(gemm_dtype=name, system=system)


def fit_gemm(table: Table, peak_tflops: float, sources: tuple[str, ...] = ()) -> Gemm:
    """The curve of a table's products. Raises InputError where the table cannot tell one."""
    peak = peak_tflops * 1e12

    def seconds(rows: Table, values: dict[str, float]) -> Array:
        return padded_seconds(rows, values, peak)

    coefficients = (
        SHARE,
        *(Coefficient(name, 0.0, 1e5, 100.0) for name in ("m0", "n0", "k0")),
        Coefficient("launch_us", 0.0, 1e4, 10.0),
    )
    form = Form(coefficients, ("m", "n", "k"), seconds)
    found = fit(form, table, in_training(table), flops(table) / peak, sources)
    return Gemm(GemmCurve(**rounded(found.values)), found)


def padded_seconds(table: Table, values: dict[str, float], peak: float) -> Array:
    m, n, k = (table.numbers[axis] + values[f"{axis}0"] for axis in "mnk")
    seconds: Array = 2 * m * n * k / (values["share"] * peak) + values["launch_us"] * 1e-6
    return seconds


def flops(table: Table) -> Array:
    m, n, k = (table.numbers[axis] for axis in "mnk")
    product: Array = 2 * m * n * k
    return product


def in_training(table: Table) -> Mask:
    m, n, k = (table.numbers[axis] for axis in "mnk")
    return np.asarray((m >= TOKENS) & (m % WHOLE == 0) & (n >= WIDTH) & (k >= WIDTH))


def rounded(values: dict[str, float]) -> dict[str, float]:
    """As files have them: shares to four places, lengths and microseconds to two."""
    return {name: round(value, 4 if name.endswith("share") else 2) for name, value in values.items()}
