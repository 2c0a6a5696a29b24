"""Seconds in which the links of a step move, at their peak, what passes exchange: no step is quicker.

Passes of a rank run one after another, and wait for what they exchange, whatever of it runs beside compute. Sends and
what replicas exchange are left out: simulated is what is exposed of them beside the compute that hides the rest, and
other passes run beside that, so that slow links may move them in too short a step.
"""

from collections import defaultdict
from collections.abc import Sequence

from planner.costs import pricing_of
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
    """Seconds of the rank whose passes exchange longest; of each group its first rank."""
    pricing, busy = pricing_of(at_link_peak(plan)), defaultdict[int, float](float)
    by_id = {task.id: task for task in tasks}
    for event, count in zip(timeline.events, timeline.event_counts, strict=True):
        if event.phase in ("F", "B", "I"):
            busy[event.ranks[0]] += count * pricing.pass_cost(by_id[event.id]).comm
    return max(busy.values(), default=0.0)


def at_link_peak(plan: Plan) -> Plan:
    """The plan whose links reach all of what they can."""
    prices, cluster = plan.uses.prices, plan.uses.cluster
    rates = {kind: with_fields(each, link_share=None, adapter_share=None) for kind, each in prices.rates.items()}
    quick = with_fields(prices, rates=rates, collectives={}, timing=with_fields(prices.timing, **BARE))
    levels = tuple(with_fields(level, latency_us=0.0) for level in cluster.levels)
    return with_fields(plan, uses=with_fields(plan.uses, cluster=with_fields(cluster, levels=levels), prices=quick))
