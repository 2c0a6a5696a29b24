"""Where ranks stand in the mesh of a module, and which of them share a dim.

The first dim is the slowest: rank = sum of index x stride. Experts have a mesh of their own over the ranks of one stage
(MoE parallel folding, arXiv 2504.14960): their dims are the fastest, and what is left, `edp`, are replicas of them.
"""

from collections.abc import Collection, Sequence
from math import prod

from planner.plan.model import Layout
from planner.plan.work import stage_ranks
from planner.specs.base import Ranks


def coordinates(layout: Layout, rank: int) -> dict[str, int]:
    """The place of a rank along each dim of the mesh."""
    return unravelled(layout.ranks.index(rank), layout.mesh)


def groups_over(layout: Layout, dims: Collection[str]) -> dict[int, Ranks]:
    """Rank → the ranks that differ from it in these dims only, itself among them."""
    return blocks(layout.ranks, layout.mesh, dims)


def expert_coordinates(layout: Layout, rank: int) -> dict[str, int]:
    """The place of a rank along the dims of its experts."""
    stage = stage_ranks(layout, coordinates(layout, rank).get("pp", 0))
    return unravelled(stage.index(rank), expert_mesh(layout))


def expert_groups_over(layout: Layout, dims: Collection[str]) -> dict[int, Ranks]:
    """As `groups_over`, in the mesh of the experts, each stage by itself."""
    found: dict[int, Ranks] = {}
    for stage in range(layout.mesh.get("pp", 1)):
        found |= blocks(stage_ranks(layout, stage), expert_mesh(layout), dims)
    return found


def expert_mesh(layout: Layout) -> dict[str, int]:
    """Dims of the experts on one stage, `edp` first."""
    held = prod(size for dim, size in layout.mesh.items() if dim != "pp")
    sizes = {dim: layout.experts.get(dim, 1) for dim in (*layout.experts, "ep", "etp")}
    return {"edp": held // prod(sizes.values()), **sizes}


def blocks(ranks: Sequence[int], mesh: dict[str, int], dims: Collection[str]) -> dict[int, Ranks]:
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
