"""Fit of collectives within one node: latency + bytes/bandwidth, by kind and number of ranks.

Bytes are those that the cost model prices: the whole gathered buffer of an all-gather or a reduce-scatter,
the buffer sent of an all-to-all, an all-reduce or a p2p. NCCL's tests count that buffer too, here in elements.
"""

from dataclasses import dataclass

import numpy as np

from planner.calibrate.curve_fit import BoundedCoefficient, FittedCurve, KernelFormula, fit_curve
from planner.calibrate.gemm_fit import rounded_coefficients
from planner.calibrate.kernel_tables import Array, KernelTable, read_table
from planner.specs.hardware.profile import CollectiveCosts, CollectivePoint

KINDS = {
    "all_gather": "all_gather",
    "all_reduce": "all_reduce",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "all_to_all": "all_to_all",
    "send_recv": "p2p",
}
ELEMENT_BYTES = 2  # of half
LEAST_BYTES = 4 * 2**20  # bytes: least size that training sends; NCCL sends smaller buffers by other protocols


@dataclass(frozen=True)
class CollectiveFits:
    """Fitted collectives of a device, and each fit's errors."""

    table: dict[str, CollectiveCosts]  # by kind
    fits: dict[str, FittedCurve]  # by kind/ranks


def read_collectives(path: str, **words: str) -> KernelTable:
    """Rows in half precision whose columns have these words (such as system, version). Raises InputError.

    Columns op_name, num_gpus, message_size in elements, latency.
    """
    numbers = {"num_gpus": None, "message_size": None, "latency": None}
    chosen = {"nccl_dtype": "half", **words}
    return read_table(path, numbers, {"op_name": None, **chosen}).only(**chosen)


def fit_collectives(table: KernelTable) -> CollectiveFits:
    """Every kind of collective at every number of ranks in the table. Raises InputError where one has too few sizes."""
    points: dict[str, list[CollectivePoint]] = {}
    lines: dict[str, FittedCurve] = {}
    for name in sorted(set(table.words["op_name"].tolist()) & set(KINDS)):
        kind, of_kind = KINDS[name], table.words["op_name"] == name
        for ranks in sorted(set(table.numbers["num_gpus"][of_kind].tolist())):
            line = fit_line(table.where(of_kind & (table.numbers["num_gpus"] == ranks)))
            lines[f"{kind}/{ranks:.0f}"] = line
            points.setdefault(kind, []).append(CollectivePoint(ranks=int(ranks), **rounded_coefficients(line.values)))
    spread = {
        kind: max(line.summary.p90_error for key, line in lines.items() if key.startswith(kind)) for kind in points
    }
    return CollectiveFits(
        {
            kind: CollectiveCosts(source="fitted", spread=spread[kind], points=tuple(points[kind]))
            for kind in sorted(points)
        },
        lines,
    )


def fit_line(table: KernelTable, *, large: bool = True) -> FittedCurve:
    """Fit latency_us and gb_per_s of one kind at one number of ranks; `large`: of the sizes that training sends alone.
    Raises InputError, as `fit_curve` does.
    """
    coefficients = (
        BoundedCoefficient("gb_per_s", 1e-3, 1e5, 100.0, prior=None),
        BoundedCoefficient("latency_us", 0.0, 1e6, 10.0),
    )
    inside = buffer_bytes(table) >= LEAST_BYTES if large else table.seconds > 0
    return fit_curve(KernelFormula(coefficients, ("message_size",), collective_seconds), table, np.asarray(inside))


def collective_seconds(table: KernelTable, values: dict[str, float]) -> Array:
    """Seconds (rows,) of each transfer."""
    whole: Array = values["latency_us"] * 1e-6 + buffer_bytes(table) / (values["gb_per_s"] * 1e9)
    return whole


def buffer_bytes(table: KernelTable) -> Array:
    """Bytes (rows,) of the buffer."""
    total: Array = table.numbers["message_size"] * ELEMENT_BYTES
    return total
