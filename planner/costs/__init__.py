"""Seconds and bytes of work, with source and spread: prices of tasks, and a million layouts at once.

`Pricing.price` decides the seconds of a task, by fits (`fit_pricing`) or by rates (`rate_pricing`); below stand what
compute, network and memory cost, and the closed form of a static step.
"""

from planner.costs.compute.contention import ASSUMED_SHARES, DeviceUse
from planner.costs.compute.contention import slowdown as device_slowdown
from planner.costs.compute.expert_load import expert_load
from planner.costs.cost_lines import NO_COST, Cost, CostLine, WindowTerm, least_trusted, smooth_max, total_cost
from planner.costs.distinct_columns import columns_where, distinct_values, joined_by_kind, joined_columns, layout_count
from planner.costs.feature_reads import feature_gb_per_s
from planner.costs.layer_savings import (
    FreedBytes,
    LargestOffload,
    freed_bytes,
    largest_offload,
    named_bytes,
    recompute_seconds_by,
)
from planner.costs.layout_columns import (
    CAST_PRECISIONS,
    NON_NUMERIC_FIELDS,
    ONE_SEQUENCE,
    LayoutColumns,
    Number,
    PipelineBatch,
    Precision,
    columns_of,
    stack_columns,
)
from planner.costs.loader_seconds import (
    CORES,
    LoaderReads,
    LoaderWork,
    beside_training,
    fitted,
    item_seconds,
    least_loading,
    loader_reads,
    loader_work,
    loading_seconds,
    node_item_seconds,
    with_loading,
)
from planner.costs.machine_model import KERNELS_AS, MachineModel, machine_of, peak_flops
from planner.costs.network.expert_dispatch import DISPATCHES, best_dispatch, seconds_by_dispatch
from planner.costs.network.mesh_groups import dims_in_order
from planner.costs.network.replica_exchange import host_update_seconds, parameter_update_seconds
from planner.costs.network_model import SINGLE_RANK_NETWORK, NetworkLevel, NetworkModel
from planner.costs.objective import OBJECTIVES, STEP_SECONDS, Objective, StepWork, find_objective, usd_per_hour
from planner.costs.packing_problem import (
    PackingProblem,
    RankPool,
    activation_cap,
    host_offload,
    micro_batch_zero3_seconds,
    once_a_step_seconds,
    packing_problem,
    pass_lines,
    rank_pools,
)
from planner.costs.packing_table import Floats, Ints, PackingTable, packing_table
from planner.costs.price_table import price_table, with_overlap
from planner.costs.pricing import Pricing, pricing_of
from planner.costs.rate_lines import head_line, layers_line
from planner.costs.shared_prices import SendRoute, SharedPrices
from planner.costs.side_by_side import SideBySide
from planner.costs.step.expert_ratio import expert_ratio, published_ratio
from planner.costs.step_prices import StepPrices, step_prices
from planner.costs.tower_exchange import TowerExchange, on_replicas, replica_ranks
from planner.costs.tower_seconds import TowerSeconds
from planner.costs.ulysses_or_ring import allowed_degrees, split_degree

__all__ = [
    "ASSUMED_SHARES",
    "CAST_PRECISIONS",
    "CORES",
    "DISPATCHES",
    "KERNELS_AS",
    "NON_NUMERIC_FIELDS",
    "NO_COST",
    "OBJECTIVES",
    "ONE_SEQUENCE",
    "SINGLE_RANK_NETWORK",
    "STEP_SECONDS",
    "Cost",
    "CostLine",
    "DeviceUse",
    "Floats",
    "FreedBytes",
    "Ints",
    "LargestOffload",
    "LayoutColumns",
    "LoaderReads",
    "LoaderWork",
    "MachineModel",
    "NetworkLevel",
    "NetworkModel",
    "Number",
    "Objective",
    "PackingProblem",
    "PackingTable",
    "PipelineBatch",
    "Precision",
    "Pricing",
    "RankPool",
    "SendRoute",
    "SharedPrices",
    "SideBySide",
    "StepPrices",
    "StepWork",
    "TowerExchange",
    "TowerSeconds",
    "WindowTerm",
    "activation_cap",
    "allowed_degrees",
    "beside_training",
    "best_dispatch",
    "columns_of",
    "columns_where",
    "device_slowdown",
    "dims_in_order",
    "distinct_values",
    "expert_load",
    "expert_ratio",
    "feature_gb_per_s",
    "find_objective",
    "fitted",
    "freed_bytes",
    "head_line",
    "host_offload",
    "host_update_seconds",
    "item_seconds",
    "joined_by_kind",
    "joined_columns",
    "largest_offload",
    "layers_line",
    "layout_count",
    "least_loading",
    "least_trusted",
    "loader_reads",
    "loader_work",
    "loading_seconds",
    "machine_of",
    "micro_batch_zero3_seconds",
    "named_bytes",
    "node_item_seconds",
    "on_replicas",
    "once_a_step_seconds",
    "packing_problem",
    "packing_table",
    "parameter_update_seconds",
    "pass_lines",
    "peak_flops",
    "price_table",
    "pricing_of",
    "published_ratio",
    "rank_pools",
    "recompute_seconds_by",
    "replica_ranks",
    "seconds_by_dispatch",
    "smooth_max",
    "split_degree",
    "stack_columns",
    "step_prices",
    "total_cost",
    "usd_per_hour",
    "with_loading",
    "with_overlap",
]
