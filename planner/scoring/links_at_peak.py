"""Seconds in which the links of a step move, at their peak, what its ranks exchange: no step is quicker.

What passes exchange, and what replicas do, each run one after another on a rank, whatever computes beside them. Sends
between stages are left out: how much of them runs beside compute is a share, however slow the link.
"""

from collections import defaultdict
from collections.abc import Sequence

from planner.costs import Pricing, pricing_of
from planner.plan.plan_file import Plan
from planner.plan.task import Task
from planner.simulate import Timeline
from planner.specs.base import with_fields

# Nothing beside compute, no latency, as many tokens for every expert.
BARE = {
    **dict.fromkeys(("tp_exposed", "tp_exposed_backward", "ep_exposed", "overlapped"), 1.0),
    **dict.fromkeys(("jitter", "imbalance"), 0.0),
}


def link_seconds(plan: Plan, tasks: Sequence[Task], timeline: Timeline) -> float:
    """Seconds of the rank that exchanges longest, by passes or by replicas; of each group its first rank."""
    pricing, busy = pricing_of(at_link_peak(plan)), defaultdict[tuple[str, int], float](float)
    by_id = {task.id: task for task in tasks}
    for event, count in zip(timeline.events, timeline.event_counts, strict=True):
        kind = "replicas" if event.phase in ("gather", "sync") else "passes"
        busy[kind, event.ranks[0]] += count * exchanged_seconds(pricing, by_id[event.id])
    return max(busy.values(), default=0.0)


def exchanged_seconds(pricing: Pricing, task: Task) -> float:
    """Seconds of all that a task exchanges, sends aside."""
    if task.phase in ("F", "B", "I"):
        return pricing.pass_cost(task).comm
    if task.phase not in ("gather", "sync"):
        return 0.0
    each = [basis.replica_exchange(task)[0] for basis in pricing.rank_pricings(task)]
    if task.phase == "gather":
        return min(float(found.gather) for found in each)
    once = task.micro_batch is None
    return min(float(found.reduce + (0.0 if once else found.backward_gather)) for found in each)


def at_link_peak(plan: Plan) -> Plan:
    """The plan whose links reach all of what they can."""
    prices, cluster = plan.uses.prices, plan.uses.cluster
    rates = {kind: with_fields(each, link_share=None, adapter_share=None) for kind, each in prices.rates.items()}
    quick = with_fields(prices, rates=rates, collectives={}, timing=with_fields(prices.timing, **BARE))
    levels = tuple(with_fields(level, latency_us=0.0) for level in cluster.levels)
    return with_fields(plan, uses=with_fields(plan.uses, cluster=with_fields(cluster, levels=levels), prices=quick))
