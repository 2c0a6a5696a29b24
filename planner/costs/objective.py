"""What a plan is best by, as a table: what follows from the seconds of its steps, what ranks cost, and tokens.

On ranks that are given each is proportional to the seconds, or to one over them. So strategies make seconds least
whatever the objective is, and a plan is put in its unit once it is decided (verify/worth.py). A gap is a ratio of
losses, and the same number in all of them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from planner.errors import InputError
from planner.specs.cluster import Cluster
from planner.specs.profile import Device
from planner.units import duration

STEP_SECONDS = "step_seconds"  # in which strategies state outcomes
HOUR = 3600.0  # seconds


@dataclass(frozen=True, slots=True)
class Work:
    """So many tokens in so many seconds, on all ranks of a cluster."""

    seconds: float
    cluster: Cluster
    devices: Mapping[str, Device]  # by kind of rank
    tokens: float

    @property
    def dollars(self) -> float:
        """Raises InputError where nobody says what a rank costs."""
        return self.seconds / HOUR * usd_per_hour(self.cluster, self.devices)

    @property
    def tokens_per_dollar(self) -> float:
        dollars = self.dollars
        return self.tokens / dollars if dollars else 0.0


class Objective(NamedTuple):
    """How one is counted and said; `more`: of it is better. 0 stands for nothing known, as it does of seconds."""

    unit: str
    of: Callable[[Work], float]
    said: Callable[[float], str]
    more: bool = False

    @property
    def verb(self) -> str:
        """What a plan does with its value."""
        return "gives" if self.more else "takes"

    def loss(self, value: float) -> float:
        """What is least in the best plan, proportional to its seconds: the value, or one over it."""
        return value if not self.more else 1.0 / value if value else 0.0

    def gap(self, value: float, bound: float) -> float:
        """How far the value is from the bound, as a share of the bound's loss."""
        loss, least = self.loss(value), self.loss(bound)
        return (loss - least) / least if least > 0 else 0.0


def money(dollars: float) -> str:
    """`$12.34`; below a dollar with three digits that count."""
    return f"${dollars:,.2f}" if dollars >= 1 else f"${dollars:.3g}"


OBJECTIVES: dict[str, Objective] = {
    STEP_SECONDS: Objective("s", lambda work: work.seconds, duration),
    "dollars": Objective("$", lambda work: work.dollars, money),
    "tokens_per_dollar": Objective(
        "tokens/$", lambda work: work.tokens_per_dollar, "{:,.0f} tokens/$".format, more=True
    ),
}


def objective_called(name: str, where: str = "objective") -> Objective:
    """Raises InputError listing those there are."""
    if name not in OBJECTIVES:
        raise InputError(f"no objective is called `{name}`", where=where, fix=f"one of {', '.join(OBJECTIVES)}")
    return OBJECTIVES[name]


def usd_per_hour(cluster: Cluster, devices: Mapping[str, Device]) -> float:
    """Of all ranks: what the cluster says of a kind, else its device's price. Raises InputError where there is none."""
    total = 0.0
    for number, kind in enumerate(cluster.ranks):
        price = kind.usd_per_hour if kind.usd_per_hour is not None else devices[kind.kind].usd_per_hour
        if price is None:
            raise InputError(
                f"nobody says what an hour of a {kind.kind} costs",
                where=f"cluster.ranks[{number}]",
                fix="say usd_per_hour of one rank there, in a cluster file of your own, and in `source` who asks that",
            )
        total += kind.count * price
    return total
