"""Training on one rank: join the process group, shard the model, warm up, train step by step; rank 0 has the result."""

import os
import platform
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from statistics import mean

import torch

from planner.launch import Worker, joined_world, usable_cores
from planner.launch.communication import gather_messages
from planner.plan.legal.plan_laws import require_legal
from planner.plan.plan_file import Plan
from planner.runtime.checkpoint.checkpoint_index import require_intact
from planner.runtime.checkpoint.saving import CheckpointSaver, save_lock, saving
from planner.runtime.execute.early_stop import EarlyStop, require_finite
from planner.runtime.execute.step_source import StepTasks, step_source
from planner.runtime.execute.task_executor import RankStepResult, TaskExecutor
from planner.runtime.execute.warmup import warm_up
from planner.runtime.health.replica_digests import require_equal_replicas
from planner.runtime.health.rollback import carry_skipped
from planner.runtime.health.spikes import SpikeWatch
from planner.runtime.measure.gpu_memory import MemorySnapshot, make_memory_snapshot
from planner.runtime.measure.metrics_file import MetricsWriter, metrics_writer
from planner.runtime.measure.rank_work import rank_work
from planner.runtime.measure.step_clock import StepClock
from planner.runtime.measure.step_recorder import recording
from planner.runtime.measure.task_records import task_records
from planner.runtime.parity.parity_reference import ParityReference
from planner.runtime.run_options import Progress, RunOptions
from planner.runtime.run_result import NO_FEATURES, PlanningOverlap, RunResult, StepResult, StopReason
from planner.runtime.state.gradient_norm import GradientNorm
from planner.runtime.state.kept_features import kept_features
from planner.runtime.state.optimizers import load_optimizer_states, make_optimizers
from planner.runtime.state.rank_state import RankState

VERIFIED_ONLINE_STEPS = 3  # of the steps that are planned during the run, how many are checked against one process
FEW_RANKS = 64  # up to so many ranks send rank 0 their records of every step; more only those that are kept
MEASURED_STEPS = 16  # last steps whose task records are kept: those of a long run would fill the memory of rank 0


def run_on_rank(worker: Worker, plan: Plan, options: RunOptions) -> RunResult | None:
    """The whole run on one rank; returns its result on rank 0, None on the others: but where it stopped for a spike, so
    that all ranks know that it did, a result without steps.
    """
    require_legal(plan, plan.name)
    with joined_world(worker):
        return train(worker, plan, options)


def train(worker: Worker, plan: Plan, options: RunOptions) -> RunResult | None:
    """Trains all steps, in a process group that has been joined."""
    early_stop = EarlyStop(worker, options.max_seconds)
    with early_stop.catching_interrupts():
        history = make_memory_snapshot(worker, options.memory_snapshot)
        require_intact(worker, options.resume)
        with save_lock(worker, plan, options), history.recording():
            if worker.rank == 0:
                carry_skipped(options.resume, options.save)
            return train_steps(prepare_executor(worker, plan, options), options, early_stop, history)


def train_steps(
    executor: TaskExecutor, options: RunOptions, early_stop: EarlyStop, history: MemorySnapshot
) -> RunResult | None:
    """Trains step by step, until there are no more, or all ranks agree to stop."""
    worker, plan = executor.worker, executor.local.plan
    ended: StopReason = "steps"
    warm_up(executor, plan, executor.local.steps[0])
    executor.features = kept_features(executor.local, options.features)
    load_optimizer_states(executor.local, executor.optimizers)  # after the warm-up, which resets optimizer states
    before = executor.local.resumed.done.steps if executor.local.resumed else 0
    reference = ParityReference(executor.local, options) if options.verify else None
    watch = SpikeWatch(options.spike_steps)
    verified_steps = before + len(plan.steps) + (VERIFIED_ONLINE_STEPS if plan.then else 0)
    total, done = options.step_count(plan), []
    with (
        saving_behind(executor, options) as saver,
        step_source(executor.local, before) as steps,
        metrics_on_rank_0(worker, options, before) as write_metrics,
        recording(worker, options.record) as recorded,
    ):
        for number, upcoming_step in enumerate(steps, before):
            rate = options.training.learning_rate_at(number, total)
            executor.set_learning_rate(rate)
            history.begin_step(last=options.max_seconds is not None or number == total - 1)
            verifier = reference if number < verified_steps else None
            step = train_step(
                executor, upcoming_step, verifier, number + 1, keeps_records(number, total, plan, options)
            )
            if step:
                done.append(replace(step, learning_rate=rate))
                drop_old_records(done)
                write_metrics(number + 1, done[-1])
                worker.report(Progress(number + 1, total, step.loss, step.tokens, step.whole_seconds, step.work))
                for note in watch.see(number + 1, step.loss, step.grad_norm):
                    worker.report(note)
            spikes = watch.malignant is not None and options.on_spike == "rollback"
            recorded()
            ended, unsettled = early_stop.agree(spikes, watch.unsettled)
            if ended == "spike":
                break
            last = ended != "steps" or number + 1 == total
            saves = options.saves_after(number + 1, last) and (last or not unsettled)
            if options.checks_replicas_after(number + 1, saves):
                require_equal_replicas(executor, number + 1)
            if saver:
                saver.require_written()
            if saver and saves:
                saver.save(number + 1, last)
            if ended != "steps":
                break
    if worker.rank and ended != "spike":
        return None
    verified = reference.worst if reference else None
    label = machine_label(worker.device, plan.size)
    spike = watch.malignant if ended == "spike" else None
    return RunResult(tuple(done), verified, plan.size, label, torch.__version__, ended, before, spike)


def keeps_records(number: int, total: int, plan: Plan, options: RunOptions) -> bool:
    """Whether rank 0 gets the task records of all ranks for this step. Under a time limit any step may be the last."""
    return plan.size <= FEW_RANKS or options.max_seconds is not None or number >= total - MEASURED_STEPS


def drop_old_records(done: list[StepResult]) -> None:
    """Drops the records by task and rank of the step that is no longer among the last `MEASURED_STEPS`."""
    if len(done) > MEASURED_STEPS:
        done[-MEASURED_STEPS - 1] = replace(done[-MEASURED_STEPS - 1], measured=(), memory=(), sent_bytes=())


def prepare_executor(worker: Worker, plan: Plan, options: RunOptions) -> TaskExecutor:
    """Creates this rank's process groups, modules and optimizers."""
    one_machine = int(os.environ.get("LOCAL_WORLD_SIZE", worker.world_size)) == worker.world_size
    local = RankState(worker, plan, options, StepClock(worker.device, worker.rank, one_machine))
    needs_norm = options.training.clip is not None or options.metrics is not None
    norm = GradientNorm(local, options.training.clip) if needs_norm else None
    return TaskExecutor(local, make_optimizers(local, options.training), norm)


def saving_behind(executor: TaskExecutor, options: RunOptions) -> AbstractContextManager[CheckpointSaver | None]:
    """The saver of a run that saves."""
    return nullcontext() if options.save is None else saving(executor, options.save)


def metrics_on_rank_0(worker: Worker, options: RunOptions, done: int) -> AbstractContextManager[MetricsWriter]:
    """Writer of the metrics file on rank 0, behind `done` steps; one that writes nothing on the others."""
    return metrics_writer(options.metrics if worker.rank == 0 else None, done if options.resumes else None)


def train_step(
    executor: TaskExecutor, upcoming_step: StepTasks, reference: ParityReference | None, number: int, keep_records: bool
) -> StepResult | None:
    """Trains one step on every rank; its result on rank 0, with task records if `keep_records`. Raises RunFailed."""
    executor.local.follow(upcoming_step.plan or executor.local.plan)
    if reference:
        reference.copy_weights()
    executor.number = number
    step = executor.step(upcoming_step.tasks, upcoming_step.loaded)
    require_finite(executor.worker, step, number)
    executor.worker.begin_task("end of the step", number, len(upcoming_step.tasks))
    own = upcoming_step.waited_s, step if keep_records else replace(step, passes=())
    gathered = gather_messages(own, tuple[float, RankStepResult])
    ranks = [step for _, step in gathered]
    if reference:
        executor.worker.begin_task("verification")
        reference.compare(upcoming_step.tasks, ranks)
    if not ranks:
        return None
    measured = tuple(task_records([rank.passes for rank in ranks]))
    waited = max(waited for waited, _ in gathered)
    return StepResult(
        loss=sum(rank.loss for rank in ranks),
        tokens=sum(rank.tokens for rank in ranks),
        seconds=max(rank.seconds for rank in ranks),
        measured=measured,
        work=rank_work(measured, upcoming_step.tasks, [rank.loading_s for rank in ranks]) if keep_records else (),
        peak_bytes=tuple(int(rank.memory.peak) if rank.memory else None for rank in ranks),
        memory=tuple(rank.memory for rank in ranks if rank.memory),
        sent_bytes=tuple(rank.sent_bytes for rank in ranks),
        table_seconds=mean(rank.table_seconds for rank in ranks),
        loading=max(rank.waited_s for rank in ranks),
        features=sum((rank.features for rank in ranks), NO_FEATURES),
        grad_norm=ranks[0].clipped.norm if ranks[0].clipped else None,
        planning=None if upcoming_step.planned_s is None else PlanningOverlap(upcoming_step.planned_s, waited),
    )


def machine_label(device: torch.device, ranks: int) -> str:
    """Label of measured numbers: `4 processes on 2 cores of Intel(R) Xeon(R) Processor`, `8 x NVIDIA H200`."""
    if device.type == "cuda":
        return f"{ranks} x {torch.cuda.get_device_name(device)}"
    processes = "1 process" if ranks == 1 else f"{ranks} processes"
    return f"{processes} on {usable_cores()} cores of {processor_name()}"


def processor_name() -> str:
    """The CPU model that Linux reports, else the architecture."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, "") or platform.machine()
