"""Communication of a sequence-parallel group within a pass: Ulysses' all-to-alls, and the ring of key/value blocks.

A degree of u·r is Ulysses (arXiv 2309.14509) within r sub-groups of u consecutive ranks, and a ring (arXiv 2310.01889)
through them: rank j of each sub-group sends to rank j of the next, the last one to the first. A sequence of s tokens
leaves s/r of them to a sub-group, whose ranks shard the heads; while a rank computes attention on the block of keys and
values that it has, it receives the next, r − 1 times.
"""

from planner.costs.cost import Cost
from planner.costs.cost_lines import CostLine, RingTerm
from planner.costs.layer_pass import LayerPass, fully_recomputed_layers
from planner.costs.network_model import CommGroup, NetworkModel
from planner.specs.hardware.profile import ModuleCosts
from planner.specs.layers import Module
from planner.specs.parallelism import Dtype
from planner.specs.shapes import DTYPE_BYTES, ring_elements, ulysses_elements


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
