"""All rates of a device, fitted to a folder of measured tables; a table's columns tell its kind."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from planner.calibrate.curve_fit import FittedCurve
from planner.calibrate.kernel_fits import (
    COLLECTIVES,
    DTYPES,
    attention_curve,
    fit_attention,
    fit_collectives,
    fit_gemm,
    fit_grouped,
    fit_memory_bandwidth,
    read_attention,
    read_collectives,
    read_gemm,
    read_grouped,
)
from planner.calibrate.kernel_tables import read_cells
from planner.callbacks import OnProgress
from planner.errors import InputError
from planner.specs.base import with_fields
from planner.specs.hardware.device_rates import DeviceRates, GemmCurve
from planner.specs.hardware.profile import CollectiveCosts, CollectivePoint, Device, Profile, Provenance

Fits = Mapping[str, FittedCurve]  # by the name of what was fitted
NamedFits = Iterator[tuple[str, FittedCurve]]
TABLE_COLUMNS = {  # required columns of each kind of table, in the order in which kinds are tried
    "moe": {"num_tokens", "hidden_size", "inter_size", "topk", "num_experts"},
    "attention": {"batch_size", "isl", "num_heads"},
    "collectives": {"op_name", "num_gpus", "message_size"},
    "gemm": {"m", "n", "k"},
}
USUAL_HEAD_SIZE = "128"  # head size whose curve stands for every other size
LEAST_SPREAD = 0.05


@dataclass(frozen=True, slots=True)
class CalibratedDevice:
    """A calibrated profile, and each fit by the name of what was fitted."""

    profile: Profile
    fits: dict[str, FittedCurve]
    unused: tuple[str, ...]  # files that hold no known kind of table


def calibrate_tables(folder: Path, base: Profile, date: str, on_table: OnProgress) -> CalibratedDevice:
    """The profile `base` with rates fitted to every table of the folder.

    Raises InputError where there is no table of matrix products, one cannot be read, or scipy is not installed.
    """
    tables = {path: table_kind(path) for path in sorted(folder.glob("*.csv*")) if path.is_file()}
    if "gemm" not in tables.values():
        what = "no table of matrix products here: a CSV file with columns m, n, k, latency"
        raise InputError(what, where=str(folder), fix="measure some, or give another folder")
    fits: dict[str, FittedCurve] = {}
    for kind, fits_of in FITTERS.items():
        for path in (path for path, is_of in tables.items() if is_of == kind):
            for name, found in fits_of(str(path), base.device, fits):
                fits[name] = dated(found, date)
                on_table(len(fits), 0, name)
    attention = {size: attention_curve(found) for size, found in named(fits, "attention/").items()}
    usual = attention.get(USUAL_HEAD_SIZE) or next(iter(attention.values()), None)
    gemm = gemm_curves(fits)
    rates = DeviceRates(
        source="fitted",
        spread=max([LEAST_SPREAD, *(found.summary.p90_error for found in named(fits, "gemm/").values())]),
        gemm=gemm,
        attention={**attention, "any": usual} if usual else {},
        grouped_share=fits["grouped"].rounded["share"] if "grouped" in fits else None,
        memory_share=fits["memory"].rounded["share"],
        launch_us=fits["memory"].rounded["launch_us"],
        fitted={name: found.summary for name, found in sorted(fits.items())},
    )
    provenance = Provenance(source=f"tables in {folder.name}", date=date, machine=base.provenance.machine)
    collectives = collective_costs(fits) or base.collectives
    profile = with_fields(base, provenance=provenance, collectives=collectives, rates=rates)
    return CalibratedDevice(profile, fits, tuple(path.name for path, kind in tables.items() if not kind))


def table_kind(path: Path) -> str:
    """The kind of a table; empty for an unknown one."""
    header, _ = read_cells(path)
    return next((kind for kind, columns in TABLE_COLUMNS.items() if columns <= set(header)), "")


def dated(found: FittedCurve, date: str) -> FittedCurve:
    """The fit with its date."""
    return replace(found, summary=with_fields(found.summary, date=date))


def named(fits: Fits, prefix: str) -> dict[str, FittedCurve]:
    """Fits whose names begin so, by the rest of these."""
    return {name.removeprefix(prefix): found for name, found in fits.items() if name.startswith(prefix)}


def gemm_curves(fits: Fits) -> dict[str, GemmCurve]:
    """The curve of each dtype."""
    return {dtype: GemmCurve(**found.rounded) for dtype, found in named(fits, "gemm/").items()}


def product_fits(path: str, device: Device, known: Fits) -> NamedFits:
    """Yield the fit of each dtype that has a peak and rows, and of the memory; bf16 is required of the first table.
    Raises InputError.
    """
    for dtype in (dtype for dtype in DTYPES if dtype in device.tflops and f"gemm/{dtype}" not in known):
        table = read_gemm(path, dtype)
        if len(table.lines):
            yield f"gemm/{dtype}", fit_gemm(table, device.tflops[dtype])
    if "gemm/bf16" not in known:
        fix = "give a table whose gemm_dtype is bfloat16, and a device with a bf16 peak"
        raise InputError("no products in bf16", where=path, fix=fix)
    if "memory" not in known:
        yield "memory", fit_memory_bandwidth(read_gemm(path), device.memory_gb_per_s)


def attention_fits(path: str, device: Device, known: Fits) -> NamedFits:
    """Yield the fit of each head size of a table; one without that column is of the usual size. A size with too few
    shapes is left out: the usual size's curve stands for it.
    """
    header, rows = read_cells(Path(path))
    at = header.index("head_dim") if "head_dim" in header else None
    sizes = sorted({cells[at] for _, cells in rows}, key=int) if at is not None else [USUAL_HEAD_SIZE]
    causal = "num_key_value_heads" in header  # tables of bidirectional attention have no such column
    for size in (size for size in sizes if f"attention/{size}" not in known):
        table = read_attention(path, int(size))
        try:
            found = fit_attention(table, device.tflops["bf16"], causal)
        except InputError:
            continue
        yield f"attention/{size}", found


def grouped_fits(path: str, device: Device, known: Fits) -> NamedFits:
    """Yield the fit of the first table of grouped kernels."""
    if "grouped" not in known:
        yield "grouped", fit_grouped(read_grouped(path), gemm_curves(known)["bf16"], device.tflops["bf16"])


def collective_fits(path: str, device: Device, known: Fits) -> NamedFits:
    """Yield the fits of the first table of collectives."""
    if not collective_costs(known):
        yield from fit_collectives(read_collectives(path))


def collective_costs(fits: Fits) -> dict[str, CollectiveCosts]:
    """What each kind of collective takes by the number of its ranks; its spread is that of the worst."""
    found: dict[str, CollectiveCosts] = {}
    for kind in sorted({*COLLECTIVES.values()}):
        lines = named(fits, f"{kind}/")
        if lines:
            points = tuple(CollectivePoint(ranks=int(ranks), **line.rounded) for ranks, line in lines.items())
            spread = max(line.summary.p90_error for line in lines.values())
            found[kind] = CollectiveCosts(source="fitted", spread=spread, points=points)
    return found


FITTERS: Mapping[str, Callable[[str, Device, Fits], NamedFits]] = {
    "gemm": product_fits,
    "attention": attention_fits,
    "moe": grouped_fits,
    "collectives": collective_fits,
}
