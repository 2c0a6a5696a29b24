from planner.costs.network.layer_traffic import layer_groups

__all__ = [
    "layer_groups",
]
