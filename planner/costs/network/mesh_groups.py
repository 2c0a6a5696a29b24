"""Groups of ranks along the dims of a mesh, for layouts in columns: how many, and how far apart in the order of ranks.

In `tp-cp-pp-dp-replica` the ranks of dp are tp·cp·pp apart. A group over dims that do not stand side by side, as cp and
dp there, is several blocks of neighbours: its stride is then the one of as many members in a node. Experts have a mesh
of their own over the ranks of a stage (MoE parallel folding, arXiv 2504.14960), which are all neighbours only where pp
varies slowest. With sizes that divide nodes these are the groups of a plan (plan/mesh/rank_mesh.py) to the rank.
"""

from collections.abc import Collection
from functools import lru_cache

import numpy as np

from planner.costs.layout_columns import LayoutColumns, Number
from planner.costs.network_model import CommGroup, strided_group
from planner.specs.parallelism import MESH_DIMS

WITHIN_STAGE = frozenset(MESH_DIMS) - {"pp"}
# What the size of a dim depends on, in columns.
DIM_FIELDS = {"dp": ("ranks", "tp", "cp", "pp", "replica")}


@lru_cache(maxsize=256)
def dims_in_order(rank_order: str) -> tuple[str, ...]:
    """All dims, fastest-varying first; those that the order leaves out have one rank each."""
    named = tuple(rank_order.split("-"))
    return (*named, *(dim for dim in MESH_DIMS if dim not in named))


def faster_dims(at: LayoutColumns, dim: str) -> frozenset[str]:
    """The dims that vary faster than this one."""
    order = dims_in_order(at.rank_order)
    return frozenset(order[: order.index(dim)])


def block_size(at: LayoutColumns, dims: Collection[str]) -> Number:
    """The product of these dims' sizes; of dp and cp together without either's, of a stage from its ranks alone."""
    if frozenset(dims) >= WITHIN_STAGE:
        return at.ranks if "pp" in dims else at.ranks / at.pp
    size: Number = 1
    for dim in ("tp", "replica", "pp"):
        size = size * getattr(at, dim) if dim in dims else size
    if "dp" in dims:
        return size * (at.sharding if "cp" in dims else at.sharding / at.cp)
    return size * at.cp if "cp" in dims else size


def stage_stride(at: LayoutColumns) -> Number:
    """Ranks from a stage to the next: how many neighbours of one stage there are."""
    return block_size(at, faster_dims(at, "pp"))


def group_along(at: LayoutColumns, dims: Collection[str], per_node: int) -> CommGroup:
    """The ranks that differ in these dims only."""
    order, found = dims_in_order(at.rank_order), list[CommGroup]()
    run: list[str] = []
    for place, dim in enumerate((*order, "")):
        if dim in dims:
            run.append(dim)
        elif run:
            faster = order[: place - len(run)]
            found.append(strided_group(block_size(at, run), block_size(at, faster)))
            run = []
    whole = found[0]
    for outer in found[1:]:
        whole = repeated_group(whole, outer, per_node)
    return whole


def group_on_stage(at: LayoutColumns, size: Number, stride: Number, per_node: int) -> CommGroup:
    """So many ranks of one stage, `stride` apart when the ranks of the stage are counted."""
    if pp_is_slowest(at):
        return strided_group(size, stride)
    block = stage_stride(at)
    near = np.minimum(size, np.maximum(1.0, block / stride))
    return repeated_group(
        strided_group(near, stride), strided_group(size / near, np.maximum(stride, block) * at.pp), per_node
    )


def repeated_group(inner: CommGroup, outer: CommGroup, per_node: int) -> CommGroup:
    """A group once for each rank of another whose ranks are farther apart."""
    members: Number = 1.0  # in a node
    for each in (inner, outer):
        members = members * np.minimum(each.size, np.maximum(1.0, per_node / each.stride))
    one, other = np.asarray(inner.size) == 1, np.asarray(outer.size) == 1
    stride = np.where(other, inner.stride, np.where(one, outer.stride, per_node / members))
    return CommGroup(inner.size * outer.size, stride, np.where(other, inner.span, outer.span))


def group_fields(at: LayoutColumns, names: tuple[str, ...], dims: Collection[str]) -> tuple[str, ...]:
    """The fields of a formula that depends on these, and on the sizes of these dims by the order of ranks."""
    needed = (name for dim in MESH_DIMS if dim in dims for name in DIM_FIELDS.get(dim, (dim,)))
    return (*names, *dict.fromkeys(name for name in needed if name not in names))


def layer_group_dims(at: LayoutColumns, experts: bool) -> frozenset[str]:
    """The dims besides tp and cp whose sizes say how far apart the ranks are that exchange within a layer."""
    dims = faster_dims(at, "tp") | faster_dims(at, "cp")
    return (dims | expert_group_dims(at) if experts else dims) - {"tp", "cp"}


def expert_group_dims(at: LayoutColumns) -> frozenset[str]:
    """The dims whose sizes say how far apart the experts' ranks are: none where ranks of a stage are neighbours."""
    return frozenset() if pp_is_slowest(at) else faster_dims(at, "pp") | {"pp"}


def pp_is_slowest(at: LayoutColumns) -> bool:
    """Whether all ranks of a stage are neighbours, however large the dims are."""
    return dims_in_order(at.rank_order)[-1] == "pp"
