"""Fills groups of ranks with sequences: the packing core shared by strategies for variable lengths."""

from planner.packing.balanced import best_balanced, one_item_per_micro_batch
from planner.packing.makespan_search import search_makespans
from planner.packing.one_pool import best_of_each_pool
from planner.packing.packed_groups import PackedGroup, Packing, canonical_order, longest_work_last, packing_seconds
from planner.packing.rank_placement import place_packing
from planner.packing.stream_search import stream_search

__all__ = [
    "PackedGroup",
    "Packing",
    "best_balanced",
    "best_of_each_pool",
    "canonical_order",
    "longest_work_last",
    "one_item_per_micro_batch",
    "packing_seconds",
    "place_packing",
    "search_makespans",
    "stream_search",
]
