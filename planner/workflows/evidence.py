"""The workflows of `planner ledger`, `profile` and `calibrate`: measurements under the costs, and prediction errors."""

import hashlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from planner import files
from planner.callbacks import OnProgress, silent
from planner.errors import InputError
from planner.extras import require_scipy
from planner.ledger import ComparedRun, RunEntry, append_entry, default_path, read_entries
from planner.plan.plan_file import Plan
from planner.specs import library
from planner.specs.base import with_fields
from planner.specs.hardware.profile import Profile
from planner.specs.inputs import JobOptions, load_job
from planner.specs.loader import LoaderFile
from planner.specs.model import Model
from planner.specs.parallelism import Dtype
from planner.units import GIB

if TYPE_CHECKING:
    from planner.calibrate import CalibratedDevice, CalibratedRun, PublishedFit
    from planner.ledger import AccuracyReport

RANKS_ON_CPU = 4  # the size of the shipped cluster cpu-4
USUAL_BATCH = 16  # items of a dataset that are packed together

# --------------------------------------------------------------------------------------------------------- ledger


def record_run(ran: ComparedRun, path: Path | None = None) -> Path:
    """Append a run to the user's own ledger, or to `path`; return that path. Raises InputError."""
    path = path or default_path()
    if ran.predicted_step_seconds is None:
        raise InputError("the run has no prediction")
    plan, now = ran.plan, datetime.now(timezone.utc)
    entry = RunEntry(
        when=now.isoformat(timespec="milliseconds"),
        machine=ran.machine,
        plan=plan.name,
        digest=plan_digest(plan),
        steps=len(ran.losses),
        predicted_seconds=ran.predicted_step_seconds,
        spread=plan.prediction.spread,
        measured_seconds=ran.step_seconds,
        predicted_peak_bytes=plan.prediction.peak_memory_gib * GIB or None,
        measured_peak_bytes=ran.peak_bytes,
        kinds=tuple(ran.kinds),
    )
    append_entry(path, entry)
    return path


def plan_digest(plan: Plan) -> str:
    """A digest of a plan, by which plans of one name differ."""
    return hashlib.sha256(files.dump(plan).encode()).hexdigest()[:16]


def published_account(directory: Path, sources: Sequence[str] = ()) -> "AccuracyReport":
    """Published records of a folder, or of `sources` only, with their predictions. Raises InputError."""
    from planner.calibrate import with_left_out_seconds
    from planner.ledger import accuracy_of_folder
    from planner.published import predict_cases

    return accuracy_of_folder(directory, sources, lambda cases: with_left_out_seconds(cases, predict_cases(cases)))


# -------------------------------------------------------------------------------------------------------- profile


@dataclass(frozen=True, slots=True)
class ProfileSettings:
    """How to profile; None: all GPUs in bf16, or without one four ranks on the CPU in float32."""

    ranks: int | None = None
    dtype: Dtype | None = None
    quick: bool = False
    shares: tuple[float, ...] = ()  # of the device, on which modules are timed; none: layers on all of it


def measure_profile(
    model: str, measuring: ProfileSettings, target: Path | None, on_progress: OnProgress = silent
) -> tuple[Profile, Path]:
    """Measure layers, optimizer and collectives of a model here; or, of settings with shares, modules on shares of the
    device. Write the profile to `target` or the user's cache. Raises InputError.
    """
    from planner.profiling import ProfileOptions, device_name, gpu_count, profile_shares
    from planner.profiling import profile as measure

    kind: Literal["cpu", "cuda"] = "cuda" if gpu_count() else "cpu"
    spec, _ = library.read_named(model, Model)
    device = device_name(kind)
    base, _ = library.read_named(device, Profile)
    path, dtype = target or library.cache_folder() / f"{device}.yaml", measuring.dtype
    dtype = dtype or ("bf16" if kind == "cuda" else "float32")
    if measuring.shares:
        return profile_shares(spec, base, measuring.shares, dtype, path, on_progress), path
    options = ProfileOptions(measuring.ranks or gpu_count() or RANKS_ON_CPU, dtype, measuring.quick)
    return measure(spec.name, spec, base, options, path, lambda done, of, what, _: on_progress(done, of, what)), path


def measure_data_loader(
    reference: str, target: Path | None, on_progress: OnProgress = silent
) -> tuple[LoaderFile, Path]:
    """Measure the data loader of a job, or of a dataset `module:object` that this folder imports; write its stages to
    `target` or loader.yaml. Raises InputError.
    """
    from planner.profiling import loader_of_job, loader_of_object, measure_loader

    path = target or Path("loader.yaml")
    files.require_writable(path, "--output")
    if ":" in reference and not os.path.exists(reference):
        sys.path.insert(0, os.getcwd())
        measured = loader_of_object(reference, USUAL_BATCH)
    else:
        measured = loader_of_job(load_job(reference, JobOptions()))
    found = measure_loader(measured, on_progress=on_progress)
    files.write(path, found)
    return found, path


# ------------------------------------------------------------------------------------------------------ calibrate


def holds_published_records(folder: Path) -> bool:
    """Whether a folder holds published records; otherwise it holds tables of kernels. Raises InputError."""
    from planner.published import is_published_file

    if not os.path.isdir(folder):
        raise InputError(
            "this is not a folder",
            where=str(folder),
            fix="give a folder of CSV files; of a plan, --measured or --from-run",
        )
    if not any(folder.glob("*.csv*")):
        raise InputError("no CSV file is here", where=str(folder), fix="a folder of tables of kernels, or of records")
    return any(is_published_file(path) for path in sorted(folder.glob("*.csv")))


def calibrate_tables(
    folder: Path, device: str | None, target: Path | None, on_progress: OnProgress = silent
) -> "tuple[CalibratedDevice, Path | None]":
    """Fit a device's rates on kernel tables; `device`: a profile with its specification. Raises InputError."""
    from planner.calibrate import calibrate_tables as assemble

    if device is None:
        fix = f"one of {', '.join(library.shipped_names(Profile))}; or a file as in docs/devices.md"
        raise InputError("the device of these tables is not given", where="--device", fix=fix)
    base, _ = library.read_named(device, Profile)
    made = assemble(folder, base, today(), on_progress)
    if target:
        files.write(target, made.profile)
    return made, target


def calibrate_traces(
    traces: Sequence[Path],
    of_plan: tuple[Path | None, float | None, bool],
    device: str | None,
    target: Path | None,
    on_progress: OnProgress = silent,
) -> "tuple[CalibratedDevice, Path | None]":
    """Fit this machine's rates to recordings of torch.profiler; `of_plan`: what they are of, seconds of its step
    without the profiler, and whether those are of its last run; `device`: the profile with the device's facts, by
    default the CPU's. Write a profile with the name of its file. Raises InputError.
    """
    require_scipy()
    from planner.calibrate import calibrate_traces as fit
    from planner.scoring import read_plan
    from planner.workflows.replaying import replay_traces

    base, _ = library.read_named(device or "cpu", Profile)
    answer = replay_traces(traces, on_progress=on_progress)
    files_of_ranks = [Path(graph.trace.source) for graph in answer.replay.graphs]
    path, seconds, from_run = of_plan
    plan = read_plan(path) if path else None
    seconds = last_run_seconds(plan) if plan and from_run else seconds
    made = fit(files_of_ranks, answer.replay, base, today(), (plan, seconds))
    if target:
        made = replace(made, profile=with_fields(made.profile, name=target.stem))
        files.write(target, made.profile)
    return made, target


def calibrate_published(
    folder: Path, target: Path | None, leave_out: Sequence[str] = (), on_progress: OnProgress = silent
) -> "tuple[PublishedFit, list[Path]]":
    """Fit frameworks and device rates to published step times; write them below `target`. Raises InputError."""
    require_scipy()
    from planner.calibrate import calibrate_published as fit
    from planner.calibrate import write_fit

    made = fit(folder, leave_out, on_progress)
    return made, write_fit(made, target, today()) if target else []


def calibrate_to_run(
    plan_path: Path, measured: float | None, target: Path | None
) -> "tuple[CalibratedRun, list[Path]]":
    """Coefficients after a run of a plan that took so many seconds a step (None: as the last of its runs in the user's
    own ledger) and those that `target`/software keeps; keep it there, too. Raises InputError.
    """
    from planner.calibrate import calibrated_to_run, known_runs, write_own_runs
    from planner.scoring import read_plan

    plan = read_plan(plan_path)
    known = known_runs(plan, target) if target else ()
    made = calibrated_to_run(plan, measured or last_run_seconds(plan), known)
    return made, write_own_runs(made, plan, target) if target else []


def last_run_seconds(plan: Plan) -> float:
    """Seconds of a step in the last run of this plan in the user's own ledger. Raises InputError."""
    entries, _ = read_entries(default_path())
    own = [entry for entry in entries if entry.digest == plan_digest(plan)]
    if not own:
        what = f"no run of {plan.name} as it is now"
        raise InputError(what, where=str(default_path()), fix="planner run it, or --measured with seconds of a step")
    return max(own, key=lambda entry: entry.when).measured_seconds


def today() -> str:
    return datetime.now(timezone.utc).date().isoformat()
