"""Seconds and bytes of work, with source and spread: prices of tasks, and a million layouts at once.

`Pricing.price` decides the seconds of a task, by fits (`fit_pricing`) or by rates (`rate_pricing`); below stand what
compute, network and memory cost, and the closed form of a static step.
"""

from planner.costs.compute.contention import ASSUMED_SHARES, DeviceUse
from planner.costs.compute.contention import slowdown as device_slowdown
from planner.costs.compute.expert_load import expert_load
from planner.costs.cost_lines import NO_COST, Cost, CostLine, least_trusted, smooth_max, total_cost
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
