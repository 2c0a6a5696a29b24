"""Communication within passes of layers that were measured on one rank: of a sequence-parallel group, and with experts.

A sequence-parallel group has Ulysses' all-to-alls, and the ring of key/value blocks.

A degree of u·r is Ulysses (arXiv 2309.14509) within r sub-groups of u consecutive ranks, and a ring (arXiv 2310.01889)
through them: rank j of each sub-group sends to rank j of the next, the last one to the first. A sequence of s tokens
leaves s/r of them to a sub-group, whose ranks shard the heads; while a rank computes attention on the block of keys and
values that it has, it receives the next, r − 1 times.

With experts on other ranks each rank sends a copy of each of its tokens to each expert that the token chose and gets
the outputs back: two all-to-alls over ep, in forward as in backward (arXiv 2505.11432, MoE parallel folding:
2504.14960). Or all tokens are gathered by all ranks of ep and etp, and the outputs reduce-scattered. Ranks along etp
exchange what each received. All of these send rows from each rank to each other, and are priced as all-to-alls: numbers
of rows differ.
"""

from typing import NamedTuple

from planner.costs.cost_lines import Cost, CostLine, RingTerm, total_cost
from planner.costs.layer_pass import LayerPass, fully_recomputed_layers
from planner.costs.network_model import CommGroup, NetworkModel
from planner.plan.plan_file import Layout
from planner.specs.hardware.profile import ModuleCosts
from planner.specs.layers import Module, kind_counts
from planner.specs.layers.blocks import kind_blocks
from planner.specs.parallelism import Dtype
from planner.specs.shapes import DTYPE_BYTES, ring_elements, ulysses_elements

COUNTS = 1  # small messages of a forward: how many rows come from each rank


def ulysses_line(
    part: LayerPass, module: Module, costs: ModuleCosts, dtype: Dtype, group: CommGroup, network: NetworkModel
) -> tuple[CostLine, Cost]:
    """The cost line of the all-to-alls of one pass in a sub-group; and the cost of one token, for its source."""
    passed = part.layers + fully_recomputed_layers(part)
    ulysses = len(part.ranks) // part.split.ring  # ranks that shard the heads
    if costs.a2a_mb_per_token is not None:  # both passes, all layers, recomputation included
        passed = part.layers
        per_token = costs.a2a_mb_per_token * 1e6 / 2 * passed / module.layers
    else:
        per_token = float(ulysses_elements(module, ulysses) * passed * DTYPE_BYTES[dtype])
    calls = (costs.a2a_calls if costs.a2a_calls is not None else 4 * module.layers) // 2 * passed / module.layers
    size = per_token / len(part.ranks)
    moved, fixed = (
        network.collective_cost("all_to_all", s, group, often) for s, often in ((size, 0), (0.0, round(calls)))
    )
    return CostLine(0.0, moved.value, fixed.value, moved.value, fixed.value), moved


def ring_line(
    part: LayerPass, module: Module, dtype: Dtype, around: CommGroup, network: NetworkModel, hidden: float
) -> tuple[CostLine, Cost]:
    """The cost line of the ring of one pass, and the cost of one token, for its source. `hidden`: seconds of the pass's
    attention per token².

    Backward passes the blocks around once more, with their gradients. Latencies are exposed in full: a late block
    delays all behind it.
    """
    ring = part.split.ring
    recomputed = fully_recomputed_layers(part)
    elements = ring_elements(module, len(part.ranks) // ring, ring)
    times = part.layers * (1 if part.forward else 2) + recomputed
    moved = network.collective_cost("p2p", elements * DTYPE_BYTES[dtype] * times, around, 0)
    fixed = network.collective_cost("p2p", 0.0, around, (ring - 1) * (part.layers + recomputed))
    return CostLine(const=fixed.value, comm_const=fixed.value, rings=(RingTerm(moved.value, hidden),)), moved


class ExpertGroups(NamedTuple):
    """Groups of the experts' mesh: over ep, over etp, and over both."""

    ep: CommGroup
    etp: CommGroup
    both: CommGroup


class ExpertExchange(NamedTuple):
    """Of one layer and pass: numbers that a rank sends, its own part included, for each of its tokens; and messages."""

    group: CommGroup
    elements: float
    calls: int


def expert_line(
    part: LayerPass, module: Module, layout: Layout, groups: ExpertGroups, network: NetworkModel
) -> tuple[CostLine, Cost]:
    """The cost line of one pass's exchange with experts, and the cost of one token, for its source."""
    share = expert_layers(module) / module.layers
    each = DTYPE_BYTES[layout.dtype] / (part.split.degree * layout.tp)  # every rank dispatches its own rows
    moved, fixed = list[Cost](), list[Cost]()
    for forward, layers in ((part.forward, part.layers * share), (True, fully_recomputed_layers(part) * share)):
        for exchange in expert_exchanges(module, layout, groups, forward):
            size, calls = exchange.elements * each * layers, exchange.calls * layers
            moved.append(network.collective_cost("all_to_all", size, exchange.group, 0))
            fixed.append(network.collective_cost("all_to_all", 0.0, exchange.group, calls))
    per_token, once = total_cost(*moved), total_cost(*fixed)
    return CostLine(0.0, per_token.value, once.value, per_token.value, once.value), per_token


def expert_exchanges(module: Module, layout: Layout, groups: ExpertGroups, forward: bool) -> list[ExpertExchange]:
    """What one MoE layer exchanges in a pass: rows to experts and rows back."""
    moe = module.routed_experts
    assert moe, "only layers with experts dispatch tokens"
    counts = COUNTS if forward else 0
    if layout.dispatch == "all_gather":
        both = groups.both
        choices = 2 if forward else 1  # weights and choices of experts come along, and gradients of weights go back
        elements = 2.0 * (moe.latent or module.hidden) + choices * moe.topk
        return [ExpertExchange(both, elements * both.size, 2 + choices + counts)]
    copies = 2.0 * moe.topk * (moe.latent or module.hidden)
    return [
        ExpertExchange(groups.ep, copies, 2 + counts),
        ExpertExchange(groups.etp, copies * groups.etp.size, 2 + counts),
    ]


def expert_layers(module: Module) -> int:
    """Layers with experts."""
    return sum(count for kind, count in kind_counts(module).items() if "experts" in kind_blocks(kind))
