"""From samples to what a profile says: fits of passes, lines of collectives, each with the spread of its samples."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Literal

import numpy as np

from planner.profiling.fit import Array, holdout_error, nonnegative, residuals
from planner.profiling.grid import DEPTH
from planner.profiling.piece import AGAIN, COLLECTIVES, Kind, Sample
from planner.specs.profile import Collective, Fit, ModuleCosts, Passes, Point, Unit, Units
from planner.units import GB, KIB, MS, US

INTERVAL = 80  # percent of the samples that lie within the spread
MEDIAN, LOWER_QUARTILE = 50, 25  # what else runs on a machine only ever lengthens the way of a message
Kept = Literal["held", "resharded"]
ENDS_OF: dict[Kept, Kind] = {"held": "held_ends", "resharded": "resharded_ends"}
Typical = dict[tuple[int, ...], tuple[float, ...]]


def module_costs(samples: Sequence[Sample], measured_at: str) -> ModuleCosts:
    """What one module costs, from all its samples."""
    layer_kept, ends_kept, *again_kept = max(of_kind(samples, "kept"), key=lambda sample: sample.sizes).values
    layer, errors = passes(of_kind(samples, "layer"), DEPTH, layer_kept)
    ends, end_errors = passes(of_kind(samples, "ends"), 1, ends_kept)
    again = {
        how: passes(of_kind(samples, how), DEPTH, kept, layer_kept - kept)
        for how, kept in zip(AGAIN, again_kept, strict=True)
    }
    ((update_s,),) = over_rounds(of_kind(samples, "update"), MEDIAN).values()
    return ModuleCosts(
        source="fitted",
        spread=spread(np.concatenate([errors, end_errors, *(of_again for _, of_again in again.values())])),
        layer=layer,
        recomputing={how: made for how, (made, _) in again.items()},
        ends=ends,
        fsdp={how: units(samples, how) for how in ENDS_OF},
        update_ns_per_parameter=rounded(update_s * 1e9),
        measured_at=measured_at,
    )


def units(samples: Sequence[Sample], how: Kept) -> Units:
    """What FSDP2 adds to a layer and to the ends."""
    layer = added(of_kind(samples, "layer"), of_kind(samples, how), DEPTH)
    return Units(layer=layer, ends=added(of_kind(samples, "ends"), of_kind(samples, ENDS_OF[how]), 1))


def added(alone: Sequence[Sample], wrapped: Sequence[Sample], of: int) -> Unit:
    """To a pass of one unit of so many, in the median over batches: it does the same for each. What else runs on a
    machine meets both pieces of a round.
    """
    plain = {(sample.sizes, sample.round): sample.values for sample in alone}
    more = np.array([np.subtract(sample.values, plain[sample.sizes, sample.round]) for sample in wrapped]) / of
    forward, backward = np.maximum(0.0, np.median(more, axis=0)) / MS
    return Unit(forward_ms=rounded(forward), backward_ms=rounded(backward))


def passes(samples: Sequence[Sample], layers: int, kept: float, working: float = 0.0) -> tuple[Passes, Array]:
    """Fits of forward and backward of one of `layers` layers, and how far every sample lies from its fit.

    Bytes per token: `kept` from forward to backward, and `working` while backward makes them again.
    """
    typical = over_rounds(samples, MEDIAN)
    sizes = list(typical)
    quadratic = len({len(size) for size in sizes}) > 1  # the ends do not see documents
    columns, every = (features(which, quadratic) for which in (sizes, [sample.sizes for sample in samples]))
    fits, errors, held = [], [], []
    for index in range(2):
        values = np.array([typical[size][index] for size in sizes]) / layers
        coefficients = nonnegative(columns, values)
        fits.append(fit_of(coefficients, quadratic))
        held.append(holdout_error(columns, values))
        errors.append(residuals(every, np.array([sample.values[index] for sample in samples]) / layers, coefficients))
    known = [error for error in held if error is not None]
    result = Passes(
        forward=fits[0],
        backward=fits[1],
        activation_kib_per_token=rounded(kept / KIB),
        working_kib_per_token=rounded(working / KIB),
        holdout_error=rounded(max(known)) if known else None,
    )
    return result, np.concatenate(errors)


def features(sizes: Sequence[tuple[int, ...]], quadratic: bool) -> Array:
    """Σs², Σs and 1 of every packed batch; without the first for work that is token by token."""
    rows = [(sum(s * s for s in size), sum(size), 1) for size in sizes]
    return np.array(rows, dtype=np.float64)[:, 0 if quadratic else 1 :]


def fit_of(coefficients: Array, quadratic: bool) -> Fit:
    squared, linear, fixed = coefficients if quadratic else (0.0, *coefficients)
    return Fit(ms_per_token2=rounded(squared / MS), ms_per_token=rounded(linear / MS), ms=rounded(fixed / MS))


def collectives(samples: Sequence[Sample]) -> dict[str, Collective]:
    """A table for every collective that was measured: one line for each size of group."""
    tables: dict[str, Collective] = {}
    for kind in COLLECTIVES:
        points, errors = [], []
        for size, found in groupby(of_kind(samples, kind), key=lambda sample: sample.sizes[0]):
            point, apart = point_of(size, list(found), LOWER_QUARTILE if kind == "p2p" else MEDIAN)
            points.append(point)
            errors.append(apart)
        if points:
            tables[kind] = Collective(source="fitted", spread=spread(np.concatenate(errors)), points=tuple(points))
    return tables


def point_of(ranks: int, samples: Sequence[Sample], percentile: float) -> tuple[Point, Array]:
    """Latency and bandwidth over groups of one size; there is always a bandwidth."""
    typical = over_rounds(samples, percentile)
    columns = np.array([(1, size[1]) for size in typical], dtype=np.float64)
    coefficients = nonnegative(columns, np.array([seconds for (seconds,) in typical.values()]), always=(1,))
    every = np.array([(1, sample.sizes[1]) for sample in samples], dtype=np.float64)
    errors = residuals(every, np.array([sample.values[0] for sample in samples]), coefficients)
    latency_s, seconds_per_byte = coefficients
    point = Point(ranks=ranks, gb_per_s=rounded(1 / (seconds_per_byte * GB)), latency_us=rounded(latency_s / US))
    return point, errors


def over_rounds(samples: Iterable[Sample], percentile: float) -> Typical:
    """What stands for all rounds, for every size; `samples` in their order."""
    return {
        sizes: tuple(np.percentile([sample.values for sample in found], percentile, axis=0).tolist())
        for sizes, found in groupby(samples, key=lambda sample: sample.sizes)
    }


def of_kind(samples: Iterable[Sample], kind: Kind) -> list[Sample]:
    return sorted((sample for sample in samples if sample.kind == kind), key=lambda sample: sample.key)


def spread(errors: Array) -> float:
    return rounded(float(np.percentile(errors, INTERVAL)))


def rounded(value: float) -> float:
    """Four digits say more than was measured, and keep a file short."""
    return float(f"{value:.4g}")
