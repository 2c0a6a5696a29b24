"""Turns samples into the tables of a profile: fits of passes and collectives, each with the spread of its samples.

A short stack of layers stands for a module's: of layers with and without a window it has both kinds. These differ only
in what grows with the square of an item: within a window of a few patches attention is next to nothing beside the
matrix products. So the squared term of the stack is that of its full layers alone, and the mean layer of the module has
its own share of it.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import groupby
from typing import Literal

import numpy as np

from planner.profiling.measurement import COLLECTIVES, RECOMPUTE_KINDS, MeasuredSample, MeasurementKind
from planner.profiling.measurement_grid import MIN_BATCH_SIZES, STACK_LAYERS
from planner.profiling.pass_fit import Array, SizeFit, fit_nonnegative, fit_sizes, holdout_error
from planner.specs.base import with_fields
from planner.specs.framework.memory_coefficients import RUNTIME_LOGITS_AT_ONCE
from planner.specs.hardware.profile import (
    CollectiveCosts,
    CollectivePoint,
    FsdpUnit,
    FsdpUnits,
    ModuleCosts,
    PassCosts,
    PassFit,
)
from planner.specs.layers import Module
from planner.units import GB, KIB, MS, US, four_digits

INTERVAL = 80  # percent of the samples within the spread
MEDIAN, LOWER_QUARTILE = 50, 25  # other load on a machine only ever delays messages
FsdpMode = Literal["held", "resharded"]
ENDS_OF: dict[FsdpMode, MeasurementKind] = {"held": "held_ends", "resharded": "resharded_ends"}
Typical = dict[tuple[int, ...], tuple[float, ...]]


def module_costs(samples: Sequence[MeasuredSample], spec: Module, measured_at: str, asynchronous: bool) -> ModuleCosts:
    """The costs of one module, from all its samples; `asynchronous`: a GPU's, which works while the host goes on."""
    fit_passes = partial(fitted_passes, asynchronous=asynchronous)
    share = squared_share(spec, STACK_LAYERS)
    layer_bytes, ends_bytes, *recomputed_bytes = max(of_kind(samples, "kept"), key=lambda sample: sample.sizes).values
    layer, errors = fit_passes(of_kind(samples, "layer"), STACK_LAYERS, layer_bytes)
    frozen = of_kind(samples, "frozen")
    ends, end_errors = fit_passes(in_chunks(of_kind(samples, "ends"), spec), 1, ends_bytes)
    recomputing = {
        how: fit_passes(of_kind(samples, how), STACK_LAYERS, kept, layer_bytes - kept)
        for how, kept in zip(RECOMPUTE_KINDS, recomputed_bytes, strict=True)
    }
    ((update_s,),) = percentile_over_rounds(of_kind(samples, "update"), MEDIAN).values()
    return ModuleCosts(
        source="fitted",
        spread=spread(np.concatenate([errors, end_errors, *(errors for _, errors in recomputing.values())])),
        layer=with_squared_share(layer, share),
        recomputing={how: with_squared_share(fitted, share) for how, (fitted, _) in recomputing.items()},
        frozen=with_squared_share(fit_passes(frozen, STACK_LAYERS, layer_bytes)[0], share) if frozen else None,
        ends=ends,
        fsdp={how: fsdp_units(samples, how) for how in ENDS_OF},
        update_ns_per_parameter=four_digits(update_s * 1e9),
        measured_at=measured_at,
    )


def with_squared_share(costs: PassCosts, share: float) -> PassCosts:
    """The fits with another share of what grows with the square of an item."""
    if share == 1.0 or costs.forward is None or costs.backward is None:
        return costs
    fits = (costs.forward, costs.backward)
    forward, backward = (with_fields(fit, ms_per_token2=four_digits(fit.ms_per_token2 * share)) for fit in fits)
    return with_fields(costs, forward=forward, backward=backward)


def fsdp_units(samples: Sequence[MeasuredSample], how: FsdpMode) -> FsdpUnits:
    """What FSDP2 adds to a pass of a layer, and of embedding and head."""
    layer = fsdp_overhead(of_kind(samples, "layer"), of_kind(samples, how), STACK_LAYERS)
    return FsdpUnits(layer=layer, ends=fsdp_overhead(of_kind(samples, "ends"), of_kind(samples, ENDS_OF[how]), 1))


def fsdp_overhead(unsharded: Sequence[MeasuredSample], under_fsdp: Sequence[MeasuredSample], of: int) -> FsdpUnit:
    """Seconds that FSDP2 adds to a pass of one of `of` units: the median difference over batches, since the overhead
    does not depend on them. Differences are taken within a round, where other load on the machine affects both samples.
    """
    plain = {(sample.sizes, sample.round): sample.values for sample in unsharded}
    differences = (
        np.array([np.subtract(sample.values, plain[sample.sizes, sample.round]) for sample in under_fsdp]) / of
    )
    forward, backward = np.maximum(0.0, np.median(differences, axis=0)) / MS
    return FsdpUnit(forward_ms=four_digits(forward), backward_ms=four_digits(backward))


def in_chunks(samples: Sequence[MeasuredSample], spec: Module) -> Sequence[MeasuredSample]:
    """Samples of embedding and head with so many tokens that the loss is computed in chunks, whose logits backward
    recomputes: that is other work than below, and what micro-batches have. All samples where few have.
    """
    most = RUNTIME_LOGITS_AT_ONCE
    chunked = [sample for sample in samples if sum(sample.sizes) * spec.output_vocabulary > most]
    return chunked if len({sample.sizes for sample in chunked}) >= MIN_BATCH_SIZES else samples


def fitted_passes(
    samples: Sequence[MeasuredSample], layers: int, kept: float, working: float = 0.0, *, asynchronous: bool
) -> tuple[PassCosts, Array]:
    """Fits of forward and backward of one of `layers` layers, and the relative error of every sample.

    Bytes per token: `kept` from forward to backward, and `working` recomputed in backward.
    """
    typical = percentile_over_rounds(samples, MEDIAN)
    sizes = list(typical)
    quadratic = len({len(size) for size in sizes}) > 1  # embedding and head do not depend on documents
    columns, every = (size_columns(which, quadratic) for which in (sizes, [sample.sizes for sample in samples]))
    fits, errors, holdouts = [], [], []
    for index in range(2):
        values = np.array([typical[size][index] for size in sizes]) / layers
        fit = fit_sizes(columns, values, asynchronous)
        fits.append(fit_of(fit, quadratic))
        holdouts.append(holdout_error(columns, values, asynchronous))
        errors.append(fit.errors(every, np.array([sample.values[index] for sample in samples]) / layers))
    known = [error for error in holdouts if error is not None]
    result = PassCosts(
        forward=fits[0],
        backward=fits[1],
        activation_kib_per_token=four_digits(kept / KIB),
        working_kib_per_token=four_digits(working / KIB),
        holdout_error=four_digits(max(known)) if known else None,
    )
    return result, np.concatenate(errors)


def size_columns(sizes: Sequence[tuple[int, ...]], quadratic: bool) -> Array:
    """Columns Σs², Σs and 1 of every packed batch of documents of s tokens; without Σs² if not `quadratic`."""
    sums = [(sum(s * s for s in size), sum(size), 1) for size in sizes]
    return np.array(sums, dtype=np.float64)[:, 0 if quadratic else 1 :]


def fit_of(fit: SizeFit, quadratic: bool) -> PassFit:
    squared, linear, fixed = (four_digits(each / MS) for each in (*(() if quadratic else (0.0,)), *fit.coefficients))
    return PassFit(ms_per_token2=squared, ms_per_token=linear, ms=fixed, launch_ms=four_digits(fit.launches / MS))


def collective_tables(samples: Sequence[MeasuredSample]) -> dict[str, CollectiveCosts]:
    """A table for every collective that was measured, with one point per group size."""
    tables: dict[str, CollectiveCosts] = {}
    for kind in COLLECTIVES:
        points, errors = [], []
        for size, of_size in groupby(of_kind(samples, kind), key=lambda sample: sample.sizes[0]):
            point, deviations = fit_point(size, list(of_size), LOWER_QUARTILE if kind == "p2p" else MEDIAN)
            points.append(point)
            errors.append(deviations)
        if points:
            tables[kind] = CollectiveCosts(source="fitted", spread=spread(np.concatenate(errors)), points=tuple(points))
    return tables


def fit_point(ranks: int, samples: Sequence[MeasuredSample], percentile: float) -> tuple[CollectivePoint, Array]:
    """Latency and bandwidth over groups of one size, and relative errors; the bandwidth is always finite."""
    typical = percentile_over_rounds(samples, percentile)
    columns = np.array([(1, size[1]) for size in typical], dtype=np.float64)
    coefficients = fit_nonnegative(columns, np.array([seconds for (seconds,) in typical.values()]), always=(1,))
    every = np.array([(1, sample.sizes[1]) for sample in samples], dtype=np.float64)
    errors = SizeFit(coefficients).errors(every, np.array([sample.values[0] for sample in samples]))
    latency_s, seconds_per_byte = coefficients
    point = CollectivePoint(
        ranks=ranks, gb_per_s=four_digits(1 / (seconds_per_byte * GB)), latency_us=four_digits(latency_s / US)
    )
    return point, errors


def percentile_over_rounds(samples: Iterable[MeasuredSample], percentile: float) -> Typical:
    """A percentile over rounds of the samples of every size; `samples` sorted by size."""
    return {
        sizes: tuple(np.percentile([sample.values for sample in of_size], percentile, axis=0).tolist())
        for sizes, of_size in groupby(samples, key=lambda sample: sample.sizes)
    }


def of_kind(samples: Iterable[MeasuredSample], kind: MeasurementKind) -> list[MeasuredSample]:
    return sorted((sample for sample in samples if sample.kind == kind), key=lambda sample: sample.key)


def spread(errors: Array) -> float:
    """Half-width of the 80 % interval over the value."""
    return four_digits(float(np.percentile(errors, INTERVAL)))


def squared_share(spec: Module, depth: int) -> float:
    """The squared term of a layer in the mean of the module, over that of a layer in the mean of the stack."""
    if spec.causal:  # a window that slides is long: attention in it is no part of the products
        return 1.0
    module, stack = (full_layers(each) / each.layers for each in (spec, spec.short_stack(depth)))
    return module / stack if stack else 1.0


def full_layers(spec: Module) -> int:
    """How many layers have full attention."""
    return sum(spec.window_of(layer) is None for layer in range(spec.layers))
