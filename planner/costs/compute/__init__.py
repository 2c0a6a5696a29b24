"""What layers compute (products, attention, passes over memory), and how long measured or rated kernels take."""

from planner.costs.compute.assumed_rates import (
    ASSUMED_SPREAD,
    adapter_gb_per_s,
    complete_rates,
    link_gb_per_s,
    step_spread,
)
