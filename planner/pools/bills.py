"""The bill of a run: days and dollars of all its steps and what comes on top, and the chance that it is kept to."""

from dataclasses import dataclass
from math import inf, log
from statistics import NormalDist

from planner.plan.plan_file import Plan
from planner.pools.downtime import Downtime, downtime_of
from planner.scoring import interval_spread
from planner.specs.inputs import Inputs, Offer
from planner.specs.job import Limits
from planner.specs.run_length import DAY, HOUR, Run
from planner.specs.workload.items import part_lengths

EIGHTY = NormalDist().inv_cdf(0.9)  # half-width of an 80 % interval over the standard deviation


@dataclass(frozen=True, slots=True)
class Bill:
    """What a run takes if its steps take so many seconds."""

    step_seconds: float
    days: float
    usd: float

    def within(self, limits: Limits) -> bool:
        """Whether both are within the limits that there are."""
        return self.days <= (limits.days or inf) and self.usd <= (limits.usd or inf)

    def covers(self, other: "Bill") -> bool:
        """Whether it is neither later nor dearer than another."""
        return self.days <= other.days and self.usd <= other.usd


@dataclass(frozen=True, slots=True)
class Tariff:
    """What turns seconds of a step into the bill of a run on one choice of a pool."""

    offer: Offer
    steps: float
    downtime: Downtime

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of its GPUs."""
        return self.offer.offered.kinds

    def bill(self, step_seconds: float) -> Bill:
        """The bill of a run whose steps take so many seconds."""
        seconds = step_seconds * self.steps * self.downtime.factor
        return Bill(step_seconds, seconds / DAY, seconds / HOUR * self.offer.offered.usd_per_hour)


def tariff_of(offer: Offer, run: Run) -> Tariff:
    """The tariff of one choice."""
    inputs = offer.inputs
    return Tariff(offer, run.tokens / step_tokens(inputs), downtime_of(offer.offered, inputs, run))


def step_tokens(inputs: Inputs) -> float:
    """Tokens of the samples of a step, in the mean of all batches."""
    sizes = [size for batch in inputs.batches for size in batch.items.values()]
    return sum(length for size in sizes for length in part_lengths(size)) / len(inputs.batches)


def chance_within(bill: Bill, plan: Plan, limits: Limits) -> float:
    """The chance that a run keeps the limits: its seconds are log-normal, as wide as the interval of its plan."""
    room = min((limits.days or inf) / bill.days, (limits.usd or inf) / bill.usd if bill.usd else inf)
    spread = interval_spread(plan, plan.prediction.spread) / EIGHTY
    if room == inf or not spread:
        return float(room >= 1.0)
    return NormalDist().cdf(log(room) / spread)
