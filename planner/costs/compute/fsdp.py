"""What FSDP2 adds to a pass, where a profile measured layers alone: hooks, casts, copies into and out of its buffers.

Each layer is a unit, and the ends are one. What units send each other are tasks of their own (reduced.py).
"""

from typing import Literal

from planner.costs.compute.lines import Line
from planner.plan.model import Layout
from planner.specs.profile import ModuleCosts
from planner.units import MS


def units_line(costs: ModuleCosts, layout: Layout, layers: int, ends: bool, forward: bool) -> Line:
    """Of one pass of so many layers, however many tokens they have."""
    how = run_by(layout)
    units = costs.fsdp.get(how) if how else None
    if units is None:
        return Line()
    each, outside = (unit.forward_ms if forward else unit.backward_ms for unit in (units.layer, units.ends))
    return Line(const=(layers * each + (outside if ends else 0.0)) * MS)


def run_by(layout: Layout) -> Literal["held", "resharded"] | None:
    """How FSDP2 runs a module's units; None: it has nothing to do, since no other rank has any of their states, and
    what is computed with is what the optimizer works on.
    """
    if layout.data_ranks == 1 and layout.dtype != "bf16":
        return None
    return "resharded" if layout.zero == 3 else "held"
