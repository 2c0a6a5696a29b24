"""Seconds that a plan's FLOPs take at the peak of its devices, and its exchanges at that of links: no step is quicker.

MFU is of these FLOPs. Passes of a rank run one after another, and wait for what they exchange, whatever of it runs
beside compute. Sends and what replicas exchange are left out: simulated is what is exposed of them beside the compute
that hides the rest, and other passes run beside that, so that slow links may move them in too short a step.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from planner.costs import peak_flops, pricing_of
from planner.plan.feature_storage import computed_shares
from planner.plan.gradient_flow import gradient_flows
from planner.plan.plan_file import Plan, assignments
from planner.plan.tasks.task_table import TaskTable
from planner.plan.tokens.encoder_outputs import fed_tokens
from planner.scoring.objective_value import item_lengths
from planner.specs.base import Ranks, with_fields
from planner.specs.hardware.cluster import Level, device_of_rank
from planner.specs.shapes import step_flops

# Nothing beside compute, no latency, as many tokens for every expert.
BARE = {
    **dict.fromkeys(("tp_exposed", "tp_exposed_backward", "ep_exposed", "overlapped"), 1.0),
    **dict.fromkeys(("jitter", "imbalance"), 0.0),
}


def seconds_at_peak(plan: Plan, numbers: Sequence[int], ranks: Ranks | None = None) -> dict[str, float]:
    """Seconds of each module's FLOPs in these steps, at the peak of all of these ranks in the precision of its
    products; `ranks`: None for the module's own.
    """
    flops = module_flops(plan, numbers)
    return {
        name: flops[name] / peak_flops_of(plan, layout.ranks if ranks is None else ranks, layout.dtype)
        for name, layout in plan.layouts.items()
    }


def module_flops(plan: Plan, numbers: Sequence[int]) -> dict[str, float]:
    """FLOPs of each module in these steps, recomputation not counted; of features that are kept in the mean of
    epochs.
    """
    models, computed = plan.uses.models, computed_shares(plan)
    return {
        name: computed[name]
        * step_flops(
            models[name],
            item_lengths(plan, name, numbers),
            cross_attention_tokens(plan, name, numbers),
            flow.through_layers,
        )
        for name, flow in gradient_flows(models, plan.edges).items()
    }


def cross_attention_tokens(plan: Plan, module: str, numbers: Sequence[int]) -> tuple[int, ...]:
    """Tokens that the cross attention of each item reads, in the order of the steps; empty without cross attention."""
    if not plan.uses.models[module].cross_attention_width:
        return ()
    read = fed_tokens(plan, "cross_attention")
    micro_batches = (micro_batch for number in numbers for micro_batch in plan.steps[number].micro_batches)
    placed = (a for micro_batch in micro_batches for a in assignments(plan, micro_batch))
    return tuple(read.get((module, item), 0) for a in placed if a.module == module for item in a.items)


def peak_flops_of(plan: Plan, ranks: Ranks, dtype: str) -> float:
    """Peak FLOP/s of ranks together."""
    kinds = Counter(device_of_rank(plan.uses.cluster, rank) for rank in ranks)
    return sum(count * peak_flops(plan.uses.devices[kind], dtype) for kind, count in kinds.items())


def link_seconds(plan: Plan, tasks: TaskTable) -> float:
    """Seconds of the rank whose passes exchange longest; of each group its first rank."""
    pricing, places = pricing_of(at_link_peak(plan)), tasks.where(lambda kind: kind.phase in ("F", "B", "I"))
    first, like = tasks.alike(places, id, pricing.work_key)
    seconds = np.array([pricing.pass_cost(tasks.task(place)).comm for place in first], dtype=np.float64)[like]
    return float(np.bincount(tasks.column(lambda kind: min(kind.ranks, default=0))[places], seconds).max(initial=0.0))


def at_link_peak(plan: Plan) -> Plan:
    """The plan whose links reach all of what they can."""
    prices, cluster = plan.uses.prices, plan.uses.cluster
    rates = {kind: with_fields(each, link_share=None, adapter_share=None) for kind, each in prices.rates.items()}
    quick = with_fields(prices, rates=rates, collectives={}, timing=with_fields(prices.timing, **BARE))
    entries = tuple(with_fields(entry, levels=without_latency(entry.levels)) for entry in cluster.ranks)
    near = with_fields(cluster, ranks=entries, levels=without_latency(cluster.levels))
    return with_fields(plan, uses=with_fields(plan.uses, cluster=near, prices=quick))


def without_latency(levels: tuple[Level, ...]) -> tuple[Level, ...]:
    """Levels over which nothing takes long to arrive."""
    return tuple(with_fields(level, latency_us=0.0) for level in levels)
