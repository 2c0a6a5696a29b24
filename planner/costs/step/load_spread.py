"""The spread of a layer's seconds that the load of the fullest rank of experts leaves."""

from dataclasses import replace

from planner.costs.layout_columns import LayoutColumns, Number
from planner.costs.machine_model import MachineModel
from planner.costs.step.stage_seconds import mean_layer_seconds
from planner.specs.layers import Module


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
