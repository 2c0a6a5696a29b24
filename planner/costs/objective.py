"""The objectives that plans are compared by: step seconds, dollars, tokens per dollar.

On given ranks each objective is proportional to the seconds of a step, or to one over them. So every strategy minimises
seconds, and a plan is put in the unit of its objective once it is solved (scoring/objective_value.py). A gap is
a ratio of losses, and is the same number in every objective.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from planner.errors import InputError
from planner.specs.hardware.cluster import Cluster
from planner.specs.hardware.profile import Device
from planner.specs.job import USUAL_OBJECTIVE
from planner.units import duration

STEP_SECONDS = USUAL_OBJECTIVE
HOUR = 3600.0  # seconds


@dataclass(frozen=True, slots=True)
class StepWork:
    """Seconds that all ranks of a cluster take, and the tokens that they train on in them."""

    seconds: float
    cluster: Cluster
    devices: Mapping[str, Device]  # by kind of rank
    tokens: float

    @property
    def dollars(self) -> float:
        """Dollars at the hourly price of the ranks. Raises InputError where the price of a rank is not known."""
        return self.seconds / HOUR * usd_per_hour(self.cluster, self.devices)

    @property
    def tokens_per_dollar(self) -> float:
        """Tokens trained per dollar; 0 where no time was taken. Raises InputError where the price of a rank is not
        known.
        """
        dollars = self.dollars
        return self.tokens / dollars if dollars else 0.0


class Objective(NamedTuple):
    """How an objective is computed and shown. 0 means unknown, as it does for seconds."""

    unit: str
    of: Callable[[StepWork], float]
    formatted: Callable[[float], str]
    larger_is_better: bool = False

    @property
    def verb(self) -> str:
        """The verb for texts: a plan takes seconds or dollars, and gives tokens per dollar."""
        return "gives" if self.larger_is_better else "takes"

    def loss(self, value: float) -> float:
        """The loss to minimise, proportional to seconds: the objective value, or one over it where larger is better."""
        return value if not self.larger_is_better else 1.0 / value if value else 0.0

    def gap(self, value: float, bound: float) -> float:
        """The relative gap between an objective value and its bound, as a share of the bound's loss."""
        loss, bound_loss = self.loss(value), self.loss(bound)
        return (loss - bound_loss) / bound_loss if bound_loss > 0 else 0.0


def dollar_text(dollars: float) -> str:
    """Dollars as text: `$12.34`, or three significant digits below one dollar."""
    return f"${dollars:,.2f}" if dollars >= 1 else f"${dollars:.3g}"


OBJECTIVES: dict[str, Objective] = {
    STEP_SECONDS: Objective("s", lambda work: work.seconds, duration),
    "dollars": Objective("$", lambda work: work.dollars, dollar_text),
    "tokens_per_dollar": Objective(
        "tokens/$", lambda work: work.tokens_per_dollar, "{:,.0f} tokens/$".format, larger_is_better=True
    ),
}


def find_objective(name: str, where: str = "objective") -> Objective:
    """The objective of this name. Raises InputError, listing those there are."""
    if name not in OBJECTIVES:
        raise InputError(f"no objective is called `{name}`", where=where, fix=f"one of {', '.join(OBJECTIVES)}")
    return OBJECTIVES[name]


def usd_per_hour(cluster: Cluster, devices: Mapping[str, Device]) -> float:
    """Dollars per hour of all ranks, by the cluster's price of a rank or else its device's.

    Raises InputError where neither gives a price.
    """
    total = 0.0
    for number, kind in enumerate(cluster.ranks):
        price = kind.usd_per_hour if kind.usd_per_hour is not None else devices[kind.kind].usd_per_hour
        if price is None:
            raise InputError(
                f"it is not known what an hour of a {kind.kind} costs",
                where=f"cluster.ranks[{number}]",
                fix="give usd_per_hour of one rank there, in a cluster file of your own, and its origin in `source`",
            )
        total += kind.count * price
    return total
