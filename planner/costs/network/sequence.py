"""Communication of a sequence-parallel group within a pass: Ulysses' all-to-alls, and the ring of key/value blocks.

A degree of u·r is Ulysses (arXiv 2309.14509) within r sub-groups of u consecutive ranks, and a ring (arXiv 2310.01889)
through them: rank j of each sub-group sends to rank j of the next, the last one to the first. A sequence of s tokens
leaves s/r of them to a sub-group, whose ranks shard the heads; while a rank computes attention on the block of keys and
values that it has, it receives the next, r − 1 times.
"""

from planner.costs.compute.lines import Line, Ring
from planner.costs.cost import Cost
from planner.costs.network.network import Group, Network
from planner.costs.part import Part, sent_again
from planner.specs.layers import Module
from planner.specs.parallelism import Dtype
from planner.specs.profile import ModuleCosts
from planner.specs.shapes import BYTES, exchange_elements, ring_elements


def exchange_line(
    part: Part, module: Module, costs: ModuleCosts, dtype: Dtype, group: Group, network: Network
) -> tuple[Line, Cost]:
    """The cost line of the all-to-alls of one pass in a sub-group; and the cost of one token, for its source."""
    passed, holding = part.layers + sent_again(part), len(part.ranks) // part.split.ring  # ranks shard the heads
    if costs.a2a_mb_per_token is not None:  # both passes, all layers, recomputation included
        passed = part.layers
        per_token = costs.a2a_mb_per_token * 1e6 / 2 * passed / module.layers
    else:
        per_token = float(exchange_elements(module, holding) * passed * BYTES[dtype])
    calls = (costs.a2a_calls if costs.a2a_calls is not None else 4 * module.layers) // 2 * passed / module.layers
    size = per_token / len(part.ranks)
    moved, fixed = (network.cost("all_to_all", s, group, often) for s, often in ((size, 0), (0.0, round(calls))))
    return Line(0.0, moved.value, fixed.value, moved.value, fixed.value), moved


def ring_line(
    part: Part, module: Module, dtype: Dtype, around: Group, network: Network, hidden: float
) -> tuple[Line, Cost]:
    """The cost line of the ring of one pass, and the cost of one token, for its source. `hidden`: seconds of the pass's
    attention per token².

    Backward passes the blocks around once more, with their gradients. Latencies are exposed in full: a late block
    delays all behind it.
    """
    ring = part.split.ring
    again = sent_again(part)
    elements = ring_elements(module, len(part.ranks) // ring, ring)
    times = part.layers * (1 if part.forward else 2) + again
    moved = network.cost("p2p", elements * BYTES[dtype] * times, around, 0)
    fixed = network.cost("p2p", 0.0, around, (ring - 1) * (part.layers + again))
    return Line(const=fixed.value, comm_const=fixed.value, rings=(Ring(moved.value, hidden),)), moved
