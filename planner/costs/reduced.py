"""What ranks of a stage send each other of parameters and of their gradients: how much, and in which collectives.

Under ZeRO, `dp` ranks gather each other's shards of parameters, and reduce-scatter gradients: those with the same part
of tp, each with its part of the bytes. Where they are replicated (HSDP), each shard of gradients is then all-reduced
over its replicas: a reduce-scatter and an all-gather.
"""

from collections.abc import Callable

from planner.costs.cost import Cost
from planner.costs.lines import summed
from planner.plan.mesh import blocks, own_stage, spread_of_experts
from planner.plan.model import Layout
from planner.plan.task import Task
from planner.specs.base import Ranks
from planner.specs.layers import kind_counts
from planner.specs.model import Module
from planner.specs.parameters import end_parameters, expert_parameters, of_layers
from planner.specs.shapes import BYTES

Collectives = Callable[[str, float, int, Ranks], Cost]  # kind, bytes, calls, ranks → the cost on the slowest of them
BF16 = 0.5  # of the bytes of a gradient as it is reduced otherwise


def exchange_cost(task: Task, module: Module, layout: Layout, cost: Collectives) -> Cost:
    """A gather or a sync of the task's layers: one call per layer and pass, and one for the ends.

    The ends stay gathered from forward to backward, as FSDP2 keeps its root.
    """
    times = 2 if task.phase == "gather" and task.micro_batch is not None else 1
    ends = task.layers[-1] == module.layers - 1
    size, calls = held_bytes(task, module, layout, times), times * len(task.layers) + (1 if ends else 0)
    if task.phase == "gather":
        return within(task, layout, ("all_gather", size, calls), cost)
    sent = ("all_to_all", size * BF16, calls) if layout.gradients == "bf16" else ("reduce_scatter", size, calls)
    scattered = within(task, layout, sent, cost)
    return summed(scattered, between(task, layout, size, calls, cost)) if copies(layout) > 1 else scattered


def held_bytes(task: Task, module: Module, layout: Layout, times: int) -> float:
    """Of all that is gathered, or reduced, on one rank."""
    if layout.data_ranks == 1 and layout.zero < 3:  # experts alone have copies: on the ranks of tp
        moved = expert_parameters(module) * kind_counts(module, task.layers).get("moe", 0)
        return times * moved * BYTES[layout.dtype] / spread_of_experts(layout)
    ends = end_parameters(module) if task.layers[-1] == module.layers - 1 else 0
    return (times * of_layers(module, task.layers) + ends) * BYTES[layout.dtype] / layout.mesh.get("tp", 1)


def copies(layout: Layout) -> int:
    """Of what is sharded; by ZeRO-0 nothing is, and replicas are data-parallel ranks like others."""
    return layout.mesh.get("replica", 1) if layout.zero else 1


def within(task: Task, layout: Layout, sent: tuple[str, float, int], cost: Collectives) -> Cost:
    """Among the ranks that share states, or by ZeRO-0 have all of them alike: the slowest of these blocks.

    Where experts alone have copies, the ranks of tp are among these.
    """
    dims = ("dp",) if layout.zero else ("dp", "replica")
    among = [task.ranks] if layout.data_ranks == 1 else blocks_of(task.ranks, layout, dims)
    return max((cost(*sent, block) for block in among), key=lambda each: each.value)


def between(task: Task, layout: Layout, size: float, calls: int, cost: Collectives) -> Cost:
    """The all-reduce of each rank's shard over its replicas, the slowest of them."""
    shard = size / layout.mesh.get("dp", 1)
    each = [
        summed(cost("reduce_scatter", shard, calls, block), cost("all_gather", shard, calls, block))
        for block in blocks_of(task.ranks, layout, ("replica",))
    ]
    return max(each, key=lambda cost: cost.value)


def blocks_of(ranks: Ranks, layout: Layout, dims: tuple[str, ...]) -> list[Ranks]:
    """These ranks of a stage in blocks that differ in these dims only."""
    mesh = {dim: size for dim, size in layout.mesh.items() if dim != "pp"}
    groups = blocks(own_stage(layout, ranks[0]), mesh, dims)
    return [*dict.fromkeys(groups[rank] for rank in ranks)]
