"""The workflow of `planner demo multimodal`: samples with images and sound, profile, solve, simulate, run, compare.

A decoder that sees and hears learns the names of coloured squares and tones. The layouts of its modules are decided
from the first batch, and all batches are trained with them; the plans of usual placements of encoders are compared with
that, at the same prices.
"""

from dataclasses import dataclass
from pathlib import Path

from planner import files, pipeline
from planner.errors import Infeasible
from planner.ledger import ComparedRun
from planner.plan.descriptions import placed_layout
from planner.plan.plan_file import Plan
from planner.scoring import Score
from planner.specs.base import FirstStage, Ranks, with_fields
from planner.specs.hardware.profile import Profile
from planner.specs.inputs import Inputs, JobOptions, resolve_job
from planner.specs.job import Fix, Job
from planner.specs.parallelism import Parallelism
from planner.specs.workload.length_sources import SamplesFile, Workload
from planner.strategies import SolvedJob, strategy_deciding
from planner.workflows import evidence
from planner.workflows.demo import DemoListener
from planner.workflows.interrupts import exit_if_interrupted
from planner.workflows.toy_samples import text_entropy, toy_samples, write_samples
from planner.workflows.tracing import write_measured_trace, write_simulated_trace

MODEL, CLUSTER = "tiny-omni", "cpu-4"
STEPS, STEP_SAMPLES = 24, 64
REPLICATED, FIRST_STAGE = Parallelism(zero=1), Parallelism(zero=1, ranks=FirstStage())
ALONE = Parallelism(ranks=Ranks([0]))
USUAL = {  # where trainers have encoders: the decoder's layout, and that of both encoders
    "on all ranks, as the decoder": (Parallelism(zero=1, micro_batch=16), REPLICATED),
    "on the first stage": (Parallelism(pp=2, zero=1, micro_batch=8), FIRST_STAGE),
    "on a rank of their own": (Parallelism(zero=1, micro_batch=8, ranks=Ranks([1, 2, 3])), ALONE),
}


@dataclass(frozen=True, slots=True)
class UsualPlacement:
    """A usual placement of encoders."""

    name: str
    layouts: dict[str, Parallelism]
    step_seconds: float | None  # predicted, in the mean of all steps; None: it does not fit
    because: str = ""


@dataclass(frozen=True, slots=True)
class MultimodalDemoResult:
    """All results of the demo; `least_loss`: of the last step, what no model of its text alone is below."""

    folder: Path
    inputs: Inputs
    profile: Profile
    decided: SolvedJob  # from the first batch
    solved: SolvedJob  # all batches, with the layouts that were decided
    scores: list[Score]
    ran: ComparedRun
    usual: tuple[UsualPlacement, ...]
    least_loss: float


def multimodal_demo(folder: Path, listener: DemoListener, steps: int = STEPS) -> MultimodalDemoResult:
    """Run the demo into `folder`; its job files there can be solved, run and changed afterwards."""
    from planner.runtime import RunOptions, TrainingOptions

    listener.begin("samples")
    samples = toy_samples(steps * STEP_SAMPLES)
    write_samples(folder / "samples", samples)
    listener.end("samples", samples)

    progress = listener.begin("profile")
    measuring = evidence.ProfileSettings(dtype="float32", quick=True)
    profile, measured_at = evidence.measure_profile(MODEL, measuring, folder / "profile.yaml", progress)
    listener.end("profile", profile)

    progress = listener.begin("solve")
    job = demo_job(folder, measured_at)
    inputs = written_job(job, folder / "job.yaml", 1)
    decided = pipeline.decide(inputs, progress)
    layouts = {name: placed_layout(layout, decided.plan.size) for name, layout in decided.plan.layouts.items()}
    solved = pipeline.decide(written_job(with_layouts(job, layouts), folder / "fixed.yaml", steps))
    files.write(folder / "plan.yaml", solved.plan)
    listener.end("solve", (inputs, decided))

    listener.begin("simulate")
    plan = pipeline.read_plan(folder / "plan.yaml")
    scores = pipeline.simulate(plan)
    write_simulated_trace(folder / "simulated.json", plan, scores)
    listener.end("simulate", (plan, scores))

    on_step = listener.training(solved)
    training = TrainingOptions(3e-3, "cosine", warmup=4, clip=1.0, betas=(0.9, 0.95))
    ran = pipeline.run(plan, RunOptions(verify=True, data=(folder / "samples").absolute(), training=training), on_step)
    exit_if_interrupted(ran)
    write_measured_trace(folder / "measured.json", ran)
    listener.end("run", ran)

    listener.begin("compare")
    usual = tuple(usual_placement(job, folder / "job.yaml", name, steps) for name in USUAL)
    listener.end("compare", (plan, usual))
    least = text_entropy([each.words for each in samples[-STEP_SAMPLES:]])
    return MultimodalDemoResult(folder, inputs, profile, decided, solved, scores, ran, usual, least)


def demo_job(folder: Path, profile: Path) -> Job:
    """The job whose layouts are open, with absolute paths."""
    return Job(
        format=Job.FORMAT,
        name="demo-multimodal",
        model=MODEL,
        cluster=CLUSTER,
        profile=str(profile.resolve()),
        strategy=strategy_deciding("layouts", 2),
        workload=Workload(
            lengths=SamplesFile(path=str((folder / "samples").resolve())), batch_rows=STEP_SAMPLES, module="llm"
        ),
        layout=Parallelism(dtype="float32"),
    )


def written_job(job: Job, path: Path, batches: int) -> Inputs:
    """The inputs of a job that is written to `path`. Raises InputError."""
    files.write(path, job)
    return resolve_job(job, path, JobOptions(batches=batches))


def with_layouts(job: Job, layouts: dict[str, Parallelism]) -> Job:
    """The job with a layout of each module, so that no strategy has one to decide."""
    return with_fields(job, strategy="", fix=Fix(layouts=layouts))


def usual_placement(job: Job, path: Path, name: str, batches: int) -> UsualPlacement:
    """What a usual placement would take for so many batches of the job at `path`."""
    decoder, encoder = USUAL[name]
    layouts = {"vision": encoder, "audio": encoder, "llm": decoder}
    inputs = resolve_job(with_layouts(job, layouts), path, JobOptions(batches=batches))
    try:
        return UsualPlacement(name, layouts, mean_step_seconds(pipeline.decide(inputs).plan))
    except Infeasible as error:
        return UsualPlacement(name, layouts, None, error.message)


def mean_step_seconds(plan: Plan) -> float:
    """Predicted seconds of a step, in the mean of all."""
    return plan.prediction.step_seconds / len(plan.steps)
