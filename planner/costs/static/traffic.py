"""What ranks exchange within a layer (tp, cp, ep) and between stages (pp), in seconds and unhidden."""

from dataclasses import dataclass

import numpy as np

from planner.costs.static.machine import Machine
from planner.costs.static.setup import Number, Setup
from planner.costs.static.work import keys_held
from planner.specs.layers import LayerKind, experts_of
from planner.specs.model import Decoder, Module, head_dim, value_dim


@dataclass(frozen=True, slots=True)
class Traffic:
    """Seconds in which a rank waits, of one layer, forward and backward."""

    tp: tuple[Number, Number]
    cp: tuple[Number, Number]
    ep: tuple[Number, Number]


def layer_traffic(
    module: Module, kind: LayerKind, setup: Setup, machine: Machine, hidden: tuple[Number, Number]
) -> Traffic:
    """Of one layer and micro-batch. `hidden`: seconds of attention, forward and backward, that hide cp's ring."""
    return Traffic(
        tensor(module, kind, setup, machine),
        ring(module, setup, machine, hidden),
        experts(module, kind, setup, machine),
    )


def tensor(module: Module, kind: LayerKind, setup: Setup, machine: Machine) -> tuple[Number, Number]:
    """Around attention, and around a dense MLP or the experts that every token has: an all-gather before and a
    reduce-scatter behind, or an all-reduce, of the same volume. Backward does both again, and gathers once more what
    sequence parallelism did not keep whole.
    """
    moe = experts_of(module) if kind == "moe" else None
    blocks = 1.0 if moe and not moe.shared_ffn else 2.0
    size = setup.tokens * module.hidden * setup.element
    once = machine.wires.gather(size, setup.tp, 1)
    again = np.where(setup.sequence_parallel, 1.0, 0.0)
    timing = machine.timing
    shown = timing.overlapped if "tp" in setup.hides else 1.0
    forward, backward = timing.tp_exposed * shown, timing.tp_exposed_backward * shown
    return 2.0 * blocks * once * forward, (2.0 + again) * blocks * once * backward


def ring(module: Module, setup: Setup, machine: Machine, hidden: tuple[Number, Number]) -> tuple[Number, Number]:
    """Keys and values go around while attention runs on what is there; backward sends their gradients too."""
    values = value_dim(module) / head_dim(module)  # a value's width over a key's
    block = setup.tokens * keys_held(module, setup) * (1.0 + values) * setup.element
    steps = setup.cp - 1.0
    once = np.where(setup.cp > 1, hop(setup, machine, block * steps, steps), 0.0)
    return np.maximum(0.0, once - hidden[0]), np.maximum(0.0, 2.0 * once - hidden[1])


def hop(setup: Setup, machine: Machine, size_bytes: Number, calls: Number) -> Number:
    """Around cp's ring, whose slowest link sets the pace."""
    far = machine.wires.crosses(setup.cp, setup.tp)
    return np.where(
        far,
        machine.wires.p2p(size_bytes, machine.wires.per_node, calls),
        machine.wires.p2p(size_bytes, setup.tp, calls),
    )


def experts(module: Module, kind: LayerKind, setup: Setup, machine: Machine) -> tuple[Number, Number]:
    """Tokens to their experts and back, by all-to-all over ep; gathered and reduced over etp.

    Or all tokens gathered by all ranks of both, and their outputs reduced: then it does not matter how many experts a
    token has, nor which (arXiv 2505.11432).
    """
    if kind != "moe" or not isinstance(module, Decoder) or module.moe is None:
        return 0.0, 0.0
    own = np.where(setup.sequence_parallel, setup.tokens / setup.tp, setup.tokens)
    timing, each = machine.timing, module.hidden * setup.element
    size = own * module.moe.topk * each
    far = to_nodes(module.moe.topk, setup, machine) if setup.dispatch == "nodes" else 1.0
    spread = machine.wires.all_to_all(size, setup.ep, setup.etp, far=far)
    shared = machine.wires.gather(size * setup.etp, setup.etp, 1)
    shown = timing.ep_exposed * (timing.overlapped if "ep" in setup.hides else 1.0)
    if setup.dispatch == "tokens":
        ways = setup.ep * setup.etp
        once = 2.0 * machine.wires.gather(own * ways * each, ways, 1) * shown
        return once, once
    local = np.maximum(1.0, module.moe.experts / setup.ep)
    fullest = 1.0 if setup.balanced else 1.0 + timing.imbalance / np.sqrt(local)
    once = 2.0 * (spread + shared) * shown * fullest
    return once, once


def to_nodes(topk: int, setup: Setup, machine: Machine) -> Number:
    """Of the copies that leave a node, how many are left when each node gets one: in the mean over equal choices."""
    nodes = np.maximum(1.0, setup.ep * setup.etp / machine.wires.per_node)
    reached = (nodes - 1.0) * (1.0 - (1.0 - 1.0 / nodes) ** topk)
    copies = topk * (nodes - 1.0) / nodes
    return np.where(nodes > 1, reached / np.maximum(copies, 1e-9), 1.0)


def stage_send(module: Module, setup: Setup, machine: Machine) -> Number:
    """Activations of one micro-batch to the next stage."""
    split = np.where(setup.sequence_parallel, setup.tp, 1)
    size = setup.tokens * module.hidden * setup.element / split
    slowest = np.where(setup.ranks > machine.wires.per_node, machine.wires.per_node, 1.0)  # some hop leaves a node
    return np.where(setup.pp > 1, machine.wires.p2p(size, slowest, 1.0), 0.0)
