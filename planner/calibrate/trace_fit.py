"""Rates of this machine from recordings of torch.profiler: products, attention, memory, launches, collectives.

Products and attention are fitted to the operators' shapes and seconds, as tables of kernels are. All other operators
take bytes/bandwidth, by those that move much, and a launch, by those that move little; what the host does between is
launches, too. How many of these a model has, its framework decides: with the plan that was recorded, a launch takes so
long that the plan's step takes what was measured.
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np

from planner.calibrate.curve_fit import FittedCurve
from planner.calibrate.device_rates_fit import CalibratedDevice, dated
from planner.calibrate.kernel_fits import BACKWARD_SHARE, COLLECTIVES, fit_gemm, fit_line
from planner.calibrate.kernel_tables import Array, KernelTable
from planner.costs.compute import complete_rates
from planner.errors import InputError
from planner.plan.plan_file import Plan
from planner.replay import RecordedTrace, RecordedWork, Replay, ShapedOperator, kernel_class, read_operators
from planner.scoring import score
from planner.specs.base import with_fields
from planner.specs.hardware.device_rates import AttentionCurve, DeviceRates, FitQuality, GemmCurve
from planner.specs.hardware.profile import CollectiveCosts, CollectivePoint, Device, Profile, Provenance
from planner.units import GB, US

DTYPES = {"float": "float32", "double": "float64", "c10::BFloat16": "bf16", "c10::Half": "fp16"}
PRODUCTS = {"aten::mm": 0, "aten::bmm": 0, "aten::addmm": 1, "aten::baddbmm": 1}  # place of the left operand
ATTENTION = ("flash_attention", "efficient_attention", "cudnn_attention")
FREE = 20.0  # times the memory's bandwidth, beyond which an operator is taken to move nothing: a view
LEAST_SHAPES = 6  # of products, for a curve
SPREAD = 0.1  # of what is predicted by one recording
HALVINGS, MOST_LAUNCH_US = 30, 1e4
TASK = "task:"  # begins the annotations of a run of planner's own
TERA = 1e12

Shapes = dict[tuple[int, int, int], list[float]]  # seconds of products by m, n, k


class RestOfStep(NamedTuple):
    """What is neither product nor attention: bytes per second, and seconds of one launch."""

    bandwidth: float
    launch: float


def calibrate_traces(
    paths: Sequence[Path], replay: Replay, base: Profile, date: str, of_plan: tuple[Plan | None, float | None]
) -> CalibratedDevice:
    """The profile `base` with rates of recordings, one of each rank; `of_plan`: what they are of, and seconds of its
    step; None: as recorded. Raises InputError.
    """
    works = [read_operators(path) for path in paths]
    operators = [each for work in works for each in work.operators]
    products = product_times(operators)
    device = with_measured_peak(base.device, products)
    fits: dict[str, FittedCurve] = {}
    gemm = {dtype: fitted_products(each, dtype, device, str(paths[0]), fits) for dtype, each in products.items()}
    rest, fits["memory"] = fit_rest(operators, device, str(paths[0]))
    device = with_fields(device, memory_gb_per_s=max(device.memory_gb_per_s, round(rest.bandwidth / GB, 2)))
    rates = DeviceRates(
        source="measured",
        spread=SPREAD,
        gemm={"bf16": next(iter(gemm.values())), **gemm},
        attention=attention_curves(operators, device),
        memory_share=share(rest.bandwidth / (device.memory_gb_per_s * GB)),
        launch_us=round(rest.launch / US, 3),
        fitted={name: found.summary for name, found in sorted(fits.items())},
    )
    rates = complete_rates(rates, device.kind)
    plan, seconds = of_plan
    if plan is not None:
        rates = scaled_to_plan(plan, rates, device, seconds or recorded_step(replay))
    collectives = base.collectives | fitted_collectives(works, replay, str(paths[0]), fits)
    provenance = Provenance(
        source=f"recordings of {len(paths)} ranks", date=date, machine=replay.graphs[0].trace.device
    )
    profile = with_fields(base, device=device, provenance=provenance, collectives=collectives, rates=rates)
    return CalibratedDevice(profile, {name: dated(found, date) for name, found in fits.items()}, ())


def product_times(operators: Sequence[ShapedOperator]) -> dict[str, Shapes]:
    """By dtype, seconds of one product of each shape m, n, k. Raises InputError where there are too few."""
    products: dict[str, Shapes] = {}
    for each in operators:
        at = PRODUCTS.get(each.name)
        if at is None or len(each.shapes) < at + 2 or each.seconds <= 0:
            continue
        *batch, m, k = each.shapes[at]
        shape = (m, each.shapes[at + 1][-1], k)
        count = int(np.prod(batch)) if batch else 1
        products.setdefault(DTYPES.get(each.dtype, each.dtype), {}).setdefault(shape, []).append(each.seconds / count)
    most = {dtype: shapes for dtype, shapes in products.items() if len(shapes) >= LEAST_SHAPES}
    if not most:
        what = f"fewer than {LEAST_SHAPES} shapes of matrix products are in the traces"
        raise InputError(what, where="--from-trace", fix="record whole training steps, with shapes")
    return most


def with_measured_peak(device: Device, products: dict[str, Shapes]) -> Device:
    """A CPU's peak is what its quickest products reached: its file has a guess."""
    if device.kind != "cpu":
        return device
    reached = {
        dtype: max(2.0 * m * n * k / min(seconds) for (m, n, k), seconds in shapes.items()) / TERA
        for dtype, shapes in products.items()
    }
    most = max(reached.values())
    return with_fields(
        device, tflops={dtype: round(reached.get(dtype, most), 5) for dtype in {**device.tflops, **reached}}
    )


def fitted_products(shapes: Shapes, dtype: str, device: Device, where: str, fits: dict[str, FittedCurve]) -> GemmCurve:
    """The curve of products in one dtype: each shape counts as often as it was multiplied."""
    numbers = [(*shape, median(seconds) * 1e3) for shape, seconds in shapes.items() for _ in seconds[:50]]
    table = table_of(where, dict(zip(("m", "n", "k", "latency"), np.array(numbers).T, strict=True)))
    fitted = fit_gemm(table, device.tflops.get(dtype) or device.tflops_in_16_bits, table.seconds > 0)
    fits[f"gemm/{dtype}"] = fitted
    return GemmCurve(**fitted.rounded)


def table_of(where: str, columns: dict[str, Array]) -> KernelTable:
    """A table of measurements in a trace."""
    count = len(next(iter(columns.values())))
    return KernelTable(where, np.arange(1, count + 1), columns, {})


def attention_curves(operators: Sequence[ShapedOperator], device: Device) -> dict[str, AttentionCurve]:
    """The curve of each head size: medians over shapes of the shares of the peak, forward and backward."""
    found: dict[str, tuple[list[float], list[float]]] = {}
    for each in operators:
        if not any(name in each.name for name in ATTENTION) or not each.shapes or len(each.shapes[0]) != 4:
            continue
        batch, *middle, width = each.shapes[0]
        backward = "backward" in each.name
        length, heads = (max(middle), min(middle)) if "_for_cpu" not in each.name else (middle[1], middle[0])
        work = 4.0 * batch * heads * width * length**2 * (0.5 if each.causal else 1.0) * (2.5 if backward else 1.0)
        peak = device.tflops.get(DTYPES.get(each.dtype, ""), device.tflops_in_16_bits) * TERA
        if each.seconds > 0:
            found.setdefault(str(width), ([], []))[backward].append(work / each.seconds / peak)
    curves = {}
    for size, (forward, backwards) in found.items():
        if forward:
            of_backward = share(median(backwards)) if backwards else share(median(forward) * BACKWARD_SHARE)
            curves[size] = AttentionCurve(share=share(median(forward)), backward_share=of_backward)
    return {**curves, "any": next(iter(curves.values()))} if curves else {}


def share(value: float) -> float:
    """A share of a peak, as files have it."""
    return round(min(1.0, max(1e-4, value)), 4)


def fit_rest(operators: Sequence[ShapedOperator], device: Device, where: str) -> tuple[RestOfStep, FittedCurve]:
    """Bandwidth of the half of all other operators that moves most, and a launch, of the half that moves least. Raises
    InputError where all move as much, or none anything.
    """
    products = [each.name in PRODUCTS or any(name in each.name for name in ATTENTION) for each in operators]
    others = [each for each, is_product in zip(operators, products, strict=True) if not is_product and each.seconds > 0]
    quickest = FREE * device.memory_gb_per_s * GB
    working = [each for each in others if each.moved and each.moved / each.seconds < quickest]
    overhead = sum(each.seconds for each in others) - sum(each.seconds for each in working)
    moved, seconds = (np.array([getattr(each, name) for each in working], np.float64) for name in ("moved", "seconds"))
    if len({*moved.tolist()}) < 2:
        what = "no two operators beside matrix products and attention move unlike numbers of bytes"
        raise InputError(what, where="--from-trace", fix="record whole training steps, with shapes")
    large = moved > moved.min() if np.median(moved) == moved.min() else moved >= np.median(moved)
    bandwidth = float(moved[large].sum() / max(seconds[large].sum() - large.sum() * np.median(seconds[~large]), 1e-9))
    launch = float(np.median(seconds[~large]) + overhead / len(working))
    errors = np.abs((moved / bandwidth + np.median(seconds[~large])) / seconds - 1)
    quality = FitQuality(
        rows=len(working), median_error=round(float(np.median(errors)), 4),
        p90_error=round(float(np.quantile(errors, 0.9)), 4), sources=(where,),
    )  # fmt: skip
    values = {"gb_per_s": round(bandwidth / GB, 3), "launch_us": round(launch / US, 3)}
    return RestOfStep(bandwidth, launch), FittedCurve(values, quality)


def scaled_to_plan(plan: Plan, rates: DeviceRates, device: Device, measured: float) -> DeviceRates:
    """Rates whose launches make the plan's step as long as measured. Raises InputError for a plan that is not priced by
    rates.
    """
    if not plan.uses.prices.rates or plan.uses.prices.modules:
        what = "the plan is priced by seconds that `planner profile` measured, and not by rates"
        raise InputError(what, where="uses.prices", fix="solve it with the shipped profile, or leave the plan out")

    def with_launch(launch_us: float) -> DeviceRates:
        return with_fields(rates, launch_us=round(launch_us, 3))

    low, high = 0.0, MOST_LAUNCH_US
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if priced_step(plan, with_launch(middle), device) < measured else (low, middle)
    return with_launch(low)


def recorded_step(replay: Replay) -> float:
    """Seconds of the median step: of a run of planner's own from its first task to its last, as it counts them."""
    found = []
    for graph in replay.graphs:
        host = graph.trace.host
        task = np.array([name.startswith(TASK) for name in host.names], np.bool_)[host.name]
        starts, ends = host.start[task], host.end[task]
        for step in graph.steps:
            inside = (starts >= step.begin.segment.end) & (ends <= step.end.segment.end)
            if inside.any():
                found.append(float(ends[inside].max() - starts[inside].min()))
    return median(found) if found else replay.measured_step_seconds


def priced_step(plan: Plan, rates: DeviceRates, device: Device) -> float:
    """Seconds of the plan's first step on a device with these rates."""
    uses = plan.uses
    prices = with_fields(uses.prices, rates=dict.fromkeys(uses.prices.rates, rates))
    devices = dict.fromkeys(uses.devices, device)
    return float(score(with_fields(plan, uses=with_fields(uses, prices=prices, devices=devices))).step_seconds)


def fitted_collectives(
    works: Sequence[RecordedWork], replay: Replay, where: str, fits: dict[str, FittedCurve]
) -> dict[str, CollectiveCosts]:
    """Collectives of all ranks by kind: what each took by itself, after its last rank came, by what was sent."""
    times: dict[str, list[tuple[int, float]]] = {}
    graphs = replay.graphs
    sent = [messages_by_op(work, graph.trace) for work, graph in zip(works, graphs, strict=True)]
    for each in replay.matched.collectives:
        g, op = each.collective.ops[0]
        name = kernel_class(graphs[g].trace.ops[op].name, graphs[g].trace.ops[op].kind).replace("-", "_")
        ranks = len(each.collective.ops)
        if name in COLLECTIVES and sent[g].get(op) and ranks == (graphs[g].trace.world_size or ranks):
            whole = sent[g][op] * (ranks if name == "all_gather" else 1)
            times.setdefault(COLLECTIVES[name], []).append((whole, each.collective.seconds))
    found = {}
    for kind, pairs in sorted(times.items()):
        if len({size for size, _ in pairs}) < 2:
            continue
        size, seconds = np.array(pairs, np.float64).T
        columns = {"message_size": size / 2, "latency": seconds * 1e3}  # elements of two bytes, as in tables
        fit = fit_line(table_of(where, columns), large=False)
        fits[f"{kind}/{len(graphs)}"] = fit
        point = CollectivePoint(ranks=len(graphs), **fit.rounded)
        found[kind] = CollectiveCosts(source="measured", spread=max(SPREAD, fit.summary.p90_error), points=(point,))
    return found


def messages_by_op(work: RecordedWork, trace: RecordedTrace) -> dict[int, int]:
    """Bytes of each communication operation of a trace, both in the order of their start."""
    ops = [i for i, op in enumerate(trace.ops) if op.kind == "collective" or op.group]
    ops.sort(key=lambda i: trace.ops[i].start)
    return dict(zip(ops, (each.moved for each in work.messages), strict=True)) if len(ops) == len(work.messages) else {}
