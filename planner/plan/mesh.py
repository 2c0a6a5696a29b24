"""Where ranks stand in the mesh of a module, and which of them share a dim.

The first dim is the slowest: rank = sum of index x stride. Experts have a mesh of their own over the ranks of one stage
(MoE parallel folding, arXiv 2504.14960): their dims are the fastest, and what is left, `edp`, are replicas of them.
"""

from bisect import bisect_left
from collections.abc import Collection, Sequence
from functools import lru_cache
from math import prod

from planner.plan.model import Layout
from planner.specs.base import Ranks


def coordinates(layout: Layout, rank: int) -> dict[str, int]:
    """The place of a rank along each dim of the mesh."""
    return unravelled(bisect_left(layout.ranks, rank), layout.mesh)


def groups_over(layout: Layout, dims: Collection[str]) -> dict[int, Ranks]:
    """Rank → the ranks that differ from it in these dims only, itself among them."""
    return blocks(layout.ranks, layout.mesh, dims)


def stage_ranks(layout: Layout, stage: int) -> Ranks:
    """Ranks at `stage` of the mesh's `pp` dim; all of them when there is none. First dim slowest."""
    if layout.pp == 1:
        return layout.ranks
    stride, ranks = stage_stride(layout), layout.ranks
    again = stride * layout.pp
    starts = range(stage * stride, len(ranks), again)
    return Ranks(rank for start in starts for rank in ranks[start : start + stride])


def stage_stride(layout: Layout) -> int:
    """Consecutive ranks of one stage: those of all dims that are nearer than `pp`."""
    dims = layout.rank_order.split("-")
    return prod(getattr(layout, dim) for dim in dims[: dims.index("pp")]) if "pp" in dims else len(layout.ranks)


def own_stage(layout: Layout, rank: int) -> Ranks:
    """The ranks of the stage that this one is on."""
    return stage_ranks(layout, coordinates(layout, rank).get("pp", 0))


def stage_size(layout: Layout) -> int:
    """Ranks of one stage."""
    return prod(size for dim, size in layout.mesh.items() if dim != "pp")


def expert_coordinates(layout: Layout, rank: int) -> dict[str, int]:
    """The place of a rank along the dims of its experts."""
    return unravelled(own_stage(layout, rank).index(rank), expert_mesh(layout))


def expert_groups_over(layout: Layout, dims: Collection[str]) -> dict[int, Ranks]:
    """As `groups_over`, in the mesh of the experts, each stage by itself."""
    found: dict[int, Ranks] = {}
    for stage in range(layout.pp):
        found |= blocks(stage_ranks(layout, stage), expert_mesh(layout), dims)
    return found


def expert_mesh(layout: Layout) -> dict[str, int]:
    """Dims of the experts on one stage, slowest first."""
    return {"edp": stage_size(layout) // (layout.ep * layout.etp), "ep": layout.ep, "etp": layout.etp}


def spread_of_experts(layout: Layout) -> int:
    """Ranks that hold the experts of a layer together."""
    return layout.ep * layout.etp


def state_groups(layout: Layout) -> tuple[dict[int, Ranks], dict[int, Ranks]]:
    """Of the states of a layer: rank → who shares them with it, and rank → who has the same of them (by ZeRO-0 all)."""
    if layout.zero == 0:
        return groups_over(layout, ()), groups_over(layout, ("cp", "dp", "replica"))
    return groups_over(layout, ("cp", "dp")), groups_over(layout, ("replica",))


def expert_state_groups(layout: Layout) -> tuple[dict[int, Ranks], dict[int, Ranks]]:
    """The same of the states of experts: the ranks with the same ones share them, or have them all."""
    same, alone = expert_groups_over(layout, ("edp",)), expert_groups_over(layout, ())
    return (alone, same) if layout.zero == 0 else (same, alone)


def states(layout: Layout, rank: int) -> tuple[Ranks, Ranks]:
    """Of one rank, of `state_groups`."""
    shared, replicas = state_groups(layout)
    return shared[rank], replicas[rank]


def expert_states(layout: Layout, rank: int) -> tuple[Ranks, Ranks]:
    """Of one rank, of `expert_state_groups`."""
    shared, replicas = expert_state_groups(layout)
    return shared[rank], replicas[rank]


def blocks(ranks: Sequence[int], mesh: dict[str, int], dims: Collection[str]) -> dict[int, Ranks]:
    """Rank → those of `ranks`, which fill the mesh, that differ from it in these dims only."""
    return blocks_in(tuple(ranks), tuple(mesh.items()), tuple(dims))


@lru_cache(maxsize=256)
def blocks_in(ranks: tuple[int, ...], sizes: tuple[tuple[str, int], ...], dims: tuple[str, ...]) -> dict[int, Ranks]:
    """The same, once for each mesh: tasks of all micro-batches ask."""
    mesh = dict(sizes)
    together: dict[tuple[int, ...], list[int]] = {}
    for place, rank in enumerate(ranks):
        fixed = tuple(index for dim, index in unravelled(place, mesh).items() if dim not in dims)
        together.setdefault(fixed, []).append(rank)
    return {rank: Ranks(block) for block in together.values() for rank in block}


def unravelled(place: int, mesh: dict[str, int]) -> dict[str, int]:
    indices = {}
    for dim in reversed(mesh):
        place, indices[dim] = divmod(place, mesh[dim])
    return indices
