"""Which GPUs of a pool a job is given, how many and for how much: choices solved as far as bounds leave them open."""

from planner.pools.choose import PoolAnswer, choose
from planner.pools.search import Judged
from planner.pools.texts import HEADS, bill_text, downtime_text, notes, point_cells, question_text
