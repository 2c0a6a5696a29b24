"""FSDP2's own work in a pass, where a profile measured bare layers: hooks, casts, copies into and out of its buffers.

Each layer is one FSDP unit, embedding and head are another. Their collectives are tasks of their own (rank_groups.py).
"""

from typing import Literal

from planner.costs.cost_lines import CostLine
from planner.plan.plan_file import Layout
from planner.specs.hardware.profile import ModuleCosts
from planner.units import MS


def fsdp_line(costs: ModuleCosts, layout: Layout, layers: int, embedding_head: bool, forward: bool) -> CostLine:
    """The constant that FSDP2 adds to one pass over `layers` layers, whatever the number of tokens."""
    how = resharding(layout)
    units = costs.fsdp.get(how) if how else None
    if units is None:
        return CostLine()
    each, outside = (unit.forward_ms if forward else unit.backward_ms for unit in (units.layer, units.ends))
    return CostLine(const=(layers * each + (outside if embedding_head else 0.0)) * MS)


def resharding(layout: Layout) -> Literal["held", "resharded"] | None:
    """Whether FSDP2 reshards a module's units after forward; None where it does nothing: the optimizer updates the very
    weights that are computed with, and replicas sum gradients once a step, if there are any.
    """
    whole = layout.zero == 0 or layout.state_shards == 1
    if layout.dtype != "bf16" and whole and (layout.zero < 3 or layout.data_ranks == 1):
        return None
    return "resharded" if layout.zero == 3 else "held"
