"""How many groups of ranks have each table, how each is cut, and where its shards are."""

from planner.strategies.sharded_tables.choose_groups import TableProblem, choose_groups, placement_error
from planner.strategies.sharded_tables.search import place_tables
