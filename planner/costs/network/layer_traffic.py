"""Exposed seconds of communication within a layer (tp, cp, ep) and between stages (pp), for the closed form."""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from planner.costs.compute.layer_work import AttentionCore, rank_key_width, reading_columns
from planner.costs.layout_columns import LayoutColumns, Number
from planner.costs.machine_model import MachineModel
from planner.costs.network.expert_dispatch import expert_seconds
from planner.costs.network.mesh_groups import group_along, stage_stride
from planner.costs.network_model import CommGroup, strided_group
from planner.specs.layers import Module
from planner.specs.layers.blocks import Block, LayerKind, kind_blocks
from planner.specs.layers.head_widths import head_dim, value_dim
from planner.specs.shapes import ulysses_elements


@dataclass(frozen=True, slots=True)
class LayerTraffic:
    """Exposed seconds of communication of one layer, forward and backward."""

    tp: tuple[Number, Number]
    cp: tuple[Number, Number]
    ep: tuple[Number, Number]


class LayerGroups(NamedTuple):
    """Groups that communicate within a layer: of tp, of the ranks that shard heads (Ulysses), of the ring."""

    tensor: CommGroup
    heads: CommGroup
    ring: CommGroup


def layer_groups(at: LayoutColumns, per_node: int) -> LayerGroups:
    """The groups by the order of ranks. A ring's slowest link is as long as all of its ranks reach."""
    tensor, cp = group_along(at, ("tp",), per_node), group_along(at, ("cp",), per_node)
    both = group_along(at, ("tp", "cp"), per_node)
    return LayerGroups(
        tensor, strided_group(at.ulysses, cp.stride), CommGroup(at.ring, cp.stride * at.ulysses, both.span)
    )


def layer_traffic(
    module: Module, kind: LayerKind, at: LayoutColumns, machine: MachineModel, core: AttentionCore | None
) -> LayerTraffic:
    """Communication of one layer and micro-batch. `core`: the attention that hides cp's ring; None: the layer
    has none.
    """
    groups = layer_groups(at, machine.network.per_node)
    own = tensor_seconds(module, kind, at, machine, groups), expert_seconds(module, kind, at, machine)
    if core is None:
        return LayerTraffic(own[0], (0.0, 0.0), own[1])
    heads = ulysses_seconds(module, at, machine, groups)
    rings = (
        np.where(at.ring > 1, ring_traffic(module, at, machine, core, f, groups).exposed(at), 0.0)
        for f in (True, False)
    )
    forward, backward = (heads + each for each in rings)
    return LayerTraffic(own[0], (forward, backward), own[1])


def tensor_seconds(
    module: Module, kind: LayerKind, at: LayoutColumns, machine: MachineModel, groups: LayerGroups
) -> tuple[Number, Number]:
    """Seconds around attention, and around a dense MLP or shared experts: an all-gather in front and a reduce-scatter
    behind, or an all-reduce of the same volume. Backward does both, and gathers once more what sequence parallelism
    sharded.
    """
    at = reading_columns(kind, at)
    sharded = float(sum(map(partial(tensor_sharded, module), kind_blocks(kind))))
    once = machine.network.all_gather(at.tokens * module.hidden * at.element, groups.tensor)
    gathered_again = np.where(at.sequence_parallel, 1.0, 0.0)
    timing = machine.timing
    overlap = timing.overlapped if "tp" in at.overlap else 1.0
    forward, backward = timing.tp_exposed * overlap, timing.tp_exposed_backward * overlap
    return 2.0 * sharded * once * forward, (2.0 + gathered_again) * sharded * once * backward


def tensor_sharded(module: Module, block: Block) -> bool:
    """Whether tp shards a block: of routed experts, only the shared ones."""
    return block != "experts" or module.routed_experts is None or module.routed_experts.shared_ffn > 0


@dataclass(frozen=True, slots=True)
class RingTraffic:
    """Ring attention of one layer and pass: seconds of sending per token of an item, and once; and those of attention
    that hide it, per token and per token². Latencies are exposed in full: a late block delays all behind it.
    """

    send_seconds: Number
    once: Number
    linear: Number
    squared: Number

    def exposed(self, at: LayoutColumns) -> Number:
        """Exposed seconds for a micro-batch of equal sequences."""
        excess = (self.send_seconds - self.linear) * at.seq - self.squared * at.seq * at.seq
        return at.micro_batch * np.maximum(0.0, excess) + self.once


def ring_traffic(
    module: Module, at: LayoutColumns, machine: MachineModel, core: AttentionCore, forward: bool, groups: LayerGroups
) -> RingTraffic:
    """Keys and values travel around while attention runs on those that are there; backward sends their gradients too.
    Windowed attention hides less.
    """
    values, times = value_dim(module) / head_dim(module), 1.0 if forward else 2.0  # width of a value over that of a key
    block = rank_key_width(module, at) * (1.0 + values) * at.element / at.ring  # bytes per token of an item
    around, steps = groups.ring, at.ring - 1.0
    moved = machine.network.p2p(block * steps * times, around, 0.0)
    once = machine.network.p2p(0.0, around, steps)
    per_pair, fill = machine.attention_terms(core, forward)
    squared = per_pair * core.heads * core.width * core.pairs / (at.micro_batch * at.seq * at.seq)
    return RingTraffic(moved, once, squared * fill * at.ring, squared)


def ulysses_seconds(module: Module, at: LayoutColumns, machine: MachineModel, groups: LayerGroups) -> Number:
    """Seconds of the all-to-alls between heads and tokens: queries, keys, values in, the output out (arXiv 2309.14509);
    the same in each pass.
    """
    if np.all(np.asarray(at.ulysses) == 1):
        return 0.0
    sizes, place = np.unique(at.ulysses * at.tp, return_inverse=True)
    elements = np.array([ulysses_elements(module, int(ranks)) for ranks in sizes], dtype=float)[place]
    size = at.micro_batch * at.seq / at.cp * elements / at.tp * at.element
    return machine.network.all_to_all(size, groups.heads, 2.0)


def stage_send_seconds(module: Module, at: LayoutColumns, machine: MachineModel, over: CommGroup) -> Number:
    """Seconds of sending one micro-batch's activations to the next stage; `over`: the ranks on both sides."""
    split = np.where(at.sequence_parallel, at.tp, 1)
    size = at.tokens * module.hidden * at.element / split
    sent = machine.network.p2p(size, over)
    return np.where(at.pp > 1, sent * machine.exposed_send_share, 0.0)


class StageSends(NamedTuple):
    """Seconds of sending one micro-batch from the first stage to the last, and from the last back to the first."""

    through: Number
    back: Number


def stage_sends(module: Module, at: LayoutColumns, machine: MachineModel) -> StageSends:
    """The sends of a pipeline, each over the network level that joins both stages: of stages that share a node only
    some leave it.
    """
    stride, through = stage_stride(at), np.zeros(())
    levels, crossing = machine.network.levels, at.pp - 1.0
    for number, level in enumerate(levels):
        last = number == len(levels) - 1
        farther = 0.0 if last else np.minimum(at.pp - 1.0, np.floor((at.pp - 1.0) * stride / level.ranks))
        sent = stage_send_seconds(module, at, machine, CommGroup(2, 1, level.ranks))
        through, crossing = through + (crossing - farther) * sent, farther
    whole = CommGroup(2, 1, (at.pp - 1.0) * stride + 1.0)
    return StageSends(through, stage_send_seconds(module, at, machine, whole))
