"""Seconds that no waves of several tasks' towers can beat, on replicas of the plan's size.

In a step of T seconds no pass takes longer than T, so each tower takes some seconds of replicas at least, by the number
of samples in such a pass that is cheapest for each; and all of them have to find room beside what a rank does once a
step: Σ_towers least work within T ≤ replicas · (T − constant), of trained towers, as what is frozen is not updated; and
of all without the constant. The least T for which that holds is a bound, since towers read samples alone and so wait
for no other: the malleable optimum (Spindle, arXiv 2409.03365, section 4.2)
without its rule that a tower has as many replicas all the time.

And each tower by itself: the reduction of its gradients begins when the replica with most of its samples has done both
passes, and the gather of its weights behind that, on whatever number of replicas takes least together.
"""

from collections.abc import Iterable

from planner.costs import CostLine, Pricing, TowerExchange, TowerSeconds, on_replicas, pricing_of
from planner.plan.plan_file import Plan, assignments
from planner.specs.base import with_fields
from planner.specs.workload.items import Size

HALVINGS = 60


def wave_seconds(plan: Plan, number: int, pricing: Pricing) -> float:
    """The bound of one step of a plan with several tasks, whatever recomputes; nothing else that it does is counted."""
    towers, backwards = step_towers(plan, number)
    tp = min(layout.tp for layout in plan.layouts.values())
    exchange = TowerExchange(
        towers,
        {name: on_replicas(layout, range(plan.size // layout.tp)) for name, layout in plan.layouts.items()},
        max(1, min(plan.size, plan.ranks[0].per_node) // tp),
        lambda changed: pricing_of(with_fields(plan, layouts={**plan.layouts, **changed})),
    )
    trained = [tower for tower in towers if pricing.flows[tower.name].trains()]
    work = max(least_seconds(towers, plan.size / tp), exchange.constant + least_seconds(trained, plan.size / tp))
    chains = (chain_seconds(plan, exchange, at, backwards[tower.name]) for at, tower in enumerate(towers))
    return max(work, *chains)


def least_seconds(towers: Iterable[TowerSeconds], replicas: float) -> float:
    """The least seconds within which so many replicas have room for all towers."""
    towers = [*towers]
    low = max((tower.of_samples(tower.longest_first[:1]) for tower in towers), default=0.0)
    high = low + sum(tower.by_count[-1] for tower in towers)
    if sum(tower.least_work(low) for tower in towers) <= replicas * low:
        return low
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        fits = sum(tower.least_work(middle) for tower in towers) <= replicas * middle
        low, high = (low, middle) if fits else (middle, high)
    return low


def chain_seconds(plan: Plan, exchange: TowerExchange, at: int, backward: CostLine) -> float:
    """The chain of a tower at least: both passes of the replica with most of its samples, the reduction that waits for
    these, and the gather behind the update, on the number of replicas on which that is shortest. Neither hides behind
    more than that replica's passes; with more samples there they take longer than they hide.
    """
    tower, chains = exchange.towers[at], []
    every, most = len(tower.samples), plan.size // exchange.layouts[tower.name].tp
    whole = TowerSeconds(tower.name, tower.samples, backward)
    for count in range(1, min(every, most) + 1):
        both, behind = tower.seconds(count, every), whole.seconds(count, every)
        chains.append(both + exchange.at_least(at, count, most, behind, both - behind))
    return min(chains)


def step_towers(plan: Plan, number: int) -> tuple[list[TowerSeconds], dict[str, CostLine]]:
    """The towers with the samples of one step, on one replica that recomputes nothing and waits for no straggler; and
    the backward of each alone.
    """
    samples: dict[str, dict[int, Size]] = {name: {} for name in plan.layouts}
    for micro_batch in plan.steps[number].micro_batches:
        for a in assignments(plan, micro_batch):
            samples[a.module] |= {item: plan.uses.items[a.module][item] for item in a.items}
    alone = {name: with_fields(on_replicas(layout, [0]), recompute="none") for name, layout in plan.layouts.items()}
    pricing, found, backwards = pricing_of(with_fields(plan, layouts=alone)), list[TowerSeconds](), {}
    for name, layout in alone.items():
        lines = [pricing.module_line(name, layout.ranks, layout.default_split, forward)[0] for forward in (True, False)]
        found.append(TowerSeconds(name, samples[name], sum(lines, CostLine())))
        backwards[name] = lines[1]
    return [tower for tower in found if tower.samples], backwards
