"""Which GPUs of a pool a job is given, how many and for how much: choices solved as far as bounds leave them open."""

from planner.pools.bills import Bill, Tariff, chance_within
from planner.pools.choose import PoolAnswer, choose, is_run
from planner.pools.downtime import Downtime
from planner.pools.search import Goal, Passed, Point

__all__ = [
    "Bill",
    "Downtime",
    "Goal",
    "Passed",
    "Point",
    "PoolAnswer",
    "Tariff",
    "chance_within",
    "choose",
    "is_run",
]
