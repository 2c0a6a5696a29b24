"""Seconds that no waves of several tasks' towers can beat, on replicas of the plan's size.

In a step of T seconds no pass takes longer than T, so each tower takes some seconds of replicas at least, by the number
of samples in such a pass that is cheapest for each; and all of them have to find room beside what a rank does once a
step: Σ_towers least work within T ≤ replicas · (T − constant). The least T for which that holds is a bound, since
towers read samples alone and so wait for no other: the malleable optimum (Spindle, arXiv 2409.03365, section 4.2)
without its rule that a tower has as many replicas all the time.

And each tower by itself: the reduction of its gradients begins when the replica with most of its samples has done both
passes, and the gather of its weights behind that, on whatever number of replicas takes least together.
"""

from collections.abc import Iterable

import numpy as np

from planner.costs import CostLine, Pricing, TowerExchange, TowerSeconds, on_replicas, pricing_of
from planner.plan.plan_file import Layout, Plan, assignments
from planner.specs.base import Ranks, with_fields
from planner.specs.workload.items import Size

HALVINGS = 60


def wave_seconds(plan: Plan, number: int, pricing: Pricing) -> float:
    """The bound of one step of a plan with several tasks; nothing else that it does is counted."""
    towers, tp = step_towers(plan, number), min(layout.tp for layout in plan.layouts.values())
    exchange = TowerExchange(
        towers,
        {name: on_all_replicas(layout, plan.size) for name, layout in plan.layouts.items()},
        max(1, min(plan.size, plan.ranks[0].per_node) // tp),
        lambda changed: pricing_of(with_fields(plan, layouts={**plan.layouts, **changed})),
    )
    trained = any(pricing.flows[name].trains() for name in plan.layouts)
    work = exchange.constant * trained + least_seconds(towers, plan.size / tp)
    return max(work, chain_seconds(plan, exchange))


def on_all_replicas(layout: Layout, size: int) -> Layout:
    """A layout on all ranks."""
    return with_fields(layout, ranks=Ranks(range(size)), dp=size // layout.tp)


def least_seconds(towers: Iterable[TowerSeconds], replicas: float) -> float:
    """The least seconds within which so many replicas have room for all towers."""
    towers = [*towers]
    low = max(tower.of_samples(tower.longest_first[:1]) for tower in towers)
    high = low + sum(tower.by_count[-1] for tower in towers)
    if sum(tower.least_work(low) for tower in towers) <= replicas * low:
        return low
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        fits = sum(tower.least_work(middle) for tower in towers) <= replicas * middle
        low, high = (low, middle) if fits else (middle, high)
    return low


def chain_seconds(plan: Plan, exchange: TowerExchange) -> float:
    """The longest chain of a tower at least: both passes of the replica with most of its samples, the reduction that
    waits for these, and the gather behind the update, on the number of replicas on which that is shortest. Of replicas
    in so many nodes none exchange more quickly than as many whole nodes, but for the bytes that fewer replicas have.
    """
    longest = 0.0
    for at, tower in enumerate(exchange.towers):
        every, tp = len(tower.samples), exchange.layouts[tower.name].tp
        chains = []
        for count in range(1, min(every, plan.size // tp) + 1):
            nodes = -(-count // exchange.per_node)
            whole = count if nodes == 1 else min(nodes * exchange.per_node, plan.size // tp)
            fewest = np.full(whole, every // count)
            share = (count - 1) / count * whole / (whole - 1) if whole > 1 else 1.0
            chains.append(tower.seconds(count, every) + share * sum(exchange.of(at, np.arange(whole), fewest)))
        longest = max(longest, min(chains))
    return longest


def step_towers(plan: Plan, number: int) -> list[TowerSeconds]:
    """The towers with the samples of one step, on one replica of each one's layout."""
    samples: dict[str, dict[int, Size]] = {name: {} for name in plan.layouts}
    for micro_batch in plan.steps[number].micro_batches:
        for a in assignments(plan, micro_batch):
            samples[a.module] |= {item: plan.uses.items[a.module][item] for item in a.items}
    alone = {name: on_replicas(layout, [0]) for name, layout in plan.layouts.items()}  # no straggler is waited for
    pricing, found = pricing_of(with_fields(plan, layouts=alone)), list[TowerSeconds]()
    for name, layout in alone.items():
        lines = (pricing.module_line(name, layout.ranks, layout.default_split, forward)[0] for forward in (True, False))
        found.append(TowerSeconds(name, samples[name], sum(lines, CostLine())))
    return [tower for tower in found if tower.samples]
