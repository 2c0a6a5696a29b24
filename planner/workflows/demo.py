"""The workflow of `planner demo`: profile, solve, verify and simulate, run, check, all on this machine."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from planner import files, pipeline
from planner.callbacks import OnProgress
from planner.check import Finding, Tolerances
from planner.ledger import ComparedRun
from planner.scoring import Score
from planner.specs import library
from planner.specs.base import with_fields
from planner.specs.hardware.profile import Profile
from planner.specs.inputs import Inputs, JobOptions, resolve_job
from planner.specs.job import Job
from planner.specs.workload.length_sources import LengthsFile
from planner.strategies import SolvedJob
from planner.workflows import evidence
from planner.workflows.interrupts import exit_if_interrupted
from planner.workflows.tracing import write_measured_trace, write_simulated_trace

JOB = "demo-cpu-4"
STEPS = 4


class DemoListener(Protocol):
    """Receives the beginning, the progress and the result of each chapter."""

    def begin(self, chapter: str) -> OnProgress: ...

    def training(self, solved: SolvedJob) -> Callable[[Any], None]: ...

    def end(self, chapter: str, result: Any) -> None: ...


@dataclass(frozen=True, slots=True)
class DemoResult:
    """All results of the demo."""

    folder: Path
    inputs: Inputs
    profile: Profile
    solved: SolvedJob
    scores: list[Score]
    ran: ComparedRun
    findings: list[Finding]


def demo(folder: Path, listener: DemoListener) -> DemoResult:
    """Run the demo into `folder`; its job file there can be solved, run and changed afterwards."""
    from planner.runtime import RunOptions

    job, source = library.read_named(JOB, Job)
    progress = listener.begin("profile")
    measuring = evidence.ProfileSettings(dtype=job.layout.dtype, quick=True)
    profile, measured_at = evidence.measure_profile(job.model, measuring, folder / "profile.yaml", progress)
    listener.end("profile", profile)

    progress = listener.begin("solve")
    job = demo_job(job, source, measured_at)
    files.write(folder / "job.yaml", job)
    inputs = resolve_job(job, folder / "job.yaml", JobOptions())
    solved = pipeline.decide(inputs, progress)
    files.write(folder / "plan.yaml", solved.plan)
    listener.end("solve", (inputs, solved))

    listener.begin("simulate")
    plan = pipeline.read_plan(folder / "plan.yaml")
    scores = pipeline.simulate(plan)
    write_simulated_trace(folder / "simulated.json", plan, scores)
    listener.end("simulate", (plan, scores))

    on_step = listener.training(solved)
    ran = pipeline.run(plan, RunOptions(steps=STEPS, verify=True), on_step)
    exit_if_interrupted(ran)
    write_measured_trace(folder / "measured.json", ran)
    listener.end("run", ran)

    listener.begin("check")
    findings = pipeline.check(folder / "plan.yaml", solve_again(folder, inputs), Tolerances())
    listener.end("check", findings)
    return DemoResult(folder, inputs, profile, solved, scores, ran, findings)


def demo_job(job: Job, source: Path, profile: Path) -> Job:
    """The shipped job with the profile just measured, and with absolute paths."""
    lengths = job.workload.lengths
    if isinstance(lengths, LengthsFile):
        lengths = with_fields(lengths, path=str((source.parent / lengths.path).resolve()))
    return with_fields(job, workload=with_fields(job.workload, lengths=lengths), profile=str(profile.resolve()))


def solve_again(folder: Path, inputs: Inputs) -> Path:
    """Solve the same job again; the check confirms that the plan has the same bytes."""
    path = folder / "plan-again.yaml"
    files.write(path, pipeline.decide(inputs).plan)
    return path
