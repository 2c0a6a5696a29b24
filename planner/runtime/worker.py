"""The life of one rank: join, shard the model, warm up, execute step after step; the first rank collects."""

import os
from contextlib import AbstractContextManager
from dataclasses import replace

import torch
import torch.distributed as dist

from planner.launch.worker import Worker, joined
from planner.plan.expand import expand
from planner.plan.legal import require_legal
from planner.plan.model import Plan
from planner.runtime.clock import Clock
from planner.runtime.ending import Ending
from planner.runtime.executor import Executor, RankStep
from planner.runtime.local import Local
from planner.runtime.machine import machine
from planner.runtime.metrics import Note, noting
from planner.runtime.norm import Norm
from planner.runtime.optimizers import optimizers, set_rate, take_up
from planner.runtime.options import Progress, RunOptions
from planner.runtime.records import records
from planner.runtime.reference import Reference
from planner.runtime.result import Ended, Planned, RunResult, StepResult
from planner.runtime.saving import claimed, save
from planner.runtime.snapshot import Snapshot, snapshot
from planner.runtime.upcoming import Upcoming, upcoming
from planner.runtime.warmup import warm_up

VERIFIED_FURTHER = 3  # of the steps that are planned while the run lasts
FEW_RANKS = 64  # so few send the first rank their records of every step; more, of steps whose records are kept
MEASURED_STEPS = 16  # the last ones, whose records are kept: a long run would fill the first rank's memory with them


def body(worker: Worker, plan: Plan, options: RunOptions) -> RunResult | None:
    """The whole run on one rank; its result on the first."""
    require_legal(plan, plan.name)
    with joined(worker):
        return train(worker, plan, options)


def train(worker: Worker, plan: Plan, options: RunOptions) -> RunResult | None:
    """Every step, in a world that has been joined."""
    ending = Ending(worker, options.max_seconds)
    with ending.listening():
        taking = snapshot(worker, options.memory_snapshot)
        with claimed(worker, options.save), taking.taken():
            return trained(prepare(worker, plan, options), options, ending, taking)


def trained(executor: Executor, options: RunOptions, ending: Ending, taking: Snapshot) -> RunResult | None:
    """Step by step, until there are no more, or all ranks agree to end."""
    worker, plan = executor.worker, executor.local.plan
    ended: Ended = "steps"
    warm_up(executor, plan, expand(plan))
    take_up(executor.local, executor.optimizers)  # behind the warm-up, which leaves states as new
    before = executor.local.found.steps if executor.local.found else 0
    reference = Reference(executor.local, options) if options.verify else None
    verified_steps = before + len(plan.steps) + (VERIFIED_FURTHER if plan.then else 0)
    of, done = options.count(plan), []
    with upcoming(worker, plan, options, before) as steps, noted(worker, options) as note:
        for number, coming in enumerate(steps, before):
            rate = options.training.rate(number, of)
            set_rate(executor.optimizers, rate)
            taking.step(last=options.max_seconds is not None or number == of - 1)
            verifier = reference if number < verified_steps else None
            step = one_step(executor, coming, verifier, number + 1, keeps(number, of, plan, options))
            if step:
                done.append(replace(step, learning_rate=rate))
                forget(done)
                note(number + 1, done[-1])
                worker.report(Progress(number + 1, of, step.loss, step.tokens, step.seconds))
            ended = ending.agreed()
            if options.save is not None and options.saves(number + 1, ended != "steps" or number + 1 == of):
                save(executor, options.save, number + 1)
                if ended == "steps" and number + 1 < of:  # asked for meanwhile: all is saved
                    ended = ending.agreed()
            if ended != "steps":
                break
    if worker.rank:
        return None
    verified = reference.worst if reference else None
    there = machine(worker.device, plan.size)
    return RunResult(tuple(done), verified, plan.size, there, torch.__version__, ended, before)


def keeps(number: int, of: int, plan: Plan, options: RunOptions) -> bool:
    """Whether the first rank hears what all ranks noted in this step. Where time ends the run, any may be the last."""
    return plan.size <= FEW_RANKS or options.max_seconds is not None or number >= of - MEASURED_STEPS


def forget(done: list[StepResult]) -> None:
    """The records of the step that is no longer among the last."""
    if len(done) > MEASURED_STEPS:
        done[-MEASURED_STEPS - 1] = replace(done[-MEASURED_STEPS - 1], measured=(), memory=())


def prepare(worker: Worker, plan: Plan, options: RunOptions) -> Executor:
    """Groups, models and optimizers, on every rank what it has of them."""
    one_machine = int(os.environ.get("LOCAL_WORLD_SIZE", worker.world_size)) == worker.world_size
    local = Local(worker, plan, options, Clock(worker.device, worker.rank, one_machine))
    watched = options.training.clip is not None or options.metrics is not None
    norm = Norm(local, options.training.clip) if watched else None
    return Executor(local, optimizers(local, options.training), norm)


def noted(worker: Worker, options: RunOptions) -> AbstractContextManager[Note]:
    """Where the first rank notes what steps came to."""
    return noting(options.metrics if worker.rank == 0 else None)


def one_step(
    executor: Executor, coming: Upcoming, reference: Reference | None, number: int, kept: bool
) -> StepResult | None:
    """One step on every rank; on the first, what it came to, with the records of tasks if these are `kept`. Raises
    RunFailed where the norm of gradients is no number.
    """
    if reference:
        reference.follow()
    step = executor.step(coming.tasks)
    if step.clipped:
        step.clipped.require_finite(number)
    gathered = collected((coming.waited_s, step if kept else replace(step, passes=())))
    ranks = [step for _, step in gathered]
    if reference:
        executor.worker.begin("verification")
        reference.compare(coming.tasks, ranks)
    if not ranks:
        return None
    waited = max(waited for waited, _ in gathered)
    return StepResult(
        loss=sum(rank.loss for rank in ranks),
        tokens=sum(rank.tokens for rank in ranks),
        seconds=max(rank.seconds for rank in ranks),
        measured=tuple(records([rank.passes for rank in ranks])),
        peak_bytes=tuple(int(rank.memory.peak) if rank.memory else None for rank in ranks),
        memory=tuple(rank.memory for rank in ranks if rank.memory),
        grad_norm=ranks[0].clipped.norm if ranks[0].clipped else None,
        planned=None if coming.planned_s is None else Planned(coming.planned_s, waited),
    )


def collected(own: tuple[float, RankStep]) -> list[tuple[float, RankStep]]:
    """Every rank's wait and step, by rank, on the first; nothing on the others."""
    if dist.get_rank():
        dist.gather_object(own)
        return []
    found: list[tuple[float, RankStep] | None] = [None] * dist.get_world_size()
    dist.gather_object(own, found)
    return [rank for rank in found if rank is not None]
