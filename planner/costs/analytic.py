"""Costs from shapes and data sheets, for a device that nobody timed."""

from planner.costs.static.assumed import complete
from planner.costs.static.costs import static_costs
from planner.costs.static.layouts import ONE, PRECISIONS, recomputed
from planner.costs.static.machine import Machine
from planner.costs.static.setup import Setup
from planner.costs.static.wires import NONE
from planner.specs.accounting import BUNDLED
from planner.specs.job import Dtype, Recompute
from planner.specs.model import Module
from planner.specs.profile import Device, ModuleCosts
from planner.specs.timing import Timing


def analytic_costs(module: Module, device: Device, dtype: Dtype, recompute: Recompute) -> ModuleCosts:
    """A module's costs from its shape and its device's data sheet, on one rank alone."""
    full, again = recomputed(recompute)
    setup = Setup(ranks=1, seq=ONE.seq, batch=1, full=full, again=again, precision=PRECISIONS[dtype])
    return static_costs(module, setup, Machine(device, complete(None, device.kind), NONE, Timing()), BUNDLED)
