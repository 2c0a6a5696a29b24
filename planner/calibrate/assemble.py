"""A device's whole rates from a folder of measured tables; what a table is of, its columns say."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from planner.calibrate.attention import fit_attention, read_attention
from planner.calibrate.collectives import fit_collectives, read_collectives
from planner.calibrate.curve import Found
from planner.calibrate.gemm import DTYPES, fit_gemm, read_gemm
from planner.calibrate.grouped import fit_grouped, read_grouped
from planner.calibrate.memory import fit_memory
from planner.calibrate.tables import raw
from planner.errors import InputError
from planner.specs.base import changed
from planner.specs.profile import Collective, Profile, Provenance
from planner.specs.rates import AttentionCurve, GemmCurve, Rates

COLUMNS = {  # the columns of each kind of table, in the order in which they are looked for
    "moe": {"num_tokens", "hidden_size", "inter_size", "topk", "num_experts"},
    "attention": {"batch_size", "isl", "num_heads"},
    "collectives": {"op_name", "num_gpus", "message_size"},
    "gemm": {"m", "n", "k"},
}
USUAL_HEAD = "128"  # whose curve stands for heads of any other size
LEAST_SPREAD = 0.05
OnTable = Callable[[int, int, str], None]  # done, of how many, which


@dataclass(frozen=True, slots=True)
class Calibrated:
    """A profile, and each fit by what it is of."""

    profile: Profile
    found: dict[str, Found]
    unused: tuple[str, ...]  # tables that are none of these


def calibrate_tables(folder: Path, base: Profile, date: str, on_table: OnTable) -> Calibrated:
    """`base`: the device's facts. Raises InputError where no table of products is there, or one cannot be read."""
    tables = {path: kind_of(path) for path in sorted(folder.glob("*.csv*")) if path.is_file()}
    by_kind = {kind: [path for path, is_of in tables.items() if is_of == kind] for kind in COLUMNS}
    if not by_kind["gemm"]:
        what = "no table of matrix products is here: a CSV with columns m, n, k, latency"
        raise InputError(what, where=str(folder), fix="measure some, or give another folder")
    done: dict[str, Found] = {}

    def said(name: str, found: Found) -> None:
        done[name] = changed_date(found, date)
        on_table(len(done), 0, name)

    gemm = gemms(by_kind["gemm"], base, said)
    memory = fit_memory(read_gemm(str(by_kind["gemm"][0])), base.device.memory_gb_per_s)
    said("memory", memory.found)
    rates = Rates(
        source="fitted",
        spread=LEAST_SPREAD,
        gemm=gemm,
        attention=attentions(by_kind["attention"], base, said),
        grouped_share=grouped(by_kind["moe"], gemm, base, said),
        memory_share=memory.share,
        launch_us=memory.launch_us,
    )
    collectives = links(by_kind["collectives"], said) or base.collectives
    worst = max([LEAST_SPREAD, *(found.fitted.p90_error for name, found in done.items() if name.startswith("gemm"))])
    rates = changed(rates, spread=worst, fitted={name: found.fitted for name, found in sorted(done.items())})
    made = Provenance(source=f"tables in {folder.name}", date=date, machine=base.provenance.machine)
    profile = changed(base, provenance=made, collectives=collectives, rates=rates)
    return Calibrated(profile, done, tuple(path.name for path, kind in tables.items() if not kind))


def kind_of(path: Path) -> str:
    """Of a table; empty for one of anything else."""
    header, _ = raw(path)
    return next((kind for kind, columns in COLUMNS.items() if columns <= set(header)), "")


def changed_date(found: Found, date: str) -> Found:
    return Found(found.values, changed(found.fitted, date=date), found.left_out)


def gemms(paths: Sequence[Path], base: Profile, said: Callable[[str, Found], None]) -> dict[str, GemmCurve]:
    """Of each dtype that both the device and the first table with it have; bf16 must be there."""
    curves: dict[str, GemmCurve] = {}
    for dtype in DTYPES:
        peak = base.device.tflops.get(dtype)
        for path in paths if peak else ():
            table = read_gemm(str(path), dtype)
            if len(table.lines) and dtype not in curves and peak:
                fit = fit_gemm(table, peak)
                curves[dtype] = fit.curve
                said(f"gemm/{dtype}", fit.found)
    if "bf16" not in curves:
        fix = "give a table whose gemm_dtype is bfloat16, and a device with a bf16 peak"
        raise InputError("no products in bf16", where=str(paths[0]), fix=fix)
    return curves


def attentions(paths: Sequence[Path], base: Profile, said: Callable[[str, Found], None]) -> dict[str, AttentionCurve]:
    """Of each size of head that a table has, or the usual one where it does not say."""
    curves: dict[str, AttentionCurve] = {}
    for path in paths:
        header, rows = raw(path)
        at = header.index("head_dim") if "head_dim" in header else None
        sizes = sorted({cells[at] for _, cells in rows}, key=int) if at is not None else [USUAL_HEAD]
        causal = "num_key_value_heads" in header  # of an encoder's, which see every token, tables have no such column
        for size in sizes:
            table = read_attention(str(path), int(size))
            try:
                fit = fit_attention(table, base.device.tflops["bf16"], causal)
            except InputError:  # too few shapes of this size: the usual one's curve stands for it
                continue
            if size not in curves:
                curves[size] = fit.curve
                said(f"attention/{size}", fit.found)
    usual = curves.get(USUAL_HEAD) or next(iter(curves.values()), None)
    return {**curves, "any": usual} if usual else {}


def grouped(
    paths: Sequence[Path], gemm: dict[str, GemmCurve], base: Profile, said: Callable[[str, Found], None]
) -> float | None:
    """Of the first table of experts."""
    for path in paths:
        fit = fit_grouped(read_grouped(str(path)), gemm["bf16"], base.device.tflops["bf16"])
        said("grouped", fit.found)
        return fit.share
    return None


def links(paths: Sequence[Path], said: Callable[[str, Found], None]) -> dict[str, Collective]:
    """Of the first table of collectives."""
    for path in paths:
        fit = fit_collectives(read_collectives(str(path)))
        for name, found in fit.found.items():
            said(name, found)
        return fit.table
    return {}
