"""Modules that share devices: how much more a plan with shares may take than predicted, and what bounds each pair.

A price of shares is as sure as what was timed side by side on the device. So a plan with them is expected to take the
predicted seconds times 1 + spread · (share of its critical path in passes with a share), and is never expected to be
quicker where pairs were timed whose median gain is below `LEAST_GAIN`.
"""

from collections.abc import Sequence
from itertools import combinations
from math import inf
from typing import Literal

from planner.costs import ASSUMED_SHARES, DeviceUse, Pricing, device_slowdown
from planner.plan.plan_file import Plan, assignments
from planner.plan.task import PASS_PHASES, Task
from planner.scoring.score import Score, score
from planner.specs.base import Spec
from planner.units import percent

LEAST_GAIN = 1.05  # passes a second side by side over those in turn: less is no gain
PairBound = Literal["launch", "compute", "bandwidth"]
BOUND_BY: dict[PairBound, str] = {
    "launch": "their launches, which one thread makes in turn",
    "compute": "compute, of which each has its share",
    "bandwidth": "memory bandwidth, which both stream",
}


class SharedPair(Spec, omit_defaults=False):
    """Two modules that run side by side in a step, and what bounds the longer of their passes."""

    modules: tuple[str, str]
    shares: tuple[float, float]
    together: float  # seconds of a rank in which both run
    bound: PairBound

    @property
    def text(self) -> str:
        """As a sentence without its end: `vision 3/8 and audio 5/8 of a device are bound by compute`."""
        each = (f"{name} {share:g}" for name, share in zip(self.modules, self.shares, strict=True))
        return f"{' and '.join(each)} of a device are bound by {BOUND_BY[self.bound]}"


def shared_modules(plan: Plan) -> dict[str, float]:
    """The modules that have a share of their devices anywhere in a plan, and how much."""
    micro_batches = (each for step in plan.steps for each in step.micro_batches)
    return {a.module: a.share for each in micro_batches for a in assignments(plan, each) if a.share < 1.0}


def shares_text(plan: Plan) -> str:
    """What the price of a plan's shares rests on; empty where it has none."""
    own = shared_modules(plan)
    if not own:
        return ""
    divided, timed = ", ".join(f"{name} {share:g}" for name, share in own.items()), plan.uses.prices.shares
    if timed is None or timed.holdout_error is None:
        known = timed or ASSUMED_SHARES
        assumed = f"κ {known.kappa:g} and γ {known.gamma:g} are assumed, and nobody timed modules side by side there"
        return f"{divided}: their gain rests on an assumption: {assumed} (planner profile --shares)"
    error, gain = percent(timed.holdout_error), f"{timed.gain or 1.0:.2f} × as quick as in turn"
    return f"{divided}: priced as timed on {timed.device}, where pairs were {gain}, {error} off at most"


def shares_doubt(plan: Plan) -> float:
    """Expected over predicted seconds of a plan, by the error of its shares' prices; 1 where it has none."""
    if not shared_modules(plan):
        return 1.0
    timed = plan.uses.prices.shares or ASSUMED_SHARES
    if timed.gain is not None and timed.gain < LEAST_GAIN:
        return inf
    return max(1.0 + timed.spread * shared_part(score(plan, number)) for number in range(len(plan.steps)))


def shared_part(scored: Score) -> float:
    """The share of a step's critical path that is in passes with a share."""
    sharing = {task.id for task in scored.tasks if task.share < 1.0 and task.phase in PASS_PHASES}
    path = scored.timeline.critical_path()
    total = sum(event.seconds for event in path)
    return sum(event.seconds for event in path if event.id in sharing) / total if total else 0.0


def shared_pairs(scored: Score) -> tuple[SharedPair, ...]:
    """The pairs of modules that run side by side on a rank, in the order in which they first do."""
    tasks = {task.id: task for task in scored.tasks if task.share < 1.0 and task.phase in PASS_PHASES}
    events = [event for event in scored.timeline.events if event.id in tasks]
    found: dict[tuple[str, str], tuple[float, Task, Task]] = {}
    for one, other in combinations(events, 2):
        overlap = min(one.end, other.end) - max(one.start, other.start)
        if overlap <= 0 or one.module == other.module or {*one.ranks}.isdisjoint(other.ranks):
            continue
        first, second = sorted((tasks[one.id], tasks[other.id]), key=lambda task: task.module)
        seconds, *longest = found.get((first.module, second.module), (0.0, first, second))
        found[first.module, second.module] = (seconds + overlap, longest[0], longest[1])
    pricing = scored.plan_memory.pricing
    return tuple(
        SharedPair(
            modules=names, shares=(one.share, other.share), together=seconds, bound=bound_of((one, other), pricing)
        )
        for names, (seconds, one, other) in found.items()
    )


def bound_of(pair: Sequence[Task], pricing: Pricing) -> PairBound:
    """What bounds two passes side by side."""
    uses = [pricing.device_use(task) for task in pair]
    costs = [pricing.pass_cost(task) for task in pair]
    seconds = [
        use.device_seconds * device_slowdown(use, [other]) for use, other in zip(uses, reversed(uses), strict=True)
    ]
    if sum(cost.host for cost in costs) >= max(seconds):
        return "launch"
    longer = uses[seconds.index(max(seconds))]
    return "bandwidth" if streams(longer, uses) else "compute"


def streams(use: DeviceUse, uses: Sequence[DeviceUse]) -> bool:
    """Whether a pass waits for memory longer than it computes, or all demand more bandwidth than there is."""
    waits = use.memory_bound / use.reachable_bandwidth
    return waits > use.compute / use.share or sum(each.bandwidth_share for each in uses) > 1.0
