"""Bytes of the buffers of communicators (NCCL's), outside of the framework's allocator.

A process pays once for its dense groups together: what is known of them is one figure for all. Experts on a mesh of
their own (MoE parallel folding, arXiv 2504.14960) need more communicators: over ep, over etp, and over the replicas of
experts, each where no dense group has the same ranks. NCCL allocates buffers for every communicator anew; on 4 A100 it
was seen to take 544 MB for a pair and 688 MB for a larger group (NVIDIA/nccl, issue 964), more than the figures here.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from planner.costs.layout_columns import LayoutColumns, Number
from planner.costs.network.mesh_groups import block_size, dims_in_order
from planner.specs.layers import Module

# Bytes of NCCL's buffers on one rank of 2 and of 4 or more, as aiconfigurator's tables of systems have them.
PAIR_BUFFERS, GROUP_BUFFERS = 358_612_992.0, 411_041_792.0


class StridedRanks(NamedTuple):
    """The ranks of a group: how many, and from one to the next."""

    size: Number
    stride: Number

    def same(self, other: "StridedRanks") -> Number:
        """Whether both are the same ranks."""
        return (np.asarray(self.size) == other.size) & (np.asarray(self.stride) == other.stride)


def communicator_bytes(module: Module, at: LayoutColumns) -> Number:
    """Bytes of all communicators of one rank: none on a single rank. Of several kinds of dispatch, with the least."""
    total = buffer_bytes(at.ranks)
    if module.routed_experts is None:
        return total
    return np.min([total + expert_buffers(replace(at, dispatch=kind)) for kind in at.dispatches], axis=0)


def expert_buffers(at: LayoutColumns) -> Number:
    """Bytes of what the experts' mesh needs besides the dense groups' communicators."""
    total: Number = 0.0
    known = list(dense_groups(at))
    for group in expert_groups(at):
        present = np.any([group.same(other) for other in known], axis=0)
        total = total + np.where(present, 0.0, buffer_bytes(group.size))
        known.append(group)
    return total


def buffer_bytes(ranks: Number) -> Number:
    """Bytes of a communicator of so many ranks on each of them."""
    return np.select([np.asarray(ranks) >= 4, np.asarray(ranks) >= 2], [GROUP_BUFFERS, PAIR_BUFFERS], 0.0)


def dense_groups(at: LayoutColumns) -> tuple[StridedRanks, ...]:
    """The world, tp, cp, and the ranks with the same dense parameters: of one shard, and of all. Strides count the
    ranks of a stage alone, as those of experts do.
    """
    along = (("tp",), ("cp",), ("cp", "dp"), ("cp", "dp", "replica"))
    return (StridedRanks(at.ranks, 1), *(dense_group(at, dims) for dims in along))


def dense_group(at: LayoutColumns, dims: tuple[str, ...]) -> StridedRanks:
    """The ranks of a stage that differ in these dims only; of size nan where others stand between them."""
    order = [dim for dim in dims_in_order(at.rank_order) if dim != "pp"]
    first, *others = (
        StridedRanks(block_size(at, (dim,)), block_size(at, order[: order.index(dim)])) for dim in order if dim in dims
    )
    for other in others:
        alone, next_to = np.asarray(first.size) == 1, other.stride == np.asarray(first.size) * first.stride
        joined = alone | next_to | (np.asarray(other.size) == 1)
        first = StridedRanks(
            np.where(joined, first.size * other.size, np.nan), np.where(alone, other.stride, first.stride)
        )
    return first


def expert_groups(at: LayoutColumns) -> tuple[StridedRanks, ...]:
    """The experts' groups: what dispatch goes through, and the replicas of experts."""
    degree = at.ep * at.etp
    gathered = (StridedRanks(degree, 1),)
    dispatch = gathered if at.dispatch == "all_gather" else (StridedRanks(at.etp, 1), StridedRanks(at.ep, at.etp))
    return (*dispatch, StridedRanks(at.edp, degree))
