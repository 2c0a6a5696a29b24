"""Seconds in which tokens get to their experts and back, by kind of dispatch, and the cheapest kind.

Of n ranks, each with b·s/n tokens of width h that have k experts each (MegaScale-MoE, arXiv 2505.11432):

- all_to_all sends a copy to each expert: 2·k·(b·s·h/n)·(n − 1)/n there and back;
- node_level sends one copy to each node that has any of them, and there one to each rank that has (DeepEP);
- all_gather sends all tokens to all ranks, and reduce-scatters what comes out: 2·b·s·h·(n − 1)/n, however many
  experts a token has, and whichever.

So all_gather moves less from k = n on, and earlier where experts are uneven: copies wait for the fullest rank.
"""

from collections.abc import Sequence
from typing import NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from planner.costs.compute.expert_load import fullest_load
from planner.costs.distinct_columns import LAYER_FIELDS, on_distinct
from planner.costs.layout_columns import LayoutColumns, Number
from planner.costs.machine_model import MachineModel
from planner.costs.network.mesh_groups import group_fields, group_on_stage, layer_group_dims
from planner.specs.layers import Module
from planner.specs.layers.blocks import LayerKind, kind_blocks
from planner.specs.parallelism import Dispatch

DISPATCHES: tuple[Dispatch, ...] = get_args(Dispatch)


class BestDispatch(NamedTuple):
    """The cheapest kind of dispatch of each layout."""

    which: NDArray[np.intp]  # index of `kinds`; of equals the first
    seconds: Number  # of dispatch and combine of one layer and pass, none of it hidden
    kinds: tuple[Dispatch, ...]

    @property
    def names(self) -> NDArray[np.str_]:
        """The kind of each layout by name."""
        return np.asarray(self.kinds)[self.which]


def expert_seconds(module: Module, kind: LayerKind, at: LayoutColumns, machine: MachineModel) -> tuple[Number, Number]:
    """Exposed seconds of dispatch and combine of one layer, forward and backward. Of several kinds of dispatch in
    `at.dispatch`, those of the cheapest, layout by layout.
    """
    if module.routed_experts is None or "experts" not in kind_blocks(kind):
        return 0.0, 0.0
    exposed = machine.timing.ep_exposed * (machine.timing.overlapped if "ep" in at.overlap else 1.0)
    once = best_dispatch(module, at, machine, at.dispatches).seconds * exposed
    return once, once


def best_dispatch(
    module: Module, at: LayoutColumns, machine: MachineModel, kinds: Sequence[Dispatch] = DISPATCHES
) -> BestDispatch:
    """The cheapest of these kinds, whatever `at.dispatch` says: one for each layout of the columns."""
    each = np.stack(np.broadcast_arrays(*(dispatch_seconds(module, at, machine, kind) for kind in kinds)))
    which = np.argmin(each, axis=0)
    return BestDispatch(which, np.take_along_axis(each, which[np.newaxis], axis=0)[0], tuple(kinds))


def seconds_by_dispatch(
    module: Module, at: LayoutColumns, machine: MachineModel, kinds: Sequence[Dispatch]
) -> tuple[Number, ...]:
    """Seconds of dispatch and combine of one layer and pass by each of these kinds, (layouts,) each."""

    def each(some: LayoutColumns) -> tuple[Number, ...]:
        return tuple(dispatch_seconds(module, some, machine, kind) for kind in kinds)

    return on_distinct(at, group_fields(at, LAYER_FIELDS, layer_group_dims(at, True)), each)


def dispatch_seconds(module: Module, at: LayoutColumns, machine: MachineModel, kind: Dispatch) -> Number:
    """Seconds of dispatch and combine of one layer and pass, by this kind: all-to-all over ep, with an all-gather and
    a reduce-scatter over etp inside; or gathered over both at once.
    """
    moe, network = module.routed_experts, machine.network
    assert moe is not None, "only experts have a dispatch"
    width = (moe.latent or module.hidden) * at.element
    own = np.where(at.sequence_parallel, at.tokens / at.tp, at.tokens) * width  # bytes of a rank
    per_node = network.per_node
    if kind == "all_gather":
        degree = at.ep * at.etp
        return 2.0 * network.all_gather(own * degree, group_on_stage(at, degree, 1, per_node))
    copies, far = (to_ranks(moe.topk, at), to_nodes(moe.topk, at, machine)) if kind == "node_level" else (moe.topk, 1.0)
    dispatch = network.all_to_all(own * copies, group_on_stage(at, at.ep, at.etp, per_node), far=far)
    sharded = network.all_gather(own * copies * at.etp, group_on_stage(at, at.etp, 1, per_node))
    return 2.0 * (dispatch + sharded) * fullest_load(module, at, machine.timing)


def to_ranks(topk: int, at: LayoutColumns) -> Number:
    """Ranks that have any of a token's experts, with uniform routing in the mean."""
    return at.ep * (1.0 - (1.0 - 1.0 / at.ep) ** topk)


def to_nodes(topk: int, at: LayoutColumns, machine: MachineModel) -> Number:
    """The share of copies that still leave a node when each other node gets one, with uniform routing in the mean."""
    per_node, degree = machine.network.per_node, at.ep * at.etp
    group = group_on_stage(at, degree, 1, per_node)
    members = np.maximum(1.0, per_node / group.stride)  # in a node
    nodes = np.where(machine.network.crosses_nodes(group), np.maximum(1.0, degree / members), 1.0)
    reached = (nodes - 1.0) * (1.0 - (1.0 - 1.0 / nodes) ** topk)
    copies = to_ranks(topk, at) * (nodes - 1.0) / nodes
    return np.where(nodes > 1, np.minimum(1.0, reached / np.maximum(copies, 1e-9)), 1.0)
