"""Which GPUs of a pool a job is given, how many and for how much: choices solved as far as bounds leave them open."""

from planner.pools.bills import Bill, Tariff, chance_within
from planner.pools.choose import PoolAnswer, choose, is_run
from planner.pools.downtime import Downtime
from planner.pools.search import Goal, Judged, Passed, Point
from planner.pools.texts import HEADS, bill_text, downtime_text, notes, point_cells, question_text

__all__ = [
    "HEADS",
    "Bill",
    "Downtime",
    "Goal",
    "Judged",
    "Passed",
    "Point",
    "PoolAnswer",
    "Tariff",
    "bill_text",
    "chance_within",
    "choose",
    "downtime_text",
    "is_run",
    "notes",
    "point_cells",
    "question_text",
]
