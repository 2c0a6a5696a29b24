"""Tuned recipes beside the planner's own pick for the same model, GPUs, batch, precision and framework.

A recipe is a configuration that NVIDIA publishes as tuned, with what it measured. Recipe and pick are priced by one
closed form with one set of coefficients, so that their ratio is what the planner would claim to gain; the pick is one
that the framework can launch and must fit in memory with the planner's margins, and a recipe that would not by the same
account is marked. A second pick keeps the recipe's ZeRO stage, since most of these frameworks had no other when they
were measured. What the search does not vary (dispatch, overlap, precision) is the recipe's in both.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median

from benchmarks.best_layouts import Pick, Step, best_layout
from benchmarks.layout_regret import layout_text
from benchmarks.published_folder import published_folder
from benchmarks.registry import Figures
from planner import files
from planner.calibrate.timed_cases import timed_cases
from planner.costs import LayoutColumns, MachineModel
from planner.costs.memory import allowed_bytes, device_accounting, fullest_stage
from planner.costs.step import static_step_seconds
from planner.published import read_published
from planner.published.published_case import PublishedCase
from planner.published.shipped_profiles import framework_software, machine_as_shipped
from planner.specs.framework.knobs import Knobs
from planner.specs.job import Limits
from planner.specs.parallelism import Parallelism

SOURCES = (
    "nemo_perf_summary", "nemo_long_sequence", "nemo_launcher_2023", "mbridge_perf_summary", "dgxc_benchmarking",
    "moe_modelzoo_qwen3", "megatron_lm_golden",
)  # fmt: skip
DTYPES = ("bf16", "fp8")  # that a search can fix
BEHIND, GAIN = 0.10, 0.15


def run(data: Path | None) -> Iterator[Figures]:
    folder = published_folder(data)
    if folder is None:
        return
    lines = []
    for same in recipes(timed_cases(read_published(folder)[0])):
        lines.append(compared(same))
        yield lines[-1]
    yield from over_all(lines)


def recipes(cases: Sequence[PublishedCase]) -> list[list[PublishedCase]]:
    """Every recipe that the search could have made, with its repeated measurements."""
    found: dict[Hashable, list[PublishedCase]] = defaultdict(list)
    for case in cases:
        if case.origin.source in SOURCES and case.setup.dtype in DTYPES and not case.module.adapters:
            job = case.origin.source, case.device, case.software, case.network, files.json_text(case.module)
            found[job, case.setup].append(case)
    return list(found.values())


def compared(same: list[PublishedCase]) -> Figures:
    """A recipe and the pick."""
    case = same[0]
    machine, software = machine_as_shipped(case), framework_software(case.software)
    seconds, measured = step_seconds(case, case.setup, machine), median(each.seconds or 0.0 for each in same)
    pick, kept = (picked(case, machine, software.knobs, zero) for zero in (None, int(case.setup.zero)))
    return {
        "source": case.origin.source,
        "record": case.origin.record_id,
        "measurements": len(same),
        "gpus": int(case.setup.ranks),
        "dtype": case.setup.dtype,
        "measured_seconds": round(measured, 3),
        "recipe_seconds": round(seconds, 3),
        "recipe_fits": fits(case, machine),
        "pick_seconds": round(step_seconds(case, pick.columns, machine), 3) if pick else None,
        "recipe_over_pick": ratio(seconds, case, pick, machine),
        "recipe_over_pick_of_its_zero": ratio(seconds, case, kept, machine),
        "recipe": layout_text(case.setup),
        "pick": layout_text(pick.columns) if pick else None,
    }


def ratio(seconds: float, case: PublishedCase, pick: Pick | None, machine: MachineModel) -> float | None:
    return round(seconds / step_seconds(case, pick.columns, machine), 4) if pick else None


def picked(case: PublishedCase, machine: MachineModel, knobs: Knobs, zero: int | None = None) -> Pick | None:
    """The planner's layout for a recipe's job; `zero`: of this ZeRO stage only."""
    at = case.setup
    step = Step(case.module, int(at.ranks), int(at.seq), int(at.batch), knobs)
    fixed = Parallelism(
        dtype="fp8" if at.dtype == "fp8" else "bf16",
        dispatch=at.dispatch,
        overlap=tuple(sorted(at.overlap)),
        zero=zero,
    )
    pick = best_layout(step, machine, fixed)
    return pick and replace(pick, columns=replace(pick.columns, imbalance=at.imbalance, cross_reads=at.cross_reads))


def step_seconds(case: PublishedCase, at: LayoutColumns, machine: MachineModel) -> float:
    return float(static_step_seconds(case.module, at, machine).seconds)


def fits(case: PublishedCase, machine: MachineModel) -> bool:
    """Whether the search would have kept the recipe."""
    accounting = device_accounting(machine.device, machine.accounting)
    needed = fullest_stage(case.module, case.setup, accounting).total
    return bool(needed <= allowed_bytes(machine.device, Limits(), accounting))


def over_all(lines: Sequence[Figures]) -> Iterator[Figures]:
    """How recipes compare with picks: of any ZeRO stage, and of the recipe's own; all, and those that would fit."""
    for name in ("recipe_over_pick", "recipe_over_pick_of_its_zero"):
        for kept, of in (("all", lines), ("those that fit", [line for line in lines if line["recipe_fits"]])):
            ratios = [line[name] for line in of if line[name]]
            yield {
                "ratios": name,
                "of": kept,
                "recipes": len(of),
                "without_a_pick": len(of) - len(ratios),
                "median": round(median(ratios), 4),
                "mean": round(fmean(ratios), 4),
                "least": min(ratios),
                "most": max(ratios),
                "recipes_over_10_percent_behind": sum(each > 1 + BEHIND for each in ratios),
                "gains_over_15_percent": sum(each > 1 + GAIN for each in ratios),
                "picks_behind": sum(each < 1 for each in ratios),
                "picks_over_10_percent_behind": sum(each < 1 / (1 + BEHIND) for each in ratios),
            }
