"""The device mesh of a module: coordinates of ranks, and groups of ranks along its dims.

The first dim varies slowest: rank = sum of index x stride. Experts have a mesh of their own over the ranks of one stage
(MoE parallel folding, arXiv 2504.14960): `etp` and `ep` vary fastest, and the remaining dim, `edp`, counts replicas.
A module has one layout of its MoE layers, or several where the placement of experts differs between layers.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from math import prod

from planner.plan.plan_file import Layout
from planner.specs.base import Ranks
from planner.specs.layers import Module
from planner.specs.layers.blocks import kind_blocks


def coordinates(layout: Layout, rank: int) -> dict[str, int]:
    """Return the index of a rank along each dim of the mesh."""
    return unravel(bisect_left(layout.ranks, rank), layout.mesh)


def places_along(layout: Layout, dim: str, ranks: Iterable[int]) -> list[int]:
    """Return the index of each of these ranks along one dim of the mesh."""
    dims = layout.rank_order.split("-")  # the first varies fastest
    stride, size = prod(getattr(layout, faster) for faster in dims[: dims.index(dim)]), getattr(layout, dim)
    return [bisect_left(layout.ranks, rank) // stride % size for rank in ranks]


def groups_over(layout: Layout, dims: Collection[str]) -> dict[int, Ranks]:
    """Return rank → the ranks that differ from it in these dims only, including itself."""
    return mesh_blocks(layout.ranks, layout.mesh, dims)


def stage_ranks(layout: Layout, stage: int) -> Ranks:
    """Return the ranks of a pipeline stage, rising; all ranks without a pipeline."""
    if layout.pp == 1:
        return layout.ranks
    stride, ranks = stage_stride(layout), layout.ranks
    period = stride * layout.pp
    starts = range(stage * stride, len(ranks), period)
    return Ranks(rank for start in starts for rank in ranks[start : start + stride])


def stage_stride(layout: Layout) -> int:
    """Return the number of consecutive ranks of one stage: the product of the dims that vary faster than `pp`."""
    dims = layout.rank_order.split("-")
    return prod(getattr(layout, dim) for dim in dims[: dims.index("pp")]) if "pp" in dims else len(layout.ranks)


def stage_ranks_of(layout: Layout, rank: int) -> Ranks:
    """Return the ranks of the stage that a rank is on."""
    return stage_ranks(layout, coordinates(layout, rank).get("pp", 0))


def stage_size(layout: Layout) -> int:
    """Return the number of ranks of one stage."""
    return prod(size for dim, size in layout.mesh.items() if dim != "pp")


def expert_coordinates(layout: Layout, rank: int) -> dict[str, int]:
    """Return the index of a rank along each dim of the experts' mesh."""
    return unravel(stage_ranks_of(layout, rank).index(rank), expert_mesh(layout))


def expert_groups_over(layout: Layout, dims: Collection[str]) -> dict[int, Ranks]:
    """Return what `groups_over` does, in the experts' mesh of each stage."""
    found: dict[int, Ranks] = {}
    for stage in range(layout.pp):
        found |= mesh_blocks(stage_ranks(layout, stage), expert_mesh(layout), dims)
    return found


def expert_mesh(layout: Layout) -> dict[str, int]:
    """Return the sizes of the experts' mesh on one stage, slowest-varying dim first."""
    return {"edp": stage_size(layout) // (layout.ep * layout.etp), "ep": layout.ep, "etp": layout.etp}


def expert_shards(layout: Layout) -> int:
    """Return the number of ranks over which the experts of a layer are sharded."""
    return layout.ep * layout.etp


def state_groups(layout: Layout) -> tuple[dict[int, Ranks], dict[int, Ranks]]:
    """Return rank → the ranks that a layer's states are sharded over with it, and rank → the ranks with the same shard.

    Under ZeRO-0 nothing is sharded, and all ranks have the same states.
    """
    if layout.zero == 0:
        return groups_over(layout, ()), groups_over(layout, ("cp", "dp", "replica"))
    return groups_over(layout, ("cp", "dp")), groups_over(layout, ("replica",))


def expert_state_groups(layout: Layout) -> tuple[dict[int, Ranks], dict[int, Ranks]]:
    """Return what `state_groups` does, of the states of experts: sharded over replicas, or under ZeRO-0 replicated."""
    replicas, single = expert_groups_over(layout, ("edp",)), expert_groups_over(layout, ())
    return (single, replicas) if layout.zero == 0 else (replicas, single)


def state_groups_of_rank(layout: Layout, rank: int) -> tuple[Ranks, Ranks]:
    """Return the two groups of `state_groups` that a rank is in."""
    shared, replicas = state_groups(layout)
    return shared[rank], replicas[rank]


def expert_state_groups_of_rank(layout: Layout, rank: int) -> tuple[Ranks, Ranks]:
    """Return the two groups of `expert_state_groups` that a rank is in."""
    shared, replicas = expert_state_groups(layout)
    return shared[rank], replicas[rank]


def mesh_blocks(ranks: Sequence[int], mesh: dict[str, int], dims: Collection[str]) -> dict[int, Ranks]:
    """Return rank → those of `ranks`, which fill the mesh, that differ from it in these dims only."""
    return cached_mesh_blocks(tuple(ranks), tuple(mesh.items()), tuple(dims))


@lru_cache(maxsize=256)
def cached_mesh_blocks(
    ranks: tuple[int, ...], sizes: tuple[tuple[str, int], ...], dims: tuple[str, ...]
) -> dict[int, Ranks]:
    """Return the blocks of `mesh_blocks` from hashable arguments, cached: tasks of all micro-batches need them."""
    mesh = dict(sizes)
    blocks_by_index: dict[tuple[int, ...], list[int]] = {}
    for position, rank in enumerate(ranks):
        fixed = tuple(index for dim, index in unravel(position, mesh).items() if dim not in dims)
        blocks_by_index.setdefault(fixed, []).append(rank)
    # One object for all ranks of a block: as many as there are ranks would take quadratic memory.
    return {rank: block for block in map(Ranks, blocks_by_index.values()) for rank in block}


def distinct_blocks(blocks: dict[int, Ranks], ranks: Iterable[int]) -> list[Ranks]:
    """Return the blocks that these ranks are in, each once. A block is known by its first rank: comparing all ranks of
    it, for each of them, would take quadratic time.
    """
    return [*{blocks[rank][0]: blocks[rank] for rank in ranks}.values()]


def all_blocks(blocks: dict[int, Ranks]) -> list[Ranks]:
    """Return each block of a table of blocks by rank once."""
    return distinct_blocks(blocks, blocks)


def unravel(position: int, mesh: dict[str, int]) -> dict[str, int]:
    """Return the index along each dim of the rank at this position of a mesh."""
    indices = {}
    for dim in reversed(mesh):
        position, indices[dim] = divmod(position, mesh[dim])
    return indices


def expert_layouts(layout: Layout, module: Module) -> list[Layout]:
    """Return one layout for each placement of experts; none for a module without experts."""
    if module.routed_experts is None:
        return []
    if not layout.experts:
        return [layout]
    return [
        at
        for at, _ in layout.by_expert_placement(layer for layer in range(module.layers) if has_experts(module, layer))
    ]


def has_experts(module: Module, layer: int) -> bool:
    """Whether a layer has a mixture of experts."""
    return "experts" in kind_blocks(module.layer_kind(layer))
