"""The answer about a pool: the best choice within the limits, and the front of time and money around it."""

from dataclasses import dataclass

from planner.callbacks import OnProgress
from planner.costs import STEP_SECONDS, usd_per_hour
from planner.errors import Infeasible, InputError
from planner.pools.bills import chance_within
from planner.pools.search import Goal, Judged, Passed, Point, PoolSearch, Solve, best_of, dominating, pool_search
from planner.pools.texts import bill_text, question_text, run_lines
from planner.scoring import restate_in_objective, with_bound_digest
from planner.specs.base import with_fields
from planner.specs.inputs import Inputs, Offer, of_one_step
from planner.specs.job import Limits
from planner.specs.offers import LeftOut, OfferedCluster, limit_refusal
from planner.specs.run_length import Run
from planner.strategies import SolvedJob
from planner.units import listed

NO_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class PoolAnswer:
    """What a pool gives a run, within its limits."""

    run: Run
    limits: Limits
    chosen: Point
    solved: SolvedJob  # its plan, in the job's objective
    points: tuple[Judged, ...]  # by days
    passed: tuple[Passed, ...]
    left_out: tuple[LeftOut, ...]

    @property
    def front(self) -> list[Point]:
        """The points to which no other is preferred, the soonest first."""
        return [each.point for each in self.points if each.by is None]

    @property
    def soonest(self) -> Point:
        """The best under the budget."""
        return self.front[0]

    @property
    def cheapest(self) -> Point:
        """The cheapest by the deadline."""
        return self.front[-1]

    @property
    def chance(self) -> float:
        """The chance that the chosen one keeps the limits."""
        return chance_within(self.chosen.bill, self.chosen.plan, self.limits)


def choose(inputs: Inputs, solve: Solve, on_offer: OnProgress, whole_front: bool = False) -> PoolAnswer:
    """The best choice by the job's objective: the soonest, or the cheapest; with all points of time and money where the
    whole front is asked for. Raises Infeasible, saying what it would take, and InputError.
    """
    run, limits = inputs.job.run, inputs.job.limits
    assert run, "the job asks about a run"
    best: Goal = "days" if inputs.job.objective == STEP_SECONDS else "usd"
    search = pool_search(inputs.offers or (own_offer(inputs),), run, solve, on_offer)
    points, passed = search.points("front" if whole_front else best, limits)
    chosen = best_of(points, best)
    if chosen is None:
        raise nothing_within(search, inputs, run)
    plan = restate_in_objective(chosen.plan, inputs.job.objective)
    told = run_lines(chosen, run, limits)
    judged = sorted(dominating(points), key=lambda each: (each.point.bill.days, each.by is not None))
    return PoolAnswer(
        run=run,
        limits=limits,
        chosen=chosen,
        solved=SolvedJob(with_bound_digest(plan), chosen.solving_seconds, told),
        points=(*judged,),
        passed=(*passed,),
        left_out=(*inputs.left_out, *search.unable()),
    )


def own_offer(inputs: Inputs) -> Offer:
    """The cluster of a job that is no pool, as its only choice. Raises InputError where nobody said its price, and
    Infeasible where it is beyond a limit.
    """
    try:
        price = usd_per_hour(inputs.cluster, inputs.devices) / inputs.cluster.size
    except InputError as error:
        raise InputError(error.message, where=f"{inputs.sources['cluster']} (ranks)", fix=error.fix) from error
    offered = OfferedCluster(inputs.cluster, price)
    if over := limit_refusal(offered, inputs.job.limits):
        raise Infeasible(f"the cluster is {over}", where=f"{inputs.file} (limits)", fix="a smaller one, or more")
    return Offer(offered, of_one_step(inputs))


def nothing_within(search: PoolSearch, inputs: Inputs, run: Run) -> Infeasible:
    """The error where no choice keeps the limits: what the cheapest takes, and what either limit would have to be."""
    limits = inputs.job.limits
    cheapest = best_of(search.points("usd", NO_LIMITS)[0], "usd")
    if cheapest is None:
        errors = [each for each in search.plans.values() if isinstance(each, Infeasible)]
        fix = "more GPUs, or devices with more memory"
        return errors[-1] if errors else Infeasible("the model fits on no choice of the pool", where="memory", fix=fix)
    relaxed = list[str]()
    if limits.days and (by_day := best_of(search.points("usd", with_fields(limits, usd=None))[0], "usd")):
        relaxed.append(f"${by_day.bill.usd:,.0f} for the {limits.days:g} days, on {by_day.offer.offered.name}")
    if limits.usd and (of_budget := best_of(search.points("days", with_fields(limits, days=None))[0], "days")):
        relaxed.append(f"{of_budget.bill.days:,.1f} days for ${limits.usd:,.0f}, on {of_budget.offer.offered.name}")
    if not relaxed:
        relaxed.append(bill_text(cheapest))
    if limits.days and limits.usd is None:
        soonest = best_of(search.points("days", NO_LIMITS)[0], "days") or cheapest
        relaxed = [f"{soonest.bill.days:,.1f} days, on {soonest.offer.offered.name}, or more GPUs"]
    return Infeasible(
        f"nothing that is offered trains {question_text(run, limits)}: the cheapest takes {bill_text(cheapest)}",
        where=f"{inputs.file} (limits)",
        fix=listed(relaxed, "or"),
    )
