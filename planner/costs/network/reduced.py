"""Groups of ranks behind a task: who shards and who replicates its parameters, and who communicates within a pass."""

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


def held_by(task: Task, module: Module, layout: Layout, cluster: Cluster) -> tuple[Held, ...]:
    """Parameters of a task on one rank with their groups: the dense part, then the experts by placement. Of all groups
    alike, the one that is spread farthest counts.
    """
    outside = float(embedding_head_parameters(task.layers, module, layout))
    sparse, tp = sparse_parameters(module, task.layers), layout.tp
    extra = 1 if outside else 0  # one more collective
    sharing, copying = (("cp", "dp"), ("replica",)) if layout.zero else (("cp", "dp", "replica"), ())
    shard = farthest(blocks_of(task.ranks, layout, sharing), cluster)
    copies = farthest(blocks_of(task.ranks, layout, copying), cluster)
    dense = Held(
        (of_layers(module, task.layers) - sparse) / tp + outside, outside, shard, copies, len(task.layers) + extra
    )
    experts = (replicated_experts(task.ranks, own, module, at, cluster) for at, own in layout.by_experts(task.layers))
    return dense, *(each._replace(calls=each.calls + extra) for each in experts)


def sparse_parameters(module: Module, layers: Layers) -> int:
    """Parameters of the routed experts of these layers."""
    return sum(layer_experts(module, kind) * count for kind, count in kind_counts(module, layers).items())


def replicated_experts(ranks: Ranks, layers: Layers, module: Module, layout: Layout, cluster: Cluster) -> Held:
    """Parameters of the experts of layers with the same placement, on one rank, and their groups."""
    sparse = sparse_parameters(module, layers)
    if not sparse:
        return Held(0.0, 0.0, Group(1), Group(1), len(layers))
    degree = layout.ep * layout.etp
    edp = stage_size(layout) // degree
    over = min(layout.sharding, edp) if layout.zero and layout.replica > 1 else edp
    of_experts = expert_groups_over(layout, ("edp",))
    same = dict.fromkeys(of_experts[rank] for rank in ranks)  # neighbours shard, ranks farther apart replicate
    shared = farthest([Ranks(each[n : n + over]) for each in same for n in range(0, edp, over)], cluster)
    others = farthest([Ranks(each[n::over]) for each in same for n in range(over)], cluster)
    return Held(sparse / degree, 0.0, shared, others, len(layers))


def embedding_head_parameters(layers: Layers, module: Module, layout: Layout) -> Number:
    """Parameters outside the layers on one rank of the stage that has these layers; the embedding is on the first
    stage.
    """
    if layout.pp == 1:
        return end_parameters(module) / layout.tp
    if layers[0] and layers[-1] < module.layers - 1:
        return 0.0
    return ends_held(module, columns_of(layout.placed(layout.placement)), layout.pp - 1 if layers[0] else 0)


def farthest(groups: list[Ranks], cluster: Cluster) -> Group:
    """Of groups of one size, the one that reaches farthest and has fewest neighbours in a node."""
    return max((among(cluster, ranks) for ranks in groups), key=lambda each: (each.span, each.stride))


def blocks_of(ranks: Ranks, layout: Layout, dims: tuple[str, ...]) -> list[Ranks]:
    """These ranks of a stage in blocks that differ in these mesh dimensions only."""
    mesh = {dim: size for dim, size in layout.mesh.items() if dim != "pp"}
    groups = blocks(own_stage(layout, ranks[0]), mesh, dims)
    return [*dict.fromkeys(groups[rank] for rank in ranks)]


def places_of(part: Part, layout: Layout, cluster: Cluster) -> Places:
    """The groups that communicate within a pass; of sub-groups that do the same, those that are spread farthest.

    The slowest link of a ring is of the level that joins all ranks of its group: if each link lay within one block of a
    nearer level, so would the first ranks of all sub-groups, and with them all but the last sub-group's, which is
    linked to them.
    """
    split, blocks = part.split, [Ranks(part.ranks[:1])]
    if layout.tp > 1:
        blocks = blocks_of(part.ranks, layout, ("tp",))
    tensor = farthest(blocks, cluster)
    if split.degree == 1:
        return Places(tensor, group(1), group(1))
    groups = (partners(layout, part.ranks, rank) for rank in blocks[0])
    heads = [Ranks(ranks) for each in groups for ranks in split.blocks(each)]
    return Places(tensor, farthest(heads, cluster), among(cluster, part.ranks)._replace(size=split.ring))
