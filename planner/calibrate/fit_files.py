"""Files of a fit to published records: coefficients of each framework, sustained rates of devices, and what was run.

The file of runs says what each ran that coefficients were fitted to, and nothing that was measured.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from planner import files
from planner.calibrate import left_out
from planner.calibrate.coefficients import (
    GENERIC,
    SAME_CHIP,
    SUSTAINED_PRECISIONS,
    CoefficientName,
    CoefficientValues,
    with_coefficients,
)
from planner.calibrate.framework_facts import FRAMEWORKS
from planner.calibrate.framework_fit import FittedCoefficients
from planner.calibrate.linear_residuals import Logs
from planner.costs.compute import ASSUMED_SPREAD
from planner.published import PublishedCase
from planner.specs import library, shipped_runs
from planner.specs.base import with_fields
from planner.specs.framework.dated_kernels import attention_kernel
from planner.specs.framework.knobs import Knobs
from planner.specs.framework.own_runs import MeasuredRun
from planner.specs.framework.software import Software
from planner.specs.framework.timing_coefficients import plain_numbers
from planner.specs.hardware.device_rates import FitQuality
from planner.specs.hardware.profile import Profile, Provenance
from planner.specs.parameters import parameter_counts
from planner.specs.shipped_runs import MeasuredRuns
from planner.units import four_digits

KIND = "least squares on published steps"


@dataclass(frozen=True, slots=True)
class PublishedFit:
    """A fit to published step times with its log errors (cases,), log(predicted/measured seconds)."""

    cases: Sequence[PublishedCase]
    coefficients: FittedCoefficients
    fitted_logs: Logs  # of the fit to all sources
    held_out_logs: Logs  # of the fits without the case's source; NaN where it was not held out
    generic_logs: Logs  # the same with the generic framework's coefficients
    spreads: Mapping[str, float]  # half-width of the 80 % interval, of each framework
    left_out: Mapping[str, CoefficientValues] = field(default_factory=dict)  # of the fit without each source


def framework_file(name: str, fit: PublishedFit, date: str) -> Software:
    """The file of a framework; the generic one's errors are of every held-out record, as of an unknown framework."""
    facts = FRAMEWORKS.get(name, FRAMEWORKS[GENERIC])
    values = {coefficient: four_digits(value) for coefficient, value in fit.coefficients.values.items()}
    timing = with_coefficients(facts.timing, name, values)
    if name == GENERIC:
        timing = with_fields(timing, shard_ms=0.0)
    return Software(
        format=Software.FORMAT,
        name=name,
        provenance=Provenance(source=KIND, date=date, note=facts.about),
        knobs=shipped_knobs(name),
        timing=plain_numbers(timing),
        attention_kernel=attention_kernel(name),
        accounting=facts.accounting,
        spread=round(fit.spreads[name], 3),
        unstated=facts.unstated,
        fitted={"time": fit_summary(name, fit, date)},
    )


def shipped_knobs(name: str) -> Knobs:
    """What a framework can run, as its shipped file says it, else the generic one's: no fit tells of it."""
    known = name if name in library.shipped_names(Software) else GENERIC
    return library.read_named(known, Software)[0].knobs


def fit_summary(name: str, fit: PublishedFit, date: str) -> FitQuality:
    """A framework's records, the errors on them, and the coefficients that they do not determine."""
    used_cases = np.array([name in (GENERIC, case.software) for case in fit.cases])
    outside = (fit.generic_logs if name == GENERIC else fit.held_out_logs)[used_cases]
    inside = np.abs(np.exp(fit.fitted_logs[used_cases]) - 1)
    held_out = np.abs(np.exp(outside[np.isfinite(outside)]) - 1)
    coefficients = [coefficient for coefficient in fit.coefficients.values if coefficient.owner == name]
    return FitQuality(
        rows=int(used_cases.sum()),
        median_error=four_digits(np.median(inside)) if len(inside) else 0.0,
        p90_error=four_digits(np.quantile(inside, 0.9)) if len(inside) else 0.0,
        left_out_error=four_digits(np.median(held_out)) if len(held_out) else None,
        held=tuple(coefficient.name for coefficient in coefficients if fit.coefficients.stays_at_prior(coefficient)),
        sources=tuple(sorted({case.origin.source for case, used in zip(fit.cases, used_cases, strict=True) if used})),
        date=date,
    )


def sustained_rates(fit: PublishedFit) -> dict[str, dict[str, float]]:
    """Sustained rates of each device by precision; boards with one chip share them."""
    rates: dict[str, dict[str, float]] = {}
    owners = {coefficient.owner for coefficient in fit.coefficients.values if coefficient.name in SUSTAINED_PRECISIONS}
    chips = {
        **{board: chip for board, chip in SAME_CHIP.items() if chip[0] in owners},
        **{owner: (owner, 1.0) for owner in owners},
    }
    for board, (chip, share) in sorted(chips.items()):
        values = {name: fit.coefficients.values.get(CoefficientName(chip, name)) for name in SUSTAINED_PRECISIONS}
        rates[board] = {name: four_digits(value * share) for name, value in values.items() if value is not None}
    return rates


def write_software(fit: PublishedFit, folder: Path, date: str) -> list[Path]:
    """Write a file of each framework in the records, and of the generic one; returns their paths."""
    names = sorted({GENERIC, *(case.software for case in fit.cases)})
    paths = [folder / f"{name}.yaml" for name in names]
    for name, path in zip(names, paths, strict=True):
        files.write(path, framework_file(name, fit, date))
    return paths


def write_fit(fit: PublishedFit, folder: Path, date: str) -> list[Path]:
    """Write `software/NAME.yaml` of each framework, `devices/NAME.yaml` of each shipped device; returns the paths."""
    paths = write_software(fit, folder / "software", date)
    if fit.left_out:
        paths.append(folder / left_out.FILE)
        files.write(paths[-1], left_out.left_out_file(fit.cases, fit.left_out, date))
        paths.append(folder / shipped_runs.FILE)
        files.write(paths[-1], measured_runs_file(fit.cases, date))
    for name, values in sustained_rates(fit).items():
        if name in library.shipped_names(Profile):
            paths.append(folder / "devices" / f"{name}.yaml")
            files.write_text(
                paths[-1], replace_sustained_rates(files.read_text(library.find_file(name, Profile)), values)
            )
    return paths


def replace_sustained_rates(text: str, values: Mapping[str, float]) -> str:
    """A device file's text with these sustained rates and nothing else changed; with new `rates` where it has none."""
    line = "  sustained: {" + ", ".join(f"{name}: {value:g}" for name, value in values.items()) + "}\n"
    text = re.sub(r"^  sustained: \{.*\}\n", "", text, flags=re.MULTILINE)
    if not re.search(r"^rates:", text, flags=re.MULTILINE):
        text += f"rates:\n  source: published\n  spread: {ASSUMED_SPREAD}\n"
    head = re.search(r"^rates:\n  source: .*\n  spread: .*\n", text, flags=re.MULTILINE)
    assert head, "rates begin with their source and their spread"
    return text[: head.end()] + line + text[head.end() :]


def measured_runs_file(cases: Sequence[PublishedCase], date: str) -> MeasuredRuns:
    """The runs of these cases by source, each once. Raises InputError for a device that cannot be read."""
    runs: dict[str, set[MeasuredRun]] = {}
    for case in cases:
        runs.setdefault(case.origin.source, set()).add(run_of_case(case))
    return MeasuredRuns(
        format=MeasuredRuns.FORMAT,
        date=date,
        tflops={name: peak_tflops(name) for name in sorted({case.device for case in cases})},
        runs={source: tuple(sorted(each)) for source, each in sorted(runs.items())},
    )


def run_of_case(case: PublishedCase) -> MeasuredRun:
    """What a case ran."""
    setup = case.setup
    return MeasuredRun(
        device=case.device,
        software=case.software,
        dtype=setup.dtype,
        experts=case.module.routed_experts is not None,
        zero=max(1, int(setup.zero)),
        **{name: int(getattr(setup, name)) for name in ("ranks", "tp", "pp", "cp", "ep", "seq")},
        billions=float(f"{parameter_counts(case.module).total / 1e9:.3g}"),
    )


def peak_tflops(device: str) -> float:
    """The peak of a shipped device in 16 bits. Raises InputError."""
    return library.read_named(device, Profile)[0].device.tflops_in_16_bits
