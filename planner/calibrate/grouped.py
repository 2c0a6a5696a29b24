"""The experts of one device in one grouped kernel: how fast, relative to a product of one expert's tokens.

An expert's products are [tokens × hidden]·[hidden × 2 inter], gate and up at once, and [tokens × inter]·[inter ×
hidden]; tokens = num_tokens·topk/num_experts when balanced. A kernel's imbalance is its time over the balanced one's.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.calibrate.curve import Form, Found, fit
from planner.calibrate.gemm import SHARE, rounded
from planner.calibrate.tables import Array, Table, read
from planner.errors import InputError
from planner.specs.rates import GemmCurve

AXES = ("num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size")
TOKENS, WIDTH = 256, 512  # the least tokens an expert, and the least inter on a device, of training


@dataclass(frozen=True)
class Grouped:
    share: float
    imbalance: dict[str, float]  # median time over that of the balanced, by distribution
    found: Found


def read_grouped(path: str) -> Table:
    """The rows with all experts on one device: those of many devices mean one of them, and which is not said."""
    numbers = {**dict.fromkeys(AXES), "moe_ep_size": 1.0, "latency": None}
    table = read(path, numbers, {"distribution": "balanced"})
    return table.where(table.numbers["moe_ep_size"] == 1)


def fit_grouped(table: Table, gemm: GemmCurve, peak_tflops: float, sources: tuple[str, ...] = ()) -> Grouped:
    """How a table's balanced kernels compare with `gemm`. Raises InputError where it has none."""
    balanced = table.only(distribution="balanced")

    def seconds(rows: Table, values: dict[str, float]) -> Array:
        whole: Array = apart_seconds(rows, gemm, peak_tflops * 1e12) / values["share"] + 2e-6 * gemm.launch_us
        return whole

    def inside(rows: Table) -> NDArray[np.bool_]:
        return np.asarray((tokens(rows) >= TOKENS) & (inter(rows) >= WIDTH))

    found = fit(Form((SHARE,), AXES, seconds), balanced, inside(balanced), sources=sources)
    kept = table.where(inside(table))
    names = sorted(set(kept.words["distribution"].tolist()) - {"balanced"})
    return Grouped(rounded(found.values)["share"], {name: imbalance(kept, name) for name in names}, found)


def apart_seconds(table: Table, gemm: GemmCurve, peak: float) -> Array:
    """Seconds of the experts' products one after the other, without launches."""
    m, hidden, wide = tokens(table) + gemm.m0, table.numbers["hidden_size"], inter(table)
    into = m * (2 * wide + gemm.n0) * (hidden + gemm.k0)
    out = m * (hidden + gemm.n0) * (wide + gemm.k0)
    seconds: Array = table.numbers["num_experts"] * 2 * (into + out) / (gemm.share * peak)
    return seconds


def tokens(table: Table) -> Array:
    """Tokens of one expert [rows]."""
    numbers = table.numbers
    share: Array = numbers["num_tokens"] * numbers["topk"] / numbers["num_experts"]
    return share


def inter(table: Table) -> Array:
    """An expert's inner width on one device [rows]."""
    width: Array = table.numbers["inter_size"] / table.numbers["moe_tp_size"]
    return width


def imbalance(table: Table, distribution: str) -> float:
    """The median time of a distribution over the balanced, of the configurations that have both."""
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
