"""Seconds that no waves of several tasks' towers can beat, on replicas of the plan's size.

In a step of T seconds no pass takes longer than T, so each tower takes some seconds of replicas at least, by the number
of samples in such a pass that is cheapest for each; and all of them have to find room beside what a rank does once a
step: Σ_towers least work within T ≤ replicas · (T − constant). The least T for which that holds is a bound, since
towers read samples alone and so wait for no other: the malleable optimum (Spindle, arXiv 2409.03365, section 4.2)
without its rule that a tower has as many replicas all the time.
"""

from collections.abc import Iterable

from planner.costs import Pricing, TowerSeconds
from planner.plan.plan_file import Plan, assignments
from planner.specs.base import Ranks
from planner.specs.workload.items import Size
from planner.units import MS

HALVINGS = 60


def wave_seconds(plan: Plan, number: int, pricing: Pricing) -> float:
    """The bound of one step of a plan with several tasks; nothing else that it does is counted."""
    towers, tp = step_towers(plan, number, pricing), min(layout.tp for layout in plan.layouts.values())
    trained = any(pricing.flows[name].trains() for name in plan.layouts)
    once = plan.uses.prices.timing.step_ms * MS if trained and plan.uses.prices.rates else 0.0
    return once + least_seconds(towers, plan.size / tp)


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


def step_towers(plan: Plan, number: int, pricing: Pricing) -> list[TowerSeconds]:
    """The towers with the samples of one step, on a replica of each one's layout."""
    samples: dict[str, dict[int, Size]] = {name: {} for name in plan.layouts}
    for micro_batch in plan.steps[number].micro_batches:
        for a in assignments(plan, micro_batch):
            samples[a.module] |= {item: plan.uses.items[a.module][item] for item in a.items}
    found = list[TowerSeconds]()
    for name, layout in plan.layouts.items():
        ranks = Ranks(layout.ranks[: layout.tp * layout.cp])
        forward, backward = (pricing.module_line(name, ranks, layout.default_split, way)[0] for way in (True, False))
        found.append(TowerSeconds(name, samples[name], forward + backward))
    return [tower for tower in found if tower.samples]
