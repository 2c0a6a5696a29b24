"""Groups of ranks behind a task: who shards and who replicates its parameters, and who communicates within a pass."""

from functools import lru_cache

from planner.costs.layer_pass import LayerPass
from planner.costs.layout_columns import Number, columns_of
from planner.costs.memory.model_states import (
    layer_expert_parameters,
    rank_embedding_head,
    trained_expert_parameters,
)
from planner.costs.network.layer_traffic import LayerGroups
from planner.costs.network.pass_exchange import ExpertGroups
from planner.costs.network.replica_exchange import ReplicatedParameters
from planner.costs.network_model import CommGroup, group_of_ranks, strided_group
from planner.plan.mesh.rank_mesh import distinct_blocks, expert_groups_over, mesh_blocks, stage_ranks_of, stage_size
from planner.plan.plan_file import Layout
from planner.plan.task import Task
from planner.plan.tokens.token_shards import sharing_ranks
from planner.specs.base import Layers, Ranks
from planner.specs.hardware.cluster import Cluster
from planner.specs.layers import Module, kind_counts
from planner.specs.parameters import embedding_head_parameters, parameters_of_layers
from planner.specs.trained_parameters import trained_embedding_head_parameters, trained_layer_parameters


def replicated_by_task(
    task: Task, module: Module, layout: Layout, cluster: Cluster
) -> tuple[ReplicatedParameters, ...]:
    """Parameters of a task on one rank with their groups: the dense part, then the experts by placement. Of all groups
    alike, the one whose ranks are farthest apart counts.
    """
    outside = float(embedding_head_share(task.layers, module, layout))
    trained = trained_dense_parameters(module, task.layers) / layout.tp
    trained += float(embedding_head_share(task.layers, module, layout, trained=True))
    sparse, tp = sparse_parameters(module, task.layers), layout.tp
    extra = 1 if outside else 0  # one more collective
    sharing, copying = (("cp", "dp"), ("replica",)) if layout.zero else (("cp", "dp", "replica"), ())
    shard = farthest_block(task.ranks, layout, sharing, cluster)
    copies = farthest_block(task.ranks, layout, copying, cluster)
    dense = ReplicatedParameters(
        (parameters_of_layers(module, task.layers) - sparse) / tp + outside,
        trained,
        outside,
        shard,
        copies,
        len(task.layers) + extra,
    )
    experts = (
        replicated_experts(task.ranks, own, module, at, cluster) for at, own in layout.by_expert_placement(task.layers)
    )
    return dense, *(each._replace(calls=each.calls + extra) for each in experts)


def sparse_parameters(module: Module, layers: Layers) -> int:
    """Parameters of the routed experts of these layers."""
    return sum(layer_expert_parameters(module, kind) * count for kind, count in kind_counts(module, layers).items())


def trained_dense_parameters(module: Module, layers: Layers) -> int:
    """Trained parameters of these layers besides routed experts."""
    return sum(
        (trained_layer_parameters(module, kind) - trained_expert_parameters(module, kind)) * count
        for kind, count in kind_counts(module, layers).items()
    )


def replicated_experts(
    ranks: Ranks, layers: Layers, module: Module, layout: Layout, cluster: Cluster
) -> ReplicatedParameters:
    """Parameters of the experts of layers with the same placement, on one rank, and their groups."""
    sparse = sparse_parameters(module, layers)
    if not sparse:
        return ReplicatedParameters(0.0, 0.0, 0.0, CommGroup(1), CommGroup(1), len(layers))
    degree = layout.ep * layout.etp
    edp = stage_size(layout) // degree
    over = min(layout.state_shards, edp) if layout.zero and layout.replica > 1 else edp
    of_experts = expert_groups_over(layout, ("edp",))
    same = distinct_blocks(of_experts, ranks)  # neighbours shard, ranks farther apart replicate
    shared = farthest_group([Ranks(each[n : n + over]) for each in same for n in range(0, edp, over)], cluster)
    others = farthest_group([Ranks(each[n::over]) for each in same for n in range(over)], cluster)
    trained = sparse / degree if module.trained == "all" else 0.0
    return ReplicatedParameters(sparse / degree, trained, 0.0, shared, others, len(layers))


def expert_groups(ranks: Ranks, layout: Layout, cluster: Cluster) -> ExpertGroups:
    """Groups in which these ranks of a stage exchange tokens with experts: of those alike, the farthest apart."""
    found = []
    for dims in (("ep",), ("etp",), ("ep", "etp")):
        over = expert_groups_over(layout, dims)
        found.append(farthest_group(distinct_blocks(over, ranks), cluster))
    return ExpertGroups(*found)


def embedding_head_share(layers: Layers, module: Module, layout: Layout, trained: bool = False) -> Number:
    """Parameters outside the layers on one rank of the stage that has these layers; the embedding is on the first
    stage. `trained`: only those that have gradients.
    """
    if layout.pp == 1:
        whole = trained_embedding_head_parameters if trained else embedding_head_parameters
        return whole(module) / layout.tp
    if layers[0] and layers[-1] < module.layers - 1:
        return 0.0
    at = columns_of(layout.with_expert_placement(layout.expert_placement))
    return rank_embedding_head(module, at, layout.pp - 1 if layers[0] else 0, trained)


def farthest_group(groups: list[Ranks], cluster: Cluster) -> CommGroup:
    """The group, among some of one size, that reaches farthest and has fewest neighbours in a node."""
    return max((group_of_ranks(cluster, ranks) for ranks in groups), key=lambda each: (each.span, each.stride))


def farthest_block(ranks: Ranks, layout: Layout, dims: tuple[str, ...], cluster: Cluster) -> CommGroup:
    """The farthest group of these ranks of a stage that differ in these mesh dimensions only."""
    mesh = tuple((dim, size) for dim, size in layout.mesh.items() if dim != "pp")
    return cached_farthest_block(ranks, stage_ranks_of(layout, ranks[0]), mesh, dims, cluster)


@lru_cache(maxsize=256)
def cached_farthest_block(
    ranks: Ranks, stage: Ranks, mesh: tuple[tuple[str, int], ...], dims: tuple[str, ...], cluster: Cluster
) -> CommGroup:
    """The farthest group of these ranks of a stage along these dims of a mesh, cached: all chunks and micro-batches ask
    for it.
    """
    groups = mesh_blocks(stage, dict(mesh), dims)
    return farthest_group(distinct_blocks(groups, ranks), cluster)


def rank_blocks(ranks: Ranks, layout: Layout, dims: tuple[str, ...]) -> list[Ranks]:
    """Ranks of a stage in blocks that differ in these mesh dimensions only."""
    mesh = {dim: size for dim, size in layout.mesh.items() if dim != "pp"}
    return distinct_blocks(mesh_blocks(stage_ranks_of(layout, ranks[0]), mesh, dims), ranks)


def pass_groups(part: LayerPass, layout: Layout, cluster: Cluster) -> LayerGroups:
    """The groups that communicate within a pass; of sub-groups that do the same, those farthest apart.

    The slowest link of a ring is of the level that joins all ranks of its group: if each link lay within one block of a
    nearer level, so would the first ranks of all sub-groups, and with them all but the last sub-group's, which is
    linked to them.
    """
    split, blocks = part.split, [Ranks(part.ranks[:1])]
    if layout.tp > 1:
        blocks = rank_blocks(part.ranks, layout, ("tp",))
    tensor = farthest_group(blocks, cluster)
    if split.degree == 1:
        return LayerGroups(tensor, strided_group(1), strided_group(1))
    groups = (sharing_ranks(layout, part.ranks, rank) for rank in blocks[0])
    heads = [Ranks(ranks) for each in groups for ranks in split.ulysses_blocks(each)]
    return LayerGroups(
        tensor, farthest_group(heads, cluster), group_of_ranks(cluster, part.ranks)._replace(size=split.ring)
    )
