"""The file of runs that coefficients were fitted to: what each ran, and nothing that was measured."""

from collections.abc import Sequence

from planner.published import PublishedCase
from planner.specs import library
from planner.specs.framework.own_runs import MeasuredRun
from planner.specs.hardware.profile import Profile
from planner.specs.parameters import parameter_counts
from planner.specs.shipped_runs import MeasuredRuns


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
