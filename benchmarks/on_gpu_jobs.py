"""Jobs for one rank, and their plans, predicted beside measured."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.on_gpu_session import Session
from planner import files, pipeline
from planner.ledger.compared_run import ComparedRun, memory_uses
from planner.plan.plan_file import Plan
from planner.runtime import RunOptions
from planner.specs.hardware.cluster import Cluster, Level, RankKind
from planner.specs.inputs import JobOptions, resolve_job
from planner.specs.job import Job, Limits
from planner.specs.model import Model
from planner.specs.parallelism import Parallelism
from planner.specs.workload.length_sources import LogNormal, LogNormalMix, Workload
from planner.units import GIB, duration
from planner.workflows.tracing import write_measured_trace


def one_rank_job(session: Session, model: Model, layout: Parallelism, tokens: int, median_tokens: int) -> Path:
    """A job for one rank of this device, whose rows are a mix of lengths."""
    folder = session.scratch
    cluster = Cluster(
        format=Cluster.FORMAT,
        name=f"one-{session.device}",
        source="one rank, alone",
        ranks=(RankKind(kind=session.device, count=1, per_node=1),),
        levels=(Level(name="device", ranks=1, gb_per_s=1.0, latency_us=1.0),),
    )
    job = Job(
        format=Job.FORMAT,
        name=f"{model.name}-one-rank",
        model=f"./{model.name}.yaml",
        cluster="./cluster.yaml",
        profile=str(session.profile_path.resolve()),
        workload=Workload(
            lengths=LogNormalMix(parts=(LogNormal(weight=1.0, median=median_tokens, sigma=0.8),)),
            batch_rows=24,
            max_tokens=tokens,
            round_to=4,
        ),
        layout=layout,
        degrees=(1,),
        limits=Limits(tokens_per_rank=tokens),
    )
    files.write(folder / f"{model.name}.yaml", model)
    files.write(folder / "cluster.yaml", cluster)
    files.write(folder / f"{job.name}.yaml", job)
    return folder / f"{job.name}.yaml"


def prepared(session: Session, job: Path) -> Plan:
    """The plan of a job."""
    return pipeline.decide(resolve_job(files.read(job, Job), job, JobOptions())).plan


def run(session: Session, job: Path, options: RunOptions) -> dict[str, Any]:
    """Solve a job and run its plan: predicted beside measured."""
    plan = prepared(session, job)
    ran = pipeline.run(plan, options, lambda step: session.say(f"  step {step.step}: {duration(step.seconds)}"))
    write_measured_trace(session.folder / "trace.json", ran)
    session.say(f"  predicted {duration(ran.predicted_step_seconds or 0.0)}, measured {duration(ran.step_seconds)}")
    for kind in ran.kinds:
        if kind.predicted or kind.measured:
            session.say(f"    {kind.name:<36} {duration(kind.predicted):>10} {duration(kind.measured):>10}")
    for line in memory_lines(ran):
        session.say(f"    {line}")
    if ran.verified:
        session.say(f"  loss differs by {ran.verified.loss_rel_err:.1e}, gradients by {ran.verified.grad_rel_err:.1e}")
    return {
        "predicted_step_seconds": ran.predicted_step_seconds,
        "step_seconds": ran.step_seconds,
        "tokens_per_second": ran.tokens_per_second,
        "losses": ran.losses,
        "kinds": [{"name": k.name, "predicted": k.predicted, "measured": k.measured} for k in ran.kinds],
        "memory_bytes": [asdict(rank) for rank in ran.memory],
        "verified": ran.verified and {"loss": ran.verified.loss_rel_err, "gradients": ran.verified.grad_rel_err},
    }


def memory_lines(ran: ComparedRun) -> Iterator[str]:
    """What the one rank's memory was used for, in GiB: predicted, measured. None on the CPU."""
    for part in (part for rank in ran.memory for part in memory_uses(rank)):
        predicted = "" if part.predicted is None else f"{part.predicted / GIB:.3f}"
        yield f"{f'GiB {part.name}':<36} {predicted:>10} {part.measured / GIB:>10.3f}"
