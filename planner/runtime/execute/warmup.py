"""Warm-up before the first timed step.

The first passes through a sharded model, the first update and the first collective of a group import modules of torch,
choose kernels, allocate memory, create optimizer states and connect processes: seconds that no later step takes. So
ranks first run the first micro-batch of the plan (with edges between modules, or several tasks, its first step), with
an update that changes no weight, and a collective of a few bytes in each group. Gradients and optimizer states of it
are dropped.
"""

from collections.abc import Sequence

from planner.launch.communication import time_collective
from planner.models import ShardedAdamW
from planner.plan.group_catalogue import process_groups
from planner.plan.plan_file import Plan
from planner.plan.task import Task
from planner.runtime.execute.task_executor import TaskExecutor

FEW_BYTES = 64


def warm_up(executor: TaskExecutor, plan: Plan, tasks: Sequence[Task]) -> None:
    """Runs the warm-up on this rank; every rank calls it. `tasks`: of the first step, of all ranks."""
    rank, groups = executor.worker.rank, executor.local.groups
    executor.worker.begin_task("warm-up")
    for ranks in sorted(ranks for ranks in process_groups(plan) if len(ranks) > 1):
        if rank in ranks:
            time_collective("all_to_all", groups[ranks], FEW_BYTES, executor.worker.device, warmup=0, repeats=1)
    executor.local.channels.connect()
    first = tasks[0].micro_batch
    whole_step = bool(plan.edges or plan.uses.tasks)  # outputs that one reads may be computed in any other
    selected = [t for t in tasks if (whole_step or t.micro_batch in (first, None)) and t.phase != "update"]
    executor.step(selected)
    updated = {task.module for task in tasks if task.phase == "update"}
    for module, optimizer in executor.optimizers.items():
        if module in updated:
            executor.local.complete_gradients(module)
            idle_update(optimizer)
    executor.meter.take_measured()  # bytes that it sent belong to no task


def idle_update(optimizer: ShardedAdamW) -> None:
    """Runs an update with learning rate 0, and resets the optimizer states."""
    rates = [group["lr"] for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    optimizer.step()
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
    optimizer.forget()
    optimizer.zero_grad()
