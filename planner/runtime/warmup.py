"""What happens only once, before anything is timed.

The first forward and backward of a sharded model, the first update and the first exchange over a group import modules
of torch, choose kernels, allocate states and connect processes: seconds that no later step pays. So every rank first
trains one short item of its own with a learning rate of zero, and each group exchanges a few bytes; the gradients and
the optimizer's states of it are dropped.
"""

from planner.launch.collectives import time_collective
from planner.models.data import packed_batch, token_unit
from planner.plan.model import Plan
from planner.runtime.executor import Executor

FEW_BYTES = 64


def warm_up(executor: Executor, plan: Plan) -> None:
    worker, sharded = executor.worker, executor.sharded
    worker.begin("warm-up")
    for ranks in sorted({tuple(group.ranks) for group in plan.groups.values() if len(group.ranks) > 1}):
        if worker.rank in ranks:
            time_collective("all_to_all", executor.groups[ranks], FEW_BYTES, worker.device, warmup=0, repeats=1)
    spec = sharded.model.spec
    short = packed_batch(spec, [(0, token_unit(spec))], executor.seed, device=worker.device)
    sharded.model(short).backward()
    idle_update(executor)
    if sharded.once:
        sharded.gather()


def idle_update(executor: Executor) -> None:
    """An update that changes no weight and leaves states as new."""
    optimizer = executor.optimizer
    rates = [group["lr"] for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    optimizer.step()
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
    for state in optimizer.state.values():
        for value in state.values():
            value.zero_()
    optimizer.zero_grad()
