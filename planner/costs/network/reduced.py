"""What ranks of a stage have of its parameters, and who has the same: of a task that gathers, reduces, updates."""

from planner.costs.columns import Number, columns_of
from planner.costs.memory.states import ends_held, layer_experts
from planner.costs.network.network import Group, among, group
from planner.costs.network.replicas import Held
from planner.costs.network.traffic import Places
from planner.costs.part import Part
from planner.plan.mesh import blocks, expert_groups_over, own_stage, stage_size
from planner.plan.model import Layout
from planner.plan.shares import partners
from planner.plan.task import Task
from planner.specs.base import Layers, Ranks
from planner.specs.cluster import Cluster
from planner.specs.layers import Module, kind_counts
from planner.specs.parameters import end_parameters, of_layers


def held_by(task: Task, module: Module, layout: Layout, cluster: Cluster) -> tuple[Held, Held]:
    """The dense part and the experts, among the ranks that are farthest from each other."""
    ends = float(ends_of(task.layers, module, layout))
    sparse = sum(layer_experts(module, kind) * count for kind, count in kind_counts(module, task.layers).items())
    calls, tp = len(task.layers) + (1 if ends else 0), layout.tp
    sharing, copying = (("cp", "dp"), ("replica",)) if layout.zero else (("cp", "dp", "replica"), ())
    shard = farthest(blocks_of(task.ranks, layout, sharing), cluster)
    copies = farthest(blocks_of(task.ranks, layout, copying), cluster)
    dense = Held((of_layers(module, task.layers) - sparse) / tp + ends, ends, shard, copies, calls)
    if not sparse:
        return dense, Held(0.0, 0.0, Group(1), Group(1), calls)
    spread = layout.ep * layout.etp
    edp = stage_size(layout) // spread
    over = min(layout.sharding, edp) if layout.zero and layout.replica > 1 else edp
    of_experts = expert_groups_over(layout, ("edp",))
    same = dict.fromkeys(of_experts[rank] for rank in task.ranks)  # nearest first: as many as share, then their copies
    shared = farthest([Ranks(ranks[n : n + over]) for ranks in same for n in range(0, edp, over)], cluster)
    others = farthest([Ranks(ranks[n::over]) for ranks in same for n in range(over)], cluster)
    return dense, Held(sparse / spread, 0.0, shared, others, calls)


def ends_of(layers: Layers, module: Module, layout: Layout) -> Number:
    """Parameters outside the layers, on one rank of the stage that has these: the embedding is on the first stage."""
    if layout.pp == 1:
        return end_parameters(module) / layout.tp
    if layers[0] and layers[-1] < module.layers - 1:
        return 0.0
    return ends_held(module, columns_of(layout), layout.pp - 1 if layers[0] else 0)


def farthest(groups: list[Ranks], cluster: Cluster) -> Group:
    """Of groups of one size, the one that reaches farthest and has fewest neighbours in a node."""
    return max((among(cluster, ranks) for ranks in groups), key=lambda each: (each.span, each.stride))


def blocks_of(ranks: Ranks, layout: Layout, dims: tuple[str, ...]) -> list[Ranks]:
    """These ranks of a stage in blocks that differ in these dims only."""
    mesh = {dim: size for dim, size in layout.mesh.items() if dim != "pp"}
    groups = blocks(own_stage(layout, ranks[0]), mesh, dims)
    return [*dict.fromkeys(groups[rank] for rank in ranks)]


def places_of(part: Part, layout: Layout, cluster: Cluster) -> Places:
    """Of all sub-groups of a pass that do the same, those that reach farthest.

    The slowest link of a ring is the level that joins all ranks of its group: if each link lay within one block of a
    nearer level, so would the first ranks of all sub-groups, and with them all but the last sub-group's, which is
    linked to them.
    """
    split, blocks = part.split, [Ranks(part.ranks[:1])]
    if layout.tp > 1:
        blocks = blocks_of(part.ranks, layout, ("tp",))
    tensor = farthest(blocks, cluster)
    if split.degree == 1:
        return Places(tensor, group(1), group(1))
    alike = (partners(layout, part.ranks, rank) for rank in blocks[0])
    heads = [Ranks(ranks) for each in alike for ranks in split.blocks(each)]
    return Places(tensor, farthest(heads, cluster), among(cluster, part.ranks)._replace(size=split.ring))
