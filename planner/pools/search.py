"""Which choices of a pool are solved: all but those that cannot be better than what is known already.

Seconds of a step that a choice would have to be below are known: beyond others it is out of a limit, or a point that is
solved is neither later nor dearer. Its work alone may take as long (layouts/bounds/work_bound.py); else, where a search
of static layouts decides, the bound of its space is asked, which takes a quarter of a search. Which choices are solved
first decides how many are, and never which is best: those that are quick for their money come first.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Literal, NamedTuple

from planner.callbacks import OnProgress
from planner.errors import Infeasible
from planner.layouts import layout_problem, may_be_below, mixed_work_bound, problems_by_kind, work_bound
from planner.plan.plan_file import Plan
from planner.pools.bills import Bill, Tariff, tariff_of
from planner.specs.base import with_fields
from planner.specs.hardware.cluster import Cluster, rank_kinds
from planner.specs.inputs import Inputs, Offer
from planner.specs.job import Limits
from planner.specs.offers import LeftOut
from planner.specs.run_length import Run
from planner.strategies import STRATEGIES, SolvedJob

Solve = Callable[[Inputs], SolvedJob]  # raises Infeasible
LIKELY = 1.5  # times the work alone: less is often more than a step takes, and worth to be asked
SMALLEST = 1e-12  # dollars, where nothing is paid
Goal = Literal["front", "days", "usd"]  # every point of time and money; or the soonest, or the cheapest alone


class Point(NamedTuple):
    """A choice that is solved."""

    tariff: Tariff
    plan: Plan
    bill: Bill
    least: Bill  # by the bound of its plan
    solving_seconds: tuple[float, ...]

    @property
    def offer(self) -> Offer:
        return self.tariff.offer


class Passed(NamedTuple):
    """A choice that is no point: what it takes at least, or exactly where it was solved, and the point that covers it;
    None: it is beyond a limit.
    """

    tariff: Tariff
    least: Bill
    by: Point | None


class Judged(NamedTuple):
    """A point, and the first that is neither later nor dearer; None: it is of the front."""

    point: Point
    by: Point | None


@dataclass(frozen=True, slots=True)
class PoolSearch:
    """The choices of a pool with their tariffs, and those that are solved so far, each once."""

    tariffs: tuple[Tariff, ...]
    solve: Solve
    on_offer: OnProgress
    bounds: dict[int, Bill] = field(default_factory=dict)
    plans: dict[Cluster, SolvedJob | Infeasible] = field(default_factory=dict)  # whatever its ranks cost

    def least(self, number: int) -> Bill:
        """What a choice takes at least."""
        if number not in self.bounds:
            tariff = self.tariffs[number]
            self.bounds[number] = tariff.bill(least_seconds(tariff.offer.inputs))
        return self.bounds[number]

    def points(self, goal: Goal, limits: Limits) -> tuple[list[Point], list[Passed]]:
        """All points within the limits that may be of the answer, and what was passed over; first those that came
        first in the pool.
        """
        found, passed = dict[int, Point](), dict[int, Passed]()
        order = sorted(
            range(len(self.tariffs)), key=lambda at: (len(self.tariffs[at].kinds) > 1, promise(self.least(at), goal))
        )  # several kinds at once come last: each alone may do
        for done, number in enumerate(order):
            tariff, least = self.tariffs[number], self.least(number)
            self.on_offer(done, len(order), tariff.offer.offered.name)
            if least.days == inf:
                continue
            needed, by = useful_seconds(tariff, goal, limits, [*found.values()])
            if goal == "usd" and len(tariff.kinds) > 1 and (cheaper := self.cheapest_alone(tariff, found)):
                passed[number] = Passed(tariff, tariff.bill(max(needed, least.step_seconds)), cheaper)
                continue
            if needed <= least.step_seconds or not self.may_take_less(tariff, least.step_seconds, needed):
                passed[number] = Passed(tariff, tariff.bill(max(needed, least.step_seconds)), by)
            elif point := self.solved(tariff):
                if point.bill.within(limits):
                    found[number] = point
                else:
                    passed[number] = Passed(tariff, point.bill, None)
        return [found[number] for number in sorted(found)], [passed[number] for number in sorted(passed)]

    def cheapest_alone(self, tariff: Tariff, found: Mapping[int, Point]) -> Point | None:
        """The cheapest known point of one of the kinds of a mixed choice. A dollar buys no more work of several kinds
        than of the one whose work is cheapest, and exchanges between kinds cost besides.
        """
        alone = (each for each in found.values() if {*each.tariff.kinds} < {*tariff.kinds})
        return min(alone, key=lambda each: each.bill.usd, default=None)

    def may_take_less(self, tariff: Tariff, least: float, needed: float) -> bool:
        """Whether a step on a choice, which takes `least` seconds or more, may take less than are needed; True where a
        search is likely to tell, or no static layout alone is asked for.
        """
        inputs = tariff.offer.inputs
        entry = STRATEGIES.get(inputs.job.strategy)
        unknown = not entry or not entry.searches_layouts or len(inputs.model.modules) > 1 or len(tariff.kinds) > 1
        if unknown or len(self.tariffs) == 1 or needed > LIKELY * least or at_any_price(inputs.cluster) in self.plans:
            return True
        return may_be_below(layout_problem(inputs), needed)

    def solved(self, tariff: Tariff) -> Point | None:
        """One choice, solved; None where nothing fits."""
        cluster = tariff.offer.inputs.cluster
        alike = at_any_price(cluster)
        if alike not in self.plans:
            try:
                self.plans[alike] = self.solve(tariff.offer.inputs)
            except Infeasible as error:
                self.plans[alike] = error
        known = self.plans[alike]
        if isinstance(known, Infeasible):
            return None
        plan = with_fields(known.plan, uses=with_fields(known.plan.uses, cluster=cluster))
        steps = len(plan.steps)
        seconds, bound = plan.prediction.step_seconds / steps, plan.outcome.bound / steps
        return Point(tariff, plan, tariff.bill(seconds), tariff.bill(min(bound, seconds)), known.step_seconds)

    def unable(self) -> Iterator[LeftOut]:
        """Yield the choices on which the model is known not to fit, or a run never to end."""
        for number, tariff in enumerate(self.tariffs):
            found = self.plans.get(at_any_price(tariff.offer.inputs.cluster))
            if isinstance(found, Infeasible) or self.least(number).step_seconds == inf:
                yield LeftOut(tariff.offer.offered.name, "the model does not fit")
            elif tariff.downtime.factor == inf:
                yield LeftOut(tariff.offer.offered.name, "it is interrupted before any checkpoint is written")


def at_any_price(cluster: Cluster) -> Cluster:
    """The cluster without what its ranks cost, which decides nothing of a plan."""
    return with_fields(cluster, ranks=tuple(with_fields(each, usd_per_hour=None) for each in cluster.ranks))


def pool_search(offers: Sequence[Offer], run: Run, solve: Solve, on_offer: OnProgress) -> PoolSearch:
    """The search over these choices."""
    return PoolSearch(tuple(tariff_of(each, run) for each in offers), solve, on_offer)


def least_seconds(inputs: Inputs) -> float:
    """Seconds of a step on a choice at least; 0 of several modules."""
    if len(inputs.model.modules) > 1:
        return 0.0
    kinds = rank_kinds(inputs.cluster)
    if len(kinds) == 1:
        return work_bound(layout_problem(inputs))
    return mixed_work_bound(*problems_by_kind(inputs))


def promise(least: Bill, goal: Goal) -> tuple[float, ...]:
    """Sort key of choices: what may be best comes first."""
    return {"front": (least.days * least.usd,), "days": (least.days, least.usd), "usd": (least.usd, least.days)}[goal]


def useful_seconds(tariff: Tariff, goal: Goal, limits: Limits, known: Sequence[Point]) -> tuple[float, Point | None]:
    """Seconds of a step from which on a choice is beyond a limit, or no better than a known point: the least of all,
    with the point that it is by.
    """
    day, dollar = tariff.bill(1.0).days, tariff.bill(1.0).usd or SMALLEST
    each: list[tuple[float, Point | None]] = [((limits.days or inf) / day, None), ((limits.usd or inf) / dollar, None)]
    for point in known:
        days, usd = point.bill.days / day, point.bill.usd / dollar
        each.append(({"front": max(days, usd), "days": days, "usd": usd}[goal], point))
    return min(each, key=lambda one: one[0])


def dominating(points: Sequence[Point]) -> Iterator[Judged]:
    """Yield each point with the first other one that is neither later nor dearer; of equal ones the first is of the
    front.
    """
    for number, each in enumerate(points):
        others = ((at, other) for at, other in enumerate(points) if at != number and other.bill.covers(each.bill))
        better = (other for at, other in others if at < number or not each.bill.covers(other.bill))
        yield Judged(each, next(better, None))


def best_of(points: Iterable[Point], goal: Goal) -> Point | None:
    """The soonest, of equally soon ones the cheapest; or the other way round. None of none."""
    return min(points, key=lambda each: promise(each.bill, goal), default=None)
