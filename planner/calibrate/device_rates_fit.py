"""All rates of a device, fitted to a folder of measured tables; a table's columns tell its kind."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from planner.calibrate.attention_fit import fit_attention, read_attention
from planner.calibrate.collectives_fit import fit_collectives, read_collectives
from planner.calibrate.curve_fit import FittedCurve
from planner.calibrate.gemm_fit import DTYPES, fit_gemm, fit_memory_bandwidth, read_gemm
from planner.calibrate.grouped_gemm_fit import fit_grouped, read_grouped
from planner.calibrate.kernel_tables import read_cells
from planner.errors import InputError
from planner.specs.base import with_fields
from planner.specs.hardware.device_rates import AttentionCurve, DeviceRates, GemmCurve
from planner.specs.hardware.profile import CollectiveCosts, Profile, Provenance

TABLE_COLUMNS = {  # required columns of each kind of table, in the order in which kinds are tried
    "moe": {"num_tokens", "hidden_size", "inter_size", "topk", "num_experts"},
    "attention": {"batch_size", "isl", "num_heads"},
    "collectives": {"op_name", "num_gpus", "message_size"},
    "gemm": {"m", "n", "k"},
}
USUAL_HEAD_SIZE = "128"  # head size whose curve stands for every other size
LEAST_SPREAD = 0.05
OnTableFit = Callable[[int, int, str], None]  # number done, total (0: unknown), name of the fit


@dataclass(frozen=True, slots=True)
class CalibratedDevice:
    """A calibrated profile, and each fit by the name of what was fitted."""

    profile: Profile
    fits: dict[str, FittedCurve]
    unused: tuple[str, ...]  # files that hold no known kind of table


def calibrate_tables(folder: Path, base: Profile, date: str, on_table: OnTableFit) -> CalibratedDevice:
    """The profile `base` with rates fitted to every table of the folder.

    Raises InputError where there is no table of matrix products, one cannot be read, or scipy is not installed.
    """
    tables = {path: table_kind(path) for path in sorted(folder.glob("*.csv*")) if path.is_file()}
    by_kind = {kind: [path for path, is_of in tables.items() if is_of == kind] for kind in TABLE_COLUMNS}
    if not by_kind["gemm"]:
        what = "no table of matrix products here: a CSV file with columns m, n, k, latency"
        raise InputError(what, where=str(folder), fix="measure some, or give another folder")
    fits: dict[str, FittedCurve] = {}

    def on_fit(name: str, found: FittedCurve) -> None:
        fits[name] = dated(found, date)
        on_table(len(fits), 0, name)

    gemm = gemm_curves(by_kind["gemm"], base, on_fit)
    memory = fit_memory_bandwidth(read_gemm(str(by_kind["gemm"][0])), base.device.memory_gb_per_s)
    on_fit("memory", memory.fit)
    rates = DeviceRates(
        source="fitted",
        spread=LEAST_SPREAD,
        gemm=gemm,
        attention=attention_curves(by_kind["attention"], base, on_fit),
        grouped_share=grouped_share(by_kind["moe"], gemm, base, on_fit),
        memory_share=memory.share,
        launch_us=memory.launch_us,
    )
    collectives = collective_lines(by_kind["collectives"], on_fit) or base.collectives
    worst = max([LEAST_SPREAD, *(found.summary.p90_error for name, found in fits.items() if name.startswith("gemm"))])
    rates = with_fields(rates, spread=worst, fitted={name: found.summary for name, found in sorted(fits.items())})
    provenance = Provenance(source=f"tables in {folder.name}", date=date, machine=base.provenance.machine)
    profile = with_fields(base, provenance=provenance, collectives=collectives, rates=rates)
    return CalibratedDevice(profile, fits, tuple(path.name for path, kind in tables.items() if not kind))


def table_kind(path: Path) -> str:
    """The kind of a table; empty for an unknown one."""
    header, _ = read_cells(path)
    return next((kind for kind, columns in TABLE_COLUMNS.items() if columns <= set(header)), "")


def dated(found: FittedCurve, date: str) -> FittedCurve:
    """The fit with its date."""
    return FittedCurve(found.values, with_fields(found.summary, date=date), found.rejected_rows)


def gemm_curves(
    paths: Sequence[Path], base: Profile, on_fit: Callable[[str, FittedCurve], None]
) -> dict[str, GemmCurve]:
    """The curve of each dtype that has a peak and a table; bf16 is required. Raises InputError."""
    curves: dict[str, GemmCurve] = {}
    for dtype in DTYPES:
        peak = base.device.tflops.get(dtype)
        for path in paths if peak else ():
            table = read_gemm(str(path), dtype)
            if len(table.lines) and dtype not in curves and peak:
                fit = fit_gemm(table, peak)
                curves[dtype] = fit.curve
                on_fit(f"gemm/{dtype}", fit.fit)
    if "bf16" not in curves:
        fix = "give a table whose gemm_dtype is bfloat16, and a device with a bf16 peak"
        raise InputError("no products in bf16", where=str(paths[0]), fix=fix)
    return curves


def attention_curves(
    paths: Sequence[Path], base: Profile, on_fit: Callable[[str, FittedCurve], None]
) -> dict[str, AttentionCurve]:
    """The curve of each head size in the tables; a table without that column is of the usual size."""
    curves: dict[str, AttentionCurve] = {}
    for path in paths:
        header, rows = read_cells(path)
        at = header.index("head_dim") if "head_dim" in header else None
        sizes = sorted({cells[at] for _, cells in rows}, key=int) if at is not None else [USUAL_HEAD_SIZE]
        causal = "num_key_value_heads" in header  # tables of bidirectional attention have no such column
        for size in sizes:
            table = read_attention(str(path), int(size))
            try:
                fit = fit_attention(table, base.device.tflops["bf16"], causal)
            except InputError:  # too few shapes of this size: the usual size's curve stands for it
                continue
            if size not in curves:
                curves[size] = fit.curve
                on_fit(f"attention/{size}", fit.fit)
    usual = curves.get(USUAL_HEAD_SIZE) or next(iter(curves.values()), None)
    return {**curves, "any": usual} if usual else {}


def grouped_share(
    paths: Sequence[Path], gemm: dict[str, GemmCurve], base: Profile, on_fit: Callable[[str, FittedCurve], None]
) -> float | None:
    """The share of the first table of grouped kernels, None without one."""
    for path in paths:
        fit = fit_grouped(read_grouped(str(path)), gemm["bf16"], base.device.tflops["bf16"])
        on_fit("grouped", fit.fit)
        return fit.share
    return None


def collective_lines(paths: Sequence[Path], on_fit: Callable[[str, FittedCurve], None]) -> dict[str, CollectiveCosts]:
    """Every collective of the first such table, empty without one."""
    for path in paths:
        fit = fit_collectives(read_collectives(str(path)))
        for name, found in fit.fits.items():
            on_fit(name, found)
        return fit.table
    return {}
