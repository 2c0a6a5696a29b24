"""What experts do to a step: whether they compute for longer than their tokens travel, and how unsure their load is.

The ratio of both times is R of MegaScale-MoE (arXiv 2505.11432).
"""

from dataclasses import replace

import numpy as np

from planner.costs.compute.expert_load import routed_work
from planner.costs.layout_columns import LayoutColumns, Number
from planner.costs.machine_model import MachineModel
from planner.costs.network.expert_dispatch import best_dispatch
from planner.costs.network.mesh_groups import group_on_stage
from planner.costs.step.stage_seconds import mean_layer_seconds
from planner.specs.layers import Module, layer_kinds
from planner.specs.layers.blocks import kind_blocks
from planner.units import GB


def expert_ratio(module: Module, at: LayoutColumns, machine: MachineModel) -> Number:
    """Seconds of the experts' products in a forward over those of dispatch and combine, hidden or not; infinite where
    tokens stay on their rank. Below 1 no overlap can hide the exchange.
    """
    kind = next(each for each in layer_kinds(module) if "experts" in kind_blocks(each))
    products = (each for each in routed_work(module, kind, at, machine.timing).matmuls if each.grouped)
    computed = sum(machine.matmul(product, at.dtype) for product in products)
    moved = np.asarray(best_dispatch(module, at, machine, at.dispatches).seconds)
    return np.where(moved > 0, computed / np.where(moved > 0, moved, 1.0), np.inf)


def published_ratio(module: Module, at: LayoutColumns, machine: MachineModel) -> Number:
    """R from widths and data sheets alone: 1.5·h_ffn·(bandwidth/peak)·n/(n − 1) for gated experts in bf16.

    However many experts there are, however many a token has, and however wide it is. The bandwidth is one rank's own,
    of the level that joins the n ranks of ep.
    """
    moe, ranks, network = module.routed_experts, at.ep, machine.network
    assert moe is not None
    group = group_on_stage(at, ranks, at.etp, network.per_node)
    near = network.levels[0].gb_per_s * GB
    bandwidth = np.where(network.crosses_nodes(group), network.internode_link(group)[0], near)
    return width_ratio(moe.ffn / at.etp, bandwidth, machine.peak(at.dtype), ranks, 3 if module.gated else 2, at.element)


def width_ratio(
    ffn: Number, bandwidth: Number, peak: float, ranks: Number, matrices: int = 3, element: float = 2.0
) -> Number:
    """R of experts of this width. `bandwidth`: bytes/s that a rank sends; `peak`: FLOP/s; `ranks`: infinite for 1."""
    far = np.asarray(ranks) > 1
    share = np.where(far, ranks / np.where(far, ranks - 1.0, 1.0), np.inf)
    return matrices / element * ffn * (bandwidth / peak) * share


def load_spread(module: Module, at: LayoutColumns, machine: MachineModel) -> Number:
    """How much longer a layer takes in the mean, over its seconds, where the fullest rank's load is at the upper end of
    its 80 % interval. 0 without experts, or with counts of an even load.
    """
    if module.routed_experts is None:
        return 0.0
    expected, upper = (
        mean_layer_seconds(module, replace(at, load_spreads=spreads), machine).seconds for spreads in (0.0, 1.0)
    )
    return upper / expected - 1.0
